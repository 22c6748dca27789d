"""The drain: everything that may be done, in order, until nothing may, something blocks, or the budget is spent.

One drain is one process with at most one Spark session, however many items wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from manifest_platform.manifest import (
    Abandoned,
    Blocked,
    ClaimLost,
    ConditionFailed,
    FailureKind,
    Idle,
    LeaseBusy,
    OutcomeUnknown,
    Ready,
    Standing,
    StoreUnavailable,
)
from manifest_platform.pipeline.events import Budget, DrainReport, Event, FeedEnd, ItemFailed, ShredStarted, Stop
from manifest_platform.pipeline.loading import load, settle
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.remedies import remedy_command
from manifest_platform.pipeline.shredding import free_abandoned, shred
from manifest_platform.sources.source import LOAD, SHRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNBOUNDED = Budget()
Spark = Callable[[], "SparkSession"]


def drain(
    pipeline: Pipeline, spark: Spark, budget: Budget = UNBOUNDED, feeds: Sequence[str] | None = None
) -> Generator[Event | DrainReport]:
    """Shreds what is ready in batches and loads in each feed's order, until idle, blocked or out of budget.

    `feeds`: all, in the order of the source, where none are named. What blocks one feed does not keep the next from being
    drained. Yields what happens as it happens, and last a DrainReport with the totals and why it stopped. `spark` is called
    only if something is to be shredded. Raises what neither the manifest nor the warehouse foresees.
    """
    report = DrainReport()
    begun, requests = time.monotonic(), pipeline.manifest.store.requests
    ends: dict[str, FeedEnd] = {}
    for event in _drain_feeds(pipeline, spark, budget, pipeline.feeds if feeds is None else feeds, ends, report, begun):
        report.count(event)
        yield event
    report.end(ends.values())
    report.seconds = time.monotonic() - begun
    report.requests = pipeline.manifest.store.requests - requests
    yield report


def _drain_feeds(
    pipeline: Pipeline,
    spark: Spark,
    budget: Budget,
    feeds: Sequence[str],
    ends: dict[str, FeedEnd],
    report: DrainReport,
    begun: float,
) -> Iterator[Event]:
    """Each feed in turn, and all again as long as a batch was left to shred. Leaves in `ends` why each ended."""

    def spent(items: int) -> Stop | None:
        if budget.items is not None and items >= budget.items:
            return Stop.BUDGET_ITEMS
        if budget.seconds is not None and time.monotonic() - begun >= budget.seconds:
            return Stop.BUDGET_SECONDS
        return None

    waiting = list(feeds)
    while waiting:
        again: list[str] = []
        for feed in waiting:
            left = None if budget.items is None else budget.items - report.shredded
            end = yield from _drain_feed(pipeline, feed, spark, left, spent, report)
            ends[feed] = end or FeedEnd(feed, Stop.IDLE)
            if end is None:
                again.append(feed)
            elif end.stop in (Stop.BUDGET_ITEMS, Stop.BUDGET_SECONDS):
                return
        waiting = again


def _drain_feed(
    pipeline: Pipeline,
    feed: str,
    spark: Spark,
    left: int | None,
    spent: Callable[[int], Stop | None],
    report: DrainReport,
) -> Generator[Event, None, FeedEnd | None]:
    """One batch of a feed to shred, then all of it that may be loaded. Returns why it ended; None if more is to be shredded."""
    from manifest_platform.warehouse.errors import Fenced, WarehouseError

    try:
        return (yield from _work_on(pipeline, feed, spark, left, spent, report))
    except LeaseBusy as busy:
        return FeedEnd(feed, Stop.BUSY, reason=str(busy))
    except (Fenced, ClaimLost) as error:
        return FeedEnd(feed, Stop.FENCED, reason=str(error))
    except (WarehouseError, StoreUnavailable, OutcomeUnknown) as error:
        return FeedEnd(feed, Stop.UNAVAILABLE, reason=str(error))


def _work_on(
    pipeline: Pipeline,
    feed: str,
    spark: Spark,
    left: int | None,
    spent: Callable[[int], Stop | None],
    report: DrainReport,
) -> Generator[Event, None, FeedEnd | None]:
    passing_fault = yield from _drain_shred(pipeline, feed, spark, left)
    verdict = yield from _drain_load(pipeline, feed, lambda: spent(report.loaded))
    if isinstance(verdict, Stop):
        return FeedEnd(feed, verdict)
    blocked = isinstance(verdict, Blocked) and verdict.standing is not Standing.WAITING
    if passing_fault and not blocked:
        return FeedEnd(feed, Stop.UNAVAILABLE, reason=passing_fault)
    out_of_budget = spent(report.shredded)
    if not passing_fault and not out_of_budget and _may_shred(pipeline, feed):
        return None
    if isinstance(verdict, Blocked):
        unshredded = verdict.standing is Standing.WAITING
        stop = (unshredded and out_of_budget) or Stop.BLOCKED
        return FeedEnd(feed, stop, verdict.item.key.name, verdict.reason, pipeline.command(remedy_command(verdict)))
    return FeedEnd(feed, Stop.IDLE)


def _may_shred(pipeline: Pipeline, feed: str) -> bool:
    return feed not in pipeline.source.on_demand and bool(pipeline.manifest.waiting(feed, SHRED, 1)[0])


def _drain_shred(pipeline: Pipeline, feed: str, spark: Spark, left: int | None) -> Generator[Event, None, str | None]:
    """Shreds one batch of what waits, at most `left` items; returns the passing fault that it met, if any.

    Such a fault is left to the next drain: tried again at once, an outage of seconds would use up every attempt.
    """
    limit = pipeline.dataset.shred.batch if left is None else min(left, pipeline.dataset.shred.batch)
    if limit <= 0 or feed in pipeline.source.on_demand or not pipeline.manifest.any_pending(feed, SHRED):
        return None
    fault = None
    with pipeline.lease(feed, SHRED) as lease:
        ready, stuck = pipeline.manifest.waiting(feed, SHRED, limit)
        if free_abandoned(pipeline, lease, (one.item for one in stuck)):
            ready, _ = pipeline.manifest.waiting(feed, SHRED, limit)
        if ready:
            yield ShredStarted(len(ready), sum(item.landed.bytes for item in ready if item.landed))
            try:
                events = shred(pipeline, lease, spark, ready)
            except ConditionFailed:
                return None  # somebody changed one of them while Spark started: look again
            for event in events:
                if isinstance(event, ItemFailed) and event.failure.kind is FailureKind.TRANSIENT:
                    fault = event.failure.message
                yield event
    return fault


def _drain_load(
    pipeline: Pipeline, feed: str, spent: Callable[[], Stop | None]
) -> Generator[Event, None, Blocked | Idle | Stop]:
    """Loads in order until nothing may be loaded; returns why."""
    verdict = pipeline.manifest.next(feed, LOAD)
    if isinstance(verdict, Idle) or (isinstance(verdict, Blocked) and verdict.standing is not Standing.PROCESSING):
        return verdict
    with pipeline.lease(feed, LOAD) as lease:
        unsettled = pipeline.manifest.unsettled(lease)
        while True:
            if stop := spent():
                return stop
            verdict = unsettled or pipeline.manifest.next(feed, LOAD, holding=True)
            unsettled = None
            if isinstance(verdict, Abandoned):
                if settled := settle(pipeline, lease, verdict):
                    yield settled
            elif isinstance(verdict, Ready):
                try:
                    event = load(pipeline, lease, verdict)
                except ConditionFailed:
                    continue  # something was registered or resolved meanwhile: look again
                yield event
            else:
                return verdict
