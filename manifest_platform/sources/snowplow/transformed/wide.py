"""The function from the transformer's wide rows in Parquet to a typed table: a row an event, a column a type of entity.

The entities of an event are arrays of structs in columns `contexts_<vendor>_<name>_<model>`, and its own data is a struct in
`unstruct_event_<vendor>_<name>_<model>`. They become JSON columns of the same names. Parquet does not tell a missing property
from null, so JSON leaves both out. Property names are as in the file: in snake case.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute
from pyarrow import parquet

from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Column, Table
from manifest_platform.shred.batch import Unusable
from manifest_platform.shred.rows import BadRow, Reason, arrow_schema, bad_table, check_years
from manifest_platform.sources.snowplow.events.atomic import EVENTS
from manifest_platform.sources.snowplow.events.shredder import ATOMIC, ShreddedEvents

pc: Any = pyarrow.compute  # its functions are created at run time, unknown to type checkers

ROWS = 10_000
"""Rows that are read at a time."""

_ESCAPED_NUL = r"(?:^|[^\\])(?:\\\\)*\\u0000"  # not the text of a backslash and `u0000`
_ENTITIES = ("contexts_", "unstruct_event_")


def shred_parquet(stream: BinaryIO, file: str, rows: int = ROWS) -> Iterator[tuple[int, ShreddedEvents]]:
    """Yields (bytes in memory, typed rows) of the wide rows of a Parquet file.

    Raises Unusable if it is not Parquet, or has columns of other names or types than the transformer writes.
    """
    try:
        opened = parquet.ParquetFile(stream, coerce_int96_timestamp_unit="us")  # nanoseconds end in the year 2262
        json = _json_fields(opened)
        first_line = 1
        for batch in opened.iter_batches(rows):
            yield batch.nbytes, shred_rows(pa.Table.from_batches([batch]), json, file, first_line)
            first_line += batch.num_rows
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        UnicodeDecodeError,
        TypeError,
        OverflowError,
    ) as error:
        raise Unusable(f"{file} cannot be read as wide rows in Parquet: {error}; run the transformer again") from error


def _json_fields(opened: parquet.ParquetFile) -> frozenset[str]:
    """Returns the paths of the fields that hold JSON text, without the names of Parquet's list levels."""
    leaves = (opened.schema.column(place) for place in range(len(opened.schema)))
    return frozenset(_path(leaf.path) for leaf in leaves if leaf.logical_type.type == "JSON")


def _path(path: str) -> str:
    return path.replace(".list.element", "").replace(".bag.array_element", "")


def shred_rows(rows: pa.Table, json: frozenset[str], file: str, first_line: int) -> ShreddedEvents:
    """Types wide rows. One without a required value, or with text that is no JSON or no warehouse stores, is only in `bad`."""
    entities = [name for name in rows.column_names if name.startswith(_ENTITIES)]
    known = {column.name: column for column in EVENTS.columns}
    if strange := [name for name in rows.column_names if name not in known and name not in entities]:
        raise Unusable(
            f"{file} has the column {strange[0]}, which is neither of an event nor of an entity (contexts_…, unstruct_event_…);"
            " run the transformer again"
        )
    columns = (*EVENTS.columns, *(Column(name, "json") for name in entities))
    reasons: dict[int, list[Reason]] = {}
    arrays = [_typed(rows, column, json, file, reasons) for column in columns]
    _add_reasons(reasons, columns, arrays)
    kept = np.ones(rows.num_rows, bool)
    kept[list(reasons)] = False
    typed = pa.Table.from_arrays(arrays, names=[column.name for column in columns]).filter(pa.array(kept))
    bad = [BadRow(first_line + row, found, _raw(rows, row)) for row, found in sorted(reasons.items())]
    table = Table(EVENTS.name, columns, load_time=EVENTS.load_time)
    good = typed.num_rows
    tables = {table.name: typed.cast(arrow_schema(columns))} if good else {}
    return ShreddedEvents(tables, {table.name: table}, bad_table(file, bad), rows.num_rows, good, {table.name: {ATOMIC: good}})


def _typed(rows: pa.Table, column: Column, json: frozenset[str], file: str, reasons: dict[int, list[Reason]]) -> pa.Array:
    if column.name not in rows.column_names:
        return pa.nulls(rows.num_rows, arrow_type(column.type))
    values = rows[column.name].combine_chunks()
    if column.type == "json":
        return _json(values, column, json, reasons)
    try:
        typed = values.cast(arrow_type(column.type))
        return check_years(typed) if column.type == "timestamp" else typed
    except pa.ArrowInvalid as error:
        raise Unusable(
            f"{file}: the column {column.name} has a value that does not fit {column.type}: {error}; run the transformer again"
        ) from error


def _json(values: pa.Array, column: Column, json: frozenset[str], reasons: dict[int, list[Reason]]) -> pa.Array:
    """Returns the values as JSON text. A value with a text that cannot be parsed is null, and a reason of its row."""
    texts: list[str | None] = []
    for row, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else orjson.dumps(_plain(value, column.name, json)).decode())
        except orjson.JSONDecodeError as error:
            texts.append(None)
            _add(reasons, row, column, f"cannot be parsed as JSON: {error}")
    return pa.array(texts, pa.string())


def _plain(value: Any, path: str, json: frozenset[str]) -> Any:
    """Returns a value of Parquet as JSON has it: without nulls in objects, and JSON text as what it says.

    Raises orjson.JSONDecodeError for a text that is no JSON.
    """
    if isinstance(value, dict):
        return {name: _plain(inner, f"{path}.{name}", json) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_plain(inner, path, json) for inner in value]
    if isinstance(value, str) and path in json:
        orjson.loads(value)  # alone, so that no text ends the object that it is in
        return orjson.Fragment(value)
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value


def _add_reasons(reasons: dict[int, list[Reason]], columns: tuple[Column, ...], arrays: list[pa.Array]) -> None:
    for column, array in zip(columns, arrays, strict=True):
        if not column.nullable and array.null_count:
            for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
                _add(reasons, row, column, "must not be empty")
        if pa.types.is_string(array.type):
            nul = pc.match_substring_regex(array, _ESCAPED_NUL if column.type == "json" else r"\x00")
            for row in np.flatnonzero(pc.fill_null(nul, False).to_numpy(zero_copy_only=False)).tolist():
                _add(reasons, row, column, "contains NUL, which warehouses cannot store in text")


def _add(reasons: dict[int, list[Reason]], row: int, column: Column, message: str) -> None:
    reasons.setdefault(row, []).append({"type": "field", "field": column.name, "message": message})


def _raw(rows: pa.Table, row: int) -> str:
    [values] = rows.slice(row, 1).to_pylist()
    text = orjson.dumps(_plain(values, "", frozenset()), default=str).decode()
    return text.replace("\\u0000", "\\ufffd")
