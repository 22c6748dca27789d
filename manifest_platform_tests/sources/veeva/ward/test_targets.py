"""Several targets of a vault: full loads of one, and a target that starts with the newest snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from manifest_platform.manifest import Application
from manifest_platform.manifest.dataset import Mode
from manifest_platform.operations.doctor import Doctor
from manifest_platform.pipeline import Stop
from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Load, Warehouse
from manifest_platform.warehouse.errors import Unavailable
from manifest_platform_tests.sources.veeva.ward.ward import (
    INCR,
    LOG,
    Ward,
    begun,
    drained,
    full,
    incrs,
    land,
    log,
    started,
    state,
    watermark,
)

LAB = Application("load", instance="lab")


def add(ward: Ward, start: str) -> None:
    whole = yaml.safe_load(ward.config_file.read_text())
    whole["targets"] = {"lab": {"path": "lab.duckdb", "start": start}}
    ward.config_file.write_text(yaml.safe_dump(whole))


def test_a_target_added_later_starts_with_the_newest_snapshot(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    with ward.open() as pipeline:
        started(pipeline, "0000", *incrs("0015", "0100"))
        drained(pipeline)
        land(pipeline, full("0045"))
    add(ward, "newest_full")
    with ward.open() as pipeline:
        for _ in range(2):  # the snapshot, then the changes after it
            drained(pipeline)
        lab = pipeline.manifest.state(LAB)
        assert (lab.mode, lab.epoch, lab.boundary) == (Mode.INCREMENTAL, 2, "2026-01-02T00:45Z")
        assert lab.feed(INCR).watermark.partition("#")[0] == "2026-01-02T01:00Z"
        assert (state(pipeline).boundary, watermark(pipeline)) == ("2026-01-02T00:00Z", "0100")
        records = pipeline.manifest.history(pipeline.key(full("0045").name))
        begun_by = [one.data["reason"] for one in records if "full_load" in one.data]
        assert begun_by == ["target lab starts here"]
        assert [finding.cause for finding in Doctor(pipeline, objects=False).examine().findings] == []


def test_a_full_load_of_one_target_holds_no_other(tmp_path: Path) -> None:
    ward = Ward(tmp_path, targets={"lab": {"path": "lab.duckdb"}})
    with ward.open() as pipeline:
        land(pipeline, full("0000"))
        begun(pipeline, "0000")
        begun(pipeline.at("lab"), "0000")
        drained(pipeline)
        land(pipeline, full("0030"), *incrs("0015", "0045"))
        begun(pipeline.at("lab"), "0030")
        _, report = drained(pipeline, feeds=[INCR])
        assert watermark(pipeline) == "0045"
        assert pipeline.manifest.state(LAB).mode is Mode.FULL_LOAD
        assert [(end.target, end.stop) for end in report.ends] == [("warehouse", Stop.IDLE), ("lab", Stop.BLOCKED)]
        for _ in range(2):
            drained(pipeline)
        assert (state(pipeline).epoch, pipeline.manifest.state(LAB).epoch) == (2, 3)
        assert pipeline.manifest.state(LAB).feed(INCR).watermark.partition("#")[0] == "2026-01-02T00:45Z"
        assert [finding.cause for finding in Doctor(pipeline, objects=False).examine().findings] == []


def test_a_fault_of_one_feed_holds_up_no_other_feed_of_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ward = Ward(tmp_path, targets={"lab": {"path": "lab.duckdb"}})
    with ward.open() as pipeline:
        land(pipeline, full("0000"))
        begun(pipeline, "0000")
        begun(pipeline.at("lab"), "0000")
        drained(pipeline)
        land(pipeline, *incrs("0015", "0015"), log("0015"))
        apply = Warehouse.apply

        def locked(self: Warehouse, load: Load) -> Applied | AlreadyApplied:
            if load.feed == INCR:
                raise Unavailable("a table of this feed is locked")
            return apply(self, load)

        monkeypatch.setattr(Warehouse, "apply", locked)
        _, report = drained(pipeline, feeds=[INCR, LOG])
        stops = {(end.target, end.feed): end.stop for end in report.ends}
        assert stops == {
            (target, feed): stop
            for target in ("warehouse", "lab")
            for feed, stop in ((INCR, Stop.UNAVAILABLE), (LOG, Stop.IDLE))
        }


def test_changes_are_no_start_of_a_target(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    with ward.open() as pipeline:
        started(pipeline, "0000", *incrs("0015", "0030"))
    add(ward, incrs("0015", "0015")[0].name)
    with ward.open() as pipeline:
        _, report = drained(pipeline)
        assert report.stop is Stop.BLOCKED
        assert "holds changes, which need a snapshot before them" in report.reason
        assert watermark(pipeline) == "0030"
