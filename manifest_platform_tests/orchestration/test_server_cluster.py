"""Dagster on a deployment beyond one machine: files in S3, the manifest in DynamoDB, PostgreSQL, and Spark over Connect.

The servers are real, and so are the webserver, the daemon and the run workers, which have no Spark of their own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from manifest_platform.demo.dynamodb import DynamoDbLocal
from manifest_platform.demo.s3 import S3Server
from manifest_platform.demo.spark_cluster import SparkCluster, spark_cluster
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.merging.stored import stored_files
from manifest_platform.operations.archive import archive_dataset
from manifest_platform.pipeline.merge import Merging
from manifest_platform.spark import s3_endpoint
from manifest_platform_tests.orchestration import dagster_server
from manifest_platform_tests.orchestration.dagster_server import Server, message
from manifest_platform_tests.pipeline.shop import FIRST, NAME, Shop, keys, run_name, run_names
from manifest_platform_tests.servers.postgres import Postgres
from manifest_platform_tests.servers.spark import s3a_jars
from manifest_platform_tests.servers.warehouses import DatabasePlace

pytestmark = pytest.mark.long

PROJECT = """
import dagster as dg
from pyspark.sql.connect.dataframe import DataFrame

from manifest_platform.orchestration.build import build_defs


@dg.asset(
    key=["shop", "page_views"],
    ins={"events": dg.AssetIn(["shop", "shredded"])},
    partitions_def=dg.DynamicPartitionsDefinition(name="shop_enriched"),
    io_manager_key="manifest_io_manager",
)
def page_views(events):
    assert isinstance(events, DataFrame), type(events)
    return events.where("event = 'page_view'").select("event_id", "page_urlpath")


defs = dg.Definitions.merge(build_defs(), dg.Definitions(assets=[page_views]))
"""


@pytest.fixture
def cluster(tmp_path: Path, s3_environment: S3Server) -> Iterator[SparkCluster]:
    """A cluster with the jars of `s3a://`: the user's own asset reads S3 as a DataFrame."""
    jars = ",".join(str(jar) for jar in sorted(s3a_jars().iterdir()))
    s3a = {"spark.jars": jars, "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    with spark_cluster(tmp_path, 2, s3_environment.environment, {**s3a, **s3_endpoint()}) as running:
        yield running


@pytest.fixture
def shop(
    cluster: SparkCluster, s3_bucket: str, dynamodb_server: DynamoDbLocal, postgres_server: Postgres, tmp_path: Path
) -> Iterator[Shop]:
    conf = tmp_path / "connect.conf"
    conf.write_text(f"spark.remote {cluster.remote}\nspark.sql.session.timeZone UTC\n")
    place = DatabasePlace(postgres_server, tmp_path)
    store = dynamodb_server.store(f"test-{uuid.uuid4().hex[:12]}")
    create_table(store)
    yield Shop(
        tmp_path / "shop",
        place,
        landing={"root": f"{s3_bucket}/landing"},
        shred={"output": f"{s3_bucket}/shredded"},
        merge={"output": f"{s3_bucket}/merged", "delayed": "at_once"},  # the sensor may merge between a drain and a backfill
        manifest={"store": store, "overflow": f"{s3_bucket}/overflow", "archive": f"{s3_bucket}/archive"},
        spark={"conf": str(conf)},
        dagster={"sensor_seconds": 5},
    )
    place.remove()


@pytest.fixture
def server(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(dagster_server, "PATIENCE_S", 600)
    (tmp_path / "project.py").write_text(PROJECT)
    workspace = tmp_path / "project.yaml"
    location = f"relative_path: {tmp_path}/project.py\n      location_name: manifest_platform"
    workspace.write_text(f"load_from:\n  - python_file:\n      {location}\n")
    started = Server(shop.config_file, NAME, tmp_path / "dagster", workspace, os.environ)
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.mark.timeout(1800)
def test_dagster_on_a_cluster_loads_what_lands_backfills_merges_and_runs_an_asset_of_ones_own(
    server: Server, shop: Shop
) -> None:
    # The sensor finds runs in S3, and a drain loads them.
    shop.write(0, 1)
    server.until("the drain", lambda: server.loaded() == run_names(0, 1))
    assert shop.seen.runs == run_names(0, 1)

    # A backfill of runs that are registered and not shredded. Dagster got them one after the other, in the wrong order: they
    # are a range of its own, so that a backfill of a single run has one run, which works in the manifest's order.
    server.stop_sensor()
    server.until("the end of the drain", lambda: {run["status"] for run in server.runs()} == {"SUCCESS"})
    with shop.open() as pipeline:
        shop.land(pipeline, 2, 3)
    for number in (3, 2):
        server.add_partition("enriched", run_name(number))
    runs = server.backfill(["shredded", "warehouse"], *run_names(2, 3))
    assert [run["status"] for run in runs] == ["SUCCESS"]
    assert shop.seen.runs == run_names(0, 1, 2, 3)
    assert shop.doubled_events == []

    # The user's own asset gets a DataFrame of the Connect session, and its rows are committed to S3.
    [done] = server.materialize("page_views", run_name(2))
    assert done["status"] == "SUCCESS", message(done)
    assert server.loaded("page_views") == [run_name(2)]

    merges_what_is_due(server, shop)
    keeps_large_and_old_records_in_s3(shop)


def merges_what_is_due(server: Server, shop: Shop) -> None:
    """The merge job merges the small objects on the cluster, and readers get the rows from merged objects in S3."""
    done = server.run_job(f"{NAME}_merge")
    assert done["status"] == "SUCCESS", message(done)
    with shop.open() as pipeline:
        merging = Merging(pipeline)
        assert list(stored_files(merging.output))
        [(rows,)] = merging.reader.query("SELECT count(*) FROM events")[1]
        files = merging.reader.files("events", FIRST.date()).files
        assert any(file.lower is not None for file in files), "readers get merged objects"
    assert rows == shop.seen.rows["events"]


def keeps_large_and_old_records_in_s3(shop: Shop) -> None:
    """DynamoDB limits a row to 400 KB, so a large record is an object; archived records are Parquet files."""
    large = "a long story. " * 50_000
    with shop.open() as pipeline:
        overflow, archive = pipeline.config.manifest.overflow, pipeline.config.manifest.archive
        assert overflow and archive
        [key, *_] = keys(pipeline, 0)
        assert not list(stored_files(overflow)) and not list(stored_files(archive))
        pipeline.manifest.note(key, large)
    assert [one.bytes > len(large) for one in stored_files(overflow)] == [True]
    shop.ahead = timedelta(days=60)
    with shop.open() as pipeline:
        before = pipeline.manifest.item(key).records
        assert before[-1].data["reason"] == large
        assert archive_dataset(pipeline, timedelta(days=30)).items == 3, "all but the newest, at which the watermark is"
    assert list(stored_files(archive))
    with shop.open() as pipeline:
        assert pipeline.manifest.item(key).records == before
