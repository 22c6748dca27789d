"""The embedded warehouse in a DuckDB file: its settings, and the engine."""
