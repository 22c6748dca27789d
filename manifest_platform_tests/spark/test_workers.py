"""The wait for the workers of a cluster: bounded, asked before work, and an error that says what to do."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from manifest_platform import __version__
from manifest_platform.spark import SparkUnavailable, workers


class Cluster:
    """In place of a session on a cluster. Without workers, a job waits until it is canceled, as on a real cluster."""

    def __init__(self, id_: str, has_workers: bool) -> None:
        self.jobs, self._canceled = 0, threading.Event()
        self.error, self.release = "job canceled\n\tat java", __version__
        if has_workers:
            self._canceled.set()
        self.has_workers = has_workers
        self.conf = {"spark.executor.memory": "64g"}
        tags = {"addJobTag": lambda _tag: None, "removeJobTag": lambda _tag: None}
        self.sparkContext = SimpleNamespace(applicationId=id_, cancelJobsWithTag=lambda _tag: self._canceled.set(), **tags)

    def lose_workers(self) -> None:
        self.has_workers = False
        self._canceled.clear()

    def range(self, *_: int) -> Cluster:
        return self

    def mapInArrow(self, *_: Any) -> Cluster:
        return self

    def collect(self) -> list[tuple[str]]:
        self.jobs += 1
        self._canceled.wait()
        if not self.has_workers:
            self._canceled.clear()
            raise RuntimeError(self.error)
        return [(self.release,)]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which stands still until a test sets it."""
    found = [0.0]
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: found[0]))
    monkeypatch.setattr(workers, "_seen", {})
    return found


def test_each_session_is_asked_for_workers_and_asked_again_some_seconds_later(now: list[float]) -> None:
    first: Any = Cluster("first", True)
    second: Any = Cluster("second", True)
    for session in (first, first, second):
        workers.await_workers(session, 60, "a.conf")
    assert (first.jobs, second.jobs) == (1, 1)
    now[0] += workers._FRESH_S
    for _ in range(2):
        workers.await_workers(first, 60, "a.conf")
    assert first.jobs == 2


def test_a_session_whose_workers_are_gone_since_says_so_before_work(now: list[float]) -> None:
    """The job of the next batch hung for hours, with its items claimed."""
    cluster = Cluster("gone", True)
    session: Any = cluster
    workers.await_workers(session, 60, "a.conf")
    cluster.lose_workers()
    now[0] += workers._FRESH_S
    with pytest.raises(SparkUnavailable, match=r"no worker has run a task within 0 s"):
        workers.await_workers(session, 0.01, "a.conf")


@pytest.mark.usefixtures("now")
def test_without_workers_the_wait_ends_and_says_what_the_session_asked_for() -> None:
    session: Any = Cluster("alone", False)
    for jobs in (1, 2):
        with pytest.raises(
            SparkUnavailable, match=r"no worker has run a task within 0 s.*a\.conf.*spark\.executor\.memory 64g"
        ):
            workers.await_workers(session, 0.01, "a.conf")
        assert session.jobs == jobs, "asked again by the next drain"


def test_a_session_that_is_lost_meanwhile_gives_the_reason_without_a_java_stack_trace() -> None:
    session: Any = Cluster("lost", False)
    session.sparkContext.cancelJobsWithTag("at once")
    with pytest.raises(SparkUnavailable, match=r"runs no task: job canceled; see Spark's log"):
        workers.await_workers(session, 60, "a.conf")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            "x\nModuleNotFoundError: No module named 'manifest_platform'\n\tat java",
            r"workers of Spark with a\.conf have no manifest_platform: write the archive with `spark ",
        ),
        ("[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed", "have no PyArrow: write the archive"),
        (
            "e\n[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11\n\tat java",
            "have another Python than this process, .*different version: 3.9",
        ),
        (
            "Error from python worker:\n  manifest-platform: this worker has no Python 3.11. Install it\nPYTHONPATH",
            "have another Python than this process, .*has no Python 3.11. Install it$",
        ),
    ],
)
def test_workers_that_cannot_run_this_package_are_told_apart_with_what_to_do(error: str, told: str) -> None:
    session: Any = Cluster("other", False)
    session.error = error
    session.sparkContext.cancelJobsWithTag("at once")
    with pytest.raises(SparkUnavailable, match=told):
        workers.await_workers(session, 60, "a.conf")


def test_workers_with_another_release_are_refused() -> None:
    session: Any = Cluster("old", True)
    session.release = "0.0.1"
    with pytest.raises(SparkUnavailable, match=r"have release 0\.0\.1 of manifest-platform, and this process .*spark\.package"):
        workers.await_workers(session, 60, "a.conf")
