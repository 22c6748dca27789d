"""Measures the progress of a Spark job by its finished tasks, in classic and in Spark Connect sessions."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from manifest_platform import progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def watched(session: SparkSession, work: progress.Work) -> Generator[None]:
    """Measures work by the tasks of the jobs that run in the block: the share of finished tasks is the share of work done.

    If nobody listens to progress, Spark is not asked.
    """
    if not progress.listened():
        yield
        return
    from pyspark.sql.utils import is_remote

    with _of_server(session, work) if is_remote() else _of_context(session, work):
        yield


@contextmanager
def _of_context(session: SparkSession, work: progress.Work) -> Generator[None]:
    """Asks the driver's status tracker for its stages at each measurement."""

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
    """Registers for progress messages of the Connect server, which arrive with a delay of about a second."""

    def on_progress(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        found = list(stages or ())
        work.done = _done(work, sum(one.num_tasks for one in found), sum(one.num_completed_tasks for one in found))

    with suppress(Exception):
        session.registerProgressHandler(on_progress)
    try:
        yield
    finally:
        with suppress(Exception):
            session.removeProgressHandler(on_progress)


def _done(work: progress.Work, tasks: int, finished: int) -> float:
    """The amount of work done. Between stages, the last amount is returned."""
    return work.done if not tasks else (work.total or tasks) * finished / tasks
