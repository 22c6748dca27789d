"""The batches that a drain shreds: which items, under which lease, and whether at once or ahead of the loads.

While the items of a batch are loaded, the next batch is shredded in a thread of its own. Loads stay in the drain's own thread:
their order and their transactions are those of a drain that does one after the other. The thread does one thing: it claims the
batch, shreds it and ends the claims. The drain tells its events after the loads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from manifest_platform import failpoints
from manifest_platform.manifest import Blocked, ConditionFailed, FailureKind, FeedState, Item, ItemKey, Lease, Standing
from manifest_platform.manifest.dataset import PASSED, blocked, judge
from manifest_platform.pipeline.events import Event, ItemFailed, PutBack, Shredded, ShredStarted
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.shredding import free_abandoned, portion, ready_session, shred_with
from manifest_platform.sources.source import SHRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Outcomes = list[Shredded | ItemFailed | PutBack]

ENDS_WITHIN_S = 15.0
"""The seconds that a canceled batch has to put its items back. Otherwise the next drain frees them."""
_CANCEL_AGAIN_S = 0.2


@dataclass(frozen=True)
class Done:
    """The end of a batch. `fault`: the transient fault that it met, if any. `more`: True if more items may be waiting."""

    fault: str = ""
    more: bool = False


@dataclass(frozen=True)
class Batch:
    """The next items to shred, under their lease. `more`: True if more items may be waiting."""

    lease: Lease
    items: Sequence[Item]
    more: bool

    @property
    def started(self) -> ShredStarted:
        """The event of its beginning."""
        return ShredStarted(len(self.items), sum(item.landed.bytes for item in self.items if item.landed))

    def told(self, outcomes: Outcomes) -> Generator[Event, None, Done]:
        """Yields what became of the items, and returns the end.

        The next drain retries after a transient fault. An immediate retry would use up all attempts in an outage of seconds.
        """
        fault = ""
        for event in outcomes:
            if isinstance(event, PutBack):
                fault = fault or event.reason
            if isinstance(event, ItemFailed) and event.failure.kind is FailureKind.TRANSIENT:
                fault = event.failure.message
            yield event
        return Done(fault, self.more)


class Batches:
    """The batches of a drain, of a dataset that is loaded into `targets`. `spark`: returns the session."""

    def __init__(self, pipeline: Pipeline, targets: Sequence[Pipeline], spark: Callable[[], SparkSession]) -> None:
        self._pipeline, self._targets, self._spark = pipeline, targets, spark

    def waiting(self, feed: str, limit: int) -> tuple[list[Item], list[Blocked]]:
        """Returns the items that may be shredded now, and those that are stuck. Of snapshots, only the one being loaded."""
        manifest = self._pipeline.manifest
        if feed not in self._pipeline.source.on_demand:
            return manifest.waiting(feed, SHRED, limit)
        ready: list[Item] = []
        stuck: list[Blocked] = []
        begun = {state.full for one in self._targets if (state := manifest.state(one.load)).full}
        for position in sorted(filter(None, begun)):
            item = manifest.item(ItemKey.at(feed, position))
            judged = judge(item, manifest.step(feed, SHRED), FeedState())
            if judged.standing is Standing.READY:
                ready.append(item)
            elif judged.standing not in PASSED:
                stuck.append(blocked(item, judged))
        return ready, stuck

    @contextmanager
    def _next(self, feed: str, most: int) -> Generator[Batch | None]:
        """Yields the next batch, at most `most` items, under its lease; None if nothing waits. Raises LeaseBusy."""
        pipeline = self._pipeline
        if most <= 0 or not pipeline.manifest.any_pending(feed, SHRED):
            yield None
            return
        if feed in pipeline.source.on_demand and not any(self.waiting(feed, 1)):
            yield None  # a snapshot is shredded when its full load begins, and again only if its output was lost since
            return
        with pipeline.lease(feed, SHRED) as lease:
            ready, stuck = self.waiting(feed, most)
            if free_abandoned(pipeline, lease, (one.item for one in stuck)):
                ready, _ = self.waiting(feed, most)
            items = portion(ready, most) if ready else []
            yield Batch(lease, items, len(items) < len(ready) or len(ready) == most) if items else None

    def shredded(self, feed: str, most: int) -> Generator[Event, None, Done]:
        """Shreds the next batch, and returns its end. Lets go of warehouses meanwhile. Raises LeaseBusy, SparkUnavailable."""
        with self._next(feed, most) as batch:
            if batch is None:
                return Done()
            self.let_go()
            yield batch.started
            try:
                outcomes = shred_with(self._pipeline, batch.lease, ready_session(self._pipeline, self._spark), batch.items)
            except ConditionFailed:
                return Done(more=True)  # another process changed an item while Spark started: look again
            return (yield from batch.told(outcomes))

    @contextmanager
    def ahead(self, feed: str, most: int) -> Generator[Ahead | None]:
        """Shreds the next batch in a thread of its own during the block; yields None if nothing waits. Raises as `shredded`.

        If the block ends before the batch, its Spark job is canceled and its items are put back.
        """
        with self._next(feed, most) as batch:
            if batch is None:
                yield None
                return
            session = ready_session(self._pipeline, self._spark)  # in this thread, which owns the process's signals
            with Ahead(batch, lambda: shred_with(self._pipeline, batch.lease, session, batch.items)) as work:
                yield work

    def let_go(self) -> None:
        """Lets other processes use warehouses that only a single process can have open."""
        for one in self._targets:
            one.let_go()


class Ahead:
    """A batch that is shredded in a thread of its own, as long as the `with` block runs."""

    def __init__(self, batch: Batch, work: Callable[[], Outcomes]) -> None:
        self.batch = batch
        self._work = work
        self._outcomes: Outcomes = []
        self._error: BaseException | None = None
        self._over = threading.Event()
        # The context has the listener of progress. As a daemon, the thread keeps no process from ending.
        name = f"shredding {batch.lease.feed}"
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name=name, daemon=True)

    def told(self) -> Generator[Event, None, Done]:
        """Waits for the end, and then as `Batch.told`. Raises what the thread raised."""
        self._over.wait()
        if isinstance(self._error, ConditionFailed):
            return Done(more=True)  # another process changed an item: look again
        if self._error:
            raise self._error
        return (yield from self.batch.told(self._outcomes))

    def __enter__(self) -> Ahead:
        self._thread.start()
        return self

    def __exit__(self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        if self._over.is_set():
            return
        until = time.monotonic() + ENDS_WITHIN_S
        while not self._over.is_set() and time.monotonic() < until:
            self.batch.lease.end_work()
            self._over.wait(_CANCEL_AGAIN_S)
        if not self._over.is_set():
            log.warning("shredding did not end within %s s: the next drain frees its directories", ENDS_WITHIN_S)
        for note in getattr(self._error, "__notes__", ()):
            if error:
                error.add_note(note)

    def _run(self) -> None:
        try:
            failpoints.reach("shred.ahead_begun")
            self._outcomes = self._work()
            failpoints.reach("shred.ahead_done")
        except BaseException as error:
            self._error = error
        finally:
            self._over.set()
