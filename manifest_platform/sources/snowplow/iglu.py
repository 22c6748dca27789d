"""Iglu: where JSON Schemas come from, by schema key, and the entity table that a model's schemas make.

A registry is a folder (local or s3://) or a static HTTP(S) site or Iglu server, all laid out as
`schemas/<vendor>/<name>/<format>/<model>-<revision>-<addition>`.
"""

from __future__ import annotations

import base64
import http.client
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from manifest_platform import storage
from manifest_platform.listing import Column, Table
from manifest_platform.shred.batch import Unreachable
from manifest_platform.shred.columns import HIERARCHY, EntityColumn, SchemaError, entity_columns, snake_case

_KEY = re.compile(
    r"iglu:(?P<vendor>[a-zA-Z0-9_-]+(?:\.[a-zA-Z0-9_-]+)*)/(?P<name>[a-zA-Z0-9_-]+)/(?P<format>[a-zA-Z0-9_-]+)"
    r"/(?P<model>[1-9][0-9]{0,8})-(?P<revision>0|[1-9][0-9]{0,8})-(?P<addition>0|[1-9][0-9]{0,8})"
)
_LONGEST_NAME = 128  # of a vendor or name: what the hierarchy columns hold

HTTP_ATTEMPTS = 3
HTTP_TIMEOUT_SECONDS = 10.0
HTTP_PAUSE_SECONDS = 0.2


class UnknownSchema(LookupError):
    """No registry has the schema; permanent until somebody publishes it."""


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
class EntityTable:
    """The table of one model: the hierarchy columns, then those of all versions of its schema."""

    table: Table
    columns: tuple[EntityColumn, ...]


class Registry(Protocol):
    """One place that may have schemas."""

    def read(self, key: SchemaKey) -> bytes | None:
        """The text of a schema, None where the registry lacks it. Raises RegistryUnavailable."""

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """The versions of the key's model that the registry has, in any order. Raises RegistryUnavailable."""


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
                raise RegistryUnavailable(f"{root}/{key.path} cannot be read: {error}; check the registry") from error
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
                raise RegistryUnavailable(f"{path} cannot be listed: {error}; check the registry") from error
            found += [version for entry in entries if (version := _sibling(key, entry.base_name))]
        return found


@dataclass(frozen=True)
class HttpRegistry:
    """A static site, or an Iglu server (its URL ends in `/api`).

    A 4xx answer means that the schema is not there: static stores answer 403 for what they lack. `url` has no user or
    password, as it stands in messages; `authorization` is the header that they make.
    """

    url: str
    authorization: str | None = field(default=None, repr=False)

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
        problem: Exception | None = None
        for attempt in range(HTTP_ATTEMPTS):
            if attempt:
                time.sleep(HTTP_PAUSE_SECONDS * 2**attempt)
            try:
                with urllib.request.build_opener().open(request, timeout=HTTP_TIMEOUT_SECONDS) as answer:
                    return answer.read()
            except urllib.error.HTTPError as error:
                if 400 <= error.code < 500 and error.code not in (408, 429):
                    return None
                problem = error
            except (OSError, http.client.HTTPException) as error:
                problem = error
        raise RegistryUnavailable(
            f"{url}: {problem} ({HTTP_ATTEMPTS} attempts); check that the registry is up, then retry"
        ) from problem


def _sibling(key: SchemaKey, version: str) -> SchemaKey | None:
    match = _KEY.fullmatch(f"iglu:{key.vendor}/{key.name}/{key.format}/{version}")
    if not match or int(match["model"]) != key.model:
        return None
    return SchemaKey(key.vendor, key.name, key.format, key.model, int(match["revision"]), int(match["addition"]))


def _open(location: str) -> Registry:
    if location.startswith(("http://", "https://")):
        userinfo = urllib.parse.unquote(urllib.parse.urlsplit(location).netloc.rpartition("@")[0])
        authorization = f"Basic {base64.b64encode(userinfo.encode()).decode()}" if userinfo else None
        return HttpRegistry(_without_userinfo(location).rstrip("/"), authorization)
    return FolderRegistry(storage.as_uri(location))


def _without_userinfo(location: str) -> str:
    """A registry's location as it may be shown and stored."""
    if not location.startswith(("http://", "https://")):
        return location
    parts = urllib.parse.urlsplit(location)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class Resolver:
    """Schemas and entity tables from several registries, the first that has a schema wins.

    What was found, and what was found missing, is kept for the resolver's life; a registry that was unavailable is asked
    again. A resolver pickles as its list of registries.
    """

    def __init__(self, registries: Sequence[str]):
        """`registries`: folders, s3:// prefixes and http(s):// URLs, by priority."""
        self.registries = tuple(registries)
        self._registries = [_open(location) for location in self.registries]
        self._schemas: dict[SchemaKey, dict[str, Any] | None] = {}
        self._models: dict[str, EntityTable | SchemaError] = {}
        self._owners: dict[str, str] = {}
        self._versions: dict[str, list[SchemaKey]] = {}

    def __reduce__(self) -> tuple[Callable[..., Resolver], tuple[Any, ...]]:
        return Resolver, (self.registries,)

    def schema(self, key: SchemaKey) -> dict[str, Any]:
        """The JSON Schema of a key.

        Raises UnknownSchema, RegistryUnavailable, and SchemaError where what the registry has is no JSON.
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

        Raises UnknownSchema, RegistryUnavailable, and SchemaError where the versions contradict one another or another
        model has the same table name.
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
