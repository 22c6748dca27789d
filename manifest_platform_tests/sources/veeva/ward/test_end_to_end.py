"""A day of a vault from its API to tables, with S3 and DynamoDB as real servers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import storage
from manifest_platform.demo.dynamodb import DynamoDbLocal
from manifest_platform.demo.s3 import S3Server
from manifest_platform.fake_vault import FakeVault, Fault, Simulation, VaultSettings, schema_changes
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.operations.doctor import Doctor
from manifest_platform.pipeline import Stop
from manifest_platform_tests.sources.veeva.ward.ward import FULL, INCR, LOG, QUARTER, Ward, begun, drained, incr, key_of, state

pytestmark = pytest.mark.long

MORNING = datetime(2026, 1, 2, tzinfo=UTC)
NOON, EVENING = MORNING + 5 * QUARTER, MORNING + 10 * QUARTER
LATE = MORNING + 2 * QUARTER
"""A short day: its second window is published late, its fourth is empty, and the snapshot of noon is within a window."""


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    simulation = Simulation(seed=5, begin=MORNING, rows=6, changes=(3, 8), quiet={3}, script=schema_changes(1, 4, 6, 7))
    stops = [MORNING, NOON - timedelta(minutes=7)]
    with FakeVault(
        simulation,
        MORNING + 3 * QUARTER,
        VaultSettings(full_stops=stops, log_stops=[MORNING], full_delay=QUARTER, part_bytes=4096),
    ) as running:
        yield running


@pytest.fixture
def ward(
    vault: FakeVault,
    tmp_path: Path,
    spark: Any,
    s3_server: S3Server,
    s3_bucket: str,
    dynamodb_server: DynamoDbLocal,
    monkeypatch: pytest.MonkeyPatch,
) -> Ward:
    for name, value in s3_server.environment.items():  # Spark's Python workers keep the environment of their start
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    url = dynamodb_server.store(f"test-{uuid.uuid4().hex[:12]}")
    create_table(url)
    landing, shred = {"root": f"{s3_bucket}/landing"}, {"output": f"{s3_bucket}/shredded"}
    return Ward(tmp_path, url, vault, landing=landing, shred=shred)


@pytest.mark.timeout(400)
def test_a_day_from_the_vault_to_tables(ward: Ward, vault: FakeVault, spark: Any) -> None:
    simulation = vault.simulation
    snapshots = simulation.begin, NOON - timedelta(minutes=7)
    vault.inject(Fault("unpublished", window=f"incr/{LATE:%Y-%m-%dT%H:%MZ}", until=MORNING + 6 * QUARTER))

    # The morning: the first snapshot, then changes up to the window that Vault fails to publish.
    with ward.open() as pipeline:
        report = ward.captured(pipeline)
        assert [len(report.captured), len(report.awaited)] == [3, 1]
        begun(pipeline, "latest", spark)
        _, report = drained(pipeline, spark)
        assert {end.feed: end.stop for end in report.ends} == dict.fromkeys((FULL, INCR, LOG), Stop.IDLE)
        assert ward.seen.applied == ["full 0000", "incr 0015", "log 0000"]
        assert ward.differences(simulation, MORNING + QUARTER, snapshots[:1], logs=MORNING) == {}

        vault.now += 2 * QUARTER
        ward.captured(pipeline)
        _, report = drained(pipeline, spark)
        assert (report.stop, report.item) == (Stop.BLOCKED, incr("0045").name)
        assert ward.differences(simulation, MORNING + QUARTER, snapshots[:1], logs=MORNING) == {}, "nothing is skipped"

        vault.now += QUARTER
        assert incr("0030").name in ward.captured(pipeline).captured
        assert drained(pipeline, spark)[1].stop is Stop.IDLE
        assert ward.seen.applied[-4:] == ["incr 0030", "incr 0045", "incr 0100", "incr 0115"]
        assert ward.differences(simulation, NOON, snapshots[:1], logs=MORNING) == {}

        # Noon: a snapshot from within the newest window. This window and later windows are loaded after it.
        assert begun(pipeline, "latest", spark).epoch == 3
        vault.now = EVENING + QUARTER
        ward.captured(pipeline)
        assert drained(pipeline, spark)[1].stop is Stop.IDLE
        replayed = [window for window, epoch in ward.seen.ledger if epoch == 3]
        assert replayed == ["full 0108", *(f"incr {at}" for at in ("0115", "0130", "0145", "0200", "0215", "0230"))]
        assert (state(pipeline).epoch, state(pipeline).boundary) == (3, "2026-01-02T01:08Z")
        assert ward.differences(simulation, EVENING, snapshots, logs=MORNING) == {}

        # At the end nothing is wrong, nothing is left over, and all files are where they should be.
        assert len(drained(pipeline, spark)[0]) == 0
        pipeline.warehouse.close()
        assert Doctor(pipeline, grace=timedelta(0)).examine().healthy
        assert not list((ward.home / "landing").iterdir())
        landed = pipeline.manifest.item(key_of(pipeline, "0015")).landed
        assert landed is not None and landed.place.startswith("s3://")
        assert storage.read_bytes(f"{landed.place}/manifest.csv").startswith(b"extract")
