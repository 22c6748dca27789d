"""The warehouse as a small pure machine: fence, ledger and content change in one transaction, or not at all.

Belongs here: the effect of a transaction on fences, ledger and content. The product's `warehouse.rules` decide whether it may
commit, and why not; each rule can be switched off. The content is what readers see: the items applied since the last snapshot,
in the order in which they were applied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from manifest_platform.warehouse import rules
from manifest_platform.warehouse.load import Full, Load
from manifest_platform.warehouse.rules import Held, Move, Refusal, Why


class Content(NamedTuple):
    """A feed's data: the epoch and boundary of the snapshot beneath, and the items applied after it (item, applied as late)."""

    epoch: int = 1
    boundary: str = ""
    applied: tuple[tuple[str, bool], ...] = ()


class Entry(NamedTuple):
    """A row of the ledger. `nth`: the number of the item's entries that it supersedes."""

    feed: str
    item: str
    epoch: int
    record_id: str
    checksum: str = ""
    nth: int = 0


class Sink(NamedTuple):
    """Fence and content by feed, in the scope's order, and the ledger."""

    feeds: tuple[str, ...]
    fences: tuple[Held, ...]
    content: tuple[Content, ...]
    ledger: frozenset[Entry] = frozenset()

    @classmethod
    def empty(cls, feeds: list[str]) -> Sink:
        """A warehouse in which nothing was loaded yet."""
        return cls(tuple(feeds), (Held(),) * len(feeds), (Content(),) * len(feeds))

    # The questions that the rules ask

    def fence(self, feed: str) -> Held:
        """The fence's row of a feed."""
        return self.fences[self.feeds.index(feed)]

    def of(self, feed: str) -> Content:
        """A feed's content."""
        return self.content[self.feeds.index(feed)]

    def entry(self, feed: str, item: str, since_epoch: int) -> Entry | None:
        """The newest entry of an item."""
        mine = [one for one in self.ledger if (one.feed, one.item) == (feed, item) and one.epoch >= since_epoch]
        return max(mine, key=lambda one: (one.epoch, one.nth, one.record_id), default=None)

    def has(self, feed: str, item: str, since_epoch: int) -> bool:
        """True if an item was applied."""
        return self.entry(feed, item, since_epoch) is not None

    def has_any(self, feed: str, items: Sequence[str], since_epoch: int) -> bool:
        """True if any of these items was applied."""
        return any(self.has(feed, item, since_epoch) for item in items)

    def has_record(self, record: str) -> bool:
        """True if an attempt was applied."""
        return any(one.record_id == record for one in self.ledger)

    def in_epoch(self, load: Load, full: Full) -> tuple[str, int] | None:
        """The first entry of a snapshot's epoch or later, in the feeds that the snapshot covers."""
        return self._first(lambda one: one.epoch >= load.epoch and one.feed in (load.feed, *full.covers))

    def beyond(self, feed: str, epoch: int) -> tuple[str, int] | None:
        """The first entry of a feed in a later epoch."""
        return self._first(lambda one: one.epoch > epoch and one.feed == feed)

    def _first(self, wanted: Callable[[Entry], bool]) -> tuple[str, int] | None:
        return min(((one.item, one.epoch) for one in self.ledger if wanted(one)), default=None)


COLUMNS = {"fence_token": "token", "fence_epoch": "epoch", "applied": "applied", "chain": "record"}
"""The guards that are conditions of the fence, and their columns."""
WHY = {
    "marker": (Why.KNOWN,),
    "epoch_unused": (Why.EPOCH_IN_USE,),
    "applied": (Why.BEHIND,),
    "chain": (Why.UNBELIEVED, Why.MANIFEST_BEHIND),
    "snapshot_ahead": (Why.SNAPSHOT_AHEAD,),
}
"""The guards that are reasons for a refusal."""


class Rules:
    """The product's rules, except those that are switched off."""

    def __init__(self, off: frozenset[str]):
        self.off = off
        self._columns = {column for guard, column in COLUMNS.items() if guard in off}
        self._why = {why for guard, whys in WHY.items() for why in whys if guard in off}

    def refusal(self, sink: Sink, load: Load) -> Refusal | None:
        """The reason why a load is refused; None if it may commit, or if no rule gives a reason."""
        load = rules.replacing(load, sink)
        return next((one for one in rules.refusals(load, sink.fence, sink) if self._counts(one, load)), None)

    def _counts(self, refusal: Refusal, load: Load) -> bool:
        if refusal.why is not Why.FENCED:
            return refusal.why not in self._why
        move = rules.lift(load.token, load.epoch) if refusal.feed == load.feed else rules.lift_other(load)
        return not self._may(move, refusal.held)

    def _may(self, move: Move, held: Held) -> bool:
        return all(one.holds(held) for one in move.conditions if one.column not in self._columns)

    def commit(self, sink: Sink, load: Load) -> Sink | None:
        """The sink after a load's transaction; None if it is rolled back."""
        load = rules.replacing(load, sink)
        moves = rules.moves(load)
        if not all(self._may(move, sink.fence(feed)) for feed, move in moves) or self._is_held_back(sink, load):
            return None
        fences, content = list(sink.fences), list(sink.content)
        for feed, move in moves:
            n = sink.feeds.index(feed)
            kept = move._replace(changes=tuple(one for one in move.changes if not self._is_kept(one.column, feed, load)))
            fences[n] = kept.after(fences[n])
            if load.full and feed in load.full.covers:
                content[n] = Content(load.epoch, load.full.boundary)
        n = sink.feeds.index(load.feed)
        before = sink.entry(load.feed, load.item, load.serving_epoch) if load.replaces else None
        if not before or "reload_removes" in self.off:
            content[n] = content[n]._replace(applied=(*content[n].applied, (load.item, load.late)))
        nth = before.nth + 1 if before else 0
        entry = Entry(load.feed, load.item, load.epoch, load.record_id, load.checksum, nth)
        return Sink(sink.feeds, tuple(fences), tuple(content), sink.ledger | {entry})

    def commit_all(self, sink: Sink, loads: Sequence[Load]) -> Sink | None:
        """The sink after a transaction of consecutive loads; None if it is rolled back."""
        first, n, move = loads[0], sink.feeds.index(loads[0].feed), rules.passing_all(loads)
        if "applied_first" in self.off:  # as if the fence had to be before the last item only
            move = move._replace(conditions=tuple(self._of_last(one, loads) for one in move.conditions))
        known = _Blinded(sink, self.off) if self.off & {"marker", "snapshot_ahead"} else sink
        if not self._may(move, sink.fences[n]) or rules.are_held_back(loads, known):
            return None
        applied = (*sink.content[n].applied, *((one.item, False) for one in loads))
        entries = {Entry(one.feed, one.item, one.epoch, one.record_id, one.checksum) for one in loads}
        assert all(one.feed == first.feed for one in loads)
        return Sink(
            sink.feeds,
            put(sink.fences, n, move.after(sink.fences[n])),
            put(sink.content, n, sink.content[n]._replace(applied=applied)),
            sink.ledger | entries,
        )

    def _of_last(self, condition: rules.Condition, loads: Sequence[Load]) -> rules.Condition:
        return condition._replace(value=loads[-1].position) if condition.column == "applied" else condition

    def _is_kept(self, column: str, feed: str, load: Load) -> bool:
        """True if a change of a fence is left out."""
        guard = "snapshot_fences" if feed != load.feed else "fence_moves"
        return column in ("token", "epoch") and guard in self.off

    def _is_held_back(self, sink: Sink, load: Load) -> bool:
        return rules.is_held_back(
            load, _Blinded(sink, self.off) if self.off & {"marker", "epoch_unused", "snapshot_ahead"} else sink
        )


class _Blinded:
    """A ledger that hides what a switched-off guard would ask."""

    def __init__(self, sink: Sink, off: frozenset[str]):
        self._sink, self._off = sink, off

    def entry(self, feed: str, item: str, since_epoch: int) -> Entry | None:
        return self._sink.entry(feed, item, since_epoch)

    def has_record(self, record: str) -> bool:
        return self._sink.has_record(record)

    def has(self, feed: str, item: str, since_epoch: int) -> bool:
        return "marker" not in self._off and self._sink.has(feed, item, since_epoch)

    def has_any(self, feed: str, items: Sequence[str], since_epoch: int) -> bool:
        return "marker" not in self._off and self._sink.has_any(feed, items, since_epoch)

    def in_epoch(self, load: Load, full: Full) -> tuple[str, int] | None:
        return None if "epoch_unused" in self._off else self._sink.in_epoch(load, full)

    def beyond(self, feed: str, epoch: int) -> tuple[str, int] | None:
        return None if "snapshot_ahead" in self._off else self._sink.beyond(feed, epoch)


def raise_fence(sink: Sink, feed: str, token: int, epoch: int) -> Sink | None:
    """The sink after the first step of a takeover: no older worker may commit to the feed. None if the fence is newer."""
    n, move = sink.feeds.index(feed), rules.lift(token, epoch)
    if not move.may(sink.fences[n]):
        return None
    return sink._replace(fences=put(sink.fences, n, move.after(sink.fences[n])))


def put(values: tuple, index: int, value: object) -> tuple:
    """The values with one value replaced."""
    return (*values[:index], value, *values[index + 1 :])
