"""Loads shredded directories into a warehouse: in order, exactly once, one transaction a directory.

`apply` is the protocol, written once; `dialect` is what an engine must offer for it; `duckdb` is one such engine.
"""
