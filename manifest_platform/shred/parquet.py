"""Columns as Arrow schemas, and Parquet files by URI.

Belongs here: what every shredder needs to turn columns into files. What the rows mean does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from manifest_platform import storage
from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Column


def max_length(type_: str) -> int | None:
    """The n of `string(n)`; None for every other type."""
    return int(type_[7:-1]) if type_.startswith("string(") else None


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of a table with these columns."""
    return pa.schema([pa.field(column.name, arrow_type(column.type), column.nullable) for column in columns])


def write(uri: str, table: pa.Table) -> int:
    """Writes a table as one Parquet file (zstd) and returns its size in bytes; an existing file is replaced."""
    system, path = storage.filesystem(uri)
    if storage.is_local(uri):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with system.open_output_stream(path) as stream:
        pq.write_table(table, stream, compression="zstd")
        return stream.tell()
