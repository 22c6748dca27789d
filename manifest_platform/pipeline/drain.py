"""The drain: does all work that may be done, in order, until it is idle, blocked or out of its budget.

A drain is one process with at most one Spark session, whatever the number of items.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from manifest_platform import progress
from manifest_platform.manifest import (
    Abandoned,
    Application,
    Blocked,
    ClaimLost,
    ConditionFailed,
    FailureKind,
    FeedState,
    Idle,
    Item,
    ItemKey,
    LeaseBusy,
    OutcomeUnknown,
    Ready,
    Standing,
    StoreUnavailable,
)
from manifest_platform.manifest.dataset import PASSED, blocked, judge
from manifest_platform.pipeline.chain import broken, explained
from manifest_platform.pipeline.events import (
    Budget,
    DrainReport,
    Event,
    FeedEnd,
    ItemFailed,
    Loaded,
    PutBack,
    Shredded,
    ShredStarted,
    Stop,
)
from manifest_platform.pipeline.loading import GivenUp, load, settle
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.shredding import free_abandoned, portion, shred
from manifest_platform.pipeline.turns import HeldByWorker, Turn
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.source import LOAD, SHRED
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import Fenced, Held, Unbelieved, WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNBOUNDED = Budget()
Spark = Callable[[], "SparkSession"]


def drain(
    pipeline: Pipeline, spark: Spark, budget: Budget = UNBOUNDED, feeds: Sequence[str] | None = None
) -> Generator[Event | DrainReport]:
    """Shreds ready items in batches and loads them in each feed's order, until idle, blocked or out of budget.

    `feeds`: None means all, in the source's order. A blocked feed does not stop the others. Yields events as they happen, and
    finally a DrainReport with the totals and the reason for stopping. `spark` is called only if something must be shredded.
    Raises unexpected errors. Expected errors become events.
    """
    pipeline.manifest.recall()
    work = _Drain(pipeline, spark, budget)
    ends: dict[str, FeedEnd] = {}
    for event in work.feeds(pipeline.feeds if feeds is None else feeds, ends):
        work.count(event)
        yield event
    for found in broken(pipeline):  # if nothing was loaded, no load has noticed a broken chain
        if found.feed in ends and ends[found.feed].stop is Stop.IDLE:
            ends[found.feed] = FeedEnd(found.feed, Stop.BLOCKED, reason=found.reason, remedy=found.remedy)
    pipeline.let_go()
    yield work.ended(ends)


class _Drain:
    """The state of one drain: its pipeline, its budget, and its totals so far."""

    def __init__(self, pipeline: Pipeline, spark: Spark, budget: Budget):
        self.pipeline, self.spark, self.budget = pipeline, spark, budget
        self.report = DrainReport(pipeline.clock())
        self._begun, self._requests = time.monotonic(), pipeline.manifest.store.requests

    def ended(self, ends: Mapping[str, FeedEnd]) -> DrainReport:
        """Returns the report at the end of the drain."""
        report = self.report
        report.ends = tuple(ends.values())
        if first := next((end for end in report.ends if end.stop is not Stop.IDLE), None):
            report.stop, report.feed, report.item = first.stop, first.feed, first.item
            report.reason, report.remedy = first.reason, first.remedy
        report.seconds = time.monotonic() - self._begun
        report.requests = self.pipeline.manifest.store.requests - self._requests
        return report

    def count(self, event: Event) -> None:
        """Adds an event to the totals."""
        if isinstance(event, Shredded):
            self.report.shredded += 1
            self.report.bytes += event.bytes_in
        elif isinstance(event, Loaded):
            self.report.loaded += 1
            self.report.rows += event.row_count
        elif isinstance(event, ItemFailed):
            self.report.failed += 1
        elif isinstance(event, PutBack):
            self.report.put_back += 1

    def feeds(self, feeds: Sequence[str], ends: dict[str, FeedEnd]) -> Iterator[Event]:
        """Works on each feed in turn, and again on those with batches left to shred. Puts the reason of each end in `ends`."""
        waiting = list(feeds)
        while waiting:
            again: list[str] = []
            for feed in waiting:
                end = yield from self._feed(feed)
                ends[feed] = end or FeedEnd(feed, Stop.IDLE)
                if end is None:
                    again.append(feed)
                elif end.stop in (Stop.BUDGET_ITEMS, Stop.BUDGET_SECONDS):
                    return
            waiting = again

    def _feed(self, feed: str) -> Generator[Event, None, FeedEnd | None]:
        """Shreds a batch of a feed, then loads everything possible. Returns the reason for its end; None if a batch is left."""
        try:
            return (yield from self._work_on(feed))
        except LeaseBusy as busy:
            return FeedEnd(feed, Stop.BUSY, reason=str(busy), remedy=busy.remedy)
        except (Fenced, ClaimLost) as error:
            return FeedEnd(feed, Stop.FENCED, reason=str(error))
        except Unbelieved as error:
            found = explained(self.pipeline, error)
            return FeedEnd(feed, Stop.BLOCKED, reason=found.reason, remedy=found.remedy)
        except HeldByWorker as held:
            return FeedEnd(feed, Stop.BUSY, reason=str(held))
        except Held as held:
            return FeedEnd(feed, Stop.HELD, reason=str(held))
        except (WarehouseError, StoreUnavailable, OutcomeUnknown, SparkUnavailable) as error:
            return FeedEnd(feed, Stop.UNAVAILABLE, reason=str(error))

    def _work_on(self, feed: str) -> Generator[Event, None, FeedEnd | None]:
        passing_fault = yield from self._shred(feed)
        verdict = yield from self._load(feed)
        if isinstance(verdict, Stop):
            return FeedEnd(feed, verdict)
        blocked = isinstance(verdict, Blocked) and verdict.standing is not Standing.WAITING
        if passing_fault and not blocked:
            return FeedEnd(feed, Stop.UNAVAILABLE, reason=passing_fault)
        out_of_budget = self._spent(self.report.shredded)
        if not passing_fault and not out_of_budget and self._may_shred(feed):
            return None
        if isinstance(verdict, Blocked):
            unshredded = verdict.standing is Standing.WAITING
            stop = (unshredded and out_of_budget) or Stop.BLOCKED
            return FeedEnd(feed, stop, verdict.item.key.name, verdict.reason, verdict.remedy)
        return FeedEnd(feed, Stop.IDLE)

    def _spent(self, items: int) -> Stop | None:
        """Returns the spent budget, if this number of items or the elapsed time spends one."""
        if self.budget.items is not None and items >= self.budget.items:
            return Stop.BUDGET_ITEMS
        if self.budget.seconds is not None and time.monotonic() - self._begun >= self.budget.seconds:
            return Stop.BUDGET_SECONDS
        return None

    def _may_shred(self, feed: str) -> bool:
        return bool(self._waiting(feed, 1)[0])

    def _waiting(self, feed: str, limit: int) -> tuple[list[Item], list[Blocked]]:
        """Returns the items that may be shredded now, and those that are stuck. Of snapshots, only the one being loaded."""
        manifest = self.pipeline.manifest
        if feed not in self.pipeline.source.on_demand:
            return manifest.waiting(feed, SHRED, limit)
        begun = manifest.state(Application(LOAD)).full
        if begun is None:
            return [], []
        item = manifest.item(ItemKey.at(feed, begun))
        judged = judge(item, manifest.step(feed, SHRED), FeedState())
        if judged.standing in PASSED:
            return [], []
        return ([item], []) if judged.standing is Standing.READY else ([], [blocked(item, judged)])

    def _shred(self, feed: str) -> Generator[Event, None, str | None]:
        """Shreds one batch of waiting items within the budget. Returns the transient fault that it met, if any.

        The next drain retries after such a fault. An immediate retry would use up all attempts in an outage of seconds.
        """
        pipeline, limit = self.pipeline, self.pipeline.dataset.shred.batch
        if self.budget.items is not None:
            limit = min(limit, self.budget.items - self.report.shredded)
        if limit <= 0 or not pipeline.manifest.any_pending(feed, SHRED):
            return None
        if feed in pipeline.source.on_demand and not any(self._waiting(feed, 1)):
            return None  # a snapshot is shredded when its full load begins, and again only if its output was lost since
        fault = None
        with pipeline.lease(feed, SHRED) as lease:
            ready, stuck = self._waiting(feed, limit)
            if free_abandoned(pipeline, lease, (one.item for one in stuck)):
                ready, _ = self._waiting(feed, limit)
            if ready:
                ready = portion(ready, limit)
                pipeline.let_go()
                yield ShredStarted(len(ready), sum(item.landed.bytes for item in ready if item.landed))
                try:
                    events = shred(pipeline, lease, self.spark, ready)
                except ConditionFailed:
                    return None  # another process changed an item while Spark started: look again
                for event in events:
                    if isinstance(event, PutBack):
                        fault = fault or event.reason
                    if isinstance(event, ItemFailed) and event.failure.kind is FailureKind.TRANSIENT:
                        fault = event.failure.message
                    yield event
        return fault

    def _load(self, feed: str) -> Generator[Event, None, Blocked | Idle | Stop]:
        """Loads in order until nothing may be loaded, and returns the reason."""
        pipeline = self.pipeline
        verdict = pipeline.manifest.next(feed, pipeline.load.key)
        if isinstance(verdict, Idle) or (isinstance(verdict, Blocked) and verdict.standing is not Standing.PROCESSING):
            return verdict
        with pipeline.lease(feed, pipeline.load.key) as lease:
            mine = Turn(pipeline, feed)
            verdicts = pipeline.manifest.verdicts(lease)
            while not (stop := self._spent(self.report.loaded)):
                verdict = next(verdicts)
                if not isinstance(verdict, Abandoned | Ready):
                    return verdict
                mine.reach()
                if isinstance(verdict, Abandoned):
                    if settled := settle(pipeline, lease, verdict):
                        yield settled
                else:
                    try:
                        with _told(verdict.item):
                            event = load(pipeline, lease, verdict)
                    except ConditionFailed:
                        continue  # an item was registered or resolved meanwhile: read again
                    except Held:
                        mine.lost()
                        continue  # another process made the file, or opened it after an error: wait for it
                    except GivenUp as error:
                        remedy = error.remedy or Remedy(Action.SHOW_STATUS)
                        return Blocked(verdict.item, Standing.NEEDS_FULL, str(error), pipeline.clock(), remedy)
                    if isinstance(event, Loaded) and pipeline.manifest.step(feed, pipeline.load.key).order == "full":
                        _let_steps_follow(pipeline)
                    mine.release()
                    yield event
            return stop


@contextlib.contextmanager
def _told(item: Item) -> Generator[None]:
    """Reports that an item is being loaded, and adds a note for people if the process is told to end meanwhile."""
    name = item.key.name
    try:
        with progress.work(f"loading {name}"):
            yield
    except Exception:
        raise
    except BaseException as end:
        end.add_note(f"{name} was being loaded: the next drain asks the warehouse whether it was committed")
        raise


def _let_steps_follow(pipeline: Pipeline) -> None:
    """Makes the user's own steps follow a full load. A step that is at work follows it with its next claim."""
    for step in pipeline.dataset.steps:
        if step.order == "strict":
            with contextlib.suppress(LeaseBusy), pipeline.lease(step.feed or pipeline.source.main, step.name) as lease:
                pipeline.manifest.follow(lease)
