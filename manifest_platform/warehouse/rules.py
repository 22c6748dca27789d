"""The rules of the fence and the ledger: when a feed's fence may move, and why a load may not pass.

The conditions of the apply protocol are data and pure functions here. `control` translates a Move to SQL. The tests' model
checker evaluates the same Move and calls the same `refusals`, so that it explores the protocol that runs.

The chain of records: A record here is the id of an attempt. The fence names the record that was applied last, each ledger entry
names its own record, and the manifest names the record that it believes was applied last. A load passes only if the fence's
record is the believed record. A warehouse that was set back (restored from a backup), or is another database, lacks the
believed record, so nothing is loaded on top of it. A manifest that was set back learns the fence's record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol

from manifest_platform.warehouse.load import Full, Load, Reload


class Held(NamedTuple):
    """The fence's values for a feed. `record`: the id of the attempt that was applied last; empty before the first."""

    token: int = 0
    epoch: int = 0
    applied: str = ""
    record: str = ""


class Entry(Protocol):
    """The part of a ledger entry that the rules use."""

    @property
    def checksum(self) -> str:
        """The checksum of the landed directory, as applied."""
        ...

    @property
    def record_id(self) -> str:
        """The id of the attempt that applied it."""
        ...


class LedgerAnswers(Protocol):
    """The questions that the rules ask a ledger."""

    def entry(self, feed: str, item: str, since_epoch: int) -> Entry | None:
        """Returns the newest entry of an item in this epoch or later; None if there is none."""
        ...

    def has(self, feed: str, item: str, since_epoch: int) -> bool:
        """True if an item was applied in this epoch or later."""
        ...

    def has_any(self, feed: str, items: Sequence[str], since_epoch: int) -> bool:
        """True if any of these items was applied in this epoch or later."""
        ...

    def has_record(self, record: str) -> bool:
        """True if the attempt with this record id was applied, on any feed of the dataset."""
        ...

    def in_epoch(self, load: Load, full: Full) -> tuple[str, int] | None:
        """Returns any item that was loaded in the snapshot's epoch or later, on its own or a covered feed, and its epoch."""
        ...

    def beyond(self, feed: str, epoch: int) -> tuple[str, int] | None:
        """Returns the newest item of a feed that was loaded in a later epoch, with that epoch."""
        ...


# Moves of a fence


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": lambda held, value: held <= value,
    "<": lambda held, value: held < value,
    "=": lambda held, value: held == value,
}


class Condition(NamedTuple):
    """A condition on a column of the fence's row, required to move the row. Texts compare bytewise."""

    column: str
    relation: Literal["<=", "<", "="]
    value: int | str

    def holds(self, held: Held) -> bool:
        """True if a row meets the condition."""
        return _HOLDS[self.relation](getattr(held, self.column), self.value)


class Change(NamedTuple):
    """A new value of a column. With `at_least`, a larger old value stays."""

    column: str
    value: int | str
    at_least: bool = False


class Move(NamedTuple):
    """An UPDATE of one feed's row: it changes the row if every condition holds, and nothing otherwise."""

    changes: tuple[Change, ...]
    conditions: tuple[Condition, ...]

    def may(self, held: Held) -> bool:
        """True if the row meets every condition."""
        return all(one.holds(held) for one in self.conditions)

    def after(self, held: Held) -> Held:
        """Returns the row after the move."""
        changed: dict[str, Any] = {
            one.column: max(getattr(held, one.column), one.value) if one.at_least else one.value for one in self.changes
        }
        return held._replace(**changed)


Moves = list[tuple[str, Move]]
"""Moves by feed, in the order of their execution."""


def lift(token: int, epoch: int) -> Move:
    """Raises a feed's fence: no older token or epoch may commit afterward. Its applied position stays."""
    return Move(
        (Change("epoch", epoch), Change("token", token)), (Condition("epoch", "<=", epoch), Condition("token", "<=", token))
    )


def lifts(load: Load, full: Full) -> Moves:
    """Raises the fences of all feeds to a snapshot's epoch, and that of its own feed also to its token."""
    return [*((feed, lift_other(load)) for feed in other_feeds(load, full)), (load.feed, lift(load.token, load.epoch))]


def moves(load: Load) -> Moves:
    """Returns the first writes of a load's transaction. The load may continue only if each of them changes its row."""
    if not load.full:
        return [(load.feed, passing(load))]
    full = load.full
    others = [(feed, covered(load, full) if feed in full.covers else lift_other(load)) for feed in other_feeds(load, full)]
    return [*others, (load.feed, snapshot_passing(load))]


def passing(load: Load) -> Move:
    """Moves the fence to the position and the record of a load. A late load, or a reload, leaves the position."""
    changes, conditions = lift(load.token, load.epoch)
    if not load.late and not load.replaces:
        changes += (Change("applied", load.position),)
        conditions += (Condition("applied", "<", load.position),)
    if load.believed is not None:
        conditions += (Condition("record", "=", load.believed),)
    return Move((*changes, Change("record", load.record_id)), conditions)


def passing_all(loads: Sequence[Load]) -> Move:
    """Moves the fence over consecutive loads of one feed, to the last. It must be where the first load needs it."""
    first, last = loads[0], loads[-1]
    changes, conditions = lift(first.token, first.epoch)
    conditions += (Condition("applied", "<", first.position),)
    if first.believed is not None:
        conditions += (Condition("record", "=", first.believed),)
    return Move((*changes, Change("applied", last.position), Change("record", last.record_id)), conditions)


def snapshot_passing(load: Load) -> Move:
    """Moves the fence of a snapshot's own feed. Its position sets no condition, so an older snapshot may be loaded again."""
    changes, conditions = lift(load.token, load.epoch)
    return Move((*changes, Change("applied", load.position, at_least=True), Change("record", load.record_id)), conditions)


def lift_other(load: Load) -> Move:
    """Raises the fence of another feed of the dataset to a snapshot's epoch. Its token does not change."""
    return Move((Change("epoch", load.epoch),), (Condition("epoch", "<=", load.epoch),))


def covered(load: Load, full: Full) -> Move:
    """Moves the fence of a feed that a snapshot covers to the snapshot's boundary, in the snapshot's transaction."""
    changes, conditions = lift_other(load)
    return Move((*changes, Change("applied", full.boundary), Change("record", load.record_id)), conditions)


def other_feeds(load: Load, full: Full) -> list[str]:
    """Returns all feeds of a snapshot's dataset except its own."""
    return [feed for feed in full.feeds if feed != load.feed]


def counts(reload: Reload | None, entry: Entry | None) -> bool:
    """True if the ledger's newest entry of an item says that it is applied. For a reload, that of an earlier load does not.

    `reload`: None for an item that is loaded for the first time.
    """
    return entry is not None and (reload is None or entry.record_id in reload.attempts)


def replacing(load: Load, ledger: LedgerAnswers) -> Load:
    """Returns a reload together with the record of the ledger's entry whose rows it replaces; any other load as it is."""
    if load.reload is None:
        return load
    entry = ledger.entry(load.feed, load.item, load.serving_epoch)
    return replace(load, replaces=entry.record_id if entry and not counts(load.reload, entry) else "")


def is_held_back(load: Load, ledger: LedgerAnswers) -> bool:
    """True if the ledger stops a transaction whose moves succeeded. A snapshot is stopped by any entry of its epoch.

    A reload is stopped if the newest entry is not the entry that it replaces.
    """
    if load.full:
        return ledger.in_epoch(load, load.full) is not None
    if load.reload:
        entry = ledger.entry(load.feed, load.item, load.serving_epoch)
        return (entry.record_id if entry else "") != load.replaces
    if ledger.has(load.feed, load.item, load.serving_epoch):
        return True
    return bool(load.snapshots and ledger.beyond(load.snapshots, load.serving_epoch))


def are_held_back(loads: Sequence[Load], ledger: LedgerAnswers) -> bool:
    """True if the ledger stops a transaction of consecutive loads whose move succeeded: all are applied, or none."""
    first = loads[0]
    if ledger.has_any(first.feed, [one.item for one in loads], first.serving_epoch):
        return True
    return bool(first.snapshots and ledger.beyond(first.snapshots, first.serving_epoch))


# Refusals


class Why(StrEnum):
    """The reason why a load may not pass. FENCED comes first, because a replaced worker must not look at anything else."""

    FENCED = "a newer worker or epoch has taken over"
    SNAPSHOT_AHEAD = "the tables hold a snapshot that the manifest does not know"
    UNBELIEVED = "the ledger lacks the record that the manifest believes was applied last"
    OTHER_CONTENT = "the ledger has the item with other content"
    KNOWN = "the ledger has the item"
    EPOCH_IN_USE = "something was loaded in the snapshot's epoch"
    MANIFEST_BEHIND = "the fence names a later record than the manifest believes"
    BEHIND = "the item is at or before the applied position"


@dataclass(frozen=True)
class Refusal:
    """The reason why a load may not pass, with its evidence: a feed's fence row, a ledger entry, an item and its epoch."""

    why: Why
    feed: str
    held: Held
    entry: Entry | None = None
    other: tuple[str, int] | None = None


def refusals(load: Load, fence: Callable[[str], Held], ledger: LedgerAnswers) -> Iterator[Refusal]:
    """Yields every reason why a load may not pass, most important first; nothing if it may.

    The first reason is the answer. The model checker uses the others when it switches a rule off. The ledger's answer for an
    item counts only if the ledger has the believed record: a warehouse that was set back may have the item of an earlier
    attempt, but lacks what came before it.
    """
    held = fence(load.feed)
    if not lift(load.token, load.epoch).may(held):
        yield Refusal(Why.FENCED, load.feed, held)
    if load.snapshots and (ahead := ledger.beyond(load.snapshots, load.serving_epoch)):
        yield Refusal(Why.SNAPSHOT_AHEAD, load.feed, held, other=ahead)
    if not load.full and not knows(load.believed, ledger):
        yield Refusal(Why.UNBELIEVED, load.feed, held)
    entry = ledger.entry(load.feed, load.item, load.serving_epoch)
    if entry and counts(load.reload, entry):
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
    stays = load.late or load.replaces
    if not stays and load.position <= held.applied:  # str compares by code point, which is the bytewise order of UTF-8
        yield Refusal(Why.BEHIND, load.feed, held)


def knows(believed: str | None, ledger: LedgerAnswers) -> bool:
    """True if the ledger's answers count: it has the record that the manifest believes was applied last, if any."""
    return not believed or ledger.has_record(believed)


def is_same_content(checksum: str, entry: Entry) -> bool:
    """True if a ledger entry has the same landed content. An entry without a checksum (an imported item) counts as equal."""
    return not checksum or not entry.checksum or checksum == entry.checksum
