"""The need that `full status` reports, and the command that it advises."""

from __future__ import annotations

from datetime import timedelta

from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.full import full_status, remedy, why_needed
from manifest_platform.remedies import Action, Remedy
from manifest_platform_tests.sources.veeva.ward.ward import Ward, at, drained, full, incr, incrs, key_of, land, started

LONG_AFTER = at("0200") + timedelta(days=11)


def test_without_a_snapshot_the_advice_is_to_capture_one(pipeline: Pipeline) -> None:
    land(pipeline, incr("0015"))
    assert full_status(pipeline).remedy == Remedy(Action.CAPTURE_SNAPSHOT, feed="full")
    land(pipeline, full("0000"))
    assert full_status(pipeline).remedy == Remedy(Action.BEGIN_FULL_LOAD)


def test_a_snapshot_that_ends_before_a_gap_does_not_close_it(pipeline: Pipeline) -> None:
    started(pipeline, "0000", incr("0015"), incr("0045"))
    drained(pipeline)
    assert "the window from 2026-01-02T00:15Z is missing" in why_needed(pipeline, LONG_AFTER)
    assert remedy(pipeline) == Remedy(Action.CAPTURE_SNAPSHOT, feed="full"), "begun again, 0000 would come to the same gap"
    land(pipeline, full("0030"))
    assert remedy(pipeline) == Remedy(Action.BEGIN_FULL_LOAD)


def test_a_gap_begins_behind_a_window_that_was_skipped(pipeline: Pipeline) -> None:
    started(pipeline, "0000", *incrs("0015", "0030"), incr("0100"))
    pipeline.manifest.skip(key_of(pipeline, "0030"), "for a test", "load")
    drained(pipeline)
    assert "the window from 2026-01-02T00:30Z is missing" in why_needed(pipeline, LONG_AFTER)


def test_full_status_advises_nothing_while_all_is_well(ward: Ward, pipeline: Pipeline) -> None:
    started(pipeline, "0000", incr("0015"))
    drained(pipeline)
    assert (full_status(pipeline).needed, full_status(pipeline).remedy) == ("", None)
    assert ward.command("full", "status") == 0
