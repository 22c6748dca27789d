"""Walks on single items: what failed, is skipped, cannot be read, waits for a person; and looking at what is next."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from manifest_platform.manifest import Refused
from manifest_platform.manifest.keys import pending_key, record_key
from manifest_platform.manifest.records import Application
from manifest_platform.manifest.store import Delete, Put
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.remedies import Action
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.cli.advice.terminal import Terminal, at
from manifest_platform_tests.cli.test_commands import RUNS, Shop


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> Shop:
    """Three runs that have landed; the first two are shredded, as far as the manifest can tell."""
    shop = Shop(tmp_path)
    at(monkeypatch, shop.file)
    shop.land(*RUNS)
    terminal.run("discover")
    for name in RUNS[:2]:
        shop.work(SHRED, name)
    return shop


@pytest.mark.walks(Action.RESOLVE)
def test_a_load_that_failed_is_freed(shop: Shop, terminal: Terminal) -> None:
    shop.work(LOAD, RUNS[0], failure="no such column")
    assert "BLOCKED" in terminal.run("next")
    terminal.follow(Action.RESOLVE)
    assert f"READY: {RUNS[0]}" in terminal.run("next")


@pytest.mark.walks(Action.EXPLAIN, Action.SKIP, Action.UNSKIP)
def test_what_failed_is_explained_passed_over_and_let_in_again(shop: Shop, terminal: Terminal) -> None:
    shop.work(LOAD, RUNS[0], failure="no such column")
    terminal.run("status", code=3)
    assert "no such column" in terminal.follow(Action.EXPLAIN)
    terminal.follow(Action.SKIP, TEXT="nobody misses it")
    assert f"READY: {RUNS[1]}" in terminal.run("next")
    terminal.run("explain", RUNS[0])
    terminal.follow(Action.UNSKIP)
    assert f"READY: {RUNS[1]}" not in terminal.run("next", code=0)


@pytest.mark.walks(Action.READ_RECORDS)
def test_records_that_break_the_rules_are_read(shop: Shop, terminal: Terminal) -> None:
    with shop.pipeline() as pipeline:
        store, key = pipeline.manifest.store, pipeline.key(RUNS[0])
        row = store.get("acme", record_key(key, 2))
        assert row
        wrong = {**row.data, "sequence": 4, "record_id": str(uuid4()), "previous": str(uuid4())}
        store.transact("acme", [Put(record_key(key, 4), wrong, 0)], "wrong")
    assert "break the rules" in terminal.run("next")
    assert str(wrong["record_id"])[:8] in terminal.follow(Action.READ_RECORDS)


@pytest.mark.walks(Action.EXAMINE, Action.REPAIR)
def test_a_waiting_row_that_is_gone_is_found_and_made(shop: Shop, terminal: Terminal) -> None:
    with shop.pipeline() as pipeline:
        store, sort = pipeline.manifest.store, pending_key(Application(SHRED), pipeline.key(RUNS[2]))
        row = store.get("acme", sort)
        assert row
        store.transact("acme", [Delete(sort, row.version)], "gone")
    terminal.run("skip", RUNS[2], "--reason", "nobody misses it", code=1)
    assert "it waits for shred, and has no row" in " ".join(terminal.follow(Action.EXAMINE, code=1).split())
    terminal.follow(Action.REPAIR)
    terminal.run("skip", RUNS[2], "--reason", "nobody misses it")


@pytest.mark.walks(Action.CLEAN)
def test_what_a_dead_worker_wrote_is_removed(shop: Shop, terminal: Terminal) -> None:
    written = _old_object(shop, RUNS[0])
    terminal.run("doctor", code=1)
    terminal.follow(Action.CLEAN)
    assert not written.exists()


@pytest.mark.walks(Action.DISCOVER_ALL)
def test_objects_of_a_run_that_nobody_knows_are_known_once_it_is_discovered(shop: Shop, terminal: Terminal) -> None:
    older = "run=2024-05-14-11-00-00"
    _old_object(shop, older)
    shop.land(older)
    assert "the manifest knows no such item" in " ".join(terminal.run("doctor", code=1).split())
    assert older in terminal.follow(Action.DISCOVER_ALL)
    assert "the manifest knows no such item" not in " ".join(terminal.run("doctor", code=1).split())


def _old_object(shop: Shop, run: str) -> Path:
    """An object that no record names, written the day before yesterday."""
    written = shop.file.with_name("shredded") / "acme" / run / "died" / "events" / "part.parquet"
    written.parent.mkdir(parents=True)
    written.write_bytes(b"12345")
    then = (datetime.now(UTC) - timedelta(days=2)).timestamp()
    os.utime(written, (then, then))
    return written


@pytest.mark.walks(Action.DISCOVER)
def test_a_directory_that_was_rewritten_is_told_until_its_first_content_is_back(shop: Shop, terminal: Terminal) -> None:
    file = shop.landing / RUNS[0] / "part-0"
    status = file.stat()
    file.write_text("other")
    assert "changed after discovery" in terminal.run("discover", code=4)
    file.write_text("event")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "changed" not in terminal.follow(Action.DISCOVER, code=4)


@pytest.mark.walks(Action.SHOW_STATUS)
def test_who_holds_the_lease_is_shown(shop: Shop, terminal: Terminal) -> None:
    with shop.pipeline() as pipeline, pipeline.lease(FEED, SHRED):
        terminal.run("drain", code=1)
        assert f"held by {pipeline.holder}" in " ".join(terminal.follow(Action.SHOW_STATUS).split())


@pytest.mark.walks(Action.SHOW_NEXT)
def test_what_lies_behind_the_watermark_is_not_claimed(shop: Shop, terminal: Terminal) -> None:
    """Only a race meets this: the item was next when it was chosen."""
    with shop.pipeline() as pipeline:
        shop.work(LOAD, RUNS[0])
        shop.work(LOAD, RUNS[1])
        with pipeline.lease(FEED, LOAD) as lease:
            item = pipeline.manifest.item(pipeline.key(RUNS[0]))
            behind = type(item)(item.key, item.records[:3])  # as a worker read it before it was loaded
            with pytest.raises(Refused, match="lies behind the watermark") as refused:
                pipeline.manifest.claim(lease, [behind], pipeline.manifest.state(Application(LOAD)))
    terminal.raised(refused.value)
    assert f"{RUNS[2]}" in terminal.follow(Action.SHOW_NEXT)


@pytest.mark.walks(Action.RUN_PROGRAM)
def test_a_step_of_ones_own_is_done_by_a_program(shop: Shop, terminal: Terminal) -> None:
    shop.file.write_text(f"{shop.file.read_text().rstrip()}\n    steps:\n      - {{name: count, upstream: [shred]}}\n")
    terminal.run("doctor", "--repair")
    assert f"count READY: {RUNS[0]}" in terminal.run("next")
    terminal.follow(Action.RUN_PROGRAM, COMMAND="true")
    assert f"count READY: {RUNS[1]}" in terminal.run("next")


def test_commands_name_the_dataset_and_the_configuration_where_they_must(
    shop: Shop, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("beta")
    shop.file.with_name("beta").mkdir()
    monkeypatch.delenv("MANIFEST_PLATFORM_CONFIG")
    shop.work(LOAD, RUNS[0], failure="no such column")
    terminal.run("next", "--dataset", "acme", "--config", str(shop.file))
    terminal.follow(Action.RESOLVE)
    assert json.loads(terminal.run("next", "--dataset", "acme", "--config", str(shop.file), "--json"))["next"]
