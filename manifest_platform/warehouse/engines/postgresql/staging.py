"""Parquet objects to batches of rows, with the place of each row, so that an error can name it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from manifest_platform import storage
from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Table
from manifest_platform.remedies import LAND_ANEW
from manifest_platform.warehouse.engines.engine import NTH
from manifest_platform.warehouse.errors import LoadFailed, Unavailable, ValueRefused

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

_BATCH_ROWS = 16_384
_BATCH_BYTES = 32 * 2**20
"""Most bytes of small objects that are sent together."""
_PLACE = re.compile(r"COPY [^,]+, line (?P<row>\d+)(?:, column (?P<column>.*))?")


@dataclass(frozen=True)
class _Part:
    """Rows of an object, as they are stored."""

    uri: str
    rows: pa.RecordBatch


class Rows:
    """The rows of a table's objects, in batches with the table's columns, in this order and with their types.

    It remembers which rows it has given, to find the object of a row. `places`: a number for each object, which its rows then
    have in a further column.
    """

    def __init__(
        self, table: Table, uris: Sequence[str], removes_nul: bool = False, places: Mapping[str, int] | None = None
    ) -> None:
        self._table, self._uris, self._removes_nul, self._places = table, uris, removes_nul, places
        self._given = 0
        self._starts: list[tuple[int, str]] = []  # the number of rows before each object, and the object

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows; those of small objects together. Raises ValueRefused, LoadFailed, Unavailable."""
        for parts in self._together():
            batch = self._fitted(parts)
            yield batch
            self._given += len(batch)

    def _together(self) -> Iterator[list[_Part]]:
        """Yields parts of objects with the same columns, which are at most a batch together."""
        parts: list[_Part] = []
        rows = size = 0
        for part in self._parts():
            rows, size = rows + len(part.rows), size + part.rows.nbytes
            fits = rows <= _BATCH_ROWS and size <= _BATCH_BYTES
            if parts and not (fits and part.rows.schema == parts[0].rows.schema):
                yield parts
                parts, rows, size = [], len(part.rows), part.rows.nbytes
            parts.append(part)
        if parts:
            yield parts

    def _parts(self) -> Iterator[_Part]:
        """Yields the rows of the objects as they are stored, and remembers where each object starts."""
        import pyarrow as pa

        read = 0
        for uri in self._uris:
            self._starts.append((read, uri))
            try:
                for rows in self._of_object(uri):
                    read += len(rows)
                    if len(rows):
                        yield _Part(uri, rows)
            except pa.ArrowInvalid as error:
                raise LoadFailed(f"table {self._table.name}, object {uri}: {error}") from error
            except FileNotFoundError as error:
                raise LoadFailed(f"table {self._table.name}: an object is gone: {error}") from error
            except OSError as error:
                raise Unavailable(f"table {self._table.name}, object {uri} cannot be read: {error}") from error

    def _of_object(self, uri: str) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet

        wanted = {column.name for column in self._table.columns}
        system, path = storage.filesystem(uri)
        with system.open_input_file(path) as source, pyarrow.parquet.ParquetFile(source) as file:
            there = [name for name in file.schema_arrow.names if name in wanted]
            yield from file.iter_batches(_BATCH_ROWS, columns=there, use_threads=False)

    def _fitted(self, parts: Sequence[_Part]) -> pa.RecordBatch:
        """Returns the rows of some parts with the table's columns and their types."""
        import pyarrow as pa

        rows = parts[0].rows
        if len(parts) > 1:
            [rows] = pa.Table.from_batches([part.rows for part in parts]).combine_chunks().to_batches()
        there = set(rows.schema.names)
        columns = [
            self._fitting(rows.column(field.name), field) if field.name in there else pa.nulls(len(rows), field.type)
            for field in self._schema
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema) if columns else rows
        if self._places is None:
            return batch
        numbers = [number for part in parts for number in [self._places[part.uri]] * len(part.rows)]
        return batch.append_column(NTH, pa.array(numbers, pa.int32()))

    @cached_property
    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([(column.name, arrow_type(column.type)) for column in self._table.columns])

    def _fitting(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """Returns the values with their type, if a text of PostgreSQL can hold them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            fitting = column if column.type == field.type else column.cast(field.type)
        except pa.ArrowInvalid as error:
            place = next(place for place in range(len(column)) if not _can_be(column.slice(place, 1), field.type))
            raise self._refused(self._given + place + 1, field.name, str(error)) from error
        data = fitting.buffers()[2] if pa.types.is_string(field.type) else None
        if data is None or data.to_pybytes().find(b"\0") < 0:
            return fitting
        if self._removes_nul:
            return pc.call_function("replace_substring", [fitting], pc.ReplaceSubstringOptions("\0", ""))
        for row, value in enumerate(fitting.to_pylist()):
            if value and "\0" in value:
                raise self._refused(
                    self._given + row + 1,
                    field.name,
                    f"the text {value[:40]!r} holds the character NUL, which PostgreSQL cannot store. Set "
                    "warehouse.null_characters to remove, to load texts without it",
                )
        return fitting

    def refused(self, error: psycopg.Error) -> ValueRefused | None:
        """Returns the error for a row that the server refused; None if the server's error is another."""
        found, code, why = _PLACE.search(error.diag.context or ""), error.sqlstate or "", error.diag.message_primary or ""
        if found and code.startswith("22"):
            return self._refused(int(found["row"]), found["column"], why)
        if code.startswith("54"):  # found when several rows are written together
            return ValueRefused(f"table {self._table.name}, one of its rows: {why}. Nothing was loaded", LAND_ANEW)
        return None

    def _refused(self, row: int, column: str | None, why: str) -> ValueRefused:
        """Returns the error for a row by its number among all, counted from 1."""
        before, uri = next(one for one in reversed(self._starts) if one[0] < row)
        where = f", column {column.partition(':')[0]}" if column else ""
        return ValueRefused(
            f"table {self._table.name}{where}, row {row - before:,} of {uri}: {why}. Nothing was loaded", LAND_ANEW
        )


def _can_be(value: pa.Array, type_: pa.DataType) -> bool:
    import pyarrow as pa

    try:
        value.cast(type_)
    except pa.ArrowInvalid:
        return False
    return True
