"""What the commands `merge` answer."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from manifest_platform.cli.answers.shared import Time, Totals


class PublishedPartition(TypedDict):
    """A partition that readers see in a new version."""

    partition: str
    version: int


class WaitingPartition(TypedDict):
    """A partition that is not published yet, and why."""

    partition: str
    reason: str


class NotShown(TypedDict):
    """What could not be published; `passing`: a repeat may do it."""

    place: str
    error: str
    passing: bool


class Publication(TypedDict):
    """What was closed, switched and published."""

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
    """A commit of shredding was registered."""

    event: Literal["registered"]
    commit: int
    objects: int
    partitions: int
    outside: int
    passed_over: int
    known: bool


class MergeStarted(TypedDict):
    """A Spark job begins."""

    event: Literal["merge_started"]
    ranges: int
    partitions: int
    objects: int
    bytes: int


class MergeJob(TypedDict):
    """A merge of a partition that ended."""

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
    """A merge of a partition ended."""

    event: Literal["finished"]


class MergeEnded(TypedDict):
    """What a merge run did, and why it stopped; the last line."""

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
    """A partition whose merged objects were written anew."""

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
    """Why a partition is merged no more until somebody says so."""

    error: str
    attempts: int
    at: Time


class Partition(TypedDict):
    """How a partition stands."""

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
    """Objects that a merge would put together."""

    lower: int
    upper: int
    objects: int


class Plan(TypedDict):
    """What a merge would do now."""

    ranges: list[PlannedRange]
    leftover: bool
    reason: str


class PartitionExplained(Partition):
    """How a partition stands, in words too, and what a merge of it would do."""

    text: str
    plan: Plan
    command: str


class GarbageFile(TypedDict):
    """A file that nothing needs."""

    uri: str
    bytes: int


class TableGarbage(TypedDict):
    """What nothing needs of a table."""

    table: str
    location: str
    objects: int
    manifests: int
    versions: int
    bytes: int
    files: list[GarbageFile]


class Removed(TypedDict):
    """What was removed, or would be."""

    dry_run: bool
    tables: list[TableGarbage]


class Dropped(TypedDict):
    """A table that was removed with everything."""

    table: str
    location: str
    partitions: int
    small_objects: int
    rows: int
    files: int
    bytes: int


class PartitionStanding(TypedDict):
    """A partition that is not at rest, and what it waits for."""

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
    """What of a table is not merged."""

    oldest: Time | None


class TableStanding(TypedDict):
    """How merging of a table stands."""

    table: str
    enabled: bool
    open: int
    closed: int
    switched: int
    backlog: Backlog
    partitions: list[PartitionStanding]


class Busy(TypedDict):
    """A partition that is merged again and again."""

    table: str
    date: str
    jobs: int
    bytes: int
    failed: int


class MergeStatus(TypedDict):
    """How merging stands."""

    dataset: str
    output: str
    profile: str
    catalog: str
    registered: int
    completed: int
    tables: list[TableStanding]
    busy: list[Busy]
    requests: int


class File(TypedDict):
    """A file that readers get; a merged one with the ids of the small objects that it stands for."""

    uri: str
    rows: int
    bytes: int
    lower: int | None
    upper: int | None


class PartitionFiles(TypedDict):
    """The files that readers of a partition get now."""

    table: str
    date: str
    version: int
    generation: int
    created: Time | None
    files: list[File]


class MergeLog(TypedDict):
    """The merges that ended last."""

    jobs: list[MergeJob]


class Shown(TypedDict, total=False):
    """Rows of one of Prism's tables, under its name."""

    tables: list[dict[str, Any]]
    partitions: list[dict[str, Any]]
    objects: list[dict[str, Any]]
    ranges: list[dict[str, Any]]
    jobs: list[dict[str, Any]]


class ExternalSchema(TypedDict):
    """The SQL by which a warehouse reads the published tables, and what its role must be allowed."""

    statements: list[str]
    needed: list[str]
