"""Shredding: from a landed directory to typed Parquet and a listing of it.

batch        a batch of directories in one Spark job, whatever they hold
bad          the table of what could not be shredded
casts        columns of text to typed ones, and the misfits
parquet      column types and files

snowplow     the Spark job over directories of Snowplow enriched events
enriched     the fields of an event
columns      JSON Schemas to table columns
iglu         where the JSON Schemas come from
atomic       lines to typed event columns
entities     JSON cells to typed entity columns
kernel       bytes of lines to tables, without Spark
splits       which bytes of which files a task reads

veeva        the Spark job over windows of Veeva Vault's Direct Data
direct_data  a window's manifest and metadata, and the tables that follow
csv_kernel   bytes of CSV to tables, without Spark
"""
