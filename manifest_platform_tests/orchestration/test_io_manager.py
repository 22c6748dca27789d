"""A user's own assets: they read committed, current data, and their result is committed for one partition."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from pyspark.sql import DataFrame

from manifest_platform import storage
from manifest_platform.listing import Listing
from manifest_platform.manifest import Application, Failure, FailureKind, Manifest
from manifest_platform.orchestration.io_manager import _spark_path
from manifest_platform.orchestration.keys import item_partitions
from manifest_platform.orchestration.own_assets import IO_MANAGER
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.orchestration.code_location import QUIET, Result, failure
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, key, next_ready, records, tamper
from manifest_platform_tests.pipeline.shop import NAME, REPOSITORY, keys, run_name

PARTITIONS = item_partitions(NAME, FEED)


@dg.asset(
    key=key("page_views"), ins={"events": dg.AssetIn(key("shredded"))}, partitions_def=PARTITIONS, io_manager_key=IO_MANAGER
)
def page_views(events: DataFrame) -> DataFrame:
    return events.where("event = 'page_view'").select("event_id", "page_urlpath")


@dg.asset(
    key=key("reports/paths"), ins={"views": dg.AssetIn(key("page_views"))}, partitions_def=PARTITIONS, io_manager_key=IO_MANAGER
)
def paths(views: DataFrame) -> DataFrame:
    return views.groupBy("page_urlpath").count()


@dg.asset(key=key("loaded"), ins={"events": dg.AssetIn(key("warehouse"))}, partitions_def=PARTITIONS, io_manager_key=IO_MANAGER)
def loaded(events: DataFrame) -> DataFrame:
    return events.select("event_id")


def _counting(table: str | None, seen: dict[str, Any]) -> dg.AssetsDefinition:
    """Returns an asset over all partitions of a run that records what it read, and returns nothing."""

    @dg.asset(
        key=key("counted"),
        ins={"rows": dg.AssetIn(key("shredded"), metadata={"table": table} if table else None)},
        partitions_def=PARTITIONS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key=IO_MANAGER,
    )
    def counted(rows: DataFrame) -> None:
        seen.update(count=rows.count(), columns=set(rows.columns))

    return counted


def _with(shop: DagsterShop, *assets: dg.AssetsDefinition) -> DagsterShop:
    return DagsterShop(shop.shop, shop.instance, assets)


@pytest.fixture
def own(shredded: DagsterShop) -> DagsterShop:
    shredded.add(0, 1, 2)
    return _with(shredded, page_views, paths, loaded)


@pytest.fixture
def writable(fresh: DagsterShop) -> DagsterShop:
    """A shop with one shredded run, whose output the test may change."""
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 0)
    fresh.add(0)
    assert fresh.materialize(["shredded"], 0).success
    return fresh


def _listing(shop: DagsterShop, number: int) -> Listing:
    with shop.shop.open() as pipeline:
        return listing_of(pipeline.manifest.item(keys(pipeline, number)[0]))


@pytest.mark.stores("sqlite", "dynamodb")
def test_an_asset_reads_events_and_commits_its_result(own: DagsterShop, spark: Any) -> None:
    result = own.materialize(["page_views"], 1)
    assert result.success
    shown = own.metadata("page_views", 1)
    with own.shop.open() as pipeline:
        item = pipeline.manifest.item(keys(pipeline, 1)[0])
    record = item.processed_by(Application("page_views"))
    assert record is not None
    shredded = item.processed_by(Application(SHRED))
    assert shredded is not None
    assert record.data == {
        "prefix": shown["dagster/uri"],
        "rows": shown["dagster/partition_row_count"],
        "made_from": [{"application": SHRED, "record": shredded.record_id}],
    }
    assert record.run_id == result.run_id
    rows = spark.read.parquet(str(storage.local_path(record.data["prefix"])))
    assert rows.count() == record.data["rows"] > 0
    assert rows.columns == ["event_id", "page_urlpath"]


def test_an_own_asset_reads_another_own_asset(own: DagsterShop) -> None:
    assert own.materialize(["page_views", "reports/paths"], 0).success
    with own.shop.open() as pipeline:
        item = pipeline.manifest.item(keys(pipeline, 0)[0])
    assert item.processed_by(Application("reports/paths")) is not None
    assert own.metadata("reports/paths", 0)["dagster/partition_row_count"] > 0


def test_the_table_is_named_by_the_input(shredded: DagsterShop) -> None:
    shredded.add(0)
    table = next(found.name for found in _listing(shredded, 0).tables if found.name not in ("events", "bad"))
    seen: dict[str, Any] = {}
    assert _with(shredded, _counting(table, seen)).materialize(["counted"], 0).success
    assert seen["count"] == _listing(shredded, 0).rows(table) > 0
    message = failure(_with(shredded, _counting("nothing_such", seen)).materialize(["counted"], 0))
    assert "None of the partitions has rows of table 'nothing_such'" in message


def test_several_partitions_are_read_as_one(shredded: DagsterShop) -> None:
    shredded.add(0, 1, 2)
    seen: dict[str, Any] = {}
    assert _with(shredded, _counting(None, seen)).materialize(["counted"], 0, 2).success
    assert seen["count"] == 60


def test_columns_that_were_added_later_are_read_too(shredded: DagsterShop) -> None:
    shredded.add(0, 1)
    seen: dict[str, Any] = {}

    @dg.asset(
        key=key("growing"), ins={"events": dg.AssetIn(key("shredded"))}, partitions_def=PARTITIONS, io_manager_key=IO_MANAGER
    )
    def growing(context: dg.AssetExecutionContext, events: DataFrame) -> DataFrame:
        return events.select("event_id", *(["app_id"] if context.partition_key == run_name(1) else []))

    @dg.asset(
        key=key("grown"),
        ins={"rows": dg.AssetIn(key("growing"))},
        partitions_def=PARTITIONS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key=IO_MANAGER,
    )
    def grown(rows: DataFrame) -> None:
        seen.update(without=rows.where("app_id IS NULL").count(), columns=rows.columns)

    own = _with(shredded, growing, grown)
    assert own.materialize(["growing"], 0).success and own.materialize(["growing"], 1).success
    assert own.materialize(["grown"], 0, 1).success
    assert seen == {"without": 20, "columns": ["event_id", "app_id"]}


def test_files_that_no_record_names_are_not_read(writable: DagsterShop, spark: Any) -> None:
    first = Path(storage.local_path(_listing(writable, 0).uris("events")[0]))
    stray = first.parents[2].with_name("an-attempt-that-died") / "events" / first.parent.name / first.name
    stray.parent.mkdir(parents=True)
    stray.write_bytes(first.read_bytes())
    first.with_name("stray.parquet").write_bytes(first.read_bytes())
    seen: dict[str, Any] = {}
    assert _with(writable, _counting(None, seen)).materialize(["counted"], 0).success
    assert seen["count"] == 20


def test_the_newest_of_two_attempts_is_read(writable: DagsterShop) -> None:
    """The second attempt wrote no events. Both attempts are complete and exist in storage."""
    seen: dict[str, Any] = {}
    with writable.shop.open() as pipeline:
        item = pipeline.manifest.item(keys(pipeline, 0)[0])
        old = listing_of(item)
        uri = f"file://{writable.shop.home}/second.json"
        without = tuple(found for found in old.objects if found.table != "events")
        dataclasses.replace(old, objects=without).write(uri)
    assert _with(writable, _counting(None, seen)).materialize(["counted"], 0).success
    tamper(writable.shop, 0, SHRED, lambda data: data.update(listing=uri))
    message = failure(_with(writable, _counting(None, seen)).materialize(["counted"], 0))
    assert "None of the partitions has rows of table 'events'" in message


def test_the_newest_of_two_outputs_is_read(own: DagsterShop) -> None:
    own.materialize(["page_views"], 0)
    old = own.metadata("page_views", 0)["dagster/uri"]
    own.materialize(["page_views"], 0)
    new = own.metadata("page_views", 0)["dagster/uri"]
    assert new != old
    for part in Path(storage.local_path(old)).iterdir():
        part.unlink()
    assert own.materialize(["reports/paths"], 0).success


def test_items_that_are_not_done_cannot_be_read(fresh: DagsterShop) -> None:
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 0)
    fresh.add(0)
    own = _with(fresh, page_views, paths, loaded)
    assert "is not done by shred: nothing is committed to read" in failure(own.materialize(["page_views"], 0))
    assert "is not done by page_views: nothing is committed to read" in failure(own.materialize(["reports/paths"], 0))


def test_the_warehouse_is_read_once_it_is_loaded(own: DagsterShop) -> None:
    assert "is not done by load: nothing is committed to read" in failure(own.materialize(["loaded"], 0))
    own.materialize(["warehouse"], 0)
    assert own.materialize(["loaded"], 0).success
    assert own.metadata("loaded", 0)["dagster/partition_row_count"] == 20


def test_a_crash_before_the_commit_leaves_nothing_to_read(own: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_arguments: object) -> None:
        raise OSError("the lights went out")

    before = records(own.shop)
    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "commit_output", crash)
        assert not own.materialize(["page_views"], 0).success
    written = list((Path(_listing_root(own)) / NAME).rglob("page_views-*/_SUCCESS"))
    assert written, "it was written before the crash"
    assert records(own.shop) == before
    assert "is not done by page_views" in failure(own.materialize(["reports/paths"], 0))


def _listing_root(shop: DagsterShop) -> str:
    with shop.shop.open() as pipeline:
        return pipeline.dataset.shred.output


def test_an_output_for_several_partitions_is_refused(shredded: DagsterShop) -> None:
    shredded.add(0, 1)

    @dg.asset(
        key=key("both"),
        ins={"events": dg.AssetIn(key("shredded"))},
        partitions_def=PARTITIONS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key=IO_MANAGER,
    )
    def both(events: DataFrame) -> DataFrame:
        return events

    before = records(shredded.shop)
    message = failure(_with(shredded, both).materialize(["both"], 0, 1))
    assert "this run has 2 partitions. Give the asset backfill_policy=BackfillPolicy.multi_run(1)" in message
    assert records(shredded.shop) == before


def test_nothing_is_committed_for_a_blocked_item(own: DagsterShop) -> None:
    with own.shop.open() as pipeline, pipeline.lease(FEED, LOAD) as lease:
        ready = next_ready(pipeline)
        [claim] = pipeline.manifest.claim(lease, [ready.item], ready.state)
        pipeline.manifest.fail(claim, Failure(FailureKind.PERMANENT, "broken"))
    assert "is blocked: load is Failed" in failure(own.materialize(["page_views"], 0))
    assert own.materialize(["page_views"], 1).success


def test_the_example_in_the_docs_works(shredded: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "assets.md").read_text().replace("acme", NAME)
    first, second = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    [declared] = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    config = yaml.safe_load(shredded.shop.config_file.read_text())
    config["datasets"][NAME]["steps"] = yaml.safe_load(declared)["datasets"][NAME]["steps"]
    shredded.shop.config_file.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("MANIFEST_PLATFORM_CONFIG", str(shredded.shop.config_file))
    shredded.add(0, 1)

    def run(code: str, *assets: str, number: int) -> Result:
        module: dict[str, Any] = {}
        exec(code, module)
        job = module["defs"].resolve_implicit_global_asset_job_def()
        chosen = [key(asset) for asset in assets]
        options: dict[str, Any] = {"partition_key": run_name(number), "raise_on_error": False, "run_config": QUIET}
        return job.execute_in_process(instance=shredded.instance, asset_selection=chosen, **options)

    assert run(first, "page_views", number=1).success
    assert run(first, "page_views", "report", number=0).success
    assert run(first, "report", number=1).success
    assert run(second, "links", number=1).success


def test_spark_reads_s3_by_the_uris_of_the_manifest() -> None:
    assert _spark_path("s3://bucket/a%20b/part.parquet") == "s3://bucket/a%20b/part.parquet"
