"""Runs that Snowplow's own transformer has shredded: their seal, their layouts, and the functions to typed tables.

seal       the file that the transformer writes last, and its published schema
layout     the meaning of a file's path: bad rows, a table as TSV, or wide rows as Parquet
tsv        the function from TSV lines to typed tables
wide       the function from wide rows in Parquet to typed tables
shredder   the Spark job over runs
source     the source
settings   the settings of a dataset of this source
"""
