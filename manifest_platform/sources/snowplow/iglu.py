"""Iglu: where JSON Schemas come from, by schema key, and the entity table that a model's schemas make.

A registry is a folder (local or s3://) or a static HTTP(S) site or Iglu server, all laid out as
`schemas/<vendor>/<name>/<format>/<model>-<revision>-<addition>`.

In a table, nested objects are flattened. Arrays, and values that may be of several kinds, are kept as JSON text. The first
version's columns come required first, then the others, each alphabetically; what later versions add is appended, so that a
column never moves.
"""

from __future__ import annotations

import base64
import http.client
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from manifest_platform import storage
from manifest_platform.column_types import widened
from manifest_platform.faults import Misconfigured
from manifest_platform.listing import Column, Table
from manifest_platform.shred.batch import SchemaError, Unreachable

_KEY = re.compile(
    r"iglu:(?P<vendor>[a-zA-Z0-9_-]+(?:\.[a-zA-Z0-9_-]+)*)/(?P<name>[a-zA-Z0-9_-]+)/(?P<format>[a-zA-Z0-9_-]+)"
    r"/(?P<model>[1-9][0-9]{0,8})-(?P<revision>0|[1-9][0-9]{0,8})-(?P<addition>0|[1-9][0-9]{0,8})"
)
_LONGEST_NAME = 128  # of a vendor or name: what the hierarchy columns hold

HTTP_ATTEMPTS = 3
HTTP_TIMEOUT_SECONDS = 10.0
HTTP_PAUSE_SECONDS = 0.2

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


class UnknownSchema(LookupError):
    """No registry has the schema; permanent until somebody publishes it."""


class RegistryRefused(RuntimeError, Misconfigured):
    """A registry refuses access; permanent until a person mends the registry or the configuration, and no item's fault."""


class RegistryUnavailable(Unreachable):
    """A registry did not answer, or answered with a server error; transient: the same lookup may succeed later."""


@dataclass(frozen=True, order=True)
class SchemaKey:
    """The name of a schema: `iglu:vendor/name/format/model-revision-addition`."""

    vendor: str
    name: str
    format: str
    model: int
    revision: int
    addition: int

    @classmethod
    def parse(cls, text: str) -> SchemaKey:
        """The key of its text. Raises ValueError where the text is none."""
        match = _KEY.fullmatch(text)
        if not match or len(match["vendor"]) > _LONGEST_NAME or len(match["name"]) > _LONGEST_NAME:
            raise ValueError(f"{text[:300]!r} is no schema key; expected iglu:vendor/name/jsonschema/1-0-0")
        numbers = (int(match[part]) for part in ("model", "revision", "addition"))
        return cls(match["vendor"], match["name"], match["format"], *numbers)

    @property
    def version(self) -> str:
        """`1-0-0`: model, revision and addition."""
        return f"{self.model}-{self.revision}-{self.addition}"

    @property
    def path(self) -> str:
        """Where a registry keeps the schema, below `schemas/`."""
        return f"{self.vendor}/{self.name}/{self.format}/{self.version}"

    @property
    def family(self) -> str:
        """The key without revision and addition: what shares one table."""
        return f"iglu:{self.vendor}/{self.name}/{self.format}/{self.model}"

    @property
    def table_name(self) -> str:
        """The name of the table of the key's model: `com_acme_link_click_1`."""
        return f"{snake_case(self.vendor)}_{snake_case(self.name)}_{self.model}"

    def __str__(self) -> str:
        return f"iglu:{self.path}"


@dataclass(frozen=True)
class EntityColumn:
    """A column of an entity and the path of property names that leads to its value.

    `array`: every version says that the value is an array, so nothing else fits.
    """

    path: tuple[str, ...]
    column: Column
    array: bool = False


@dataclass(frozen=True)
class EntityTable:
    """The table of one model: the hierarchy columns, then those of all versions of its schema."""

    table: Table
    columns: tuple[EntityColumn, ...]


class Registry(Protocol):
    """One place that may have schemas."""

    def read(self, key: SchemaKey) -> bytes | None:
        """The text of a schema, None where the registry lacks it. Raises RegistryUnavailable, RegistryRefused."""

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """The versions of the key's model that the registry has, in any order. Raises as `read`."""


@dataclass(frozen=True)
class FolderRegistry:
    """A folder that is, or holds, `schemas/`."""

    uri: str

    def read(self, key: SchemaKey) -> bytes | None:
        """The text of a schema, None where there is no such file."""
        for root in (f"{self.uri}/schemas", self.uri):
            try:
                return storage.read_bytes(f"{root}/{key.path}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _storage_error(f"{root}/{key.path} cannot be read", error) from error
        return None

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """The versions of the key's model, by listing its folder."""
        from pyarrow.fs import FileSelector

        found = []
        for root in (f"{self.uri}/schemas", self.uri):
            system, path = storage.filesystem(f"{root}/{key.vendor}/{key.name}/{key.format}")
            try:
                entries = system.get_file_info(FileSelector(path, allow_not_found=True))
            except OSError as error:
                raise _storage_error(f"{path} cannot be listed", error) from error
            found += [version for entry in entries if (version := _sibling(key, entry.base_name))]
        return found


def _storage_error(what: str, error: OSError) -> RegistryUnavailable | RegistryRefused:
    if storage.is_refusal(error):
        return RegistryRefused(f"{what}: {error}; allow it, or correct the registry in shred.schemas")
    return RegistryUnavailable(f"{what}: {error}; check the registry")


_HAVE_SERVED: set[str] = set()
"""The HTTP registries that gave this process a schema: what such a one answers 403 for, it lacks."""


@dataclass(frozen=True)
class HttpRegistry:
    """A static site, or an Iglu server (its URL ends in `/api`).

    An answer 4xx means that the schema is not there, except for 401, which refuses access, and 403: static stores answer so for
    what they lack, and servers to strangers. It means that the schema is not there from a registry that has given another one,
    or where `forbidden_is_absent`. `url` has no user or password, as it stands in messages; `authorization` is the header that
    they make, `apikey` that of an Iglu server's key.
    """

    url: str
    authorization: str | None = field(default=None, repr=False)
    apikey: str | None = field(default=None, repr=False)
    forbidden_is_absent: bool = False

    def read(self, key: SchemaKey) -> bytes | None:
        """The text of a schema, None where the site answers that it has none."""
        return self._get(key.path)

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """The versions of the key's model: from the server's list, or else by asking for one after the other."""
        listed = self._get(f"{key.vendor}/{key.name}/{key.format}/{key.model}")
        try:
            texts = orjson.loads(listed or b"null")
        except orjson.JSONDecodeError:
            texts = None
        if isinstance(texts, list):
            keys = [SchemaKey.parse(text) for text in texts if isinstance(text, str) and _KEY.fullmatch(text)]
            return [version for version in keys if version.family == key.family]
        return list(self._successors(key))

    def _successors(self, key: SchemaKey) -> Iterator[SchemaKey]:
        """Versions are numbered without gaps; a gap below the key itself, which exists, is stepped over."""
        revision = 0
        while True:
            addition = 0
            while True:
                version = SchemaKey(key.vendor, key.name, key.format, key.model, revision, addition)
                if version == key or self.read(version) is not None:
                    yield version
                elif version > key or revision < key.revision:
                    break
                addition += 1
            if addition == 0 and revision > key.revision:
                return
            revision += 1

    def _get(self, path: str) -> bytes | None:
        url = f"{self.url}/schemas/{path}"
        request = urllib.request.Request(url)  # noqa: S310, the URL begins with http:// or https://
        if self.authorization:
            request.add_unredirected_header("Authorization", self.authorization)  # another site is not to learn it
        if self.apikey:
            request.add_unredirected_header("apikey", self.apikey)
        problem: Exception | None = None
        for attempt in range(HTTP_ATTEMPTS):
            if attempt:
                time.sleep(HTTP_PAUSE_SECONDS * 2**attempt)
            try:
                with urllib.request.build_opener().open(request, timeout=HTTP_TIMEOUT_SECONDS) as answer:
                    text = answer.read()
                    _HAVE_SERVED.add(self.url)
                    return text
            except urllib.error.HTTPError as error:
                if 400 <= error.code < 500 and error.code not in (408, 429):
                    self._check_access(url, error.code)
                    return None
                problem = error
            except (OSError, http.client.HTTPException) as error:
                problem = error
        raise RegistryUnavailable(
            f"{url}: {problem} ({HTTP_ATTEMPTS} attempts); check that the registry is up, then retry"
        ) from problem

    def _check_access(self, url: str, status: int) -> None:
        """Raises RegistryRefused where an answer means that, and not that there is no such schema."""
        if status == 401:
            how = "is wrong" if self.apikey or self.authorization else "is missing: name its variable in shred.registries"
            raise RegistryRefused(f"{url}: the registry answers 401, so the key {how}; then retry")
        if status == 403 and not self.forbidden_is_absent and self.url not in _HAVE_SERVED:
            raise RegistryRefused(
                f"{url}: the registry answers 403 and has given no schema so far, so it refuses access: allow it, or give a key"
                " in shred.registries; where it answers 403 for what it lacks, write `absent: [403, 404]` there"
            )


def _sibling(key: SchemaKey, version: str) -> SchemaKey | None:
    match = _KEY.fullmatch(f"iglu:{key.vendor}/{key.name}/{key.format}/{version}")
    if not match or int(match["model"]) != key.model:
        return None
    return SchemaKey(key.vendor, key.name, key.format, key.model, int(match["revision"]), int(match["addition"]))


@dataclass(frozen=True)
class Place:
    """Where a registry is: a folder, an s3:// prefix or an http(s):// URL; and what is special about an HTTP one."""

    location: str
    apikey: str | None = field(default=None, repr=False)
    forbidden_is_absent: bool = False

    def open(self) -> Registry:
        """The registry there."""
        if not self.location.startswith(("http://", "https://")):
            return FolderRegistry(storage.as_uri(self.location))
        userinfo = urllib.parse.unquote(urllib.parse.urlsplit(self.location).netloc.rpartition("@")[0])
        authorization = f"Basic {base64.b64encode(userinfo.encode()).decode()}" if userinfo else None
        url = _without_userinfo(self.location).rstrip("/")
        return HttpRegistry(url, authorization, self.apikey, self.forbidden_is_absent)


def _without_userinfo(location: str) -> str:
    """A registry's location as it may be shown and stored."""
    if not location.startswith(("http://", "https://")):
        return location
    parts = urllib.parse.urlsplit(location)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class Resolver:
    """Schemas and entity tables from several registries, the first that has a schema wins.

    What was found, and what was found missing, is kept for the resolver's life; a registry that was unavailable or refused
    access is asked again.
    """

    def __init__(self, registries: Sequence[str | Place]):
        """`registries`: folders, s3:// prefixes and http(s):// URLs, by priority."""
        places = [one if isinstance(one, Place) else Place(one) for one in registries]
        self.registries = tuple(place.location for place in places)
        self._registries = [place.open() for place in places]
        self._schemas: dict[SchemaKey, dict[str, Any] | None] = {}
        self._models: dict[str, EntityTable | SchemaError] = {}
        self._owners: dict[str, str] = {}
        self._versions: dict[str, list[SchemaKey]] = {}

    def schema(self, key: SchemaKey) -> dict[str, Any]:
        """The JSON Schema of a key.

        Raises UnknownSchema, RegistryUnavailable, RegistryRefused, and SchemaError where what the registry has is no JSON.
        """
        if key not in self._schemas:
            self._schemas[key] = self._read(key)
        found = self._schemas[key]
        if found is None:
            looked = ", ".join(map(_without_userinfo, self.registries)) or "no registries"
            raise UnknownSchema(f"{key} is in none of {looked}; publish it there")
        return found

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """All versions of the key's model in all registries, oldest first. Raises as `schema` does."""
        self.schema(key)  # before any listing: a version that nobody published must not start a search
        if key.family not in self._versions:
            found = {version for registry in self._registries for version in registry.versions(key)}
            self._versions[key.family] = sorted(found)
        known = self._versions[key.family]
        if key not in known:
            self._versions[key.family] = known = sorted({*known, key})
            self._models.pop(key.family, None)
        return known

    def table(self, key: SchemaKey) -> EntityTable:
        """The table of the key's model, made of all its versions.

        Raises as `schema`, and SchemaError where the versions contradict one another or another model has the same table name.
        """
        versions = self.versions(key)
        if key.family not in self._models:
            self._models[key.family] = self._table(key, versions)
        found = self._models[key.family]
        if isinstance(found, SchemaError):
            raise found
        return found

    def _table(self, key: SchemaKey, versions: list[SchemaKey]) -> EntityTable | SchemaError:
        owner = self._owners.setdefault(key.table_name, key.family)
        if owner != key.family:
            return SchemaError(f"{key.family} and {owner} both make the table {key.table_name}; rename one of them")
        try:
            columns = entity_columns([(version.version, self.schema(version)) for version in versions], key.family)
        except SchemaError as error:
            return error
        all_columns: tuple[Column, ...] = (*HIERARCHY, *(column.column for column in columns))
        return EntityTable(Table(key.table_name, all_columns), columns)

    def _read(self, key: SchemaKey) -> dict[str, Any] | None:
        for registry in self._registries:
            text = registry.read(key)
            if text is not None:
                try:
                    return orjson.loads(text)
                except orjson.JSONDecodeError as error:
                    raise SchemaError(f"{key} in {registry} is no JSON: {error}; correct it there") from error
        return None


# JSON Schemas to table columns


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
