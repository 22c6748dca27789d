"""What the commands answer that look, and change nothing."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from manifest_platform.cli.answers.shared import Failed, Item, Record, Time


class Outlook(TypedDict):
    """What a step may do next on a feed; `command` is what helps, empty where nothing is to be done."""

    dataset: str
    feed: str
    step: str
    answer: Literal["READY", "WAITING", "PROCESSING", "BLOCKED", "IDLE"]
    item: str | None
    reason: str
    since: Time | None
    command: str


class BadItem(TypedDict):
    """An item with bad rows."""

    name: str
    bad: int
    lines: int


class BadRows(TypedDict):
    """The bad rows of the newest items."""

    items: int
    lines: int
    bad: int
    found: list[BadItem]


class Behind(TypedDict):
    """How far a feed is behind the clock, and how often a directory is expected."""

    watermark: str
    seconds: float
    expected_seconds: float


class Note(TypedDict):
    """What was out of the ordinary about a load."""

    item: str
    line: str


class Notes(TypedDict):
    """How many such notes there are, and the newest."""

    count: int
    newest: list[Note]


class Lease(TypedDict):
    """Who works on the feed."""

    holder: str
    run: str
    until: Time
    token: int


class Step(TypedDict):
    """How a step stands on a feed. `commands`: what helps with items that are late, failed and so on."""

    outlook: Outlook
    watermark: str | None
    watermark_time: Time | None
    oldest_waiting: Time | None
    lag_seconds: float | None
    counts: dict[str, int]
    more: bool
    failed: list[str]
    retried: list[str]
    late: list[str]
    quarantined: list[str]
    lease: Lease | None
    bad_rows: BadRows | None
    behind: Behind | None
    told: Notes | None
    commands: dict[str, str]


class Unfinished(TypedDict):
    """A directory that is not complete: when it changed last; when its window of time is over, where it is not."""

    name: str
    changed: Time | None
    over: Time | None


class Landing(TypedDict):
    """What lies in a feed's landing root and is no item; `problem`: why it cannot be listed; `told`: all of it, in words."""

    dataset: str
    feed: str
    root: str
    problem: str | None
    not_registered: list[str]
    incomplete: list[Unfinished]
    unparseable: list[str]
    unreadable: list[str]
    future: list[str]
    told: list[str]


class Status(TypedDict):
    """How every step stands on every feed, and what has landed."""

    steps: list[Step]
    landing: NotRequired[list[Landing]]


class Next(TypedDict):
    """What each step may do next."""

    next: list[Outlook]


class StepView(TypedDict):
    """How an item stands with a step. `before`: how many come before it; `first`: the first of them."""

    step: str
    standing: str
    reason: str
    before: int | None
    first: NotRequired[str]


class Explained(TypedDict):
    """What would happen next with an item, in words and by step; `item` is null for what has landed and is none."""

    item: Item | None
    text: str
    steps: list[StepView]


class History(TypedDict):
    """All that happened to an item; `problems`: records that break the rules."""

    item: Item
    problems: list[str]
    records: list[Record]


class OfItem(TypedDict):
    """What a run recorded on an item."""

    item: Item
    records: list[Record]


class HistoryOfRun(TypedDict):
    """What a run recorded. `cut`: there are more items to look at."""

    items: list[OfItem]
    looked_at: int
    cut: bool


class Match(TypedDict):
    """An item that was asked for, with the record that says so."""

    item: Item
    state: str
    application: str
    time: Time
    author: str
    record: str
    note: str


class Found(TypedDict):
    """What was found; `before`: the item behind which to go on, if there may be more; `cut`: by --look."""

    items: list[Match]
    looked_at: int
    before: str | None
    cut: bool


class Control(TypedDict):
    """A dataset as a row of a control table."""

    dataset: str
    origin: str | None
    mode: str
    current_epoch: int
    base_boundary: str | None
    watermarks: dict[str, str | None]
    full_load: str | None
    full_load_started_at: Time | None
    locks: dict[str, str]
    blocked_by: dict[str, str]


class Queued(TypedDict):
    """An item as a row of a queue."""

    item: Item
    filetype: str
    start_time: str | None
    stop_time: str
    status: Literal["NEW", "READY", "PROCESSING", "APPLIED", "FAILED", "SUPERSEDED", "SKIPPED", "QUARANTINED"]
    attempt_count: int
    last_error: str | None
    epoch: int
    full_load_started_at: Time | None
    detail: str


class Queue(TypedDict):
    """A dataset as a control table, and its items, the newest first."""

    control: Control
    queue: list[Queued]


class Seen(TypedDict):
    """An item that a type was seen in."""

    item: Item
    shredded_at: Time


class Type(TypedDict):
    """A type of rows; `rows` where every record counts them."""

    type: str
    table: str | None
    first: Seen
    last: Seen
    items: int
    rows: int | None


class Types(TypedDict):
    """The types that were shredded; `unread`: listings that could not be read."""

    types: list[Type]
    looked_at: int
    unread: int


class Table(TypedDict):
    """What a table holds by the log, by the warehouse's ledger, and by its own count."""

    table: str
    rows: int
    items: int
    first: Item | None
    last: Item | None
    types: list[str]
    ledger: int | None
    warehouse: int | None


class TableDifference(TypedDict):
    """Where log and warehouse differ; `table` is null where it is about a feed."""

    table: str | None
    difference: str
    command: str | None


class Tables(TypedDict):
    """What each table holds, and what differs."""

    tables: list[Table]
    items: int
    uncounted: int
    accepted: int
    differences: list[TableDifference]


class Units(TypedDict):
    """DynamoDB's units, estimated."""

    write: float
    read: float


class ItemCost(TypedDict):
    """What an item costs the manifest's store."""

    item: Item
    records: int
    rows: int
    bytes: int
    transactions: int
    units: Units


class AverageCost(TypedDict):
    """What an item costs on average."""

    records: float
    rows: float
    bytes: float
    transactions: float
    write_units: float
    read_units: float


class Costs(TypedDict):
    """What items cost, each and on average."""

    items: list[ItemCost]
    average: AverageCost


class Finding(TypedDict):
    """Something that is wrong: what it is about, why, and the command that helps."""

    kind: str
    cause: str
    command: NotRequired[str]
    key: NotRequired[Item | None]
    step: NotRequired[str]
    place: NotRequired[str]
    repairable: NotRequired[bool]


class Diagnosis(TypedDict):
    """What is wrong with a dataset, and what was done about it."""

    dataset: str
    items: int
    done: list[str]
    findings: list[Finding]


class DiagnosisFailed(Failed):
    """What was done before something went wrong."""

    done: list[str]


class CheckedConfig(TypedDict):
    """That a configuration is valid."""

    file: str
    valid: Literal[True]
    datasets: list[str]


class Page(TypedDict):
    """A page of documentation."""

    markdown: str


class Difference(TypedDict):
    """A setting of the store that is not as it should be, and what mends it."""

    setting: str
    expected: str
    found: str
    mend: str


class Setup(TypedDict):
    """How the manifest's store is set up; `made`: it was made just now."""

    name: str
    made: bool
    differences: list[Difference]


class LoaderRun(TypedDict):
    """A run as the Snowflake Loader's manifest has it; times are seconds since 1970, as there."""

    State: str
    RunId: str
    AddedAt: NotRequired[int]
    AddedBy: NotRequired[str]
    ToSkip: NotRequired[bool]
    ProcessedAt: NotRequired[int]
    ShredTypes: NotRequired[list[str]]
    SavedTo: NotRequired[str]
    LoadedAt: NotRequired[int]
    LoadedBy: NotRequired[str]
    FailedBy: NotRequired[str]


class View(TypedDict):
    """A feed as another manifest would show it."""

    layout: str
    rows: list[LoaderRun]


class Root(TypedDict):
    """A landing root that a source knows."""

    source: str
    root: str


class Roots(TypedDict):
    """Several landing roots at a place: name one of them."""

    recognized: Literal[True]
    roots: list[Root]


class Preview(TypedDict):
    """What lies at a place, and what a sample of it becomes."""

    recognized: Literal[True]
    source: str
    root: str
    part: Any
    layout: Any
    schemas: Any
    settings: Any
    marker: Any
    compressions: Any
    feeds: list[dict[str, Any]]
    sample: dict[str, Any] | None
    advice: Any
    seconds: float


class NotRecognized(TypedDict):
    """That no source knows what lies at a place, and what lies there."""

    recognized: Literal[False]
    place: str
    holds: str
    hints: list[str]
    known: NotRequired[list[str]]


class Project(TypedDict):
    """The project that was written, and whether into a Dagster project that was there; `kept`: files that were there before."""

    folder: str
    into: bool
    written: list[str]
    kept: list[str]


class Completion(TypedDict):
    """What a shell is to run, so that it completes commands, options and names."""

    shell: str
    script: str


class FakeVault(TypedDict):
    """The vault that runs, and how to log in."""

    url: str
    vault: int
    user: str
    password: str
    clock: Time
