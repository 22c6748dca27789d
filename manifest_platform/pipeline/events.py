"""Events and reports on the way from landing to warehouse, as values that the command line prints and Dagster records."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import StrEnum

from manifest_platform.listing import Listing, Table
from manifest_platform.manifest import Failure, ItemKey, Landed
from manifest_platform.manifest.records import FIRST_TARGET
from manifest_platform.remedies import Remedy
from manifest_platform.warehouse.checks import Checked


@dataclass(frozen=True)
class Waiting:
    """A directory that has landed and is not complete.

    `changed`: the time of its last change, by the storage's clock, if known. `over`: the end of its window, if that is in the
    future.
    """

    name: str
    feed: str
    changed: datetime | None = None
    over: datetime | None = None


_FLAGS = ("partial", "goes_on")


@dataclass(frozen=True)
class DiscoveryReport:
    """The result of discovery: names of directories, by outcome.

    Registered now:

    - `linked`: contain symbolic links or the like, so they will fail. `skipped`: skipped by a rule, each with the rule.

    Not registered:

    - `changed`: rewritten after they were registered. `moved`: known under another URI, below the root `moved_from`.
    - `doubled`: landed again under another name, each with the name by which it is known.
    - `future`: dated more than a day ahead. `unreadable`: could not be listed, each with the reason.
    - `incomplete`: not complete yet, with details in `waiting`.

    `landed`: all directories that were read and that the manifest has now. `requests`: the number of requests to the storage.

    Of a look in parts: `partial` is true until this process has listed the look-back once, so that others may be incomplete or
    unreadable. `goes_on` is true if its time was over before everything new was registered.
    """

    new: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    moved_from: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    future: tuple[str, ...] = ()
    unparseable: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    linked: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    known: int = 0
    requests: int = 0
    landed: tuple[Landed, ...] = ()
    partial: bool = False
    goes_on: bool = False

    def __add__(self, other: DiscoveryReport) -> DiscoveryReport:
        """Returns the union of two reports, on different feeds or on different parts of a feed."""
        both = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self) if one.name not in _FLAGS}
        flags = {name: getattr(self, name) or getattr(other, name) for name in _FLAGS}
        return DiscoveryReport(**both, **flags)

    def without_repeats(self) -> DiscoveryReport:
        """Returns the same report, in which nothing occurs twice because parts of a feed overlapped."""
        names = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(self, **{name: tuple(dict.fromkeys(one)) for name, one in names.items() if isinstance(one, tuple)})

    @property
    def sees_anything(self) -> bool:
        """True if the landing root contains anything, registered or not."""
        return any(getattr(self, one.name) for one in fields(self) if one.name != "requests")

    @property
    def registered(self) -> tuple[str, ...]:
        """The names that the manifest did not know before."""
        return (*self.new, *self.late, *self.quarantined)


@dataclass(frozen=True)
class Shredded:
    """An item was shredded. `seconds`: of its whole batch of `batch` items; `bytes_in`: bytes read for this item."""

    key: ItemKey
    listing: Listing
    bytes_in: int
    seconds: float
    batch: int
    requests: int
    already: bool = False


@dataclass(frozen=True)
class Loaded:
    """An item is in the warehouse. `lag_seconds`: from its discovery to the COMMIT. `already`: it was loaded before.

    `tables`: those of its listing; empty if it was loaded before. `epoch`: of its rows. `told`: notes on the load. `checks`:
    the outcomes of its checks. `target`: the target that it was loaded into. `batch`: the number of items in its transaction;
    `seconds` and `requests` are its share.
    """

    key: ItemKey
    rows: dict[str, int]
    bytes: int
    seconds: float
    lag_seconds: float
    requests: int
    late: bool = False
    already: bool = False
    tables: tuple[Table, ...] = ()
    epoch: int = 1
    told: tuple[str, ...] = ()
    checks: tuple[Checked, ...] = ()
    target: str = FIRST_TARGET
    batch: int = 1

    @property
    def row_count(self) -> int:
        """The number of rows over all tables, bad rows included."""
        return sum(self.rows.values())


@dataclass(frozen=True)
class ItemFailed:
    """An attempt at an item failed and is recorded as Failed. An attempt of kind `behind` is marked late instead."""

    key: ItemKey
    application: str
    failure: Failure


@dataclass(frozen=True)
class PutBack:
    """An attempt at an item ended without a failure, because the cause was not the item's fault, such as an outage."""

    key: ItemKey
    application: str
    reason: str


@dataclass(frozen=True)
class ShreddedAgain:
    """The output of shredding an item is gone or damaged, and its directory is intact: it is shredded again automatically."""

    key: ItemKey
    reason: str


@dataclass(frozen=True)
class ShredStarted:
    """A Spark job begins for a batch of items."""

    items: int
    bytes: int


Event = ShredStarted | Shredded | Loaded | ItemFailed | PutBack | ShreddedAgain


class Stop(StrEnum):
    """The reason why a drain ended.

    `busy`: another worker does the work; `held`: another program has the warehouse open; `blackout`: `load.blackout` says so.
    """

    IDLE = "idle"
    BLOCKED = "blocked"
    BUDGET_ITEMS = "budget of items"
    BUDGET_SECONDS = "budget of seconds"
    BUSY = "busy"
    HELD = "held"
    BLACKOUT = "blackout"
    UNAVAILABLE = "unavailable"
    FENCED = "fenced"


@dataclass(frozen=True)
class FeedEnd:
    """The reason why a drain ended on a feed. If it is blocked: the item, the reason and the remedy.

    `target`: the target, if the dataset has several; empty if the reason concerns all of them.
    """

    feed: str
    stop: Stop
    item: str | None = None
    reason: str = ""
    remedy: Remedy | None = None
    target: str = ""


@dataclass(frozen=True)
class Tidied:
    """An action of upkeep on a table: it was done, or `why_not` says what prevented it. `rows`: removed or changed rows.

    `target`: the target of the table, set by a drain of several. `action`: an action of the engine; or `delete`, for removed
    old rows. `until`: the time before which rows are old.
    """

    table: str
    action: str
    rows: int = 0
    seconds: float = 0.0
    until: datetime | None = None
    why_not: str = ""
    target: str = ""


@dataclass
class DrainReport:
    """The totals of a drain, and the reason why it stopped. Times are UTC.

    `ends`: the reason for each feed, of several targets for each target. `stop`, `feed`, `item`, `reason`, `remedy`: those of
    the first that is not idle. `upkeep`: what was done with the tables afterward.
    """

    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    shredded: int = 0
    loaded: int = 0
    failed: int = 0
    put_back: int = 0
    rows: int = 0
    bytes: int = 0
    requests: int = 0
    seconds: float = 0.0
    stop: Stop = Stop.IDLE
    feed: str = ""
    item: str | None = None
    reason: str = ""
    remedy: Remedy | None = None
    ends: tuple[FeedEnd, ...] = ()
    upkeep: tuple[Tidied, ...] = ()


@dataclass(frozen=True)
class Budget:
    """The limits of a drain: items shredded, and the same number loaded into each target; and seconds.

    After these seconds nothing new begins.
    """

    items: int | None = None
    seconds: float | None = None
