"""The drain: does all work that may be done, in order, until it is idle, blocked or out of its budget.

A drain is one process with at most one Spark session, whatever the number of items.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from manifest_platform import progress
from manifest_platform.manifest import (
    Abandoned,
    Blocked,
    ClaimLost,
    ConditionFailed,
    Idle,
    Item,
    LeaseBusy,
    OutcomeUnknown,
    Ready,
    Refused,
    Standing,
    StoreUnavailable,
)
from manifest_platform.pipeline.batches import Ahead, Batches, Done
from manifest_platform.pipeline.blackout import blackout_reason
from manifest_platform.pipeline.catching_up import Pace, load_next
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
    Stop,
)
from manifest_platform.pipeline.loading import GivenUp, settle
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.targets import begin, is_begun
from manifest_platform.pipeline.turns import HeldByWorker, Turn
from manifest_platform.pipeline.upkeep import tidied
from manifest_platform.remedies import Action, Remedy
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import Fenced, Held, Unavailable, Unbelieved, WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNBOUNDED = Budget()
Spark = Callable[[], "SparkSession"]
Ends = dict[tuple[str, str], FeedEnd]
"""The reason why a drain ended, by feed and target."""
Result = TypeVar("Result")
TURN_SECONDS = 60.0
"""The time after which a target with a long backlog lets the others have a turn."""


def drain(
    pipeline: Pipeline,
    spark: Spark,
    budget: Budget = UNBOUNDED,
    feeds: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    gives_way: Callable[[], bool] = lambda: False,
) -> Generator[Event | DrainReport]:
    """Shreds ready items in batches and loads them in each feed's order, until idle, blocked or out of budget.

    `feeds`: None means all, in the source's order. A blocked feed does not stop the others. `targets`: None means all of the
    dataset; a target that is down or blocked does not stop the others. `gives_way`: asked after each load; True ends the drain
    as if its time were over. Yields events as they happen, and finally a DrainReport
    with the totals and the reason for stopping. `spark` is called only if something must be shredded. Raises unexpected errors.
    Expected errors become events.
    """
    pipeline.manifest.recall()
    loaded = [pipeline.at(target) for target in targets or pipeline.targets]
    work = _Drain(pipeline, loaded, spark, budget, gives_way)
    ends: Ends = {}
    for event in work.feeds(pipeline.feeds if feeds is None else feeds, ends):
        work.count(event)
        yield event
    for one in loaded:
        for found in broken(one):  # if nothing was loaded, no load has noticed a broken chain
            place = (found.feed, one.target)
            if place in ends and ends[place].stop is Stop.IDLE:
                ends[place] = work.end(one, found.feed, Stop.BLOCKED, reason=found.reason, remedy=found.remedy)
        work.tidy(one)
        one.let_go()
    yield work.ended(ends)


class _Drain:
    """The state of one drain: its targets, its budget, and its totals so far."""

    def __init__(
        self,
        pipeline: Pipeline,
        targets: Sequence[Pipeline],
        spark: Spark,
        budget: Budget,
        others_wait: Callable[[], bool],
    ):
        self.pipeline, self.targets, self.spark, self.budget = pipeline, targets, spark, budget
        self._others_wait = others_wait
        self.report = DrainReport(pipeline.clock())
        self._begun, self._requests = time.monotonic(), pipeline.manifest.store.requests
        self._gave_way = False
        self._loaded: Counter[str] = Counter()
        self._paces: dict[tuple[str, str], Pace] = {}
        self._down: dict[str, str] = {}  # why a target cannot be reached
        self._batches = Batches(pipeline, targets, spark)
        self._shredded: dict[str, tuple[Done | None, FeedEnd | None]] = {}  # feeds whose next batch is shredded already

    def ended(self, ends: Ends) -> DrainReport:
        """Returns the report at the end of the drain."""
        report = self.report
        found = list(ends.values())
        report.ends = tuple(end for number, end in enumerate(found) if end not in found[:number])
        if first := next((end for end in report.ends if end.stop is not Stop.IDLE), None):
            report.stop, report.feed, report.item = first.stop, first.feed, first.item
            report.reason, report.remedy = first.reason, first.remedy
        report.seconds = time.monotonic() - self._begun
        report.requests = self.pipeline.manifest.store.requests - self._requests
        return report

    def tidy(self, pipeline: Pipeline) -> None:
        """Does the upkeep of a target that this drain has loaded something into."""
        if self._loaded[pipeline.target]:
            of = pipeline.target if len(pipeline.targets) > 1 else ""
            self.report.upkeep += tuple(replace(one, target=of) for one in tidied(pipeline))

    def count(self, event: Event) -> None:
        """Adds an event to the totals."""
        if isinstance(event, Shredded):
            self.report.shredded += 1
            self.report.bytes += event.bytes_in
        elif isinstance(event, Loaded):
            self.report.loaded += 1
            self._loaded[event.target] += 1
            self.report.rows += event.row_count
        elif isinstance(event, ItemFailed):
            self.report.failed += 1
        elif isinstance(event, PutBack):
            self.report.put_back += 1

    def feeds(self, feeds: Sequence[str], ends: Ends) -> Iterator[Event]:
        """Works on each feed in turn, and again on those with work left. Puts the reason of each end in `ends`."""
        waiting = [(feed, self.targets) for feed in feeds]
        while waiting:
            again: list[tuple[str, Sequence[Pipeline]]] = []
            for feed, targets in waiting:
                found = yield from self._feed(feed, targets)
                for one, end in found.items():
                    ends[feed, one] = end or FeedEnd(feed, Stop.IDLE)
                stops = {end.stop if end else None for end in found.values()}
                if Stop.BUDGET_SECONDS in stops or stops == {Stop.BUDGET_ITEMS}:
                    return
                if None in stops:
                    again.append((feed, [one for one in targets if found[one.target] is None]))
            waiting = again

    def _reach(self, turn: Turn, target: Pipeline) -> None:
        """Connects to a target. One of several that cannot be reached is not tried again for the drain's other feeds.

        A feed whose own table is locked, or lacks a privilege, holds up no other feed of its target.
        """
        try:
            turn.reach()
        except Held:
            raise
        except Unavailable as error:
            if len(self.targets) > 1:
                self._down[target.target] = str(error)
            raise

    def end(self, target: Pipeline, feed: str, stop: Stop, **said: Any) -> FeedEnd:
        """Returns the reason for the end on a feed of a target."""
        return FeedEnd(feed, stop, target=target.target if len(target.targets) > 1 else "", **said)

    def _feed(self, feed: str, targets: Sequence[Pipeline]) -> Generator[Event, None, dict[str, FeedEnd | None]]:
        """Shreds a batch of a feed, then loads everything possible. Returns the end of each target; None if work is left.

        The next batch is shredded beside the loads. The next turn takes it as if it had shredded it itself.
        """
        shredding = self._guarded(targets[0], feed, self._batches.shredded(feed, self._most))
        done, end = self._shredded.pop(feed, None) or (yield from shredding)
        if end and end.stop is not Stop.BUSY:
            return {one.target: replace(end, target="") for one in targets}
        if done and done.fault:
            end = FeedEnd(feed, Stop.UNAVAILABLE, reason=done.fault)
        found: dict[str, FeedEnd | None] = {}
        with ExitStack() as stack:
            ahead = yield from self._begin_ahead(stack, targets[0], feed, done)
            for one in targets:
                if one.target in self._down:
                    found[one.target] = self.end(one, feed, Stop.UNAVAILABLE, reason=self._down[one.target])
                    continue
                left, stopped = yield from self._guarded(one, feed, self._work_on(one, feed, end))
                if stopped and stopped.stop is Stop.BUSY and self._goes_on(feed, end):
                    stopped = None  # another drain loads: shred what it will load
                found[one.target] = stopped or left
            if ahead:
                self._batches.let_go()
                self._shredded[feed] = yield from self._guarded(targets[0], feed, ahead.told())
        return found

    def _begin_ahead(
        self, stack: ExitStack, target: Pipeline, feed: str, done: Done | None
    ) -> Generator[Event, None, Ahead | None]:
        """Begins to shred the next batch beside the loads, if more may be waiting. An expected error is the next turn's."""
        more = done and done.more and not done.fault and self.pipeline.dataset.shred.ahead
        if not more or feed in self.pipeline.source.on_demand or self._spent(self.report.shredded):
            return None

        def begin() -> Generator[Event, None, Ahead | None]:
            ahead = stack.enter_context(self._batches.ahead(feed, self._most))
            if ahead:
                self._shredded[feed] = Done(), None  # until its end is known
                yield ahead.batch.started
            return ahead

        ahead, end = yield from self._guarded(target, feed, begin())
        if end and end.stop is not Stop.BUSY:
            self._shredded[feed] = None, end
        return ahead

    def _goes_on(self, feed: str, hindrance: FeedEnd | None) -> bool:
        """True if the next batch is shredded already or being shredded, or may be shredded by the next turn."""
        return feed in self._shredded or (not hindrance and self._may_go_on_shredding(feed))

    def _guarded(
        self, target: Pipeline, feed: str, work: Generator[Event, None, Result]
    ) -> Generator[Event, None, tuple[Result | None, FeedEnd | None]]:
        """Does work on a feed of a target. Returns its result, or the end that an expected error means."""
        try:
            return (yield from work), None
        except LeaseBusy as busy:
            return None, self.end(target, feed, Stop.BUSY, reason=str(busy), remedy=busy.remedy)
        except (Fenced, ClaimLost) as error:
            return None, self.end(target, feed, Stop.FENCED, reason=str(error))
        except Unbelieved as error:
            found = explained(target, error)
            return None, self.end(target, feed, Stop.BLOCKED, reason=found.reason, remedy=found.remedy)
        except HeldByWorker as held:
            return None, self.end(target, feed, Stop.BUSY, reason=str(held))
        except Held as held:
            return None, self.end(target, feed, Stop.HELD, reason=str(held))
        except (WarehouseError, StoreUnavailable, OutcomeUnknown, SparkUnavailable) as error:
            return None, self.end(target, feed, Stop.UNAVAILABLE, reason=str(error))

    def _work_on(self, target: Pipeline, feed: str, hindrance: FeedEnd | None) -> Generator[Event, None, FeedEnd | None]:
        """Loads what may be loaded. Returns the end; None if work is left. `hindrance`: why no batch can be shredded now."""
        try:
            if not is_begun(target):
                yield from begin(target, self.spark)
        except LeaseBusy:
            raise
        except Refused as error:
            return self.end(target, feed, Stop.BLOCKED, reason=str(error), remedy=error.remedy)
        verdict = yield from self._load(target, feed)
        if verdict is None or (verdict is Stop.BLACKOUT and self._goes_on(feed, hindrance)):
            return None
        if verdict is Stop.BLACKOUT:
            return self.end(target, feed, verdict, reason=blackout_reason(target))
        if isinstance(verdict, Stop):
            return self.end(target, feed, verdict)
        unshredded = isinstance(verdict, Blocked) and verdict.standing is Standing.WAITING
        in_work = isinstance(verdict, Blocked) and verdict.standing is Standing.PROCESSING
        if hindrance and (unshredded or isinstance(verdict, Idle) or (in_work and hindrance.stop is Stop.BUSY)):
            if unshredded and isinstance(target.manifest.next(feed, target.load.key), Ready):
                return None  # another drain has shredded it meanwhile, and could not load it
            return self.end(target, feed, hindrance.stop, reason=hindrance.reason, remedy=hindrance.remedy)
        out_of_budget = Stop.BUDGET_SECONDS if self._gives_way() else self._spent(self.report.shredded)
        if self._goes_on(feed, hindrance):
            return None
        if isinstance(verdict, Blocked):
            stop = (unshredded and out_of_budget) or Stop.BLOCKED
            return self.end(target, feed, stop, item=verdict.item.key.name, reason=verdict.reason, remedy=verdict.remedy)
        return self.end(target, feed, Stop.IDLE)

    def _spent(self, items: int) -> Stop | None:
        """Returns the spent budget, if this number of items or the elapsed time spends one."""
        if self.budget.items is not None and items >= self.budget.items:
            return Stop.BUDGET_ITEMS
        if self.budget.seconds is not None and time.monotonic() - self._begun >= self.budget.seconds:
            return Stop.BUDGET_SECONDS
        return None

    def _gives_way(self) -> bool:
        """True once the drain is asked to end for others. It is asked after a load, so that each drain gets on."""
        self._gave_way = self._gave_way or self._others_wait()
        return self._gave_way

    def _pace(self, pipeline: Pipeline, feed: str) -> Pace:
        """Returns the pace of a target's loads of a feed in this drain."""
        return self._paces.setdefault((pipeline.target, feed), Pace(pipeline.dataset.load.batch))

    def _left(self, items: int) -> int | None:
        """Returns the number of items that the budget allows after this number; None without a limit."""
        return None if self.budget.items is None else max(1, self.budget.items - items)

    def _may_go_on_shredding(self, feed: str) -> bool:
        return not self._spent(self.report.shredded) and not self._gave_way and bool(self._batches.waiting(feed, 1)[0])

    @property
    def _most(self) -> int:
        """The most items of the next batch to shred."""
        most = self.pipeline.dataset.shred.batch
        return most if self.budget.items is None else min(most, self.budget.items - self.report.shredded)

    def _load(self, pipeline: Pipeline, feed: str) -> Generator[Event, None, Blocked | Idle | Stop | None]:
        """Loads in order until nothing may be loaded, and returns the reason; None if it is another target's turn."""
        turn = time.monotonic() + TURN_SECONDS if len(self.targets) > 1 else float("inf")
        verdict = pipeline.manifest.next(feed, pipeline.load.key)
        if isinstance(verdict, Idle) or (isinstance(verdict, Blocked) and verdict.standing is not Standing.PROCESSING):
            return verdict
        if blackout_reason(pipeline):
            return Stop.BLACKOUT
        with pipeline.lease(feed, pipeline.load.key) as lease:
            mine, pace = Turn(pipeline, feed), self._pace(pipeline, feed)
            verdicts = pipeline.manifest.verdicts(lease)
            while not (stop := self._spent(self._loaded[pipeline.target])):
                if time.monotonic() > turn:
                    return None
                verdict = next(verdicts)
                if not isinstance(verdict, Abandoned | Ready):
                    return verdict
                if blackout_reason(pipeline):
                    return Stop.BLACKOUT
                self._reach(mine, pipeline)
                if isinstance(verdict, Abandoned):
                    if settled := settle(pipeline, lease, verdict):
                        yield settled
                else:
                    try:
                        with _told(verdict.item):
                            left = self._left(self._loaded[pipeline.target])
                            events = load_next(pipeline, lease, verdict, pace, left)
                    except ConditionFailed:
                        continue  # an item was registered or resolved meanwhile: read again
                    except Held:
                        mine.lost()
                        continue  # another process made the file, or opened it after an error: wait for it
                    except GivenUp as error:
                        remedy = error.remedy or Remedy(Action.SHOW_STATUS)
                        return Blocked(verdict.item, Standing.NEEDS_FULL, str(error), pipeline.clock(), remedy)
                    if any(isinstance(event, Loaded) for event in events) and _is_full(pipeline, feed):
                        _let_steps_follow(pipeline)
                    mine.release()
                    yield from events
                if self._gives_way():
                    return Stop.BUDGET_SECONDS
            return stop


def _is_full(pipeline: Pipeline, feed: str) -> bool:
    """True if a feed's loads are snapshots."""
    return pipeline.manifest.step(feed, pipeline.load.key).order == "full"


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
