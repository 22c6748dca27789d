"""The checks of a vault: all pass on a good state, and each fails on its fault."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from manifest_platform.orchestration.folder_checks import LOADED
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform_tests.orchestration.dagster_ward import DagsterWard
from manifest_platform_tests.sources.veeva.ward.ward import FULL, INCR, LOG, NAME, Ward, full, incr, incrs, land, log

SNAPSHOT, CHANGES, LOGS = full("0000"), incrs("0015", "0045"), [log("0101-0000"), log("0000")]
Check = tuple[str, str]
GAP = {("incr/windows", "no_window_missing"), ("incr/warehouse", "feed_not_blocked"), ("incr/warehouse", "no_full_load_needed")}


@pytest.fixture
def loaded(tmp_path: Path, instance: dg.DagsterInstance) -> DagsterWard:
    """A vault's snapshot, changes and logs, all loaded in epoch 2."""
    dagster = DagsterWard(Ward(tmp_path), instance)
    _land(dagster, SNAPSHOT, *CHANGES, *LOGS)
    assert dagster.begin().success
    assert dagster.drain().success
    return dagster


def _land(dagster: DagsterWard, *windows: Any) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, *windows)


def _checks(dagster: DagsterWard) -> dict[Check, dg.AssetCheckEvaluation]:
    """Runs all checks but that of the landing root: the windows of a ward are in none."""
    return {check: evaluation for check, evaluation in dagster.run_checks().items() if check[1] != LOADED}


def _failed(dagster: DagsterWard) -> dict[Check, dg.AssetCheckEvaluation]:
    return {check: evaluation for check, evaluation in _checks(dagster).items() if not evaluation.passed}


def _fail_the_next(dagster: DagsterWard) -> None:
    _land(dagster, incr("0100"))
    dagster.break_listing("2026-01-02T01:00Z")
    dagster.drain()


def _let_one_wait(dagster: DagsterWard) -> None:
    """Adds a day of logs that was discovered two hours ago."""
    _land(dagster, log("0103-0000"))
    long_ago = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
    dagster.tamper("2026-01-03T00:00Z", lambda record: record.update(timestamp=long_ago), of="discover", state="New")


def _miscount(dagster: DagsterWard) -> None:
    dagster.tamper("2026-01-02T00:15Z", lambda record: record["payload"]["data"].update(good=1))


def _load_too_little(dagster: DagsterWard) -> None:
    """Removes a shredded row from both the load's record and the ledger."""
    dagster.tamper("2026-01-02T00:15Z", lambda record: record["payload"]["data"].update(lines=3, good=2, bad=1))


def _lose_a_window(dagster: DagsterWard) -> None:
    _land(dagster, incr("0115"), incr("0130"))


def _lose_a_day(dagster: DagsterWard) -> None:
    _land(dagster, log("0104-0000"))
    dagster.drain()


def _count_otherwise(feed: str) -> Callable[[DagsterWard], None]:
    def change(dagster: DagsterWard) -> None:
        items = {FULL: SNAPSHOT.name, INCR: CHANGES[1].name, LOG: LOGS[0].name}
        with closing(DuckDB(dagster.ward.home / "warehouse.duckdb")) as warehouse:
            ledger = f"{warehouse.qualified('manifest_platform')}.ledger"
            warehouse.execute(f"UPDATE {ledger} SET rows = '{{}}' WHERE item LIKE '%{items[feed]}'")

    return change


def _register_behind_the_watermark(dagster: DagsterWard) -> None:
    """Registers a window against the manifest's rules, as if a store had been combined from two backups."""
    with closing(sqlite3.connect(dagster.ward.home / "manifest.db")) as store, store:
        rows = store.execute("SELECT sort, data FROM manifest WHERE sort LIKE 'RECORD#%'").fetchall()
        [(sort, text)] = [row for row in rows if "202601020030" in row[0] and json.loads(row[1])["state"] == "New"]
        for old, new in (("202601020030", "202601020020"), ("T00:30Z", "T00:20Z")):
            sort, text = sort.replace(old, new), text.replace(old, new)
        record = {**json.loads(text), "record_id": "00000000-0000-4000-8000-000000000000"}
        store.execute("INSERT INTO manifest SELECT partition, ?, 1, ? FROM manifest LIMIT 1", (sort, json.dumps(record)))


def test_all_pass_on_a_good_state(loaded: DagsterWard) -> None:
    evaluations = _checks(loaded)
    assert len(evaluations) == 25
    assert {check for check, one in evaluations.items() if not one.passed} == set()
    assert evaluations["incr/warehouse", "counts_agree"].metadata["windows"].value == 3
    assert evaluations["full/warehouse", "counts_agree"].metadata["windows"].value == 1
    assert evaluations["log/warehouse", "counts_agree"].metadata["rows"].value == 2
    assert evaluations["incr/windows", "no_window_missing"].metadata["windows"].value == 3


@pytest.mark.parametrize(
    ("breaking", "failed"),
    [
        (_fail_the_next, {("incr/warehouse", "feed_not_blocked")}),
        (_let_one_wait, {("log/warehouse", "lag")}),
        (_miscount, {("incr/shredded", "rows_accounted_for"), ("incr/warehouse", "counts_agree")}),
        (_load_too_little, {("incr/warehouse", "counts_agree"), ("incr/shredded", "few_bad_rows")}),
        (_lose_a_window, GAP),
        (_lose_a_day, {("log/windows", "no_window_missing")}),
        (_count_otherwise(INCR), {("incr/warehouse", "counts_agree")}),
        (_count_otherwise(LOG), {("log/warehouse", "counts_agree")}),
        (_count_otherwise(FULL), {("full/warehouse", "counts_agree")}),
        (_register_behind_the_watermark, {("incr/warehouse", "nothing_behind_watermark")}),
    ],
)
def test_each_check_fails_on_its_fault(
    loaded: DagsterWard, breaking: Callable[[DagsterWard], None], failed: set[Check]
) -> None:
    breaking(loaded)
    assert _failed(loaded).keys() == failed


def test_failed_checks_name_the_fault(loaded: DagsterWard) -> None:
    _lose_a_window(loaded)
    _count_otherwise(INCR)(loaded)
    failed = _failed(loaded)
    gap = failed["incr/windows", "no_window_missing"]
    assert gap.metadata["missing"].value == "2026-01-02T00:45Z to 2026-01-02T01:00Z"
    blocked = failed["incr/warehouse", "feed_not_blocked"]
    assert blocked.metadata["command"].value == "manifest-platform capture"
    assert failed["incr/warehouse", "counts_agree"].metadata["wrong"].value == CHANGES[1].name


def test_B11_a_vault_without_a_snapshot_needs_one(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    dagster = DagsterWard(Ward(tmp_path), instance)
    _land(dagster, *CHANGES)
    failed = _failed(dagster)
    assert failed.keys() == {("incr/warehouse", "no_full_load_needed"), ("incr/warehouse", "feed_not_blocked")}
    needed = failed["incr/warehouse", "no_full_load_needed"]
    assert needed.metadata["command"].value == "manifest-platform capture --feed full", "there is none to begin with"
    assert needed.metadata["reason"].value == "no snapshot was loaded yet that the windows of incr could follow"
    assert (needed.metadata["mode"].value, needed.metadata["epoch"].value) == ("INCREMENTAL", 1)
    _land(dagster, SNAPSHOT)
    assert dagster.begin().success
    assert _failed(dagster).keys() == set(), "one is in progress, and what waits for it is not blocked"


def test_B6_a_gap_needs_a_snapshot_once_the_vault_has_deleted_the_window(
    loaded: DagsterWard, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lose_a_window(loaded)
    needed = _failed(loaded)["incr/warehouse", "no_full_load_needed"]
    reason = str(needed.metadata["reason"].value)
    assert "2026-01-02T00:45Z" in reason and reason.endswith("is missing, and the source keeps windows for 10 days only")
    monkeypatch.setattr("manifest_platform.sources.veeva.source.VeevaDirectData.retention", timedelta(days=36_500))
    assert ("incr/warehouse", "no_full_load_needed") not in _failed(loaded), "it may still come"


def test_F18_windows_that_a_snapshot_contains_are_not_missing(loaded: DagsterWard) -> None:
    _lose_a_window(loaded)
    assert _failed(loaded).keys() == GAP
    _land(loaded, full("0108"))
    assert loaded.begin().success and loaded.drain().success
    assert loaded.ward.seen.applied[-3:] == ["full 0108", "incr 0115", "incr 0130"]
    assert _failed(loaded).keys() == set()


def test_the_check_shows_the_state(loaded: DagsterWard) -> None:
    shown = loaded.run_checks()["incr/warehouse", "no_full_load_needed"].metadata
    assert {name: value.value for name, value in shown.items()} == {
        "mode": "INCREMENTAL",
        "epoch": 2,
        "boundary": "2026-01-02T00:00Z",
    }


def test_a_full_load_in_progress_fails_no_check(loaded: DagsterWard) -> None:
    _land(loaded, full("0030"))
    assert loaded.begin().success
    assert _failed(loaded).keys() == set()
    assert loaded.drain().success
    assert loaded.ward.seen.applied[-2:] == ["full 0030", "incr 0045"]
    assert _failed(loaded).keys() == set(), "what the snapshot contains is not behind"
    assert loaded.run_checks()["incr/warehouse", "counts_agree"].metadata["windows"].value == 1


def test_tables_of_users_are_not_checked(loaded: DagsterWard) -> None:
    with closing(DuckDB(loaded.ward.home / "warehouse.duckdb")) as warehouse:
        warehouse.execute(f"CREATE TABLE {warehouse.qualified(NAME, 'mine')} AS SELECT 1 AS one")
    assert _failed(loaded).keys() == set()
