"""The listing sensor of a vault: windows of every feed, however they arrived, and a drain for each kind of work."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from manifest_platform.fake_vault import FakeVault
from manifest_platform.orchestration.listing import Remembered
from manifest_platform.pipeline.full import cancel
from manifest_platform.pipeline.work import work_waiting
from manifest_platform.sources.veeva.layout import window_name
from manifest_platform_tests.orchestration.dagster_ward import DagsterWard
from manifest_platform_tests.sources.veeva.ward.ward import (
    FULL,
    INCR,
    LOG,
    PASSWORD,
    Ward,
    begun,
    drained,
    full,
    incr,
    incrs,
    key_of,
    land,
    left_by_a_dead_worker,
    log,
    spoil,
    started,
)

SNAPSHOT, CHANGES, LOGS = full("0000"), incrs("0015", "0100"), log("0000")
WINDOWS = (SNAPSHOT, *CHANGES, LOGS)


@pytest.fixture
def dagster(
    vault: FakeVault, tmp_path: Path, instance: dg.DagsterInstance, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> DagsterWard:
    """A vault that is captured."""
    monkeypatch.setenv(PASSWORD, vault.settings.password)
    return DagsterWard(Ward(tmp_path, store_url, vault), instance)


def _requested(result: dg.SensorResult) -> list[str | None]:
    return [request.job_name for request in result.run_requests or ()]


def _told(result: dg.SensorResult, asset: str) -> list[str | None]:
    """Returns the partitions of an asset that a tick reports."""
    found = [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]
    return [event.partition for event in found if "/".join(event.asset_key.path[1:]) == asset]


def _evaluated(result: dg.SensorResult) -> dict[tuple[str, str], dg.AssetCheckEvaluation]:
    """Returns the check evaluations of a tick, by asset and name."""
    found = [event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    return {("/".join(event.asset_key.path[1:]), event.check_name): event for event in found}


def _failed(result: dg.SensorResult, check: str = "feed_not_blocked") -> dict[str, str | None]:
    """Returns the failed evaluations of a check in a tick, by feed."""
    found = _evaluated(result).items()
    return {asset.split("/")[0]: one.description for (asset, name), one in found if name == check and not one.passed}


@pytest.mark.stores("sqlite", "dynamodb")
def test_windows_that_others_land_become_partitions_of_their_feed(
    tmp_path: Path, instance: dg.DagsterInstance, store_url: str
) -> None:
    ward = Ward(tmp_path, store_url)
    dagster = DagsterWard(ward, instance)
    for window in WINDOWS:
        folder = ward.home / "landing" / f"vault={ward.vault_id}" / window.name
        folder.mkdir(parents=True)
        (folder / "_SUCCESS").touch()
    (folder.parent / "yesterday").mkdir()
    result = dagster.tick()
    assert dagster.partitions(FULL) == _told(result, "full/windows") == [SNAPSHOT.name]
    assert dagster.partitions(INCR) == _told(result, "incr/windows") == [window.name for window in CHANGES]
    assert dagster.partitions(LOG) == _told(result, "log/windows") == [LOGS.name]
    assert _requested(result) == ["vault_drain"]
    again = dagster.tick(result.cursor)
    assert not again.asset_events and not again.dynamic_partitions_requests and not again.run_requests


def test_windows_that_were_captured_outside_dagster_become_partitions(dagster: DagsterWard, vault: FakeVault) -> None:
    """The command line captured them, or a run that died before it could report them."""
    with dagster.ward.open() as pipeline:
        assert len(dagster.ward.captured(pipeline).captured) == 9
    result = dagster.tick()
    for feed in (FULL, INCR, LOG):
        names = [window_name(feed, window.stop) for window in vault.windows(feed)]
        assert dagster.partitions(feed) == _told(result, f"{feed}/windows") == names
        assert dagster.materialized(f"{feed}/windows") == set(names)
    assert not dagster.tick(result.cursor).asset_events, "told of once"


def test_loads_outside_dagster_are_shown(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, *WINDOWS)
        begun(pipeline, "latest")
        drained(pipeline)
    result = dagster.tick()
    assert _told(result, "incr/warehouse") == [window.name for window in CHANGES]
    assert _told(result, "full/warehouse") == [SNAPSHOT.name]
    assert _told(result, "log/warehouse") == [LOGS.name]
    assert dagster.partitions() == [window.name for window in CHANGES]
    assert dagster.shown("incr/warehouse", CHANGES[0].name)["epoch"] == 2
    assert not dagster.tick(result.cursor).asset_events


def test_a_waiting_window_is_shown_once_it_is_loaded(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, *WINDOWS, full("0015"))
    waiting = dagster.tick(dagster.tick().cursor)
    assert dagster.materialized("full/warehouse") == dagster.materialized("incr/warehouse") == set()
    with dagster.ward.open() as pipeline:
        for snapshot in ("0000", "0015"):
            begun(pipeline, snapshot)
            drained(pipeline)
    result = dagster.tick(waiting.cursor)
    assert _told(result, "full/warehouse") == [SNAPSHOT.name, full("0015").name]
    assert _told(result, "incr/warehouse") == [window.name for window in CHANGES]
    assert _told(result, "log/warehouse") == [LOGS.name]


def test_a_long_history_costs_a_tick_few_requests(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, SNAPSHOT, *incrs("0015", "0730"))
        begun(pipeline, "latest")
        drained(pipeline)
    first = dagster.tick()
    assert len(dagster.partitions()) == 30
    store = dagster.sensor_pipeline.manifest.store
    before = store.requests
    assert not dagster.tick(first.cursor).asset_events
    assert store.requests - before < 60, "twenty a feed"


@pytest.mark.stores("sqlite", "dynamodb")
def test_one_drain_is_requested_for_work_in_any_feed(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, LOGS)
    result = dagster.tick()
    assert _requested(result) == ["vault_drain"]
    assert set(Remembered.from_json(result.cursor).asked) == {"vault_drain"}


def test_each_drain_is_requested_for_its_own_feeds(
    vault: FakeVault, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    dagster = DagsterWard(Ward(tmp_path, vault=vault, load={"logs": "own"}), instance)
    with dagster.ward.open() as pipeline:
        land(pipeline, LOGS)
    logs = dagster.tick()
    assert _requested(logs) == ["vault_log_drain"]
    with dagster.ward.open() as pipeline:
        land(pipeline, SNAPSHOT)
        begun(pipeline, "latest")
    both = dagster.tick(logs.cursor)
    assert _requested(both) == ["vault_drain"], "the other was asked for already"
    asked = Remembered.from_json(both.cursor).asked
    assert {job: one.times for job, one in asked.items()} == {"vault_drain": 1, "vault_log_drain": 1}
    assert asked["vault_drain"].work.startswith(f"load {SNAPSHOT.name} ")
    assert asked["vault_log_drain"].work.startswith(f"load {LOGS.name} ")
    assert dagster.drain().success and dagster.drain("vault_log_drain").success
    assert dagster.ward.seen.applied == ["full 0000", "log 0000"]
    assert not dagster.tick(both.cursor).run_requests


def test_F2_windows_that_wait_for_a_snapshot_are_no_work(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, *WINDOWS)
        begun(pipeline, "latest")
        loading = dagster.tick()
        work = Remembered.from_json(loading.cursor).asked["vault_drain"].work
        assert work.startswith(f"load {SNAPSHOT.name} ") and "incr" not in work and "log" not in work
        assert _failed(loading) == {}, "to wait is not to be blocked"


@pytest.mark.stores("sqlite", "dynamodb")
def test_each_feed_reports_its_own_block(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, *CHANGES, LOGS)
    dagster.break_listing("2026-01-02T00:00Z")
    assert not dagster.drain().success
    blocked = dagster.tick()
    told = _failed(blocked)
    assert set(told) == {INCR, LOG}
    assert "Do: manifest-platform full begin latest" in str(told[INCR])
    assert f"Do: manifest-platform resolve {LOGS.name}" in str(told[LOG])
    assert not blocked.run_requests
    assert _failed(dagster.tick(blocked.cursor)) == {}, "the same block is told of once"
    with dagster.ward.open() as pipeline:
        pipeline.manifest.resolve(key_of(pipeline, "0000", LOG), "put back")
    after = dagster.tick(blocked.cursor)
    assert _requested(after) == ["vault_drain"]
    assert _failed(after) == {}


def test_L6_a_missing_day_is_reported_by_the_sensor(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, log("0000"), log("0103-0000"))
    first = dagster.tick()
    assert _failed(first, "no_window_missing") == {}
    with dagster.ward.open() as pipeline:
        land(pipeline, log("0105-0000"))
    missing = dagster.tick(first.cursor)
    day = "2026-01-03T00:00Z to 2026-01-04T00:00Z"
    assert _failed(missing, "no_window_missing") == {LOG: f"Missing: {day}"}
    again = dagster.tick(missing.cursor)
    assert not _evaluated(again), "told of once"
    with dagster.ward.open() as pipeline:
        land(pipeline, log("0104-0000"))
    mended = _evaluated(dagster.tick(again.cursor))
    assert [one.passed for check, one in mended.items() if check == ("log/windows", "no_window_missing")] == [True]


def test_B6_a_needed_snapshot_is_reported_by_the_sensor(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        started(pipeline, "0000", *CHANGES)
        drained(pipeline)
    first = dagster.tick()
    assert _evaluated(first)["incr/warehouse", "no_full_load_needed"].passed
    with dagster.ward.open() as pipeline:
        land(pipeline, *incrs("0130", "0145"))
    needed = dagster.tick(first.cursor)
    said = str(_failed(needed, "no_full_load_needed")[INCR])
    assert "2026-01-02T01:00Z" in said and "is missing, and the source keeps windows for 10 days only" in said
    assert said.endswith("Do: manifest-platform capture --feed full"), "the snapshot in hand is older than the gap"
    assert not _evaluated(dagster.tick(needed.cursor)), "told of once"


def test_a_dead_workers_item_held_back_by_a_full_load_is_no_work(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        started(pipeline, "0000", *CHANGES)
        land(pipeline, full("0030"))
    left_by_a_dead_worker(dagster.ward)
    with dagster.ward.open() as pipeline:
        spoil(pipeline, "0030", FULL)
        assert "settle" in str(work_waiting(pipeline, datetime.now(UTC)))
        begun(pipeline, "0030")
        drained(pipeline)
        assert work_waiting(pipeline, datetime.now(UTC)) is None, "the snapshot failed, so a drain can do nothing"
        cancel(pipeline, "for a test")
        assert "settle" in str(work_waiting(pipeline, datetime.now(UTC)))


def test_a_long_history_of_the_command_line_is_shown_completely(dagster: DagsterWard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform.orchestration.shown.MIRRORED_A_TICK", 3)
    monkeypatch.setattr("manifest_platform.orchestration.shown.ADDED_A_TICK", 5)
    history = incrs("0015", "0300")
    with dagster.ward.open() as pipeline:
        started(pipeline, "0000", *history)
        drained(pipeline)
        land(pipeline, newest := incr("0315"))
    result = dagster.tick()
    assert dagster.partitions() == [window.name for window in history[:5]]
    assert dagster.drain().success
    for _ in range(12):
        result = dagster.tick(result.cursor)
    every = {window.name for window in (*history, newest)}
    assert set(dagster.partitions()) == every
    assert dagster.materialized("incr/shredded") == dagster.materialized("incr/warehouse") == every
    assert Remembered.from_json(result.cursor).shown[INCR].turn is None, "the round has come to its end"


def test_windows_beyond_the_limit_of_a_tick_become_partitions_later(
    dagster: DagsterWard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manifest_platform.orchestration.shown.ADDED_A_TICK", 1)
    with dagster.ward.open() as pipeline:
        land(pipeline, log("0103-0000"))
        drained(pipeline)
    shown = dagster.tick(dagster.tick().cursor)
    late, skipped = log("0102-0000"), log("0104-0000")
    with dagster.ward.open() as pipeline:
        land(pipeline, late, skipped, shredded=False)
        pipeline.manifest.skip(key_of(pipeline, "0104-0000", LOG), "is of no use")
    first = dagster.tick(shown.cursor)
    assert _told(first, "log/windows") == [late.name]
    assert _told(dagster.tick(first.cursor), "log/windows") == [skipped.name]


def test_a_cursor_of_an_older_form_is_accepted(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, LOGS)
    result = dagster.tick('{"work": "load x 1", "times": 2, "at": "2026-01-01T00:00:00+00:00", "blocked": ""}')
    assert _requested(result) == ["vault_drain"]
