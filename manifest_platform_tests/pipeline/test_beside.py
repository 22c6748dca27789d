"""A drain that finds other workers, or no warehouse, ends without failing any item, and names the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from manifest_platform.pipeline import LOAD, SHRED, Stop
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import Unavailable
from manifest_platform_tests.pipeline.shop import NAME, Shop, drained, history


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Shop:
    """A shop with one shredded run."""
    shop = Shop(tmp_path)
    shop.shredded(spark, 1)
    return shop


def test_a_drain_is_busy_while_another_worker_holds_the_lease(shop: Shop) -> None:
    with shop.open() as holder, shop.open() as pipeline:
        with holder.lease(FEED, LOAD):
            events, report = drained(pipeline)
            assert (events, report.stop) == ([], Stop.BUSY)
            assert "load on feed enriched is held by" in report.reason
        assert drained(pipeline)[1].loaded == 1
        shop.land(pipeline, 1)
        with holder.lease(FEED, SHRED):
            assert drained(pipeline)[1].stop is Stop.BUSY


def test_an_unavailable_warehouse_fails_no_item(shop: Shop) -> None:
    (shop.home / "warehouse.duckdb").mkdir()
    with shop.open() as pipeline:
        _, report = drained(pipeline)
        assert (report.stop, report.failed) == (Stop.UNAVAILABLE, 0)
        assert history(pipeline, 0)[-1] == "shred Processed", "no attempt is counted"
        (shop.home / "warehouse.duckdb").rmdir()
        _, report = drained(pipeline)
        assert (report.stop, report.loaded) == (Stop.IDLE, 1)


def test_a_load_interrupted_by_a_lost_warehouse_counts_no_attempt(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_arguments: object) -> None:
        raise Unavailable("the server is gone")

    with shop.open() as pipeline:
        with monkeypatch.context() as patch:
            patch.setattr(Warehouse, "apply", gone)
            _, report = drained(pipeline)
        assert (report.stop, report.failed) == (Stop.UNAVAILABLE, 0)
        assert history(pipeline, 0)[-1] == "load Resolved automatic"
        _, report = drained(pipeline)
        assert (report.stop, report.loaded) == (Stop.IDLE, 1)
        assert not [line for line in history(pipeline, 0) if "Failed" in line]


def test_the_wait_for_a_worker_that_has_the_warehouse_ends_as_busy(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An embedded warehouse has one writer. It is waited for as long as a load may take, and no longer."""
    monkeypatch.setattr(DuckDB, "patience", 0.1)
    shop = Shop(tmp_path, limits={"load_hours": 1 / 3600})
    shop.shredded(spark, 1)
    file = str(shop.home / "warehouse.duckdb")
    duckdb.connect(file).close()
    with shop.open() as holder, shop.open() as pipeline:
        with duckdb.connect(file, read_only=True):
            with holder.lease(FEED, SHRED):
                _, report = drained(pipeline)
            assert report.stop is Stop.BUSY
            assert f"shred on feed enriched of {NAME} is at work, held by " in report.reason
            assert history(pipeline, 0)[-1] == "shred Processed", "nothing was claimed"
            _, report = drained(pipeline)
            assert report.stop is Stop.HELD, "nobody works: a query that somebody forgot is to be told of"
            assert "End that process, or try again" in report.reason
        assert drained(pipeline)[1].loaded == 1
