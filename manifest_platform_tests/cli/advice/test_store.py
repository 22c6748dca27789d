"""Walks on the manifest's store: it is not there, an import holds it, a clock is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.demo.dynamodb import REGION
from manifest_platform.manifest import Manifest
from manifest_platform.operations.migration.importing import HELD, IMPORTED
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.remedies import Action
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.cli.advice.terminal import Terminal, at
from manifest_platform_tests.cli.test_commands import RUNS, Shop
from manifest_platform_tests.operations.migration.given import ROOT, added, source_table


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path)
    at(monkeypatch, shop.file)
    return shop


@pytest.mark.walks(Action.CREATE_STORE)
def test_a_store_that_is_not_there_is_made(shop: Shop, terminal: Terminal) -> None:
    terminal.run("store", "check", code=1)
    terminal.follow(Action.CREATE_STORE)
    assert "as it should be" in terminal.run("store", "check")


@pytest.mark.walks(Action.CHECK_CLOCK)
def test_a_clock_that_is_ahead_is_looked_at(shop: Shop, terminal: Terminal) -> None:
    shop.land(*RUNS)
    ahead = datetime.now(UTC) + timedelta(minutes=5)
    terminal.run("discover")
    with shop.pipeline() as pipeline:
        other = Manifest(pipeline.manifest.store, "acme", pipeline.manifest.feeds, "another machine", clock=lambda: ahead)
        other.skip(pipeline.key(RUNS[0]), "its clock is wrong")
    assert "another machine" in terminal.run("doctor", code=1)
    terminal.follow(Action.CHECK_CLOCK)


@pytest.mark.walks(Action.IMPORT)
def test_an_import_that_broke_off_is_done_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dynamodb: Any, terminal: Terminal
) -> None:
    shop = Shop(tmp_path)
    at(monkeypatch, shop.file)
    shop.file.write_text(shop.file.read_text().replace("root: landing", f"root: '{ROOT}'"))
    name = source_table(dynamodb, added(1), "ItemId", "Id")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with shop.pipeline() as pipeline:
        manifest = pipeline.manifest
        importing = Manifest(manifest.store, "acme", manifest.feeds, "operator", run_id=f"{IMPORTED}dynamodb://{name}")
        for step in (SHRED, LOAD):
            importing.acquire(FEED, step, "operator, importing", HELD).leave()
    assert "it broke off" in terminal.run("doctor", "--no-objects", code=1)
    terminal.follow(Action.IMPORT)
    assert "it broke off" not in terminal.run("doctor", "--no-objects")


@pytest.mark.walks(Action.IMPORT_MOVED)
def test_a_landing_root_that_was_moved_with_a_backlog(shop: Shop, terminal: Terminal) -> None:
    """Its items were all missing once, and nothing but moving it back helped."""
    shop.land(*RUNS)
    terminal.run("discover")
    shop.landing.rename(shop.landing.with_name("moved"))
    shop.file.write_text(shop.file.read_text().replace("root: landing", "root: moved"))
    assert "known under another URI" in terminal.run("discover", code=4)
    terminal.follow(Action.IMPORT_MOVED)
    assert "known under another URI" not in terminal.run("discover", code=4)
    with shop.pipeline() as pipeline:
        items = [pipeline.manifest.item(pipeline.key(name)) for name in RUNS]
        assert [pipeline.source.reread(one.landed) for one in items if one.landed] == [one.landed for one in items]
