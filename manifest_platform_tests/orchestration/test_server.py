"""Dagster as users run it, with a shop: a webserver, a daemon and run workers, driven through GraphQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.orchestration.conftest import STRICT
from manifest_platform_tests.orchestration.dagster_server import Server, message
from manifest_platform_tests.pipeline.shop import NAME, Shop, run_name, run_names

pytestmark = pytest.mark.long


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop", shred=STRICT)


@pytest.fixture
def server(shop: Shop, tmp_path: Path) -> Iterator[Server]:
    started = Server(shop.config_file, NAME, tmp_path / "dagster")
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.mark.timeout(400)
def test_dagster_discovers_drains_refuses_and_backfills(server: Server, shop: Shop) -> None:
    # Landed runs are discovered, shredded and loaded automatically.
    shop.write(0, 1)
    server.until("the drain", lambda: server.loaded() == run_names(0, 1))
    assert shop.seen.runs == run_names(0, 1)
    server.until("the end of the drain", lambda: _all_succeeded(server))

    # The new tables appear with their columns, although the code location was loaded before they existed.
    events = server.until("the table", lambda: server.table("events"))
    assert {"rows_loaded", "dagster/table_name", "dagster/column_schema"} < events
    assert set(server.tables()) >= {name for name, rows in shop.seen.rows.items() if rows}

    # From here on people act, and Dagster gets the partitions in another order than the manifest's.
    server.stop_sensor()
    with shop.open() as pipeline:
        shop.land(pipeline, 2, 3, 4)
    for number in (4, 8, 2, 9, 3):
        server.add_partition(FEED, run_name(number))
    refused, done = server.materialize("warehouse", run_name(3), run_name(1))
    told = message(refused)
    assert f"{run_name(3)} is out of order: {run_name(2)} comes first" in told
    assert "shred has not processed it yet" in told
    assert f"In Dagster: materialize the partition {run_name(2)} of shop/shredded and shop/warehouse first" in told
    assert "Stack Trace" not in told
    assert done["status"] == "SUCCESS", "it is loaded: nothing to do"

    # A backfill that is no range in Dagster's order: a run for each part, in any order, and none fails for being early.
    runs = server.backfill(["shredded", "warehouse"], *run_names(2, 3, 4))
    assert [run["status"] for run in runs] == ["SUCCESS"] * 3
    assert shop.seen.runs == run_names(0, 1, 2, 3, 4)
    assert server.loaded() == run_names(0, 1, 2, 3, 4)


def _all_succeeded(server: Server) -> bool:
    runs = server.runs()
    assert {run["jobName"] for run in runs} == {f"{NAME}_drain"}
    return {run["status"] for run in runs} == {"SUCCESS"}
