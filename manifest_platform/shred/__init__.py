"""The part of shredding that all sources share: from a landed directory to typed Parquet files and their listing.

batch        many directories in one Spark job, and the listing or the failure of each
lines        division of files of lines into tasks, and reading in chunks
compression  the compression of a file of lines, and its text
rows         casts of text columns to Arrow, and the table of bad rows
csv_kernel   CSV bytes to typed tables, without Spark
limits       the limits of a directory
sample       a sample of the result without Spark or output

Not here: the formats and schemas of a source (`sources`), and which items are shredded when (`pipeline`).
"""
