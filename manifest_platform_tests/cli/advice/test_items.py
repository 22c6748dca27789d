"""Walks on single items: what failed, is skipped, cannot be read, waits for a person; and looking at what is next."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from manifest_platform.manifest import Failure, Holding, Landed, Ready, Refused
from manifest_platform.manifest.deletion import Deletion
from manifest_platform.manifest.keys import pending_key, record_key
from manifest_platform.manifest.records import Application
from manifest_platform.manifest.store import Delete, Put
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.pipeline.shredding import OutputGone
from manifest_platform.remedies import Action
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.sources.source import rewritten
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
    assert "it waits for shred, and the row by which shred would find it is missing" in " ".join(
        terminal.follow(Action.EXAMINE, code=1).split()
    )
    terminal.follow(Action.REPAIR)
    terminal.run("skip", RUNS[2], "--reason", "nobody misses it")


@pytest.mark.walks(Action.CLEAN)
def test_files_of_a_dead_worker_are_removed(shop: Shop, terminal: Terminal) -> None:
    written = _old_object(shop, RUNS[0])
    terminal.run("doctor", code=1)
    terminal.follow(Action.CLEAN)
    assert not written.exists()


@pytest.mark.walks(Action.DISCOVER_ALL)
def test_objects_of_a_run_that_nobody_knows_are_known_once_it_is_discovered(shop: Shop, terminal: Terminal) -> None:
    older = "run=2024-05-14-11-00-00"
    _old_object(shop, older)
    shop.land(older)
    assert "the manifest has no such item" in " ".join(terminal.run("doctor", code=1).split())
    assert older in terminal.follow(Action.DISCOVER_ALL)
    assert "the manifest has no such item" not in " ".join(terminal.run("doctor", code=1).split())


@pytest.mark.walks(Action.EXPLAIN, Action.SKIP, Action.DISCOVER_ALL)
def test_directories_that_nobody_loaded_are_explained_passed_over_and_registered(shop: Shop, terminal: Terminal) -> None:
    older = "run=2024-05-14-11-00-00"
    shop.land(older)
    shutil.rmtree(shop.landing / RUNS[2])
    check = "landing", "check", "--age", "0"
    terminal.run(*check, code=1)
    assert "load may take it now" in " ".join(terminal.follow(Action.EXPLAIN).split())
    terminal.run(*check, code=1)
    terminal.follow(Action.SKIP, TEXT="nobody misses it")
    assert "deleted" not in terminal.run(*check, code=1)
    assert older in terminal.follow(Action.DISCOVER_ALL)
    assert "discover" not in terminal.run(*check, code=1)


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
    with shop.pipeline() as pipeline, pipeline.lease(FEED, SHRED), pipeline.lease(FEED, LOAD):
        terminal.run("drain")
        assert f"held by {pipeline.holder}" in " ".join(terminal.follow(Action.SHOW_STATUS).split())


@pytest.mark.walks(Action.SHOW_NEXT)
def test_items_behind_the_watermark_are_not_claimed(shop: Shop, terminal: Terminal) -> None:
    """Only a race meets this: the item was next when it was chosen."""
    with shop.pipeline() as pipeline:
        shop.work(LOAD, RUNS[0])
        shop.work(LOAD, RUNS[1])
        with pipeline.lease(FEED, LOAD) as lease:
            item = pipeline.manifest.item(pipeline.key(RUNS[0]))
            behind = type(item)(item.key, item.records[:3])  # as a worker read it before it was loaded
            with pytest.raises(Refused, match="is behind the watermark") as refused:
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
    shop.file.with_name("beta").mkdir(exist_ok=True)
    monkeypatch.delenv("MANIFEST_PLATFORM_CONFIG")
    shop.work(LOAD, RUNS[0], failure="no such column")
    terminal.run("next", "--dataset", "acme", "--config", str(shop.file))
    terminal.follow(Action.RESOLVE)
    assert json.loads(terminal.run("next", "--dataset", "acme", "--config", str(shop.file), "--json"))["next"]


@pytest.mark.walks(Action.ACCEPT)
def test_a_directory_that_was_rewritten_on_purpose_is_accepted(shop: Shop, terminal: Terminal) -> None:
    (shop.landing / RUNS[2] / "part-0").write_text("another event")
    assert "changed after discovery" in terminal.run("discover", code=4)
    terminal.follow(Action.ACCEPT, TEXT="the producer mended it")
    with shop.pipeline() as pipeline:
        item = pipeline.manifest.item(pipeline.key(RUNS[2]))
        assert item.landed
        assert (item.landed.bytes, item.version) == (len("another event"), 2)
        assert item.records[-1].data["reason"] == "the producer mended it"
    assert "changed" not in terminal.run("discover", code=4)
    terminal.run("accept", RUNS[2], code=1)
    assert "has not changed since it was registered" in " ".join(terminal.told.split())
    terminal.follow(Action.EXPLAIN)


@pytest.mark.walks(Action.ACCEPT)
def test_a_directory_that_failed_as_rewritten_is_accepted(shop: Shop, terminal: Terminal) -> None:
    (shop.landing / RUNS[2] / "part-0").write_text("another event")
    landed = _landed(shop, RUNS[2])
    with shop.pipeline() as pipeline, pipeline.lease(FEED, SHRED) as lease:
        [claim] = pipeline.manifest.claim(lease, [pipeline.manifest.item(pipeline.key(RUNS[2]))])
        pipeline.manifest.fail(claim, Failure.of(rewritten(landed, 1, 13)))
    terminal.run("next")
    terminal.follow(Action.ACCEPT, TEXT="the producer mended it")
    assert f"shred READY: {RUNS[2]}" in terminal.run("next")
    shop.work(SHRED, RUNS[2])


@pytest.mark.walks(Action.KEEP)
def test_other_content_of_a_run_that_is_loaded_is_acknowledged(shop: Shop, terminal: Terminal) -> None:
    shop.work(LOAD, RUNS[0])
    (shop.landing / RUNS[0] / "part-0").write_text("another event")
    terminal.run("discover", code=4)
    terminal.follow(Action.ACCEPT, code=1, TEXT="the producer mended it")
    assert "its rows stay" in terminal.told
    terminal.follow(Action.KEEP, TEXT="nobody needs it")
    assert "changed" not in terminal.run("discover", code=4)
    assert _landed(shop, RUNS[0]).bytes == len("event")
    (shop.landing / RUNS[0] / "part-0").write_text("a third event")
    assert "changed" in terminal.run("discover", code=4)


@pytest.mark.walks(Action.RESHRED)
def test_what_was_lost_twice_is_shredded_again(shop: Shop, terminal: Terminal) -> None:
    with shop.pipeline() as pipeline, pipeline.lease(FEED, LOAD) as lease:
        ready = pipeline.manifest.next(FEED, LOAD, holding=True)
        assert isinstance(ready, Ready)
        [claim] = pipeline.manifest.claim(lease, [ready.item], ready.state)
        pipeline.manifest.fail(claim, Failure.of(OutputGone("the listing is gone", RUNS[0])))
    terminal.run("next")
    terminal.follow(Action.RESHRED)
    assert f"shred READY: {RUNS[0]}" in terminal.run("next", code=0)
    terminal.run("reshred", RUNS[0], code=1)
    terminal.advised(Action.DRAIN)


def _landed(shop: Shop, name: str) -> Landed:
    with shop.pipeline() as pipeline:
        landed = pipeline.manifest.item(pipeline.key(name)).landed
    assert landed
    return landed


# Many at once


def test_many_items_are_decided_on_at_once_each_by_itself(shop: Shop, terminal: Terminal) -> None:
    shop.work(LOAD, RUNS[0], failure="no such column")
    shop.work(SHRED, RUNS[2], failure="no such schema")
    told = terminal.run("resolve", "run=2024-05-14-*", "--dry-run")
    assert told.count("would be Resolved; nothing was written") == 2
    assert "2 would be done, 0 refused" in told
    told = terminal.run("resolve", *RUNS, code=1)
    assert "2 done, 1 refused" in told
    assert f"error: {RUNS[1]} is not blocked" in told
    assert "0 done, 0 refused" in terminal.run("resolve", "run=2024-05-14-*", code=4)


def test_what_failed_since_a_time_is_meant(shop: Shop, terminal: Terminal) -> None:
    shop.work(LOAD, RUNS[0], failure="no such column")
    since = datetime.now(UTC) - timedelta(minutes=5)
    assert "0 done" in terminal.run("resolve", "--failed-since", f"{since + timedelta(hours=1):%Y-%m-%dT%H:%M}", code=4)
    assert f"{RUNS[0]}: Skipped" in terminal.run("skip", "--reason", "x", "--failed-since", f"{since:%Y-%m-%dT%H:%M:%S}")
    assert "no items were chosen" in terminal.run("resolve", code=2)
    assert "a time such as" in terminal.run("resolve", "--failed-since", "yesterday", code=2)


def test_patterns_mean_what_the_decision_can_be_about(shop: Shop, terminal: Terminal) -> None:
    shop.work(LOAD, RUNS[0])
    assert "2 done, 0 refused" in terminal.run("skip", "*", "--reason", "nobody misses them")
    lines = terminal.run("unskip", "*", "--json").splitlines()
    assert [json.loads(line)["record"]["state"] for line in lines[:-1]] == ["New", "New"]
    assert json.loads(lines[-1]) == {"event": "ended", "done": 2, "refused": 0, "dry_run": False}


def test_unskip_says_what_the_item_waits_for(shop: Shop, terminal: Terminal) -> None:
    terminal.run("skip", RUNS[1], "--reason", "x")
    shop.work(LOAD, RUNS[0], failure="no such column")
    told = " ".join(terminal.run("unskip", RUNS[1]).split())
    assert f"it waits for {RUNS[0]}, which comes first: load failed: no such column" in told
    terminal.follow(Action.RESOLVE)
    shop.work(LOAD, RUNS[0], failure="no such column")
    terminal.run("skip", RUNS[0], "--reason", "x")
    assert "it is still BLOCKED: load failed: no such column" in " ".join(terminal.run("unskip", RUNS[0]).split())
    terminal.follow(Action.RESOLVE)
    assert f"load  READY: {RUNS[0]}" in terminal.run("next")


@pytest.mark.walks(Action.COLLECT)
def test_a_deletion_that_was_interrupted_is_finished(shop: Shop, terminal: Terminal) -> None:
    with shop.pipeline() as pipeline:
        item = pipeline.manifest.item(pipeline.key(RUNS[0]))
        deletion = Deletion(item.key, (Holding.LANDING,), (item.place,))
        pipeline.manifest.begin_deletions(FEED, [(item, deletion)], pipeline.manifest.states(FEED), (), "old")
    terminal.run("reshred", RUNS[0], code=1)
    assert "1 interrupted deletions were finished" in terminal.follow(Action.COLLECT)
    assert "was deleted by retention on" in " ".join(terminal.run("reshred", RUNS[0], code=1).split())
    terminal.run("gc", "--dry-run", code=4)
