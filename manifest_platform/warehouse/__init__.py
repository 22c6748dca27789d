"""Loads shredded directories into a warehouse: in order, exactly once, one transaction a directory.

`apply` is the protocol, written once, and has `open_warehouse`; `load` says what is to be applied, `control` has fence and
ledger, `tables` and `snapshot` the data; `engines` has the contract of what an engine must offer for it, and the engines.
"""
