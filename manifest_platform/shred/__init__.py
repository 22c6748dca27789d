"""What all sources share of shredding: from a landed directory to typed Parquet and a listing of it.

batch        a batch of directories in one Spark job: what each task reads and writes, and the listing or the failure of each
lines        which task reads which lines of which file
rows         rows of text as Arrow tables, and the table of what could not be shredded
csv_kernel   bytes of CSV to tables, without Spark
"""
