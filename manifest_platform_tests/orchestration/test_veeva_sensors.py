"""The listing sensor of a vault: every feed's windows, however they came, and a drain for each kind of work."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from manifest_platform.fake_vault import FakeVault
from manifest_platform.landing.veeva.layout import window_name
from manifest_platform.orchestration.sensors import Remembered
from manifest_platform_tests.orchestration.dagster_ward import DagsterWard
from manifest_platform_tests.servers.vault import vault
from manifest_platform_tests.veeva.ward import (
    FULL,
    INCR,
    LOG,
    PASSWORD,
    Ward,
    begun,
    drained,
    full,
    incrs,
    key_of,
    land,
    log,
)

__all__ = ["vault"]

SNAPSHOT, CHANGES, LOGS = full("0000"), incrs("0015", "0100"), log("0000")
WINDOWS = (SNAPSHOT, *CHANGES, LOGS)


@pytest.fixture
def dagster(vault: FakeVault, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> DagsterWard:
    """A vault that is captured."""
    monkeypatch.setenv(PASSWORD, vault.password)
    return DagsterWard(Ward(tmp_path, vault=vault), instance)


def _requested(result: dg.SensorResult) -> list[str | None]:
    return [request.job_name for request in result.run_requests or ()]


def _told(result: dg.SensorResult, asset: str) -> list[str | None]:
    """The partitions of an asset that a tick reports."""
    found = [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]
    return [event.partition for event in found if "/".join(event.asset_key.path[1:]) == asset]


def _failed(result: dg.SensorResult) -> dict[str, str | None]:
    """What a tick says of feeds that are blocked."""
    found = [event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    return {event.asset_key.path[1]: event.description for event in found if not event.passed}


def test_windows_that_others_land_become_partitions_of_their_feed(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    ward = Ward(tmp_path)
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
    """By the command line, or by a run that died before it could tell of them."""
    with dagster.ward.open() as pipeline:
        assert len(dagster.ward.captured(pipeline).captured) == 9
    result = dagster.tick()
    for feed in (FULL, INCR, LOG):
        names = [window_name(feed, window.stop) for window in vault.windows(feed)]
        assert dagster.partitions(feed) == _told(result, f"{feed}/windows") == names
        assert dagster.materialized(f"{feed}/windows") == set(names)
    assert not dagster.tick(result.cursor).asset_events, "told of once"


def test_what_was_loaded_outside_dagster_is_shown(dagster: DagsterWard) -> None:
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
    assert store.requests - before < 40, "a dozen a feed"


def test_one_drain_is_asked_for_what_waits_in_any_feed(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, LOGS)
    result = dagster.tick()
    assert _requested(result) == ["vault_drain"]
    assert set(Remembered.from_json(result.cursor).asked) == {"vault_drain"}


def test_each_drain_is_asked_for_its_own_feeds(
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


def test_F2_what_waits_for_a_snapshot_is_no_work(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, *WINDOWS)
        begun(pipeline, "latest")
        loading = dagster.tick()
        work = Remembered.from_json(loading.cursor).asked["vault_drain"].work
        assert work.startswith(f"load {SNAPSHOT.name} ") and "incr" not in work and "log" not in work
        assert _failed(loading) == {}, "to wait is not to be blocked"


def test_each_feed_tells_of_its_own_block(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, *CHANGES, LOGS)
    dagster.break_listing("2026-01-02T00:00Z")
    assert dagster.drain().success
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


def test_a_cursor_of_an_older_form_is_no_error(dagster: DagsterWard) -> None:
    with dagster.ward.open() as pipeline:
        land(pipeline, LOGS)
    result = dagster.tick('{"work": "load x 1", "times": 2, "at": "2026-01-01T00:00:00+00:00", "blocked": ""}')
    assert _requested(result) == ["vault_drain"]
