"""Parquet objects to batches of rows, with the place of each row, so that an error can name it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
_PLACE = re.compile(r"COPY [^,]+, line (?P<row>\d+)(?:, column (?P<column>.*))?")


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
        """Yields the rows. Raises ValueRefused, LoadFailed, Unavailable."""
        import pyarrow as pa

        for uri in self._uris:
            self._starts.append((self._given, uri))
            try:
                for batch in self._of_object(uri):
                    yield batch if self._places is None else _numbered(batch, self._places[uri])
                    self._given += len(batch)
            except pa.ArrowInvalid as error:
                raise LoadFailed(f"table {self._table.name}, object {uri}: {error}") from error
            except FileNotFoundError as error:
                raise LoadFailed(f"table {self._table.name}: an object is gone: {error}") from error
            except OSError as error:
                raise Unavailable(f"table {self._table.name}, object {uri} cannot be read: {error}") from error

    def _of_object(self, uri: str) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet

        schema = pa.schema([(column.name, arrow_type(column.type)) for column in self._table.columns])
        system, path = storage.filesystem(uri)
        with system.open_input_file(path) as source, pyarrow.parquet.ParquetFile(source) as file:
            there = [name for name in file.schema_arrow.names if name in set(schema.names)]
            for batch in file.iter_batches(_BATCH_ROWS, columns=there, use_threads=False):
                columns = [
                    self._fitting(batch.column(field.name), field) if field.name in there else pa.nulls(len(batch), field.type)
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch

    def _fitting(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """Returns the values with their type, if a text of PostgreSQL can hold them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            fitting = column if column.type == field.type else column.cast(field.type)
        except pa.ArrowInvalid as error:
            raise self._refused(self._given + 1, field.name, str(error)) from error
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


def _numbered(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.append_column(NTH, pa.array([number] * len(batch), pa.int32()))
