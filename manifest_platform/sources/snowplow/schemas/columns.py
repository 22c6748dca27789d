"""Columns of an entity table, from the JSON Schemas of all versions of a model.

In a table, nested objects are flattened. Arrays, and values that may be of several types, are kept as JSON text. The columns of
the first version come first, the required ones before the others, each group in alphabetical order. Columns that later versions
add are appended, so that no column ever moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from manifest_platform.column_types import widened
from manifest_platform.listing import Column, Table, description
from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources.snowplow.schemas.keys import snake_case

HIERARCHY: tuple[Column, ...] = (
    Column("schema_vendor", "string(128)", nullable=False),
    Column("schema_name", "string(128)", nullable=False),
    Column("schema_format", "string(128)", nullable=False),
    Column("schema_version", "string(128)", nullable=False),
    Column("root_id", "string(36)", nullable=False),
    Column("root_tstamp", "timestamp", nullable=False),
    Column("ref_root", "string(255)", nullable=False),
    Column("ref_tree", "string(1500)", nullable=False),
    Column("ref_parent", "string(255)", nullable=False),
)

MOST_COLUMNS = 2_000
_DEEPEST = 50  # nested objects
_LONGEST = 1_000  # characters of a column's name
_SHOWN = 200  # characters of a name in a message

_Path = tuple[str, ...]
_INT32 = (-(2**31), 2**31 - 1)


@dataclass(frozen=True)
class EntityColumn:
    """A column of an entity table, and the path of property names that leads to its value.

    `array`: True if every version says that the value is an array, so that nothing else fits. `description`: from the newest
    version that has one.
    """

    path: tuple[str, ...]
    column: Column
    array: bool = False
    description: str = ""


@dataclass(frozen=True)
class EntityTable:
    """The table of a model: the hierarchy columns, then the columns of all versions of its schema."""

    table: Table
    columns: tuple[EntityColumn, ...]


def entity_columns(
    schemas: Sequence[tuple[str, Any]], name: str, most: int = MOST_COLUMNS, dotted: bool = False
) -> tuple[EntityColumn, ...]:
    """Returns the columns of a model from all its versions: (version, JSON Schema) pairs, oldest first.

    A column gets a trailing underscore if its name is taken by the hierarchy or by another property (`fooBar`, `foo_bar`). All
    columns are nullable. `name`: the model's name, for messages. `dotted`: dots join the names of nested properties.

    Raises SchemaError if two versions give a column types that no common type holds without loss, if a version is not a JSON
    object, or if there are more than `most` columns.
    """
    types: dict[_Path, tuple[str, str]] = {}  # path -> type, version that set it
    inner: dict[_Path, _Path] = {}  # path of an object -> a column in it
    arrays: dict[_Path, bool] = {}
    said: dict[_Path, str] = {}
    for version, schema in schemas:
        if not isinstance(schema, dict):
            raise SchemaError(f"{name} {version}: the schema is not a JSON object; correct it in the registry")
        for leaf in sorted(_leaves(schema), key=lambda leaf: (not leaf.required, leaf.name)):
            _add(types, inner, leaf, version, name)
            if len(types) > most:
                raise SchemaError(
                    f"{name} {version}: has more than {most} columns; split it, or raise shred.registry_limits.columns"
                )
            arrays[leaf.path] = leaf.array and arrays.get(leaf.path, True)
            said[leaf.path] = leaf.description or said.get(leaf.path, "")
    taken = {column.name for column in HIERARCHY}
    columns = []
    for path, (type_, _) in types.items():
        column_name = dotted_name(path) if dotted else _column_name(path)
        while column_name in taken:
            column_name += "_"
        taken.add(column_name)
        columns.append(EntityColumn(path, Column(column_name, type_), arrays[path], said[path]))
    return tuple(columns)


def _column_name(path: tuple[str, ...]) -> str:
    return "_".join(snake_case(part) for part in path)


def dotted_name(path: tuple[str, ...]) -> str:
    """Returns a column's name as in the tables that Snowplow publishes. A dot leads into an object, or is a property's own."""
    return ".".join(snake_case(word) for part in path for word in part.split("."))


def _add(types: dict[_Path, tuple[str, str]], inner: dict[_Path, _Path], leaf: _Leaf, version: str, name: str) -> None:
    path, type_ = leaf.path, leaf.type
    known = types.get(path)
    if known is None:
        above = [path[:depth] for depth in range(1, len(path))]
        other = inner.get(path) or next((one for one in above if one in types), None)
        if other is not None:
            other_type, other_version = types[other]
            raise SchemaError(
                f"{name}: property {_shown(other)} is {other_type} in {other_version}, but {_shown(path)} is "
                f"{type_} in {version}; publish {version} as a new model"
            )
        types[path] = (type_, version)
        inner.update((one, path) for one in above if one not in inner)
        return
    wide = widened(known[0], type_)
    if wide is None:
        raise SchemaError(
            f"{name}: column {leaf.name[:_SHOWN]} is {known[0]} in {known[1]} but {type_} in {version}, "
            f"and no type holds both without loss; publish {version} as a new model"
        )
    types[path] = (wide, version if wide != known[0] else known[1])


def _shown(path: _Path) -> str:
    return ".".join(path)[:_SHOWN]


@dataclass(frozen=True)
class _Leaf:
    path: _Path
    type: str
    required: bool
    array: bool
    description: str

    @property
    def name(self) -> str:
        return _column_name(self.path)


def _leaves(schema: dict[str, Any], path: _Path = (), required: bool = True) -> Iterable[_Leaf]:
    if len(path) > _DEEPEST or sum(map(len, path)) > _LONGEST:
        raise SchemaError(
            f"property {_shown(path)} is more than {_DEEPEST} objects deep, or its column's name longer than {_LONGEST}"
            " characters; publish a flatter schema as a new model"
        )
    required_names = schema.get("required")
    names = {one for one in required_names if isinstance(one, str)} if isinstance(required_names, list) else set()
    properties = schema.get("properties")
    for name, value in (properties if isinstance(properties, dict) else {}).items():
        value = value if isinstance(value, dict) else {}
        kinds = _kinds(value)
        here = (*path, name)
        needed = required and name in names and "null" not in kinds
        if _is_flat_object(value, kinds) or len(name) > _LONGEST:
            yield from _leaves(value, here, needed)
        else:
            is_array = kinds - {"null"} == {"array"}
            yield _Leaf(here, _type(value, kinds - {"null"}), needed, is_array, description(value.get("description")))


def _is_flat_object(schema: dict[str, Any], kinds: frozenset[str]) -> bool:
    return (
        kinds - {"null"} in (frozenset(), frozenset({"object"}))
        and isinstance(schema.get("properties"), dict)
        and bool(schema["properties"])
        and not any(word in schema for word in ("oneOf", "anyOf", "allOf", "$ref"))
    )


def _kinds(schema: dict[str, Any]) -> frozenset[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(kind for kind in declared if isinstance(kind, str))
    return frozenset()


def _type(schema: dict[str, Any], kinds: frozenset[str]) -> str:
    values = [value for value in schema["enum"] if value is not None] if isinstance(schema.get("enum"), list) else []
    if not kinds and values:
        kinds = frozenset(_kind_of(value) for value in values)
    if kinds == {"string"}:
        return _string_type(schema, values)
    if kinds == {"integer"}:
        numbers = [value for value in values if isinstance(value, int)]
        low = min(numbers) if numbers else schema.get("minimum")
        high = max(numbers) if numbers else schema.get("maximum")
        bounded = isinstance(low, (int, float)) and isinstance(high, (int, float))
        return "integer" if bounded and _INT32[0] <= low and high <= _INT32[1] else "bigint"
    if kinds in ({"number"}, {"integer", "number"}):
        return "double"
    return "boolean" if kinds == {"boolean"} else "json"


def _string_type(schema: dict[str, Any], values: list[Any]) -> str:
    lengths = [len(value) for value in values if isinstance(value, str)]
    if lengths:
        return f"string({max([1, *lengths])})"
    if schema.get("format") == "date-time":
        return "timestamp"
    if schema.get("format") == "date":
        return "date"
    longest = schema.get("maxLength")
    return f"string({longest})" if isinstance(longest, int) and longest > 0 else "string"


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return {str: "string", int: "integer", float: "number"}.get(type(value), "json")
