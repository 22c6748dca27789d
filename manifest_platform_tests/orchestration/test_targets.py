"""Several targets in Dagster: an asset, tables and checks for each, one drain for all."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest

from manifest_platform.config import load
from manifest_platform.orchestration.duties import ONE_WRITER, feed_pool
from manifest_platform.orchestration.feed_checks import NOT_BLOCKED
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.sources.source import open_source
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, key, materializations
from manifest_platform_tests.pipeline.shop import NAME, Shop, run_names

LAB = {"lab": {"kind": "duckdb", "path": "lab.duckdb"}}


@pytest.fixture
def two(prepared: Shop, tmp_path: Path, instance: dg.DagsterInstance) -> DagsterShop:
    """A shop with five shredded runs and two targets."""
    shred = {"output": str(prepared.home / "shredded"), "bad_rows": {"max_count": 0, "max_share": 0.5}}
    shop = Shop(tmp_path, landing={"root": str(prepared.home / "landing")}, shred=shred, targets=LAB)
    shutil.copy(prepared.home / "manifest.db", tmp_path)
    return DagsterShop(shop, instance)


def test_each_target_has_its_asset_and_tables_and_checks(two: DagsterShop) -> None:
    graph = two.defs.resolve_asset_graph()
    assert {key("warehouse"), key("lab"), key("warehouse/events"), key("lab/events")} <= graph.get_all_asset_keys()
    assert graph.get(key("lab")).parent_keys == graph.get(key("warehouse")).parent_keys == {key("shredded")}
    assert graph.get(key("lab")).metadata["place"] == str(two.shop.home / "lab.duckdb")
    checks = {(one.asset_key, one.name) for one in graph.asset_check_keys}
    assert {(key("lab"), NOT_BLOCKED), (key("warehouse"), NOT_BLOCKED)} <= checks
    assert (key("shredded"), "few_bad_rows") in checks


def test_materializing_a_targets_asset_loads_only_that_target(two: DagsterShop) -> None:
    two.add(0, 1)
    result = two.materialize(["lab"], 0, 1)
    assert sorted(map(str, materializations(result, "lab"))) == run_names(0, 1)
    with two.shop.open() as pipeline:
        applied = {one.target: pipeline.manifest.state(one.load).feed(FEED).applied for one in pipeline.each_target()}
    assert applied == {"warehouse": 0, "lab": 2}


def test_a_drain_loads_all_targets_and_one_that_is_down_fails_the_run_alone(two: DagsterShop) -> None:
    two.add(*range(5))
    (two.shop.home / "lab.duckdb").mkdir()  # the second target is down
    result = two.drain()
    assert not result.success
    assert materializations(result, "warehouse") == run_names(*range(5))
    assert materializations(result, "lab") == []
    (two.shop.home / "lab.duckdb").rmdir()
    result = two.drain()
    assert result.success
    assert materializations(result, "lab") == run_names(*range(5))


def test_targets_that_take_one_writer_share_its_pool(two: DagsterShop) -> None:
    config = load(two.shop.config_file)
    source = open_source(NAME, config.datasets[NAME])
    assert feed_pool(config, source, FEED, "lab") == feed_pool(config, source, FEED) == ONE_WRITER
