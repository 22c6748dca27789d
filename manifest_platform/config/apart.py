"""What parts of a configuration must not share: places that lie in one another, and tables that pass for another's.

Who lands files for a dataset, or cleans up after it, is to reach no other one. Sharing a store, a warehouse or a bucket is all
right: there the platform keeps datasets apart by their names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from urllib.parse import urlsplit

from manifest_platform import spool, storage
from manifest_platform.sources.settings import DatasetSettings


@dataclass(frozen=True)
class Place:
    """A folder or file that a key names, by the parts of its path: links resolved, as far as they are there."""

    key: str
    value: str
    parts: tuple[str, ...]
    may_hold: bool = False
    """Whether others may lie in it: nobody looks for what is in it but by its name."""

    @classmethod
    def of(cls, key: str, value: str) -> Place:
        """The place of a location."""
        uri = storage.as_uri(value)
        if storage.is_local(uri):
            return cls(key, value, ("file:", *Path(os.path.realpath(storage.local_path(uri))).parts))
        parts = urlsplit(uri)
        return cls(key, value, (parts.scheme, parts.netloc, *filter(None, uri.split("/")[3:])))

    def holds(self, other: Place) -> bool:
        """Whether the other one is the same, or lies in it."""
        return other.parts[: len(self.parts)] == self.parts

    def __str__(self) -> str:
        return f"{self.key} {self.value!r}"


def places(datasets: Mapping[str, DatasetSettings], others: Mapping[str, str | None]) -> Iterator[Place]:
    """All places that a configuration names, those of datasets and `others`, by their keys."""
    for name, dataset in datasets.items():
        if not isinstance(dataset, DatasetSettings):
            continue  # nothing of it lands
        yield Place.of(f"datasets.{name}.landing.root", dataset.landing.root)
        yield Place.of(f"datasets.{name}.shred.output", dataset.shred.output)
        if dataset.merge:
            yield Place.of(f"datasets.{name}.merge.output", dataset.merge.output)
    for key, value in others.items():
        if value:
            yield Place.of(key, value)
    if spooled := os.environ.get(spool.VARIABLE):
        yield replace(Place.of(f"${spool.VARIABLE}", spooled), may_hold=True)


def overlaps(found: Iterator[Place]) -> Iterator[str]:
    """A sentence for each two places of which one lies in the other, with what to change."""
    for one, other in combinations(found, 2):
        if one.parts == other.parts:
            yield f"{one} and {other} are the same place: give each its own"
        elif one.holds(other) and not one.may_hold:
            yield f"{other} lies in {one}: move one of the two"
        elif other.holds(one) and not other.may_hold:
            yield f"{one} lies in {other}: move one of the two"


def taken_tables(datasets: Mapping[str, DatasetSettings]) -> Iterator[str]:
    """A sentence for each merged table that readers would find among those of another dataset, with what to change."""
    tables: dict[tuple[str, str], str] = {}
    databases: dict[str, str] = {}
    for name, dataset in datasets.items():
        if dataset.merge and (database := dataset.merge.catalog.database(name)):
            if database in databases:
                yield (
                    f"datasets.{name}.merge.catalog and datasets.{databases[database]}.merge.catalog both have their tables in"
                    f" the database {database!r}: give one of them another prefix or suffix"
                )
            databases.setdefault(database, name)
    for name, dataset in datasets.items():
        for table, own in dataset.merge.tables.items() if dataset.merge else ():
            assert dataset.merge
            key, schema = f"datasets.{name}.merge.tables.{table}", own.schema_name or name
            database = dataset.merge.catalog.database(schema)
            owner = schema if schema in datasets else databases.get(database or "", name)
            if owner != name:
                yield (
                    f"{key}.schema_name {schema!r} is the schema of datasets.{owner}, whose tables would be taken for those of"
                    f" {name}: give it another schema_name"
                )
            elif database:
                called = (database, (own.name or table).lower())
                if called in tables:
                    yield f"{key} and {tables[called]} are both called {called[1]!r} in {database!r}: give one another name"
                tables.setdefault(called, key)
