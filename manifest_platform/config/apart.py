"""Checks that the parts of a configuration fit together: no place inside another, no two merged tables with the same name.

A program that lands or removes files of a dataset must not reach the files of another. Datasets may share a store, a warehouse
or a bucket, because the platform separates them there by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from urllib.parse import urlsplit

from manifest_platform import spool, storage
from manifest_platform.sources.settings import DatasetSettings
from manifest_platform.spark import Place as SparkPlace

_DISK = "file:"


@dataclass(frozen=True)
class Place:
    """A folder or file that a key names. `parts`: the parts of its path, with existing links resolved."""

    key: str
    value: str
    parts: tuple[str, ...]
    may_hold: bool = False
    """True if other places may lie inside this place: nothing lists its content, so they do not disturb it."""

    @property
    def is_local(self) -> bool:
        """True if this place is on a disk of this machine."""
        return self.parts[0] == _DISK

    @classmethod
    def of(cls, key: str, value: str) -> Place:
        """Returns the place of a location, which is a path or a URI."""
        uri = storage.as_uri(value)
        if storage.is_local(uri):
            return cls(key, value, (_DISK, *Path(os.path.realpath(storage.local_path(uri))).parts))
        parts = urlsplit(uri)
        return cls(key, value, (parts.scheme, parts.netloc, *filter(None, uri.split("/")[3:])))

    def holds(self, other: Place) -> bool:
        """Returns True if the other place is the same, or is inside this place."""
        return other.parts[: len(self.parts)] == self.parts

    def __str__(self) -> str:
        return f"{self.key} {self.value!r}"


def places(datasets: Mapping[str, DatasetSettings], others: Mapping[str, str | None]) -> Iterator[Place]:
    """Yields the places that a configuration names: those of datasets, and `others` by key."""
    for name, dataset in datasets.items():
        if not isinstance(dataset, DatasetSettings):
            continue  # it has no landing root
        yield Place.of(f"datasets.{name}.landing.root", dataset.landing.root)
        yield Place.of(f"datasets.{name}.shred.output", dataset.shred.output)
        if dataset.merge:
            yield Place.of(f"datasets.{name}.merge.output", dataset.merge.output)
    for key, value in others.items():
        if value:
            yield Place.of(key, value)
    if spooled := os.environ.get(spool.VARIABLE):
        yield replace(Place.of(f"${spool.VARIABLE}", spooled), may_hold=True)


def overlaps(found: Iterable[Place]) -> Iterator[str]:
    """Yields a sentence for each pair of places that overlap, with what to change."""
    for one, other in combinations(found, 2):
        if one.parts == other.parts:
            yield f"{one} and {other} are the same place: give each its own"
        elif one.holds(other) and not one.may_hold:
            yield f"{other} is inside {one}: move one of the two"
        elif other.holds(one) and not other.may_hold:
            yield f"{one} is inside {other}: move one of the two"


def out_of_reach(found: Iterable[Place], spark: SparkPlace) -> Iterator[str]:
    """Yields a sentence for each place on a disk of this machine, if Spark computes in job runs of a service, which lack it."""
    for one in found:
        if spark.in_a_job and one.is_local and not one.may_hold:
            is_folder = one.key.startswith(("datasets.", "manifest.overflow", "manifest.archive"))
            allowed = "a place in S3, s3://BUCKET/PREFIX" if is_folder else "a database that is reached by the network"
            yield f"{one} is on a disk of this machine, which job runs of spark.where {spark.where!r} lack; allowed: {allowed}"


def taken_tables(datasets: Mapping[str, DatasetSettings]) -> Iterator[str]:
    """Yields a sentence for each merged table whose name in the catalog another dataset uses, with what to change."""
    tables: dict[tuple[str, str], str] = {}
    databases: dict[str, str] = {}
    for name, dataset in datasets.items():
        if dataset.merge and (database := dataset.merge.catalog.database(name)):
            if database in databases:
                yield (
                    f"datasets.{name}.merge.catalog and datasets.{databases[database]}.merge.catalog both use the database"
                    f" {database!r}: give one of them another prefix or suffix"
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
                    f"{key}.schema_name {schema!r} is the schema of datasets.{owner}, so readers would confuse their tables:"
                    " give it another schema_name"
                )
            elif database:
                called = (database, (own.name or table).lower())
                if called in tables:
                    yield f"{key} and {tables[called]} are both named {called[1]!r} in {database!r}: give one another name"
                tables.setdefault(called, key)
