"""Several targets in Dagster: an asset, tables and checks for each, one drain for all."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from manifest_platform.config import load
from manifest_platform.manifest.dataset import Mode
from manifest_platform.orchestration.duties import ONE_WRITER, feed_pool
from manifest_platform.orchestration.feed_checks import NOT_BLOCKED
from manifest_platform.orchestration.full import NO_FULL_LOAD
from manifest_platform.orchestration.keys import Names, item_partitions
from manifest_platform.orchestration.listing import Remembered
from manifest_platform.orchestration.own_assets import IO_MANAGER
from manifest_platform.orchestration.remedies import pressed
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.drain import drain
from manifest_platform.pipeline.work import FOLLOW
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.sources.source import open_source
from manifest_platform_tests.orchestration.code_location import failure
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, key, materializations
from manifest_platform_tests.orchestration.dagster_ward import DagsterWard
from manifest_platform_tests.pipeline.shop import NAME, Shop, drained, no_spark, run_name, run_names
from manifest_platform_tests.sources.veeva.ward import ward as vault

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
    assert graph.get(key("lab")).metadata["place"] == dg.MetadataValue.path(str(two.shop.home / "lab.duckdb"))
    assert graph.get(key("overview")).parent_keys == {key("warehouse"), key("lab")}
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


def test_a_tick_leaves_to_a_follower_its_own_target_only(two: DagsterShop) -> None:
    with two.shop.open() as pipeline:
        for place, others in (
            ("lab/", ["load"]),
            ("warehouse/", ["load:lab"]),
            ("/enriched", []),
            ("0", []),
            ("lab/other", None),
        ):
            with pipeline.manifest.hold(FOLLOW, place, "follower", timedelta(minutes=1)):
                work = Remembered.from_json(two.tick().cursor).asked[f"{NAME}_drain"].work
            wanted = ["load", "load:lab"] if others is None else others
            assert work == "; ".join(f"{one} {run_name(0)} 3" for one in wanted), place


def test_targets_that_take_one_writer_share_its_pool(two: DagsterShop) -> None:
    config = load(two.shop.config_file)
    source = open_source(NAME, config.datasets[NAME])
    assert feed_pool(config, source, FEED, "lab") == feed_pool(config, source, FEED) == ONE_WRITER


def _drained(pipeline: Pipeline, target: str) -> None:
    assert [*drain(pipeline, no_spark, targets=[target])]


def test_a_drain_is_requested_for_the_target_that_is_behind(two: DagsterShop) -> None:
    with two.shop.open() as pipeline:
        _drained(pipeline, "warehouse")
    first = two.tick()
    assert [one.job_name for one in first.run_requests or ()] == [f"{NAME}_drain"]
    assert Remembered.from_json(str(first.cursor)).asked[f"{NAME}_drain"].work.startswith("load:lab")
    assert two.drain().success
    assert two.tick(first.cursor).run_requests == []


def test_loads_outside_dagster_are_reported_for_each_target_with_its_tables(two: DagsterShop) -> None:
    with two.shop.open() as pipeline:
        drained(pipeline)
    told = [one for one in two.tick().asset_events if isinstance(one, dg.AssetMaterialization)]
    rows = {one.asset_key: int(str(one.metadata["rows_loaded"].value)) for one in told if "rows_loaded" in one.metadata}
    assert rows[key("lab/events")] == rows[key("warehouse/events")] > 0
    assert {one.partition for one in told if one.asset_key == key("lab")} == set(run_names(*range(5)))


def test_the_overview_shows_each_target(two: DagsterShop) -> None:
    with two.shop.open() as pipeline:
        _drained(pipeline, "lab")
    told = [one for one in two.tick().asset_events if isinstance(one, dg.AssetMaterialization)]
    [shown] = [one.metadata for one in told if one.asset_key == key("overview")]
    upto = {name: value.value for name, value in shown.items() if name.startswith("loaded up to")}
    assert upto == {"loaded up to: warehouse": "nothing yet", "loaded up to: lab": run_name(4)}
    assert f"| enriched | lab | {run_name(4)} | 5 | no |" in str(shown["overview"].value)


def _own(name: str, **reading: Any) -> dg.AssetsDefinition:
    """Returns an asset of a user on the second target's loads."""

    @dg.asset(key=key(name), partitions_def=item_partitions(NAME, FEED), io_manager_key=IO_MANAGER, **reading)
    def own(events: DataFrame) -> DataFrame:
        return events.select("event_id")

    return own


@pytest.mark.parametrize(
    "reading",
    [
        {"ins": {"events": dg.AssetIn(key("lab"))}},
        {"ins": {"events": dg.AssetIn(key("shredded"))}, "deps": [key("lab")]},
    ],
    ids=["read", "unread"],
)
def test_an_asset_on_a_further_target_waits_for_it_and_is_made_from_it(two: DagsterShop, reading: dict[str, Any]) -> None:
    dagster = DagsterShop(two.shop, two.instance, [_own("ids", **reading)])
    dagster.add(0)
    dagster.materialize(["warehouse"], 0)
    assert not dagster.materialize(["ids"], 0).success
    assert dagster.materialize(["lab"], 0).success
    assert dagster.materialize(["ids"], 0).success
    assert "load:lab" in dagster.metadata("ids", 0)["made_from"]


@pytest.fixture
def ward(tmp_path: Path, instance: dg.DagsterInstance) -> DagsterWard:
    """A vault with two targets and a snapshot, shredded; nothing is loaded."""
    made = vault.Ward(tmp_path, targets=LAB)
    with made.open() as pipeline:
        vault.land(pipeline, vault.full("0000"))
    return DagsterWard(made, instance)


def test_a_full_load_is_begun_and_cancelled_in_the_named_target(ward: DagsterWard) -> None:
    assert ward.begin(item="latest", target="lab").success
    assert _modes(ward) == {"warehouse": Mode.INCREMENTAL, "lab": Mode.FULL_LOAD}
    assert ward.cancel(target="lab").success
    assert _modes(ward) == {"warehouse": Mode.INCREMENTAL, "lab": Mode.INCREMENTAL}


def test_a_full_load_asks_for_the_target_if_there_are_several(ward: DagsterWard) -> None:
    message = "the dataset has several targets; name one as target: warehouse, lab"
    assert message in failure(ward.begin(item="latest"))
    assert message in failure(ward.cancel())
    assert "has no target 'nowhere'; its targets are: warehouse, lab" in failure(ward.begin(item="latest", target="nowhere"))
    assert set(_modes(ward).values()) == {Mode.INCREMENTAL}


def test_a_needed_full_load_is_a_check_of_each_target(ward: DagsterWard) -> None:
    assert ward.begin(item="latest", target="warehouse").success
    assert ward.drain().success
    shown = {asset.rpartition("/")[2]: one for (asset, name), one in ward.run_checks().items() if name == NO_FULL_LOAD}
    assert (shown["warehouse"].passed, shown["lab"].passed) == (True, False)
    assert shown["lab"].metadata["command"].value == "manifest-platform full begin latest --target lab"


def _modes(ward: DagsterWard) -> dict[str, Mode]:
    with ward.ward.open() as pipeline:
        return {one.target: pipeline.manifest.state(one.load).mode for one in pipeline.each_target()}


@pytest.mark.parametrize(
    ("remedy", "press"),
    [
        (Remedy(Action.BEGIN_FULL_LOAD), "vault_full_begin, with target: warehouse"),
        (Remedy(Action.LOAD_SNAPSHOT, item="a", target="lab"), "vault_full_begin, with item: a, target: lab"),
        (Remedy(Action.CANCEL_FULL_LOAD, target="lab"), "vault_full_cancel, with target: lab"),
    ],
)
def test_the_job_of_a_remedy_is_launched_with_its_target(ward: DagsterWard, remedy: Remedy, press: str) -> None:
    with ward.ward.open() as pipeline:
        assert pressed(remedy, pipeline, Names(pipeline.config, pipeline.source)) == f"launch the job {press}"
