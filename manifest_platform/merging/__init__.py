"""Merges the small Parquet objects of shredding into well-sized objects, and publishes them to a catalog.

Belongs here: everything about one dataset's merged tables, except where the manifest's rows are stored.
- Model: `state` (facts and rows), `transitions` (pure changes), `inventory` (operations), `registration` (of new objects).
- Planning and writing: `plan` (which objects become which ranges), `kernel` (merges one range), `spark_job` (many ranges).
- Reading: `publish` (to the plug-ins in `catalogs`), `served` (the files that readers get), `readers` (DuckDB and Spark).
- Cleanup: `garbage` (files that nothing needs), `settling` (rows that nothing needs).

A partition starts with live small objects, which readers see. It is closed after its day, switched when its live objects are
merged, and then published: readers see the merged objects. `state` defines these words.

Not here: when to merge and publish (`pipeline`), how small objects are written (`shred`), the store (`manifest`).
"""
