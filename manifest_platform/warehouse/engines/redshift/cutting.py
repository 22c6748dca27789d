"""Copies of objects whose texts are cut to what VARCHAR holds: COPY of Parquet has no option for that."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from manifest_platform import storage
from manifest_platform.listing import BAD_TABLE, Table
from manifest_platform.warehouse.engines.engine import Cut
from manifest_platform.warehouse.engines.redshift.staging import batches, deleted, length_of, reading

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa


@contextmanager
def shorter(
    table: Table, uris: Sequence[str], folder: str | None, shortest: Mapping[str, int]
) -> Generator[tuple[dict[str, str], tuple[Cut, ...]]]:
    """Yields the object to copy instead of each object, itself if it has no long text; and the columns with cut texts.

    The new objects are in `folder`, by default beside the others, and are deleted afterward. Keys are never cut. `shortest`:
    the bytes that columns of the warehouse hold, if these are fewer than the listing says.
    """
    texts = {one.name: _most(table, one.name, one.type) for one in table.columns if one.name not in table.key}
    most = {name: min(size, shortest.get(name, size)) for name, size in texts.items()}
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        copied = {}
        for uri in uris:
            copied[uri] = uri
            long = _long(table, uri, most)
            counts += long
            if long:
                place = folder or uri.rpartition("/")[0]
                copied[uri] = f"{place.rstrip('/')}/{uuid.uuid4().hex}.parquet"
                stack.callback(deleted, copied[uri])
                _write(table, uri, copied[uri], {name: most[name] for name in long})
        yield copied, tuple(Cut(name, values, f"{most[name]:,} bytes") for name, values in counts.items())


def _most(table: Table, column: str, type_: str) -> int:
    """Returns the most bytes of a text. Base64 ends after whole groups, so that it can be decoded."""
    most = length_of(type_)
    return most - most % 4 if table.name == BAD_TABLE and column == "raw_base64" else most


def _long(table: Table, uri: str, most: dict[str, int]) -> Counter[str]:
    """Returns the number of long texts by column."""
    import pyarrow.compute as pc

    found: Counter[str] = Counter()
    for _, batch in batches(table, uri):
        for name in _texts(batch, most):
            lengths = pc.call_function("binary_length", [batch.column(name)])
            found[name] += pc.call_function("sum", [pc.call_function("greater", [lengths, most[name]])]).as_py() or 0
    return +found


def _texts(batch: pa.RecordBatch, most: dict[str, int]) -> list[str]:
    import pyarrow as pa

    return [one.name for one in batch.schema if one.name in most and (pa.types.is_string(one.type) or _is_large(one.type))]


def _is_large(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_large_string(type_)


def _write(table: Table, uri: str, copy: str, most: dict[str, int]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    with ExitStack() as stack:
        stack.enter_context(reading(table, uri))
        writer = None
        for _, batch in batches(table, uri):
            if writer is None:
                system, path = storage.filesystem(copy)
                sink = stack.enter_context(system.open_output_stream(path))
                writer = stack.enter_context(pa.parquet.ParquetWriter(sink, batch.schema))
            for name, bytes_ in most.items():
                place = batch.schema.get_field_index(name)
                values = [_cut(value, bytes_) for value in batch.column(name).to_pylist()]
                batch = batch.set_column(place, batch.schema.field(name), pa.array(values, batch.schema.field(name).type))
            writer.write_batch(batch)


def _cut(text: str | None, most: int) -> str | None:
    """Returns the beginning of a text that has at most these bytes, without half a character."""
    return text and text.encode()[:most].decode(errors="ignore")
