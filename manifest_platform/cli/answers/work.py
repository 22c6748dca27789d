"""What the commands answer that work on items: registering, draining, loading in full, deciding, and keeping house."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from manifest_platform.cli.answers.shared import Item, Record, Time, Told


class Discovered(TypedDict):
    """What one look at the landing root found, by name."""

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
    """What a drain found at the landing root before it began."""

    event: Literal["discovered"]


class NotDiscovered(TypedDict):
    """That the landing root could not be listed; what is registered already is worked on."""

    event: Literal["not_discovered"]
    reason: str


class ShredStarted(TypedDict):
    """A Spark job begins."""

    event: Literal["shred_started"]
    items: int
    bytes: int


class Shredded(TypedDict):
    """An item was shredded, in a batch that took `seconds`."""

    event: Literal["shredded"]
    item: str
    lines: int
    good: int
    bad: int
    bytes: int
    seconds: float
    batch: int


class Loaded(TypedDict):
    """An item is in the warehouse; `already`: it was before."""

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
    """An attempt at an item failed."""

    event: Literal["failed"]
    item: str
    application: str
    kind: str
    message: str


class PutBack(TypedDict):
    """An attempt ended without a failure: no attempt is counted."""

    event: Literal["put_back"]
    item: str
    application: str
    reason: str


class ShreddedAgain(TypedDict):
    """An item's output was lost: it is shredded again, by itself."""

    event: Literal["shredded_again"]
    item: str
    reason: str


class FeedEnd(TypedDict):
    """Why a drain ended on a feed."""

    feed: str
    stop: str
    item: str | None
    reason: str
    command: str


class Drained(TypedDict):
    """What a drain did, and why it stopped; the last line."""

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


ShredEvent = ShredStarted | Shredded | ItemFailed | PutBack | ShreddedAgain


class Begun(TypedDict):
    """A full load was begun."""

    event: Literal["begun"]
    item: Item
    epoch: int
    boundary: str


class Snapshot(TypedDict):
    """A snapshot, and how it stands with the load."""

    item: str
    stop: str
    shredded: bool
    standing: str


class FullStatus(TypedDict):
    """How full loads stand; `needed`: why one is, empty where none is."""

    dataset: str
    mode: str
    epoch: int
    boundary: str | None
    loading: str | None
    needed: str
    watermarks: dict[str, str]
    snapshots: list[Snapshot]
    command: str


class Recorded(TypedDict):
    """The record that was written."""

    record: Record


class Key(TypedDict):
    """An item's key as it is stored."""

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
    """The origin has other content now than was captured."""

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
    """What a capture did; the last line."""

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
    """The record that a decision wrote on an item; with --dry-run, the one that it would write."""

    item: Item
    record: Record
    dry_run: NotRequired[bool]


class Refused(TypedDict):
    """A decision on an item was refused."""

    item: Item
    error: Told


class DecisionsEnded(TypedDict):
    """How many decisions were done and refused; the last line where there are several items."""

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
"""A rule by which items are skipped as they are registered; `over`: it has ended."""


class SkipRuleAdded(TypedDict):
    """A rule that was added, and what it means that is registered already."""

    rule: SkipRule
    registered: list[Item]
    dry_run: bool


class SkipRuleRemoved(TypedDict):
    """A rule that was removed."""

    rule: SkipRule
    removed: Literal[True]


class SkipRules(TypedDict):
    """The rules."""

    rules: list[SkipRule]


class SkipRuleChange(TypedDict):
    """That a rule was added or removed: who, when and why."""

    change: Literal["added", "removed"]
    rule: SkipRule
    author: str
    run_id: str | None
    at: Time
    reason: str


class SkipRuleChanges(TypedDict):
    """All that was ever added or removed."""

    changes: list[SkipRuleChange]


class Claimed(TypedDict):
    """An item that was claimed; no item: `item` is null."""

    item: str
    record: str
    token: int | None
    lease_until: Time | None
    run_id: str


class NothingToDo(TypedDict):
    """That there was nothing to claim."""

    item: None


class Blocked(TypedDict):
    """That nothing may be claimed, for what, and what helps."""

    item: None
    blocked_by: Item
    standing: str
    reason: str
    command: str


class Ran(TypedDict):
    """What became of the item that a program worked on."""

    item: Item
    exit_code: int
    record: Record


class Put(TypedDict):
    """An item that was registered."""

    item: str
    sort: str
    outcome: str
    skipped_by: list[str]


class Ended(TypedDict):
    """The record that ended a claim."""

    item: Item
    record: Record


class Archived(TypedDict):
    """What was moved to Parquet files."""

    items: int
    records: int
    files: int
    bytes: int
    left: int
    dry_run: bool


class Chore(TypedDict):
    """What one chore removed; `hindered`: why it could not, `off`: why it is not done."""

    name: str
    removed: dict[str, int]
    off: str
    hindered: str
    wrong: list[str]


class Housekept(TypedDict):
    """What housekeeping removed."""

    dry_run: bool
    chores: list[Chore]


class Reconciled(TypedDict):
    """What a feed lacked in the warehouse; `lost`: the snapshot that only a full load brings back."""

    feed: str
    freed: list[str]
    lost: str
    watermark: str


class WarehouseReconciled(TypedDict):
    """What is loaded again; `begun`: the full load that was begun."""

    dry_run: bool
    begun: Item | None
    feeds: list[Reconciled]


class WarehouseAccepted(TypedDict):
    """The feeds whose warehouse was taken as it is."""

    feeds: list[Reconciled]


class Form(TypedDict):
    """The form of stored rows."""

    number: int
    release: str


class Upgrade(TypedDict):
    """What was rewritten of a dataset's rows."""

    dataset: str
    dry_run: bool
    before: Form | None
    rewritten: list[str]
    made: list[str]
    beside: int


class Upgraded(TypedDict):
    """The datasets that were taken over."""

    upgraded: list[Upgrade]


class Imported(TypedDict):
    """What was put into the store of a dump."""

    dataset: str
    written: int
    there: int


class ForeignNote(TypedDict):
    """Something about a run of the other manifest."""

    item: str
    text: str


class ForeignImport(TypedDict):
    """What was imported of another manifest."""

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
    """What the end of an import that broke off took away."""

    source: str
    dry_run: bool
    items: int
    shortened: int
    records: int


class Moved(TypedDict):
    """What was told of directories that lie elsewhere now."""

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
