"""Merges the small Parquet objects of shredding into well-sized objects, and publishes them to a catalog.

Belongs here: everything about one dataset's merged tables, except where the manifest's rows are stored.
- Model: `state` (facts and rows), `transitions` (pure changes), `inventory` (operations), `registration`, `settling`.
- Planning and writing: `plan` (which objects become which ranges), `kernel` (merges one range), `spark_job` (many ranges).
- Reading and cleanup: `publish`, `served`, `readers`, `garbage`, and the plug-ins in `catalogs`.

Not here: when to merge and publish (`pipeline`), how small objects are written (`shred`), the store (`manifest`).
"""
