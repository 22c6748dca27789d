"""What happens on the way from landing to warehouse, as values that the command line prints and Dagster records."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum

from manifest_platform.listing import Listing, Table
from manifest_platform.manifest import Failure, ItemKey, Landed
from manifest_platform.remedies import Remedy


@dataclass(frozen=True)
class Waiting:
    """A directory that has landed and is not complete.

    `changed`: when it changed last, by the storage's clock, as far as that tells. `over`: when its time will be over.
    """

    name: str
    feed: str
    changed: datetime | None = None
    over: datetime | None = None


@dataclass(frozen=True)
class DiscoveryReport:
    """What one look at the landing root found, by name. `requests`: to the object storage.

    `changed`: rewritten after discovery. `moved`: known under another URI, below the root `moved_from`. `doubled`: landed once
    more under another name, each with the name by which it is known. `future`: dated more than a day ahead. `unreadable`: could
    not be listed, each with the reason. `waiting`: those that are `incomplete`, with since when. None of these is registered.
    `linked`: registered now, and holds symbolic links or the like, so that it will fail. `skipped`: registered now, and passed
    over by a rule, each with that. `landed` is all that it looked into and the manifest has: registered now or before.
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

    def __add__(self, other: DiscoveryReport) -> DiscoveryReport:
        """What two looks found, at two feeds."""
        both = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)}
        return DiscoveryReport(**both)

    @property
    def sees_anything(self) -> bool:
        """Whether anything lies in the landing root, registered or not."""
        return any(getattr(self, one.name) for one in fields(self) if one.name != "requests")

    @property
    def registered(self) -> tuple[str, ...]:
        """All that the manifest did not know before."""
        return (*self.new, *self.late, *self.quarantined)


@dataclass(frozen=True)
class Shredded:
    """An item was shredded. `seconds` are those of its batch of `batch` items; `bytes_in` what was read."""

    key: ItemKey
    listing: Listing
    bytes_in: int
    seconds: float
    batch: int
    requests: int
    already: bool = False


@dataclass(frozen=True)
class Loaded:
    """An item is in the warehouse. `lag_seconds`: from its discovery to the COMMIT. `already`: it was there before.

    `tables` are those of its listing; none where it was there before. `epoch`: of the warehouse's data that it belongs to.
    `told`: what is out of the ordinary about it, in words.
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

    @property
    def row_count(self) -> int:
        """Rows over all tables, bad rows included."""
        return sum(self.rows.values())


@dataclass(frozen=True)
class ItemFailed:
    """An attempt at an item failed and is recorded as Failed; one of kind `behind` is marked late instead."""

    key: ItemKey
    application: str
    failure: Failure


@dataclass(frozen=True)
class PutBack:
    """An attempt at an item ended without a failure: what kept it from its work is not the item's fault."""

    key: ItemKey
    application: str
    reason: str


@dataclass(frozen=True)
class ShreddedAgain:
    """What shredding made of an item is gone or damaged, and its directory is there: it is shredded again, by itself."""

    key: ItemKey
    reason: str


@dataclass(frozen=True)
class ShredStarted:
    """A Spark job for a batch of items begins."""

    items: int
    bytes: int


Event = ShredStarted | Shredded | Loaded | ItemFailed | PutBack | ShreddedAgain


class Stop(StrEnum):
    """Why a drain ended."""

    IDLE = "idle"
    BLOCKED = "blocked"
    BUDGET_ITEMS = "budget of items"
    BUDGET_SECONDS = "budget of seconds"
    BUSY = "busy"
    UNAVAILABLE = "unavailable"
    FENCED = "fenced"


@dataclass(frozen=True)
class FeedEnd:
    """Why a drain ended on a feed. Where it is blocked: by which item, why, and what helps."""

    feed: str
    stop: Stop
    item: str | None = None
    reason: str = ""
    remedy: Remedy | None = None


@dataclass
class DrainReport:
    """What a drain did and why it stopped; times are UTC.

    `ends`: why it ended on each feed. `stop`, `feed`, `item`, `reason` and `remedy` are those of the first feed that does not
    just have nothing to do.
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


@dataclass(frozen=True)
class Budget:
    """How much one drain may do: so many items shredded, as many loaded; and seconds, after which nothing new is begun."""

    items: int | None = None
    seconds: float | None = None
