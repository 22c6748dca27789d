"""Walks on a vault: what has not come, snapshots, and what waits for them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from manifest_platform import config
from manifest_platform.fake_vault import FakeVault, Fault
from manifest_platform.listing import Listing
from manifest_platform.manifest import Standing
from manifest_platform.pipeline import Pipeline, Stop
from manifest_platform.pipeline.full import cancel
from manifest_platform.remedies import Action
from manifest_platform.storage import local_path
from manifest_platform_tests.cli.advice.terminal import Terminal
from manifest_platform_tests.sources.veeva.ward.ward import (
    PRODUCT,
    Ward,
    begun,
    drained,
    full,
    incr,
    land,
    log,
    standings,
    started,
)


@pytest.fixture
def ward(tmp_path: Path, vault: FakeVault, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ward]:
    """A vault of which nothing is captured yet, and whose windows may also just land."""
    ward = Ward(tmp_path, vault=vault)
    monkeypatch.setenv(config.VARIABLE, str(ward.config_file))
    for name, value in ward.environment.items():
        monkeypatch.setenv(name, value)
    yield ward
    assert os.environ[config.VARIABLE]


def contradict(pipeline: Pipeline, window: str) -> None:
    """Adds to what shredding made of a window of changes a row for each of its keys, with another name."""
    record = pipeline.manifest.item(pipeline.key(window)).records[-1]
    listing = Listing.read(record.data["listing"])
    first, *_ = listing.objects
    rows = pa.parquet.read_table(local_path(first.uri))
    other = first.uri.replace("/0.parquet", "/1.parquet")
    assert other != first.uri
    pa.parquet.write_table(rows.set_column(1, "name__v", pa.array(["another"] * rows.num_rows)), local_path(other))
    twin = replace(first, uri=other, bytes=local_path(other).stat().st_size, checksum=None)
    replace(listing, objects=(*listing.objects, twin)).write(record.data["listing"])


def other_content(ward: Ward) -> str:
    """The vault offers other content for a window that was captured: the window's name, as `incr/…`."""
    assert ward.vault
    with ward.open() as pipeline:
        item = list(pipeline.manifest.items("incr"))[1]
    assert item.landed
    ward.vault.inject(Fault("duplicate_ids", window=f"incr/{item.landed.stop}"))
    return item.key.name


@pytest.mark.walks(Action.KEEP)
def test_other_content_of_a_window_is_acknowledged(ward: Ward, terminal: Terminal) -> None:
    """Earlier, every capture failed with this report, and only a full load helped."""
    terminal.run("capture")
    name = other_content(ward)
    for _ in range(2):
        assert name in terminal.run("capture", code=1)
    terminal.follow(Action.KEEP, TEXT="Veeva mended it, and nobody needs it")
    assert "other content" not in terminal.run("capture", code=4)
    terminal.run("accept", name, "--keep", "--reason", "x", code=1)
    assert "is known already" in " ".join(terminal.told.split())


@pytest.mark.walks(Action.ACCEPT)
def test_other_content_of_a_window_that_is_not_loaded_is_taken(ward: Ward, terminal: Terminal) -> None:
    terminal.run("capture")
    name = other_content(ward)
    with ward.open() as pipeline:
        before = pipeline.manifest.item(pipeline.key(name)).landed
    assert name in terminal.run("capture", code=1)
    assert "would be New" in terminal.run("accept", name, "--reason", "x", "--dry-run")
    with ward.open() as pipeline:
        assert pipeline.manifest.item(pipeline.key(name)).landed == before
    terminal.run("capture", code=1)
    terminal.follow(Action.ACCEPT, TEXT="Veeva mended it")
    with ward.open() as pipeline:
        item = pipeline.manifest.item(pipeline.key(name))
        assert item.landed and before and item.version == 2
        assert (item.landed.checksum, item.landed.content) != (before.checksum, before.content)
        assert pipeline.source.reread(item.landed) == item.landed, "its files are there"
    assert "other content" not in terminal.run("capture", code=4)


@pytest.mark.walks(Action.DRAIN)
def test_a_drain_loads_ready_items(ward: Ward, terminal: Terminal) -> None:
    with ward.open() as pipeline:
        land(pipeline, log("0000"))
    terminal.run("next")
    terminal.follow(Action.DRAIN)
    assert ward.seen.applied == ["log 0000"]


@pytest.mark.walks(Action.CAPTURE)
def test_without_a_snapshot_one_is_captured(ward: Ward, terminal: Terminal) -> None:
    terminal.run("full", "begin", "latest", code=1)
    assert "full/date=2026-01-01" in terminal.follow(Action.CAPTURE)
    with ward.open() as pipeline:
        assert next(pipeline.manifest.items("full")).landed


@pytest.mark.walks(Action.CAPTURE_SNAPSHOT)
def test_where_only_a_snapshot_helps_it_is_captured(ward: Ward, terminal: Terminal) -> None:
    terminal.run("full", "status", code=3)
    assert "full/date=2026-01-01" in terminal.follow(Action.CAPTURE_SNAPSHOT)
    assert "full begin latest" in terminal.run("full", "status", code=3)


@pytest.mark.walks(Action.BEGIN_FULL_LOAD)
def test_changes_that_wait_for_a_snapshot_go_on_behind_it(ward: Ward, terminal: Terminal) -> None:
    with ward.open() as pipeline:
        land(pipeline, full("0000"), incr("0015"))
    terminal.run("next", code=3)
    terminal.follow(Action.BEGIN_FULL_LOAD)
    terminal.follow(Action.DRAIN)
    assert ward.seen.applied == ["full 0000", "incr 0015"]


@pytest.mark.walks(Action.LOAD_SNAPSHOT, Action.CANCEL_FULL_LOAD)
def test_a_snapshot_is_begun_and_given_up(ward: Ward, terminal: Terminal) -> None:
    with ward.open() as pipeline:
        land(pipeline, full("0000"))
    terminal.run("explain", full("0000").name)
    terminal.follow(Action.LOAD_SNAPSHOT)
    terminal.run("full", "begin", "latest", code=1)
    terminal.follow(Action.CANCEL_FULL_LOAD)
    assert "loading" not in terminal.run("full", "status", code=3)


@pytest.mark.walks(Action.BEGIN_FULL_LOAD)
def test_a_window_that_changes_a_type_comes_in_with_a_newer_snapshot(ward: Ward, terminal: Terminal) -> None:
    """Earlier advice, to resolve the item, led to the same failure each time."""
    rows: Any = {PRODUCT: {"a": True}}
    changed = ("name__v", "boolean")
    with ward.open() as pipeline:
        started(pipeline, "0000", replace(incr("0015"), rows=rows, column=changed))
    terminal.run("drain", code=3)
    terminal.follow(Action.BEGIN_FULL_LOAD, code=1)
    assert terminal.advised(Action.CAPTURE_SNAPSHOT), "the one that there is was taken before"
    with ward.open() as pipeline:
        land(pipeline, replace(full("0030"), rows=rows, column=changed), incr("0030"))
    terminal.run("full", "status", code=3)
    terminal.follow(Action.BEGIN_FULL_LOAD)
    terminal.follow(Action.DRAIN)
    assert ward.seen.applied == ["full 0000", "full 0030"]
    assert "loads changes" in terminal.run("full", "status")


@pytest.mark.walks(Action.RESHRED)
def test_a_window_that_was_shredded_with_a_wrong_type_is_shredded_again(ward: Ward, spark: Any, terminal: Terminal) -> None:
    """Resolved, it was loaded as it was shredded, and failed for ever."""
    with ward.open() as pipeline:
        ward.captured(pipeline)
        begun(pipeline, "latest", spark)
        drained(pipeline, spark, feeds=["full"])
    right = ward.config_file.read_text()
    wrong = yaml.safe_load(right)
    wrong["datasets"]["vault"]["shred"]["types"] = {"product__v.sterile__c": "String"}
    ward.config_file.write_text(yaml.safe_dump(wrong))
    with ward.open() as pipeline:
        report = drained(pipeline, spark, feeds=["incr"])[1]
    assert report.item and "set shred.types and reshred the item" in report.reason
    ward.config_file.write_text(right)
    terminal.run("explain", report.item)
    terminal.follow(Action.RESHRED)
    terminal.run("reshred", "incr/*", code=1)  # those behind it were shredded so too
    with ward.open() as pipeline:
        assert drained(pipeline, spark, feeds=["incr"])[1].stop is Stop.IDLE


def test_a_snapshot_that_is_older_than_what_is_loaded_is_not_advised(ward: Ward, terminal: Terminal) -> None:
    """Earlier, every status advised the oldest waiting snapshot, which would have set the tables back."""
    with ward.open() as pipeline:
        land(pipeline, full("0000"), shredded=False)
        land(pipeline, full("0015"))
    terminal.run("full", "begin", "latest")
    terminal.follow(Action.DRAIN)
    assert f"{full('0000').name} is shredded when a full load begins with it" in " ".join(terminal.run("status").split())
    assert not terminal.advised(Action.LOAD_SNAPSHOT)


@pytest.mark.walks(Action.BEGIN_FULL_LOAD)
def test_a_window_that_contradicts_itself_is_passed_by_a_newer_snapshot(ward: Ward, terminal: Terminal) -> None:
    """Earlier advice, to resolve the item, led to the same failure each time."""
    with ward.open() as pipeline:
        started(pipeline, "0000", incr("0015"))
        contradict(pipeline, incr("0015").name)
    terminal.run("drain", code=3)
    assert "several rows with the same key" in " ".join(terminal.run("next", code=3).split())
    terminal.follow(Action.BEGIN_FULL_LOAD, code=1)
    assert terminal.advised(Action.CAPTURE_SNAPSHOT), "the one that there is was taken before"
    with ward.open() as pipeline:
        land(pipeline, full("0030"))
    terminal.run("full", "status", code=3)
    terminal.follow(Action.BEGIN_FULL_LOAD)
    terminal.follow(Action.DRAIN)
    assert ward.seen.applied == ["full 0000", "full 0030"]


@pytest.mark.walks(Action.ALLOW_EMPTY)
def test_an_empty_snapshot_is_let_in_on_purpose(ward: Ward, terminal: Terminal) -> None:
    with ward.open() as pipeline:
        started(pipeline, "0000")
        land(pipeline, full("0015", {PRODUCT: {}}))
    assert "has no rows" in terminal.run("full", "begin", "latest", code=1)
    terminal.follow(Action.ALLOW_EMPTY)
    terminal.follow(Action.DRAIN)
    assert (ward.seen.applied, ward.seen.tables) == (["full 0000", "full 0015"], {PRODUCT: {}})


@pytest.mark.walks(Action.ALLOW_SHRINK)
def test_a_snapshot_that_shrinks_a_table_is_let_in_on_purpose(ward: Ward, terminal: Terminal) -> None:
    """The full load is given up and does not fail, so changes continue meanwhile."""
    with ward.open() as pipeline:
        land(pipeline, full("0000", {PRODUCT: {f"{n}": "1" for n in range(300)}}))
        begun(pipeline, "0000")
        drained(pipeline)
        land(pipeline, full("0015", {PRODUCT: {"1": "2"}}), incr("0015"), incr("0030"))
    terminal.run("full", "begin", "latest")
    assert "would shrink product__v from 300 to 1 rows" in " ".join(terminal.follow(Action.DRAIN, code=3).split())
    assert ward.seen.applied == ["full 0000", "incr 0015", "incr 0030"]
    given_up = terminal.told
    assert "would shrink product__v from 300 to 1 rows" in " ".join(terminal.run("explain", full("0015").name).split())
    terminal.told = given_up
    terminal.follow(Action.ALLOW_SHRINK)
    terminal.follow(Action.DRAIN)
    assert ward.seen.applied == ["full 0000", "incr 0015", "incr 0030", "full 0015", "incr 0030"]
    assert ward.seen.tables[PRODUCT] == {"1": "2", "last": "0030", "0030": "changed"}


@pytest.mark.walks(Action.REPAIR)
def test_what_the_warehouse_has_is_recorded_and_not_skipped(ward: Ward, terminal: Terminal) -> None:
    """The manifest was put back from a backup: skipped, the rows would have stayed, and nobody would have known of them."""
    with ward.open() as pipeline:
        land(pipeline, log("0000"))
    backup = shutil.copy(ward.home / "manifest.db", ward.home / "backup.db")
    terminal.run("drain")
    for file in ward.home.glob("manifest.db*"):
        file.unlink()
    shutil.copy(backup, ward.home / "manifest.db")
    assert "would leave its rows in the warehouse" in " ".join(
        terminal.run("skip", log("0000").name, "--reason", "x", code=1).split()
    )
    terminal.follow(Action.REPAIR)
    with ward.open() as pipeline:
        assert standings(pipeline, "log") == {"0000": Standing.DONE}
    assert "is done" in terminal.run("skip", log("0000").name, "--reason", "x", code=1)


@pytest.mark.parametrize("damage", ["gone", "other bytes"])
def test_shredded_objects_that_somebody_needs_are_found_by_the_doctor(ward: Ward, terminal: Terminal, damage: str) -> None:
    with ward.open() as pipeline:
        started(pipeline, "0000", incr("0015"))
        land(pipeline, log("0000"))
        drained(pipeline)
        land(pipeline, incr("0030"))
    terminal.run("doctor")
    for file in (ward.home / "shredded").rglob("*.parquet"):
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(b"x")
    told = " ".join(terminal.run("doctor", code=1).split())
    assert told.count("shredded objects lost or damaged") == 2
    assert "a load needs it" in told, "it is not loaded yet"
    assert "a full load, which loads it again, needs it" in told
    assert "log/" not in told, "logs are loaded, and no snapshot rewinds them"
    assert terminal.advised(Action.RESHRED) == [f"manifest-platform reshred {incr(window).name}" for window in ("0015", "0030")]


# A manifest that was set back to a time before a full load


@pytest.fixture
def behind(ward: Ward) -> Ward:
    """The warehouse has a snapshot of 00:30, and the manifest was set back to a time before that."""
    with ward.open() as pipeline:
        started(pipeline, "0000", incr("0015"), incr("0030"))
        drained(pipeline)
        land(pipeline, full("0030"))
    backup = shutil.copy(ward.home / "manifest.db", ward.home / "backup.db")
    with ward.open() as pipeline:
        begun(pipeline, "0030")
        drained(pipeline)
    for file in ward.home.glob("manifest.db*"):
        file.unlink()
    shutil.copy(backup, ward.home / "manifest.db")
    return ward


@pytest.mark.walks(Action.BEGIN_FULL_LOAD)
def test_a_window_behind_a_snapshot_that_the_manifest_forgot_comes_in_with_a_full_load(
    behind: Ward, terminal: Terminal
) -> None:
    """To resolve it was advised, and it failed again for ever."""
    with behind.open() as pipeline:
        begun(pipeline, "0030")
        cancel(pipeline, "the epoch of the fence is passed, and the snapshot is not known yet")
        land(pipeline, incr("0045"))
    assert "the manifest was set back to a time before that full load" in " ".join(terminal.run("drain", code=3).split())
    terminal.follow(Action.BEGIN_FULL_LOAD)
    terminal.follow(Action.DRAIN)
    assert behind.seen.applied[-2:] == ["full 0030", "incr 0045"]


@pytest.mark.walks(Action.CANCEL_FULL_LOAD)
def test_a_full_load_in_an_epoch_that_was_used_is_given_up_and_begun_again(
    behind: Ward, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full load was begun while the warehouse was unavailable. Earlier advice, to resolve it, failed again in its epoch."""
    with behind.open() as pipeline:
        land(pipeline, full("0045"))
    with monkeypatch.context() as unreachable:
        unreachable.setattr(Pipeline, "newest_epoch", lambda _: 0)
        terminal.run("full", "begin", "latest")
    assert "would begin epoch 3, but the warehouse has loaded" in " ".join(terminal.run("drain", code=3).split())
    terminal.follow(Action.CANCEL_FULL_LOAD)
    terminal.run("full", "begin", "latest")
    terminal.follow(Action.DRAIN)
    assert behind.seen.applied[-1] == "full 0045"
