"""Shredding: from a landed directory to typed Parquet and a listing of it.

enriched    the fields of a Snowplow enriched event
columns     JSON Schemas to table columns
iglu        where the JSON Schemas come from
atomic      lines to typed event columns
entities    JSON cells to typed entity columns
kernel      bytes of lines to tables, without Spark
parquet     column types and files
splits      which bytes of which files a task reads
snowplow    the Spark job over a batch of directories
"""
