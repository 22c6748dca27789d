"""A vault's logs beside its changes: the cases L1 to L6, through the pipeline."""

from __future__ import annotations

import dataclasses

from manifest_platform.manifest import Standing
from manifest_platform.manifest.dataset import Mode
from manifest_platform.pipeline import Loaded, Pipeline, Stop
from manifest_platform_tests.sources.veeva.ward.ward import (
    AUDIT,
    FULL,
    INCR,
    LOG,
    NAME,
    Ward,
    at,
    begun,
    crashing,
    drained,
    full,
    history,
    incr,
    incrs,
    key_of,
    land,
    log,
    mend,
    replayed,
    rows_in,
    spoil,
    standings,
    started,
    state,
    watermark,
)


def test_L1_a_day_of_logs_that_failed_does_not_stop_the_changes(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000", log("0000"))
    spoil(pipeline, "0000", LOG)
    drained(pipeline)
    land(pipeline, *incrs("0015", "0030"))
    _, report = drained(pipeline)
    assert (report.loaded, report.stop, report.feed) == (2, Stop.BLOCKED, LOG)
    assert (watermark(pipeline), watermark(pipeline, LOG)) == ("0030", "")
    assert ward.seen.tables == {AUDIT: {}, **replayed([full("0000"), *incrs("0015", "0030")])}


def test_L2_a_window_that_failed_does_not_stop_the_logs(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000", incr("0015"), log("0000"))
    spoil(pipeline, "0015")
    _, report = drained(pipeline)
    assert (report.loaded, report.feed) == (1, INCR)
    assert (watermark(pipeline), watermark(pipeline, LOG)) == ("0000", "0000")
    assert ward.seen.tables[AUDIT] == {"login 0000": "ok"}


def test_L3_logs_move_their_own_watermark_alone(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000", incr("0015"), log("0000"))
    drained(pipeline, feeds=[LOG])
    assert (watermark(pipeline), watermark(pipeline, LOG)) == ("0000", "0000")
    assert ward.seen.fences[INCR][2] == "0000"
    assert ward.seen.fences[LOG][2] == "0000"
    drained(pipeline)
    assert (watermark(pipeline), watermark(pipeline, LOG)) == ("0015", "0000")


def test_L4_a_day_that_was_committed_but_not_completed_is_loaded_once(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000", log("0000"))
    with crashing("load.committed"):
        drained(pipeline)
    assert standings(pipeline, LOG)["0000"] is Standing.PROCESSING
    assert drained(pipeline)[1].stop is Stop.IDLE
    assert history(pipeline, "0000", LOG)[-2:] == ["load Processing", "load Processed"]
    assert pipeline.warehouse.row_counts()[AUDIT] == 1
    assert ward.seen.applied == ["full 0000", "log 0000"]


def test_L5_while_a_full_load_waits_logs_are_captured_and_not_applied(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000", log("0000"))
    drained(pipeline)
    land(pipeline, full("0015"))
    begun(pipeline, "latest")
    assert state(pipeline).mode == Mode.FULL_LOAD
    assert land(pipeline, log("0103-0000")) == ["new"]
    taken = spoil(pipeline, "0015", FULL)
    assert drained(pipeline)[1].loaded == 0
    assert standings(pipeline, LOG)["0103-0000"] is Standing.READY
    mend(taken)
    pipeline.manifest.resolve(key_of(pipeline, "0015", FULL), "put back")
    drained(pipeline)
    assert ward.seen.applied[-2:] == ["full 0015", "log 0103-0000"]
    assert ward.seen.tables[AUDIT] == {"login 0000": "ok", "login 0103-0000": "ok"}


def test_L6_a_day_that_is_missing_stops_nothing_and_is_appended_when_it_comes(ward: Ward, pipeline: Pipeline) -> None:
    """The check `no_window_missing` reports the missing day."""
    started(pipeline, "0000", log("0000"), log("0104-0000"))
    assert drained(pipeline)[1].stop is Stop.IDLE
    assert watermark(pipeline, LOG) == "0104-0000"
    assert land(pipeline, log("0103-0000")) == ["late"]
    assert drained(pipeline)[1].stop is Stop.IDLE
    assert ward.seen.applied[-3:] == ["log 0000", "log 0104-0000", "log 0103-0000"]
    assert sorted(ward.seen.tables[AUDIT]) == ["login 0000", "login 0103-0000", "login 0104-0000"]
    assert watermark(pipeline, LOG) == "0104-0000"


def test_overlapping_days_are_appended_once_and_reported(ward: Ward, pipeline: Pipeline) -> None:
    """A vault's clock was set back: a day began an hour before the previous day ended, and its rows were loaded twice."""
    days = [
        log("0000", {AUDIT: {"a": "1", "b": "1"}}),
        dataclasses.replace(log("0103-0000", {AUDIT: {"b": "1", "c": "1"}}), start=at("0101-2300")),
        log("0104-0000", {AUDIT: {"c": "1 again"}}),
    ]
    land(pipeline, *days)
    events, report = drained(pipeline)
    assert (report.stop, report.loaded) == (Stop.IDLE, 3)
    told = [event.told for event in events if isinstance(event, Loaded)]
    assert (told[0], told[2]) == ((), ())
    assert "1 of 2 rows existed already, because it starts at 2026-01-01T23:00Z" in told[1][0]
    kept = rows_in(ward, NAME, AUDIT, "id", "name__v")
    assert kept == [("a", "1"), ("b", "1"), ("c", "1"), ("c", "1 again")], "days that do not overlap are appended as they are"


def test_a_day_that_comes_late_is_appended_once(ward: Ward, pipeline: Pipeline) -> None:
    land(pipeline, log("0000"), log("0103-0000", {AUDIT: {"a": "1", "b": "1"}}))
    drained(pipeline)
    land(pipeline, log("0102-1200", {AUDIT: {"a": "1", "z": "1"}}))
    events, _ = drained(pipeline)
    [loaded] = [event for event in events if isinstance(event, Loaded)]
    assert loaded.late
    assert "1 of 2 rows existed already, because it came late" in loaded.told[0]
    assert ward.seen.tables[AUDIT] == {"login 0000": "ok", "a": "1", "b": "1", "z": "1"}
