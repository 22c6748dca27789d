"""The audit notices each kind of damage, and no other: planted by SQL in a warehouse that three runs were loaded into."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from manifest_platform.manifest import Failure, FailureKind
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform_tests.pipeline.shop import NAME, Shop, drained, run_name, run_names
from manifest_platform_tests.servers.warehouses import Place
from manifest_platform_tests.soak import audit

pytestmark = pytest.mark.engines("duckdb", "postgresql")  # those of the two soaks

RUNS = run_names(0, 1, 2)


@pytest.fixture
def shop(tmp_path: Path, place: Place, spark: SparkSession) -> Shop:
    shop = Shop(tmp_path / "shop", place)
    shop.shredded(spark, 3)
    with shop.open() as pipeline:
        drained(pipeline)
    return shop


def _row_doubled(warehouse: Engine) -> None:
    events = warehouse.qualified(NAME, "events")
    warehouse.execute(f"INSERT INTO {events} SELECT * FROM {events} ORDER BY event_id LIMIT 1")


def _row_lost(warehouse: Engine) -> None:
    events = warehouse.qualified(NAME, "events")
    warehouse.execute(f"DELETE FROM {events} WHERE event_id = (SELECT max(event_id) FROM {events})")


def _row_lost_and_another_doubled(warehouse: Engine) -> None:
    _row_doubled(warehouse)
    _row_lost(warehouse)


def _run_loaded_twice(warehouse: Engine) -> None:
    ledger = warehouse.qualified("manifest_platform", "ledger")
    warehouse.execute(f"INSERT INTO {ledger} SELECT * FROM {ledger} WHERE item LIKE '%{run_name(1)}'")


def _order_broken(warehouse: Engine) -> None:
    ledger = warehouse.qualified("manifest_platform", "ledger")
    [(first,)] = warehouse.execute(f"SELECT min(applied_at) FROM {ledger}")
    warehouse.execute(f"UPDATE {ledger} SET applied_at = ? WHERE item LIKE '%{run_name(2)}'", (first - timedelta(seconds=1),))


def _run_not_in_the_ledger(warehouse: Engine) -> None:
    ledger = warehouse.qualified("manifest_platform", "ledger")
    warehouse.execute(f"DELETE FROM {ledger} WHERE item LIKE '%{run_name(0)}'")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_row_doubled, "events: 0 missing, 1 too many"),
        (_row_lost, "events: 1 missing, 0 too many"),
        (_row_lost_and_another_doubled, "events: 1 missing, 1 too many"),
        (_run_loaded_twice, f"loaded more than once: {[run_name(1)]}"),
        (_order_broken, f"loaded out of order: {[(run_name(2), run_name(0))]}"),
        (_run_not_in_the_ledger, f"never loaded: 1 of 3 runs, {[run_name(0)]}"),
    ],
)
def test_damage_that_is_planted_in_the_warehouse_is_told(shop: Shop, damage: Callable[[Engine], None], told: str) -> None:
    assert list(audit.lost(shop, RUNS)) == []
    with closing(shop.place.open()) as warehouse:
        damage(warehouse)
    assert list(audit.lost(shop, RUNS)) == [told]


def test_a_failure_that_an_item_is_charged_with_is_told(shop: Shop) -> None:
    assert list(audit.blamed(shop, 1)) == []
    _fail(shop, "shredded alone: the worker died")
    assert list(audit.blamed(shop, 1)) == ["failed: shred: shredded alone: the worker died"]


def test_no_more_leases_expire_with_an_item_than_there_were_faults(shop: Shop) -> None:
    _fail(shop, "lease expired: the worker died")
    assert list(audit.blamed(shop, 1)) == []
    assert list(audit.blamed(shop, 0)) == [f"{run_name(3)}: 1 leases expired, after 0 faults"]


def _fail(shop: Shop, message: str) -> None:
    """Fails the shred of another run."""
    with shop.open() as pipeline:
        [key] = shop.land(pipeline, 3)
        lease = pipeline.manifest.acquire(key.feed, "shred", "a test", timedelta(seconds=60))
        with lease:
            [claim] = pipeline.manifest.claim(lease, [pipeline.manifest.item(key)])
            pipeline.fail(claim, Failure(FailureKind.TRANSIENT, message))
