"""Events with their entities as structs: one row an event, as Snowplow's loaders for lakes and Databricks write Parquet.

The columns are those of the layout with JSON: `contexts_…` is an array of structs, `unstruct_event_…` a struct. Fields have
names in snake case, and the types of the columns that the model's table would have. Nested objects are structs; an array, and a
value of several types, is JSON text. The version of a schema that breaks its model has a column of its own, as it has a table.
No two models share a column: a run that has both fails, until `shred.tables` gives one of them another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute

from manifest_platform import nested_types
from manifest_platform.column_types import arrow_type
from manifest_platform.listing import Column, Table
from manifest_platform.shred.batch import TwoFamilies
from manifest_platform.sources.snowplow.events.atomic import EVENTS
from manifest_platform.sources.snowplow.events.entities import Entities
from manifest_platform.sources.snowplow.events.wide import CONTEXTS, UNSTRUCT, VERSION, column_name
from manifest_platform.sources.snowplow.schemas.columns import HIERARCHY, EntityTable
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, snake_case


@dataclass
class _Node:
    """A field of a struct: a struct of fields, or a column of the model's table by its place."""

    fields: dict[str, _Node] = field(default_factory=dict)
    place: int | None = None
    type: str = ""

    def logical(self) -> str:
        """The field's column type."""
        return (
            self.type if self.place is not None else nested_types.struct({n: one.logical() for n, one in self.fields.items()})
        )

    def values(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The field's values. A struct whose fields are all null is null."""
        if self.place is not None:
            return columns[self.place]
        inner = [one.values(columns) for one in self.fields.values()]
        absent = np.logical_and.reduce([np.asarray(one.is_null()) for one in inner])
        fields = [pa.field(name, one.type) for name, one in zip(self.fields, inner, strict=True)]
        return pa.StructArray.from_arrays(inner, fields=fields, mask=pa.array(absent))


def lake_events(events: pa.Table, found: Sequence[Entities]) -> tuple[Table, pa.Table]:
    """Returns the definition and the rows of the wide table. `found`: the entities of these events, by model.

    Raises TwoFamilies for two models whose columns have one name.
    """
    columns: dict[str, tuple[Column, pa.Array]] = {}
    families: dict[str, str] = {}
    for each in found:
        family = str(each.definition.table.family)
        for column, values in _columns(each, events.num_rows):
            other = families.setdefault(column.name, family)
            if other != family:
                raise TwoFamilies(_name(family, each.definition.table.name), other, family)
            columns[column.name] = column, values
    wide = [columns[name] for name in sorted(columns)]
    definition = replace(EVENTS, columns=(*EVENTS.columns, *(column for column, _ in wide)))
    arrays = [*events.columns, *(values for _, values in wide)]
    return definition, pa.Table.from_arrays(arrays, names=[column.name for column in definition.columns])


def require_apart(schemas: Iterable[str], tables: Mapping[str, str]) -> None:
    """Raises TwoFamilies if two models of a run's schemas have columns of one name. `tables`: table names by family.

    `lake_events` sees the models of a part of the run alone.
    """
    families: dict[str, str] = {}
    for key in map(SchemaKey.parse, schemas):
        name = _name(key.family, tables.get(key.family, key.table_name))
        other = families.setdefault(name, key.family)
        if other != key.family:
            raise TwoFamilies(name, other, key.family)


def _columns(entities: Entities, events: int) -> Iterator[tuple[Column, pa.Array]]:
    """Yields the columns of a model: of the events' own entities, and of contexts."""
    definition = entities.definition
    own = np.array([cell == UNSTRUCT for cell in entities.cells], bool)
    for cell, chosen in ((UNSTRUCT, own), (CONTEXTS, ~own)):
        if not chosen.any():
            continue
        rows = entities.rows[chosen]
        root = _tree(definition, has_version=cell != UNSTRUCT)
        values = _structs(root, entities.table.filter(pa.array(chosen)))
        name = f"{cell}_{_name(str(definition.table.family), definition.table.name)}"
        if cell == UNSTRUCT:
            places = np.full(events, -1)
            places[rows] = np.arange(len(rows))
            yield Column(name, root.logical()), values.take(pa.array(places, mask=places < 0))
        else:
            type_ = nested_types.array(root.logical())
            counts = np.bincount(rows, minlength=events)
            offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
            arrays = pa.ListArray.from_arrays(offsets, values, type=arrow_type(type_), mask=pa.array(counts == 0))
            yield Column(name, type_), arrays


def _name(family: str, table: str) -> str:
    """Returns what a model's columns are called: as in the layout with JSON, with what `table` has beyond its model."""
    key = SchemaKey.parse(f"{family}-0-0")
    if not table.startswith(key.table_name):
        return table
    return f"{column_name(key, CONTEXTS).removeprefix(f'{CONTEXTS}_')}{table.removeprefix(key.table_name)}"


def _structs(root: _Node, table: pa.Table) -> pa.StructArray:
    """Returns an entity a row, none of them null."""
    columns = [pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type) for column in table.columns]
    inner = [one.values(columns) for one in root.fields.values()]
    fields = [pa.field(name, one.type) for name, one in zip(root.fields, inner, strict=True)]
    return pa.StructArray.from_arrays(inner, fields=fields)


def _tree(definition: EntityTable, has_version: bool) -> _Node:
    """Returns the fields of a model. A name that is taken gets a trailing underscore, as columns of tables do."""
    root = _Node()
    if has_version or not definition.columns:
        place = [column.name for column in HIERARCHY].index("schema_version")
        root.fields[VERSION] = _Node(place=place, type="string")
    known: dict[tuple[str, ...], _Node] = {(): root}
    for place, column in enumerate(definition.columns, len(HIERARCHY)):
        path = column.path
        if not path:  # the properties that no version names
            root.fields[_free(column.column.name, root)] = _Node(place=place, type=column.column.type)
            continue
        for depth in range(1, len(path) + 1):
            if path[:depth] not in known:
                above = known[path[: depth - 1]]
                known[path[:depth]] = above.fields[_free(snake_case(path[depth - 1]), above)] = _Node()
        known[path].place, known[path].type = place, column.column.type
    return root


def _free(name: str, above: _Node) -> str:
    name = name or "_"
    while name in above.fields:
        name += "_"
    return name
