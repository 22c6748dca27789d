"""JSON Schemas as table columns: names, types, flattening, and how the versions of a model come together.

Nested objects are flattened. Arrays, and values that may be of several kinds, are kept as JSON text. The first version's
columns come required first, then the others, each alphabetically; what later versions add is appended, so that a column
never moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from manifest_platform.column_types import widened
from manifest_platform.listing import Column

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

_INT32 = (-(2**31), 2**31 - 1)


class SchemaError(ValueError):
    """A schema that cannot be made a table; permanent: only another schema can mend it."""


@dataclass(frozen=True)
class EntityColumn:
    """A column of an entity and the path of property names that leads to its value.

    `array`: every version says that the value is an array, so nothing else fits.
    """

    path: tuple[str, ...]
    column: Column
    array: bool = False


def snake_case(name: str) -> str:
    """A property, schema or vendor name as a lower-case name with underscores: `PerformanceTiming`, `com.acme`."""
    spaced = re.sub(r"([A-Z\d]+)([A-Z][a-z])", r"\1_\2", name)
    spaced = re.sub(r"([a-z\d])([A-Z])", r"\1_\2", spaced)
    return re.sub(r"[^a-z0-9_]", "_", spaced.lower())


def entity_columns(schemas: Sequence[tuple[str, Any]], name: str) -> tuple[EntityColumn, ...]:
    """The columns of one model from all its versions, oldest first, as (version, JSON Schema) pairs.

    A column whose name is taken, by the hierarchy or by another property (`fooBar`, `foo_bar`), gets a trailing
    underscore. All are nullable. `name` is the model's, for messages. Raises SchemaError where two versions give a
    column types that no type holds without loss, or where a version is no JSON object.
    """
    types: dict[tuple[str, ...], tuple[str, str]] = {}  # path -> type, version that set it
    arrays: dict[tuple[str, ...], bool] = {}
    for version, schema in schemas:
        if not isinstance(schema, dict):
            raise SchemaError(f"{name} {version}: the schema is not a JSON object; correct it in the registry")
        for leaf in sorted(_leaves(schema), key=lambda leaf: (not leaf.required, leaf.name)):
            _add(types, leaf.path, leaf.type, version, name)
            arrays[leaf.path] = leaf.array and arrays.get(leaf.path, True)
    taken = {column.name for column in HIERARCHY}
    columns = []
    for path, (type_, _) in types.items():
        column_name = _column_name(path)
        while column_name in taken:
            column_name += "_"
        taken.add(column_name)
        columns.append(EntityColumn(path, Column(column_name, type_), arrays[path]))
    return tuple(columns)


def _column_name(path: tuple[str, ...]) -> str:
    return "_".join(snake_case(part) for part in path)


def _add(types: dict[tuple[str, ...], tuple[str, str]], path: tuple[str, ...], type_: str, version: str, name: str) -> None:
    known = types.get(path)
    if known is None:
        for other, (other_type, other_version) in types.items():
            if other[: len(path)] == path or path[: len(other)] == other:
                raise SchemaError(
                    f"{name}: property {'.'.join(other)} is {other_type} in {other_version}, but {'.'.join(path)} is "
                    f"{type_} in {version}; publish {version} as a new model"
                )
        types[path] = (type_, version)
        return
    wide = widened(known[0], type_)
    if wide is None:
        raise SchemaError(
            f"{name}: column {_column_name(path)} is {known[0]} in {known[1]} but {type_} in {version}, "
            f"and no type holds both without loss; publish {version} as a new model"
        )
    types[path] = (wide, version if wide != known[0] else known[1])


@dataclass(frozen=True)
class _Leaf:
    path: tuple[str, ...]
    type: str
    required: bool
    array: bool

    @property
    def name(self) -> str:
        return _column_name(self.path)


def _leaves(schema: dict[str, Any], path: tuple[str, ...] = (), required: bool = True) -> Iterable[_Leaf]:
    names = schema.get("required")
    names = names if isinstance(names, list) else []
    properties = schema.get("properties")
    for name, value in (properties if isinstance(properties, dict) else {}).items():
        value = value if isinstance(value, dict) else {}
        kinds = _kinds(value)
        here = (*path, name)
        needed = required and name in names and "null" not in kinds
        if _is_flat_object(value, kinds):
            yield from _leaves(value, here, needed)
        else:
            yield _Leaf(here, _type(value, kinds - {"null"}), needed, kinds - {"null"} == {"array"})


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
