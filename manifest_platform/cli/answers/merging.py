"""The answers of the commands `merge ...`."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from manifest_platform.cli.answers.shared import Time, Totals


class PublishedPartition(TypedDict):
    """A partition that was published. `version`: the version that readers read now."""

    partition: str
    version: int


class WaitingPartition(TypedDict):
    """A partition that is not published yet, and the reason."""

    partition: str
    reason: str


class NotShown(TypedDict):
    """A partition or table that could not be published. `passing`: true if a retry may succeed."""

    place: str
    error: str
    passing: bool


class Publication(TypedDict):
    """The partitions that were closed, switched and published. `busy`: the process that publishes at the same time."""

    closed: list[str]
    switched: list[str]
    entered: list[str]
    shown: list[str]
    put_back: list[str]
    published: list[PublishedPartition]
    waiting: list[WaitingPartition]
    failed: list[NotShown]
    busy: str | None
    store_requests: int
    catalog_requests: int


class Registered(TypedDict):
    """A commit of shredding was registered. `outside` and `passed_over`: objects that are not merged."""

    event: Literal["registered"]
    commit: int
    objects: int
    partitions: int
    outside: int
    passed_over: int
    known: bool


class MergeStarted(TypedDict):
    """A Spark job that merges ranges begins."""

    event: Literal["merge_started"]
    ranges: int
    partitions: int
    objects: int
    bytes: int


class MergeJob(TypedDict):
    """A finished merge of a partition. `ranges`: pairs (lower, upper) of object ids."""

    id: str
    table: str
    date: str
    schedule_time: Time
    started: Time
    finished: Time
    owner: str
    attempts: int
    outcome: Literal["merged", "nothing", "given back", "failed", "died"]
    ranges: list[tuple[int, int]]
    rows: int
    bytes_in: int
    bytes_out: int
    error: str | None
    run_id: str | None


class JobFinished(MergeJob):
    """A merge of a partition has ended."""

    event: Literal["finished"]


class MergeEnded(TypedDict):
    """The summary of a merge run, and why it stopped. The last line."""

    event: Literal["ended"]
    commits: int
    objects: int
    closed: int
    merged: int
    failed: int
    rows: int
    bytes_in: int
    bytes_out: int
    seconds: float
    requests: int
    stop: str
    reason: str
    published: Publication | None


class Rebuilt(TypedDict):
    """A partition whose merged objects were rewritten."""

    table: str
    date: str
    generation: int
    ranges: int
    objects: int
    rows: int
    bytes_in: int
    bytes_out: int
    published: Publication | None


class SetAside(TypedDict):
    """The reason why a partition was set aside: it is not merged until `merge retry`."""

    error: str
    attempts: int
    at: Time


class Partition(TypedDict):
    """The state of a partition. `current`: its published version; `desired`: its merged version."""

    table: str
    date: str
    state: str
    current: int
    desired: int
    last_live: int | None
    generation: int
    published: int
    small: Totals
    merged: Totals
    waiting: Totals
    set_aside: SetAside | None


class PlannedRange(TypedDict):
    """A range of small objects that a merge would combine: ids above `lower`, up to `upper`."""

    lower: int
    upper: int
    objects: int


class Plan(TypedDict):
    """The merge that would run now."""

    ranges: list[PlannedRange]
    leftover: bool
    reason: str


class PartitionExplained(Partition):
    """The state of a partition, also as text, and the merge that would run now."""

    text: str
    plan: Plan
    command: str


class GarbageFile(TypedDict):
    """A file that nothing needs any more."""

    uri: str
    bytes: int


class TableGarbage(TypedDict):
    """The files and versions of a table that nothing needs any more."""

    table: str
    location: str
    objects: int
    manifests: int
    versions: int
    bytes: int
    files: list[GarbageFile]


class Removed(TypedDict):
    """The files that were removed; with --dry-run, those that would be."""

    dry_run: bool
    tables: list[TableGarbage]


class Dropped(TypedDict):
    """A merged table that was removed, with everything that belonged to it."""

    table: str
    location: str
    partitions: int
    small_objects: int
    rows: int
    files: int
    bytes: int


class PartitionStanding(TypedDict):
    """A partition with objects to merge or to publish, and what it waits for."""

    table: str
    date: str
    state: str
    current: int
    desired: int
    waiting: Totals
    oldest: Time | None
    waits_for: str
    due: Time | None
    set_aside: bool
    command: str


class Backlog(Totals):
    """The small objects of a table that are not merged."""

    oldest: Time | None


class TableStanding(TypedDict):
    """The state of merging of a table."""

    table: str
    enabled: bool
    open: int
    closed: int
    switched: int
    backlog: Backlog
    partitions: list[PartitionStanding]


class Busy(TypedDict):
    """A partition that is merged very often. `jobs`: the number of merges within a day."""

    table: str
    date: str
    jobs: int
    bytes: int
    failed: int


class MergeStatus(TypedDict):
    """The state of merging of a dataset."""

    dataset: str
    output: str
    profile: str
    catalog: str
    registered: int
    completed: int
    tables: list[TableStanding]
    busy: list[Busy]
    requests: int


class RowGroups(TypedDict):
    """Row groups of a file: the number of the first, their count, the bytes with their data and of the footer, and the size."""

    first: int
    count: int
    start: int
    end: int
    footer: int
    size: int


class File(TypedDict):
    """A file that readers read. `lower`, `upper`: the range of a merged object, null for a small object.

    `groups`: the row groups of the date, if the file has those of other dates too; null for a whole file.
    """

    uri: str
    rows: int
    bytes: int
    lower: int | None
    upper: int | None
    groups: RowGroups | None


class PartitionFiles(TypedDict):
    """The files of a partition that readers read now."""

    table: str
    date: str
    version: int
    generation: int
    created: Time | None
    files: list[File]


class MergeLog(TypedDict):
    """The last finished merges, newest first."""

    jobs: list[MergeJob]


class Shown(TypedDict, total=False):
    """The rows of one of Prism's metadata tables, under its name."""

    tables: list[dict[str, Any]]
    partitions: list[dict[str, Any]]
    objects: list[dict[str, Any]]
    ranges: list[dict[str, Any]]
    jobs: list[dict[str, Any]]


class ExternalSchema(TypedDict):
    """The SQL with which a warehouse can read the published tables. `needed`: the permissions that its role needs."""

    statements: list[str]
    needed: list[str]
