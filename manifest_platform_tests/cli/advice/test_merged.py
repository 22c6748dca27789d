"""Walks on merged tables: what is due, what was set aside, what readers do not see."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform.demo.events import write_run
from manifest_platform.manifest import Store
from manifest_platform.manifest.store import Delete
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.state import version_key
from manifest_platform.pipeline.chosen import shred_chosen
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.merge import Merging
from manifest_platform.remedies import Action
from manifest_platform_tests.cli.advice.terminal import Terminal, at
from manifest_platform_tests.merging import given
from manifest_platform_tests.pipeline.shop import Shop

DAY = "2024-05-14"


@pytest.fixture
def shop(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Two runs of a day that is over, shredded."""
    shop = Shop(tmp_path / "shop", merge={})
    shop.shredded(spark, 2)
    at(monkeypatch, shop.config_file)
    return shop


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inventory]:
    """An inventory with objects that it alone knows."""
    shop = Shop(tmp_path / "shop", merge={"max_attempts": 3})
    at(monkeypatch, shop.config_file)
    store: Store = config.load(shop.config_file).manifest.open()
    yield given.inventory(store, given.clock_at(datetime.now(UTC) - timedelta(minutes=1)), max_attempts=3)
    store.close()


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.walks(Action.MERGE)
def test_shredded_items_are_merged(shop: Shop, terminal: Terminal) -> None:
    terminal.run("merge", "explain", "events", DAY, code=1)
    terminal.follow(Action.MERGE)
    assert "Nothing is left to do" in words(terminal.run("merge", "explain", "events", DAY))


@pytest.mark.walks(Action.VERIFY_PUBLISHED)
def test_a_catalog_that_differs_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, glue: Any, terminal: Terminal
) -> None:
    shop = Shop(tmp_path / "shop", merge={"catalog": {"kind": "glue", "prefix": "lake_"}})
    at(monkeypatch, shop.config_file)
    with shop.open() as pipeline:
        inventory = Merging(pipeline).inventory
        inventory.sync_table(given.settings(given.TABLE))
        given.arrive(inventory, 1, day=datetime.now(UTC).date())
    terminal.run("merge", "publish")
    glue.delete_table(DatabaseName="lake_shop", Name=given.TABLE)
    assert "catalog differs" in terminal.run("doctor", code=1)
    terminal.follow(Action.VERIFY_PUBLISHED)
    terminal.run("doctor")


@pytest.mark.walks(Action.REBUILD)
def test_a_version_whose_row_is_lost_is_rebuilt(shop: Shop, terminal: Terminal) -> None:
    """Publishing again was advised, and found nothing to tell readers."""
    terminal.run("merge", "run")
    with shop.open() as pipeline:
        inventory = Merging(pipeline).inventory
        [version] = inventory.versions("events")
        row = inventory.store.get(inventory.dataset, version_key(version))
        assert row
        inventory.store.transact(inventory.dataset, [Delete(row.sort, row.version)], "lost")
    assert "not published (a person must act)" in words(terminal.run("merge", "publish", "--verify", code=1))
    assert "no longer has rows of that version" in words(terminal.run("doctor", code=1))
    terminal.follow(Action.REBUILD)
    terminal.run("doctor")
    with shop.open() as pipeline:
        inventory = Merging(pipeline).inventory
        assert inventory.versions("events")[-1].files


@pytest.mark.walks(Action.RETRY_MERGE)
def test_a_partition_that_was_set_aside_is_tried_again(bare: Inventory, terminal: Terminal) -> None:
    day = set_aside(bare)
    terminal.run("merge", "status", code=3)
    terminal.follow(Action.RETRY_MERGE)
    assert f"{day}" in terminal.run("merge", "status")


def set_aside(bare: Inventory) -> date:
    day = datetime.now(UTC).date()
    given.arrive(bare, 1, 2, day=day)
    bare.hasten(given.TABLE, day, bare.clock())
    with given.slot(bare) as held:
        bare.fail(given.claim_one(bare, held).job, "s3://bucket/2.parquet is not there", permanent=True)
    return day


@pytest.mark.walks(Action.PUBLISH)
def test_switched_partitions_are_published(bare: Inventory, terminal: Terminal) -> None:
    day = datetime.now(UTC).date() - timedelta(days=2)
    given.arrive(bare, 1, day=day)
    bare.hasten(given.TABLE, day, bare.clock())
    with given.slot(bare) as held:
        given.merge_all(bare, held)
    bare.switch(bare.close(given.partition(bare, day), bare.clock()))
    terminal.run("merge", "explain", given.TABLE, str(day))
    terminal.follow(Action.PUBLISH)
    assert "Nothing is left to do" in words(terminal.run("merge", "explain", given.TABLE, str(day)))


@pytest.mark.walks(Action.SHOW_MERGING)
def test_a_merge_that_failed_is_looked_at(shop: Shop, terminal: Terminal) -> None:
    for file in (shop.home / "shredded").rglob("events/*/*.parquet"):
        file.unlink()
    terminal.run("merge", "run", code=1)
    assert "does not exist" in words(terminal.follow(Action.SHOW_MERGING, code=3))


@pytest.mark.walks(Action.MERGE_PARTITION)
def test_what_no_rule_merges_is_merged_when_it_is_asked_for(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    shop = Shop(tmp_path / "shop", merge={"profile": "strict"})
    at(monkeypatch, shop.config_file)
    old = datetime.now(UTC).replace(microsecond=0) - timedelta(days=18)
    write_run(shop.home / "landing", old, 5, seed=1)
    with shop.open() as pipeline:
        list(shred_chosen(pipeline, lambda: spark, [one.key for one in discover(pipeline, everything=True).landed]))
    terminal.run("merge", "run")
    terminal.run("merge", "explain", "events", str(old.date()))
    terminal.follow(Action.MERGE_PARTITION)
    assert "no merge is scheduled" not in words(terminal.run("merge", "explain", "events", str(old.date())))
