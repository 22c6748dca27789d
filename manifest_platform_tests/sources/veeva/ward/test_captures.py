"""The advice of captures: what is reported, how to follow it, and the result."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from manifest_platform import spool
from manifest_platform.fake_vault import FakeVault, Fault
from manifest_platform.manifest.skip_rules import SkipRule
from manifest_platform.operations.doctor import Doctor, Finding, Kind
from manifest_platform.operations.doctor.captures import CapturesWatcher
from manifest_platform.remedies import Action
from manifest_platform.sources.veeva.layout import read_files
from manifest_platform_tests.sources.veeva.ward.ward import INCR, Ward

SECOND = "2026-01-01T00:30Z"


def test_an_archive_with_a_file_that_its_manifest_does_not_name_is_captured_as_the_message_advises(
    tmp_path: Path, store_url: str, vault: FakeVault
) -> None:
    vault.inject(Fault("extra_file", window=f"incr/{SECOND}"))
    ward = Ward(tmp_path, store_url, vault)
    with ward.open() as pipeline:
        [failed] = ward.captured(pipeline, INCR).failed
    assert "set archive.unnamed: keep in the configuration" in failed.reason

    ward = Ward(tmp_path, store_url, vault, archive={"unnamed": "keep"})
    with ward.open() as pipeline:
        report = ward.captured(pipeline, INCR)
        assert (report.failed, report.captured) == ((), (failed.name,))
        landed = pipeline.manifest.item(pipeline.key(failed.name)).landed
    assert landed is not None
    assert list((tmp_path / "landing").rglob("not_in_the_manifest__c.csv")), "it is kept where the window landed"


def test_a_captured_window_that_matches_a_skip_rule_is_registered_and_skipped(
    tmp_path: Path, store_url: str, vault: FakeVault
) -> None:
    ward = Ward(tmp_path, store_url, vault)
    start = datetime(2026, 1, 1, 0, 15, tzinfo=UTC)
    with ward.open() as pipeline:
        pipeline.manifest.add_skip_rule(SkipRule("an outage", since=start, before=start + timedelta(minutes=15)))
        assert len(ward.captured(pipeline, INCR).captured) > 2
        records = {item.key.name: [record.state for record in item.records] for item in pipeline.manifest.items(INCR)}
    assert [name for name, states in records.items() if states == ["New", "Skipped"]] == ["incr/stoptime=202601010030"]


# --- leftovers -------------------------------------------------------------------------------------------------------


def killed_capture(ward: Ward, name: str, age: timedelta, attempt: str = "attempt=dead") -> Path:
    """Returns the files that a killed capture left of a window."""
    folder = ward.home / "landing" / f"vault={ward.vault_id}" / name / attempt
    (folder / "Object").mkdir(parents=True)
    file = folder / "Object" / "product__v.csv"
    file.write_bytes(b"id\n1\n")
    then = time.time() - age.total_seconds()
    os.utime(file, (then, then))
    return folder


def orphans(ward: Ward, grace: timedelta | None = None) -> list[Finding]:
    with ward.open() as pipeline:
        found = Doctor(pipeline, warehouse=False, grace=grace).examine().findings
    assert {one.kind for one in found} <= {Kind.ORPHAN}
    return found


@pytest.fixture
def captured(tmp_path: Path, store_url: str, vault: FakeVault) -> Ward:
    """A ward that has captured all its windows of changes but one."""
    vault.inject(Fault("late", window=f"incr/{SECOND}"))
    ward = Ward(tmp_path, store_url, vault)
    with ward.open() as pipeline:
        assert len(ward.captured(pipeline, INCR).captured) == 6
    vault.heal()
    then = time.time() - DAY.total_seconds()
    for path in (tmp_path / "landing").rglob("*"):
        os.utime(path, (then, then))  # old enough to be removed, if nothing named it
    return ward


DAY = timedelta(hours=25)
KNOWN, UNKNOWN = "incr/stoptime=202601010015", "incr/stoptime=202601010030"


def test_leftovers_of_a_killed_capture_are_removed_but_nothing_in_use(captured: Ward) -> None:
    dead, fresh = (
        killed_capture(captured, KNOWN, age, name) for age, name in ((DAY, "attempt=dead"), (timedelta(0), "attempt=now"))
    )
    unknown = killed_capture(captured, UNKNOWN, DAY)
    before = {path for path in (captured.home / "landing").rglob("*") if path.is_file()}
    assert [(one.place, one.remedy.action) for one in orphans(captured)] == [
        (f"file://{dead}", Action.CLEAN),
        (f"file://{unknown}", Action.CAPTURE),
    ]
    assert captured.command("doctor", "--no-warehouse", "--clean") == 1, (
        "the manifest may have been put back: the unknown one stays"
    )
    left = {path for path in (captured.home / "landing").rglob("*") if path.is_file()}
    assert before - left == {dead / "Object" / "product__v.csv"}
    assert fresh.is_dir()

    # As the finding advises: a capture registers the window, and then the rest can be removed.
    assert captured.command("capture", "--feed", INCR) == 0
    assert [(one.place, one.remedy.action) for one in orphans(captured)] == [(f"file://{unknown}", Action.CLEAN)]
    assert captured.command("doctor", "--no-warehouse", "--clean") == 0
    assert not unknown.exists()
    with captured.open() as pipeline:
        for item in pipeline.manifest.items(INCR):
            assert item.landed
            assert read_files(item.landed.place) is not None, "what is registered is there"


def test_a_clock_that_is_ahead_makes_nothing_that_is_written_now_look_old(captured: Ward) -> None:
    fresh = killed_capture(captured, KNOWN, timedelta(0))
    empty = fresh.with_name("attempt=begun")
    empty.mkdir()
    with captured.open() as pipeline:
        watcher = CapturesWatcher(pipeline, datetime.now(UTC) + 10 * DAY, DAY)
        watcher.feed(INCR)
        for item in pipeline.manifest.items(INCR):
            watcher.see(item)
        assert list(watcher.end(INCR)) == []
    assert {Path(one.place.removeprefix("file://")) for one in orphans(captured, timedelta(0))} == {fresh, empty}


def test_a_folder_that_a_dead_process_put_aside_is_found_and_removed(
    captured: Ward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(spool.VARIABLE, str(tmp_path))
    left = tmp_path / f"{spool.PREFIX}merge-1"
    left.mkdir()
    then = time.time() - DAY.total_seconds()
    os.utime(left, (then, then))
    with spool.folder("merge") as mine:
        os.utime(mine, (then, then))
        with captured.open() as pipeline:
            [found] = Doctor(pipeline, warehouse=False).examine().findings
        assert (found.kind, found.place, found.remedy.action) == (Kind.SPOOL, str(left), Action.CLEAN)
        assert captured.command("doctor", "--no-warehouse", "--clean") == 0
        assert (left.exists(), mine.exists()) == (False, True)
