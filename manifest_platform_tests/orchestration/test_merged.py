"""Merged tables in Dagster: materialized, backfilled, merged by the sensor's job, checked, and read by own assets."""

import dataclasses
import json
import shutil
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from manifest_platform import config
from manifest_platform.merging.state import Range
from manifest_platform.merging.transitions import MERGE
from manifest_platform.operations.merge_standing import explain_partition
from manifest_platform.orchestration.asking import Asked
from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.merge_runs import Remembered, merge_waiting
from manifest_platform.orchestration.merged import A_MONTH, day_partitions, partition_metadata
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.pipeline.merge import Merging, merge, register
from manifest_platform_tests.orchestration.code_location import QUIET, Result, failure
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, key
from manifest_platform_tests.pipeline.shop import EVENTS, FIRST, NAME, Shop

DAY = FIRST.date()
RUNS = 3
SETTINGS = {"first_day": "2024-05-10"}
TABLES = ["com_acme_page_1", "events"]


@pytest.fixture(scope="module")
def merged_shop(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Three shredded and registered runs. Read-only: tests copy its manifest."""
    shop = Shop(tmp_path_factory.mktemp("merged"), merge=SETTINGS)
    shop.shredded(spark, RUNS)
    with shop.open() as pipeline:
        list(register(Merging(pipeline)))
    return shop


@pytest.fixture
def shop(merged_shop: Shop, tmp_path: Path) -> Shop:
    shred = {"output": str(merged_shop.home / "shredded")}
    shop = Shop(tmp_path, landing={"root": str(merged_shop.home / "landing")}, shred=shred, merge=SETTINGS)
    shutil.copy(merged_shop.home / "manifest.db", tmp_path)
    return shop


@pytest.fixture
def dagster(shop: Shop, instance: dg.DagsterInstance) -> DagsterShop:
    return DagsterShop(shop, instance)


@pytest.fixture
def merging(shop: Shop) -> Iterator[Merging]:
    with shop.open() as pipeline:
        yield Merging(pipeline)


def materialize(dagster: DagsterShop, assets: Collection[str], first: str, last: str | None = None) -> Result:
    return dagster.run_assets(assets, first, last)


def shown(dagster: DagsterShop, asset: str, day: str) -> dict[str, Any]:
    found = dagster.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=key(asset), asset_partitions=[day]), limit=1
    )
    assert found.records[0].asset_materialization is not None
    return {name: value.value for name, value in found.records[0].asset_materialization.metadata.items()}


def spark_jobs(spark: Any) -> int:
    return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


def tick(dagster: DagsterShop, cursor: str | None = None) -> dg.SensorResult:
    resources = {"manifest": ManifestResource(config_file=str(dagster.shop.config_file))}
    with dg.build_sensor_context(instance=dagster.instance, cursor=cursor, resources=resources) as context:
        result = dagster.defs.resolve_sensor_def(f"{NAME}_merge_sensor")(context)
    assert isinstance(result, dg.SensorResult)
    return result


def test_every_merged_table_is_an_asset_by_day_downstream_of_shredded(shop: Shop) -> None:
    defs = build_defs(shop.config_file)
    specs = {"/".join(spec.key.path): spec for spec in defs.resolve_all_asset_specs()}
    for table in TABLES:
        spec = specs[f"shop/merged/{table}_merged"]
        assert [dep.asset_key for dep in spec.deps] == [key("shredded")]
        assert spec.partitions_def == day_partitions(config.load(shop.config_file), NAME)
        assert spec.kinds and spec.description and spec.owners and spec.group_name == f"{NAME}_merged"
        assert spec.metadata["dagster/table_name"] == f"shop.{table}"
    merged = {name for name in specs if name.startswith("shop/merged/")}
    assert "shop/merged/bad_merged" not in merged
    assert {"/".join(dep.asset_key.path) for dep in specs["shop/published"].deps} == merged


def test_without_a_first_day_the_days_begin_with_the_oldest_partition(merged_shop: Shop, tmp_path: Path) -> None:
    merge, today = {"first_day": None}, datetime.now(UTC).date()
    fresh = Shop(tmp_path / "fresh", merge=merge)
    assert day_partitions(config.load(fresh.config_file), NAME).start.date() == today - A_MONTH
    known = Shop(tmp_path / "known", merge=merge)
    shutil.copy(merged_shop.home / "manifest.db", tmp_path / "known")
    assert day_partitions(config.load(known.config_file), NAME).start.date() == DAY
    few = Shop(tmp_path / "few", merge=merge, dagster={"partitions": 10})
    shutil.copy(merged_shop.home / "manifest.db", tmp_path / "few")
    assert day_partitions(config.load(few.config_file), NAME).start.date() == today - timedelta(days=10)


def test_a_shop_without_merge_settings_has_no_merged_assets(tmp_path: Path) -> None:
    defs = build_defs(Shop(tmp_path).config_file)
    names = {spec.key.path[1] for spec in defs.resolve_all_asset_specs()}
    assert not names & {"merged", "published"}
    assert not [job.name for job in defs.resolve_all_job_defs() if job.name.endswith("_merge")]


def test_materializing_a_day_merges_and_publishes_its_objects(dagster: DagsterShop, merging: Merging, spark: Any) -> None:
    result = materialize(dagster, ["merged/events_merged"], str(DAY))
    assert result.success
    found = shown(dagster, "merged/events_merged", str(DAY))
    assert (found["rows"], found["files_before"], found["files_after"], found["waiting"]) == (EVENTS * RUNS, RUNS, 1, 0)
    assert found["dagster/partition_row_count"] == EVENTS * RUNS
    assert found["amplification"] == 1.0
    assert found["version"] == found["version_desired"] > 0 and found["switched"] and found["bytes_written"] > 0
    other = merging.inventory.partition("com_acme_page_1", DAY)
    assert other and not other.switched, "it was not asked for"
    again = materialize(dagster, ["merged/events_merged"], str(DAY))
    assert again.success and shown(dagster, "merged/events_merged", str(DAY))["version"] == found["version"]


def test_a_backfill_of_a_month_is_one_run_and_one_spark_job(dagster: DagsterShop, spark: Any) -> None:
    before = spark_jobs(spark)
    result = materialize(dagster, [f"merged/{table}_merged" for table in TABLES], "2024-05-10", "2024-06-09")
    assert result.success
    assert spark_jobs(spark) - before == 1
    for table in TABLES:
        assert len(dagster.materialized(f"merged/{table}_merged")) == 31
        assert shown(dagster, f"merged/{table}_merged", str(DAY))["files_after"] == 1
    assert shown(dagster, "merged/events_merged", "2024-05-20")["empty"]


def test_a_failed_merge_reports_its_reason(dagster: DagsterShop, shop: Shop) -> None:
    _spoil(shop, "MSMALL#events")
    told = failure(materialize(dagster, ["merged/events_merged"], str(DAY)))
    assert f"events of {DAY}" in told and "nowhere.parquet" in told


def _spoil(shop: Shop, prefix: str) -> None:
    """Makes the first row of a prefix name a missing file, directly in the store."""
    with closing(sqlite3.connect(shop.home / "manifest.db")) as store, store:
        [(sort, text), *_] = store.execute("SELECT sort, data FROM manifest WHERE sort LIKE ?", (f"{prefix}%",)).fetchall()
        data = json.loads(text)
        data["objects"][0]["uri"] = f"file://{shop.home}/nowhere.parquet"
        store.execute("UPDATE manifest SET data = ? WHERE sort = ?", (json.dumps(data), sort))


def test_the_job_merges_due_partitions_and_publishes(dagster: DagsterShop, merging: Merging) -> None:
    job = dagster.defs.resolve_job_def(f"{NAME}_merge")
    result = job.execute_in_process(instance=dagster.instance, raise_on_error=False, run_config=QUIET)
    assert result.success
    [output] = [event for event in result.all_events if event.is_successful_output]
    told = {name: value.value for name, value in output.step_output_data.metadata.items()}
    tables = [table.key for table in merging.inventory.tables()]
    assert (told["stop"], told["merged"], told["failed"]) == ("idle", len(tables), 0)
    for table in tables:
        assert dagster.materialized(f"merged/{table}_merged") == {str(DAY)}
    [published] = [
        event.step_materialization_data.materialization.metadata
        for event in result.all_events
        if event.is_step_materialization and event.asset_key == key("published")
    ]
    assert published["published"].value == len(tables)


def test_published_is_an_asset_of_its_own(dagster: DagsterShop) -> None:
    result = dagster.run_assets(["published"])
    assert result.success
    [event] = [event for event in result.all_events if event.is_step_materialization]
    found = event.step_materialization_data.materialization.metadata
    assert found["closed"].value and "not merged yet" in str(found["waiting"].value)


def test_the_merge_sensor_registers_and_requests_one_run_when_due(
    dagster: DagsterShop, shop: Shop, spark: Any, merging: Merging
) -> None:
    first = tick(dagster)
    assert first.run_requests and len(first.run_requests) == 1
    again = tick(dagster, first.cursor)
    assert not again.run_requests and "requested 1 times" in str(again.skip_reason)
    dagster.defs.resolve_job_def(f"{NAME}_merge").execute_in_process(instance=dagster.instance, run_config=QUIET)
    after = tick(dagster, again.cursor)
    assert not after.run_requests and after.skip_reason and "nothing to do" in str(after.skip_reason)


def test_an_open_day_below_its_target_size_is_no_work(merging: Merging) -> None:
    now = merging.inventory.clock()
    merging.clock = lambda: FIRST + timedelta(hours=1)
    assert merge_waiting(merging).work.startswith("show ")
    merging.publish()
    assert not merge_waiting(merging).work
    merging.clock = lambda: now + timedelta(days=1)
    assert f"close events {DAY}" in merge_waiting(merging).work


def test_a_due_merge_that_would_write_nothing_is_no_work(merging: Merging, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory, now = merging.inventory, merging.clock()
    with monkeypatch.context() as patch:
        patch.setattr(merging, "clock", lambda: FIRST + timedelta(hours=1))
        merging.publish()
    monkeypatch.setattr(Merging, "is_over", lambda *_: False)
    merging.clock = lambda: now + timedelta(hours=2)
    found = merge_waiting(merging)
    assert not found.work
    partition, table = inventory.partition("events", DAY), inventory.table("events")
    assert partition and table and partition.job
    assert "A merge now would write nothing: " in explain_partition(merging, partition, table).text
    assert partition.job.id in found.idle
    before = inventory.store.requests
    again = merge_waiting(merging, found.idle)
    assert (again.work, again.idle) == ("", found.idle)
    rest = inventory.store.requests - before
    before = inventory.store.requests
    merge_waiting(merging)
    assert inventory.store.requests - before > rest, "what was found once is not planned again"
    changed = dict.fromkeys(found.idle, "others came")
    monkeypatch.setattr("manifest_platform.orchestration.merge_runs.plan_of", _writes)
    assert f"merge events {DAY} {partition.job.id}" in merge_waiting(merging, changed).work


def _writes(*_arguments: object) -> Any:
    return SimpleNamespace(ranges=("one",))


def test_the_merge_sensors_cursor_of_an_older_release_is_read() -> None:
    old = Asked("merge events", 2, FIRST.isoformat())
    assert Remembered.from_json(json.dumps(dataclasses.asdict(old))) == Remembered(old)
    new = Remembered(old, {"1": "7 False"})
    assert Remembered.from_json(new.to_json()) == new
    assert Remembered.from_json(None) == Remembered()


def test_unswitched_partitions_and_abandoned_jobs_are_work(merging: Merging, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = merging.inventory
    merging.publish()
    now = merging.clock()
    hour = timedelta(hours=1)
    lease = merging.pipeline.manifest.hold(MERGE, "0", "dead", hour)
    [claimed] = inventory.claim(lease, now, 1, places=[("events", DAY)])
    lease.leave()
    assert "take back" not in merge_waiting(merging).work
    abandoned = inventory.abandoned
    monkeypatch.setattr(inventory, "abandoned", lambda now: abandoned(now + 2 * hour))
    assert f"take back events {DAY} {claimed.job.id}" in merge_waiting(merging).work
    small = inventory.small_objects("events", DAY)
    whole = Range("events", DAY, 0, small[-1].id, "file:///x", sum(one.rows for one in small), 1, len(small), "x", now, now)
    inventory.commit(claimed.job, [whole], bytes_in=sum(one.bytes for one in small))
    assert f"switch events {DAY}" in merge_waiting(merging).work
    merging.publish()
    assert f"switch events {DAY}" not in merge_waiting(merging).work


def test_a_partition_that_is_set_aside_fails_with_the_command_that_helps(dagster: DagsterShop, shop: Shop) -> None:
    _spoil(shop, "MSMALL#events")
    materialize(dagster, ["merged/events_merged"], str(DAY))
    result = materialize(dagster, ["merged/events_merged", "merged/com_acme_page_1_merged"], str(DAY))
    assert f"merge retry events {DAY}" in failure(result)
    assert dagster.materialized("merged/com_acme_page_1_merged") == {str(DAY)}, "what was merged is told"
    assert dagster.materialized("merged/events_merged") == set()


def checks(dagster: DagsterShop) -> dict[str, dg.AssetCheckEvaluation]:
    job = dg.define_asset_job("merge_checks", selection=dg.AssetSelection.checks_for_assets(key("merged/events_merged")))
    defs = dg.Definitions.merge(dagster.defs, dg.Definitions(jobs=[job]))
    result = defs.resolve_job_def("merge_checks").execute_in_process(instance=dagster.instance, run_config=QUIET)
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


def test_merge_checks_pass_on_a_good_state_and_name_a_wrong_day(dagster: DagsterShop, shop: Shop) -> None:
    assert materialize(dagster, ["merged/events_merged"], str(DAY)).success
    found = checks(dagster)
    assert {name: one.passed for name, one in found.items()} == dict.fromkeys(
        ["rows_kept", "chain_whole", "nothing_invisible_for_long"], True
    )
    assert found["rows_kept"].metadata["rows"].value == EVENTS * RUNS
    with closing(sqlite3.connect(shop.home / "manifest.db")) as store, store:
        [(sort, text)] = store.execute("SELECT sort, data FROM manifest WHERE sort LIKE 'MRANGE#events#%'").fetchall()
        wrong = json.dumps({**json.loads(text), "rows": 1, "lower": 1})
        store.execute("UPDATE manifest SET data = ? WHERE sort = ?", (wrong, sort))
    found = checks(dagster)
    assert not found["rows_kept"].passed and found["rows_kept"].metadata["wrong"].value == str(DAY)
    assert not found["chain_whole"].passed and found["chain_whole"].metadata["wrong"].value == str(DAY)


def test_rows_that_stay_invisible_for_long_fail_a_check(dagster: DagsterShop, shop: Shop) -> None:
    with closing(sqlite3.connect(shop.home / "manifest.db")) as store, store:
        [(sort, text)] = store.execute("SELECT sort, data FROM manifest WHERE sort LIKE 'MPART#events#%'").fetchall()
        old = json.dumps({**json.loads(text), "create_time": "2024-05-15T00:00:00Z"})
        store.execute("UPDATE manifest SET data = ? WHERE sort = ?", (old, sort))
    found = checks(dagster)["nothing_invisible_for_long"]
    assert not found.passed and found.metadata["late"].value == str(DAY)


@dg.asset(
    key=key("report"),
    ins={"events": dg.AssetIn(key("merged/events_merged"))},
    partitions_def=dg.DailyPartitionsDefinition("2024-05-10", end_offset=1),
)
def report(context: dg.AssetExecutionContext, events: DataFrame) -> None:
    context.log.info(f"{events.count()} events of {sorted(str(row.dt) for row in events.select('dt').distinct().collect())}")
    context.add_output_metadata({"events": events.count(), "files": len(events.inputFiles())})


def test_an_asset_of_ones_own_reads_exactly_what_is_published(shop: Shop, instance: dg.DagsterInstance) -> None:
    dagster = DagsterShop(shop, instance, [report])
    assert "not published yet" in failure(materialize(dagster, ["report"], str(DAY)))
    assert materialize(dagster, ["merged/events_merged"], str(DAY)).success
    assert materialize(dagster, ["report"], str(DAY)).success
    found = shown(dagster, "report", str(DAY))
    assert (found["events"], found["files"]) == (EVENTS * RUNS, 1)


def test_a_day_without_objects_has_metadata_that_it_is_empty() -> None:
    assert partition_metadata(None) == {"dagster/partition_row_count": 0, "rows": 0, "empty": True}


def test_merges_of_the_command_line_are_shown_once(dagster: DagsterShop, spark: Any) -> None:
    with dagster.shop.open() as pipeline:
        merging = Merging(pipeline)
        merging.sync()
        for _ in merge(merging, lambda: spark):
            pass
    first = tick(dagster)
    told = {(event.asset_key, event.partition) for event in first.asset_events if isinstance(event, dg.AssetMaterialization)}
    assert {(key(f"merged/{table}_merged"), str(DAY)) for table in TABLES} < told
    assert (key("published"), None) in told
    again = tick(dagster, first.cursor)
    assert not again.asset_events
    dagster.instance.create_run_for_job(dagster.defs.resolve_job_def(f"{NAME}_merge"), run_id=merging.inventory.run_id)
    told = {event.asset_key for event in tick(dagster).asset_events if isinstance(event, dg.AssetMaterialization)}
    assert told == {key("overview")}, "a run of Dagster's has told of the rest itself"
