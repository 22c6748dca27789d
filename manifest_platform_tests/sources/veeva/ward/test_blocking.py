"""The next window of a feed, and what stops the feed: the cases B1 to B11, through the pipeline."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from manifest_platform.cli import Exit
from manifest_platform.manifest import Application, Blocked, Idle, Standing
from manifest_platform.pipeline import LOAD, Loaded, Pipeline, Stop
from manifest_platform.pipeline.full import full_status, why_needed
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.veeva.source import KEPT
from manifest_platform_tests.sources.veeva.ward.ward import (
    AUDIT,
    FULL,
    INCR,
    NOTHING,
    PRODUCT,
    Ward,
    at,
    attempts,
    drained,
    full,
    history,
    incr,
    incrs,
    land,
    log,
    replayed,
    spoil,
    standings,
    started,
    state,
    watermark,
)

EVERY_STORE = pytest.mark.every_store


def names(*stops: str) -> list[str]:
    return [incr(stop).name for stop in stops]


def test_B1_windows_are_applied_in_order(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000", incr("0030"), incr("0015"))
    events, report = drained(pipeline)
    assert [event.key.name for event in events if isinstance(event, Loaded)] == names("0015", "0030")
    assert (report.stop, report.failed, watermark(pipeline)) == (Stop.IDLE, 0, "0030")
    assert ward.seen.tables == replayed([full("0000"), *incrs("0015", "0030")])
    land(pipeline, incr("0045"))
    pipeline.close()
    assert ward.command("drain") == Exit.DONE


@EVERY_STORE
def test_B2_a_failed_window_stops_all_behind_it(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000", *incrs("0015", "0100"))
    spoil(pipeline, "0030")
    drained(pipeline)
    before = ward.seen
    _, report = drained(pipeline)
    assert (report.stop, report.item, report.loaded, report.failed) == (Stop.BLOCKED, *names("0030"), 0, 0)
    assert report.remedy == Remedy(Action.RESOLVE, item=incr("0030").name)
    assert ward.seen == before
    assert watermark(pipeline) == "0015"
    wanted = {"0015": "done", "0030": "failed", "0045": "ready", "0100": "ready"}
    assert standings(pipeline) == {stop: Standing(one) for stop, one in wanted.items()}
    pipeline.close()
    assert ward.command("drain") == Exit.BLOCKED


def test_B3_a_window_in_work_is_waited_for_quietly(ward: Ward, pipeline: Pipeline, other: Pipeline) -> None:
    started(pipeline, "0000", *incrs("0015", "0045"))
    drained(pipeline, feeds=[])
    with other.lease(INCR, LOAD) as held:
        ready = other.manifest.next(INCR, LOAD, holding=True)
        assert not isinstance(ready, Blocked | Idle)
        other.manifest.claim(held, [ready.item], state(other))
        before = ward.seen, history(pipeline, "0015")
        events, report = drained(pipeline)
        assert (events, report.stop, report.failed) == ([], Stop.BUSY, 0)
        assert (ward.seen, history(pipeline, "0015")) == before
        assert standings(pipeline)["0015"] is Standing.PROCESSING
        assert standings(pipeline)["0030"] is Standing.READY


class TestGap:
    @pytest.fixture(autouse=True)
    def gap(self, ward: Ward, pipeline: Pipeline) -> None:
        """0015 is applied, 0045 has landed, and 0030 has not."""
        started(pipeline, "0000", incr("0015"), incr("0045"))
        drained(pipeline)
        assert ward.seen.applied == ["full 0000", "incr 0015"]

    @EVERY_STORE
    def test_B4_nothing_is_applied_over_a_gap(self, ward: Ward, pipeline: Pipeline) -> None:
        _, report = drained(pipeline)
        assert (report.stop, report.item, report.loaded) == (Stop.BLOCKED, *names("0045"), 0)
        reason = "gap: it starts at 2026-01-02T00:30Z, but the item before it stopped at 2026-01-02T00:15Z"
        assert report.reason == reason
        assert (watermark(pipeline), attempts(pipeline, "0045")) == ("0015", 0)
        assert ward.seen.applied == ["full 0000", "incr 0015"]

    def test_B5_the_window_that_closes_a_gap_is_applied_first(self, ward: Ward, pipeline: Pipeline) -> None:
        assert land(pipeline, incr("0030")) == ["new"]
        assert drained(pipeline)[1].stop is Stop.IDLE
        assert watermark(pipeline) == "0045"
        assert ward.seen.applied[-2:] == ["incr 0030", "incr 0045"]
        assert ward.seen.tables == replayed([full("0000"), *incrs("0015", "0045")])

    def test_B6_once_vault_no_longer_has_the_window_only_a_full_load_passes_the_gap(
        self, ward: Ward, pipeline: Pipeline
    ) -> None:
        assert why_needed(pipeline, at("0015") + KEPT) == ""
        late = at("0015") + KEPT + timedelta(minutes=1)
        assert "the window from 2026-01-02T00:15Z is missing" in why_needed(pipeline, late)
        assert full_status(pipeline, late).needed
        assert (drained(pipeline)[1].stop, watermark(pipeline)) == (Stop.BLOCKED, "0015")
        pipeline.close()
        assert ward.command("full", "status") == Exit.BLOCKED  # by the clock of today it is months ago


def test_B7_without_a_window_the_warehouse_is_not_asked(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline)
    with ward.open() as idle:
        before = idle.manifest.lease(Application(LOAD), INCR)
        _, report = drained(idle)
        assert (report.stop, report.loaded, report.failed) == (Stop.IDLE, 0, 0)
        assert "warehouse" not in vars(idle)  # it connects at its first use
        assert idle.manifest.lease(Application(LOAD), INCR) == before
        idle.lease(INCR, LOAD).__enter__().release()  # and nobody holds it
    pipeline.close()
    assert ward.command("drain") == Exit.NOTHING


@EVERY_STORE
def test_B8_a_window_behind_the_newest_is_set_aside_and_blocks_nothing(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000", incr("0100", start="0000"))
    drained(pipeline)
    assert land(pipeline, incr("0030", {PRODUCT: {"last": "too late"}}), incr("0115")) == ["quarantined", "new"]
    assert drained(pipeline)[1].stop is Stop.IDLE
    assert ward.seen.applied == ["full 0000", "incr 0100", "incr 0115"]
    assert ward.seen.tables[PRODUCT]["last"] == "0115"
    assert (watermark(pipeline), attempts(pipeline, "0030")) == ("0115", 0)
    assert standings(pipeline)["0030"] is Standing.LATE
    assert state(pipeline).feed(INCR).quarantined == 1
    pipeline.close()
    assert ward.command("explain", incr("0030").name) in (Exit.DONE, Exit.BLOCKED)


@EVERY_STORE
def test_B9_a_window_that_begins_before_the_newest_stopped_is_refused(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000", incr("0015"), incr("0030", start="0010"))
    _, report = drained(pipeline)
    assert (report.stop, report.item, watermark(pipeline)) == (Stop.BLOCKED, *names("0030"), "0015")
    assert report.reason.startswith("overlap: it starts at 2026-01-02T00:10Z")
    assert standings(pipeline)["0030"] is Standing.OVERLAP
    assert ward.seen.applied == ["full 0000", "incr 0015"]


@EVERY_STORE
def test_B10_a_failure_in_one_vault_does_not_stop_another(tmp_path: Path, store_url: str) -> None:
    ward = Ward(tmp_path, store_url, names=("vault", "ward_b"))
    with ward.open() as a, ward.open(name="ward_b") as b:
        for pipeline in (a, b):
            started(pipeline, "0000", incr("0015"))
        spoil(a, "0015")
        assert drained(a)[1].stop is Stop.BLOCKED
        assert drained(b)[1].stop is Stop.IDLE
        assert (watermark(a), watermark(b)) == ("0000", "0015")
    assert ward.seen_of("ward_b").applied == ["full 0000", "incr 0015"]
    assert ward.seen.applied == ["full 0000"]


@EVERY_STORE
def test_B11_windows_wait_until_a_snapshot_of_their_vault_is_loaded(ward: Ward, pipeline: Pipeline) -> None:
    land(pipeline, *incrs("0015", "0030"))
    _, report = drained(pipeline)
    assert (report.stop, report.item, report.loaded) == (Stop.BLOCKED, *names("0015"), 0)
    assert report.remedy and report.remedy.action is Action.BEGIN_FULL_LOAD
    assert set(standings(pipeline).values()) == {Standing.NEEDS_FULL}
    assert "no snapshot was loaded yet" in full_status(pipeline, at("0045")).needed
    assert (ward.seen, "warehouse" in vars(pipeline)) == (NOTHING, False)
    land(pipeline, log("0000"))
    drained(pipeline)
    assert ward.seen.tables == {AUDIT: {"login 0000": "ok"}}  # logs follow nothing
    assert pipeline.manifest.next(FULL, LOAD) == Idle()
