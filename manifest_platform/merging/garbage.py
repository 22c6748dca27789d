"""Finds and removes garbage of merging: replaced merged objects, files of dead attempts, and replaced versions.

It never touches small objects, files that a committed range or a kept version names, files that a running job may still
commit, files younger than the grace time, or any file of a partition that is not switched.

The newest version is always kept; an older version is kept for the grace time after it was replaced, because readers may
still read its files. Only the tables' own directories `merged` and `live` are listed, and only files named by merging are
considered.

The order of the reads makes this safe beside concurrent merges. Files are listed first, then running jobs, then ranges and
versions. If the job that wrote a listed file no longer runs, either the file is named by now, or it never will be. A rebuild
is not a job; a lease prevents it from running beside a removal.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import TypeVar
from uuid import uuid4

from manifest_platform import storage
from manifest_platform.manifest import Application, Lease, Manifest
from manifest_platform.manifest.store import MAX_WRITES, ConditionFailed, Delete
from manifest_platform.merging import names
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.state import LIVE, MergedTable, Partition, Range, Version, version_key
from manifest_platform.merging.stored import StoredFile, delete, stored_files

GRACE = timedelta(days=7)
UPKEEP, PLACE = Application("upkeep"), "objects"
"""The lease for removing objects, and for writing objects outside of a job."""
LEASE = timedelta(seconds=60)

Dated = TypeVar("Dated", Range, Version)

_PART = re.compile(r"merged/dt=(\d{4}-\d\d-\d\d)/([^/]+)/part-(\d{19})-(\d{19})\.parquet")
_MANIFEST = re.compile(r"merged/dt=(\d{4}-\d\d-\d\d)/manifest-(\d{19})-(\d+)\.json")
_LIVE_MANIFEST = re.compile(r"live/dt=(\d{4}-\d\d-\d\d)/manifest-live-(\d{19})\.json")


@dataclass(frozen=True)
class Garbage:
    """Unneeded merged objects, manifest files, and versions (rows of the manifest) of a table."""

    table: str
    location: str
    objects: tuple[StoredFile, ...]
    manifests: tuple[StoredFile, ...]
    versions: tuple[Version, ...]

    @property
    def bytes(self) -> int:
        """The total size of the files."""
        return sum(found.bytes for found in (*self.objects, *self.manifests))

    def __bool__(self) -> bool:
        return bool(self.objects or self.manifests or self.versions)


@contextmanager
def upkeep(inventory: Inventory, duration: timedelta = LEASE) -> Generator[Lease]:
    """Holds the lease for removing objects, or for writing objects outside of a job. Raises LeaseBusy."""
    manifest = Manifest(inventory.store, inventory.dataset, {}, inventory.owner, inventory.run_id)
    with manifest.hold(UPKEEP, PLACE, inventory.owner, duration) as lease:
        yield lease


def find(inventory: Inventory, output: str, now: datetime, grace: timedelta = GRACE) -> list[Garbage]:
    """Finds the garbage of each table; changes nothing. `output`: the URI of the merged objects.

    Costs a listing of each table and some queries. Raises TransientMergeError if the storage cannot be listed.
    """
    found = (_of_table(inventory, names.table_uri(output, table), table, now - grace) for table in inventory.tables())
    return [garbage for garbage in found if garbage]


def remove(inventory: Inventory, output: str, now: datetime, grace: timedelta = GRACE) -> Iterator[Garbage]:
    """Removes the garbage table by table, and yields what was removed from each. It may be repeated after an interruption.

    Raises LeaseBusy while another process removes objects or rebuilds, and TransientMergeError.
    """
    with upkeep(inventory) as lease:
        for garbage in find(inventory, output, now, grace):
            lease.check()
            _forget(inventory, garbage.versions)
            delete(garbage.location, [found.name for found in (*garbage.objects, *garbage.manifests)])
            yield garbage


# Finding


def _of_table(inventory: Inventory, location: str, table: MergedTable, before: datetime) -> Garbage:
    files = [*stored_files(location, "merged"), *stored_files(location, "live")]
    look, stale = _look(inventory, location, table, before)
    old = [file for file in files if file.written <= before]
    return Garbage(
        table.key,
        location,
        tuple(file for file in old if look.needs_no_part(file)),
        tuple(file for file in old if look.needs_no_manifest(file)),
        tuple(stale),
    )


def unnamed(inventory: Inventory, location: str, table: MergedTable, files: Iterable[StoredFile]) -> list[StoredFile]:
    """Returns the files of a table that no range, kept version or running job names.

    The files must be listed before this call, so that a file of a concurrent commit is named by now.
    """
    look, _ = _look(inventory, location, table, datetime.min.replace(tzinfo=UTC))
    return [file for file in files if not look.is_named(file)]


def _look(inventory: Inventory, location: str, table: MergedTable, before: datetime) -> tuple[_Look, list[Version]]:
    """Reads the manifest's knowledge about a table's files, running jobs first.

    Also returns the versions that were replaced before `before`.
    """
    running = {job.id for job in inventory.running()}
    partitions = {found.date: found for found in inventory.partitions(table.key)}
    ranges = _by_date(inventory.ranges(table.key))
    stale, kept = _versions(partitions, _by_date(inventory.versions(table.key)), before)
    return _Look(location, before, running, partitions, ranges, kept), stale


def _by_date(found: Iterable[Dated]) -> dict[date, list[Dated]]:
    by_date: dict[date, list[Dated]] = {}
    for one in found:
        by_date.setdefault(one.date, []).append(one)
    return by_date


def _versions(
    partitions: dict[date, Partition], versions: dict[date, list[Version]], before: datetime
) -> tuple[list[Version], dict[date, list[Version]]]:
    """Divides versions into those replaced before a time, and those kept. A version is replaced when the next is created."""
    stale: list[Version] = []
    kept: dict[date, list[Version]] = {}
    for day, found in versions.items():
        partition = partitions.get(day)
        shown = (partition.published_newest, partition.published) if partition else None
        ended = {id(one): after.created <= before for one, after in pairwise(found)}
        for one in found:
            over = ended.get(id(one), False) and (one.version, one.generation) != shown
            (stale if over else kept.setdefault(day, [])).append(one)
    return stale, kept


@dataclass(frozen=True)
class _Look:
    """The manifest's knowledge about a table's files."""

    location: str
    before: datetime
    running: set[str]
    partitions: dict[date, Partition]
    ranges: dict[date, list[Range]]
    versions: dict[date, list[Version]]

    def needs_no_part(self, file: StoredFile) -> bool:
        """True if the file is a merged object that nothing names or will ever name."""
        match = _PART.fullmatch(file.name)
        if not match:
            return False
        day, lower = date.fromisoformat(match[1]), int(match[3])
        if self.is_named(file) or not self._is_settled(day):
            return False
        return all(one.update_time <= self.before for one in self.ranges.get(day, ()) if one.lower <= lower < one.upper)

    def is_named(self, file: StoredFile) -> bool:
        """True if a range or kept version names the file, a running job may name it, or readers see it as a manifest file."""
        if match := _PART.fullmatch(file.name):
            if names.attempt_of(match[2]) in self.running:
                return True
            day = date.fromisoformat(match[1])
            kept = (one.uri for version in self.versions.get(day, ()) for one in version.files)
            uris = {*(one.uri for one in self.ranges.get(day, ())), *kept}
            return _path(f"{self.location}/{file.name}") in map(_path, uris)
        if found := _listed(file):
            day, listed = found
            return listed == self._shown(day) or listed in [(one.generation, one.version) for one in self.versions.get(day, ())]
        return False

    def needs_no_manifest(self, file: StoredFile) -> bool:
        """True if the file is a manifest file that readers have not seen within the grace time."""
        found = _listed(file)
        if found is None:
            return False
        day, listed = found
        shown = self._shown(day)
        if shown is None:
            return True
        if listed >= shown:  # a publication may be about to name it
            return False
        if not listed[0]:  # readers saw live objects until the first merged version
            return any(one.created <= self.before for one in self.versions.get(day, ()))
        return not self.is_named(file)

    def _shown(self, day: date) -> tuple[int, int] | None:
        """The generation and newest id that readers of a partition see; None if the partition does not exist."""
        partition = self.partitions.get(day)
        if partition is None:
            return None
        return (partition.published if partition.current > LIVE else 0, partition.published_newest)

    def _is_settled(self, day: date) -> bool:
        """True if readers of a partition get merged objects, or the partition does not exist any more."""
        partition = self.partitions.get(day)
        return partition is None or partition.switched


def _listed(file: StoredFile) -> tuple[date, tuple[int, int]] | None:
    """The partition, generation (0 for live objects) and newest id of a manifest file; None for another file."""
    if match := _MANIFEST.fullmatch(file.name):
        return date.fromisoformat(match[1]), (int(match[3]), int(match[2]))
    if match := _LIVE_MANIFEST.fullmatch(file.name):
        return date.fromisoformat(match[1]), (0, int(match[2]))
    return None


def _path(uri: str) -> str:
    return storage.filesystem(uri)[1]


# Removing


def _forget(inventory: Inventory, versions: Sequence[Version]) -> None:
    """Deletes the rows of versions, which were written once. A version that does not exist was removed with its table."""
    for start in range(0, len(versions), MAX_WRITES):
        deletes = [Delete(version_key(one), 1) for one in versions[start : start + MAX_WRITES]]
        try:
            inventory.store.transact(inventory.dataset, deletes, str(uuid4()))
        except ConditionFailed:
            continue
