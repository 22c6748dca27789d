"""The resolver: looks up JSON Schemas by key in several Iglu registries, and the entity table that a model's schemas define."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources.snowplow import numbers
from manifest_platform.sources.snowplow.criteria import form_of
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas import documents
from manifest_platform.sources.snowplow.schemas.built_in import BUILT_IN
from manifest_platform.sources.snowplow.schemas.columns import EntityTable
from manifest_platform.sources.snowplow.schemas.contract import Registry
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, is_key
from manifest_platform.sources.snowplow.schemas.models import ModelTables, model_tables, whole_table
from manifest_platform.sources.snowplow.schemas.registry import Place
from manifest_platform.sources.snowplow.schemas.settings import RegistryLimits

_NAMED = re.compile(rb'"schema"\s*:\s*"(iglu:[A-Za-z0-9_./-]{1,600})"')
_WRAPPERS = ("iglu:com.snowplowanalytics.snowplow/contexts/", "iglu:com.snowplowanalytics.snowplow/unstruct_event/")
_MOST_WARMED = 200
_MOST_MISSING = 3
_AT_ONCE = 16


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
        # Only skipping is by version. A version that is skipped must not choose the form of the others, which share its table.
        self._forms = tuple((pattern, form) for pattern, form in self._rules.entities if form != "skip")
        self._tables = dict(tables or {})
        places = sorted((one if isinstance(one, Place) else Place(one) for one in registries), key=lambda one: one.priority)
        self._places = places
        self.limits = limits or RegistryLimits()
        self._declared: set[tuple[str, tuple[str, ...]]] = set()
        self._bytes = 0
        self._is_warm = False
        self._warmed_bytes = 0
        self._found_in: dict[SchemaKey, Registry] = {}
        self.names = ", ".join(map(str, places)) or "no registries"
        self._registries = [place.open(self.limits) for place in places]
        self._schemas: dict[SchemaKey, dict[str, Any] | SchemaError | None] = {}
        self._exact: dict[SchemaKey, Any] = {}
        self._published: dict[SchemaKey, Any] = {}
        self._models: dict[str, ModelTables] = {}
        self._versions: dict[str, list[SchemaKey] | SchemaError] = {}

    def _asked_for(self, vendor: str) -> list[Registry]:
        """Returns the registries in the order in which they are asked for a vendor's schemas: those that are for it first."""
        both = list(zip(self._places, self._registries, strict=True))
        return [one for its in (True, False) for place, one in both if place.is_for(vendor) == its]

    def _with_versions(self, key: SchemaKey) -> list[Registry]:
        """Returns the registries whose versions of a model count: those that are for its vendor, if they have the schema."""
        found = self._found_in.get(key)
        both = list(zip(self._places, self._registries, strict=True))
        own = [one for place, one in both if place.is_for(key.vendor)]
        return own if found in own else list(self._registries)

    def warm(self, data: bytes) -> None:
        """Asks at once for the schemas that lines name most, so that each is not waited for alone. Called with each chunk.

        Only the first chunk is looked at. A schema that only one line names is left to its line, and so are all faults. Schemas
        whose entities become no rows are not asked for.
        """
        if self._is_warm or all(place.is_local for place in self._places):
            return
        self._is_warm = True
        named = Counter(found.decode() for found in _NAMED.findall(data))
        models: dict[str, SchemaKey] = {}
        for text, times in named.most_common(_MOST_WARMED):
            if times > 1 and is_key(text) and not text.startswith(_WRAPPERS) and not self.skips(key := SchemaKey.parse(text)):
                models.setdefault(key.family, key)
        faults: list[BaseException] = []
        missing: list[SchemaKey] = []

        def ask(key: SchemaKey) -> None:
            if faults or len(missing) > _MOST_MISSING or self._warmed_bytes > self.limits.total_mib << 20:
                return
            try:
                if not self._learn(key):
                    missing.append(key)
            except Exception as error:
                faults.append(error)

        first, *others = models.values() or (None,)
        if first:
            ask(first)  # alone: it shows whether the registries answer, and whether they list models
        if others and not faults:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(ask, others))

    def _learn(self, key: SchemaKey) -> bool:
        """Fills the registries' caches with a model and its versions. Returns False if no registry has the schema."""
        asked = self._asked_for(key.vendor)
        holder = next((one for one in asked if one.read(key) is not None), None)
        if holder is None:
            return False
        own = [one for place, one in zip(self._places, self._registries, strict=True) if place.is_for(key.vendor)]
        for registry in own if holder in own else self._registries:
            for version in registry.versions(key):
                text = next((text for one in asked if (text := one.read(version)) is not None), b"")
                self._warmed_bytes += len(text)
        return True

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

    def exact(self, key: SchemaKey) -> Any:
        """Returns the JSON Schema of a key with all digits of its whole numbers. Raises as `schema`."""
        found = self.schema(key)
        return self._exact.get(key, found)

    def published(self, key: SchemaKey) -> Any:
        """Returns the JSON Schema of a key as it was published, although private columns are hidden. Raises as `schema`."""
        found = self.schema(key)
        return self._published.get(key, found)

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

    def skips(self, key: SchemaKey) -> bool:
        """True if entities of a schema become no rows, by the rules."""
        return form_of(str(key), self._rules.entities) == "skip"

    def _model(self, key: SchemaKey, versions: Sequence[SchemaKey]) -> ModelTables:
        schemas = [(version.version, found) for version in versions if (found := self._usable(version)) is not None]
        if self._rules.private:
            self._rules.private.check(key.family, self._declared)
        if form_of(str(key), self._forms) == "json":
            return whole_table(key, self.table_name(key))
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
        return str(self._found_in.get(key, "this program"))

    def text(self, key: SchemaKey) -> bytes:
        """Returns the text of a schema as its registry has it. Raises as `schema`."""
        self.schema(key)
        registry = self._found_in.get(key)
        text = registry.read(key) if registry else None
        return orjson.dumps(self.schema(key)) if text is None else text

    def _list(self, key: SchemaKey) -> list[SchemaKey] | SchemaError:
        try:
            found = {version for registry in self._with_versions(key) for version in registry.versions(key)}
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
        for registry in self._asked_for(key.vendor):
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
            self._found_in[key] = registry
            try:
                document = self._hidden(key, orjson.loads(text))
                if numbers.may_be_long(text):
                    self._exact[key] = self._hidden(key, documents.parsed(text))
                return document
            except orjson.JSONDecodeError as error:
                return SchemaError(f"{key} in {registry} is not valid JSON: {error}; correct it there")
        return BUILT_IN.get(key)

    def _hidden(self, key: SchemaKey, document: Any) -> Any:
        """Returns a schema as the values of private columns are, and notes the private properties that it declares."""
        private = self._rules.private
        if private is None:
            return document
        self._declared |= {(key.family, path) for path in private.declared(str(key), document)}
        self._published[key] = document
        return private.schema(str(key), document)
