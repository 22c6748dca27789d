"""Dagster with AWS services: the manifest in DynamoDB, windows and output in S3, with access from the project's resources.

The servers are real, and so are the webserver, the daemon, the run workers, and the Spark of each run with its `s3a://`.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import storage
from manifest_platform.demo.dynamodb import DynamoDbLocal
from manifest_platform.demo.s3 import ACCESS_KEY, SECRET_KEY, S3Server
from manifest_platform.fake_vault import FakeVault, Simulation, VaultSettings
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources.veeva.layout import ATTEMPT, SIDECAR
from manifest_platform_tests.orchestration.dagster_server import Server, message
from manifest_platform_tests.servers.spark import CONF, s3a_jars
from manifest_platform_tests.sources.veeva.ward.ward import (
    FULL,
    INCR,
    NAME,
    QUARTER,
    VAULT_ID,
    Ward,
    begun,
    drained,
    full,
    incr,
    state,
)

pytestmark = pytest.mark.long

MORNING = datetime(2026, 1, 2, tzinfo=UTC)
NOON = MORNING + timedelta(hours=1, minutes=8)
"""The stop time of the second snapshot, which lies within a window."""
END = MORNING + 6 * QUARTER

PROJECT = """
import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_aws.utils import ResourceWithBoto3Configuration

from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.resources import ManifestResource


class DynamoDBResource(ResourceWithBoto3Configuration):
    pass


WHO = dict(
    region_name="us-east-1",
    aws_access_key_id=dg.EnvVar("THE_PROJECTS_ID"),
    aws_secret_access_key=dg.EnvVar("THE_PROJECTS_KEY"),
)
manifest = ManifestResource.from_aws(
    s3=S3Resource(endpoint_url=dg.EnvVar("THE_PROJECTS_S3"), **WHO),
    dynamodb=DynamoDBResource(endpoint_url=dg.EnvVar("THE_PROJECTS_DYNAMODB"), **WHO),
)


@dg.asset(
    key=["vault", "incr", "products"],
    ins={"rows": dg.AssetIn(["vault", "incr", "warehouse"], metadata={"table": "product__v"})},
    partitions_def=dg.DynamicPartitionsDefinition(name="vault_incr"),
    io_manager_key="manifest_io_manager",
)
def products(rows):
    return rows.select("id")


defs = dg.Definitions.merge(build_defs(manifest=manifest), dg.Definitions(assets=[products]))
"""


class Landing:
    """A program that lands a vault's windows in S3 without a manifest: the files of an archive, then a marker."""

    def __init__(self, home: Path, vault: FakeVault, root: str) -> None:
        self._producer, self._root = Ward(home, vault=vault), root
        self._vault = vault
        self._landed: set[str] = set()

    def land(self, upto: datetime, *feeds: str) -> list[str]:
        """Lands the windows of some feeds (default: all) up to a stop time; returns the names of the new windows."""
        self._vault.now = upto + QUARTER  # the time until they are published
        with self._producer.open() as pipeline:
            self._producer.captured(pipeline, *feeds)
        top, names = self._producer.home / "landing", []
        for attempt in sorted(top.glob(f"vault=*/*/*/{ATTEMPT}*")):
            place = attempt.parent.relative_to(top)
            if str(place) in self._landed:
                continue
            for file in sorted(attempt.rglob("*")):
                if file.is_file() and file.name != SIDECAR:
                    storage.write_bytes(f"{self._root}/{place}/{file.relative_to(attempt)}", file.read_bytes())
            storage.write_bytes(f"{self._root}/{place}/_SUCCESS", b"")
            self._landed.add(str(place))
            names.append("/".join(place.parts[1:]))
        return names


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    settings = VaultSettings(
        vault_id=int(VAULT_ID), full_stops=[MORNING, NOON], log_stops=[MORNING], full_delay=QUARTER, part_bytes=4096
    )
    with FakeVault(Simulation(seed=5, begin=MORNING, rows=6, changes=(8, 12)), MORNING, settings) as running:
        yield running


@pytest.fixture
def landing(vault: FakeVault, tmp_path: Path, s3_bucket: str) -> Landing:
    return Landing(tmp_path / "producer", vault, f"{s3_bucket}/landing")


@pytest.fixture
def ward(
    landing: Landing,
    vault: FakeVault,
    tmp_path: Path,
    spark: Any,
    s3_server: S3Server,
    s3_bucket: str,
    dynamodb_server: DynamoDbLocal,
    monkeypatch: pytest.MonkeyPatch,
) -> Ward:
    """A ward whose first snapshot and first window are loaded."""
    for name, value in s3_server.environment.items():  # Spark's Python workers have the environment of Spark's start
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_server.endpoint)
    table = f"test-{uuid.uuid4().hex[:12]}"
    create_table(dynamodb_server.store(table))
    conf = tmp_path / "conf" / "local.conf"
    shutil.copytree(CONF, conf.parent)
    conf.write_text(re.sub(r"# (spark\.jars +)\S+", rf"\1{s3a_jars()}/*.jar", conf.read_text()))
    ward = Ward(
        tmp_path / "ward",
        f"dynamodb://{table}",
        landing={"root": f"{s3_bucket}/landing"},
        shred={"output": f"{s3_bucket}/shredded"},
        spark={"conf": str(conf)},
    )
    landing.land(MORNING + QUARTER)
    with ward.open() as pipeline:
        assert len(discover(pipeline).new) == 3
        begun(pipeline, "latest", spark)
        drained(pipeline, spark)
    assert ward.seen.applied == ["full 0000", "incr 0015", "log 0000"]
    return ward


@pytest.fixture
def server(ward: Ward, tmp_path: Path, s3_server: S3Server, dynamodb_server: DynamoDbLocal) -> Iterator[Server]:
    """A server whose processes get AWS access from the project's resources alone."""
    (tmp_path / "project.py").write_text(PROJECT)
    workspace = tmp_path / "project.yaml"
    workspace.write_text(
        f"load_from:\n  - python_file:\n      relative_path: {tmp_path}/project.py\n      location_name: manifest_platform\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull) | {
        "THE_PROJECTS_ID": ACCESS_KEY,
        "THE_PROJECTS_KEY": SECRET_KEY,
        "THE_PROJECTS_S3": s3_server.endpoint,
        "THE_PROJECTS_DYNAMODB": dynamodb_server.endpoint,
    }
    started = Server(ward.config_file, NAME, tmp_path / "dagster", workspace, environment)
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.mark.timeout(600)
def test_from_a_prefix_in_s3_to_a_superseded_epoch(server: Server, ward: Ward, landing: Landing, vault: FakeVault) -> None:
    # The sensor discovers the windows in S3, registers them in DynamoDB, and requests a drain.
    windows = [incr(stop).name for stop in ("0030", "0045", "0100", "0115", "0130")]
    assert landing.land(END, INCR) == windows
    server.until("the drain", lambda: server.loaded("incr/warehouse") == [incr("0015").name, *windows])
    server.until("the end of the drain", lambda: _at_rest(server))
    assert ward.seen.applied[-5:] == ["incr 0030", "incr 0045", "incr 0100", "incr 0115", "incr 0130"]

    # A manual full load: the windows after its snapshot must be loaded again.
    server.stop_sensor()
    assert landing.land(END, FULL) == [full("0108").name]
    with ward.open() as pipeline:
        assert discover(pipeline).new == (full("0108").name,)
    server.add_partition(FULL, full("0108").name)
    assert server.run_job(f"{NAME}_full_begin", reason="for a test")["status"] == "SUCCESS"
    [loaded] = server.materialize("full/warehouse", full("0108").name)
    assert loaded["status"] == "SUCCESS"

    # A run that begins with the last window is refused. A backfill in another order is processed in the manifest's order.
    *_, earlier, last = windows
    [refused] = server.materialize("incr/warehouse", last)
    assert f"{last} is out of order: {earlier} comes first" in message(refused)
    runs = server.backfill(["incr/warehouse"], last, earlier)
    assert {run["status"] for run in runs} == {"SUCCESS"}
    assert [window for window, epoch in ward.seen.ledger if epoch == 3] == ["full 0108", "incr 0115", "incr 0130"]
    with ward.open() as pipeline:
        assert (state(pipeline).epoch, state(pipeline).boundary) == (3, "2026-01-02T01:08Z")
    assert ward.differences(vault.simulation, END, [MORNING, NOON], logs=MORNING) == {}

    # The project's own asset reads current rows through s3a://, and no superseded rows.
    superseded, current = server.materialize("incr/products", windows[1], earlier)
    assert windows[1] in message(superseded)
    assert current["status"] == "SUCCESS", message(current)
    assert server.loaded("incr/products") == [earlier]


def _at_rest(server: Server) -> bool:
    return {run["status"] for run in server.runs()} <= {"SUCCESS", "FAILURE"}
