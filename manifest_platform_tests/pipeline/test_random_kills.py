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
from manifest_platform_tests.pipeline.shop import Shop, drained, run_names
from manifest_platform_tests.servers.warehouses import Place

RUNS, KILLS, LONGEST_S = 24, 200, 0.8
LEASE = {"seconds": 1, "max_attempts": 20}


def _empty_manifest(shop: Shop) -> None:
    """Restores the manifest from its first copy."""
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    for file in (shop.home / "beginning").glob("manifest.db*"):
        shutil.copy(file, shop.home)


def _kill(shop: Shop, after_s: float) -> bool:
    """Kills a drain some time after its start. Returns False if it had already ended."""
    process = shop.process(wait=True)
    assert process.stdin and process.stdout
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("\n")
    process.stdin.flush()
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.kill()
    return process.wait() < 0


def _whole(shop: Shop) -> None:
    """Drains to the end, following the remedies as a person would, and compares the warehouse with the landing."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with shop.open() as pipeline:
            _, report = drained(pipeline)
            if report.stop is Stop.BLOCKED and not report.item:
                list(reconcile(pipeline, "put back"))
            if report.stop is Stop.IDLE:
                break
    assert (report.stop, shop.seen.runs) == (Stop.IDLE, run_names(*range(RUNS))), report.reason
    assert shop.doubled_events == []


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(4))
def test_drains_killed_at_any_moment_lose_and_double_nothing(tmp_path: Path, place: Place, spark: Any, seed: int) -> None:
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
            _whole(shop)
            place.empty()  # so everything in the manifest must be loaded again
        if chance.random() < 0.05:
            chance.choice([partial(_empty_manifest, shop), place.empty])()
    _whole(shop)
