"""How long work tells how far it is, and that it costs nothing where nobody listens."""

import threading
from types import SimpleNamespace

import pytest

from manifest_platform import progress
from manifest_platform.progress import BYTES, Reporter, Work
from manifest_platform.spark import watched


@pytest.mark.parametrize(
    ("work", "seconds", "told"),
    [
        (Work("starting Spark", begun=0), 5, "starting Spark: 5 s"),
        (
            Work("shredding", 1_200_000_000, BYTES, 420_000_000, begun=0),
            18,
            "shredding: 35%, 420.0 MB of 1.2 GB, 18 s, 23.3 MB/s, about 33 s left",
        ),
        (Work("shredding", 1_000, BYTES, 10, begun=0), 18, "shredding: 1%, 10 B of 1.0 kB, 18 s, 1 B/s"),
        (Work("shredding", 1_000, BYTES, 1_000, begun=0), 4, "shredding: 100%, 1.0 kB of 1.0 kB, 4 s, 250 B/s"),
        (Work("reading", done=45_000, begun=0), 12, "reading: 45,000 items, 12 s, 3,750 items/s"),
        (Work("loading", 10, "rows", 20, begun=0), 12, "loading: 100%, 10 of 10 rows, 12 s, 2 rows/s"),
    ],
)
def test_work_tells_its_share_amount_time_rate_and_what_is_left(work, seconds, told):
    assert work.described(seconds) == told


def test_what_measures_may_fail():
    work = Work("shredding", 10, done=3, begun=0, measure=lambda: 1 / 0)
    assert work.described(1).startswith("shredding: 30%")


def test_without_a_listener_nothing_is_asked_and_no_thread_runs():
    before = threading.active_count()
    with progress.work("shredding", 10) as work, watched(SimpleNamespace(), work):  # ty: ignore[invalid-argument-type]
        assert not progress.listened()
        assert work.measure is None
    assert list(progress.each(range(3), "walking")) == [0, 1, 2]
    assert threading.active_count() == before


def test_a_reporter_tells_of_the_innermost_work_and_of_its_end():
    told, ended, enough = [], threading.Event(), threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        enough.set()

    with progress.reported_by(Reporter(tell, 0.01, ended.set)):
        with progress.work("the outer"), progress.work("the inner", 4, "rows") as work:
            work.advance(2)
            assert enough.wait(5)
        assert ended.wait(5)
    assert told[0] == "the inner: 50%, 2 of 4 rows, 0 s"
    assert not progress.listened()


def test_work_that_is_over_at_once_is_not_told_of():
    told = []
    with progress.reported_by(Reporter(told.append, 5)):
        for _ in progress.each(range(10), "walking"):
            pass
    assert told == []


def test_a_classic_session_is_asked_for_the_finished_tasks_of_its_stages():
    stages = {1: SimpleNamespace(numTasks=3, numCompletedTasks=1), 2: None}
    tracker = SimpleNamespace(getActiveStageIds=lambda: list(stages), getStageInfo=stages.get)
    session = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    with progress.reported_by(Reporter(lambda _: None, 60)), progress.work("shredding", 300, BYTES) as work:
        with watched(session, work):  # ty: ignore[invalid-argument-type]
            assert work.described().startswith("shredding: 33%, 100 B of 300 B")
            stages.clear()
            assert work.described().startswith("shredding: 33%")  # a stage has just ended
        assert work.measure is None


def test_a_session_of_a_server_tells_by_itself(monkeypatch):
    handlers = []
    session = SimpleNamespace(registerProgressHandler=handlers.append, removeProgressHandler=handlers.remove)
    monkeypatch.setattr("pyspark.sql.utils.is_remote", lambda: True)
    with progress.reported_by(Reporter(lambda _: None, 60)), progress.work("shredding", 300, BYTES) as work:
        with watched(session, work):  # ty: ignore[invalid-argument-type]
            handlers[0]([SimpleNamespace(num_tasks=4, num_completed_tasks=1)], 2, "id", False)
            handlers[0](None, 0, "id", True)
            assert work.done == 75
        assert handlers == []
