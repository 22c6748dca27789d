"""Columns of an entity table, from the JSON Schemas of all versions of a model.

In a table, nested objects are flattened. Arrays, and values that may be objects or arrays, are kept as JSON text. The columns
of the first version come first, the required ones before the others, each group in alphabetical order. Columns that later
versions add are appended, so that no column ever moves.

A version that contradicts those before it is set apart: it adds nothing, and the others are what they would be without it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from manifest_platform.column_types import widened
from manifest_platform.listing import Column, Table, description
from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources.snowplow.schemas import types
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
OTHER = "other_properties"
"""The column for properties that no version names, a JSON object with them at their places."""

_DEEPEST = 50  # nested objects
_LONGEST = 1_000  # characters of a column's name
_SHOWN = 200  # characters of a name in a message
_BRANCHES = ("allOf", "anyOf", "oneOf")

_Path = tuple[str, ...]


@dataclass(frozen=True)
class EntityColumn:
    """A column of an entity table, and the path of property names that leads to its value.

    `array`: True if every version says that the value is an array, so that nothing else fits. `mixed`: True if numbers and
    booleans fit a column of text. `description`: from the newest version that has one. `versions`: those that name the
    property; in an entity of any other version its value may be anything. An empty path: what no version names.
    """

    path: tuple[str, ...]
    column: Column
    array: bool = False
    description: str = ""
    mixed: bool = False
    versions: frozenset[str] = frozenset()


@dataclass(frozen=True)
class EntityTable:
    """The table of a model: the hierarchy columns, then the columns of its schemas.

    `recovered`: for the table of a single version that breaks its model, the reason. `whole`: True if the only column holds the
    entity's JSON.
    """

    table: Table
    columns: tuple[EntityColumn, ...]
    recovered: str = ""
    whole: bool = False

    @functools.cached_property
    def names(self) -> dict[str, Any]:
        """The names of properties with a column: those within an object by its name, None for a value."""
        found: dict[str, Any] = {}
        for column in self.columns:
            inside = found
            for name in column.path[:-1]:
                inside = inside.setdefault(name, {})
            if column.path:
                inside[column.path[-1]] = None
        return found

    def naming(self, path: tuple[str, ...]) -> frozenset[str]:
        """Returns the versions that name something in an object."""
        return frozenset().union(*(one.versions for one in self.columns if one.path[: len(path)] == path))


@dataclass(frozen=True)
class Breaking:
    """A version that contradicts those before it: the reason, and its own columns."""

    reason: str
    columns: tuple[EntityColumn, ...]


@dataclass(frozen=True)
class Model:
    """The columns of a model. `breaking`: versions that contradict the others. `unusable`: versions that make no table."""

    columns: tuple[EntityColumn, ...]
    breaking: Mapping[str, Breaking] = field(default_factory=dict)
    unusable: Mapping[str, SchemaError] = field(default_factory=dict)


def model_of(
    schemas: Sequence[tuple[str, Any]], name: str, most: int = MOST_COLUMNS, dotted: bool = False, keep_other: bool = False
) -> Model:
    """Returns the columns of a model from all its versions: (version, JSON Schema) pairs, oldest first. Never raises.

    A schema may be a SchemaError, for a version that cannot be read. `name`: the model's name, for messages. `dotted`: dots
    join the names of nested properties. `keep_other`: adds the column `other_properties` if a version allows properties that it
    does not name.
    """
    fold, breaking, unusable = _Fold(), {}, {}
    for version, schema in schemas:
        try:
            if isinstance(schema, SchemaError):
                raise schema
            leaves = _leaves_of(schema, version, name, keep_other)
            alone = _Fold().with_version(leaves, version, name, most)
        except SchemaError as error:
            unusable[version] = error
            continue
        try:
            fold = fold.with_version(leaves, version, name, most)
        except SchemaError as error:
            breaking[version] = Breaking(str(error), alone.columns(dotted))
    return Model(fold.columns(dotted), breaking, unusable)


def entity_columns(
    schemas: Sequence[tuple[str, Any]], name: str, most: int = MOST_COLUMNS, dotted: bool = False, keep_other: bool = False
) -> tuple[EntityColumn, ...]:
    """Returns the columns of a model whose versions must all agree: (version, JSON Schema) pairs, oldest first.

    A column gets a trailing underscore if its name is taken by the hierarchy or by another property (`fooBar`, `foo_bar`). All
    columns are nullable. Raises SchemaError if two versions give a column types that no common type holds without loss, if a
    version is not a JSON object, or if there are more than `most` columns.
    """
    found = model_of(schemas, name, most, dotted, keep_other)
    for error in found.unusable.values():
        raise error
    for one in found.breaking.values():
        raise SchemaError(one.reason)
    return found.columns


@dataclass(frozen=True)
class _Leaf:
    path: _Path
    type: str
    required: bool = False
    array: bool = False
    mixed: bool = False
    description: str = ""

    @property
    def name(self) -> str:
        return _column_name(self.path)


@dataclass(frozen=True)
class _Known:
    """A column so far: its leaf with the common type, the version that set the type, and the versions that name it."""

    leaf: _Leaf
    version: str
    versions: frozenset[str]


@dataclass(frozen=True)
class _Fold:
    """The columns of the versions so far. `inner`: by path of an object, a column in it."""

    known: Mapping[_Path, _Known] = field(default_factory=dict)
    inner: Mapping[_Path, _Path] = field(default_factory=dict)

    def with_version(self, leaves: Iterable[_Leaf], version: str, name: str, most: int) -> _Fold:
        """Returns the columns with those of a further version. Raises SchemaError."""
        known, inner = dict(self.known), dict(self.inner)
        for leaf in leaves:
            before = known.get(leaf.path)
            if before:
                known[leaf.path] = _both(before, leaf, version, name)
                continue
            above = [leaf.path[:depth] for depth in range(1, len(leaf.path))]
            other = inner.get(leaf.path) if leaf.path else None
            other = other or next((one for one in above if one in known), None)
            if other is not None:
                raise SchemaError(
                    f"{name}: property {_shown(other)} is {known[other].leaf.type} in {known[other].version}, but "
                    f"{_shown(leaf.path)} is {leaf.type} in {version}; publish {version} as a new model"
                )
            known[leaf.path] = _Known(leaf, version, frozenset({version}))
            inner.update((one, leaf.path) for one in above if one not in inner)
        if len(known) > most:
            raise SchemaError(
                f"{name} {version}: has more than {most} columns; split it, or raise shred.registry_limits.columns"
            )
        return _Fold(known, inner)

    def columns(self, dotted: bool) -> tuple[EntityColumn, ...]:
        """Returns the columns. Names depend only on the versions, not on the order of properties in a schema's text."""
        taken = {column.name for column in HIERARCHY}
        columns = []
        for path, one in self.known.items():
            name = dotted_name(path) if dotted and path else one.leaf.name
            while name in taken or not name:
                name += "_"
            taken.add(name)
            leaf = one.leaf
            columns.append(EntityColumn(path, Column(name, leaf.type), leaf.array, leaf.description, leaf.mixed, one.versions))
        return tuple(columns)


def _both(before: _Known, leaf: _Leaf, version: str, name: str) -> _Known:
    """Returns a known column with what a further version says about it. Raises SchemaError if no type holds both."""
    old = before.leaf
    wide = widened(old.type, leaf.type)
    if wide is None:
        raise SchemaError(
            f"{name}: column {leaf.name[:_SHOWN]} is {old.type} in {before.version} but {leaf.type} in {version}, "
            f"and no type holds both without loss; publish {version} as a new model"
        )
    merged = replace(
        old,
        type=wide,
        array=old.array and leaf.array,
        mixed=old.mixed or leaf.mixed,
        description=leaf.description or old.description,
    )
    return _Known(merged, before.version if wide == old.type else version, before.versions | {version})


def _column_name(path: _Path) -> str:
    return "_".join(snake_case(part) for part in path) if path else OTHER


def dotted_name(path: tuple[str, ...]) -> str:
    """Returns a column's name as in the tables that Snowplow publishes. A dot leads into an object, or is a property's own."""
    return ".".join(snake_case(word) for part in path for word in part.split("."))


def _shown(path: _Path) -> str:
    return ".".join(path)[:_SHOWN]


# One version


def _leaves_of(schema: Any, version: str, name: str, keep_other: bool) -> list[_Leaf]:
    """Returns the columns of one version, the required ones first, each group by name, and the column of others last."""
    if not isinstance(schema, dict):
        raise SchemaError(f"{name} {version}: the schema is not a JSON object; correct it in the registry")
    root = _with_branches(schema)
    leaves = sorted(flattened(root), key=lambda leaf: (not leaf.required, leaf.name, leaf.path))
    if _has_others(root, keep_other):
        leaves.append(_Leaf((), "json"))
    return leaves


def flattened(schema: dict[str, Any], path: _Path = (), required: bool = True) -> Iterable[_Leaf]:
    """Yields the properties that become columns, nested ones by their paths. Raises SchemaError for a path without limit."""
    if len(path) > _DEEPEST or sum(map(len, path)) > _LONGEST:
        raise SchemaError(
            f"property {_shown(path)} is more than {_DEEPEST} objects deep, or its column's name longer than {_LONGEST}"
            " characters; publish a flatter schema as a new model"
        )
    required_names = schema.get("required")
    names = {one for one in required_names if isinstance(one, str)} if isinstance(required_names, list) else set()
    for name, value in _properties(schema).items():
        value = value if isinstance(value, dict) else {}
        kinds = types.kinds(value)
        here = (*path, name)
        needed = required and name in names and "null" not in kinds
        if _is_flat_object(value) or len(name) > _LONGEST:
            yield from flattened(value, here, needed)
        else:
            is_array, said = kinds - {"null"} == {"array"}, description(value.get("description"))
            yield _Leaf(here, types.column_type(value), needed, is_array, types.is_mixed(value), said)


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _is_flat_object(schema: dict[str, Any]) -> bool:
    return (
        types.kinds(schema) - {"null"} in (frozenset(), frozenset({"object"}))
        and bool(_properties(schema))
        and not any(word in schema for word in (*_BRANCHES, "$ref"))
    )


def _with_branches(root: dict[str, Any]) -> dict[str, Any]:
    """Returns a root schema that names, beside its own properties, those of its `$ref`, `allOf`, `anyOf` and `oneOf`.

    An entity is a row, so that its root cannot be kept as JSON. A property that several branches describe differently is JSON.
    """
    parts = list(_parts(root))
    of_branches: dict[str, Any] = {}
    for part in parts[1:]:
        for name, value in _properties(part).items():
            of_branches[name] = value if of_branches.get(name, value) == value else {}
    whole = {**root, "properties": {**of_branches, **_properties(root)}}
    if len(parts) > 1:
        names = [part["required"] for part in parts if isinstance(part.get("required"), list)]
        whole["required"] = names[0] if names else []
        whole["additionalProperties"] = any(part.get("additionalProperties", True) is not False for part in parts)
    if any(part.get("patternProperties") for part in parts):
        whole["patternProperties"] = {"": {}}
    return whole


def _parts(root: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Yields a root schema, then the schemas that it refers to and is composed of, each once."""
    left: list[Any] = [root]
    seen: set[int] = set()
    while left:
        part = left.pop(0)
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        left.append(_referred(root, part.get("$ref")))
        for word in _BRANCHES:
            branches = part.get(word)
            left += branches if isinstance(branches, list) else []


def _referred(root: dict[str, Any], reference: Any) -> dict[str, Any] | None:
    """Returns the part of a schema that a reference within it names; None if there is none."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _has_others(schema: dict[str, Any], keep: bool) -> bool:
    """True if an object, or one in it that is flattened, needs the column for properties that no version names."""
    if schema.get("patternProperties") or (keep and schema.get("additionalProperties", True) is not False):
        return True
    return any(
        _has_others(value, keep) for value in _properties(schema).values() if isinstance(value, dict) and _is_flat_object(value)
    )
