"""Real processes killed or stopped at a drain's most vulnerable points, on every warehouse.

The next drain finishes without a person.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import storage
from manifest_platform.manifest import Application
from manifest_platform.pipeline import SHRED, Budget, DrainReport, Pipeline, Stop
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.remedies import Action, Remedy
from manifest_platform_tests.pipeline.shop import (
    Shop,
    drained,
    ended,
    history,
    keys,
    loaded_record,
    run_names,
    watermark,
)
from manifest_platform_tests.servers.warehouses import Place

RUNS = 3
LEASE = {"seconds": 1, "max_attempts": 3}
SHREDDED = ["New", "shred Processing", "shred Processed"]
AGAIN = ["load Failed lease_expired", "load Resolved automatic", "load Processing", "load Processed"]


@pytest.fixture(scope="module")
def clean(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """The shop after an undisturbed drain."""
    shop = Shop(tmp_path_factory.mktemp("clean"))
    shop.shredded(spark, RUNS)
    with shop.open() as pipeline:
        assert drained(pipeline)[1].stop is Stop.IDLE
    return shop


def killed(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=250)
    assert process.returncode == -signal.SIGKILL, output


def stopped(process: subprocess.Popen[str]) -> None:
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def drained_after_lease(pipeline: Pipeline, spark: Any = None) -> DrainReport:
    """Drains as soon as the dead worker's lease has expired. Until then, drains report that they are busy."""
    for _ in range(100):
        _, report = drained(pipeline, *([spark] if spark else []))
        if report.stop is not Stop.BUSY:
            return report
        time.sleep(0.1)
    raise AssertionError("the lease does not run out")


@pytest.mark.parametrize(
    ("point", "committed"),
    [
        ("load.claimed", False),
        ("load.before_transaction", False),
        ("load.in_transaction", False),
        ("load.committed", True),
    ],
)
def test_a_worker_killed_while_loading_loses_and_doubles_nothing(
    tmp_path: Path, place: Place, spark: Any, clean: Shop, point: str, committed: bool
) -> None:
    shop = Shop(tmp_path, place, lease=LEASE)
    shop.shredded(spark, RUNS)
    with shop.open() as pipeline:
        drained(pipeline, budget=Budget(items=1))
    killed(shop.process(f"{point}:kill"))

    with shop.open() as pipeline:
        assert history(pipeline, 1) == [*SHREDDED, "load Processing"]
        assert watermark(pipeline) == keys(pipeline, 0)[0].sort
        report = drained_after_lease(pipeline)
        assert (report.stop, report.failed) == (Stop.IDLE, 0)
        assert history(pipeline, 1) == [*SHREDDED, "load Processing", *(["load Processed"] if committed else AGAIN)]
        for number in range(RUNS):
            entry = pipeline.warehouse.ledger_entry("enriched", keys(pipeline, number)[0].id, 1)
            record = loaded_record(pipeline, number)
            assert entry is not None
            assert (record.epoch, record.data["rows"]) == (entry.epoch, entry.rows)
            assert record.data["applied_at"] == entry.applied_at.isoformat()
        assert watermark(pipeline) == keys(pipeline, RUNS - 1)[0].sort
    seen = shop.seen
    assert seen.runs == run_names(0, 1, 2)
    assert (seen.rows, shop.contents) == (clean.seen.rows, clean.contents)
    assert shop.doubled_events == []


def test_an_item_whose_worker_is_killed_too_often_waits_for_a_person(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, lease={"seconds": 1, "max_attempts": 2})
    shop.shredded(spark, 1)
    for _ in range(2):
        time.sleep(1.1)
        killed(shop.process("load.in_transaction:kill"))
    with shop.open() as pipeline:
        report = drained_after_lease(pipeline)
        assert (report.stop, report.item) == (Stop.BLOCKED, run_names(0)[0])
        assert "lease expired" in report.reason
        assert report.remedy == Remedy(Action.RESOLVE, item=run_names(0)[0])
        pipeline.manifest.resolve(keys(pipeline, 0)[0], "the disk is mended")
        assert drained(pipeline)[1].stop is Stop.IDLE
    assert shop.seen.runs == run_names(0)


@pytest.mark.long
def test_a_worker_killed_while_shredding_loses_nothing(tmp_path: Path, spark: Any, clean: Shop) -> None:
    shop = Shop(tmp_path, lease=LEASE)
    shop.write(*range(RUNS))
    killed(shop.process("shred.job_done:kill", "--discover"))
    garbage = {path for path in (tmp_path / "shredded").glob("shop/*/*") if any(path.rglob("*.parquet"))}
    assert len(garbage) == RUNS, "the killed process had written its objects"

    with shop.open() as pipeline:
        assert drained_after_lease(pipeline, spark).stop is Stop.IDLE
        for number in range(RUNS):
            freed = ["New", "shred Processing", "shred Failed lease_expired", "shred Resolved automatic"]
            assert history(pipeline, number)[:6] == [*freed, "shred Processing", "shred Processed"]
            record = pipeline.manifest.item(keys(pipeline, number)[0]).processed_by(Application(SHRED))
            assert record is not None
            prefix = storage.local_path(record.data["listing"]).parent
            assert prefix.is_dir()
            assert prefix not in garbage
        named = [str(one.data) for number in range(RUNS) for one in pipeline.manifest.history(keys(pipeline, number)[0])]
    assert all(path.name not in data for path in garbage for data in named)
    assert all(path.is_dir() for path in garbage), "what nobody names stays where it is"
    assert shop.seen == replace(clean.seen, token=shop.seen.token)
    assert shop.contents == clean.contents


@pytest.mark.everyday("duckdb", "postgresql")
def test_a_worker_paused_past_its_lease_cannot_commit_what_another_finished(
    tmp_path: Path, place: Place, spark: Any, clean: Shop
) -> None:
    shop = Shop(tmp_path, place, lease=LEASE)
    shop.shredded(spark, RUNS)
    paused = shop.process("load.claimed:stop", "--without-heartbeat", "--connects-late")
    try:
        stopped(paused)
        with shop.open() as pipeline:
            assert drained_after_lease(pipeline).stop is Stop.IDLE
        before = shop.seen
        assert (before.rows, before.runs) == (clean.seen.rows, run_names(0, 1, 2))
        os.kill(paused.pid, signal.SIGCONT)
        report = ended(paused)
    finally:
        paused.kill()
    assert (report["stop"], report["loaded"]) == (Stop.FENCED, 0)
    assert shop.seen == before
    assert shop.contents == clean.contents


def test_a_worker_paused_past_its_lease_cannot_commit_an_item_that_was_failed(tmp_path: Path, place: Place, spark: Any) -> None:
    """Only the fence prevents the paused worker from committing an item that the manifest now has as failed."""
    shop = Shop(tmp_path, place, lease={"seconds": 1, "max_attempts": 1})
    shop.shredded(spark, RUNS, events=500)
    with shop.open() as pipeline:
        drained(pipeline, budget=Budget(items=1))
        first, second = (listing_of(pipeline.manifest.item(key)) for key in keys(pipeline, 0, 1))
        assert first.tables == second.tables, "or the fence would be looked at for the sake of new columns alone"
    before = shop.seen
    paused = shop.process("load.claimed:stop", "--without-heartbeat", "--connects-late")
    try:
        stopped(paused)
        with shop.open() as pipeline:
            assert drained_after_lease(pipeline).stop is Stop.BLOCKED
            assert history(pipeline, 1) == [*SHREDDED, "load Processing", "load Failed lease_expired"]
        os.kill(paused.pid, signal.SIGCONT)
        report = ended(paused)
    finally:
        paused.kill()
    assert (report["stop"], report["loaded"]) == (Stop.FENCED, 0)
    seen = shop.seen
    assert (seen.ledger, seen.rows, seen.applied) == (before.ledger, before.rows, before.applied)
    with shop.open() as pipeline:
        assert history(pipeline, 1)[-1] == "load Failed lease_expired"
        pipeline.manifest.resolve(keys(pipeline, 1)[0], "it was only slow")
        assert drained(pipeline)[1].stop is Stop.IDLE
    assert shop.seen.runs == run_names(0, 1, 2)


@pytest.mark.long
def test_two_concurrent_drains_lose_and_double_nothing(tmp_path: Path, place: Place, spark: Any) -> None:
    shop = Shop(tmp_path, place)
    rounds, runs = 3, 6
    stops: list[str] = []
    for turn in range(1, rounds + 1):
        shop.shredded(spark, turn * runs)
        racers = [shop.process(wait=True) for _ in range(2)]
        try:
            for racer in racers:
                assert racer.stdout and racer.stdout.readline() == "ready\n"
            for racer in racers:
                assert racer.stdin
                racer.stdin.write("\n")
                racer.stdin.flush()
            reports = [ended(racer) for racer in racers]
        finally:
            for racer in racers:
                racer.kill()
        assert sum(report["loaded"] for report in reports) == runs
        assert {report["stop"] for report in reports} <= {Stop.IDLE, Stop.BUSY}
        stops += [report["stop"] for report in reports]
        busy = [report for report in reports if report["stop"] == Stop.BUSY]
        assert all("is held by" in report["reason"] and not report["loaded"] for report in busy)
    assert Stop.BUSY in stops, "the drains never met"
    seen = shop.seen
    assert seen.runs == run_names(*range(rounds * runs))
    assert shop.doubled_events == []
