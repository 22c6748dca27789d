"""Parquet objects to rows of a temporary table: streamed through Arrow and COPY, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from manifest_platform import storage
from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Table
from manifest_platform.warehouse.errors import LoadFailed, Unavailable

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 16_384


def batches(table: Table, uris: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of Parquet objects with the columns of a table, in this order and with their types."""
    import pyarrow as pa

    names = [column.name for column in table.columns]
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in table.columns])
    for uri in uris:
        try:
            yield from _of_object(uri, names, schema)
        except pa.ArrowInvalid as error:
            raise LoadFailed(f"table {table.name}, object {uri}: {error}") from error
        except FileNotFoundError as error:
            raise LoadFailed(f"table {table.name}: an object is gone: {error}") from error
        except OSError as error:
            raise Unavailable(f"table {table.name}, object {uri} cannot be read: {error}") from error


def _of_object(uri: str, names: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet

    system, path = storage.filesystem(uri)
    with system.open_input_file(path) as source, pyarrow.parquet.ParquetFile(source) as file:
        there = set(file.schema_arrow.names)
        for batch in file.iter_batches(_BATCH_ROWS, columns=[name for name in names if name in there], use_threads=False):
            columns = [
                batch.column(field.name).cast(field.type) if field.name in there else pa.nulls(len(batch), field.type)
                for field in schema
            ]
            yield pa.record_batch(columns, schema=schema)


def as_csv(batch: pa.RecordBatch) -> bytes:
    """Returns the rows as CSV, where a missing value is empty and an empty text is `""`."""
    import pyarrow as pa
    import pyarrow.csv

    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(
        batch, sink, pyarrow.csv.WriteOptions(include_header=False, quoting_style="all_valid", batch_size=len(batch) or 1)
    )
    return sink.getvalue()
