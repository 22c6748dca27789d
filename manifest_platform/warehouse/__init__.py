"""Loads shredded directories into a warehouse: in order, exactly once, with one transaction for each directory.

Belongs here: everything that changes or asks a warehouse.
- Protocol: `apply` (begin here: `open_warehouse`), `load` (the load to apply), `rules` (if it may be applied), `errors`.
- Control tables: `control` (fence, ledger, known and dropped tables), `families` and `columns` (names that could be confused).
- Data: `tables` (DDL and rows), `snapshot` (tables replaced by a full load), `consent` (full loads that need an operator).
- Databases: `engines`, the contract of an engine and a module for each.

Not here: the order of the steps around a load (claim, apply, complete), which is in `pipeline`; the Parquet files (`shred`).
"""
