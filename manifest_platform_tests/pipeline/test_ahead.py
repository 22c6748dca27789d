"""Batches that are shredded ahead: while the items before them are loaded, by the same drain or by another."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from manifest_platform.manifest import LeaseLost, Standing
from manifest_platform.pipeline import LOAD, SHRED, Loaded, Pipeline, Shredded, Stop, batches
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.drain import drain
from manifest_platform.pipeline.shredding import shred
from manifest_platform.shred.batch import Cause
from manifest_platform.sources.snowplow.events import shredder as snowplow
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform_tests.pipeline.shop import Shop, drained, ended, history, run_names

PATIENCE = 60
ONE_BY_ONE = {"batch": 1}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, shred=ONE_BY_ONE)


def before_each(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, does: Callable[[int], object]) -> None:
    """Does something before each call of a function: it gets the number of the call, from 1."""
    real, calls = getattr(owner, name), 0

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        does(calls)
        return real(*given, **named)

    monkeypatch.setattr(owner, name, counted)


def test_the_next_batch_is_shredded_while_the_batch_before_is_loaded(
    shop: Shop, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shredding, loading = threading.Event(), threading.Event()

    def second_shred_waits_for_first_load(call: int) -> None:
        if call == 2:
            shredding.set()
            assert loading.wait(PATIENCE), "nothing is loaded while the second batch is shredded"

    def first_load_waits_for_second_shred(call: int) -> None:
        if call == 1:
            loading.set()
            assert shredding.wait(PATIENCE), "nothing is shredded while the first item is loaded"

    before_each(monkeypatch, batches, "shred_with", second_shred_waits_for_first_load)
    before_each(monkeypatch, Warehouse, "apply", first_load_waits_for_second_shred)
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 1, 2)
        events, report = drained(pipeline, spark)
    assert (report.stop, report.shredded, report.loaded, report.failed) == (Stop.IDLE, 3, 3, 0)
    assert [event.key.name for event in events if isinstance(event, Shredded)] == run_names(0, 1, 2)
    assert [event.key.name for event in events if isinstance(event, Loaded)] == run_names(0, 1, 2)
    assert shop.seen.runs == run_names(0, 1, 2)
    assert shop.doubled_events == []


def test_without_the_option_nothing_is_shredded_while_a_drain_loads(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, shred={**ONE_BY_ONE, "ahead": False})
    threads: list[str] = []
    before_each(monkeypatch, batches, "shred_with", lambda _: threads.append(threading.current_thread().name))
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 1)
        assert drained(pipeline, spark)[1].loaded == 2
    assert threads == [threading.main_thread().name] * 2


def slow_job(monkeypatch: pytest.MonkeyPatch, begun: threading.Event, from_call: int) -> None:
    """Makes a shredding job take far too long."""
    real, calls = snowplow.shred, 0

    def slowly(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(10 * PATIENCE)
        yield from rows

    def shred_slowly(session: Any, directories: Any, *rest: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < from_call:
            return real(session, directories, *rest, **named)
        begun.set()
        try:
            session.range(1).mapInArrow(slowly, "id bigint").collect()
        except Exception as error:
            return [snowplow.ShredFailure(one.item, one.attempt, str(error), Cause.LOST) for one in directories]
        raise AssertionError("the job came to its end")

    monkeypatch.setattr(snowplow, "shred", shred_slowly)


def test_a_drain_that_is_told_to_end_cancels_what_is_shredded_ahead_and_puts_it_back(
    shop: Shop, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, started = threading.Event(), time.monotonic()

    def told_to_end(_call: int) -> None:
        assert begun.wait(PATIENCE)
        raise KeyboardInterrupt

    slow_job(monkeypatch, begun, from_call=2)
    with monkeypatch.context() as patched, shop.open() as pipeline:
        before_each(patched, Warehouse, "apply", told_to_end)
        shop.land(pipeline, 0, 1)
        with pytest.raises(KeyboardInterrupt) as ending:
            drained(pipeline, spark)
        assert history(pipeline, 1) == ["New", "shred Processing", "shred Resolved automatic"]
        assert any("put back, no attempt is counted" in note for note in ending.value.__notes__)
        for application in (SHRED, LOAD):
            pipeline.lease(FEED, application).release()  # neither is held any more
    assert time.monotonic() - started < 5 * PATIENCE, "the job was not canceled"


def test_a_consumer_that_leaves_a_drain_ends_what_is_shredded_ahead(
    shop: Shop, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_job(monkeypatch, threading.Event(), from_call=2)
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 1)
        events = drain(pipeline, lambda: spark)
        assert next(event for event in events if isinstance(event, Loaded)).key.name == run_names(0)[0]
        events.close()
        assert "shred Processed" not in history(pipeline, 1)
        assert history(pipeline, 1)[-1] in ("New", "shred Resolved automatic")


@pytest.mark.parametrize(
    ("error", "stop"), [(SparkUnavailable("Spark is gone"), Stop.UNAVAILABLE), (LeaseLost("lost"), Stop.FENCED)]
)
def test_a_fault_of_what_is_shredded_ahead_ends_the_drain_after_the_loads_and_is_charged_to_no_item(
    shop: Shop, spark: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, stop: Stop
) -> None:
    def fails(call: int) -> None:
        if call == 2:
            raise error

    with monkeypatch.context() as patched, shop.open() as pipeline:
        before_each(patched, batches, "shred_with", fails)
        shop.land(pipeline, 0, 1)
        _, report = drained(pipeline, spark)
        assert (report.stop, report.loaded, report.failed) == (stop, 1, 0)
        assert str(error) in report.reason
        assert history(pipeline, 1) == ["New"]
    with shop.open() as pipeline:
        assert drained(pipeline, spark)[1].loaded == 1


def test_a_drain_loads_what_is_shredded_while_another_drain_shreds(shop: Shop, spark: Any) -> None:
    shop.shredded(spark, 1)
    with shop.open() as other, shop.open() as pipeline:
        shop.land(other, 1)
        with other.lease(FEED, SHRED):
            _, report = drained(pipeline)
            assert (report.stop, report.loaded) == (Stop.BUSY, 1)


def test_a_drain_is_busy_not_blocked_if_another_drain_has_claimed_what_it_would_load(shop: Shop) -> None:
    with shop.open() as other, shop.open() as pipeline:
        shop.land(other, 0)
        with other.lease(FEED, SHRED) as lease:
            other.manifest.claim(lease, other.manifest.waiting(FEED, SHRED, 1)[0])
            _, report = drained(pipeline)
            assert report.stop is Stop.BUSY


def test_a_drain_shreds_while_another_drain_loads(shop: Shop, spark: Any) -> None:
    with shop.open() as other, shop.open() as pipeline:
        shop.land(pipeline, 0, 1)
        with other.lease(FEED, LOAD):
            _, report = drained(pipeline, spark)
            assert (report.stop, report.shredded, report.loaded) == (Stop.BUSY, 2, 0)
        assert drained(pipeline)[1].loaded == 2


def test_what_another_drain_shredded_and_could_not_load_is_loaded_by_the_drain_that_held_the_lease(
    shop: Shop, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other drain ends as busy, because this drain holds the lease of the loads, and looks for the last time just then."""
    with shop.open() as other, shop.open() as pipeline:
        shop.land(pipeline, 0)
        real, lease = pipeline.manifest.next, other.lease(FEED, SHRED)

        def looks(*given: Any, **named: Any) -> Any:
            verdict = real(*given, **named)
            if getattr(verdict, "standing", None) is Standing.WAITING and not lease.lost.is_set():
                shred(other, lease, lambda: spark, other.manifest.waiting(FEED, SHRED, 1)[0])
                lease.release()
            return verdict

        monkeypatch.setattr(pipeline.manifest, "next", looks)
        _, report = drained(pipeline)
        assert (report.stop, report.loaded) == (Stop.IDLE, 1)


def loads_once_in_order(shop: Shop, runs: int) -> None:
    """Asserts that the warehouse has each run once, in order."""
    assert shop.seen.runs == run_names(*range(runs))
    assert shop.doubled_events == []


@pytest.mark.long
@pytest.mark.parametrize("point", ["shred.ahead_begun", "shred.ahead_done", "load.in_transaction", "load.committed"])
def test_a_drain_killed_while_it_shreds_ahead_loses_and_doubles_nothing(tmp_path: Path, spark: Any, point: str) -> None:
    shop = Shop(tmp_path, shred=ONE_BY_ONE, lease={"seconds": 1, "max_attempts": 3})
    shop.write(0, 1, 2)
    process = shop.process(f"{point}:kill", "--discover")
    process.communicate(timeout=10 * PATIENCE)
    assert process.returncode == -signal.SIGKILL
    with shop.open() as pipeline:
        report = next(one for one in _drains(pipeline, spark) if one.stop is not Stop.BUSY)
        assert (report.stop, report.failed) == (Stop.IDLE, 0)
    loads_once_in_order(shop, 3)


def _drains(pipeline: Pipeline, spark: Any) -> Iterator[Any]:
    """Drains until the killed worker's leases have expired."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        yield drained(pipeline, spark)[1]


@pytest.mark.long
def test_four_drains_of_a_dataset_load_each_run_once_in_order(tmp_path: Path) -> None:
    shop = Shop(tmp_path, shred={"batch": 2})
    shop.write(*range(8))
    with shop.open() as pipeline:
        discover(pipeline)
    processes = [shop.process(wait=True) for _ in range(4)]
    reports = [ended(process, 10 * PATIENCE) for process in processes]
    assert sum(report["shredded"] for report in reports) == 8
    assert sum(report["loaded"] for report in reports) == 8
    assert {report["stop"] for report in reports} <= {"idle", "busy"}
    loads_once_in_order(shop, 8)
