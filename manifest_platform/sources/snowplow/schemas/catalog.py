"""The schemas of a dataset, to be shown to people: the models of its registries, their tables, and what versions change."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from manifest_platform import storage
from manifest_platform.faults import Misconfigured
from manifest_platform.manifest import Refused
from manifest_platform.shred.batch import SchemaError, Unreachable
from manifest_platform.sources.schemas import Difference, Differences, Fetched, Known, Model, Schemas, Shown
from manifest_platform.sources.snowplow.schemas.columns import EntityTable
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, is_key
from manifest_platform.sources.snowplow.schemas.resolver import Resolver, UnknownSchema

_MODEL = re.compile(r"(iglu:[^/]+/[^/]+/[^/]+/[1-9][0-9]{0,8})(?:-\*-\*)?")


class IgluSchemas(Schemas):
    """The schemas of Iglu registries, with the tables that the dataset's settings make of them."""

    def __init__(self, resolver: Resolver, left_out: Callable[[Any, str], Sequence[str]] = lambda schema, key: ()):
        """`left_out`: returns the places in a schema, given with its key, by which no entity is checked."""
        self._resolver, self._left_out = resolver, left_out

    def close(self) -> None:
        """Closes the registries."""
        self._resolver.close()

    def known(self, seen: Collection[str] = ()) -> Known:
        """Returns the models of the registries. `seen`: keys of schemas that rows had, for registries that give no list."""
        with _refused():
            listed, unlisted = self._resolver.listed()
            families = {SchemaKey.parse(key).family for key in seen if is_key(key)}
            for family in sorted(families - {key.family for key in listed}):
                listed |= set(self._versions(family))
        by_family: dict[str, list[SchemaKey]] = {}
        for key in sorted(listed):
            by_family.setdefault(key.family, []).append(key)
        return Known(tuple(self._model(keys) for keys in by_family.values()), tuple(unlisted))

    def show(self, name: str) -> Shown:
        """Returns a model with all its versions. `name`: the model's, or that of one of its versions."""
        with _refused():
            keys = self._of(name)
            documents = {str(key): self._resolver.schema(key) for key in keys}
            tables, notes = self._tables(keys)
        return Shown(self._model(keys), tuple(one.table for one in tables), documents, tuple(notes))

    def compare(self, before: str, after: str | None = None) -> Differences:
        """Returns what differs between two versions. `after`: by default the newest version of the model."""
        with _refused():
            earlier = _parsed(before)
            later = _parsed(after) if after else self._of(before)[-1]
            schemas = [self._resolver.schema(key) for key in (earlier, later)]
            problem = ""
            columns: tuple[Difference, ...] = ()
            try:
                tables = [self._upto(key) for key in (earlier, later)]
                problem = tables[1].recovered or tables[0].recovered
                columns = tuple(_differences(*({one.column.name: one.column.type for one in each.columns} for each in tables)))
            except SchemaError as error:
                problem = str(error)
        differing = _differences(*(dict(_flat(schema)) for schema in schemas))
        return Differences(str(earlier), str(later), columns, tuple(differing), problem)

    def fetch(self, folder: str, names: Sequence[str]) -> Fetched:
        """Copies the schemas of these models to a folder that can be a registry itself. Replaces a file that differs."""
        root = storage.as_uri(folder)
        written, missing, same = [], [], 0
        families = {_family(name): name for name in names if name.startswith("iglu:")}
        for family, name in sorted(families.items()):
            with _refused():
                try:
                    keys = self._of(family if is_key(f"{family}-0-0") else name)
                except UnknownSchema:
                    missing.append(family)
                    continue
                for key in keys:
                    text = self._resolver.text(key)
                    place = f"{root}/schemas/{key.path}"
                    if _content(place) == text:
                        same += 1
                        continue
                    storage.write_bytes(place, text)
                    written.append(str(key))
        return Fetched(folder, tuple(written), same, tuple(missing))

    def _of(self, name: str) -> list[SchemaKey]:
        """Returns the versions of a model. Raises UnknownSchema."""
        if is_key(name):
            return self._resolver.versions(SchemaKey.parse(name))
        found = self._versions(_family(name))
        if not found:
            raise UnknownSchema(f"{name} is in none of the registries {self._resolver.names}; publish it, or name a version")
        return found

    def _versions(self, family: str) -> list[SchemaKey]:
        return self._resolver.versions_of(SchemaKey.parse(f"{family}-0-0"))

    def _model(self, keys: Sequence[SchemaKey]) -> Model:
        first = keys[0]
        place = self._resolver.place_of(first)
        return Model(first.family, self._resolver.table_name(first), tuple(key.version for key in keys), place)

    def _tables(self, keys: Sequence[SchemaKey]) -> tuple[list[EntityTable], list[str]]:
        """Returns the tables of versions, and notes on versions that have none or one of their own."""
        found: dict[str, EntityTable] = {}
        notes = []
        for key in keys:
            try:
                table = self._resolver.table(key)
            except SchemaError as error:
                notes.append(str(error))
                continue
            if table.recovered:
                notes.append(f"{table.recovered}. Until then its rows go to the table {table.table.name}")
            notes += [
                f"{key}: {place} is not checked, because of a pattern that is written for another language; correct it, for"
                " it to be checked"
                for place in self._left_out(self._resolver.exact(key), str(key))
            ]
            found.setdefault(table.table.name, table)
        return list(found.values()), notes

    def _upto(self, key: SchemaKey) -> EntityTable:
        """Returns the table that a model had when this version was its newest."""
        versions = [one for one in self._resolver.versions(key) if one <= key]
        return self._resolver.table_of(key, versions)


@contextmanager
def _refused() -> Generator[None]:
    try:
        yield
    except UnknownSchema as error:
        raise Refused(str(error)) from error
    except (SchemaError, Unreachable, Misconfigured) as error:
        raise Refused(str(error)) from error


def _parsed(name: str) -> SchemaKey:
    try:
        return SchemaKey.parse(name)
    except ValueError as error:
        raise Refused(str(error)) from error


def _family(name: str) -> str:
    if is_key(name):
        return SchemaKey.parse(name).family
    found = _MODEL.fullmatch(name)
    if not found or not is_key(f"{found[1]}-0-0"):
        raise Refused(f"{name[:300]!r} is no schema; expected iglu:vendor/name/jsonschema/1-0-0, or …/1 for all of a model")
    return found[1]


def _content(place: str) -> bytes | None:
    try:
        return storage.read_bytes(place)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the paths and values of a JSON document. An array is one value."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else name)
    elif path:
        yield path, value if isinstance(value, str | int | float | bool) else orjson.dumps(value).decode()


def _differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Difference]:
    for place in dict.fromkeys((*before, *after)):
        if before.get(place) != after.get(place):
            yield Difference(place, before.get(place), after.get(place))
