"""The warehouse as a small pure machine: fence, ledger and content move in one transaction, or nothing does.

Belongs here: the rules of `manifest_platform.warehouse.apply`, and those of a snapshot's commit. The content is what readers
see: the items applied since the last snapshot, in the order in which they were.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Fence(NamedTuple):
    """A feed's newest token, epoch and applied position."""

    token: int = 0
    epoch: int = 1
    applied: str = ""


class Content(NamedTuple):
    """A feed's data: the epoch and boundary of the snapshot beneath, and what was applied onto it (item, whether as late)."""

    epoch: int = 1
    boundary: str = ""
    applied: tuple[tuple[int, bool], ...] = ()


class Sink(NamedTuple):
    """Fence and content by feed, and the ledger: (feed, item, epoch)."""

    fences: tuple[Fence, ...]
    content: tuple[Content, ...]
    ledger: frozenset[tuple[int, int, int]] = frozenset()


class Load(NamedTuple):
    """One item to apply, and on whose authority. `since`: ledger entries of an earlier epoch count no more.

    `covers`: the feeds whose content a snapshot replaces.
    """

    item: int
    feed: int
    position: str
    token: int
    epoch: int
    since: int
    late: bool
    snapshot: bool
    covers: frozenset[int] = frozenset()


class Rules(NamedTuple):
    """Which of the sink's guards are in force."""

    fence_token: bool = True
    fence_epoch: bool = True
    applied: bool = True
    marker: bool = True
    fence_moves: bool = True
    snapshot_fences: bool = True
    epoch_unused: bool = True


Refusal = Literal["epoch", "token", "known", "in use", "behind"]


def refusal(sink: Sink, load: Load, rules: Rules) -> Refusal | None:
    """Why a load may not commit; None where it may."""
    fence = sink.fences[load.feed]
    if rules.fence_epoch and fence.epoch > load.epoch:
        return "epoch"
    if rules.fence_token and fence.token > load.token:
        return "token"
    if rules.marker and entry(sink, load.item, load.since):
        return "known"
    if rules.epoch_unused and load.snapshot and _in_epoch(sink, load):
        return "in use"
    in_order = load.late or load.snapshot
    if rules.applied and not in_order and load.position <= fence.applied:
        return "behind"
    return None


def entry(sink: Sink, item: int, since: int) -> int | None:
    """The newest epoch in which an item was applied, of those from `since` on."""
    return max((epoch for _, known, epoch in sink.ledger if known == item and epoch >= since), default=None)


def _in_epoch(sink: Sink, load: Load) -> bool:
    """Whether something was applied in a snapshot's epoch or later, by its own feed or one that it covers."""
    return any(epoch >= load.epoch and feed in {load.feed, *load.covers} for feed, _, epoch in sink.ledger)


def commit(sink: Sink, load: Load, rules: Rules) -> Sink:
    """The sink after a load of one item onto what is there."""
    fence, content = sink.fences[load.feed], sink.content[load.feed]
    applied = fence.applied if load.late else max(load.position, fence.applied)
    moved = Fence(load.token, load.epoch, applied) if rules.fence_moves else fence._replace(applied=applied)
    after = content._replace(applied=(*content.applied, (load.item, load.late)))
    return Sink(
        put(sink.fences, load.feed, moved),
        put(sink.content, load.feed, after),
        sink.ledger | {(load.feed, load.item, load.epoch)},
    )


def commit_snapshot(sink: Sink, load: Load, rules: Rules, boundary: str) -> Sink:
    """The sink after a snapshot: it replaces the content of the feeds that it covers, and every fence gets its epoch."""
    after = commit(sink, load, rules)
    fences, content = list(after.fences), list(after.content)
    for feed in range(len(fences)):
        if rules.snapshot_fences:
            fences[feed] = fences[feed]._replace(epoch=load.epoch)
        if feed in load.covers:
            fences[feed] = fences[feed]._replace(applied=boundary)
            content[feed] = Content(load.epoch, boundary)
    return Sink(tuple(fences), tuple(content), after.ledger)


def raise_fence(sink: Sink, feed: int, token: int, epoch: int) -> Sink:
    """The sink after a takeover's first step: nothing older may commit to the feed."""
    return sink._replace(fences=put(sink.fences, feed, sink.fences[feed]._replace(token=token, epoch=epoch)))


def put(values: tuple, index: int, value: object) -> tuple:
    """The values with one of them replaced."""
    return (*values[:index], value, *values[index + 1 :])
