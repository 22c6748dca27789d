"""Reconciling: the manifest continues with a warehouse that was set back, emptied, or replaced on purpose.

`reconcile` makes the feed load everything again that the ledger lacks. It reopens each such item by a write of its own, while
all loads are refused, so a crash in between is harmless. The last write stores the fence's record as the record that was
applied last. `accept` takes the warehouse as it is, without loading anything again; `operations.accept` is another operation,
on a rewritten directory. Both operations here hold the lease and raise the fence first, so that no paused worker can commit
concurrently. A lost snapshot requires a full load, because changes by key cannot be applied to an empty base.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from manifest_platform.manifest import Item, ItemKey, Lease, Record, Refused, State, StepState, UnknownItem
from manifest_platform.manifest.dataset import BEYOND_IDS, Mode, SinkState, position_name
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.chain import broken
from manifest_platform.pipeline.loading import Declared, above_fence, is_applied
from manifest_platform.pipeline.requests import Program, RaiseFence, ReadState, Request, ask, run
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.apply import LedgerEntry, Warehouse
from manifest_platform.warehouse.rules import Held

PAGE = 200
"""The number of items that are searched for, and then reopened, at a time."""


@dataclass(frozen=True)
class Lacking:
    """An item that is done in the manifest and absent from the ledger.

    `before`: the position of the preceding item. `freed`: true if an interrupted reconcile has reopened the item already.
    """

    key: ItemKey
    before: str
    freed: bool = False


@dataclass(frozen=True)
class Reconciled:
    """The result for a feed, or its dry run. `lost`: the stop time of a lost snapshot; then nothing was reopened.

    `watermark`: the newest item that the manifest now believes to be loaded, by name; empty if there is none.
    """

    feed: str
    freed: tuple[ItemKey, ...] = ()
    lost: str = ""
    watermark: str = ""


# Requests


@dataclass(frozen=True)
class AskRecord(Request["LedgerEntry | None"]):
    """Reads the ledger's entry of a record; None if there is none."""

    record: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> LedgerEntry | None:
        return pipeline.warehouse.entry_of(self.record) if self.record else None


@dataclass(frozen=True)
class AskSnapshot(Request[bool]):
    """True if the ledger has a snapshot of this epoch or of a later epoch."""

    feed: str
    since_epoch: int

    def __call__(self, pipeline: Pipeline, lease: Lease) -> bool:
        return has_snapshot(pipeline.warehouse, self.feed, self.since_epoch)


@dataclass(frozen=True)
class FindLacking(Request[list[Lacking]]):
    """Finds the next items after a position that the ledger lacks, at most `PAGE`; empty at the end."""

    after: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> list[Lacking]:
        return list(islice(lacking(pipeline, pipeline.warehouse, lease.feed, self.after), PAGE))


@dataclass(frozen=True)
class Free(Request[Record]):
    """Reopens an item under the lease. Raises LeaseLost, Refused."""

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
    """Reads the stop time of the window at a position of the lease's feed. Raises Refused if the manifest lacks the item."""

    position: str

    def __call__(self, pipeline: Pipeline, lease: Lease) -> str | None:
        return stop_at(pipeline, lease.feed, self.position)


@dataclass(frozen=True)
class BelieveSink(Request[None]):
    """Makes the manifest believe the warehouse, in one write under the lease. Raises LeaseLost, Refused.

    `accepts`: the warehouse is taken as it is, so anything loaded so far that it lacks is not loaded again.
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
        return Reconciled(feed, watermark=position_name(feed, state.feed(feed).watermark))  # done meanwhile by somebody else
    if lost := (yield from _lost_snapshot(declared, feed, state)):
        return Reconciled(feed, lost=lost)
    held = yield from ask(ReadFence())
    stop = yield from ask(AskStop(held.applied))  # before anything is reopened, so that a refusal leaves no trace
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
    """The program of `accept` for one feed, under its lease: earlier loads stay valid, and later loads build on them."""
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
            if one.freed:  # by an interrupted reconcile; no other step looks behind the watermark
                freed.append(one.key)
                swept = min(swept, one.before)
        after = found[-1].key.position
    there = SinkState(held.record, standing.watermark, standing.stop, swept, bool(lost))
    yield from ask(BelieveSink(there, standing.believed, accepts=True))
    return Reconciled(feed, tuple(freed), watermark=position_name(feed, standing.watermark), lost=lost)


def _lost_snapshot(declared: Declared, feed: str, state: StepState) -> Program[str]:
    """Returns the stop time of the snapshot that a feed follows and that the ledger lacks; empty if it lacks none."""
    snapshots = declared.snapshots_of(feed)
    if snapshots is None or not state.feed(feed).boundary:
        return ""
    has = yield from ask(AskSnapshot(snapshots, state.feed(feed).serving_epoch))
    return "" if has else state.boundary or ""


# Entry points


def reconcile(pipeline: Pipeline, reason: str) -> Iterator[Reconciled]:
    """Reopens everything that the warehouse lacks, feed by feed. Yields a result for each feed whose chain is broken.

    Raises Refused while a full load is in progress, LeaseBusy while somebody loads, Unavailable.
    """
    declared = Declared.by(pipeline)
    for feed in _broken_feeds(pipeline):
        with pipeline.lease(feed, pipeline.load.key) as lease:
            yield run(reconciling(declared, feed, reason), pipeline, lease)


def would_reconcile(pipeline: Pipeline) -> Iterator[Reconciled]:
    """Yields the results that `reconcile` would have, without writing anything. Raises as `reconcile`."""
    declared = Declared.by(pipeline)
    state = pipeline.manifest.state(pipeline.load)
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
    """Accepts the warehouse as it is: nothing is loaded again, and later loads build on its present content.

    A feed that follows snapshots waits for a full load if the warehouse lacks the snapshot. The reason is kept as a record of
    the newest loaded item. Raises as `reconcile`.
    """
    declared = Declared.by(pipeline)
    for feed in _broken_feeds(pipeline):
        newest = pipeline.manifest.state(pipeline.load).feed(feed).watermark
        with pipeline.lease(feed, pipeline.load.key) as lease:
            done = run(accepting(declared, feed), pipeline, lease)
        with contextlib.suppress(UnknownItem):  # a watermark may be a snapshot's boundary
            pipeline.manifest.note(ItemKey.at(feed, newest), f"the warehouse was accepted as it is: {reason}")
        yield done


def _broken_feeds(pipeline: Pipeline) -> list[str]:
    """Returns the feeds whose chain is broken, without feeds of snapshots: a full load replaces the content of those."""
    state = pipeline.manifest.state(pipeline.load)
    if state.mode is not Mode.INCREMENTAL:
        raise Refused(
            f"dataset {pipeline.name} is loading a snapshot in full, which replaces the missing rows: let the full load finish",
            Remedy(Action.DRAIN),
        )
    return [one.feed for one in broken(pipeline, patient=True)]


# Differences between manifest and warehouse


def lacking(pipeline: Pipeline, warehouse: Warehouse, feed: str, after: str) -> Iterator[Lacking]:
    """Yields the items after a position on which manifest and ledger differ, in order. Reads both side by side.

    A paused worker may have committed an item onto a warehouse that was set back, so that the ledger has it and the manifest
    does not. It is reopened too, and the next load finds that it was applied. An open claim is left for the next holder of
    the lease to settle. An imported item was never in this ledger, and its records have no token. An item loaded before the
    warehouse was accepted as it is may be in no ledger, and is not loaded again. An item that was reloaded lacks its newest
    rows, if the ledger has it only from before.
    """
    standing = pipeline.manifest.state(pipeline.load).feed(feed)
    serving, accepted = standing.serving_epoch, standing.accepted
    entries = warehouse.ledger(feed, serving, after)
    entry, before = next(entries, None), after
    for item in pipeline.manifest.items(feed, after=after):
        while entry and entry.position < item.key.position:
            entry = next(entries, None)
        record = item.processed_by(pipeline.load, serving)
        mine = entry if entry and entry.position == item.key.position else None
        has = is_applied(item, pipeline.load, mine)
        if record is None and any(pipeline.load.key in one.data.get("reopens", ()) for one in item.records):
            yield Lacking(item.key, before, freed=True)  # if the ledger has it too, the next load finds that out
        elif ((record.token or 0) > accepted and not has) if record else (has and _is_free(pipeline, item, serving)):
            yield Lacking(item.key, before)
        before = item.key.position


def _is_free(pipeline: Pipeline, item: Item, serving: int) -> bool:
    """True if nobody works on an item and no operator has skipped it."""
    step = pipeline.manifest.step(item.key.feed, pipeline.load.key)
    blocker = item.blocker({pipeline.load.key: serving}, step.is_blocked_by)
    open_claim = blocker is not None and blocker.state is State.PROCESSING
    return not open_claim and item.skipped_for(pipeline.load) is None


def has_snapshot(warehouse: Warehouse, feed: str, since_epoch: int) -> bool:
    """True if the ledger has a snapshot of this epoch or of a later epoch."""
    return next(warehouse.ledger(feed, since_epoch), None) is not None


def stop_at(pipeline: Pipeline, feed: str, position: str) -> str | None:
    """Returns the stop time of the window at a position, or of a snapshot's boundary; None for an empty position.

    Raises Refused if the manifest does not know the item: either the manifest was set back too and must discover the item
    first, or the warehouse belongs to another manifest.
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
                f"the newest load of feed {feed} in the warehouse, {key.id}, was never made by this manifest. It belongs to"
                " another manifest, so nothing is loaded again",
                Remedy(Action.ACCEPT_WAREHOUSE),
            ) from error
        raise Refused(
            f"the warehouse has {key.name}, and the manifest does not know it: both were set back. Discover the item first",
            Remedy(Action.DISCOVER_ALL),
        ) from error
    return landed.stop if landed else None
