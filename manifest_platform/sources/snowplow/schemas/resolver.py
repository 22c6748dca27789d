"""The resolver: looks up JSON Schemas by key in several Iglu registries, and the entity table that a model's schemas define."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas.built_in import BUILT_IN
from manifest_platform.sources.snowplow.schemas.columns import EntityTable
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.models import ModelTables, model_tables
from manifest_platform.sources.snowplow.schemas.registry import Place
from manifest_platform.sources.snowplow.settings import RegistryLimits


class UnknownSchema(LookupError):
    """No registry has the schema. Permanent until somebody publishes it."""


class Resolver:
    """Looks up schemas and entity tables in several registries, in order of priority.

    It remembers, for its lifetime, which schemas were found and which are missing. It asks a registry again that was
    unavailable or refused access.
    """

    def __init__(
        self,
        registries: Sequence[str | Place],
        limits: RegistryLimits | None = None,
        tables: Mapping[str, str] | None = None,
        rules: Rules | None = None,
    ):
        """Opens the registries.

        `registries`: folders, s3:// prefixes and http(s):// URLs, by priority. `limits`: the limits of answers over HTTP.
        `tables`: table names by family, where they differ from the default. `rules`: the rules of the dataset.
        """
        self._rules = rules or Rules()
        self._tables = dict(tables or {})
        places = [one if isinstance(one, Place) else Place(one) for one in registries]
        self.limits = limits or RegistryLimits()
        self._bytes = 0
        self.names = ", ".join(map(str, places)) or "no registries"
        self._registries = [place.open(self.limits) for place in places]
        self._schemas: dict[SchemaKey, dict[str, Any] | SchemaError | None] = {}
        self._models: dict[str, ModelTables] = {}
        self._versions: dict[str, list[SchemaKey] | SchemaError] = {}

    def close(self) -> None:
        """Closes the registries' connections."""
        for registry in self._registries:
            registry.close()

    def schema(self, key: SchemaKey) -> dict[str, Any]:
        """Returns the JSON Schema of a key.

        Raises UnknownSchema, RegistryUnavailable, RegistryRefused, and SchemaError if the registry's content is not JSON.
        """
        if key not in self._schemas:
            self._schemas[key] = self._read(key)
        found = self._schemas[key]
        if found is None:
            raise UnknownSchema(f"{key} is in none of the registries {self.names}; publish it in one of them")
        if isinstance(found, SchemaError):
            raise found
        return found

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """Returns all versions of the key's model in all registries, oldest first. Raises as `schema` does."""
        self.schema(key)  # before any listing: a version that nobody published must not start a search
        if key.family not in self._versions:
            self._versions[key.family] = self._list(key)
        known = self._versions[key.family]
        if isinstance(known, SchemaError):
            raise known
        if key not in known:
            self._versions[key.family] = known = sorted({*known, key})
            self._models.pop(key.family, None)
        return known

    def table(self, key: SchemaKey) -> EntityTable:
        """Returns the table of a schema: that of its model, or its own if it contradicts earlier versions of the model.

        Raises as `schema`, and SchemaError if the schema makes no table.
        """
        return self.model(key).table(key)

    def model(self, key: SchemaKey) -> ModelTables:
        """Returns the tables of the key's model, made of all its versions. Raises as `table`."""
        versions = self.versions(key)
        if key.family not in self._models:
            self._models[key.family] = self._model(key, versions)
        return self._models[key.family]

    def table_name(self, key: SchemaKey) -> str:
        """Returns the name of the table of the key's model."""
        return self._tables.get(key.family, key.table_name)

    def _model(self, key: SchemaKey, versions: Sequence[SchemaKey]) -> ModelTables:
        schemas = [(version.version, found) for version in versions if (found := self._usable(version)) is not None]
        return model_tables(key, self.table_name(key), schemas, self.limits.columns, self._rules)

    def table_of(self, key: SchemaKey, versions: Sequence[SchemaKey]) -> EntityTable:
        """Returns the table that some versions of the key's model make. Raises SchemaError if the key's version makes none."""
        return self._model(key, versions).table(key)

    def _usable(self, key: SchemaKey) -> dict[str, Any] | SchemaError | None:
        """Returns a version of a model; None if it is only listed."""
        try:
            return self.schema(key)
        except UnknownSchema:
            return None
        except SchemaError as error:
            return error

    # For people, who ask for what no row named

    def listed(self) -> tuple[set[SchemaKey], list[str]]:
        """Returns all schemas of the registries that list what they have, and the other registries. Raises as `schema`."""
        lists = {str(registry): registry.keys() for registry in self._registries}
        found = {key for keys in lists.values() for key in keys or ()}
        return found, [f"{name} gives no list of its schemas" for name, keys in lists.items() if keys is None]

    def versions_of(self, first: SchemaKey) -> list[SchemaKey]:
        """Returns all versions of a model, oldest first; empty if there is none. `first`: need not exist."""
        try:
            return self.versions(first)
        except UnknownSchema:
            found = {key for registry in self._registries for key in registry.versions(first)} - {first}
            return self.versions(min(found)) if found else []

    def place_of(self, key: SchemaKey) -> str:
        """Returns the registry that a schema was read from. Raises as `schema`."""
        self.schema(key)
        return next((str(registry) for registry in self._registries if registry.read(key) is not None), self.names)

    def text(self, key: SchemaKey) -> bytes:
        """Returns the text of a schema as its registry has it. Raises as `schema`."""
        self.schema(key)
        return next(text for registry in self._registries if (text := registry.read(key)) is not None)

    def _list(self, key: SchemaKey) -> list[SchemaKey] | SchemaError:
        try:
            found = {version for registry in self._registries for version in registry.versions(key)}
            found |= {version for version in BUILT_IN if version.family == key.family}
        except SchemaError as error:
            return error
        if len(found) > self.limits.versions:
            return SchemaError(
                f"{key.family} has {len(found)} versions in {self.names}, but at most {self.limits.versions} are read; remove"
                " some, or raise shred.registry_limits.versions"
            )
        return sorted(found)

    def _read(self, key: SchemaKey) -> dict[str, Any] | SchemaError | None:
        for registry in self._registries:
            try:
                text = registry.read(key)
            except SchemaError as error:
                return error
            if text is None:
                continue
            if self._bytes + len(text) > self.limits.total_mib << 20:
                return SchemaError(
                    f"{key} is not read: the schemas that this task needs have more than {self.limits.total_mib} MiB in all;"
                    " raise shred.registry_limits.total_mib"
                )
            self._bytes += len(text)
            try:
                return orjson.loads(text)
            except orjson.JSONDecodeError as error:
                return SchemaError(f"{key} in {registry} is not valid JSON: {error}; correct it there")
        return BUILT_IN.get(key)
