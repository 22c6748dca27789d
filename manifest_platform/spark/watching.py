"""How far a Spark job is: its finished tasks, whether the session is classic or one of a Spark Connect server."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from manifest_platform import progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def watched(session: SparkSession, work: progress.Work) -> Generator[None]:
    """Measures work by the tasks of the jobs that run within the block: of so many as are finished, that share of it is done.

    Where nobody listens, nothing is asked.
    """
    if not progress.listened():
        yield
        return
    from pyspark.sql.utils import is_remote

    with _of_server(session, work) if is_remote() else _of_context(session, work):
        yield


@contextmanager
def _of_context(session: SparkSession, work: progress.Work) -> Generator[None]:
    """Asks the driver's tracker of stages, each time that it is measured."""

    def measure() -> float:
        tracker = session.sparkContext.statusTracker()
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
        return _done(work, sum(one.numTasks for one in stages), sum(one.numCompletedTasks for one in stages))

    work.measure = measure
    try:
        yield
    finally:
        work.measure = None


@contextmanager
def _of_server(session: Any, work: progress.Work) -> Generator[None]:
    """Is told by the server, a second or so after what it tells of."""

    def told(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        found = list(stages or ())
        work.done = _done(work, sum(one.num_tasks for one in found), sum(one.num_completed_tasks for one in found))

    with suppress(Exception):
        session.registerProgressHandler(told)
    try:
        yield
    finally:
        with suppress(Exception):
            session.removeProgressHandler(told)


def _done(work: progress.Work, tasks: int, finished: int) -> float:
    """How much that is; what was done before, where no stage is under way: one has just ended, or none has begun."""
    return work.done if not tasks else (work.total or tasks) * finished / tasks
