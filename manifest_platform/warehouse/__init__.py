"""Loads shredded directories into a warehouse: in order, exactly once, one transaction a directory.

`apply` is the protocol, written once, and has `open_warehouse`; `engines` has the contract of what an engine must offer for it,
and the engines.
"""
