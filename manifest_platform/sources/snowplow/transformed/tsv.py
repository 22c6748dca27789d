"""The function from the transformer's TSV to typed tables: events of 128 fields, and a row an entity.

An event's row is an enriched line without its three JSON fields. An entity's row has the hierarchy columns and then the columns
of its schema, without names. Their order is: the columns of the first version of the model, the required ones first, each group
by name; then the columns that each later version adds. A file in a folder of an exact version has the columns of that version
alone. NULL is `\\N`, true is 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute

from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Column
from manifest_platform.shred.rows import (
    LONGEST_QUOTE,
    BadRow,
    Reason,
    arrow_schema,
    bad_table,
    cast_each,
    check_years,
    refuse_unless,
)
from manifest_platform.sources.snowplow.events.atomic import EVENTS, cut, event_columns
from manifest_platform.sources.snowplow.events.shredder import ATOMIC, ShreddedEvents
from manifest_platform.sources.snowplow.events.values import has_nul
from manifest_platform.sources.snowplow.fields import FIELDS, POSITION
from manifest_platform.sources.snowplow.schemas.columns import HIERARCHY, EntityTable, flattened
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, snake_case
from manifest_platform.sources.snowplow.schemas.resolver import Resolver, UnknownSchema

pc: Any = pyarrow.compute  # its functions are created at run time, unknown to type checkers

_LEFT_OUT = tuple(POSITION[field.name] for field in FIELDS if field.is_json)
_ATOMIC_FIELDS = len(FIELDS) - len(_LEFT_OUT)
_NULL = b"\\N"
_VERSION = [column.name for column in HIERARCHY].index("schema_version")

_Path = tuple[str, ...]


def shred_events(data: bytes, file: str, first_line: int) -> ShreddedEvents:
    """Shreds whole lines of events. A line whose values do not fit is only in `bad`."""
    original = data.removesuffix(b"\n").split(b"\n") if data else []
    lines = cut(b"".join(_with_json_fields(line) + b"\n" for line in original))
    whole = set(lines.line.tolist())
    events = event_columns(lines)
    kept = pa.array([int(line) not in lines.reasons for line in lines.line], pa.bool_())
    good = events.filter(kept).cast(arrow_schema(EVENTS.columns))
    bad = [
        BadRow(first_line + line, reasons if line in whole else [_miscounted(original[line])], _text(original[line]))
        for line, reasons in sorted(lines.reasons.items())
    ]
    rows = good.num_rows
    tables = {EVENTS.name: good} if rows else {}
    return ShreddedEvents(
        tables, {EVENTS.name: EVENTS}, bad_table(file, bad), len(original), rows, {EVENTS.name: {ATOMIC: rows}}
    )


def _with_json_fields(line: bytes) -> bytes:
    """Returns the enriched form of an event's line: with its JSON fields, empty."""
    fields = line.removesuffix(b"\r").split(b"\t")
    if len(fields) != _ATOMIC_FIELDS:
        return b"\t".join(fields[:3])  # too few fields in any case, so that `cut` sets the line aside
    for position in _LEFT_OUT:
        fields.insert(position, b"")
    return b"\t".join(fields)


def _miscounted(line: bytes) -> Reason:
    count = line.count(b"\t") + 1
    return {"type": "field_count", "message": f"the line has {count} fields; a transformed event has {_ATOMIC_FIELDS}"}


@dataclass(frozen=True)
class Model:
    """The schemas of a file of entities, and the order of its columns.

    `exact`: the version whose columns the file has, if its path tells; None if it has those of all versions of the model.
    """

    resolver: Resolver
    known: SchemaKey
    exact: SchemaKey | None = None

    def paths(self) -> list[_Path]:
        """Returns the paths of the columns after the hierarchy, in the order of the file. Raises as `Resolver.versions`."""
        versions = [self.exact] if self.exact else self.resolver.versions(self.known)
        found: dict[_Path, None] = {}
        for version in versions:
            leaves = sorted(flattened(self.resolver.schema(version)), key=lambda leaf: (not leaf.required, _dotted(leaf.path)))
            found.update((leaf.path, None) for leaf in leaves)
        return list(found)

    def table(self, version: str) -> EntityTable:
        """Returns the table of a row's version. Raises ValueError, UnknownSchema, SchemaError and errors of registries."""
        family = self.known
        return self.resolver.table(SchemaKey.parse(f"iglu:{family.vendor}/{family.name}/{family.format}/{version}"))


def _dotted(path: _Path) -> str:
    return ".".join(map(snake_case, path))


def shred_entities(data: bytes, model: Model, file: str, first_line: int) -> ShreddedEvents:
    """Shreds whole lines of entities of a model. A line whose values do not fit is only in `bad`.

    Raises RegistryUnavailable, RegistryRefused, UnknownSchema and SchemaError.
    """
    original = data.removesuffix(b"\n").split(b"\n") if data else []
    paths = model.paths()
    bad: dict[int, list[Reason]] = {}
    rows: dict[str, list[tuple[int, list[bytes]]]] = defaultdict(list)
    for number, line in enumerate(original):
        fields = line.removesuffix(b"\r").split(b"\t")
        # A transformer that knew fewer versions wrote fewer columns: those of later versions are at the end.
        if len(HIERARCHY) <= len(fields) <= len(HIERARCHY) + len(paths):
            rows[fields[_VERSION].decode("utf-8", "replace")].append((number, fields))
        else:
            bad[number] = [_too_many(len(fields), len(paths), model)]
    found: dict[str, list[pa.Table]] = defaultdict(list)
    definitions = {}
    types: dict[str, dict[str, int]] = defaultdict(dict)
    for version, lines in rows.items():
        try:
            table = model.table(version)
        except (ValueError, UnknownSchema) as error:
            reason = {"type": "unknown_schema", "schema": version[:LONGEST_QUOTE], "message": str(error)}
            bad.update((number, [reason]) for number, _ in lines)
            continue
        typed = _typed(lines, paths, table, bad)
        if typed.num_rows:
            name = table.table.name
            found[name].append(typed)
            definitions[name] = table.table
            types[name][f"iglu:{model.known.vendor}/{model.known.name}/{model.known.format}/{version}"] = typed.num_rows
    rejected = [BadRow(first_line + number, reasons, _text(original[number])) for number, reasons in sorted(bad.items())]
    tables = {name: pa.concat_tables(parts) for name, parts in found.items()}
    return ShreddedEvents(tables, definitions, bad_table(file, rejected), len(rejected), 0, dict(types))


def _too_many(fields: int, columns: int, model: Model) -> Reason:
    return {
        "type": "field_count",
        "schema": model.known.family,
        "message": f"the line has {fields} fields; a row has {len(HIERARCHY)} and at most {columns} more by the schemas in the"
        " registries. If it was written with a newer schema, publish that first",
    }


def _typed(
    lines: Sequence[tuple[int, list[bytes]]], paths: Sequence[_Path], table: EntityTable, bad: dict[int, list[Reason]]
) -> pa.Table:
    """Returns the typed rows of lines. Those that do not fit are left out, and their reasons are added to `bad`."""
    places: Mapping[str, int] = {
        **{column.name: place for place, column in enumerate(HIERARCHY)},
        **_places_of(paths, table),
    }
    columns = table.table.columns
    faults: dict[int, list[Reason]] = {}
    arrays = []
    for column in columns:
        place = places.get(column.name)
        values = [fields[place] if place is not None and place < len(fields) else _NULL for _, fields in lines]
        raw = pa.array([None if value == _NULL else value for value in values], pa.binary())
        typed, misfits = cast_each(raw, _cast_of(column.type), arrow_type(column.type))
        for row in misfits:
            faults.setdefault(row, []).append(_misfit(column, values[row]))
        if not column.nullable:
            for row in [row for row, value in enumerate(values) if value == _NULL]:
                faults.setdefault(row, []).append({"type": "field", "field": column.name, "message": "must not be empty"})
        arrays.append(typed)
    for row, reasons in faults.items():
        bad[lines[row][0]] = reasons
    kept = pa.array([row not in faults for row in range(len(lines))], pa.bool_())
    names = [column.name for column in columns]
    return pa.Table.from_arrays(arrays, names=names).filter(kept).cast(arrow_schema(columns))


def _places_of(paths: Sequence[_Path], table: EntityTable) -> dict[str, int]:
    """Returns the place in a line of each column that is not of the hierarchy, by the column's name."""
    at = {path: len(HIERARCHY) + place for place, path in enumerate(paths)}
    return {column.column.name: at[column.path] for column in table.columns if column.path in at}


def _misfit(column: Column, value: bytes) -> Reason:
    message = f"does not fit {column.type}"
    return {"type": "field", "field": column.name, "value": _text(value)[:LONGEST_QUOTE], "message": message}


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "replace").replace("\0", "\ufffd")


# Casts of text


def _cast_of(type_: str) -> Callable[[pa.Array], pa.Array]:
    kind = type_.partition("(")[0]
    arrow = arrow_type(type_)

    def cast(values: pa.Array) -> pa.Array:
        text = values.cast(pa.string())
        refuse_unless(pc.invert(pc.any(pc.match_substring(text, "\0"))))
        return _CASTS[kind](text, arrow)

    return cast


def _boolean(text: pa.Array, _: pa.DataType) -> pa.Array:
    true, false = pa.array(["1", "true"]), pa.array(["0", "false"])
    refuse_unless(pc.all(pc.or_(pc.is_null(text), pc.or_(pc.is_in(text, true), pc.is_in(text, false)))))
    return pc.if_else(pc.is_null(text), None, pc.is_in(text, true))


def _number(text: pa.Array, type_: pa.DataType) -> pa.Array:
    refuse_unless(pc.invert(pc.any(pc.match_substring(text, "x", ignore_case=True))))  # Arrow accepts hexadecimal numbers
    return text.cast(type_)


def _double(text: pa.Array, type_: pa.DataType) -> pa.Array:
    typed = text.cast(type_)
    refuse_unless(pc.all(pc.is_finite(typed)))
    return typed


def _date(text: pa.Array, type_: pa.DataType) -> pa.Array:
    return check_years(text.cast(type_))


def _timestamp(text: pa.Array, type_: pa.DataType) -> pa.Array:
    return check_years(_each(text, type_, _moment))


def _json(text: pa.Array, type_: pa.DataType) -> pa.Array:
    return _each(text, type_, _json_text)


def _each(text: pa.Array, type_: pa.DataType, convert: Callable[[str], Any]) -> pa.Array:
    try:
        return pa.array([None if value is None else convert(value) for value in _texts(text)], type_)
    except (ValueError, OverflowError) as error:
        raise pa.ArrowInvalid("misfit") from error


def _texts(text: pa.Array) -> Iterable[str | None]:
    return text.to_pylist()


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _json_text(text: str) -> str:
    """Returns the text if it is JSON, else as a JSON text: the transformer writes strings without quotes.

    Raises ValueError for an escaped NUL, which warehouses cannot store.
    """
    if "\\u0000" in text and has_nul(text.encode()):
        raise ValueError("NUL")
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return orjson.dumps(text).decode()
    return text


_CASTS: dict[str, Callable[[pa.Array, pa.DataType], pa.Array]] = {
    "boolean": _boolean,
    "integer": _number,
    "bigint": _number,
    "decimal": _number,
    "double": _double,
    "date": _date,
    "timestamp": _timestamp,
    "json": _json,
    "string": lambda text, _: text,
}
