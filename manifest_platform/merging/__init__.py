"""Merging: small Parquet objects to well-sized ones, by partition; closed, switched and published to a catalog."""
