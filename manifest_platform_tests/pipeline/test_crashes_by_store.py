"""Processes killed at each point in turn, on stores and warehouses with a server. The last drain finishes without a person.

The same on SQLite and DuckDB, and what each crash leaves behind in detail, is in `test_crashes`.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.pipeline import Stop
from manifest_platform_tests.pipeline.shop import Shop, drained, history, keys, run_names, watermark
from manifest_platform_tests.pipeline.test_crashes import drained_after_lease
from manifest_platform_tests.servers.warehouses import Place

LOADING = ["load.claimed", "load.before_transaction", "load.in_transaction", "load.committed", "load.completed"]
LEASE = {"seconds": 1, "max_attempts": len(LOADING) + 1}
SHREDDING = ["shred.job_done", "shred.completed"]


def kill_at(shop: Shop, point: str, *arguments: str) -> None:
    """Kills a drain at a point, after the lease of the previously killed drain has expired."""
    for _ in range(20):
        process = shop.process(f"{point}:kill", *arguments)
        output, _ = process.communicate(timeout=250)
        if process.returncode == -signal.SIGKILL:
            return
        assert '"busy"' in output, f"{point} was not reached: {output}"
    raise AssertionError("the lease does not run out")


@pytest.fixture(scope="module")
def clean(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """The shop after an undisturbed drain."""
    shop = Shop(tmp_path_factory.mktemp("clean"))
    shop.shredded(spark, len(LOADING))
    with shop.open() as pipeline:
        drained(pipeline)
    return shop


def is_as_if_nobody_had_died(shop: Shop, clean: Shop) -> None:
    seen = shop.seen
    assert seen == replace(clean.seen, token=seen.token)
    assert shop.contents == clean.contents
    assert seen.runs == run_names(*range(len(LOADING)))
    assert shop.doubled_events == []
    with shop.open() as pipeline:
        assert watermark(pipeline) == keys(pipeline, len(LOADING) - 1)[0].sort
        for number in range(len(LOADING)):
            records = history(pipeline, number)
            assert [records.count(f"{application} Processed") for application in ("shred", "load")] == [1, 1]


@pytest.mark.long
@pytest.mark.parametrize("store_url", ["postgresql", "dynamodb"], indirect=True)
def test_drains_killed_at_every_point_of_loading_lose_and_double_nothing(
    tmp_path: Path, store_url: str, spark: Any, clean: Shop
) -> None:
    shop = Shop(tmp_path, lease=LEASE, manifest={"store": store_url})
    shop.shredded(spark, len(LOADING))
    for point in LOADING:
        kill_at(shop, point)
    with shop.open() as pipeline:
        report = drained_after_lease(pipeline)
        assert (report.stop, report.failed) == (Stop.IDLE, 0)
    is_as_if_nobody_had_died(shop, clean)


@pytest.mark.long
def test_drains_killed_at_every_point_of_loading_lose_and_double_nothing_on_any_warehouse(
    tmp_path: Path, place: Place, spark: Any, clean: Shop
) -> None:
    shop = Shop(tmp_path, place, lease=LEASE)
    shop.shredded(spark, len(LOADING))
    for point in LOADING:
        kill_at(shop, point)
    with shop.open() as pipeline:
        report = drained_after_lease(pipeline)
        assert (report.stop, report.failed) == (Stop.IDLE, 0)
    is_as_if_nobody_had_died(shop, clean)


@pytest.mark.long
@pytest.mark.parametrize("store_url", ["dynamodb"], indirect=True)
def test_drains_killed_at_every_point_of_shredding_lose_nothing(
    tmp_path: Path, store_url: str, spark: Any, clean: Shop
) -> None:
    shop = Shop(tmp_path, lease=LEASE, manifest={"store": store_url})
    shop.write(*range(len(LOADING)))
    for point in SHREDDING:
        kill_at(shop, point, "--discover")
    with shop.open() as pipeline:
        shredded = [number for number in range(len(LOADING)) if history(pipeline, number)[-1] == "shred Processed"]
        assert len(shredded) == 1, "one of the batch was completed"
        assert drained_after_lease(pipeline, spark).stop is Stop.IDLE
    is_as_if_nobody_had_died(shop, clean)
