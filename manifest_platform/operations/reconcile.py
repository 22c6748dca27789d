"""Reconciling: a manifest goes on with a warehouse that was set back, emptied, or replaced on purpose.

Two verbs. `reconcile` has everything loaded again that the ledger lacks: each such item is reopened by a write of its own,
while all loads are refused, so a crash in between is harmless; the last write believes the fence's record. `accept` takes the
warehouse as it is: nothing is loaded again. Both work under the lease, with the fence raised first, so that no paused worker
commits beside them. A snapshot that is lost takes a full load: changes by key cannot be laid onto an empty base.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from manifest_platform.manifest import Application, Item, ItemKey, Lease, Record, Refused, State, StepState, UnknownItem
from manifest_platform.manifest.dataset import BEYOND_IDS, Mode, SinkState, position_name
from manifest_platform.pipeline import LOAD, Pipeline
from manifest_platform.pipeline.chain import broken
from manifest_platform.pipeline.loading import Declared, above_fence
from manifest_platform.pipeline.requests import Program, RaiseFence, ReadState, Request, ask, run
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.apply import LedgerEntry, Warehouse
from manifest_platform.warehouse.rules import Held

PAGE = 200
"""Items that are looked for at once, and then reopened."""


@dataclass(frozen=True)
class Lacking:
    """An item that the ledger lacks though the manifest has it done, or had it done until a reconcile that was interrupted.

    `before`: the position of the item before it. `freed`: it is reopened already.
    """

    key: ItemKey
    before: str
    freed: bool = False


@dataclass(frozen=True)
class Reconciled:
    """What was done, or would be, about a feed. `lost`: the snapshot that is lost; then nothing else was done.

    `watermark`: what the manifest believes to be loaded now, as people name it; empty for nothing.
    """

    feed: str
    freed: tuple[ItemKey, ...] = ()
    lost: str = ""
    watermark: str = ""


# What is asked


@dataclass(frozen=True)
class AskRecord(Request["LedgerEntry | None"]):
    """The ledger's entry of a record."""

    record: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> LedgerEntry | None:
        return pipeline.warehouse.entry_of(self.record) if self.record else None


@dataclass(frozen=True)
class AskSnapshot(Request[bool]):
    """Whether the ledger has a snapshot of this epoch or a later one."""

    feed: str
    since_epoch: int

    def __call__(self, pipeline: Pipeline, lease: Lease) -> bool:
        return has_snapshot(pipeline.warehouse, self.feed, self.since_epoch)


@dataclass(frozen=True)
class FindLacking(Request[list[Lacking]]):
    """The next items beyond a position that the ledger lacks, some at most; none at the end."""

    after: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> list[Lacking]:
        return list(islice(lacking(pipeline, pipeline.warehouse, lease.feed, self.after), PAGE))


@dataclass(frozen=True)
class Free(Request[Record]):
    """Reopens an item, under the lease. Raises LeaseLost, Refused."""

    key: ItemKey
    reason: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Record:
        return pipeline.manifest.free(lease, self.key, self.reason)


@dataclass(frozen=True)
class ReadFence(Request[Held]):
    """Reads the fence of the lease's feed."""

    def __call__(self, pipeline: Pipeline, lease: Lease) -> Held:
        return pipeline.warehouse.fence_row(lease.feed)


@dataclass(frozen=True)
class AskStop(Request["str | None"]):
    """Where the window at a position of the lease's feed stops. Raises Refused for an item that the manifest does not know."""

    position: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> str | None:
        return stop_at(pipeline, lease.feed, self.position)


@dataclass(frozen=True)
class BelieveSink(Request[None]):
    """Has the manifest believe the warehouse, in one write under the lease. Raises LeaseLost, Refused.

    `accepts`: the warehouse is taken as it is, so what it lacks of all that was loaded so far stays out.
    """

    sink: SinkState
    instead_of: str
    accepts: bool = False

    def __call__(self, pipeline: Pipeline, lease: Lease) -> None:
        pipeline.manifest.believe_sink(lease, self.sink, self.instead_of, self.accepts)


# The programs


def reconciling(declared: Declared, feed: str, reason: str) -> Program[Reconciled]:
    """The program of `reconcile` for one feed, under its lease."""
    state: StepState = yield from ask(ReadState())
    believed = state.feed(feed).believed
    yield from above_fence(RaiseFence(state.epoch), state.epoch)
    if not believed or (yield from ask(AskRecord(believed))):
        return Reconciled(feed, watermark=position_name(feed, state.feed(feed).watermark))  # by another one, meanwhile
    if lost := (yield from _lost_snapshot(declared, feed, state)):
        return Reconciled(feed, lost=lost)
    held = yield from ask(ReadFence())
    stop = yield from ask(AskStop(held.applied))  # before anything is reopened: where this is refused, nothing was begun
    freed: list[ItemKey] = []
    swept, after = BEYOND_IDS, ""
    while found := (yield from ask(FindLacking(after))):
        for one in found:
            if not one.freed:
                yield from ask(Free(one.key, reason))
            freed.append(one.key)
        swept, after = min(swept, found[0].before), found[-1].key.position
    yield from ask(BelieveSink(SinkState(held.record, held.applied, stop, swept), believed))
    return Reconciled(feed, tuple(freed), watermark=position_name(feed, held.applied))


def accepting(declared: Declared, feed: str) -> Program[Reconciled]:
    """The program of `accept` for one feed, under its lease: what was loaded counts on, what comes next is laid upon it."""
    state: StepState = yield from ask(ReadState())
    standing = state.feed(feed)
    yield from above_fence(RaiseFence(state.epoch), state.epoch)
    if not standing.believed or (yield from ask(AskRecord(standing.believed))):
        return Reconciled(feed, watermark=position_name(feed, standing.watermark))
    lost = yield from _lost_snapshot(declared, feed, state)
    held = yield from ask(ReadFence())
    freed: list[ItemKey] = []
    swept, after = standing.swept, ""
    while found := (yield from ask(FindLacking(after))):
        for one in found:
            if one.freed:  # by a reconcile that was interrupted: nobody else looks behind the watermark
                freed.append(one.key)
                swept = min(swept, one.before)
        after = found[-1].key.position
    there = SinkState(held.record, standing.watermark, standing.stop, swept, bool(lost))
    yield from ask(BelieveSink(there, standing.believed, accepts=True))
    return Reconciled(feed, tuple(freed), watermark=position_name(feed, standing.watermark), lost=lost)


def _lost_snapshot(declared: Declared, feed: str, state: StepState) -> Program[str]:
    """The stop time of the snapshot that a feed follows and the ledger lacks; empty where there is none."""
    snapshots = declared.snapshots_of(feed)
    if snapshots is None or not state.feed(feed).boundary:
        return ""
    has = yield from ask(AskSnapshot(snapshots, state.feed(feed).serving_epoch))
    return "" if has else state.boundary or ""


# The verbs


def reconcile(pipeline: Pipeline, reason: str) -> Iterator[Reconciled]:
    """Has all loaded again that the warehouse lacks, feed by feed; yields what was done about each whose chain is broken.

    Raises Refused while a full load is in progress, LeaseBusy while somebody loads, Unavailable.
    """
    declared = Declared.by(pipeline)
    for feed in _broken_feeds(pipeline):
        with pipeline.lease(feed, LOAD) as lease:
            yield run(reconciling(declared, feed, reason), pipeline, lease)


def would_reconcile(pipeline: Pipeline) -> Iterator[Reconciled]:
    """What `reconcile` would do. Writes nothing. Raises as `reconcile`."""
    declared = Declared.by(pipeline)
    state = pipeline.manifest.state(Application(LOAD))
    for feed in _broken_feeds(pipeline):
        standing, snapshots = state.feed(feed), declared.snapshots_of(feed)
        if snapshots and standing.boundary and not has_snapshot(pipeline.warehouse, snapshots, standing.serving_epoch):
            yield Reconciled(feed, lost=state.boundary or "")
            continue
        found = tuple(one.key for one in lacking(pipeline, pipeline.warehouse, feed, ""))
        applied = pipeline.warehouse.fence_row(feed).applied if feed in pipeline.warehouse.fence_records() else ""
        stop_at(pipeline, feed, applied)
        yield Reconciled(feed, found, watermark=position_name(feed, applied))


def accept(pipeline: Pipeline, reason: str) -> Iterator[Reconciled]:
    """Takes the warehouse as it is, on purpose: nothing is loaded again, and what comes next goes onto what is there.

    What follows snapshots waits for a full load where the warehouse lacks the snapshot. The reason is kept as a record of the
    newest item that was loaded. Raises as `reconcile`.
    """
    declared = Declared.by(pipeline)
    for feed in _broken_feeds(pipeline):
        newest = pipeline.manifest.state(Application(LOAD)).feed(feed).watermark
        with pipeline.lease(feed, LOAD) as lease:
            done = run(accepting(declared, feed), pipeline, lease)
        with contextlib.suppress(UnknownItem):  # a watermark may be a snapshot's boundary
            pipeline.manifest.note(ItemKey.at(feed, newest), f"the warehouse was accepted as it is: {reason}")
        yield done


def _broken_feeds(pipeline: Pipeline) -> list[str]:
    """The feeds whose chain is broken, those of snapshots not among them: a full load replaces what they lack."""
    state = pipeline.manifest.state(Application(LOAD))
    if state.mode is not Mode.INCREMENTAL:
        raise Refused(
            f"dataset {pipeline.name} is loading a snapshot in full, which replaces what the warehouse lacks: let it end",
            Remedy(Action.DRAIN),
        )
    return [one.feed for one in broken(pipeline, patient=True)]


# What manifest and warehouse say


def lacking(pipeline: Pipeline, warehouse: Warehouse, feed: str, after: str) -> Iterator[Lacking]:
    """The items beyond a position of which manifest and ledger differ, in order. Reads the two side by side.

    What a paused worker committed onto a warehouse that was set back is in the ledger, and the manifest may not have it done:
    it is reopened too, and the next load finds that it was applied. What is open is settled by the next holder of the lease.
    What was imported from another manifest was never in this ledger: its records have no token. What was loaded before
    the warehouse was accepted as it is may be in none: it stays out.
    """
    standing = pipeline.manifest.state(Application(LOAD)).feed(feed)
    serving, accepted = standing.serving_epoch, standing.accepted
    entries = warehouse.ledger(feed, serving, after)
    entry, before = next(entries, None), after
    for item in pipeline.manifest.items(feed, after=after):
        while entry and entry.position < item.key.position:
            entry = next(entries, None)
        record = item.processed_by(Application(LOAD), serving)
        has = entry is not None and entry.position == item.key.position
        if record is None and any(LOAD in one.data.get("reopens", ()) for one in item.records):
            yield Lacking(item.key, before, freed=True)  # where the ledger has it too: the next load finds that out
        elif ((record.token or 0) > accepted and not has) if record else (has and _is_free(item, serving)):
            yield Lacking(item.key, before)
        before = item.key.position


def _is_free(item: Item, serving: int) -> bool:
    """Whether nobody works on an item, and no operator has it passed over."""
    blocker = item.blocker({LOAD: serving})
    open_claim = blocker is not None and blocker.state is State.PROCESSING
    return not open_claim and item.skipped_for(Application(LOAD)) is None


def has_snapshot(warehouse: Warehouse, feed: str, since_epoch: int) -> bool:
    """Whether the ledger has a snapshot of this epoch or a later one."""
    return next(warehouse.ledger(feed, since_epoch), None) is not None


def stop_at(pipeline: Pipeline, feed: str, position: str) -> str | None:
    """Where the window at a position stops: of an item, of a snapshot's boundary; None for nothing.

    Raises Refused for an item that the manifest does not know: it was set back too, and must find it first; or the warehouse is
    another one's.
    """
    if not position:
        return None
    if position.endswith(f"#{BEYOND_IDS}"):
        return position.partition("#")[0]
    key = ItemKey.at(feed, position)
    try:
        landed = pipeline.manifest.item(key).landed
    except UnknownItem as error:
        if not pipeline.source.holds(key.id):
            raise Refused(
                f"the newest load of feed {feed} in the warehouse, {key.id}, was never made by this manifest: it is another"
                " one, and nothing is loaded again",
                Remedy(Action.ACCEPT_WAREHOUSE),
            ) from error
        raise Refused(
            f"the warehouse has {key.name}, and the manifest does not know it: both were set back", Remedy(Action.DISCOVER_ALL)
        ) from error
    return landed.stop if landed else None
