"""What is known of merging: tables, partitions, small objects, ranges, jobs; and how each is kept as a row.

Belongs here: the facts and their rows. Pure. How one fact becomes another is in `transitions`, what the rows are written by in
`inventory`.

Rows (the store's partition is the dataset; no other part of the manifest has keys that begin with `M`):

    MCURSOR                                    the last commit that is registered whole
    MTABLE#<table>                             a MergedTable; it outlives its being dropped, so that its version never repeats
    MPART#<table>#<date>                       a Partition, with its pending job
    MSMALL#<table>#<date>#<last id>            a Batch of small objects
    MSETTLED#<table>#<date>#<number>           Settled: of batches whose rows are gone
    MRANGE#<table>#<date>#<lower>              a Range
    MRUN#<table>#<date>#<job id>               a RunningJob; ids are used once, so a fence that names one holds for good
    MDUE#<schedule>#<table>#<date>#<job id>    there while a partition's pending job may be claimed, once it is time
    MOPEN#<table>#<date>                       there while a partition is not at rest
    MLOG#<finished>#<job id>                   a FinishedJob
    MVERSION#<table>#<date>#<version>#<generation>  a Version

Words. A small object is a file that shredding wrote, known by an id; ids are given in the order of the commits. A partition is
a table on a date. A range `(lower, upper]` is one merged object: it holds the rows of all small objects of its partition with
lower < id <= upper; the ranges of a partition form one chain from 0. A partition is closed once its day is over: what comes
later is delayed. It is switched once all that came before is merged: from then on it is served from merged objects.
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

from manifest_platform.listing import Column
from manifest_platform.manifest.keys import MERGED
from manifest_platform.manifest.records import format_time
from manifest_platform.manifest.store import Row

NEW, LIVE = -1, 0
"""The versions of a partition that no reader knows yet, and of one that is served from its live small objects."""

FIRST_RATIO = 0.77
"""Bytes out by bytes in of a merge, as long as a table has none of its own to learn from."""

BATCH = 500
"""Small objects in one row, at most."""


PartitionName = tuple[str, date]
"""What a partition is known by: its table, by the name that shredding gives it, and its date."""


@dataclass(frozen=True)
class TableSettings:
    """What is configured of a table. Names are logical; the physical ones, where set, are those that its files lie under.

    A table that is renamed keeps its old name as the physical one, and with it its rows: see `key`.

    `interval`: seconds from a partition's first unmerged object to its merge. `target_bytes`: the size of a merged object.
    `zone`: the IANA time zone in which a partition's day ends. `time_column`: the column that rows are sorted by; None where a
    table has none. A table that is not `enabled` takes no new objects and is not closed.
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
        """What shredding calls it, and its rows are kept by: it does not change with the logical name."""
        return self.physical_name or self.name


@dataclass(frozen=True, kw_only=True)
class MergedTable(TableSettings):
    """A table that is merged: what is configured of it, and what was learnt since.

    `columns`: those of all its small objects, by name. `ratio`: bytes out by bytes in, as its merges were so far.
    `catalog_name`: the name under which the catalog has it, None before. `dropped`: nothing of it is left but this.
    """

    create_time: datetime
    columns: tuple[Column, ...] = ()
    ratio: float = FIRST_RATIO
    catalog_name: str | None = None
    dropped: bool = False
    version: int = 0


@dataclass(frozen=True)
class SmallObject:
    """A file that shredding wrote for a partition; times are its rows' event times (ISO 8601, UTC), where it has any."""

    id: int
    uri: str
    rows: int
    bytes: int
    min_time: str | None = None
    max_time: str | None = None
    delayed: bool = False


@dataclass(frozen=True)
class Batch:
    """The small objects that one commit added to a partition, or 500 of them: a row. `item` is the directory's URI."""

    table: str
    date: date
    commit: int
    item: str
    delayed: bool
    registered: datetime
    objects: tuple[SmallObject, ...]


@dataclass(frozen=True)
class Settled:
    """What is kept of batches that merged objects hold and whose own rows are gone: a row for 1,000 of them, numbered from 1.

    `last`: the largest of their ids. `objects`, `rows`: how many they were. `items`: digests of the directories' URIs.
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
    """How much there is of a kind of object in a partition."""

    objects: int = 0
    rows: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, objects: Sequence[SmallObject]) -> Totals:
        """How much these are."""
        return cls(len(objects), sum(one.rows for one in objects), sum(one.bytes for one in objects))

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.objects + other.objects, self.rows + other.rows, self.bytes + other.bytes)

    def __sub__(self, other: Totals) -> Totals:
        return Totals(self.objects - other.objects, self.rows - other.rows, self.bytes - other.bytes)


@dataclass(frozen=True)
class PendingJob:
    """A partition's merge that is to be done, not before `schedule_time`. `attempts`: how many died or failed before."""

    id: str
    schedule_time: datetime
    attempts: int = 0


@dataclass(frozen=True)
class Due:
    """A partition's pending job, as it is found in its turn."""

    schedule_time: datetime
    table: str
    date: date
    id: str


@dataclass(frozen=True)
class SetAside:
    """Why a partition is merged no more until somebody says so."""

    error: str
    attempts: int
    at: datetime


@dataclass(frozen=True)
class Partition:
    """A table on a date.

    `current`: the version that readers see: NEW, LIVE, or the largest id in it. `desired`: the largest merged id. `last_live`:
    the last id that came before the close; None while open. `upper`, `tail`: upper and lower bound of the chain's last range.
    `newest`, `newest_live`: the largest id registered, of any and of live objects. `live`, `delayed`: all small objects that
    were ever registered; `merged`: the merged objects, with the rows and bytes that they have; `covered`: the small objects
    that these hold; `written`: the bytes that its merges wrote so far. `generation` grows with every change of the merged
    objects; `published` is the generation that readers see, and `published_newest` the last small object that they see beside
    it. `job`: the pending one; `running`: the id of the one that is being done. While `set_aside`, the pending job waits for a
    person.
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
        """Whether its day is over, so that what comes now is delayed."""
        return self.last_live is not None

    @property
    def waiting(self) -> Totals:
        """The small objects that no merged object holds yet."""
        return self.live + self.delayed - self.covered

    @property
    def amplification(self) -> float | None:
        """How often each byte of the merged objects was written; None before the first merge."""
        return self.written / self.merged.bytes if self.merged.bytes else None

    @property
    def at_rest(self) -> bool:
        """Whether there is nothing to do until another object comes."""
        shown = self.switched and self.published == self.generation and self.current == self.desired
        return shown and self.upper == self.newest and self.job is None and self.running is None

    @property
    def due(self) -> Due | None:
        """The pending job, if it may be done once it is time: no other is running, and it is not set aside."""
        if self.job is None or self.running or self.set_aside:
            return None
        return Due(self.job.schedule_time, self.table, self.date, self.job.id)


@dataclass(frozen=True)
class Range:
    """One merged object: the rows of the small objects with lower < id <= upper. `objects`: how many these are."""

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
    """A partition's merge that a worker does: who (`owner`), under which lease (`slot`, `token`), since when.

    `generation`: the partition's when the job was claimed; what is planned for it holds as long as that stands. `run_id`: of
    whoever does it; None in what releases before wrote.
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
    """How a job ended: merged; with nothing to merge; given back untried; failed; or its worker died."""

    MERGED = "merged"
    NOTHING = "nothing"
    GIVEN_BACK = "given back"
    FAILED = "failed"
    DIED = "died"

    @property
    def is_failure(self) -> bool:
        """Whether the job was tried and nothing came of it, so that an attempt is counted."""
        return self in (Outcome.FAILED, Outcome.DIED)


@dataclass(frozen=True)
class FinishedJob:
    """What became of a job; kept.

    `bytes_in`: of the small objects that it merged; `rows`, `bytes_out`: of the merged objects that it wrote. `run_id`: of
    the run that did it; None in what releases before wrote.
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
    """A file of a published version; `lower` is None for a small object, whose id `upper` is."""

    uri: str
    rows: int
    bytes: int
    lower: int | None
    upper: int

    @classmethod
    def of_small(cls, one: SmallObject) -> ServedFile:
        """A small object as readers get it."""
        return cls(one.uri, one.rows, one.bytes, None, one.id)

    @classmethod
    def of_range(cls, one: Range) -> ServedFile:
        """A merged object as readers get it."""
        return cls(one.uri, one.rows, one.bytes, one.lower, one.upper)


@dataclass(frozen=True)
class Version:
    """The files that readers of a partition get."""

    table: str
    date: date
    version: int
    generation: int
    created: datetime
    files: tuple[ServedFile, ...] = ()


def digest_of(item: str) -> str:
    """A directory's URI in short: 16 hexadecimal digits, by which it is found among those that are settled."""
    return hashlib.sha256(item.encode()).hexdigest()[:16]


Fact = TypeVar("Fact", MergedTable, Partition, Range, Due, RunningJob, FinishedJob, Batch, Settled, Version)


def to_data(fact: Any) -> dict[str, Any]:
    """The stored form of a fact: plain JSON values, without the version of its row."""
    data = _codec(type(fact)).dump_python(fact, mode="json")
    if type(fact) in _VERSIONED:
        del data["version"]
    return data


def from_row(kind: type[Fact], row: Row) -> Fact:
    """The fact of a row that holds `to_data`'s form."""
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
    """What the sort keys of a partition's rows of a kind start with, SMALL, SETTLED, RANGES or VERSIONS; or a whole table's."""
    return f"{kind}#{table}#" if day is None else f"{kind}#{table}#{day}#"


def small_key(table: str, day: date, last: int) -> str:
    """Sort key of the batch whose last id this is: so what lies beyond an id is one query."""
    return f"{rows_prefix(SMALL, table, day)}{last:0{DIGITS}d}"


def settled_key(settled: Settled) -> str:
    """Sort key of what is kept of batches whose rows are gone."""
    return f"{rows_prefix(SETTLED, settled.table, settled.date)}{settled.number:06d}"


def range_key(table: str, day: date, lower: int) -> str:
    """Sort key of the range from a lower bound on."""
    return f"{rows_prefix(RANGES, table, day)}{lower:0{DIGITS}d}"


def running_key(table: str, day: date, job: str) -> str:
    """Sort key of a running job."""
    return f"{RUNNING}{table}#{day}#{job}"


def due_key(due: Due) -> str:
    """Sort key of the row by which a pending job is found in its turn."""
    return f"{DUE}{format_time(due.schedule_time)}#{due.table}#{due.date}#{due.id}"


def open_key(partition: Partition) -> str:
    """Sort key of the row by which a partition that is not at rest is found."""
    return f"{OPEN}{partition.table}#{partition.date}"


def log_key(job: FinishedJob) -> str:
    """Sort key of a finished job, by the time of its end."""
    return f"{LOG}{format_time(job.finished)}#{job.id}"


def version_key(version: Version) -> str:
    """Sort key of a published version."""
    prefix = rows_prefix(VERSIONS, version.table, version.date)
    return f"{prefix}{version.version:0{DIGITS}d}#{version.generation:0{DIGITS}d}"
