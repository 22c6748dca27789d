"""Full loads: beginning, status and cancellation. The loading itself, in order, is done by the drain.

A full load begins a new epoch with a snapshot of the source. One write of the manifest then makes everything that the snapshot
covers be loaded again from the snapshot's stop time, whatever the number of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from manifest_platform import failpoints
from manifest_platform.manifest import (
    Abandoned,
    Application,
    Blocked,
    Item,
    ItemKey,
    Record,
    Refused,
    Standing,
    Verdict,
)
from manifest_platform.manifest.choosing import FIRST_PAGE
from manifest_platform.manifest.dataset import Mode, judge
from manifest_platform.pipeline.chain import broken
from manifest_platform.pipeline.chosen import PassedOver, Waiting, shred_chosen
from manifest_platform.pipeline.events import Event, ItemFailed, Loaded
from manifest_platform.pipeline.loading import Declared, consenting, settling
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.requests import Abandon, Program, ReadState, ask, run
from manifest_platform.pipeline.shredding import OutputGone, listing_of
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.source import SHRED
from manifest_platform.warehouse.consent import refuse_empty
from manifest_platform.warehouse.errors import EmptySnapshot, Fenced, SnapshotAhead, WarehouseError
from manifest_platform.warehouse.load import Full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATEST = "latest"
SNAPSHOTS_SHOWN = 5


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that has landed. `stop`: the time it was taken. `standing`: its standing for the load."""

    item: str
    stop: str
    shredded: bool
    standing: str


@dataclass(frozen=True)
class FullStatus:
    """The state of a dataset's full loads.

    `mode`, `epoch`, `boundary`: the manifest's. `loading`: the snapshot whose full load is in progress. `needed`: the reason
    why a full load is needed, empty if it is not; `remedy`: what to do then. `snapshots`: the newest, newest first.
    """

    dataset: str
    mode: str
    epoch: int
    boundary: str | None
    loading: str | None
    needed: str
    remedy: Remedy | None
    watermarks: dict[str, str]
    snapshots: tuple[Snapshot, ...]


@dataclass(frozen=True)
class Begun:
    """A full load was begun: its snapshot, its epoch and its boundary."""

    key: ItemKey
    epoch: int
    boundary: str


def full_feed(pipeline: Pipeline) -> str:
    """Returns the feed of a dataset's snapshots. Raises Refused if the dataset has none."""
    for feed in pipeline.feeds:
        if pipeline.manifest.step(feed, pipeline.load.key).order == "full":
            return feed
    raise Refused(f"dataset {pipeline.name} has no snapshots, so it cannot be loaded in full")


def chosen_snapshot(pipeline: Pipeline, item: str) -> ItemKey:
    """Returns the key of a snapshot by its name, its URI, or `latest`. Raises Refused if there is no such snapshot."""
    feed = full_feed(pipeline)
    if item != LATEST:
        key = pipeline.key(item)
        if key.feed != feed:
            raise Refused(f"{key.name} is not a snapshot. A full load begins with an item of feed {feed}")
        return key
    for found in pipeline.manifest.items(feed, reverse=True):
        if not found.skipped_for(pipeline.load):
            return found.key
    raise Refused(f"no snapshot of dataset {pipeline.name} has landed", Remedy(Action.CAPTURE))


def begin(
    pipeline: Pipeline, spark: Callable[[], SparkSession], item: str, reason: str, allows: Collection[str] = ()
) -> Iterator[Event | Begun]:
    """Begins a full load, after shredding the snapshot if necessary. Yields events, and finally Begun.

    `allows`: the operator's consents, from `empty` and `shrink`. Raises Refused if a full load is in progress, if there is no
    such snapshot, if it cannot be shredded, and if the latest snapshot is too old to solve the problem.
    """
    key = chosen_snapshot(pipeline, item)
    if item == LATEST and remedy(pipeline).action is Action.CAPTURE_SNAPSHOT:
        raise Refused(
            f"{key.name} was taken before the problem that stops the changes ({_to_contain(pipeline)}), so they would stop"
            " there again. Capture a newer snapshot. To load this snapshot anyway, give its name",
            remedy(pipeline),
        )
    state = pipeline.manifest.state(pipeline.load)
    if state.mode is Mode.FULL_LOAD and state.full:
        raise Refused(
            f"a full load with {ItemKey.at(key.feed, state.full).name} is in progress: drain to finish it, or cancel it",
            Remedy(Action.CANCEL_FULL_LOAD, target=pipeline.load.instance or ""),
        )
    if not pipeline.manifest.item(key).processed_by(Application(SHRED)):
        for event in shred_chosen(pipeline, spark, [key]):
            if isinstance(event, PassedOver | Waiting):
                continue  # the snapshot is not skipped, and this does not wait for anybody
            yield event
            if isinstance(event, ItemFailed):
                raise Refused(
                    f"{key.name} cannot be shredded, so no full load was begun: {event.failure.message}. Correct this first",
                    event.failure.remedy_for(key.name),
                )
    _refuse_empty(pipeline, key, allows)
    record = pipeline.manifest.begin_full_load(
        key, pipeline.load.key, reason, above=_newest_epoch(pipeline), allows=sorted(allows)
    )
    failpoints.reach("full.begun")
    landed = pipeline.manifest.item(key).landed
    yield Begun(key, record.epoch or 0, landed.stop or "" if landed else "")


def _refuse_empty(pipeline: Pipeline, key: ItemKey, allows: Collection[str]) -> None:
    """Raises Refused for an empty snapshot without consent. The drain checks whether tables shrink."""
    try:
        listing = listing_of(pipeline.manifest.item(key))
    except OutputGone:
        return  # the drain reports this with its remedy
    full = Full("", (), (), limits=pipeline.source.limits, allows=frozenset(allows))
    try:
        refuse_empty(key.name, listing, full)
    except EmptySnapshot as error:
        raise Refused(f"{error}. No full load was begun", consenting(error.consent, key.name)) from error


def _newest_epoch(pipeline: Pipeline) -> int:
    """Returns the newest epoch that the warehouse has seen; 0 if it cannot be asked now, for example during a drain.

    In that case the fence refuses an old epoch; the full load can then be canceled and begun again.
    """
    try:
        return pipeline.newest_epoch()
    except WarehouseError:
        return 0


def cancel(pipeline: Pipeline, reason: str) -> Record:
    """Cancels the full load in progress, before its snapshot is in the warehouse. Earlier loads stay valid.

    Raises Refused if no full load is in progress, or if the warehouse has the snapshot already; LeaseBusy while a worker loads
    it; Unavailable if the warehouse cannot be asked.
    """
    feed = full_feed(pipeline)
    if pipeline.manifest.state(pipeline.load).mode is not Mode.FULL_LOAD:
        raise Refused(f"dataset {pipeline.name} has no full load in progress: there is nothing to cancel")
    with pipeline.lease(feed, pipeline.load.key) as lease:
        # A ledger counts only if it has the believed record: a warehouse that was set back may lack this very snapshot.
        if found := broken(pipeline, patient=True, snapshots=True):
            raise Refused(f"it is unknown whether the snapshot is loaded: {found[0].reason}. Let the full load finish first")
        verdict = next(pipeline.manifest.verdicts(lease))
        program = settling_to_cancel(Declared.by(pipeline), verdict) if isinstance(verdict, Abandoned) else None
        if program and (settled := run(program, pipeline, lease)):
            raise Refused(f"{settled.key.name} is in the warehouse already: the full load is done and cannot be canceled")
        return pipeline.manifest.cancel_full_load(lease, reason)


def settling_to_cancel(declared: Declared, abandoned: Abandoned) -> Program[Loaded | None]:
    """The program that ends an interrupted load. If the fence holds a later epoch, nobody can commit it any more."""
    state = yield from ask(ReadState())
    try:
        return (yield from settling(declared, abandoned))
    except Fenced as fenced:
        if fenced.epoch <= state.epoch:
            raise
    yield from ask(Abandon(abandoned))
    return None


def full_status(pipeline: Pipeline, now: datetime | None = None) -> FullStatus:
    """Returns the state of a dataset's full loads. Raises Refused for a dataset without snapshots."""
    feed = full_feed(pipeline)
    step, state = pipeline.manifest.step(feed, pipeline.load.key), pipeline.manifest.state(pipeline.load)
    seen = state.seen_by(step, feed)
    snapshots = tuple(
        Snapshot(
            one.key.name,
            (one.landed.stop if one.landed else None) or one.key.sort,
            one.processed_by(Application(SHRED)) is not None,
            str(judge(one, step, seen).standing),
        )
        for one in islice(pipeline.manifest.items(feed, reverse=True), SNAPSHOTS_SHOWN)
    )
    needed = why_needed(pipeline, now or pipeline.clock())
    return FullStatus(
        pipeline.name,
        state.mode,
        state.epoch,
        state.boundary,
        ItemKey.at(feed, state.full).name if state.full else None,
        needed,
        remedy(pipeline) if needed else None,
        {name: state.feed(name).watermark.partition("#")[0] for name in pipeline.feeds if name != feed},
        snapshots,
    )


def why_needed(pipeline: Pipeline, now: datetime) -> str:
    """Returns the reason why a dataset needs a full load; empty if it needs none, or if a full load is in progress."""
    step = pipeline.manifest.step(full_feed(pipeline), pipeline.load.key)
    state = pipeline.manifest.state(pipeline.load)
    if state.mode is Mode.FULL_LOAD:
        return ""
    for feed in step.covers:
        if pipeline.manifest.step(feed, pipeline.load.key).needs_full and not state.feed(feed).boundary:
            return f"no snapshot was loaded yet that the windows of {feed} could follow"
        verdict = pipeline.manifest.next(feed, pipeline.load.key)
        if stuck := _stuck(verdict):
            return f"{stuck.key.name} failed, and its changes can only be loaded with a snapshot"
        gap = _gap(pipeline, verdict)
        missing = pipeline.source.time(gap.begins) if gap else None
        kept = pipeline.source.retention
        if gap and missing and kept and now - missing > kept:
            return f"the window from {gap.begins} is missing, and the source keeps windows for {kept.days} days only"
    return ""


def remedy(pipeline: Pipeline) -> Remedy:
    """Returns the next step if a full load is needed. The snapshot must contain the cause that stops a covered feed."""
    feed = full_feed(pipeline)
    newest = next((one for one in pipeline.manifest.items(feed, reverse=True) if not one.skipped_for(pipeline.load)), None)
    stop = newest.landed.stop if newest and newest.landed else None
    if stop is None or stop < _to_contain(pipeline):
        return Remedy(Action.CAPTURE_SNAPSHOT, feed=feed)
    return Remedy(Action.BEGIN_FULL_LOAD, target=pipeline.load.instance or "")


def _to_contain(pipeline: Pipeline) -> str:
    """Returns the earliest stop time of a snapshot that lets the covered feeds continue; empty if nothing stops them."""
    upto = ""
    for feed in pipeline.manifest.step(full_feed(pipeline), pipeline.load.key).covers:
        verdict = pipeline.manifest.next(feed, pipeline.load.key)
        gap, stuck = _gap(pipeline, verdict), _stuck(verdict)
        landed = stuck.landed if stuck and not _met_a_snapshot(stuck) else None
        upto = max(upto, gap.ends if gap else "", (landed.stop or "") if landed else "")
    return upto


def _stuck(verdict: Verdict) -> Item | None:
    """Returns the item that stops a feed until a full load, for example because a column changed its type; else None."""
    if isinstance(verdict, Blocked) and verdict.standing is Standing.FAILED and verdict.remedy.action is Action.BEGIN_FULL_LOAD:
        return verdict.item
    return None


def _met_a_snapshot(stuck: Item) -> bool:
    """True if an item failed because of a snapshot that the manifest forgot. It then continues after any snapshot."""
    blocker = stuck.blocker()
    return blocker is not None and blocker.data.get("exception") == SnapshotAhead.__name__


@dataclass(frozen=True)
class _Gap:
    """The period for which a feed has no window."""

    begins: str
    ends: str


def _gap(pipeline: Pipeline, verdict: Verdict) -> _Gap | None:
    """Returns the gap that blocks a feed; None if none does."""
    if not isinstance(verdict, Blocked) or verdict.standing is not Standing.GAP or verdict.item.landed is None:
        return None
    feed = verdict.item.key.feed
    before = next(pipeline.manifest.items(feed, after=verdict.item.key.position, page=FIRST_PAGE, reverse=True), None)
    stops = [pipeline.manifest.state(pipeline.load).boundary, before.landed.stop if before and before.landed else None]
    return _Gap(max((stop for stop in stops if stop), default=""), verdict.item.landed.start or verdict.item.key.sort)
