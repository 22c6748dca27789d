"""Walks on what shredding made, or could not make, of a run."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.pipeline.discovery import discover
from manifest_platform.remedies import Action
from manifest_platform_tests.cli.advice.terminal import Terminal, at
from manifest_platform_tests.pipeline.shop import Shop, drained, run_name, run_names


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path / "shop")
    at(monkeypatch, shop.config_file)
    return shop


def work(shop: Shop, spark: Any) -> None:
    """Runs `drain` with the Spark session that all tests share."""
    with shop.open() as pipeline:
        drained(pipeline, spark)


def spoil(shop: Shop, damage: str) -> dict[Path, bytes]:
    """Spoils every file of the first run; what they were."""
    files = {file: file.read_bytes() for file in shop.directory(0).glob("part-*")}
    assert files
    for file, content in files.items():
        file.write_bytes(gzip.compress(content)[:-20] if damage == "truncated" else b"no event\n" * 50)
    return files


@pytest.mark.parametrize("damage", ["truncated"])
@pytest.mark.walks(Action.ACCEPT)
def test_a_corrupt_run_is_landed_again_and_accepted(shop: Shop, spark: Any, terminal: Terminal, damage: str) -> None:
    """Earlier advice, to resolve the item, led to the same failure each time."""
    shop.write(0, 1)
    good = spoil(shop, damage)
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
    work(shop, spark)
    assert "BLOCKED" in terminal.run("next", code=3)
    terminal.follow(Action.ACCEPT, code=1, TEXT="too early")
    assert "Land the corrected directory first" in " ".join(terminal.told.split())
    assert terminal.advised(Action.EXPLAIN)
    for file, content in good.items():
        file.write_bytes(content)
    terminal.run("next", code=3)
    terminal.follow(Action.ACCEPT, TEXT="the producer mended it")
    work(shop, spark)
    assert shop.seen.runs == run_names(0, 1)


@pytest.mark.walks(Action.SKIP)
def test_a_run_that_is_corrupt_and_never_comes_again_is_skipped(shop: Shop, spark: Any, terminal: Terminal) -> None:
    shop.write(0, 1)
    spoil(shop, "truncated")
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
    work(shop, spark)
    terminal.run("next", code=3)
    terminal.follow(Action.ACCEPT, code=1, TEXT="too early")
    assert not terminal.advised(Action.SKIP), "what loses data is not what is advised first"
    terminal.follow(Action.EXPLAIN)
    terminal.follow(Action.SKIP, TEXT="it never comes")
    work(shop, spark)
    assert shop.seen.runs == run_names(1)


@pytest.mark.walks(Action.ACCEPT)
def test_a_run_whose_objects_are_lost_and_whose_directory_was_rewritten_is_accepted(
    shop: Shop, spark: Any, terminal: Terminal
) -> None:
    """The doctor advised to shred it again, which was refused, and the load to resolve it, which failed again for ever."""
    shop.shredded(spark, 1)
    next((shop.home / "shredded").rglob("*.parquet")).unlink()
    rewritten = next(file for file in shop.directory(0).iterdir() if not file.name.startswith("_"))
    rewritten.write_bytes(rewritten.read_bytes() * 2)
    assert "was rewritten since" in " ".join(terminal.run("doctor", code=1).split())
    assert terminal.advised(Action.ACCEPT)
    terminal.run("reshred", run_name(0), code=1)
    assert terminal.advised(Action.ACCEPT)
    work(shop, spark)
    assert "and its input too" in " ".join(terminal.run("next", code=3).split())
    terminal.follow(Action.ACCEPT, TEXT="landed twice as much")
    work(shop, spark)
    assert shop.seen.runs == run_names(0)


@pytest.mark.walks(Action.RESHRED)
def test_a_run_whose_column_does_not_fit_is_shredded_again(shop: Shop, spark: Any, terminal: Terminal) -> None:
    """Resolved, it is loaded with the types that it was shredded with, and fails again."""
    shop.write(0, 1)
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
        shop.write(2)
        drained(pipeline, spark)
        _rename(pipeline, "br_colordepth", "br.colordepth")  # as with the other setting of shred.names
        discover(pipeline, everything=True)
        drained(pipeline, spark)
    assert shop.seen.runs == run_names(0, 1)
    terminal.run("next", code=3)
    assert "has the column br.colordepth" in " ".join(terminal.told.split())
    terminal.follow(Action.RESHRED)
    with shop.open() as pipeline:
        _rename(pipeline, "br.colordepth", "br_colordepth")
    assert f"shred READY: {run_name(2)}" in terminal.run("next")
    work(shop, spark)
    assert shop.seen.runs == run_names(0, 1, 2)


def _rename(pipeline: Any, before: str, after: str) -> None:
    table = pipeline.warehouse._tables.qualified("events")
    pipeline.warehouse._engine.execute(f'ALTER TABLE {table} RENAME COLUMN "{before}" TO "{after}"')


def test_what_the_warehouse_has_is_recorded_once_it_is_shredded(shop: Shop, spark: Any, terminal: Terminal) -> None:
    """The manifest was put back to before it was shredded: to repair was advised, and could not record it."""
    shop.write(0)
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
    backup = shutil.copy(shop.home / "manifest.db", shop.home / "backup.db")
    work(shop, spark)
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    shutil.copy(backup, shop.home / "manifest.db")
    terminal.run("skip", run_name(0), "--reason", "nobody misses it", code=1)
    assert terminal.advised(Action.DRAIN)
    assert not terminal.advised(Action.REPAIR)
    work(shop, spark)
    assert "it is done" in terminal.run("explain", run_name(0))
    assert shop.seen.runs == run_names(0)


@pytest.mark.walks(Action.RELOAD_MISSING)
def test_a_run_of_which_rows_are_missing_is_reloaded_all_the_same(shop: Shop, spark: Any, terminal: Terminal) -> None:
    shop.write(0)
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
        drained(pipeline, spark)
        before = shop.seen.rows
        table = pipeline.warehouse.place_of("events")
        pipeline.warehouse._engine.write(f"DELETE FROM {table} WHERE event_id = (SELECT min(event_id) FROM {table})")
    terminal.run("reload", run_name(0), "--reason", "a row is lost")
    work(shop, spark)
    terminal.run("next", code=3)
    terminal.follow(Action.RELOAD_MISSING, TEXT="a row is lost")
    work(shop, spark)
    assert shop.seen.rows == before
