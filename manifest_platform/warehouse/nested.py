"""Structs and arrays as JSON text: no warehouse's column is nested, so the files are written again before they are staged.

Parquet does not tell a missing field from null, so the text leaves both out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from manifest_platform import storage
from manifest_platform.listing import Listing, ShreddedObject, Table
from manifest_platform.nested_types import is_nested
from manifest_platform.warehouse.errors import LoadFailed, Unavailable
from manifest_platform.warehouse.scratch import scratch

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 8


def flat(table: Table) -> Table:
    """Returns the table as warehouses store it: nested columns are JSON."""
    columns = (replace(one, type="json") if is_nested(one.type) else one for one in table.columns)
    return replace(table, columns=tuple(columns))


@contextmanager
def flattened(listing: Listing) -> Generator[Listing]:
    """Yields the listing with JSON instead of nested columns, the listing itself if it has none. Deletes its files afterward.

    Raises LoadFailed if a file is gone or damaged, Unavailable if the storage cannot be used.
    """
    nested = {table.name for table in listing.tables if any(is_nested(column.type) for column in table.columns)}
    if not nested:
        yield listing
        return
    uris = {found.uri for found in listing.objects if found.table in nested}
    with scratch(listing) as made:
        copies = {uri: made.uri(uri, ".json.parquet") for uri in uris}

        def moved(found: ShreddedObject) -> ShreddedObject:
            return replace(found, uri=copies[found.uri], checksum=None) if found.uri in copies else found

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda uri: _rewrite(uri, copies[uri]), copies))
        tables, objects = map(flat, listing.tables), map(moved, listing.objects)
        yield replace(listing, tables=tuple(tables), objects=tuple(objects))


def _rewrite(uri: str, to: str) -> None:
    """Writes a file again with JSON instead of nested columns."""
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    try:
        system, path = storage.filesystem(uri)
        with system.open_input_file(path) as source:
            file = parquet.ParquetFile(source)
            schema = pa.schema([_flat_field(field) for field in file.schema_arrow])
            with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
                for batch in file.iter_batches():
                    writer.write_batch(pa.RecordBatch.from_arrays(list(_flat_columns(batch)), schema=schema))
        storage.write_bytes(to, sink.getvalue().to_pybytes())
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise LoadFailed(f"object {uri}: {error}. Shred the item again") from error
    except OSError as error:
        raise Unavailable(
            f"object {uri} cannot be written again as {to}: {error}. Check that the storage can be used"
        ) from error


def _flat_field(field: pa.Field) -> pa.Field:
    import pyarrow as pa

    return pa.field(field.name, pa.string(), field.nullable) if pa.types.is_nested(field.type) else field


def _flat_columns(batch: pa.RecordBatch) -> Iterator[pa.Array]:
    import orjson
    import pyarrow as pa

    for column in batch.columns:
        if not pa.types.is_nested(column.type):
            yield column
            continue
        texts = (None if value is None else orjson.dumps(_without_nulls(value), default=_text) for value in column.to_pylist())
        yield pa.array([text and text.decode() for text in texts], pa.string())


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _text(value: Any) -> Any:
    import orjson

    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise TypeError(type(value).__name__)
