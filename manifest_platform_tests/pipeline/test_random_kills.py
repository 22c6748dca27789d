"""Drains killed repeatedly, with manifest or warehouse restored in between: the warehouse is complete in the end."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.operations.reconcile import reconcile
from manifest_platform.pipeline import Stop
from manifest_platform_tests.pipeline.shop import Shop, drained, no_spark, run_names
from manifest_platform_tests.servers.warehouses import Place

RUNS, KILLS, LONGEST_S = 24, 200, 0.8
SHREDS_KILLED, LONGEST_SHRED_S = 8, 20  # Spark alone takes some seconds to start
LEASE = {"seconds": 1, "max_attempts": 20}


def _empty_manifest(shop: Shop) -> None:
    """Restores the manifest from its first copy."""
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    for file in (shop.home / "beginning").glob("manifest.db*"):
        shutil.copy(file, shop.home)


def _kill(shop: Shop, after_s: float, *arguments: str) -> bool:
    """Kills a drain some time after its start. Returns False if it had already ended."""
    process = shop.process(None, *arguments, wait=True)
    assert process.stdin and process.stdout
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("\n")
    process.stdin.flush()
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.kill()
    return process.wait() < 0


@pytest.fixture(scope="module")
def contents(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The content of the warehouse after an undisturbed drain."""
    shop = Shop(tmp_path_factory.mktemp("clean"))
    shop.shredded(spark, RUNS)
    with shop.open() as pipeline:
        assert drained(pipeline)[1].stop is Stop.IDLE
    return shop.contents


def _whole(shop: Shop, contents: dict[str, str], spark: Any = no_spark) -> None:
    """Drains to the end, following the remedies as a person would, and compares the warehouse with the landing."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with shop.open() as pipeline:
            _, report = drained(pipeline, spark)
            if report.stop is Stop.BLOCKED and not report.item:
                list(reconcile(pipeline, "put back"))
            if report.stop is Stop.IDLE:
                break
    assert (report.stop, shop.seen.runs) == (Stop.IDLE, run_names(*range(RUNS))), report.reason
    assert shop.doubled_events == []
    assert shop.contents == contents


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(4))
def test_drains_killed_at_any_moment_lose_and_double_nothing(
    tmp_path: Path, place: Place, spark: Any, contents: dict[str, str], seed: int
) -> None:
    """200 kills in all on each engine, each at another moment."""
    shop, chance = Shop(tmp_path, place, lease=LEASE), random.Random(seed)
    shop.shredded(spark, RUNS)
    (shop.home / "beginning").mkdir()
    for file in shop.home.glob("manifest.db*"):
        shutil.copy(file, shop.home / "beginning")
    killed = 0
    while killed < KILLS // 4:
        if _kill(shop, chance.uniform(0, LONGEST_S)):
            killed += 1
        else:
            _whole(shop, contents)
            place.empty()  # so everything in the manifest must be loaded again
        if chance.random() < 0.05:
            chance.choice([partial(_empty_manifest, shop), place.empty])()
    _whole(shop, contents)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_drains_killed_at_any_moment_of_shredding_lose_and_double_nothing(
    tmp_path: Path, spark: Any, contents: dict[str, str]
) -> None:
    shop, chance = Shop(tmp_path, lease=LEASE), random.Random(1)
    shop.write(*range(RUNS))
    for _ in range(SHREDS_KILLED):
        _kill(shop, chance.uniform(0, LONGEST_SHRED_S), "--discover")
    _whole(shop, contents, spark)
