"""Merge runs over real shredded objects: the data of readers, repeated runs, and processes killed at every point."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from manifest_platform import storage
from manifest_platform.listing import BAD_TABLE
from manifest_platform.manifest import Application, Refused
from manifest_platform.merging.registration import Registration
from manifest_platform.merging.spark_job import MergeFailure, merge_all
from manifest_platform.merging.state import FinishedJob, Version
from manifest_platform.operations.reshred import reshred
from manifest_platform.pipeline import Pipeline, Stop
from manifest_platform.pipeline.chosen import shred_chosen
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.merge import MergeBudget, MergeEvent, MergeReport, MergeStarted, Merging, merge, register
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.spark import SparkUnavailable
from manifest_platform_tests.pipeline.shop import (
    EVENTS,
    FIRST,
    NAME,
    Shop,
    drained,
    ended,
    keys,
    loaded_record,
    no_spark,
    run_name,
    run_names,
)

DAY = FIRST.date()
RUNS = 4
POINTS = [
    pytest.param("merge.registered", marks=pytest.mark.long),
    "merge.closed",
    pytest.param("merge.claimed", marks=pytest.mark.long),
    pytest.param("merge.job_done", marks=pytest.mark.long),
    pytest.param("merge.committed", marks=pytest.mark.long),
    pytest.param("publish.switched", marks=pytest.mark.long),
    "publish.written",
    "publish.pointed",
    pytest.param("publish.recorded", marks=pytest.mark.long),
]


class Clock:
    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def shop(spark: Any, tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, merge={})
    shop.shredded(spark, RUNS)
    return shop


@pytest.fixture
def pipeline(shop: Shop) -> Iterator[Pipeline]:
    with shop.open() as opened:
        yield opened


def merged(merging: Merging, spark: Any = no_spark, **options: Any) -> tuple[list[MergeEvent], MergeReport]:
    *events, report = merge(merging, spark if callable(spark) else lambda: spark, **options)
    assert isinstance(report, MergeReport)
    return [event for event in events if not isinstance(event, MergeReport)], report


def rows_of(pipeline: Pipeline, *numbers: int) -> dict[str, int]:
    """The number of rows that shredding wrote, by table."""
    rows: dict[str, int] = {}
    for key in keys(pipeline, *numbers):
        for found in listing_of(pipeline.manifest.item(key)).objects:
            if found.table != BAD_TABLE:
                rows[found.table] = rows.get(found.table, 0) + found.rows
    return rows


def read(merging: Merging) -> dict[str, int]:
    """The number of rows that readers see through DuckDB's views, by table."""
    connection = duckdb.connect()
    views = merging.reader.views(connection)
    return {
        view.rpartition(".")[2].strip('"'): connection.execute(f"SELECT count(*) FROM {view}").fetchall()[0][0]
        for view in views
    }


def event_ids(merging: Merging) -> list[str]:
    connection = duckdb.connect()
    merging.reader.views(connection, tables=["events"])
    found = connection.execute("SELECT event_id FROM shop.events ORDER BY collector_tstamp, event_id").fetchall()
    return [event for (event,) in found]


def test_a_day_that_is_over_is_registered_merged_closed_switched_and_published_in_one_run(
    pipeline: Pipeline, spark: Any
) -> None:
    merging = Merging(pipeline)
    events, report = merged(merging, spark)
    tables = rows_of(pipeline, *range(RUNS))
    assert (report.stop, report.commits, report.failed, report.merged) == (Stop.IDLE, RUNS, 0, len(tables))
    [started] = [event for event in events if isinstance(event, MergeStarted)]
    assert (started.partitions, started.ranges) == (len(tables), len(tables)), "one job for all"
    for table, rows in tables.items():
        partition = merging.inventory.partition(table, DAY)
        assert partition is not None and partition.closed and partition.switched and partition.at_rest
        assert (partition.current, partition.merged.objects, partition.merged.rows) == (partition.newest_live, 1, rows)
        [file] = merging.reader.files(table, DAY).files
        assert storage.local_path(file.uri).stat().st_size == file.bytes
    assert read(merging) == tables
    assert len(event_ids(merging)) == len(set(event_ids(merging))) == tables["events"]


def test_a_second_run_with_nothing_new_writes_nothing_and_asks_little(pipeline: Pipeline, spark: Any) -> None:
    merging = Merging(pipeline)
    merged(merging, spark)
    before = [(row.sort, row.version) for row in pipeline.manifest.store.query(pipeline.name, "")]
    events, report = merged(merging)
    assert (events, report.stop, report.merged) == ([], Stop.IDLE, 0)
    assert [(row.sort, row.version) for row in pipeline.manifest.store.query(pipeline.name, "")] == before
    assert report.requests <= 10


def test_an_open_day_is_read_live_and_merged_when_it_is_over(shop: Shop, pipeline: Pipeline, spark: Any) -> None:
    clock = Clock(FIRST + timedelta(hours=2))
    merging = Merging(pipeline, clock)
    _, report = merged(merging)
    assert (report.merged, read(merging)) == (0, rows_of(pipeline, *range(RUNS)))
    assert [file.lower for file in merging.reader.files("events", DAY).files] == [None] * RUNS
    clock.now = datetime(2024, 5, 15, 0, 14, tzinfo=UTC)
    assert merged(merging)[1].merged == 0, "it is still open, for a quarter of an hour"
    clock.now += timedelta(minutes=1)
    _, report = merged(merging, spark)
    assert report.merged == len(rows_of(pipeline, 0))
    assert read(merging) == rows_of(pipeline, *range(RUNS))
    partition = merging.inventory.partition("events", DAY)
    assert partition and partition.amplification == 1.0, "each byte of the day is written once"
    assert len(merging.reader.files("events", DAY).files) == 1


def test_delayed_objects_are_seen_once_they_are_merged(shop: Shop, pipeline: Pipeline, spark: Any) -> None:
    clock = Clock(datetime(2024, 5, 15, 1, tzinfo=UTC))
    merging = Merging(pipeline, clock)
    merged(merging, spark)
    shop.shredded(spark, RUNS + 1)
    _, report = merged(merging)
    assert (report.commits, read(merging)) == (1, rows_of(pipeline, *range(RUNS)))
    partition = merging.inventory.partition("events", DAY)
    assert partition and merging.invisible_since(partition) == clock.now
    clock.now += timedelta(seconds=merging.profile.interval)
    _, report = merged(merging, spark)
    assert read(merging) == rows_of(pipeline, *range(RUNS + 1))
    partition = merging.inventory.partition("events", DAY)
    assert partition and merging.invisible_since(partition) is None


def test_at_once_shows_delayed_objects_beside_merged_objects(spark: Any, tmp_path: Path) -> None:
    shop = Shop(tmp_path, merge={"delayed": "at_once"})
    shop.shredded(spark, 1)
    with shop.open() as pipeline:
        merging = Merging(pipeline, Clock(datetime(2024, 5, 15, 1, tzinfo=UTC)))
        merged(merging, spark)
        shop.shredded(spark, 2)
        merged(merging)
        assert read(merging) == rows_of(pipeline, 0, 1)
        assert [file.lower for file in merging.reader.files("events", DAY).files] == [0, None]


def test_a_requested_open_day_is_merged_completely(pipeline: Pipeline, spark: Any) -> None:
    merging = Merging(pipeline, Clock(FIRST + timedelta(hours=2)))
    list(register(merging))
    _, report = merged(merging, spark, asked=[("events", DAY)])
    partition = merging.inventory.partition("events", DAY)
    assert partition and (report.merged, partition.waiting.objects, partition.closed) == (1, 0, False)
    assert read(merging) == rows_of(pipeline, *range(RUNS)), "an open day is served live"


def test_a_budget_of_partitions_is_kept_and_the_rest_is_done_by_the_next_run(pipeline: Pipeline, spark: Any) -> None:
    merging = Merging(pipeline)
    _, report = merged(merging, spark, budget=MergeBudget(partitions=2))
    assert (report.stop, report.merged) == (Stop.BUDGET_ITEMS, 2)
    _, report = merged(merging, spark)
    assert (report.stop, report.merged) == (Stop.IDLE, len(rows_of(pipeline, 0)) - 2)


def test_a_missing_small_object_sets_only_its_partition_aside(pipeline: Pipeline, spark: Any) -> None:
    merging = Merging(pipeline)
    [gone] = [found for found in listing_of(pipeline.manifest.item(keys(pipeline, 1)[0])).objects if found.table == "events"]
    storage.local_path(gone.uri).unlink()
    events, report = merged(merging, spark)
    [failed] = [event for event in events if isinstance(event, FinishedJob) and event.outcome == "failed"]
    assert failed.table == "events" and gone.uri in (failed.error or "")
    partition = merging.inventory.partition("events", DAY)
    assert partition and partition.set_aside and gone.uri in partition.set_aside.error
    assert (report.failed, report.merged) == (1, len(rows_of(pipeline, 0)) - 1)
    assert set(read_files(merging)) == set(rows_of(pipeline, 0)), "all are shown: this one live"


def test_an_item_that_is_shredded_again_is_merged_once(pipeline: Pipeline, spark: Any) -> None:
    merging = Merging(pipeline)
    rows = rows_of(pipeline, *range(RUNS))
    merged(merging, spark, budget=MergeBudget(partitions=2))
    reshred(pipeline, keys(pipeline, 0)[0], "to see that it does no harm")
    _, report = merged(merging, spark)
    assert report.stop is Stop.IDLE, "not shredded yet, it holds nothing up"
    list(shred_chosen(pipeline, lambda: spark, keys(pipeline, 0)))
    events, _ = merged(merging, spark)
    assert [event.objects for event in events if isinstance(event, Registration)] == [0]
    assert read(merging) == rows


def test_an_object_that_a_merge_misses_is_made_again_automatically_and_merged(pipeline: Pipeline, spark: Any) -> None:
    merging = Merging(pipeline)
    rows = rows_of(pipeline, *range(RUNS))
    [gone] = [found for found in listing_of(pipeline.manifest.item(keys(pipeline, 1)[0])).objects if found.table == "events"]
    storage.local_path(gone.uri).unlink()
    events, _ = merged(merging, spark)
    [failed] = [event for event in events if isinstance(event, FinishedJob) and event.outcome == "failed"]
    assert f"{run_name(1)} is shredded again automatically" in (failed.error or "")
    drained(pipeline, spark)
    _, report = merged(merging, spark)
    assert (report.stop, report.merged, report.failed) == (Stop.IDLE, 1, 0)
    assert read(merging) == rows
    assert len(event_ids(merging)) == len(set(event_ids(merging))) == rows["events"]


def test_a_listing_that_a_merge_misses_is_made_again_automatically(pipeline: Pipeline, spark: Any) -> None:
    merging = Merging(pipeline)
    rows = rows_of(pipeline, *range(RUNS))
    [record] = [one for one in pipeline.manifest.history(keys(pipeline, 1)[0]) if "listing" in one.data]
    storage.local_path(record.data["listing"]).unlink()
    _, report = merged(merging, spark)
    assert report.stop is Stop.BLOCKED
    assert f"{run_name(1)} is shredded again" in report.reason
    drained(pipeline, spark)
    asked = [(table, DAY) for table in rows]
    assert merged(merging, spark, asked=asked)[1].stop is Stop.IDLE
    assert read(merging) == rows


def read_files(merging: Merging) -> dict[str, Version]:
    return {table.key: merging.reader.files(table.key, DAY) for table in merging.inventory.tables()}


def attempts(merging: Merging) -> dict[str, int]:
    found = {table.key: merging.inventory.partition(table.key, DAY) for table in merging.inventory.tables()}
    return {name: one.job.attempts for name, one in found.items() if one and one.job}


def test_a_merge_without_spark_costs_no_attempt_and_still_publishes(pipeline: Pipeline) -> None:
    def broken() -> Any:
        raise SparkUnavailable("no java")

    merging = Merging(pipeline)
    _, report = merged(merging, broken)
    assert (report.stop, report.reason, report.merged) == (Stop.UNAVAILABLE, "no java", 0)
    assert merging.inventory.running() == []
    assert set(attempts(merging).values()) == {0} and set(attempts(merging)) == set(rows_of(pipeline, 0))
    assert read(merging) == rows_of(pipeline, *range(RUNS))


def test_an_interrupted_merge_puts_its_unfinished_jobs_back(pipeline: Pipeline, spark: Any) -> None:
    merging = Merging(pipeline)
    run = merge(merging, lambda: spark)
    for event in run:
        if isinstance(event, FinishedJob):
            break
    run.close()
    assert merging.inventory.running() == []
    assert set(attempts(merging).values()) == {0} and len(attempts(merging)) == len(rows_of(pipeline, 0)) - 1
    assert merged(merging, spark)[1].merged == len(rows_of(pipeline, 0)) - 1


def test_a_partition_that_failed_before_is_merged_in_its_own_spark_job(
    pipeline: Pipeline, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    merging = Merging(pipeline, Clock(datetime(2024, 5, 16, tzinfo=UTC)))
    jobs: list[set[str]] = []

    def poisoned(session: Any, tasks: Any) -> Any:
        jobs.append({task.table for task in tasks})
        if "events" in jobs[-1]:
            return [MergeFailure(task.table, task.date, task.lower, task.upper, False, "lost") for task in tasks]
        return merge_all(session, tasks)

    monkeypatch.setattr("manifest_platform.merging.spark_job.merge_all", poisoned)
    tables = set(rows_of(pipeline, 0))
    merged(merging, spark)
    merging.clock.now += timedelta(minutes=2)  # ty: ignore[missing-attribute]
    _, report = merged(merging, spark)
    assert jobs[0] == tables and sorted(map(len, jobs[1:])) == [1] * len(tables)
    assert (report.merged, report.failed) == (len(tables) - 1, 1)


def test_a_change_of_configuration_takes_effect_without_a_new_object(shop: Shop, pipeline: Pipeline, spark: Any) -> None:
    merged(Merging(pipeline), spark)
    changed = Shop(shop.home, merge={"tables": {"events": {"name": "web_events", "enabled": False}}})
    with changed.open() as opened:
        merging = Merging(opened)
        merged(merging)
        table = merging.inventory.table("events")
        assert table and (table.name, table.physical_name, table.enabled) == ("web_events", "events", False)
        assert merging.reader.files("events", DAY).version > 0


def test_a_lost_listing_stops_only_the_registration(shop: Shop, pipeline: Pipeline, spark: Any) -> None:
    merging = Merging(pipeline)
    listing = pipeline.manifest.item(keys(pipeline, 2)[0]).processed_by(Application("shred"))
    assert listing
    storage.local_path(listing.data["listing"]).unlink()
    _, report = merged(merging, spark)
    assert (report.stop, report.commits) == (Stop.BLOCKED, 2) and "is gone, though the manifest names it" in report.reason
    assert read(merging) == rows_of(pipeline, 0, 1)


def test_a_disabled_table_is_no_longer_merged(shop: Shop, pipeline: Pipeline, spark: Any) -> None:
    list(register(Merging(pipeline)))
    disabled = Shop(shop.home, merge={"tables": {"events": {"enabled": False}}})
    with disabled.open() as opened:
        merging = Merging(opened)
        _, report = merged(merging, spark)
        partition = merging.inventory.partition("events", DAY)
        assert partition and partition.merged.objects == 0 and not partition.closed
        assert report.merged == len(rows_of(pipeline, 0)) - 1


def test_a_dataset_without_merge_settings_is_not_merged(spark: Any, tmp_path: Path) -> None:
    with Shop(tmp_path).open() as pipeline, pytest.raises(Refused, match="shop is not merged: add `merge`"):
        Merging(pipeline)


def test_a_merge_is_busy_while_all_slots_are_taken(pipeline: Pipeline) -> None:
    merging = Merging(pipeline)
    list(register(merging))
    with_one = Merging(pipeline)
    with_one.config = merging.config.model_copy(update={"workers": 1})
    from manifest_platform.pipeline.merge import worker

    with worker(with_one):
        _, report = merged(with_one)
        assert report.stop is Stop.BUSY
        with worker(merging) as second:
            assert second.feed == "1"


def test_the_strict_profile_closes_in_one_run_and_switches_in_the_next(spark: Any, tmp_path: Path) -> None:
    shop = Shop(tmp_path, merge={"profile": "strict"})
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        clock = Clock(FIRST + timedelta(minutes=30))
        merging = Merging(pipeline, clock)
        assert merged(merging)[1].merged == 0
        clock.now = FIRST + timedelta(hours=12, minutes=30)
        _, report = merged(merging, spark)
        partition = merging.inventory.partition("events", DAY)
        assert partition and report.merged and not partition.switched and partition.closed, (
            "12 hours on it is merged, and closed"
        )
        assert merging.reader.files("events", DAY).version == 0
        _, report = merged(merging)
        assert report.published and len(report.published.switched) == len(rows_of(pipeline, 0))
        assert read(merging) == rows_of(pipeline, 0, 1)


def test_the_strict_profile_registers_no_object_of_a_date_that_it_does_not_accept(spark: Any, tmp_path: Path) -> None:
    shop = Shop(tmp_path, merge={"profile": "strict"})
    shop.shredded(spark, 1)
    with shop.open() as pipeline:
        registered, report = merged(Merging(pipeline))
    assert report.objects == 0 and sum(event.outside for event in registered if isinstance(event, Registration)) > 0


def test_glue_gets_the_tables_and_partitions_of_the_manifest(spark: Any, tmp_path: Path, glue: Any) -> None:
    shop = Shop(tmp_path, merge={"catalog": {"kind": "glue", "prefix": "lake_"}, "tables": {"events": {"name": "web_events"}}})
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        merging = Merging(pipeline)
        _, report = merged(merging, spark)
        assert report.stop is Stop.IDLE, report.reason
        [file] = merging.reader.files("events", DAY).files
        _, report = merged(merging)
        assert report.published and report.published.catalog_requests <= 2
    names = {table["Name"] for table in glue.get_tables(DatabaseName="lake_shop")["TableList"]}
    assert "web_events" in names and len(names) == len(rows_of_shop(shop))
    [partition] = glue.get_partitions(DatabaseName="lake_shop", TableName="web_events")["Partitions"]
    assert partition["Values"] == [str(DAY)]
    listed = json.loads(storage.read_bytes(storage.as_uri(partition["StorageDescriptor"]["Location"])))
    assert [(entry["url"], entry["meta"]["content_length"]) for entry in listed["entries"]] == [(file.uri, file.bytes)]


def rows_of_shop(shop: Shop) -> dict[str, int]:
    with shop.open() as pipeline:
        return rows_of(pipeline, 0, 1)


@pytest.mark.long
def test_a_whole_drain_and_merge_in_s3(tmp_path: Path, s3_bucket: str) -> None:
    """The working process has its own Spark, whose workers find the server by their environment."""
    root, output = f"{s3_bucket}/landing", f"{s3_bucket}/shredded"
    shop = Shop(tmp_path, landing={"root": root}, shred={"output": output}, merge={"output": f"{s3_bucket}/merged"})
    shop.write(1, 0, bad_lines=2)
    with shop.open() as pipeline:
        report = discover(pipeline)
        assert (report.new, report.requests) == (tuple(run_names(0, 1)), 1)
    done = ended(shop.process(None, "--then-merge", environment=dict(os.environ)))
    with shop.open() as pipeline:
        assert keys(pipeline, 0)[0].id == f"{root}/{run_name(0)}"
        listing = listing_of(pipeline.manifest.item(keys(pipeline, 0)[0]))
        assert all(found.uri.startswith(f"{output}/{NAME}/{run_name(0)}/") for found in listing.objects)
        assert loaded_record(pipeline, 1).data["rows"]["bad"] == 2
        assert drained(pipeline)[1].stop is Stop.IDLE
        merging = Merging(pipeline)
        tables = rows_of(pipeline, 0, 1)
        assert (done["stop"], done["merged"]) == (Stop.IDLE, len(tables))
        assert read(merging) == tables
        [file] = merging.reader.files("events", DAY).files
        assert file.uri.startswith(f"{s3_bucket}/merged/") and len(storage.read_bytes(file.uri)) == file.bytes
    seen = shop.seen
    assert seen.runs == run_names(0, 1)
    assert (seen.rows["events"], seen.rows["bad"]) == (2 * EVENTS, 4)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_merge_is_finished_by_the_next(spark: Any, tmp_path: Path, point: str) -> None:
    shop = Shop(tmp_path, merge={}, lease={"seconds": 1})
    shop.shredded(spark, 2)
    if point.startswith("publish."):  # the remaining work needs no Spark
        with shop.open() as pipeline, pytest.MonkeyPatch.context() as patch:
            patch.setattr(Merging, "publish", lambda _merging: None)
            assert merged(Merging(pipeline), spark)[1].merged
    process = shop.process(f"{point}:kill", "--merge")
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, f"{point} was not reached"
    with shop.open() as pipeline:
        merging = Merging(pipeline)
        tables = rows_of(pipeline, 0, 1)
        shown = set(tables) & {table.key for table in merging.inventory.tables()}
        assert all(rows in (0, tables[table]) for table, rows in read(merging).items()), "old or new, never a part"
        report = MergeReport()
        for _ in range(20):
            _, report = merged(merging, spark)
            partitions = [merging.inventory.partition(table, DAY) for table in tables]
            if all(partition and partition.at_rest for partition in partitions):
                break
            clock_goes_on(merging)
        assert report.stop is Stop.IDLE and shown <= set(tables)
        assert read(merging) == tables
        for table, rows in tables.items():
            ranges = merging.inventory.ranges(table, DAY)
            assert [one.lower for one in ranges] == [0, *(one.upper for one in ranges)][:-1]
            assert sum(one.rows for one in ranges) == rows


def clock_goes_on(merging: Merging) -> None:
    import time

    time.sleep(0.5)
    now = datetime.now(UTC)
    merging.clock = merging.inventory.clock = lambda: now + timedelta(minutes=2)  # longer than the pause after a job's death
