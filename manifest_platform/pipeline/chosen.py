"""Work on chosen items: a materialization by a person, or a backfill.

A choice says which items, never their order. The order is the manifest's, and a choice that does not fit it is refused before
anything is done. Dagster may split a choice over several runs, which do not know each other's progress. So each run works off
everything that is left of the whole choice, and reports its own part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from manifest_platform.manifest import (
    Abandoned,
    Application,
    Blocked,
    ConditionFailed,
    FailureKind,
    FeedState,
    Idle,
    Item,
    ItemKey,
    Lease,
    LeaseBusy,
    Ready,
    Refused,
    Standing,
)
from manifest_platform.manifest.dataset import PASSED, blocked, judge
from manifest_platform.pipeline.blackout import blackout_reason
from manifest_platform.pipeline.catching_up import Pace, load_next
from manifest_platform.pipeline.events import Event, ItemFailed, Loaded, PutBack, Shredded, ShreddedAgain
from manifest_platform.pipeline.loading import settle
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.shredding import free_abandoned, listing_of, portion, shred
from manifest_platform.pipeline.turns import Turn
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.source import LOAD, SHRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_AGAIN_S = 1.0


class OutOfOrder(Refused):
    """The requested work is not next. The message names the next item and the reason; the remedy is for that item."""


@dataclass(frozen=True)
class PassedOver:
    """A chosen item that is passed over, with the reason: it is skipped, or a snapshot contains it."""

    key: ItemKey
    reason: str


@dataclass(frozen=True)
class Waiting:
    """The report that this run waits for another worker, which holds the feed. `reason`: names the holder."""

    reason: str


Told = Event | PassedOver | Waiting
"""Reports on chosen items."""


@dataclass(frozen=True)
class Choice:
    """The chosen items of one feed.

    - `keys`: the items that this run must process and report.
    - `others`: the names of items that were chosen together with these for other runs. This run also processes those of them
      that are not done.
    """

    keys: tuple[ItemKey, ...]
    others: frozenset[str]

    @classmethod
    def of(cls, keys: Collection[ItemKey], others: Collection[str] = ()) -> Choice:
        """Returns the choice of these items."""
        return cls(tuple(sorted(keys)), frozenset(others) - {key.name for key in keys})

    def feed(self, pipeline: Pipeline) -> str:
        """Returns the feed of the items. Raises Refused for items of several feeds, because each feed has its own order."""
        feeds = sorted({key.feed for key in self.keys})
        if len(feeds) > 1:
            raise Refused(f"items of several feeds were chosen ({', '.join(feeds)}). Choose the items of one feed at a time")
        return feeds[0] if feeds else pipeline.source.main

    def sorts(self, pipeline: Pipeline) -> Mapping[str, str]:
        """Returns the sort keys of all chosen items by name, without names that do not belong to the feed."""
        feed = self.feed(pipeline)
        others = {name: named.sort for name in self.others for named in pipeline.source.named(name) if named.feed == feed}
        return {**others, **{key.name: key.sort for key in self.keys}}


def check_order(pipeline: Pipeline, keys: Collection[ItemKey], application: str | None = None) -> list[ItemKey]:
    """Returns the chosen items that a strict step (by default `load`) has not done yet, in the step's order.

    Raises OutOfOrder if an item that was not chosen precedes a chosen item.
    """
    ordered, refusal = _in_order(pipeline, Choice.of(keys), application or pipeline.load.key)
    if refusal:
        raise refusal
    return ordered


def _in_order(pipeline: Pipeline, choice: Choice, application: str) -> tuple[list[ItemKey], OutOfOrder | None]:
    """Returns the chosen items that a strict step has not done, in its order, and a refusal if they cannot be done.

    The backlog is read only as far as the choice may reach.
    """
    feed, sorts = choice.feed(pipeline), choice.sorts(pipeline)
    behind = pipeline.manifest.state(Application(application)).feed(feed).watermark
    last = max(sorts.values(), default="")
    ordered: list[ItemKey] = []
    hole: Blocked | None = None
    for item, judged in pipeline.manifest.backlog(feed, application):
        name = item.key.name
        if item.key.sort > last and item.key.position > behind:
            break
        if judged.standing is Standing.LATE:
            if name in sorts:
                explain = Remedy(Action.EXPLAIN, item=name)
                return ordered, OutOfOrder(f"{name} is quarantined: {judged.reason}", explain)
        elif name not in sorts:
            hole = hole or blocked(item, judged)
        elif hole:
            return ordered, _behind(hole, name, application)
        else:
            ordered.append(item.key)
            if len(ordered) == len(sorts):
                break
    return ordered, None


def _behind(hole: Blocked, name: str, application: str) -> OutOfOrder:
    """Returns the refusal of an item that is preceded by an item that was not chosen."""
    loads = Application.parse(application).name == LOAD
    done = "loaded" if loads else f"done by {application}"
    own = not loads and hole.standing is Standing.READY  # the user's own program does that work
    return OutOfOrder(
        f"{name} is out of order: {hole.item.key.name} comes first and is not {done} ({hole.reason or 'it is ready'})",
        None if own else hole.remedy,
    )


@contextmanager
def _lease(pipeline: Pipeline, feed: str, step: str, until: float) -> Generator[Lease | LeaseBusy]:
    """Yields the lease of a step, or the error that names its holder; then try again. Raises LeaseBusy after `until`."""
    try:
        lease = pipeline.lease(feed, step)
    except LeaseBusy as busy:
        if time.monotonic() >= until:
            raise
        yield busy
        time.sleep(LOOK_AGAIN_S)
        return
    with lease:
        yield lease


def shred_chosen(
    pipeline: Pipeline,
    spark: Callable[[], SparkSession],
    keys: Collection[ItemKey],
    others: Collection[str] = (),
    patience_s: float = 0,
) -> Iterator[Told]:
    """Shreds the chosen items in any order. Items that are shredded already are reported as `already`. An outage ends it.

    `others`: names of items chosen together with these for other runs, which are done too. `patience_s`: the seconds to wait
    for a worker that holds the feed. Raises LeaseBusy after that; Refused if an item may not be shredded now, before any is.
    """
    choice, until = Choice.of(keys, others), time.monotonic() + patience_s
    feed = choice.feed(pipeline)
    while True:
        with _lease(pipeline, feed, SHRED, until) as lease:
            if isinstance(lease, Lease):
                yield from _shred_held(pipeline, spark, choice, lease)
                return
            yield Waiting(str(lease))


def _shred_held(pipeline: Pipeline, spark: Callable[[], SparkSession], choice: Choice, lease: Lease) -> Iterator[Told]:
    """Shreds the chosen items under the lease."""
    feed = choice.feed(pipeline)
    step, own = pipeline.manifest.step(feed, SHRED), set(choice.keys)
    items = [pipeline.manifest.item(key) for key in choice.keys]
    if choice.others:
        left = (item for item, _ in pipeline.manifest.backlog(feed, SHRED))
        items += [item for item in left if item.key.name in choice.others]
    ready: list[Item] = []
    stops: list[Blocked] = []
    for item in sorted(items, key=lambda one: one.key):
        if free_abandoned(pipeline, lease, [item]):
            item = pipeline.manifest.item(item.key)
        judged = judge(item, step, FeedState())
        if judged.standing is Standing.READY:
            ready.append(item)
        elif judged.standing is Standing.DONE:
            yield _already_shredded(pipeline, item)
        elif judged.standing is Standing.SKIPPED:
            yield PassedOver(item.key, judged.reason)
        else:
            stops.append(blocked(item, judged))
    if stops:
        stop = next((one for one in stops if one.item.key in own), stops[0])
        raise Refused(f"{stop.item.key.name} cannot be shredded: {stop.reason}", stop.remedy)
    while ready:
        batch = portion(ready, pipeline.dataset.shred.batch)
        ready = ready[len(batch) :]
        try:
            events = shred(pipeline, lease, spark, batch)
        except ConditionFailed as error:
            raise Refused(f"another process changed an item while Spark started ({error}). Try again") from error
        yield from events
        if any(isinstance(event, PutBack) for event in events):
            return  # the other batches would meet the same outage


def _already_shredded(pipeline: Pipeline, item: Item) -> Shredded:
    return Shredded(item.key, listing_of(item), item.landed.bytes if item.landed else 0, 0.0, 1, 0, already=True)


def load_chosen(
    pipeline: Pipeline, keys: Collection[ItemKey], others: Collection[str] = (), patience_s: float = 0
) -> Iterator[Told]:
    """Loads the chosen items in the manifest's order. Items that are in the warehouse already are reported as `already`.

    `others` and `patience_s`: as for `shred_chosen`. Raises LeaseBusy; OutOfOrder if an item that was not chosen precedes a
    chosen item, before anything is done.
    """
    choice, until = Choice.of(keys, others), time.monotonic() + patience_s
    feed = choice.feed(pipeline)
    told: set[ItemKey] = set()
    while True:
        ordered, refusal = _in_order(pipeline, choice, pipeline.load.key)
        for event in _loaded_before(pipeline, sorted(set(choice.keys) - told - set(ordered)), refusal is not None):
            told.add(event.key)
            yield event
        if refusal:
            raise refusal
        if not ordered:
            return
        with _lease(pipeline, feed, pipeline.load.key, until) as lease:
            if isinstance(lease, LeaseBusy):
                yield Waiting(str(lease))
                continue
            mine = Turn(pipeline, feed)
            for event in _load_held(pipeline, choice, ordered, lease, mine):
                told |= {event.key} if isinstance(event, Loaded | ItemFailed) else set()
                mine.release()
                yield event
            pipeline.let_go()
        if told.issuperset(ordered):
            return


def _loaded_before(pipeline: Pipeline, keys: Collection[ItemKey], refused: bool) -> Iterator[Loaded | PassedOver]:
    """Reports items that are not left to be loaded. Raises OutOfOrder for a snapshot without a full load.

    `refused`: other items are refused, and their error has the reason.
    """
    if not keys:
        return
    feed = next(iter(keys)).feed
    step = pipeline.manifest.step(feed, pipeline.load.key)
    state = pipeline.manifest.state(step.application).seen_by(step, feed)
    for key in keys:
        item = pipeline.manifest.item(key)
        record = item.processed_by(step.application, state.serving_epoch)
        if record:
            late = item.is_late_for(step.application, state.serving_epoch)
            yield Loaded(
                key,
                record.data.get("rows", {}),
                record.data.get("bytes", 0),
                0.0,
                0.0,
                0,
                late,
                already=True,
                epoch=record.epoch or 1,
                told=tuple(record.data.get("told", ())),
                target=pipeline.target,
            )
        elif step.order == "full" and not refused:
            raise OutOfOrder(f"no full load was begun with {key.name}", Remedy(Action.LOAD_SNAPSHOT, item=key.name))
        elif (judged := judge(item, step, state)).standing in PASSED:
            yield PassedOver(key, judged.reason or str(judged.standing))


def _load_held(pipeline: Pipeline, choice: Choice, ordered: list[ItemKey], lease: Lease, mine: Turn) -> Iterator[Event]:
    """Loads the rest of the choice under the lease. Ends early if another process changed what is left."""
    verdicts, pace = pipeline.manifest.verdicts(lease), Pace(pipeline.dataset.load.batch)
    while ordered:
        verdict = next(verdicts)
        if isinstance(verdict, Abandoned | Ready):
            if why := blackout_reason(pipeline):
                raise Refused(f"{verdict.item.key.name} is not loaded now. {why}")
            mine.reach()
        if isinstance(verdict, Abandoned):
            settled = settle(pipeline, lease, verdict)
            if settled:
                yield settled
                ordered = [key for key in ordered if key != settled.key]
        elif isinstance(verdict, Ready) and verdict.item.key == ordered[0]:
            try:
                events = load_next(pipeline, lease, verdict, pace, only=set(ordered))
            except ConditionFailed:
                continue  # an item was registered or resolved meanwhile: read again
            for event in events:
                yield event
                if isinstance(event, ShreddedAgain):
                    again = f"{event.key.name} must be shredded again first: {event.reason}"
                    raise OutOfOrder(again, Remedy(Action.DRAIN))
                if isinstance(event, Loaded) or event.failure.kind in (FailureKind.PERMANENT, FailureKind.BEHIND):
                    ordered = [key for key in ordered if key != event.key]
        elif _in_order(pipeline, choice, pipeline.load.key)[0] != ordered:
            return
        else:
            raise _not_next(ordered[0], verdict)


def _not_next(key: ItemKey, verdict: Ready | Blocked | Idle) -> OutOfOrder:
    if isinstance(verdict, Ready):
        return OutOfOrder(f"{key.name} is no longer next: {verdict.item.key.name} is. Try again")
    if isinstance(verdict, Blocked):
        return OutOfOrder(f"{verdict.item.key.name} blocks the feed: {verdict.reason}", verdict.remedy)
    return OutOfOrder(f"{key.name} is already done or skipped")
