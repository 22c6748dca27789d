"""Walks on a warehouse that differs from the manifest: restored, emptied, or replaced by another warehouse."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.remedies import Action
from manifest_platform_tests.cli.advice.terminal import Terminal, at
from manifest_platform_tests.pipeline.shop import Shop, run_name, run_names
from manifest_platform_tests.sources.veeva.ward.ward import Ward, drained, incr, land, log, started


@pytest.fixture
def shop(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> Shop:
    """Two runs of three are loaded; the third is shredded. A copy of the warehouse is as old as the first."""
    shop = Shop(tmp_path)
    shop.shredded(spark, 3)
    at(monkeypatch, shop.config_file)
    terminal.run("drain", "--items", "1")
    shutil.copy(shop.home / "warehouse.duckdb", shop.home / "copy.duckdb")
    terminal.run("drain", "--items", "1")
    return shop


@pytest.mark.walks(Action.RECONCILE)
def test_what_a_warehouse_that_was_set_back_lacks_is_loaded_again(shop: Shop, terminal: Terminal) -> None:
    shutil.copy(shop.home / "copy.duckdb", shop.home / "warehouse.duckdb")
    for asked in ("status", "next", "drain"):
        assert f"its newest load of feed enriched is {run_name(0)}" in " ".join(terminal.run(asked, code=3).split())
        assert terminal.advised(Action.RECONCILE)
    for number in (1, 2):  # it called the one done and the other ready, as if they could be
        assert "However, load is stopped" in terminal.run("explain", run_name(number))
        assert terminal.advised(Action.RECONCILE)
    assert run_name(1) in terminal.run("warehouse", "reconcile", "--dry-run")
    terminal.run("next", code=3)
    assert f"1 reopened: {run_name(1)}" in terminal.follow(Action.RECONCILE)
    terminal.follow(Action.DRAIN)
    assert shop.seen.runs == run_names(0, 1, 2)
    assert "has everything" in terminal.run("warehouse", "reconcile", code=4)


@pytest.mark.walks(Action.ACCEPT_WAREHOUSE)
def test_another_warehouse_is_taken_on_purpose(
    shop: Shop, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Shop(tmp_path / "other")
    for folder in ("landing", "shredded"):
        shutil.copytree(shop.home / folder, other.home / folder, dirs_exist_ok=True)
    other.write(0)
    at(monkeypatch, other.config_file)
    terminal.run("discover")
    terminal.run("drain", "--items", "1")
    shutil.copy(other.home / "warehouse.duckdb", shop.home / "warehouse.duckdb")
    at(monkeypatch, shop.config_file)
    assert "was never made by this manifest" in " ".join(terminal.run("status", code=3).split())
    terminal.follow(Action.ACCEPT_WAREHOUSE, TEXT="the other team's, now ours")
    terminal.run("drain")
    assert shop.seen.runs == run_names(0, 2)
    assert "the manifest knows this warehouse" in terminal.run("warehouse", "accept", "--reason", "again", code=4)


@pytest.fixture
def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ward:
    """A vault with a snapshot, a window behind it, and a day of logs, all loaded."""
    ward = Ward(tmp_path)
    at(monkeypatch, ward.config_file)
    for name, value in ward.environment.items():
        monkeypatch.setenv(name, value)
    with ward.open() as pipeline:
        started(pipeline, "0000", incr("0015"))
        land(pipeline, log("0000"))
        drained(pipeline)
    return ward


@pytest.mark.walks(Action.RECONCILE_IN_FULL)
def test_where_a_snapshot_is_lost_a_full_load_is_begun(ward: Ward, terminal: Terminal) -> None:
    before = ward.seen.tables
    for file in ward.home.glob("warehouse.duckdb*"):
        file.unlink()
    with ward.open() as pipeline:
        land(pipeline, incr("0030"))
    assert "it was emptied or is a different warehouse" in " ".join(terminal.run("drain", code=3).split())
    assert "the snapshot of" in terminal.run("warehouse", "reconcile", "--dry-run", code=3)
    terminal.run("drain", code=3)
    assert "the snapshot of" in terminal.follow(Action.RECONCILE, code=3)
    terminal.follow(Action.RECONCILE_IN_FULL)
    for asked, code in (("status", 3), ("next", 0)):  # both advised the reconcile again, which is refused during a full load
        assert "BLOCKED by the warehouse" not in terminal.run(asked, code=code)
    terminal.follow(Action.DRAIN)
    assert sorted(ward.seen.applied) == ["full 0000", "incr 0015", "incr 0030", "log 0000"]
    assert set(ward.seen.tables) == set(before)


def test_an_accepted_warehouse_without_its_snapshot_takes_a_full_load_and_nothing_else(ward: Ward, terminal: Terminal) -> None:
    """The feed of snapshots was called blocked by the warehouse, and the reconcile that was advised found nothing to do."""
    for file in ward.home.glob("warehouse.duckdb*"):
        file.unlink()
    with ward.open() as pipeline:
        land(pipeline, incr("0030"))
    terminal.run("warehouse", "accept", "--reason", "moved", code=3)
    assert "BLOCKED by the warehouse" not in terminal.run("status", code=3)
    terminal.follow(Action.BEGIN_FULL_LOAD)
    terminal.follow(Action.DRAIN)
    assert sorted(ward.seen.applied) == ["full 0000", "incr 0015", "incr 0030"]
    terminal.run("status")
