"""Reports for operators of a vault: those of `status`, and of `doctor` after the manifest was restored."""

from __future__ import annotations

import shutil

from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.standing import step_status
from manifest_platform.pipeline import LOAD, Pipeline
from manifest_platform.remedies import Action, Remedy
from manifest_platform_tests.sources.veeva.ward.ward import (
    FULL,
    INCR,
    LOG,
    Ward,
    at,
    begun,
    crashing,
    drained,
    full,
    incrs,
    land,
    started,
)


def told(ward: Ward) -> list[tuple[str, str, Remedy]]:
    """Returns kind, subject and remedy of the doctor's findings."""
    with ward.open() as pipeline:
        return [(one.kind, one.subject, one.remedy) for one in Doctor(pipeline, objects=False).examine().findings]


def repaired(ward: Ward) -> list[tuple[str, str, Remedy]]:
    """Returns the findings that remain after the doctor's repairs."""
    with ward.open() as pipeline:
        Doctor(pipeline, objects=False).repair()
    return told(ward)


def with_a_snapshot(ward: Ward) -> None:
    """Returns a vault that was loaded up to 00:45; a snapshot of 00:30 has landed."""
    with ward.open() as pipeline:
        started(pipeline, "0000", *incrs("0015", "0045"))
        drained(pipeline)
        land(pipeline, full("0030"))


def test_the_status_of_snapshots_shows_the_boundary(pipeline: Pipeline) -> None:
    assert step_status(pipeline, FULL, LOAD).watermark is None
    started(pipeline, "0000", *incrs("0015", "0030"))
    drained(pipeline)
    land(pipeline, full("0015"))
    status = {feed: step_status(pipeline, feed, LOAD) for feed in (FULL, INCR, LOG)}
    assert (status[FULL].watermark, status[FULL].watermark_time) == ("2026-01-02T00:00Z", at("0000"))
    assert (status[INCR].watermark, status[LOG].watermark) == ("incr/stoptime=202601020030", None)


def test_a_snapshot_unknown_to_a_restored_manifest_must_be_begun_again(ward: Ward) -> None:
    with_a_snapshot(ward)
    database, backup = ward.home / "manifest.db", ward.home / "backup.db"
    shutil.copy(database, backup)
    with ward.open() as pipeline:
        begun(pipeline, "0030")
        drained(pipeline, feeds=[FULL])
    assert told(ward) == []
    for file in ward.home.glob("manifest.db*"):
        file.unlink()
    shutil.copy(backup, database)
    name = "full/date=2026-01-02T0030"
    wanted = [("loaded but not recorded", name, Remedy(Action.LOAD_SNAPSHOT, item=name))]
    assert told(ward) == wanted
    assert repaired(ward) == wanted, "no repair of the log brings back what was not begun"
    with ward.open() as pipeline:
        begun(pipeline, "0030")
        drained(pipeline)
    assert told(ward) == []


def test_a_snapshot_that_was_begun_and_committed_is_recorded_by_repair(ward: Ward) -> None:
    with_a_snapshot(ward)
    with ward.open() as pipeline:
        begun(pipeline, "0030")
        with crashing("full.committed"):
            drained(pipeline)
    assert ("loaded but not recorded", Remedy(Action.REPAIR)) in [(one[0], one[2]) for one in told(ward)]
    assert repaired(ward) == []
