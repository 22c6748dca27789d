"""The drain job: one run for everything that waits, a materialization for every partition, and the reason why it stopped."""

from __future__ import annotations

import re
from typing import Any

import dagster as dg
import pytest

from manifest_platform.orchestration.drain import already_discovered
from manifest_platform.pipeline import LOAD
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.orchestration.code_location import failure, failure_metadata, output
from manifest_platform_tests.orchestration.dagster_shop import (
    DagsterShop,
    break_listing,
    key,
    materializations,
    records,
    resolve,
)
from manifest_platform_tests.pipeline.shop import NAME, run_name, run_names


def _jobs(spark: Any) -> int:
    """Returns the number of jobs that Spark has run. Its status tracker lags behind the caller."""
    return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


def _feed_check(result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    [evaluation] = [one for one in result.get_asset_check_evaluations() if one.check_name == "feed_not_blocked"]
    assert evaluation.asset_key == key("warehouse")
    return evaluation


def _checked(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {one.check_name: one.passed for one in result.get_asset_check_evaluations()}


def test_everything_is_shredded_in_one_job_and_loaded_in_order(fresh: DagsterShop, spark: Any) -> None:
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 3, 1, 0, 2)
    before = _jobs(spark)
    result = fresh.drain()
    assert result.success
    assert _jobs(spark) - before == 1
    assert materializations(result, "shredded") == run_names(0, 1, 2, 3)
    assert materializations(result, "warehouse") == run_names(0, 1, 2, 3)
    assert fresh.shop.seen.runs == run_names(0, 1, 2, 3)
    shown = output(result)
    assert (shown["stop"], shown["shredded"], shown["loaded"], shown["failed"]) == ("idle", 4, 4, 0)
    assert shown["rows"] == sum(fresh.shop.seen.rows.values())
    for asset in ("shredded", "warehouse"):
        metadata = fresh.metadata(asset, 3)
        assert metadata["dagster/partition_row_count"] > 0
        assert metadata["seconds"] > 0
        assert metadata["requests"] > 0
    assert _feed_check(result).passed


def test_every_check_is_evaluated_and_rows_are_counted_from_time_to_time(shredded: DagsterShop) -> None:
    of_the_manifest = {"feed_not_blocked", "lag", "rows_accounted_for", "few_bad_rows", "nothing_behind_watermark"}
    of_the_manifest |= {"tables_fit_their_schemas"}
    assert _checked(shredded.drain(max_items=2)) == dict.fromkeys(of_the_manifest | {"rows_in_warehouse"}, True)
    assert _checked(shredded.drain()) == dict.fromkeys(of_the_manifest, True)


def test_a_drain_with_nothing_to_do_succeeds_without_spark(shredded: DagsterShop, spark: Any) -> None:
    shredded.drain()
    jobs, before = _jobs(spark), records(shredded.shop)
    result = shredded.drain()
    assert output(result)["stop"] == "idle"
    assert (_jobs(spark), records(shredded.shop)) == (jobs, before)


@pytest.mark.parametrize("discovers", [True, False])
def test_a_drain_registers_and_shows_what_has_landed_unless_the_sensor_did(fresh: DagsterShop, discovers: bool) -> None:
    fresh.shop.write(0, 1)
    config = already_discovered(f"{NAME}_drain")["ops"][f"{NAME}_drain_op"]["config"] if not discovers else {}
    result = fresh.drain(max_seconds=0.000001, **config)  # Spark is not needed
    there = run_names(0, 1) if discovers else []
    assert (materializations(result, "enriched_runs"), fresh.partitions()) == (there, there)
    [asked] = fresh.tick().run_requests or []
    assert asked.run_config == already_discovered(f"{NAME}_drain")


def test_an_unlistable_landing_root_fails_the_run_after_registered_items_are_loaded(shredded: DagsterShop) -> None:
    settings = shredded.shop.config_file
    settings.write_text(re.sub(r"root: .*/landing", "root: /nowhere", settings.read_text()))
    result = shredded.drain()
    assert re.match(
        "datasets.shop.landing.root: landing root /nowhere does not exist; .*"
        " Directories that were registered before are still processed",
        failure(result),
    )
    assert len(materializations(result, "warehouse")) == 5


@pytest.mark.stores("sqlite", "dynamodb")
def test_a_block_fails_the_run_with_its_cause_and_its_partition(shredded: DagsterShop) -> None:
    shredded.add(*range(5))
    break_listing(shredded.shop, 1)
    result = shredded.drain()
    assert failure(result).startswith(f"Blocked by {run_name(1)}: ")
    assert failure(result).endswith(f" Do: manifest-platform resolve {run_name(1)}")
    assert (shredded.failed("shredded"), shredded.failed("warehouse")) == (set(), {run_name(1)})
    shown = failure_metadata(result)
    assert (shown["stop"], shown["item"], shown["loaded"]) == ("blocked", run_name(1), 1)
    assert "differ from its listing" in shown["reason"]
    assert shown["command"] == f"manifest-platform resolve {run_name(1)}"
    evaluation = _feed_check(result)
    assert not evaluation.passed
    assert evaluation.metadata["item"].value == run_name(1)
    assert evaluation.metadata["command"].value == shown["command"]
    assert "differ from its listing" in str(evaluation.description)
    assert materializations(result, "warehouse") == run_names(0)


def test_each_cause_of_a_block_fails_one_run(fresh: DagsterShop) -> None:
    fresh.add(0, 1, 2)
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 0, corrupt=True)
    assert not fresh.drain().success
    assert fresh.failed("shredded") == {run_name(0)}
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 1)
    again = fresh.drain()
    assert output(again)["stop"] == "blocked", "what lands behind a known block is no new alarm"
    assert not _feed_check(again).passed
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 2, corrupt=True)
    behind = fresh.drain()
    assert failure(behind).startswith(f"{run_name(2)}: shred failed: ")
    assert run_name(0) not in failure(behind)
    assert fresh.failed("shredded") == {run_name(0), run_name(2)}
    resolve(fresh.shop, 0)
    assert not fresh.drain().success, "it failed anew"


def test_a_failed_partition_turns_green_when_a_drain_loads_it(shredded: DagsterShop) -> None:
    shredded.add(*range(5))
    was_there = break_listing(shredded.shop, 1)
    assert not shredded.drain().success
    assert shredded.failed("warehouse") == {run_name(1)}
    was_there()
    resolve(shredded.shop, 1)
    assert shredded.drain().success
    assert shredded.failed("warehouse") == set()


def test_a_resolved_item_is_tried_again(fresh: DagsterShop) -> None:
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 0, corrupt=True)
        fresh.shop.land(pipeline, 1)
        assert failure_metadata(fresh.drain())["stop"] == "blocked"
        assert fresh.materialized("shredded") == {run_name(1)}
    resolve(fresh.shop, 0)
    shown = failure_metadata(fresh.drain())
    assert (shown["stop"], shown["failed"]) == ("blocked", 1)


def test_a_budget_of_items_ends_the_run(shredded: DagsterShop) -> None:
    result = shredded.drain(max_items=2)
    assert output(result)["stop"] == "budget of items"
    assert shredded.shop.seen.runs == run_names(0, 1)


def test_a_budget_of_seconds_ends_the_run(shredded: DagsterShop) -> None:
    result = shredded.drain(max_seconds=0.000001)
    assert output(result)["stop"] == "budget of seconds"
    assert not materializations(result, "warehouse")


def test_a_warehouse_that_cannot_be_opened_fails_the_run(shredded: DagsterShop) -> None:
    (shredded.shop.home / "warehouse.duckdb").mkdir()
    result = shredded.drain()
    assert failure(result).startswith("Nothing was begun. Fix the configuration first:\nwarehouse.path: ")
    with shredded.shop.open() as pipeline:
        assert len(list(pipeline.manifest.items("enriched"))) == 5


@pytest.mark.stores("sqlite", "dynamodb")
def test_a_second_drain_leaves_the_first_alone(shredded: DagsterShop) -> None:
    with shredded.shop.open() as pipeline, pipeline.lease(FEED, LOAD) as lease:
        result = shredded.drain()
        lease.check()
    assert output(result)["stop"] == "busy"
    assert not materializations(result, "warehouse")


def test_an_empty_run_is_loaded(fresh: DagsterShop) -> None:
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 0, events=0)
    result = fresh.drain()
    assert result.success
    assert fresh.shop.seen.runs == run_names(0)
    assert fresh.metadata("warehouse", 0)["rows"] == 0
