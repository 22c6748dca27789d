"""The answers of commands that only look and change nothing."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from manifest_platform.cli.answers.shared import Failed, Item, Record, Time


class Outlook(TypedDict):
    """The next item of a step, or the reason why there is none. `command`: the remedy, empty if there is nothing to do."""

    dataset: str
    feed: str
    step: str
    answer: Literal["READY", "WAITING", "PROCESSING", "BLOCKED", "IDLE"]
    item: str | None
    reason: str
    since: Time | None
    command: str


class LandingChecked(TypedDict):
    """The directories of a period that need a look, by name. `since`: its beginning; null: everything.

    `not_loaded`: landed and never loaded. `lost`: registered, and gone from the landing root before they were shredded.
    `deleted`: loaded, and gone since. `incomplete`: landed partly. `directories`: the names of the period in the root.
    `requests`: those to the storage. `summary`: all of it in a sentence. `commands`: those that help.
    """

    dataset: str
    root: str
    since: Time | None
    not_loaded: list[str]
    lost: list[str]
    deleted: list[str]
    incomplete: list[str]
    directories: int
    requests: int
    summary: str
    commands: list[str]


class WorkerArchive(TypedDict):
    """An archive for the workers of a cluster. `python`: the version that it is for. `packages`: their versions by name."""

    file: str
    bytes: int
    python: str
    packages: dict[str, str]


class BadItem(TypedDict):
    """An item with bad rows. `lines`: all lines of the item; `bad`: those that became bad rows."""

    name: str
    bad: int
    lines: int


class BadRows(TypedDict):
    """The bad rows of the newest items. `items`: the number of items; `found`: the items with most bad rows.

    `duplicates`: the number of duplicate rows by kind.
    """

    items: int
    lines: int
    bad: int
    found: list[BadItem]
    duplicates: dict[str, int]


class Behind(TypedDict):
    """The time since the watermark. `expected_seconds`: the usual time between two directories."""

    watermark: str
    seconds: float
    expected_seconds: float


class Note(TypedDict):
    """A note about an unusual load. `line`: the text."""

    item: str
    line: str


class Notes(TypedDict):
    """The number of notes about unusual loads, and the newest notes."""

    count: int
    newest: list[Note]


class Lease(TypedDict):
    """The lease of a feed: its holder, the holder's run, its expiry and its token."""

    holder: str
    run: str
    until: Time
    token: int


class Step(TypedDict):
    """The state of a step on a feed. `commands`: the remedies for items that are failed, late and so on, by kind."""

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
    reloads: list[str]
    quarantined: list[str]
    lease: Lease | None
    bad_rows: BadRows | None
    behind: Behind | None
    told: Notes | None
    commands: dict[str, str]


class Unfinished(TypedDict):
    """A directory that is not complete. `changed`: its last change; `over`: when its time window ends, null if it has ended."""

    name: str
    changed: Time | None
    over: Time | None


class Landing(TypedDict):
    """The unregistered directories in a feed's landing root. `problem`: why it cannot be listed; `told`: all of it, as text."""

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
    """The state of every step on every feed, and the directories that have landed."""

    steps: list[Step]
    landing: NotRequired[list[Landing]]


class Next(TypedDict):
    """The next item of each step."""

    next: list[Outlook]


class StepView(TypedDict):
    """The state of an item at a step. `before`: the number of items before it; `first`: the first of these."""

    step: str
    standing: str
    reason: str
    before: int | None
    first: NotRequired[str]


class Explained(TypedDict):
    """The next steps of an item, as text and by step. `item`: null for a directory that is not registered."""

    item: Item | None
    text: str
    steps: list[StepView]


class History(TypedDict):
    """All records of an item. `problems`: descriptions of records that break the rules."""

    item: Item
    problems: list[str]
    records: list[Record]


class OfItem(TypedDict):
    """The records of a run on an item."""

    item: Item
    records: list[Record]


class HistoryOfRun(TypedDict):
    """All records of a run. `looked_at`: the number of items searched; `cut`: true if there are more items to search."""

    items: list[OfItem]
    looked_at: int
    cut: bool


class Match(TypedDict):
    """An item that matches a query. `record`: the id of the record with this state; `note`: its content as text."""

    item: Item
    state: str
    application: str
    time: Time
    author: str
    record: str
    note: str


class Found(TypedDict):
    """The items that match a query. `before`: the item to continue after, null at the end; `cut`: true if --look ended it."""

    items: list[Match]
    looked_at: int
    before: str | None
    cut: bool


class Control(TypedDict):
    """A dataset as a row of a control table. `origin`: the number of the vault; `blocked_by`: reasons, by feed."""

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
    """A dataset as a control table, and its items, newest first."""

    control: Control
    queue: list[Queued]


class Seen(TypedDict):
    """An item with rows of a type."""

    item: Item
    shredded_at: Time


class Type(TypedDict):
    """A type of rows. `rows`: null if a record does not count the rows by type."""

    type: str
    table: str | None
    first: Seen
    last: Seen
    items: int
    rows: int | None


class Types(TypedDict):
    """The types that were shredded. `unread`: the number of listings that cannot be read."""

    types: list[Type]
    looked_at: int
    unread: int


class Table(TypedDict):
    """The rows of a table: `rows` by the manifest's log, `ledger` by the warehouse's ledger, `warehouse` by counting them.

    `removed`: the old rows that upkeep removed.
    """

    table: str
    rows: int
    items: int
    first: Item | None
    last: Item | None
    types: list[str]
    ledger: int | None
    warehouse: int | None
    removed: int


class TableDifference(TypedDict):
    """A difference between log and warehouse, as text. `table`: null if the difference is about a feed."""

    table: str | None
    difference: str
    command: str | None


class Tables(TypedDict):
    """The rows of each table. `uncounted`: items without row counts; `accepted`: items loaded into an earlier warehouse."""

    tables: list[Table]
    items: int
    uncounted: int
    accepted: int
    differences: list[TableDifference]


class TablesOfTargets(TypedDict):
    """The rows of each table of several targets, by target."""

    targets: dict[str, Tables]


class Units(TypedDict):
    """DynamoDB's capacity units, estimated."""

    write: float
    read: float


class ItemCost(TypedDict):
    """The cost of an item in the manifest's store."""

    item: Item
    records: int
    rows: int
    bytes: int
    transactions: int
    units: Units


class AverageCost(TypedDict):
    """The average cost of an item."""

    records: float
    rows: float
    bytes: float
    transactions: float
    write_units: float
    read_units: float


class Costs(TypedDict):
    """The costs of items, and their average."""

    items: list[ItemCost]
    average: AverageCost


class Finding(TypedDict):
    """A fault: its item, step or place, its cause, and the command that repairs it."""

    kind: str
    cause: str
    command: NotRequired[str]
    key: NotRequired[Item | None]
    step: NotRequired[str]
    place: NotRequired[str]
    repairable: NotRequired[bool]


class Diagnosis(TypedDict):
    """The faults of a dataset. `items`: the number of items examined; `done`: the repairs that were made."""

    dataset: str
    items: int
    done: list[str]
    findings: list[Finding]


class DiagnosisFailed(Failed):
    """The repairs that were made before an error ended the command."""

    done: list[str]


class CheckedConfig(TypedDict):
    """A valid configuration: its file, and its datasets."""

    file: str
    valid: Literal[True]
    datasets: list[str]


class Page(TypedDict):
    """A page of documentation, in Markdown."""

    markdown: str


class Difference(TypedDict):
    """A wrong setting of the store, and how to correct it."""

    setting: str
    expected: str
    found: str
    mend: str


class StoreSetup(TypedDict):
    """The settings of a store. `made`: true if this command created it; `differences`: wrong settings."""

    name: str
    made: bool
    differences: list[Difference]


class Setup(StoreSetup):
    """The settings of the manifest's store. `memory`: of the store of what was loaded, if a dataset needs it."""

    memory: StoreSetup | None


class LoaderRun(TypedDict):
    """A run in the layout of the Snowflake Loader's manifest. Times are seconds since 1970, as in that manifest."""

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
    """A feed in the layout of another manifest."""

    layout: str
    rows: list[LoaderRun]


class Root(TypedDict):
    """A landing root that a source recognizes."""

    source: str
    root: str


class Roots(TypedDict):
    """Several landing roots at a place. Run `preview` with one of them."""

    recognized: Literal[True]
    roots: list[Root]


class Preview(TypedDict):
    """The directories at a place, and the tables that a sample of them becomes."""

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
    """A place that no source recognizes. `holds`: its content; `hints`: advice; `known`: the layouts of all sources."""

    recognized: Literal[False]
    place: str
    holds: str
    hints: list[str]
    known: NotRequired[list[str]]


class Project(TypedDict):
    """A project that was written. `into`: true for an existing Dagster project; `kept`: files that existed before."""

    folder: str
    into: bool
    written: list[str]
    kept: list[str]


class Completion(TypedDict):
    """A script that makes a shell complete commands, options and names."""

    shell: str
    script: str


class FakeVault(TypedDict):
    """The running vault: its address, its login and its clock."""

    url: str
    vault: int
    user: str
    password: str
    clock: Time


class SchemaModel(TypedDict):
    """The schemas that make one table. `versions`: oldest first. `place`: the registry that has the first version."""

    name: str
    table: str
    versions: list[str]
    place: str


class BadRow(TypedDict):
    """A bad row. `byte_offset`, `byte_length`: its place in the text of its file, null if unknown."""

    item: Item
    reasons: list[dict[str, Any]]
    file: str
    line: int
    byte_offset: int | None
    byte_length: int | None


class RawBadRow(BadRow):
    """A bad row with its content. `raw_base64`: the exact bytes of the line, if `raw` is not exact. Both only with --raw."""

    raw: NotRequired[str]
    raw_base64: NotRequired[str | None]


class BadRowList(TypedDict):
    """Bad rows. `cut`: true if there are more. `unread`: items whose bad rows cannot be read."""

    rows: list[BadRow]
    cut: bool
    looked_at: int
    unread: list[str]


class BadRowsShown(TypedDict):
    """The bad rows of a line of an item; several if several files have one."""

    rows: list[RawBadRow]
    looked_at: int
    unread: list[str]


class BadRowGroup(TypedDict):
    """Bad rows with the same first reason. `subject`: its schema or field; null for all groups beyond the largest number."""

    reason: str
    subject: str | None
    rows: int
    items: int
    newest: Item


class BadRowCounts(TypedDict):
    """Numbers of bad rows, the largest first."""

    groups: list[BadRowGroup]
    looked_at: int
    unread: list[str]


class SchemaList(TypedDict):
    """The models of the registries. `unlisted`: registries without a list, of which the models of shredded rows are shown."""

    models: list[SchemaModel]
    unlisted: list[str]


class SchemaColumn(TypedDict):
    """A column of a table that a schema makes."""

    name: str
    type: str
    nullable: bool


class SchemaTable(TypedDict):
    """A table that a schema makes."""

    name: str
    columns: list[SchemaColumn]


class SchemaShown(TypedDict):
    """A model and its tables. `documents`: the schema of each version, with --documents."""

    model: SchemaModel
    tables: list[SchemaTable]
    notes: list[str]
    documents: dict[str, Any] | None


class SchemaDifference(TypedDict):
    """A difference: in a column's type, or at a path in the schema. Null stands for absence."""

    place: str
    before: Any
    after: Any


class SchemaDifferences(TypedDict):
    """The differences between two schemas. `problem`: the reason why rows of the later one do not fit the table, else empty."""

    before: str
    after: str
    columns: list[SchemaDifference]
    schema: list[SchemaDifference]
    problem: str


class SchemaSql(TypedDict):
    """The statements for one target, or for one engine that --engine names."""

    target: str
    engine: str
    sql: list[str]


class SchemaStatements(TypedDict):
    """The statements that create the tables of a model."""

    statements: list[SchemaSql]


class SchemasFetched(TypedDict):
    """The schemas that were copied. `same`: the number that the folder had already; `missing`: those in no registry."""

    folder: str
    written: list[str]
    same: int
    missing: list[str]
