"""Hanging work: at its time limit it is canceled, and its lease expires although the worker is alive."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.merging import spark_job
from manifest_platform.pipeline import DrainReport, Stop
from manifest_platform.pipeline.drain import drain
from manifest_platform.pipeline.merge import MergeReport, Merging, merge
from manifest_platform.sources.snowplow.events import shredder
from manifest_platform_tests.pipeline.shop import Shop, drained, history, no_spark, run_names
from manifest_platform_tests.pipeline.test_crashes import drained_after_lease

FAR_TOO_LONG = 120
SECOND = 1 / 3600


def hang(session: Any) -> None:
    """Runs a Spark job that does not end."""

    def hanging(batches: Any) -> Any:
        time.sleep(FAR_TOO_LONG)
        yield from batches

    session.range(1).mapInArrow(hanging, "id bigint").collect()


def test_a_hanging_spark_job_releases_its_feed(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path, lease={"seconds": 1}, limits={"shred_hours": 2 * SECOND})
    began = time.monotonic()
    with shop.open() as pipeline:
        shop.land(pipeline, 0, events=1)
        with monkeypatch.context() as hung:
            hung.setattr(shredder, "shred_batch", lambda session, *_: hang(session))
            _, report = drained(pipeline, spark)
        assert time.monotonic() - began < FAR_TOO_LONG
        assert report.stop is Stop.FENCED
        assert "was given up: shredding 1 directories took longer than its limit of 0:00:02" in report.reason
        assert history(pipeline, 0) == ["New", "shred Processing"]
    unhurried = Shop(tmp_path, lease={"seconds": 1})
    with unhurried.open() as pipeline:
        assert drained_after_lease(pipeline, spark).stop is Stop.IDLE
        assert history(pipeline, 0)[2:4] == ["shred Failed lease_expired", "shred Resolved automatic"]


def test_a_statement_that_cannot_be_interrupted_does_not_hold_its_feed(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hanging worker survives, and finds that another worker has taken over."""
    shop = Shop(tmp_path, lease={"seconds": 1}, limits={"load_hours": SECOND})
    shop.shredded(spark, 2, events=1)
    begun, released = threading.Event(), threading.Event()
    reports: list[Any] = []

    def work() -> None:
        with shop.open() as pipeline:
            apply = pipeline.warehouse.apply

            def hanging(load: Any) -> Any:
                pipeline.warehouse.close()  # otherwise the process keeps DuckDB's file open
                begun.set()
                assert released.wait(FAR_TOO_LONG)
                return apply(load)

            monkeypatch.setattr(pipeline.warehouse, "apply", hanging)
            monkeypatch.setattr(pipeline.warehouse, "interrupt", lambda: None)
            reports.extend(drain(pipeline, no_spark))

    worker = threading.Thread(target=work)
    worker.start()
    assert begun.wait(60)
    try:
        with Shop(tmp_path, lease={"seconds": 1}).open() as pipeline:
            report = drained_after_lease(pipeline)
            assert (report.stop, report.loaded) == (Stop.IDLE, 2)
            assert "load Failed lease_expired" in history(pipeline, 0)
    finally:
        released.set()
        worker.join(60)
    assert not worker.is_alive()
    last = reports[-1]
    assert isinstance(last, DrainReport)
    assert (last.stop, last.loaded) == (Stop.FENCED, 0)
    assert shop.seen.runs == run_names(0, 1)
    assert shop.doubled_events == []


def test_a_hanging_merge_releases_its_jobs(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"merge": {"first_day": "2024-05-01"}, "lease": {"seconds": 1}}
    shop = Shop(tmp_path, **settings, limits={"merge_hours": 2 * SECOND})
    shop.shredded(spark, 1, events=5)
    began = time.monotonic()
    with shop.open() as pipeline, monkeypatch.context() as hung:
        hung.setattr(spark_job, "merge_all", lambda session, _tasks: hang(session))
        *_, report = merge(Merging(pipeline), lambda: spark)
        assert time.monotonic() - began < FAR_TOO_LONG
        assert isinstance(report, MergeReport)
        assert report.stop is Stop.FENCED
        assert "took longer than its limit of 0:00:02" in report.reason
    with Shop(tmp_path, **settings).open() as pipeline:
        for _ in range(100):
            *_, report = merge(Merging(pipeline), lambda: spark)
            assert isinstance(report, MergeReport)
            if report.merged:
                return
            time.sleep(0.1)
    raise AssertionError("the jobs are not given back")
