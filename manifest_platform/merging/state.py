"""The facts that merging stores (tables, partitions, small objects, ranges, jobs, versions), and their rows.

Belongs here: data classes and their stored form, without I/O. `transitions` changes the facts; `inventory` reads and writes
the rows.

Rows (the store's partition is the dataset; no other part of the manifest has keys that begin with `M`):

    MCURSOR                                    the last commit that is completely registered
    MTABLE#<table>                             a MergedTable; it remains after a drop, so that its version never repeats
    MPART#<table>#<date>                       a Partition, with its pending job
    MSMALL#<table>#<date>#<last id>            a Batch of small objects
    MSETTLED#<table>#<date>#<number>           a Settled: summary of batches whose rows were deleted
    MRANGE#<table>#<date>#<lower>              a Range
    MRUN#<table>#<date>#<job id>               a RunningJob; ids are used once, so a fence that names one remains valid forever
    MDUE#<schedule>#<table>#<date>#<job id>    exists while a partition's pending job may be claimed when its time comes
    MOPEN#<table>#<date>                       exists while a partition is not at rest
    MLOG#<finished>#<job id>                   a FinishedJob
    MVERSION#<table>#<date>#<version>#<generation>  a Version

A small object is a file that shredding wrote, or the row groups of one date in it; its id follows the order of the commits. A
partition is a table on a date.
A range `(lower, upper]` is one merged object: it holds the rows of all small objects of its partition with
lower < id <= upper. The ranges of a partition form one chain from 0. A partition is closed when its day is over; objects that
arrive later are delayed. It is switched when all earlier objects are merged; from then on, readers get merged objects.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import TypeAdapter

from manifest_platform.listing import Column, RowGroups
from manifest_platform.manifest.keys import MERGED
from manifest_platform.manifest.records import format_time
from manifest_platform.manifest.store import Row

NEW, LIVE = -1, 0
"""Values of `Partition.current`: NEW while no reader sees the partition, LIVE while readers see its live small objects."""

FIRST_RATIO = 0.77
"""Bytes written divided by bytes read of a merge, assumed until a table's first merge."""

BATCH = 500
"""Largest number of small objects in one row."""


PartitionName = tuple[str, date]
"""A partition's table, by the name that shredding gives it, and its date."""


@dataclass(frozen=True)
class TableSettings:
    """The configuration of a merged table. `name` and `schema` are logical; files are stored under the physical names if set.

    A renamed table keeps its old name as its physical name, and therefore its rows: see `key`.

    `interval`: seconds from a partition's first unmerged object to its merge. `target_bytes`: the size of a merged object.
    `zone`: the IANA time zone in which a partition's day ends. `time_column`: the column that rows are sorted by; None if the
    table has no such column. A table that is not `enabled` takes no new objects, and its partitions are not closed.
    """

    name: str
    schema: str
    interval: int
    target_bytes: int
    zone: str = "UTC"
    time_column: str | None = None
    physical_schema: str | None = None
    physical_name: str | None = None
    enabled: bool = True

    @property
    def key(self) -> str:
        """The table's name in shredding and in row keys. It does not change with the logical name."""
        return self.physical_name or self.name


@dataclass(frozen=True, kw_only=True)
class MergedTable(TableSettings):
    """A table that is merged: its configuration and what was learned about it.

    `columns`: the columns of all its small objects, by name. `ratio`: bytes written divided by bytes read, averaged over its
    merges. `catalog_name`: its name in the catalog; None before the first publication. `dropped`: only this row remains.
    """

    create_time: datetime
    columns: tuple[Column, ...] = ()
    ratio: float = FIRST_RATIO
    catalog_name: str | None = None
    dropped: bool = False
    version: int = 0


@dataclass(frozen=True)
class SmallObject:
    """A file that shredding wrote for a partition. Times are the event times of its rows (ISO 8601, UTC), if it has any.

    `groups`: the row groups of the partition in a file of several dates, whose bytes are `bytes`; None for a whole file.
    """

    id: int
    uri: str
    rows: int
    bytes: int
    min_time: str | None = None
    max_time: str | None = None
    delayed: bool = False
    groups: RowGroups | None = None

    @property
    def file_bytes(self) -> int:
        """The size of the whole file."""
        return self.groups.size if self.groups else self.bytes


@dataclass(frozen=True)
class Batch:
    """A row of up to 500 small objects that a commit added to a partition. `item` is the directory's URI."""

    table: str
    date: date
    commit: int
    item: str
    delayed: bool
    registered: datetime
    objects: tuple[SmallObject, ...]


@dataclass(frozen=True)
class Settled:
    """A summary of batches that were merged and whose rows were deleted. A row holds up to 1,000 items.

    `number`: the row's number within the partition, from 1. `last`: the largest id. `objects`, `rows`: their counts. `items`:
    digests of the directories' URIs.
    """

    table: str
    date: date
    number: int
    last: int = 0
    objects: int = 0
    rows: int = 0
    items: tuple[str, ...] = ()
    version: int = 0


@dataclass(frozen=True)
class Totals:
    """Number, rows and bytes of a kind of object in a partition."""

    objects: int = 0
    rows: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, objects: Sequence[SmallObject]) -> Totals:
        """The totals of these small objects."""
        return cls(len(objects), sum(one.rows for one in objects), sum(one.bytes for one in objects))

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.objects + other.objects, self.rows + other.rows, self.bytes + other.bytes)

    def __sub__(self, other: Totals) -> Totals:
        return Totals(self.objects - other.objects, self.rows - other.rows, self.bytes - other.bytes)


@dataclass(frozen=True)
class PendingJob:
    """A merge that a partition waits for, not before `schedule_time`. `attempts`: the attempts that died or failed before."""

    id: str
    schedule_time: datetime
    attempts: int = 0


@dataclass(frozen=True)
class Due:
    """An index row: a partition's pending job, sorted by its schedule time."""

    schedule_time: datetime
    table: str
    date: date
    id: str


@dataclass(frozen=True)
class SetAside:
    """The reason why a partition is not merged until a person retries it."""

    error: str
    attempts: int
    at: datetime


@dataclass(frozen=True)
class Partition:
    """A table on a date. An id here is the id of a small object.

    For readers: `current` is NEW, LIVE, or the largest merged id that they see. `published` is the generation that they see (0
    for live objects). `published_newest` is the largest id that they see, merged or small. `desired`: the largest merged id,
    which readers should see.

    The merged objects: `upper` and `tail` are the upper and the lower bound of the chain's last range. `generation` grows with
    every change of the merged objects. `merged`: totals of the merged objects. `covered`: totals of the small objects in them.
    `written`: bytes that all merges wrote.

    The small objects: `newest` and `newest_live` are the largest registered id of all and of live objects. `live`, `delayed`:
    totals of all that were ever registered. `last_live`: the last id registered before the close; None while it is open.

    `job`: the pending job. `running`: the id of the job in progress. While `set_aside`, the pending job waits for a person.
    """

    table: str
    date: date
    create_time: datetime
    current: int = NEW
    desired: int = 0
    last_live: int | None = None
    switched: bool = False
    upper: int = 0
    tail: int | None = None
    newest: int = 0
    newest_live: int = 0
    live: Totals = Totals()
    delayed: Totals = Totals()
    merged: Totals = Totals()
    covered: Totals = Totals()
    written: int = 0
    generation: int = 0
    published: int = 0
    published_newest: int = 0
    job: PendingJob | None = None
    running: str | None = None
    set_aside: SetAside | None = None
    version: int = 0

    @property
    def closed(self) -> bool:
        """True if the partition's day is over, so that new objects are delayed."""
        return self.last_live is not None

    @property
    def waiting(self) -> Totals:
        """The small objects that no merged object holds yet."""
        return self.live + self.delayed - self.covered

    @property
    def amplification(self) -> float | None:
        """The average number of times that each byte of the merged objects was written; None before the first merge."""
        return self.written / self.merged.bytes if self.merged.bytes else None

    @property
    def at_rest(self) -> bool:
        """True if there is nothing to do until another object arrives."""
        shown = self.switched and self.published == self.generation and self.current == self.desired
        return shown and self.upper == self.newest and self.job is None and self.running is None

    @property
    def due(self) -> Due | None:
        """The pending job, unless another job of the partition runs or the partition is set aside."""
        if self.job is None or self.running or self.set_aside:
            return None
        return Due(self.job.schedule_time, self.table, self.date, self.job.id)


@dataclass(frozen=True)
class Range:
    """A merged object: the rows of the small objects with lower < id <= upper. `objects`: their number."""

    table: str
    date: date
    lower: int
    upper: int
    uri: str
    rows: int
    bytes: int
    objects: int
    attempt: str
    create_time: datetime
    update_time: datetime
    min_time: str | None = None
    max_time: str | None = None
    version: int = 0


@dataclass(frozen=True)
class RunningJob:
    """A merge of a partition in progress. `owner`: the program; `slot`, `token`: its lease.

    `generation`: the partition's generation at the claim; a plan is valid while it does not change. `run_id`: the run of the
    program; None in rows of older releases.
    """

    table: str
    date: date
    id: str
    schedule_time: datetime
    attempts: int
    owner: str
    slot: str
    token: int
    started: datetime
    generation: int
    run_id: str | None = None
    version: int = 0


class Outcome(StrEnum):
    """The end of a job: merged; nothing to merge; given back without an attempt; failed; its worker died."""

    MERGED = "merged"
    NOTHING = "nothing"
    GIVEN_BACK = "given back"
    FAILED = "failed"
    DIED = "died"

    @property
    def is_failure(self) -> bool:
        """True if the attempt was made without success, so that it is counted."""
        return self in (Outcome.FAILED, Outcome.DIED)


@dataclass(frozen=True)
class FinishedJob:
    """The log entry of a job that ended.

    `bytes_in`: bytes of the small objects that it merged. `rows`, `bytes_out`: rows and bytes of the merged objects that it
    wrote. `run_id`: the run of the program; None in rows of older releases.
    """

    id: str
    table: str
    date: date
    schedule_time: datetime
    started: datetime
    finished: datetime
    owner: str
    attempts: int
    outcome: Outcome
    ranges: tuple[tuple[int, int], ...] = ()
    rows: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    error: str | None = None
    run_id: str | None = None


@dataclass(frozen=True)
class ServedFile:
    """A file of a published version. For a small object, `lower` is None and `upper` is its id.

    `groups`: the row groups of the partition, if the file holds others, too.
    """

    uri: str
    rows: int
    bytes: int
    lower: int | None
    upper: int
    groups: RowGroups | None = None

    @classmethod
    def of_small(cls, one: SmallObject) -> ServedFile:
        """The served file of a small object."""
        return cls(one.uri, one.rows, one.bytes, None, one.id, one.groups)

    @classmethod
    def of_range(cls, one: Range) -> ServedFile:
        """The served file of a merged object."""
        return cls(one.uri, one.rows, one.bytes, one.lower, one.upper)


@dataclass(frozen=True)
class Version:
    """The files of a partition that readers see. `version`: 0 for live small objects, else the largest id in it."""

    table: str
    date: date
    version: int
    generation: int
    created: datetime
    files: tuple[ServedFile, ...] = ()


def digest_of(item: str) -> str:
    """A 16-digit hexadecimal digest of a directory's URI, to find it among settled items."""
    return hashlib.sha256(item.encode()).hexdigest()[:16]


Fact = TypeVar("Fact", MergedTable, Partition, Range, Due, RunningJob, FinishedJob, Batch, Settled, Version)


def to_data(fact: Any) -> dict[str, Any]:
    """The stored form of a fact: plain JSON values, without the row's version."""
    data = _codec(type(fact)).dump_python(fact, mode="json")
    for one in data.get("objects" if isinstance(fact, Batch) else "files", ()):
        if one["groups"] is None:  # rows cost by size, and most objects are whole files
            del one["groups"]
    if type(fact) in _VERSIONED:
        del data["version"]
    return data


def from_row(kind: type[Fact], row: Row) -> Fact:
    """Parses the fact that `to_data` stored in a row."""
    data = {**row.data, "version": row.version} if kind in _VERSIONED else row.data
    return _codec(kind).validate_python(data)


_VERSIONED = (MergedTable, Partition, Range, RunningJob, Settled)


@functools.cache
def _codec(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


# Keys

CURSOR = MERGED
TABLES, PARTITIONS, OPEN, DUE, RUNNING, LOG = "MTABLE#", "MPART#", "MOPEN#", "MDUE#", "MRUN#", "MLOG#"
SMALL, SETTLED, RANGES, VERSIONS = "MSMALL", "MSETTLED", "MRANGE", "MVERSION"
DIGITS = 19


def table_key(table: str) -> str:
    """Sort key of a table."""
    return f"{TABLES}{table}"


def partition_key(table: str, day: date) -> str:
    """Sort key of a partition."""
    return f"{PARTITIONS}{table}#{day}"


def rows_prefix(kind: str, table: str, day: date | None = None) -> str:
    """Prefix of the sort keys of a kind (SMALL, SETTLED, RANGES or VERSIONS), for a partition or a whole table."""
    return f"{kind}#{table}#" if day is None else f"{kind}#{table}#{day}#"


def small_key(table: str, day: date, last: int) -> str:
    """Sort key of a batch by its last id: a single query finds all objects after an id."""
    return f"{rows_prefix(SMALL, table, day)}{last:0{DIGITS}d}"


def settled_key(settled: Settled) -> str:
    """Sort key of a summary of settled batches."""
    return f"{rows_prefix(SETTLED, settled.table, settled.date)}{settled.number:06d}"


def range_key(table: str, day: date, lower: int) -> str:
    """Sort key of a range by its lower bound."""
    return f"{rows_prefix(RANGES, table, day)}{lower:0{DIGITS}d}"


def running_key(table: str, day: date, job: str) -> str:
    """Sort key of a running job."""
    return f"{RUNNING}{table}#{day}#{job}"


def due_key(due: Due) -> str:
    """Sort key of the index row of a pending job. Rows sort by schedule time."""
    return f"{DUE}{format_time(due.schedule_time)}#{due.table}#{due.date}#{due.id}"


def open_key(partition: Partition) -> str:
    """Sort key of the index row of a partition that is not at rest."""
    return f"{OPEN}{partition.table}#{partition.date}"


def log_key(job: FinishedJob) -> str:
    """Sort key of a job's log entry. Rows sort by the time of its end."""
    return f"{LOG}{format_time(job.finished)}#{job.id}"


def version_key(version: Version) -> str:
    """Sort key of a published version."""
    prefix = rows_prefix(VERSIONS, version.table, version.date)
    return f"{prefix}{version.version:0{DIGITS}d}#{version.generation:0{DIGITS}d}"
