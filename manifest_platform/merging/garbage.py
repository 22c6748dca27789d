"""What merging wrote and nothing needs any more: superseded merged objects, what dead attempts left, old versions.

Belongs here: finding it and removing it. Never touched are small objects, whatever a committed range or a kept version names,
what a running job may still commit, whatever is younger than the grace time, and all of a partition that is not switched.

A version is kept as long as it is the newest one, and for the grace time after that: so long a reader may go on with the files
that it found. Only the tables' own directories `merged` and `live` are listed, and only names that merging gives are judged.

The order of looking is what makes this safe beside merges. Files come first, then the jobs that run, then ranges and versions:
a listed file whose job does not run any more is named by now, or never will be. A rebuild, which is no job, excludes a removal
by a lease.
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
"""The lease under which objects are removed, or written by something else than a job."""
LEASE = timedelta(seconds=60)

Dated = TypeVar("Dated", Range, Version)

_PART = re.compile(r"merged/dt=(\d{4}-\d\d-\d\d)/([^/]+)/part-(\d{19})-(\d{19})\.parquet")
_MANIFEST = re.compile(r"merged/dt=(\d{4}-\d\d-\d\d)/manifest-(\d{19})-(\d+)\.json")
_LIVE_MANIFEST = re.compile(r"live/dt=(\d{4}-\d\d-\d\d)/manifest-live-(\d{19})\.json")


@dataclass(frozen=True)
class Garbage:
    """What nothing needs of a table: merged objects, manifest files, versions in the manifest."""

    table: str
    location: str
    objects: tuple[StoredFile, ...]
    manifests: tuple[StoredFile, ...]
    versions: tuple[Version, ...]

    @property
    def bytes(self) -> int:
        """Of the files."""
        return sum(found.bytes for found in (*self.objects, *self.manifests))

    def __bool__(self) -> bool:
        return bool(self.objects or self.manifests or self.versions)


@contextmanager
def upkeep(inventory: Inventory, duration: timedelta = LEASE) -> Generator[Lease]:
    """The lease of who removes objects, or writes some that no job stands for. Raises LeaseBusy."""
    manifest = Manifest(inventory.store, inventory.dataset, {}, inventory.owner, inventory.run_id)
    with manifest.hold(UPKEEP, PLACE, inventory.owner, duration) as lease:
        yield lease


def find(inventory: Inventory, output: str, now: datetime, grace: timedelta = GRACE) -> list[Garbage]:
    """What nothing needs any more, by table; changes nothing. `output`: the URI under which merged objects lie.

    A listing of each table, and some queries. Raises TransientMergeError if the storage cannot be listed.
    """
    found = (_of_table(inventory, names.table_uri(output, table), table, now - grace) for table in inventory.tables())
    return [garbage for garbage in found if garbage]


def remove(inventory: Inventory, output: str, now: datetime, grace: timedelta = GRACE) -> Iterator[Garbage]:
    """Removes what nothing needs any more, table by table; each is given once it is removed.

    Ended early, it is repeated. Raises LeaseBusy while another removes or rebuilds, TransientMergeError.
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
    """Those of a table's files that no range, no version and no job that runs names, whatever else may need them.

    The files are listed before: what is named by none now was left by what is gone.
    """
    look, _ = _look(inventory, location, table, datetime.min.replace(tzinfo=UTC))
    return [file for file in files if not look.is_named(file)]


def _look(inventory: Inventory, location: str, table: MergedTable, before: datetime) -> tuple[_Look, list[Version]]:
    """What the manifest says of a table's files, and the versions that ended before. First of all, which jobs run."""
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
    """The versions that nobody reads any more, and those that are kept: a version ends when the next one is made."""
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
    """What the manifest says of a table's files."""

    location: str
    before: datetime
    running: set[str]
    partitions: dict[date, Partition]
    ranges: dict[date, list[Range]]
    versions: dict[date, list[Version]]

    def needs_no_part(self, file: StoredFile) -> bool:
        """Whether it is a merged object that nothing names, nor ever will."""
        match = _PART.fullmatch(file.name)
        if not match:
            return False
        day, lower = date.fromisoformat(match[1]), int(match[3])
        if self.is_named(file) or not self._is_settled(day):
            return False
        return all(one.update_time <= self.before for one in self.ranges.get(day, ()) if one.lower <= lower < one.upper)

    def is_named(self, file: StoredFile) -> bool:
        """Whether a range or a kept version names a file, or a running job may; of a manifest file, what readers see too."""
        if match := _PART.fullmatch(file.name):
            if names.attempt_of(match[2]) in self.running:
                return True
            day = date.fromisoformat(match[1])
            kept = (one.uri for version in self.versions.get(day, ()) for one in version.files)
            uris = {*(one.uri for one in self.ranges.get(day, ())), *kept}
            return _path(f"{self.location}/{file.name}") in map(_path, uris)
        if found := _told(file):
            day, told = found
            return told == self._shown(day) or told in [(one.generation, one.version) for one in self.versions.get(day, ())]
        return False

    def needs_no_manifest(self, file: StoredFile) -> bool:
        """Whether it is a manifest file of what readers do not see any more, and did not within the grace time."""
        found = _told(file)
        if found is None:
            return False
        day, told = found
        shown = self._shown(day)
        if shown is None:
            return True
        if told >= shown:  # a publication may be about to name it
            return False
        if not told[0]:  # live objects were shown until there was a merged version, long ago
            return any(one.created <= self.before for one in self.versions.get(day, ()))
        return not self.is_named(file)

    def _shown(self, day: date) -> tuple[int, int] | None:
        """What readers see of a partition, as `_told` has it; None if it is gone."""
        partition = self.partitions.get(day)
        if partition is None:
            return None
        return (partition.published if partition.current > LIVE else 0, partition.published_newest)

    def _is_settled(self, day: date) -> bool:
        """Whether readers of a partition get merged objects; one that is gone has left what nobody reads."""
        partition = self.partitions.get(day)
        return partition is None or partition.switched


def _told(file: StoredFile) -> tuple[date, tuple[int, int]] | None:
    """Of which partition a manifest file tells what: the generation, 0 for live objects, and the newest id. None: of none."""
    if match := _MANIFEST.fullmatch(file.name):
        return date.fromisoformat(match[1]), (int(match[3]), int(match[2]))
    if match := _LIVE_MANIFEST.fullmatch(file.name):
        return date.fromisoformat(match[1]), (0, int(match[2]))
    return None


def _path(uri: str) -> str:
    return storage.filesystem(uri)[1]


# Removing


def _forget(inventory: Inventory, versions: Sequence[Version]) -> None:
    """Removes versions from the manifest; they were written once. One that is gone already went with its table."""
    for start in range(0, len(versions), MAX_WRITES):
        deletes = [Delete(version_key(one), 1) for one in versions[start : start + MAX_WRITES]]
        try:
            inventory.store.transact(inventory.dataset, deletes, str(uuid4()))
        except ConditionFailed:
            continue
