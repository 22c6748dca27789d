"""Full loads: begun, looked at, cancelled. What is loaded then, and in which order, is the drain's matter.

A full load begins a new epoch with a snapshot of the source. Everything that the snapshot covers is loaded anew from its stop
time on, by one write of the manifest, however many windows that are.
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
from manifest_platform.manifest.dataset import Mode, judge
from manifest_platform.manifest.manifest import FIRST_PAGE
from manifest_platform.pipeline.chain import broken
from manifest_platform.pipeline.chosen import PassedOver, Waiting, shred_chosen
from manifest_platform.pipeline.events import Event, ItemFailed, Loaded
from manifest_platform.pipeline.loading import Declared, consenting, settling
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.requests import Abandon, Program, ReadState, ask, run
from manifest_platform.pipeline.shredding import OutputGone, listing_of
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.source import LOAD, SHRED
from manifest_platform.warehouse.consent import refuse_empty
from manifest_platform.warehouse.errors import EmptySnapshot, Fenced, SnapshotAhead, WarehouseError
from manifest_platform.warehouse.load import Full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATEST = "latest"
SNAPSHOTS_SHOWN = 5


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that has landed. `stop`: when it was taken. `standing`: how it stands with loading."""

    item: str
    stop: str
    shredded: bool
    standing: str


@dataclass(frozen=True)
class FullStatus:
    """How a dataset stands with full loads.

    `mode`, `epoch`, `boundary`: the manifest's. `loading`: the snapshot that is to be loaded now. `needed`: why a full load
    must be begun, empty where none need be; `remedy`: what comes next then. `snapshots`: the newest that have landed, newest
    first.
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
    """A full load was begun: with which snapshot, in which epoch."""

    key: ItemKey
    epoch: int
    boundary: str


def full_feed(pipeline: Pipeline) -> str:
    """The feed of a dataset's snapshots. Raises Refused for a dataset without."""
    for feed in pipeline.feeds:
        if pipeline.manifest.step(feed, LOAD).order == "full":
            return feed
    raise Refused(f"dataset {pipeline.name} has no snapshots: there is nothing to load in full")


def chosen_snapshot(pipeline: Pipeline, item: str) -> ItemKey:
    """The key of the snapshot meant, by its name, its URI, or as the `latest` one. Raises Refused where there is none."""
    feed = full_feed(pipeline)
    if item != LATEST:
        key = pipeline.key(item)
        if key.feed != feed:
            raise Refused(f"{key.name} is no snapshot: a full load is begun with one of feed {feed}")
        return key
    for found in pipeline.manifest.items(feed, reverse=True):
        if not found.skipped_for(Application(LOAD)):
            return found.key
    raise Refused(f"dataset {pipeline.name} has no snapshot in hand", Remedy(Action.CAPTURE))


def begin(
    pipeline: Pipeline, spark: Callable[[], SparkSession], item: str, reason: str, allows: Collection[str] = ()
) -> Iterator[Event | Begun]:
    """Begins a full load, after shredding the snapshot if that is still to be done. Yields what happens, last what was begun.

    `allows`: what the operator lets this full load do, of `empty` and `shrink`. Raises Refused while another is in progress,
    where there is no snapshot, for one that cannot be shredded, and for the latest
    one where that would not help.
    """
    key = chosen_snapshot(pipeline, item)
    if item == LATEST and remedy(pipeline).action is Action.CAPTURE_SNAPSHOT:
        raise Refused(
            f"{key.name} was taken before what stops the changes ({_to_contain(pipeline)}), so that they would stop there "
            "again: a newer snapshot is needed. To load this one all the same, name it",
            remedy(pipeline),
        )
    state = pipeline.manifest.state(Application(LOAD))
    if state.mode is Mode.FULL_LOAD and state.full:
        raise Refused(
            f"a full load with {ItemKey.at(key.feed, state.full).name} is in progress: drain, or cancel it",
            Remedy(Action.CANCEL_FULL_LOAD),
        )
    if not pipeline.manifest.item(key).processed_by(Application(SHRED)):
        for event in shred_chosen(pipeline, spark, [key]):
            if isinstance(event, PassedOver | Waiting):
                continue  # the snapshot is not skipped, and nobody is waited for
            yield event
            if isinstance(event, ItemFailed):
                raise Refused(
                    f"{key.name} cannot be shredded, so no full load was begun: {event.failure.message}. Mend that",
                    event.failure.remedy_for(key.name),
                )
    _refuse_empty(pipeline, key, allows)
    record = pipeline.manifest.begin_full_load(key, LOAD, reason, above=_newest_epoch(pipeline), allows=sorted(allows))
    failpoints.reach("full.begun")
    landed = pipeline.manifest.item(key).landed
    yield Begun(key, record.epoch or 0, landed.stop or "" if landed else "")


def _refuse_empty(pipeline: Pipeline, key: ItemKey, allows: Collection[str]) -> None:
    """Raises Refused for an empty snapshot that nobody lets empty the warehouse. Whether tables shrink, the drain finds."""
    try:
        listing = listing_of(pipeline.manifest.item(key))
    except OutputGone:
        return  # what the drain says of it helps
    full = Full("", (), (), limits=pipeline.source.limits, allows=frozenset(allows))
    try:
        refuse_empty(key.name, listing, full)
    except EmptySnapshot as error:
        raise Refused(f"{error}. No full load was begun", consenting(error.consent, key.name)) from error


def _newest_epoch(pipeline: Pipeline) -> int:
    """The newest epoch that the warehouse has seen; 0 where it cannot be asked now, as while a drain has it open.

    Then the fence refuses an epoch that is not new, the full load can be cancelled, and begun again.
    """
    try:
        return pipeline.newest_epoch()
    except WarehouseError:
        return 0


def cancel(pipeline: Pipeline, reason: str) -> Record:
    """Ends the full load in progress before it is in the warehouse: what was loaded before counts on.

    Raises Refused where none is in progress, and where the warehouse has the snapshot already; LeaseBusy while a worker loads
    it; Unavailable where the warehouse cannot be asked.
    """
    feed = full_feed(pipeline)
    if pipeline.manifest.state(Application(LOAD)).mode is not Mode.FULL_LOAD:
        raise Refused(f"dataset {pipeline.name} is loading nothing in full: there is nothing to cancel")
    with pipeline.lease(feed, LOAD) as lease:
        # What a ledger says counts only if it has the believed record: one that was set back may lack the very snapshot.
        if found := broken(pipeline, patient=True, snapshots=True):
            raise Refused(f"whether the snapshot is loaded cannot be told: {found[0].reason}. Let the full load end first")
        verdict = next(pipeline.manifest.verdicts(lease))
        program = settling_to_cancel(Declared.by(pipeline), verdict) if isinstance(verdict, Abandoned) else None
        if program and (settled := run(program, pipeline, lease)):
            raise Refused(f"{settled.key.name} is in the warehouse already: the full load is done, and cannot be cancelled")
        return pipeline.manifest.cancel_full_load(lease, reason)


def settling_to_cancel(declared: Declared, abandoned: Abandoned) -> Program[Loaded | None]:
    """The program that ends what was begun to load. What the fence holds a later epoch than, nobody can commit any more."""
    state = yield from ask(ReadState())
    try:
        return (yield from settling(declared, abandoned))
    except Fenced as fenced:
        if fenced.epoch <= state.epoch:
            raise
    yield from ask(Abandon(abandoned))
    return None


def full_status(pipeline: Pipeline, now: datetime | None = None) -> FullStatus:
    """How a dataset stands with full loads. Raises Refused for a dataset without snapshots."""
    feed = full_feed(pipeline)
    step, state = pipeline.manifest.step(feed, LOAD), pipeline.manifest.state(Application(LOAD))
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
    """Why only a full load helps a dataset on; empty where none is needed, and where one is in progress."""
    step = pipeline.manifest.step(full_feed(pipeline), LOAD)
    state = pipeline.manifest.state(Application(LOAD))
    if state.mode is Mode.FULL_LOAD:
        return ""
    for feed in step.covers:
        if pipeline.manifest.step(feed, LOAD).needs_full and not state.feed(feed).boundary:
            return f"no snapshot was loaded yet that the windows of {feed} could follow"
        verdict = pipeline.manifest.next(feed, LOAD)
        if stuck := _stuck(verdict):
            return f"{stuck.key.name} failed, and what it says can only come in with a snapshot"
        gap = _gap(pipeline, verdict)
        missing = pipeline.source.time(gap.begins) if gap else None
        kept = pipeline.source.retention
        if gap and missing and kept and now - missing > kept:
            return f"the window from {gap.begins} on is missing; the source keeps windows for {kept.days} days"
    return ""


def remedy(pipeline: Pipeline) -> Remedy:
    """What comes next where a full load is needed: a snapshot must contain what stops a feed it covers."""
    feed = full_feed(pipeline)
    newest = next((one for one in pipeline.manifest.items(feed, reverse=True) if not one.skipped_for(Application(LOAD))), None)
    stop = newest.landed.stop if newest and newest.landed else None
    if stop is None or stop < _to_contain(pipeline):
        return Remedy(Action.CAPTURE_SNAPSHOT, feed=feed)
    return Remedy(Action.BEGIN_FULL_LOAD)


def _to_contain(pipeline: Pipeline) -> str:
    """Up to when a snapshot must go, so that what it covers goes on behind it; empty where nothing is in the way."""
    upto = ""
    for feed in pipeline.manifest.step(full_feed(pipeline), LOAD).covers:
        verdict = pipeline.manifest.next(feed, LOAD)
        gap, stuck = _gap(pipeline, verdict), _stuck(verdict)
        landed = stuck.landed if stuck and not _met_a_snapshot(stuck) else None
        upto = max(upto, gap.ends if gap else "", (landed.stop or "") if landed else "")
    return upto


def _stuck(verdict: Verdict) -> Item | None:
    """The item that stops a feed and needs a full load to go on, as one that changes the type of a column."""
    if isinstance(verdict, Blocked) and verdict.standing is Standing.FAILED and verdict.remedy.action is Action.BEGIN_FULL_LOAD:
        return verdict.item
    return None


def _met_a_snapshot(stuck: Item) -> bool:
    """Whether an item failed for a snapshot that the manifest forgot: it goes on behind any, however old."""
    blocker = stuck.blocker()
    return blocker is not None and blocker.data.get("exception") == SnapshotAhead.__name__


@dataclass(frozen=True)
class _Gap:
    """The stretch of time of which a feed has no window."""

    begins: str
    ends: str


def _gap(pipeline: Pipeline, verdict: Verdict) -> _Gap | None:
    """The gap that blocks a feed; None where none does."""
    if not isinstance(verdict, Blocked) or verdict.standing is not Standing.GAP or verdict.item.landed is None:
        return None
    feed = verdict.item.key.feed
    before = next(pipeline.manifest.items(feed, after=verdict.item.key.position, page=FIRST_PAGE, reverse=True), None)
    stops = [pipeline.manifest.state(Application(LOAD)).boundary, before.landed.stop if before and before.landed else None]
    return _Gap(max((stop for stop in stops if stop), default=""), verdict.item.landed.start or verdict.item.key.sort)
