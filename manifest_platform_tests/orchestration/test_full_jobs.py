"""Full loads and partitions of a vault in Dagster: begun, canceled, drained in order, and refused out of order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from manifest_platform.manifest import Application
from manifest_platform.orchestration.keys import item_partitions
from manifest_platform.orchestration.own_assets import IO_MANAGER
from manifest_platform.pipeline.discovery import discover
from manifest_platform_tests.orchestration.code_location import Result, failure, failure_metadata, materialized_by, output
from manifest_platform_tests.orchestration.dagster_ward import DagsterWard
from manifest_platform_tests.sources.veeva.ward.ward import (
    FULL,
    INCR,
    LOG,
    NAME,
    PRODUCT,
    Ward,
    Window,
    full,
    incr,
    incrs,
    land,
    log,
    replayed,
    state,
)

SNAPSHOT, CHANGES, LOGS = full("0000"), incrs("0015", "0100"), log("0000")


@pytest.fixture
def dagster(tmp_path: Path, instance: dg.DagsterInstance, store_url: str) -> DagsterWard:
    return DagsterWard(Ward(tmp_path, store_url), instance)


@pytest.fixture
def landed(dagster: DagsterWard) -> DagsterWard:
    """A snapshot, four windows of changes and a day of logs, shredded, with Dagster's partitions; nothing is loaded."""
    return _land(dagster, SNAPSHOT, *CHANGES, LOGS)


@pytest.fixture
def loaded(landed: DagsterWard) -> DagsterWard:
    """The same, loaded in epoch 2."""
    assert landed.begin(item="latest").success
    assert landed.drain().success
    return landed


def _land(dagster: DagsterWard, *windows: Window) -> DagsterWard:
    with dagster.ward.open() as pipeline:
        land(pipeline, *windows)
    for window in windows:
        dagster.add(window.feed, window.name)
    return dagster


def _states(result: Result) -> list[dict[str, Any]]:
    """Returns the dataset's states that a run reported on the asset of the changes."""
    observed = [event for event in result.all_events if event.event_type == dg.DagsterEventType.ASSET_OBSERVATION]
    assert {event.asset_key for event in observed} <= {dg.AssetKey([NAME, INCR, "warehouse"])}
    return [
        {name: value.value for name, value in event.asset_observation_data.asset_observation.metadata.items()}
        for event in observed
    ]


# Begun and canceled


@pytest.mark.parametrize(
    ("config", "wrong"), [({"item": "latest"}, "reason"), ({"item": "latest", "reason": "why", "epoch": 7}, "epoch")]
)
def test_an_invalid_run_configuration_is_refused(dagster: DagsterWard, config: dict[str, Any], wrong: str) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match=wrong):
        dagster.run_job(f"{NAME}_full_begin", config)


@pytest.mark.parametrize("wrong", ["item", "reason"])
def test_an_empty_run_configuration_is_refused(landed: DagsterWard, wrong: str) -> None:
    result = landed.begin(**{wrong: ""})
    [event] = [event for event in result.all_events if event.is_step_failure]
    assert f"{wrong}\n  String should have at least 1 character" in str(event.step_failure_data.error)
    with landed.ward.open() as pipeline:
        assert state(pipeline).epoch == 1


def test_F12_without_a_snapshot_no_full_load_begins(dagster: DagsterWard) -> None:
    message = failure(dagster.begin())
    assert message == f"no snapshot of dataset {NAME} has landed. Do this first: manifest-platform capture"
    with dagster.ward.open() as pipeline:
        assert state(pipeline).epoch == 1


def test_a_full_load_from_an_item_that_is_no_snapshot_is_refused(landed: DagsterWard) -> None:
    assert "is not a snapshot. A full load begins with an item of feed full" in failure(landed.begin(item=CHANGES[0].name))
    assert "is neither a window's name" in failure(landed.begin(item="yesterday"))


@pytest.mark.stores("sqlite", "dynamodb")
def test_a_drain_loads_the_snapshot_then_changes_then_logs(landed: DagsterWard) -> None:
    begun = landed.begin(item=SNAPSHOT.name)
    assert begun.success
    assert _states(begun) == [{"mode": "FULL_LOAD", "epoch": 2}]
    assert landed.ward.seen.ledger == []
    result = landed.drain()
    assert result.success
    assert landed.ward.seen.ledger == [
        ("full 0000", 2),
        *((f"incr {at}", 2) for at in ("0015", "0030", "0045", "0100")),
        ("log 0000", 2),
    ]
    assert landed.ward.seen.tables == replayed([SNAPSHOT, *CHANGES, LOGS])
    assert materialized_by(result, landed.key("full/warehouse")) == [SNAPSHOT.name]
    assert materialized_by(result, landed.key("incr/warehouse")) == [window.name for window in CHANGES]
    assert materialized_by(result, landed.key("log/warehouse")) == [LOGS.name]
    shown = output(result)
    assert (shown["stop"], shown["loaded"], shown["failed"]) == ("idle", 6, 0)
    assert [shown[f"stop_{feed}"] for feed in (FULL, INCR, LOG)] == ["idle"] * 3
    window = landed.shown("incr/warehouse", CHANGES[0].name)
    assert (window["epoch"], window["rows"]) == (2, 2)
    found = [one for one in result.get_asset_check_evaluations() if one.check_name == "feed_not_blocked"]
    evaluations = {one.asset_key.path[1]: one for one in found}
    assert {feed: one.passed for feed, one in evaluations.items()} == dict.fromkeys((FULL, INCR, LOG), True)
    told = evaluations[INCR].metadata
    assert (told["mode"].value, told["epoch"].value, told["boundary"].value) == ("INCREMENTAL", 2, "2026-01-02T00:00Z")


def test_F11_a_second_full_load_is_refused_meanwhile(landed: DagsterWard) -> None:
    assert landed.begin().success
    message = failure(landed.begin())
    assert (
        f"a full load with {SNAPSHOT.name} is in progress: drain to finish it, or cancel it. In Dagster: launch the job"
        in message
    )
    assert message.endswith("manifest-platform full cancel")
    with landed.ward.open() as pipeline:
        assert state(pipeline).epoch == 2


def test_F19_a_begun_full_load_is_canceled(loaded: DagsterWard) -> None:
    before = loaded.ward.seen
    later = full("0100", {PRODUCT: {"other": "rows"}})
    _land(loaded, later, incr("0115"))
    assert loaded.begin(item=later.name).success
    cancelled = loaded.cancel()
    assert cancelled.success
    [shown] = _states(cancelled)
    assert (shown["mode"], shown["boundary"]) == ("INCREMENTAL", "2026-01-02T00:00Z")
    assert loaded.ward.seen == before
    assert output(loaded.drain())["loaded"] == 1, "the changes go on"
    assert loaded.ward.seen.tables == replayed([SNAPSHOT, *CHANGES, LOGS, incr("0115")])


def test_without_a_full_load_cancel_is_refused(loaded: DagsterWard) -> None:
    assert "there is nothing to cancel" in failure(loaded.cancel())


def test_a_snapshot_is_shredded_when_a_full_load_begins(dagster: DagsterWard, spark: Any) -> None:
    """Shredding of the snapshot fails, because its archive is invalid, and no full load begins."""
    folder = dagster.ward.home / "landing" / f"vault={dagster.ward.vault_id}" / SNAPSHOT.name
    folder.mkdir(parents=True)
    (folder / "manifest.csv").write_text("this,is\nno,manifest\n")
    (folder / "_SUCCESS").touch()
    with dagster.ward.open() as pipeline:
        assert discover(pipeline).new == (SNAPSHOT.name,)
    assert output(dagster.drain())["shredded"] == 0, "a drain does not ask for it"
    message = failure(dagster.begin())
    assert f"{SNAPSHOT.name} cannot be shredded, so no full load was begun" in message
    assert f"manifest-platform accept {SNAPSHOT.name}" in message
    with dagster.ward.open() as pipeline:
        assert state(pipeline).epoch == 1


# Partitions


@pytest.mark.stores("sqlite", "dynamodb")
def test_changes_out_of_order_fail_and_name_the_next_window(loaded: DagsterWard) -> None:
    more = incrs("0115", "0145")
    _land(loaded, *more)
    before = loaded.ward.seen
    message = failure(loaded.run_assets(["incr/warehouse"], more[1].name, more[2].name))
    assert message == (
        f"{more[1].name} is out of order: {more[0].name} comes first and is not loaded (it is ready)."
        f" In Dagster: materialize the partition {more[0].name} of {NAME}/incr/shredded and {NAME}/incr/warehouse first, or"
        f" launch the job {NAME}_drain. In a terminal: manifest-platform drain"
    )
    assert loaded.ward.seen == before
    assert loaded.run_assets(["incr/warehouse"], more[0].name, more[2].name).success
    assert loaded.ward.seen.applied[-3:] == ["incr 0115", "incr 0130", "incr 0145"]


def test_changes_after_a_gap_fail_and_name_the_missing_window(loaded: DagsterWard) -> None:
    beyond = incr("0130")
    _land(loaded, beyond)
    message = failure(loaded.run_assets(["incr/warehouse"], beyond.name))
    assert "gap: it starts at 2026-01-02T01:15Z, but the item before it stopped at 2026-01-02T01:00Z" in message
    assert "manifest-platform capture" in message


def test_changes_without_a_snapshot_fail_and_ask_for_a_snapshot(landed: DagsterWard) -> None:
    message = failure(landed.run_assets(["incr/warehouse"], CHANGES[0].name))
    assert "no snapshot was loaded yet" in message
    assert "manifest-platform full begin latest" in message


def test_a_snapshot_is_not_loaded_without_a_begun_full_load(loaded: DagsterWard) -> None:
    later = full("0100")
    _land(loaded, later)
    message = failure(loaded.run_assets(["full/warehouse"], later.name))
    assert message == (
        f"no full load was begun with {later.name}. In Dagster: launch the job {NAME}_full_begin, with item: {later.name}."
        f" In a terminal: manifest-platform full begin {later.name}"
    )
    assert loaded.begin(item=later.name).success
    assert loaded.run_assets(["full/warehouse"], later.name).success
    assert loaded.ward.seen.applied[-1] == "full 0100"


@pytest.mark.parametrize(("feed", "window"), [(FULL, SNAPSHOT), (INCR, CHANGES[1]), (LOG, LOGS)])
def test_an_applied_partition_succeeds_and_changes_nothing(loaded: DagsterWard, feed: str, window: Window) -> None:
    before = loaded.ward.seen
    result = loaded.run_assets([f"{feed}/shredded", f"{feed}/warehouse"], window.name)
    assert result.success
    assert materialized_by(result, loaded.key(f"{feed}/warehouse")) == [window.name]
    assert loaded.shown(f"{feed}/warehouse", window.name)["already"] is True
    assert loaded.ward.seen == before


def test_a_partition_of_another_feed_is_refused(loaded: DagsterWard) -> None:
    loaded.add(INCR, LOGS.name)
    assert f"{LOGS.name} does not belong to feed incr" in failure(loaded.run_assets(["incr/warehouse"], LOGS.name))


# Drains of feeds


def test_L2_logs_are_drained_while_changes_are_blocked(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    dagster = _land(DagsterWard(Ward(tmp_path, load={"logs": "own"}), instance), SNAPSHOT, *CHANGES, LOGS)
    assert dagster.begin().success
    dagster.break_listing("2026-01-02T00:30Z")
    blocked = dagster.drain()
    assert failure(blocked).startswith(f"Blocked by {CHANGES[1].name}: ")
    shown = failure_metadata(blocked)
    assert (shown["stop"], shown["item"], shown["stop_full"]) == ("blocked", CHANGES[1].name, "idle")
    assert "log" not in {one.asset_key.path[1] for one in blocked.get_asset_check_evaluations()}
    assert dagster.ward.seen.applied == ["full 0000", "incr 0015"]
    logs = dagster.drain(f"{NAME}_log_drain")
    assert output(logs)["loaded"] == 1
    assert dagster.ward.seen.applied == ["full 0000", "incr 0015", "log 0000"]


# A user's own assets


def test_an_own_asset_reads_a_table_of_a_feeds_window(loaded: DagsterWard, spark: Any) -> None:
    key = dg.AssetKey([NAME, INCR, "products"])

    @dg.asset(
        key=key,
        ins={"rows": dg.AssetIn(loaded.key("incr/shredded"), metadata={"table": PRODUCT})},
        partitions_def=item_partitions(NAME, INCR),
        io_manager_key=IO_MANAGER,
    )
    def products(rows: DataFrame) -> DataFrame:
        return rows.select("id")

    @dg.asset(
        key=dg.AssetKey([NAME, FULL, "products"]),
        ins={"rows": dg.AssetIn(loaded.key("full/warehouse"), metadata={"table": PRODUCT})},
        partitions_def=item_partitions(NAME, FULL),
        io_manager_key=IO_MANAGER,
    )
    def all_products(rows: DataFrame) -> DataFrame:
        return rows.select("id")

    @dg.asset(
        key=dg.AssetKey([NAME, INCR, "events"]),
        ins={"rows": dg.AssetIn(loaded.key("incr/shredded"))},
        partitions_def=item_partitions(NAME, INCR),
        io_manager_key=IO_MANAGER,
    )
    def events(rows: DataFrame) -> DataFrame:
        return rows

    own = DagsterWard(loaded.ward, loaded.instance, [products, all_products, events])
    assert own.run_assets(["incr/products"], CHANGES[2].name).success
    assert own.shown("incr/products", CHANGES[2].name)["dagster/partition_row_count"] == 2
    with own.ward.open() as pipeline:
        record = pipeline.manifest.item(pipeline.key(CHANGES[2].name)).processed_by(Application("products"))
        assert record is not None
        rows = spark.read.parquet(record.data["prefix"]).collect()
    assert sorted(row["id"] for row in rows) == ["0045", "last"]
    assert own.run_assets(["full/products"], SNAPSHOT.name).success
    assert own.shown("full/products", SNAPSHOT.name)["dagster/partition_row_count"] == 1
    assert "Name the table to read with AssetIn(metadata={'table': …})" in failure(
        own.run_assets(["incr/events"], CHANGES[0].name)
    )
