"""Snowplow's own SDK for Python as the judge of shredded events: every field and every property, read back from Parquet.

Known differences of the SDK 0.2.3: it names field 121 `refr_device_tstamp`, gives `se_value` as text, and keeps every digit of
a time's fraction. It reads no schemas, so the columns of entities are found by the paths of their properties.

As a program (`make oracle`), it compares the events of a folder.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet
from snowplow_analytics_sdk.event_transformer import transform
from snowplow_analytics_sdk.json_shredder import parse_contexts, parse_unstruct

from manifest_platform.sources.snowplow.events.shredder import shred_lines
from manifest_platform.sources.snowplow.fields import FIELDS, POSITION, Field
from manifest_platform.sources.snowplow.schemas.columns import EntityColumn
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.resolver import Resolver

Rows = dict[str, list[dict[str, Any]]]


def require_equal(lines: Sequence[bytes], resolver: Resolver) -> tuple[int, int]:
    """Shreds lines, and raises AssertionError if a good line has another value than the SDK gives.

    Returns the number of good lines, and of values that were compared.
    """
    result = shred_lines(b"".join(line + b"\n" for line in lines), resolver, "f")
    bad = result.bad["line"].to_pylist()
    assert len(lines) == result.lines == result.good + len(bad) and len(set(bad)) == len(bad)
    good = [line for number, line in enumerate(lines, start=1) if number not in set(bad)]
    rows: Rows = {name: _read_back(table) for name, table in result.tables.items()}
    events = rows.pop("events", [])
    assert len(events) == len(good)
    compared = sum(_same_fields(line.decode(), event) for line, event in zip(good, events, strict=True))
    return len(good), compared + _same_entities(good, rows, resolver)


def lines_of(folder: Path) -> list[bytes]:
    """Returns the lines of the files `part-*` below a folder, which may be compressed by gzip."""
    files = sorted(file for file in folder.rglob("part-*") if file.is_file())
    texts = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes() for file in files)
    return [line.removesuffix(b"\r") for text in texts for line in text.removesuffix(b"\n").split(b"\n") if text]


def _read_back(table: Any) -> list[dict[str, Any]]:
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file)
    return pyarrow.parquet.read_table(file).to_pylist()


def _same_fields(line: str, event: dict[str, Any]) -> int:
    judged = transform(line, add_geolocation_data=False)
    cells = line.split("\t")
    for field in FIELDS:
        if not field.is_json:
            theirs = judged.get("refr_device_tstamp" if field.name == "refr_dvce_tstamp" else field.name)
            assert _is_same(field, event[field.name], theirs, cells[POSITION[field.name]]), (field, event[field.name], theirs)
    return len(event)


def _is_same(field: Field, ours: Any, theirs: Any, cell: str) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if field.type == "timestamp":
        return ours == _moment(theirs)
    if field.type == "double":
        return ours == float(theirs)  # `se_value` is text there
    if field.type.startswith("decimal"):
        exact = Decimal(cell)
        return float(exact) == theirs and ours == exact.quantize(Decimal("0.01"), ROUND_HALF_UP)
    return type(ours) is type(theirs) and ours == theirs


def _moment(text: str) -> datetime:
    """Returns an RFC 3339 time with any number of digits as UTC, cut to microseconds."""
    head, zone = (text[:-1], "+00:00") if text[-1] in "zZ" else (text[:-6], text[-6:])
    if text[-1] not in "zZ" and text[-6] not in "+-":
        head, zone = text, "+00:00"
    whole, _, fraction = head.partition(".")
    time = datetime.fromisoformat(f"{whole}.{fraction[:6].ljust(6, '0')}{zone}")
    return time.astimezone(UTC).replace(tzinfo=None)


def _same_entities(good: Sequence[bytes], rows: Rows, resolver: Resolver) -> int:
    """Compares the entities of all lines with the rows of their tables, in their order."""
    wanted: dict[str, list[tuple[str, SchemaKey, Any]]] = defaultdict(list)
    for line in good:
        cells = line.decode().split("\t")
        entities = list(_entities(cells))
        for key, data in entities:
            wanted[resolver.table(key).table.name].append((cells[POSITION["event_id"]], key, data))
        judged = [data for _, several in _judged(cells) for data in several]
        assert len(judged) == len(entities) and all(data in judged for _, data in entities)
    assert wanted.keys() == rows.keys()
    compared = 0
    for name, entities in wanted.items():
        assert len(entities) == len(rows[name]), name
        for (event_id, key, data), row in zip(entities, rows[name], strict=True):
            assert (row["root_id"], row["schema_version"]) == (event_id, key.version)
            compared += _same_properties(resolver.table(key).columns, row, data)
    return compared


def _judged(cells: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    """Yields the entities as the SDK groups them, cell by cell."""
    for name in ("contexts", "derived_contexts"):
        if text := cells[POSITION[name]]:
            yield from parse_contexts(text)
    if text := cells[POSITION["unstruct_event"]]:
        yield from ((name, [data]) for name, data in parse_unstruct(text))


def _entities(cells: Sequence[str]) -> Iterator[tuple[SchemaKey, Any]]:
    for name in ("unstruct_event", "derived_contexts", "contexts"):  # the order of rows
        if text := cells[POSITION[name]]:
            inside = json.loads(text)["data"]
            for one in [inside] if name == "unstruct_event" else inside:
                yield SchemaKey.parse(one["schema"]), one["data"]


def _same_properties(columns: Sequence[EntityColumn], row: dict[str, Any], data: Any) -> int:
    places = {column.path: column.column for column in columns if column.path}
    told = set()
    for path, column in places.items():
        value = data
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        ours = row[column.name]
        assert _is_same_value(column.type, ours, value), (column, ours, value)
        told.add(path)
    for path in _leaves(data, ()):
        assert any(path[: len(known)] == known for known in told), f"{path} has no column"
    return len(places)


def _leaves(data: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _leaves(value, (*path, name))
    elif data is not None:
        yield path


def _is_same_value(type_: str, ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if type_ == "json":
        return json.loads(ours, parse_float=Decimal) == json.loads(json.dumps(theirs), parse_float=Decimal)
    if type_ == "timestamp":
        return ours == _moment(theirs)
    if type_ == "date":
        return ours == date.fromisoformat(theirs)
    if type_.startswith("decimal"):
        return ours == Decimal(str(theirs))
    if type_.startswith("string") and not isinstance(theirs, str):
        return json.loads(ours) == theirs
    return ours == theirs


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares enriched events with what Snowplow's own SDK makes of them.")
    parser.add_argument("events", type=Path, help="a folder; its files part-* are read, in folders of it too")
    parser.add_argument("schemas", nargs="*", help="folders or URLs of registries")
    arguments = parser.parse_args()
    lines = lines_of(arguments.events)
    good, compared = require_equal(lines, Resolver(arguments.schemas))
    print(f"{good:,} good of {len(lines):,} lines; {compared:,} values are equal")  # noqa: T201


if __name__ == "__main__":
    main()
