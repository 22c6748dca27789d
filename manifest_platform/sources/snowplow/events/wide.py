"""Events with their entities in columns of their own: one row an event, as Snowplow's loaders for Snowflake lay out `events`.

The entities of a model are in `contexts_<vendor>_<name>_<model>`, an array of objects as JSON text. The event's own entity is
in `unstruct_event_<vendor>_<name>_<model>`, an object. An event without such entities has null there. Property names and values
are as sent. A context also says which version of its schema it has, in `_schema_version`, as Snowplow's newer loaders write it.
The version of the event's own entity is in `event_version`.

Columns follow those of the event, in alphabetical order. Loading adds columns that come later at the end of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from manifest_platform.listing import Column, Table
from manifest_platform.shred.rows import LONGEST_QUOTE
from manifest_platform.sources.snowplow import numbers
from manifest_platform.sources.snowplow.events.atomic import EVENTS, Lines
from manifest_platform.sources.snowplow.events.entities import Entities
from manifest_platform.sources.snowplow.events.values import has_nul
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey

CONTEXTS, UNSTRUCT = "contexts", "unstruct_event"
VERSION = "_schema_version"


@dataclass
class _Column:
    """A column of entities: the JSON texts by the row of their event."""

    name: str
    is_array: bool
    family: str
    texts: dict[int, list[bytes]] = field(default_factory=dict)

    def add(self, row: int, text: bytes) -> None:
        """Adds an entity of an event."""
        self.texts.setdefault(row, []).append(text)

    def values(self, rows: int) -> pa.Array:
        """Returns the column's value for each event."""
        values: list[bytes | None] = [None] * rows
        for row, texts in self.texts.items():
            values[row] = b"[%b]" % b",".join(texts) if self.is_array else texts[0]
        return pa.array(values, pa.string())


def column_name(key: SchemaKey, cell: str) -> str:
    """Returns the column of a schema's entities, named as in Snowplow's analytics SDKs.

    The vendor is only in lower case. In the name, an underscore comes before a capital letter unless it follows one.
    """
    prefix = UNSTRUCT if cell == UNSTRUCT else CONTEXTS
    vendor = re.sub(r"[.-]", "_", key.vendor).lower()
    name = re.sub(r"([^A-Z_])([A-Z])", r"\1_\2", re.sub(r"[.-]", "_", key.name)).lower()
    return f"{prefix}_{vendor}_{name}_{key.model}"


def wide_events(events: pa.Table, found: Sequence[Entities], lines: Lines) -> tuple[Table, pa.Table]:
    """Returns the definition and the rows of the wide table. `found`: the entities of these events, by model.

    An entity with a character that warehouses cannot store becomes a reason of its line.
    """
    columns: dict[str, _Column] = {}
    nul = b"\\u0000" in lines.data
    for entities in found:
        for row, data, column in _objects(entities, columns):
            try:
                text = numbers.dumps(data)
            except TypeError:
                lines.add(row, _unfit(column, b"", "is nested too deeply"))
                continue
            if nul and has_nul(text):
                lines.add(row, _unfit(column, text, "contains NUL, which warehouses cannot store in text"))
            else:
                column.add(row, text)
    wide = [columns[name] for name in sorted(columns) if columns[name].texts]
    definition = replace(EVENTS, columns=(*EVENTS.columns, *(Column(one.name, "json") for one in wide)))
    arrays = [*events.columns, *(one.values(events.num_rows) for one in wide)]
    return definition, pa.Table.from_arrays(arrays, names=[column.name for column in definition.columns])


def without_empty(definition: Table, rows: pa.Table) -> tuple[Table, pa.Table]:
    """Returns the table without columns of entities that no row has: their events are bad, or in other parts of the file."""
    own = len(EVENTS.columns)
    kept = [*range(own), *(place for place in range(own, rows.num_columns) if rows.column(place).null_count < rows.num_rows)]
    return replace(definition, columns=tuple(definition.columns[place] for place in kept)), rows.select(kept)


def _objects(entities: Entities, columns: dict[str, _Column]) -> Iterator[tuple[int, dict[str, Any], _Column]]:
    """Yields the row, the value and the column of each entity that is an object. Others are bad, and have a reason already."""
    family = str(entities.definition.table.family)
    key = SchemaKey.parse(f"{family}-0-0")
    by_cell: dict[str, _Column] = {}
    versions = entities.table["schema_version"].to_pylist()
    for row, data, cell, version in zip(entities.rows.tolist(), entities.data, entities.cells, versions, strict=True):
        if type(data) is not dict:
            continue
        column = by_cell.get(cell)
        if column is None:
            name = column_name(key, cell)
            column = by_cell[cell] = columns.setdefault(name, _Column(name, cell != UNSTRUCT, family))
        yield row, {VERSION: version, **data} if column.is_array else data, column


def _unfit(column: _Column, text: bytes, message: str) -> dict[str, str]:
    return {"type": "entity", "schema": column.family, "value": text.decode()[:LONGEST_QUOTE], "message": message}


def entity_types(found: Sequence[Entities], keep: np.ndarray) -> dict[str, int]:
    """Returns the number of kept entities by schema."""
    counts: dict[str, int] = {}
    for entities in found:
        _count(counts, entities, keep[entities.rows])
    return counts


def self_describing(found: Sequence[Entities], keep: np.ndarray) -> dict[str, int]:
    """Returns the number of kept events by the schema that describes them."""
    counts: dict[str, int] = {}
    for entities in found:
        if UNSTRUCT in entities.cells:
            own = np.fromiter((cell == UNSTRUCT for cell in entities.cells), bool, len(entities.cells))
            _count(counts, entities, own & keep[entities.rows])
    return counts


def _count(counts: dict[str, int], entities: Entities, which: np.ndarray) -> None:
    schema = str(entities.definition.table.family).rpartition("/")[0]
    for one in entities.table["schema_version"].filter(pa.array(which)).value_counts().to_pylist():
        name = f"{schema}/{one['values']}"
        counts[name] = counts.get(name, 0) + one["counts"]
