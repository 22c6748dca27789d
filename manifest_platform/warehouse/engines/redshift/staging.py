"""The objects of one table before they are staged: groups of files with the same columns, the manifest of COPY, wrong values.

COPY takes the columns of a Parquet file by their place, so the files of one statement must have the same columns in one order.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from manifest_platform import aws, storage
from manifest_platform.listing import Table
from manifest_platform.warehouse.errors import LoadFailed, Unavailable

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

LONGEST_VARCHAR = 65_535
"""Bytes of the longest VARCHAR."""
_READERS = 16


@dataclass(frozen=True)
class File:
    """A Parquet object, and its size in bytes."""

    uri: str
    size: int


@dataclass(frozen=True)
class Group:
    """Files with the same columns in the same order. `columns`: their names and their types in Redshift."""

    columns: tuple[tuple[str, str], ...]
    files: tuple[File, ...]


def groups(table: Table, uris: Sequence[str]) -> list[Group]:
    """Reads the footers of the objects of a table, and groups them by their columns. Raises LoadFailed, Unavailable."""
    local = next((uri for uri in uris if storage.is_local(uri)), None)
    if local:
        raise Unavailable(
            f"table {table.name}: Redshift reads only from S3, and the object is {local}. Set shred.output to a prefix in S3, "
            "then shred the item again"
        )
    found: dict[tuple[tuple[str, str], ...], list[File]] = {}
    with ThreadPoolExecutor(min(_READERS, len(uris))) as readers:
        for uri, (schema, size) in zip(uris, readers.map(lambda uri: _footer(table, uri), uris), strict=True):
            columns = tuple((field.name, _sql_type(table, field, uri)) for field in schema)
            found.setdefault(columns, []).append(File(uri, size))
    return [Group(columns, tuple(files)) for columns, files in found.items()]


def _footer(table: Table, uri: str) -> tuple[pa.Schema, int]:
    import pyarrow as pa
    import pyarrow.parquet

    with reading(table, uri):
        system, path = storage.filesystem(uri)
        with system.open_input_file(path) as source:
            try:
                return pa.parquet.ParquetFile(source).schema_arrow, source.size()
            except pa.ArrowInvalid as error:
                raise LoadFailed(f"table {table.name}, object {uri}: {error}") from error


@contextmanager
def reading(table: Table, uri: str) -> Generator[None]:
    """Translates the errors of reading an object."""
    try:
        yield
    except FileNotFoundError as error:
        raise LoadFailed(f"table {table.name}: the object {uri} is gone. Shred the item again") from error
    except OSError as error:
        advice = "Let this process read the shredded objects" if storage.is_refusal(error) else "Check that S3 can be reached"
        raise Unavailable(f"table {table.name}, object {uri} cannot be read: {error}. {advice}, and try again") from error


def _sql_type(table: Table, field: pa.Field, uri: str) -> str:
    """The type in which COPY takes a column of a file. Texts have the length that the listing states."""
    import pyarrow as pa

    type_ = field.type
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        stated = next((column.type for column in table.columns if column.name == field.name), "string")
        return varchar(stated)
    simple = {
        pa.bool_(): "BOOLEAN",
        pa.int16(): "SMALLINT",
        pa.int32(): "INTEGER",
        pa.int64(): "BIGINT",
        pa.float32(): "REAL",
        pa.float64(): "DOUBLE PRECISION",
        pa.date32(): "DATE",
    }
    if found := simple.get(type_):
        return found
    raise LoadFailed(
        f"table {table.name}, column {field.name} of {uri} is of the Parquet type {type_}, which COPY does not take"
    )


def varchar(type_: str) -> str:
    """Returns the VARCHAR for a text type. Its length counts bytes, of which a character has up to four."""
    stated = re.fullmatch(r"string\((\d+)\)", type_)
    return f"VARCHAR({min(4 * int(stated[1]), LONGEST_VARCHAR) if stated else LONGEST_VARCHAR})"


def length_of(type_: str) -> int:
    """Returns the most bytes of a text in a column of a type: JSON is a text, too."""
    return int(varchar(type_)[len("VARCHAR(") : -1])


@contextmanager
def manifest(files: Sequence[File], folder: str | None) -> Generator[str]:
    """Yields the URI of a manifest that names exactly these files. It is deleted afterward."""
    place = folder or files[0].uri.rpartition("/")[0]
    uri = f"{place.rstrip('/')}/{uuid.uuid4().hex}.manifest"
    entries = [{"url": file.uri, "mandatory": True, "meta": {"content_length": file.size}} for file in files]
    try:
        storage.write_bytes(uri, json.dumps({"entries": entries}).encode())
    except OSError as error:
        raise Unavailable(
            f"the manifest of COPY cannot be written to {place}: {error}. Let this process write there, or set "
            "warehouse.manifests to a folder where it may, and try again"
        ) from error
    try:
        yield uri
    finally:
        deleted(uri)


def deleted(uri: str) -> None:
    """Deletes an object, if possible. Arrow would leave an empty object in place of the folder."""
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = uri.removeprefix("s3://").partition("/")
    with suppress(BotoCoreError, ClientError):
        aws.s3(uri).delete_object(Bucket=bucket, Key=key)


def wrong_value(table: Table, uris: Sequence[str]) -> str | None:
    """Reads the objects of a table that COPY refused; returns the place of the first value that no column can hold, and why."""
    for uri in uris:
        for first, batch in batches(table, uri):
            for column in table.columns:
                found = _wrong(batch.column(column.name), column.type) if column.name in batch.schema.names else None
                if found:
                    row, why = found
                    return f"object {uri}, row {first + row + 1}, column {column.name}: {why}"
    return None


def batches(table: Table, uri: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the rows of an object in parts, each with the number of rows before it."""
    import pyarrow as pa
    import pyarrow.parquet

    first = 0
    with reading(table, uri):
        system, path = storage.filesystem(uri)
        with system.open_input_file(path) as source:
            for batch in pa.parquet.ParquetFile(source).iter_batches(16_384):
                yield first, batch
                first += len(batch)


def _wrong(values: pa.Array, type_: str) -> tuple[int, str] | None:
    """Returns the place and the fault of the first value that a column of a type cannot hold."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        most = length_of(type_)
        lengths = pc.call_function("binary_length", [values])
        if (row := _first(pc.call_function("greater", [lengths, pa.scalar(most)]))) is not None:
            return row, f"the text has {lengths[row].as_py():,} bytes, and its column holds {most:,}"
        if (row := _first(pc.call_function("match_substring", [values], pc.MatchSubstringOptions("\x00")))) is not None:
            return row, "the text has a NUL character, which Redshift does not store"
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", type_)
    if decimal and pa.types.is_decimal(values.type):
        largest = 10 ** (int(decimal[1]) - int(decimal[2]))
        for row, value in enumerate(values.to_pylist()):
            if value is not None and abs(value) >= largest:
                return row, f"the number has more digits than {type_} holds"
    return None


def _first(found: pa.Array) -> int | None:
    """The place of the first True; None if there is none."""
    import pyarrow.compute as pc

    place = pc.index(found, True).as_py()
    return None if place < 0 else place
