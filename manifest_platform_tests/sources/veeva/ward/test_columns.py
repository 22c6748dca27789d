"""Columns of a vault that change their type or the spelling of their name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from manifest_platform.pipeline import LOAD, ItemFailed, Loaded, Pipeline, Stop
from manifest_platform.pipeline.full import full_status, why_needed
from manifest_platform.remedies import Action, Remedy
from manifest_platform_tests.sources.veeva.ward.ward import (
    AUDIT,
    FULL,
    LOG,
    NAME,
    PRODUCT,
    Ward,
    Window,
    drained,
    full,
    incr,
    land,
    log,
    rows_in,
    started,
)


def boolean(window: Window, table: str = PRODUCT) -> Window:
    """Returns the window, with booleans in the column instead of text."""
    rows: Any = {table: {window.name: True}}
    return replace(window, rows=rows, column=("name__v", "boolean"))


def test_a_windows_new_type_needs_a_full_load_and_not_another_attempt(ward: Ward, pipeline: Pipeline) -> None:
    """The advice said to resolve the window, which then failed again every time."""
    started(pipeline, "0000", boolean(incr("0015")))
    events, report = drained(pipeline)
    [failed] = [event for event in events if isinstance(event, ItemFailed)]
    assert "column name__v: the warehouse has string" in failed.failure.message
    assert "A full load with a later snapshot" in failed.failure.message
    assert (report.stop, report.remedy and report.remedy.action) == (Stop.BLOCKED, Action.BEGIN_FULL_LOAD)
    assert "incr/stoptime=202601020015 failed" in why_needed(pipeline, pipeline.clock())
    assert full_status(pipeline).remedy == Remedy(Action.CAPTURE_SNAPSHOT, feed=FULL), "the one there is was taken before"


def test_a_new_type_in_logs_goes_to_another_column_and_is_reported(
    ward: Ward, pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    days = [boolean(log(stop), AUDIT) for stop in ("0103-0000", "0104-0000")]
    land(pipeline, log("0000"), *days, log("0105-0000"))
    events, report = drained(pipeline)
    assert (report.stop, report.loaded) == (Stop.IDLE, 4)
    told = [event.told for event in events if isinstance(event, Loaded)]
    assert [len(lines) for lines in told] == [0, 1, 0, 0]
    assert "name__v has a type that the column cannot hold, so it is stored in name__v__boolean" in told[1][0]
    kept = rows_in(ward, NAME, AUDIT, "name__v", "name__v__boolean")
    assert kept == [(None, True), (None, True), ("ok", None), ("ok", None)]
    assert ward.command("explain", "log/date=2026-01-03") == 0
    assert "Note of the load: table login_audit_trail__sys: name__v has a type" in " ".join(capsys.readouterr().out.split())
    assert ward.command("status") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "told log/date=2026-01-03: table login_audit_trail__sys: name__v has a type" in shown
    assert ward.command("status", "--json") == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    notes = {(step["outlook"]["feed"], step["outlook"]["step"]): step["told"]["count"] for step in steps if step["told"]}
    assert notes == {(LOG, LOAD): 1}


def test_only_the_newest_notes_are_shown(ward: Ward, pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"a{number}" for number in range(8)]
    land(pipeline, log("0000", {name: {"1": "ok"} for name in names}))
    land(pipeline, *[boolean(log("0103-0000"), name) for name in names[:1]])
    drained(pipeline)
    with_all = replace(log("0104-0000"), rows={name: {"2": True} for name in names}, column=("name__v", "boolean"))
    land(pipeline, with_all)
    assert drained(pipeline)[1].stop is Stop.IDLE
    capsys.readouterr()
    ward.command("explain", "log/date=2026-01-04")
    assert "and 2 more notes, in its records" in " ".join(capsys.readouterr().out.split())
    ward.command("status")
    shown = " ".join(capsys.readouterr().out.split())
    assert ("log/date=2026-01-04: table a5" in shown, "and 3 more notes" in shown) == (True, True)
    assert "table a0" not in shown, "it is known since the day before"


def test_a_column_that_is_spelled_in_another_case_is_the_same(ward: Ward, pipeline: Pipeline) -> None:
    """Every window and snapshot failed: the warehouse cannot add a column that exists."""
    other = ("Name__V", "string")
    started(pipeline, "0000", replace(incr("0015"), column=other), incr("0030"))
    events, report = drained(pipeline)
    assert (report.stop, report.loaded) == (Stop.IDLE, 2)
    assert [len(event.told) for event in events if isinstance(event, Loaded)] == [1, 0]
    land(pipeline, replace(full("0045"), column=other))
    assert ward.command("full", "begin", "latest") == 0
    assert drained(pipeline)[1].stop is Stop.IDLE
    assert ward.seen.tables[PRODUCT] == {"last": "full 0045"}
