"""The drain: everything that may be done, in order, until nothing may, something blocks, or the budget is spent.

One drain is one process with at most one Spark session, however many items wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

from manifest_platform.manifest import (
    Abandoned,
    Blocked,
    ClaimLost,
    ConditionFailed,
    Idle,
    LeaseBusy,
    OutcomeUnknown,
    Ready,
    Standing,
    StoreUnavailable,
)
from manifest_platform.pipeline.events import Budget, DrainReport, Event, ItemFailed, ShredStarted, Stop
from manifest_platform.pipeline.pipeline import FEED, LOAD, SHRED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNBOUNDED = Budget()


def drain(pipeline: Pipeline, spark: Callable[[], SparkSession], budget: Budget = UNBOUNDED) -> Generator[Event | DrainReport]:
    """Shreds what is ready in batches and loads strictly in order, until idle, blocked or out of budget.

    Yields what happens as it happens, and last a DrainReport with the totals and why it stopped. `spark` is called
    only if something is to be shredded. Raises what neither the manifest nor the warehouse foresees.
    """
    from manifest_platform.warehouse.errors import Fenced, WarehouseError

    report = DrainReport()
    begun, requests = time.monotonic(), pipeline.manifest.store.requests
    try:
        for event in _drain(pipeline, spark, budget, report, begun):
            report.count(event)
            yield event
    except LeaseBusy as busy:
        report.stop, report.reason = Stop.BUSY, str(busy)
    except (Fenced, ClaimLost) as error:
        report.stop, report.reason = Stop.FENCED, str(error)
    except (WarehouseError, StoreUnavailable, OutcomeUnknown) as error:
        report.stop, report.reason = Stop.UNAVAILABLE, str(error)
    report.seconds = time.monotonic() - begun
    report.requests = pipeline.manifest.store.requests - requests
    yield report


def _drain(
    pipeline: Pipeline, spark: Callable[[], SparkSession], budget: Budget, report: DrainReport, begun: float
) -> Iterator[Event]:
    """One batch to shred, then all that may be loaded, and again. Leaves in the report why it ended."""

    def spent(items: int) -> Stop | None:
        if budget.items is not None and items >= budget.items:
            return Stop.BUDGET_ITEMS
        if budget.seconds is not None and time.monotonic() - begun >= budget.seconds:
            return Stop.BUDGET_SECONDS
        return None

    while True:
        left = None if budget.items is None else budget.items - report.shredded
        passing_fault = yield from _drain_shred(pipeline, spark, left)
        verdict = yield from _drain_load(pipeline, lambda: spent(report.loaded))
        if isinstance(verdict, Stop):
            report.stop = verdict
            return
        blocked = isinstance(verdict, Blocked) and verdict.standing is not Standing.WAITING
        if passing_fault and not blocked:
            report.stop, report.reason = Stop.UNAVAILABLE, passing_fault
            return
        out_of_budget = spent(report.shredded)
        if not passing_fault and not out_of_budget and pipeline.manifest.waiting(FEED, SHRED, 1)[0]:
            continue
        if isinstance(verdict, Blocked):
            unshredded = verdict.standing is Standing.WAITING
            report.stop, report.item = (unshredded and out_of_budget) or Stop.BLOCKED, verdict.item.key.name
            report.reason, report.command = verdict.reason, pipeline.command(verdict.command)
        return


def _drain_shred(pipeline: Pipeline, spark: Callable[[], SparkSession], left: int | None) -> Generator[Event, None, str | None]:
    """Shreds one batch of what waits, at most `left` items; returns the passing fault that it met, if any.

    Such a fault is left to the next drain: tried again at once, an outage of seconds would use up every attempt.
    """
    limit = pipeline.dataset.shred.batch if left is None else min(left, pipeline.dataset.shred.batch)
    if limit <= 0 or not pipeline.manifest.any_pending(FEED, SHRED):
        return None
    fault = None
    with pipeline.lease(SHRED) as lease:
        ready, stuck = pipeline.manifest.waiting(FEED, SHRED, limit)
        if pipeline.free_abandoned(lease, (one.item for one in stuck)):
            ready, _ = pipeline.manifest.waiting(FEED, SHRED, limit)
        if ready:
            yield ShredStarted(len(ready), sum(item.landed.bytes for item in ready if item.landed))
            try:
                events = pipeline.shred(lease, spark, ready)
            except ConditionFailed:
                return None  # somebody changed one of them while Spark started: look again
            for event in events:
                if isinstance(event, ItemFailed) and event.failure.kind == "transient":
                    fault = event.failure.message
                yield event
    return fault


def _drain_load(pipeline: Pipeline, spent: Callable[[], Stop | None]) -> Generator[Event, None, Blocked | Idle | Stop]:
    """Loads in order until nothing may be loaded; returns why."""
    verdict = pipeline.manifest.next(FEED, LOAD)
    if isinstance(verdict, Idle) or (isinstance(verdict, Blocked) and verdict.standing is not Standing.PROCESSING):
        return verdict
    with pipeline.lease(LOAD) as lease:
        unsettled = pipeline.manifest.unsettled(lease)
        while True:
            if stop := spent():
                return stop
            verdict = unsettled or pipeline.manifest.next(FEED, LOAD, holding=True)
            unsettled = None
            if isinstance(verdict, Abandoned):
                if settled := pipeline.settle(lease, verdict):
                    yield settled
            elif isinstance(verdict, Ready):
                try:
                    event = pipeline.load(lease, verdict)
                except ConditionFailed:
                    continue  # something was registered or resolved meanwhile: look again
                yield event
            else:
                return verdict
