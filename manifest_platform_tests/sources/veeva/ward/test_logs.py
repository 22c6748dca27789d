"""A vault's logs beside its changes: the cases L1 to L6, through the pipeline."""

from __future__ import annotations

from manifest_platform.manifest import Standing
from manifest_platform.manifest.dataset import Mode
from manifest_platform.pipeline import Pipeline, Stop
from manifest_platform_tests.sources.veeva.ward.ward import (
    AUDIT,
    FULL,
    INCR,
    LOG,
    Ward,
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


def test_L4_a_day_that_was_committed_and_not_told_is_there_once(ward: Ward, pipeline: Pipeline) -> None:
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
    """That it is missing is told by the check `no_window_missing`."""
    started(pipeline, "0000", log("0000"), log("0104-0000"))
    assert drained(pipeline)[1].stop is Stop.IDLE
    assert watermark(pipeline, LOG) == "0104-0000"
    assert land(pipeline, log("0103-0000")) == ["late"]
    assert drained(pipeline)[1].stop is Stop.IDLE
    assert ward.seen.applied[-3:] == ["log 0000", "log 0104-0000", "log 0103-0000"]
    assert sorted(ward.seen.tables[AUDIT]) == ["login 0000", "login 0103-0000", "login 0104-0000"]
    assert watermark(pipeline, LOG) == "0104-0000"
