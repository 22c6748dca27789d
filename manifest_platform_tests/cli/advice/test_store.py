"""Walks on the manifest's store: it is not there, an import holds it, a clock is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.demo.dynamodb import REGION
from manifest_platform.manifest import Application, Manifest
from manifest_platform.operations.migration import Histories, import_items, read_snowflake
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.remedies import Action
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.cli.advice.terminal import Terminal, at
from manifest_platform_tests.cli.test_commands import RUNS, Shop
from manifest_platform_tests.operations.migration.given import PLACE, ROOT, added, histories, run, snowflake_row, source_table
from manifest_platform_tests.operations.migration.test_importing import BreakingStore


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path)
    at(monkeypatch, shop.file)
    return shop


@pytest.mark.walks(Action.CREATE_STORE)
def test_a_store_that_is_not_there_is_made(shop: Shop, terminal: Terminal) -> None:
    terminal.run("store", "check", code=1)
    terminal.follow(Action.CREATE_STORE)
    assert "all settings are correct" in terminal.run("store", "check")


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


@pytest.fixture
def importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dynamodb: Any) -> Shop:
    """A shop whose runs lie where those of another system's table do."""
    shop = Shop(tmp_path)
    at(monkeypatch, shop.file)
    shop.file.write_text(shop.file.read_text().replace("root: landing", f"root: '{ROOT}'"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    return shop


def _break_off(shop: Shop, found: Histories, table: str) -> None:
    """An import that is killed once it holds the feed."""
    with shop.pipeline() as pipeline:
        manifest = pipeline.manifest
        manifest.store = BreakingStore(manifest.store, 3)
        with pytest.raises(KeyboardInterrupt):
            import_items(manifest, FEED, found, f"dynamodb://{table}")


@pytest.mark.walks(Action.IMPORT)
def test_an_import_that_broke_off_is_done_to_the_end(importing: Shop, dynamodb: Any, terminal: Terminal) -> None:
    name = source_table(dynamodb, added(1), "ItemId", "Id")
    _break_off(importing, histories(added(1)), name)
    assert "it was interrupted" in terminal.run("doctor", "--no-objects", code=1)
    terminal.follow(Action.IMPORT)
    assert "it was interrupted" not in terminal.run("doctor", "--no-objects")
    assert f"shred READY: {run(1)}" in terminal.run("next")


@pytest.mark.walks(Action.IMPORT_LOADER)
def test_an_import_of_the_loaders_table_is_done_to_the_end(importing: Shop, dynamodb: Any, terminal: Terminal) -> None:
    """The command for the other kind of table was advised, which reads none of its rows."""
    rows = [snowflake_row(1, "NEW")]
    name = source_table(dynamodb, rows, "RunId")
    _break_off(importing, read_snowflake(rows, PLACE, Application(LOAD)), name)
    assert "it was interrupted" in terminal.run("doctor", "--no-objects", code=1)
    terminal.follow(Action.IMPORT_LOADER)
    assert "it was interrupted" not in terminal.run("doctor", "--no-objects")
    assert f"shred READY: {run(1)}" in terminal.run("next")


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


def test_what_failed_for_its_landing_root_was_moved_is_freed_by_one_command(shop: Shop, terminal: Terminal) -> None:
    """Only the first was named: the others were for the operator to find out."""
    shop.land(*RUNS)
    terminal.run("discover")
    for name in RUNS[:2]:
        shop.work(SHRED, name, failure="the directory is gone")
    shop.landing.rename(shop.landing.with_name("moved"))
    shop.file.write_text(shop.file.read_text().replace("root: landing", "root: moved"))
    terminal.run("discover", code=4)
    told = terminal.follow(Action.IMPORT_MOVED)
    command = f"manifest-platform resolve {RUNS[0]} {RUNS[1]}"
    assert f"2 failed items to free: {command}" in told
    assert "2 done, 0 refused" in terminal.run(*command.split()[1:])
