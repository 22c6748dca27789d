"""Loads shredded directories into a warehouse: in order, exactly once, with one transaction for each directory.

`apply` has the protocol, the same for every engine, and `open_warehouse`. `load` describes what to apply, `rules` decides if it
may be applied, `control` has the fence and the ledger, `tables` and `snapshot` move the data. `engines` has the contract of an
engine, and the engines. The order of the steps around a load (claim, apply, complete) is in `pipeline`.
"""
