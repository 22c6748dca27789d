"""The answers of commands that change something: registration, drains, full loads, decisions, imports, housekeeping."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from manifest_platform.cli.answers.shared import Item, Record, Time, Told


class Discovered(TypedDict):
    """The directories that a listing of the landing root found, by name. `known`: the number of those registered before."""

    new: list[str]
    late: list[str]
    quarantined: list[str]
    changed: list[str]
    moved: list[str]
    moved_from: list[str]
    doubled: list[str]
    future: list[str]
    unparseable: list[str]
    unreadable: list[str]
    incomplete: list[str]
    linked: list[str]
    skipped: list[str]
    known: int
    requests: int


class DrainDiscovered(Discovered):
    """The directories that a drain found in the landing root."""

    event: Literal["discovered"]


class NotDiscovered(TypedDict):
    """The landing root could not be listed. The drain works on the items that are registered already."""

    event: Literal["not_discovered"]
    reason: str


class ShredStarted(TypedDict):
    """A Spark job that shreds items begins."""

    event: Literal["shred_started"]
    items: int
    bytes: int


class Shredded(TypedDict):
    """An item was shredded. `batch`: the number of items in its Spark job; `seconds`: the duration of that job.

    `remarks`: what people should know about its tables, if there is anything. `duplicates`: their number by kind, if any.
    """

    event: Literal["shredded"]
    item: str
    lines: int
    good: int
    bad: int
    bytes: int
    seconds: float
    batch: int
    remarks: NotRequired[list[str]]
    duplicates: NotRequired[dict[str, int]]


class Loaded(TypedDict):
    """An item is in the warehouse. `already`: true if it was there before; `told`: notes about the load."""

    event: Literal["loaded"]
    item: str
    rows: dict[str, int]
    bytes: int
    seconds: float
    lag_seconds: float
    late: bool
    already: bool
    told: list[str]


class ItemFailed(TypedDict):
    """An attempt at an item failed. `kind`: transient or permanent."""

    event: Literal["failed"]
    item: str
    application: str
    kind: str
    message: str


class PutBack(TypedDict):
    """An attempt ended without a result, and is not counted as a failure."""

    event: Literal["put_back"]
    item: str
    application: str
    reason: str


class ShreddedAgain(TypedDict):
    """The output of an item was lost, and the item is shredded again automatically."""

    event: Literal["shredded_again"]
    item: str
    reason: str


class FeedEnd(TypedDict):
    """The reason why a drain stopped on a feed. `target`: only if the dataset has several."""

    feed: str
    stop: str
    item: str | None
    reason: str
    command: str
    target: NotRequired[str]


class Tidied(TypedDict):
    """An action of upkeep on a table. `rows`: removed rows, or rows that changed since. `why_not`: what prevented it.

    `target`: the table's target in the report of a drain of several, else empty.
    """

    table: str
    action: str
    rows: int
    seconds: float
    until: str | None
    why_not: str
    target: str


class TargetUpkeep(TypedDict):
    """The upkeep of a target's tables."""

    target: str
    done: list[Tidied]


class WarehouseUpkeep(TypedDict):
    """The upkeep of the tables of each target."""

    dry_run: bool
    targets: list[TargetUpkeep]


class Drained(TypedDict):
    """The summary of a drain, and why it stopped. The last line."""

    event: Literal["ended"]
    run_id: str
    started_at: Time
    shredded: int
    loaded: int
    failed: int
    put_back: int
    rows: int
    bytes: int
    requests: int
    seconds: float
    stop: str
    feed: str
    item: str | None
    reason: str
    command: str
    ends: list[FeedEnd]
    upkeep: list[Tidied]


class Following(TypedDict):
    """A follower works on the dataset from now on (`drain --follow`). Its further lines name the dataset, too."""

    event: Literal["following"]
    dataset: str
    run_id: str


class StandingBy(TypedDict):
    """Another follower works on the dataset; this process takes over when that ends."""

    event: Literal["standing_by"]
    dataset: str
    holder: str


class Hindered(TypedDict):
    """A follower cannot list or work because of an error, and tries again. `seconds`: the pause until then. Reported once."""

    event: Literal["hindered"]
    dataset: str
    reason: str
    seconds: float


class FeedsBlocked(TypedDict):
    """Feeds on which a follower waits for a person. Told once for each reason."""

    event: Literal["blocked"]
    dataset: str
    ends: list[FeedEnd]


FollowEvent = Following | StandingBy | Hindered | FeedsBlocked
ShredEvent = ShredStarted | Shredded | ItemFailed | PutBack | ShreddedAgain


class Begun(TypedDict):
    """A full load was begun. `boundary`: the stop time of its snapshot."""

    event: Literal["begun"]
    item: Item
    epoch: int
    boundary: str


class Snapshot(TypedDict):
    """A snapshot. `standing`: its state at the load."""

    item: str
    stop: str
    shredded: bool
    standing: str


class FullStatus(TypedDict):
    """The state of full loads. `needed`: why a full load is needed, empty if none is."""

    dataset: str
    mode: str
    epoch: int
    boundary: str | None
    loading: str | None
    needed: str
    watermarks: dict[str, str]
    snapshots: list[Snapshot]
    command: str


class FullStatusOfTargets(TypedDict):
    """The state of full loads of several targets, by target."""

    targets: dict[str, FullStatus]


class Recorded(TypedDict):
    """The record that was written."""

    record: Record


class Key(TypedDict):
    """The key of an item, as it is stored."""

    feed: str
    sort: str
    id: str


class Landed(TypedDict):
    """A directory that was captured."""

    key: Key
    files: int
    bytes: int
    checksum: str
    start: str | None
    stop: str | None
    content: str | None


class Captured(TypedDict):
    """A directory was captured."""

    event: Literal["captured"]
    feed: str
    name: str
    landed: Landed
    outcome: Literal["new", "late", "quarantined"]
    bytes: int
    seconds: float


class Diverged(TypedDict):
    """The content at the origin has changed since it was captured. `known`, `found`: the two checksums."""

    event: Literal["diverged"]
    feed: str
    name: str
    known: str
    found: str


class NotCaptured(TypedDict):
    """A directory that could not be captured."""

    feed: str
    name: str
    reason: str
    permanent: bool


class CaptureFailed(NotCaptured):
    """A directory could not be captured."""

    event: Literal["capturefailed"]


class NotPublished(TypedDict):
    """A directory that the origin failed to publish."""

    feed: str
    name: str
    next_retry: Time | None
    message: str
    first_seen: Time


class Awaited(NotPublished):
    """The origin failed to publish a directory."""

    event: Literal["awaited"]


class CaptureEnded(TypedDict):
    """The summary of a capture. The last line."""

    event: Literal["ended"]
    captured: list[str]
    empty: list[str]
    diverged: list[str]
    failed: list[NotCaptured]
    awaited: list[NotPublished]
    known: int
    oldest: dict[str, str]
    unavailable: str | None
    requests: int
    bytes: int


class Decided(TypedDict):
    """The record that a decision wrote on an item; with --dry-run, the record that it would write."""

    item: Item
    record: Record
    dry_run: NotRequired[bool]


class Refused(TypedDict):
    """A decision on an item was refused."""

    item: Item
    error: Told


class Replacing(TypedDict):
    """The rows by table that a reload of an item removes from a target, and those that it loads instead. Only with --dry-run.

    `loaded_at`: the time of the load whose rows go; null if the warehouse could not be asked.
    """

    event: Literal["replacing"]
    item: Item
    target: str
    loaded_at: Time | None
    removes: dict[str, int]
    loads: dict[str, int]


class BadReplayed(TypedDict):
    """The new items that consist of bad lines which are good now. Lines by origin: good, still bad, and without their bytes."""

    dry_run: bool
    items: list[str]
    good: dict[str, int]
    bad: dict[str, int]
    lost: dict[str, int]


class DecisionsEnded(TypedDict):
    """The number of decisions that were written and refused. The last line, if there are several items."""

    event: Literal["ended"]
    done: int
    refused: int
    dry_run: bool


SkipRule = TypedDict(
    "SkipRule",
    {
        "id": str,
        "reason": str,
        "pattern": NotRequired[str | None],
        "from": Time | None,
        "to": Time | None,
        "feed": NotRequired[str | None],
        "until": NotRequired[Time | None],
        "application": str,
        "author": str,
        "added_at": Time | None,
        "over": NotRequired[bool],
    },
)
"""A rule that skips new items. `over`: true if the rule has ended."""


class SkipRuleAdded(TypedDict):
    """A rule that was added. `registered`: the matching items that were registered before."""

    rule: SkipRule
    registered: list[Item]
    dry_run: bool


class SkipRuleRemoved(TypedDict):
    """A rule that was removed."""

    rule: SkipRule
    removed: Literal[True]


class SkipRules(TypedDict):
    """The rules that skip new items."""

    rules: list[SkipRule]


class SkipRuleChange(TypedDict):
    """A change of the rules: by whom, when and why a rule was added or removed."""

    change: Literal["added", "removed"]
    rule: SkipRule
    author: str
    run_id: str | None
    at: Time
    reason: str


class SkipRuleChanges(TypedDict):
    """All changes of the rules."""

    changes: list[SkipRuleChange]


class Claimed(TypedDict):
    """An item that was claimed. `record`: the id of the claim, for `put complete` and `put fail`."""

    item: str
    record: str
    token: int | None
    lease_until: Time | None
    run_id: str


class NothingToDo(TypedDict):
    """There was no item to claim."""

    item: None


class Blocked(TypedDict):
    """No item may be claimed. `blocked_by`: the item that blocks; `command`: the remedy."""

    item: None
    blocked_by: Item
    standing: str
    reason: str
    command: str


class Ran(TypedDict):
    """The result of a program on an item. `exit_code`: the program's."""

    item: Item
    exit_code: int
    record: Record


class Put(TypedDict):
    """An item that was registered. `skipped_by`: the rules that skip it."""

    item: str
    sort: str
    outcome: str
    skipped_by: list[str]


class Ended(TypedDict):
    """The record that ended a claim."""

    item: Item
    record: Record


class Archived(TypedDict):
    """The items and records that were moved to Parquet files. `left`: items that changed meanwhile and were not moved."""

    items: int
    records: int
    files: int
    bytes: int
    left: int
    dry_run: bool


class Chore(TypedDict):
    """A chore: the numbers of things that it removed. `hindered`: why it failed; `off`: why it is disabled; `wrong`: faults."""

    name: str
    removed: dict[str, int]
    off: str
    hindered: str
    wrong: list[str]


class Housekept(TypedDict):
    """The chores of housekeeping, and what each removed."""

    dry_run: bool
    chores: list[Chore]


class KeptData(TypedDict):
    """Data that retention keeps for a reason. `example`: the first item; `detail`: the reason why it is kept, in words."""

    why: str
    items: int
    example: str
    detail: str


class CollectedData(TypedDict):
    """Data of a kind that retention deletes and keeps. `costs`: the items by what they lose."""

    kind: str
    items: int
    objects: int
    bytes: int
    oldest: str | None
    kept: list[KeptData]
    costs: dict[str, int]


class Collected(TypedDict):
    """The data that `gc` deleted, or would delete.

    `finished`: interrupted deletions; `failed`: what could not be removed now.
    """

    dry_run: bool
    finished: int
    failed: list[str]
    data: list[CollectedData]


class Reconciled(TypedDict):
    """The items of a feed that the warehouse lacks. `lost`: a missing snapshot, which only a full load restores."""

    feed: str
    freed: list[str]
    lost: str
    watermark: str


class WarehouseReconciled(TypedDict):
    """The items that are loaded again, by feed. `begun`: the snapshot of the full load that was begun."""

    dry_run: bool
    begun: Item | None
    feeds: list[Reconciled]


class WarehouseAccepted(TypedDict):
    """The feeds whose warehouse was accepted with its current rows."""

    feeds: list[Reconciled]


class WarehouseProbe(TypedDict):
    """A probe of a warehouse. `note`: what was found, or the error. `helps`: statements that help, for a failure."""

    probe: str
    result: Literal["ok", "failed", "skipped"]
    seconds: float
    note: str
    helps: list[str]


class WarehouseChecked(TypedDict):
    """The probes of a target's warehouse, in their order. `place`: where the warehouse is."""

    target: str
    place: str
    probes: list[WarehouseProbe]


class WarehouseGrants(TypedDict):
    """The statements that give a role what loads need; empty if the warehouse has no roles."""

    target: str
    role: str
    statements: list[str]


class Form(TypedDict):
    """The version of stored rows, and the release that wrote it."""

    number: int
    release: str


class Upgrade(TypedDict):
    """An upgrade of a dataset's rows. `rewritten`, `made`: keys of rows; `beside`: the number of derived rows that changed."""

    dataset: str
    dry_run: bool
    before: Form | None
    rewritten: list[str]
    made: list[str]
    beside: int


class Upgraded(TypedDict):
    """The datasets that were upgraded."""

    upgraded: list[Upgrade]


class Imported(TypedDict):
    """An import of a dump. `written`: rows that were added; `there`: rows that existed before."""

    dataset: str
    written: int
    there: int


class ForeignNote(TypedDict):
    """A note about a run of the other manifest."""

    item: str
    text: str


class ForeignImport(TypedDict):
    """An import from another manifest. `grown`: items with new records; `open`: items in progress there."""

    source: str
    dry_run: bool
    rows: int
    added: int
    grown: int
    unchanged: int
    records: int
    late: list[str]
    open: list[str]
    failed: list[str]
    undecided: list[str]
    repairs: list[ForeignNote]
    problems: list[ForeignNote]


class ImportDropped(TypedDict):
    """An unfinished import that was dropped. `shortened`: items that keep their earlier records."""

    source: str
    dry_run: bool
    items: int
    shortened: int
    records: int


class Moved(TypedDict):
    """The items whose location was updated. `elsewhere`: items in other folders; `left`: true if --limit ended the command."""

    old: str
    new: str
    dry_run: bool
    moved: int
    already: int
    elsewhere: int
    gone: int
    missing: list[str]
    differs: list[str]
    failed: list[str]
    left: bool
