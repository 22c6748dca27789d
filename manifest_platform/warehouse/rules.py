"""The rules of the fence and the ledger: what may move a feed's fence, and why a load may not pass.

Belongs here: the apply protocol's conditions, as data and pure functions. `control` makes SQL of a Move, and the model checker
of the tests evaluates the same Move and asks the same `refusals`, so that what is explored is what runs.

The chain: the fence names the record that it applied last, each ledger entry names its own, and the manifest names the record
that it believes was applied last. A load passes only where the fence's name is the believed one. A warehouse that was set back
or mistaken for another lacks that record, and is never built upon; a manifest that was set back learns the fence's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol

from manifest_platform.warehouse.load import Full, Load


class Held(NamedTuple):
    """What the fence holds of a feed. `record`: the id of the attempt that was applied last; empty before the first one."""

    token: int = 0
    epoch: int = 0
    applied: str = ""
    record: str = ""


class Entry(Protocol):
    """As much of a ledger entry as the rules look at."""

    @property
    def checksum(self) -> str:
        """The landed directory's checksum, as it was applied."""
        ...


class LedgerAnswers(Protocol):
    """What the rules ask of a ledger."""

    def entry(self, feed: str, item: str, since_epoch: int) -> Entry | None:
        """The newest entry of an item of this epoch or a later one."""
        ...

    def has(self, feed: str, item: str, since_epoch: int) -> bool:
        """Whether an item was applied in this epoch or a later one."""
        ...

    def has_record(self, record: str) -> bool:
        """Whether the attempt with this record id was applied, to whichever feed of the dataset."""
        ...

    def in_epoch(self, load: Load, full: Full) -> tuple[str, int] | None:
        """An item, with its epoch, that was loaded in a snapshot's epoch or later, by its own feed or one that it covers."""
        ...

    def beyond(self, feed: str, epoch: int) -> tuple[str, int] | None:
        """The newest item of a feed that was loaded in a later epoch, with that epoch."""
        ...


# What may move a fence


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": lambda held, value: held <= value,
    "<": lambda held, value: held < value,
    "=": lambda held, value: held == value,
}


class Condition(NamedTuple):
    """What a column of the fence's row must be, for the row to be moved. Texts compare bytewise."""

    column: str
    relation: Literal["<=", "<", "="]
    value: int | str

    def holds(self, held: Held) -> bool:
        """Whether a row meets it."""
        return _HOLDS[self.relation](getattr(held, self.column), self.value)


class Change(NamedTuple):
    """What a column becomes; with `at_least` it stays where it is more already."""

    column: str
    value: int | str
    at_least: bool = False


class Move(NamedTuple):
    """One UPDATE of one feed's row: it changes the row if every condition holds, and nothing otherwise."""

    changes: tuple[Change, ...]
    conditions: tuple[Condition, ...]

    def may(self, held: Held) -> bool:
        """Whether the row is moved."""
        return all(one.holds(held) for one in self.conditions)

    def after(self, held: Held) -> Held:
        """The row once it is moved."""
        changed: dict[str, Any] = {
            one.column: max(getattr(held, one.column), one.value) if one.at_least else one.value for one in self.changes
        }
        return held._replace(**changed)


Moves = list[tuple[str, Move]]
"""Moves by feed, in the order in which they are made."""


def lift(token: int, epoch: int) -> Move:
    """Raises a feed's fence: no older token or epoch may commit afterwards. What it has applied stays."""
    return Move(
        (Change("epoch", epoch), Change("token", token)), (Condition("epoch", "<=", epoch), Condition("token", "<=", token))
    )


def lifts(load: Load, full: Full) -> Moves:
    """Raises the fences of all feeds to a snapshot's epoch, its own to the token too, before the snapshot is built."""
    return [*((feed, lift_other(load)) for feed in other_feeds(load, full)), (load.feed, lift(load.token, load.epoch))]


def moves(load: Load) -> Moves:
    """What a load's transaction begins with. It goes on only where each of them moves its row."""
    if not load.full:
        return [(load.feed, passing(load))]
    full = load.full
    others = [(feed, covered(load, full) if feed in full.covers else lift_other(load)) for feed in other_feeds(load, full)]
    return [*others, (load.feed, snapshot_passing(load))]


def passing(load: Load) -> Move:
    """Moves the fence to a load. A late load leaves `applied` as it is."""
    changes, conditions = lift(load.token, load.epoch)
    if not load.late:
        changes += (Change("applied", load.position),)
        conditions += (Condition("applied", "<", load.position),)
    if load.believed is not None:
        conditions += (Condition("record", "=", load.believed),)
    return Move((*changes, Change("record", load.record_id)), conditions)


def snapshot_passing(load: Load) -> Move:
    """Moves a snapshot's own fence. Snapshots follow each other by epoch: an older one may be loaded anew."""
    changes, conditions = lift(load.token, load.epoch)
    return Move((*changes, Change("applied", load.position, at_least=True), Change("record", load.record_id)), conditions)


def lift_other(load: Load) -> Move:
    """Raises the fence of another feed of a snapshot's dataset to the snapshot's epoch. Its token is its own."""
    return Move((Change("epoch", load.epoch),), (Condition("epoch", "<=", load.epoch),))


def covered(load: Load, full: Full) -> Move:
    """Moves the fence of a feed that a snapshot covers, with the snapshot's commit: all that it has is the snapshot."""
    changes, conditions = lift_other(load)
    return Move((*changes, Change("applied", full.boundary), Change("record", load.record_id)), conditions)


def other_feeds(load: Load, full: Full) -> list[str]:
    """All feeds of a snapshot's dataset but its own."""
    return [feed for feed in full.feeds if feed != load.feed]


def is_held_back(load: Load, ledger: LedgerAnswers) -> bool:
    """Whether the ledger stops a transaction whose moves went through. A snapshot's own entry is one of its epoch."""
    if load.full:
        return ledger.in_epoch(load, load.full) is not None
    if ledger.has(load.feed, load.item, load.serving_epoch):
        return True
    return bool(load.snapshots and ledger.beyond(load.snapshots, load.serving_epoch))


# Why a load may not pass


class Why(StrEnum):
    """Why a load may not pass. FENCED comes first: who was replaced is to look at nothing else."""

    FENCED = "a newer worker or epoch has taken over"
    SNAPSHOT_AHEAD = "the tables hold a snapshot that the manifest knows nothing of"
    UNBELIEVED = "the ledger lacks the record that the manifest believes was applied last"
    OTHER_CONTENT = "the ledger has the item with another content"
    KNOWN = "the ledger has the item"
    EPOCH_IN_USE = "something was loaded in the snapshot's epoch"
    MANIFEST_BEHIND = "the fence names a later record than the manifest believes"
    BEHIND = "the item lies at or before what was applied"


@dataclass(frozen=True)
class Refusal:
    """Why a load may not pass, and what says so: the fence's row of a feed, the ledger's entry, an item with its epoch."""

    why: Why
    feed: str
    held: Held
    entry: Entry | None = None
    other: tuple[str, int] | None = None


def refusals(load: Load, fence: Callable[[str], Held], ledger: LedgerAnswers) -> Iterator[Refusal]:
    """Every reason why a load may not pass, in the order in which it counts; none where it may.

    The first is the answer; the others are asked only where a model has that rule switched off. What the ledger says of an item
    counts only if it has the believed record: a warehouse that was set back may have the item of an earlier attempt, and lacks
    what came before it.
    """
    held = fence(load.feed)
    if not lift(load.token, load.epoch).may(held):
        yield Refusal(Why.FENCED, load.feed, held)
    if load.snapshots and (ahead := ledger.beyond(load.snapshots, load.serving_epoch)):
        yield Refusal(Why.SNAPSHOT_AHEAD, load.feed, held, other=ahead)
    if not load.full and not knows(load.believed, ledger):
        yield Refusal(Why.UNBELIEVED, load.feed, held)
    if entry := ledger.entry(load.feed, load.item, load.serving_epoch):
        yield Refusal(Why.KNOWN if is_same_content(load.checksum, entry) else Why.OTHER_CONTENT, load.feed, held, entry)
    if load.full:
        for feed in other_feeds(load, load.full):
            if not lift_other(load).may(other := fence(feed)):
                yield Refusal(Why.FENCED, feed, other)
        if used := ledger.in_epoch(load, load.full):
            yield Refusal(Why.EPOCH_IN_USE, load.feed, held, other=used)
        return
    if load.believed is not None and held.record != load.believed:
        yield Refusal(Why.MANIFEST_BEHIND, load.feed, held)
    if not load.late and load.position <= held.applied:  # str compares by code point: the bytewise order of UTF-8
        yield Refusal(Why.BEHIND, load.feed, held)


def knows(believed: str | None, ledger: LedgerAnswers) -> bool:
    """Whether what a ledger says counts: it has the record that the manifest believes was applied last, if there is any."""
    return not believed or ledger.has_record(believed)


def is_same_content(checksum: str, entry: Entry) -> bool:
    """Whether a ledger entry is of the same landed content. What has no checksum, as imported items, is taken as the same."""
    return not checksum or not entry.checksum or checksum == entry.checksum
