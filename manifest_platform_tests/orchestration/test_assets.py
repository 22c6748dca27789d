"""Materializing partitions: for any selection in any order, the manifest decides what happens, and in which order."""

from __future__ import annotations

import pytest

from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.orchestration.code_location import failure
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, break_listing, materializations, records
from manifest_platform_tests.pipeline.shop import keys, run_name, run_names

BOTH = ("shredded", "warehouse")


def test_partitions_are_loaded_in_order(shredded: DagsterShop) -> None:
    shredded.add(0, 1, 2, 3, 4)
    for number in range(3):
        assert shredded.materialize(["warehouse"], number).success
    assert shredded.shop.seen.runs == run_names(0, 1, 2)


@pytest.mark.stores("sqlite", "dynamodb")
def test_an_out_of_order_partition_fails_immediately_and_names_the_next_item(shredded: DagsterShop) -> None:
    shredded.add(0, 1, 2, 3, 4)
    shredded.materialize(["warehouse"], 0)
    before = records(shredded.shop)
    message = failure(shredded.materialize(["warehouse"], 2))
    assert message == (
        f"{run_name(2)} is out of order: {run_name(1)} comes first and is not loaded (it is ready)."
        f" In Dagster: materialize the partition {run_name(1)} of shop/shredded and shop/warehouse first, or launch the job"
        " shop_drain. In a terminal: manifest-platform drain"
    )
    assert records(shredded.shop) == before, "nothing was claimed"
    assert shredded.shop.seen.runs == run_names(0)
    assert shredded.materialized("warehouse") == {run_name(0)}


def test_the_page_shows_the_message_without_a_stack_trace(shredded: DagsterShop) -> None:
    shredded.add(0, 1)
    result = shredded.materialize(["warehouse"], 1)
    [event] = [event for event in result.all_events if event.is_step_failure]
    told = event.step_failure_data
    assert told.error is not None and told.user_failure_data is not None
    assert told.error.message == told.user_failure_data.description == failure(result)
    assert (told.error.stack, told.error.cause, told.error.context) == ([], None, None)
    assert told.error_display_string == failure(result)
    shown = {label: value.value for label, value in told.user_failure_data.metadata.items()}
    assert shown["item"] == run_name(0)
    assert str(shown["in_dagster"]).endswith("or launch the job shop_drain")
    assert shown["in_a_terminal"] == "manifest-platform drain"


def test_a_partition_after_a_failed_item_names_the_reason_and_the_command(shredded: DagsterShop) -> None:
    shredded.add(0, 1)
    break_listing(shredded.shop, 0)
    assert "differ from its listing" in failure(shredded.materialize(["warehouse"], 0))
    message = failure(shredded.materialize(["warehouse"], 1))
    assert f"{run_name(0)} comes first" in message
    assert "differ from its listing" in message
    assert f"Do this first, in a terminal: manifest-platform resolve {run_name(0)}. Then, in Dagster: " in message


def test_an_item_that_is_not_shredded_is_not_loaded(fresh: DagsterShop) -> None:
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 0)
    fresh.add(0)
    message = failure(fresh.materialize(["warehouse"], 0))
    assert "shred has not processed it yet" in message
    assert "In a terminal: manifest-platform drain" in message


@pytest.mark.stores("sqlite", "dynamodb")
def test_an_applied_partition_succeeds_and_changes_nothing(shredded: DagsterShop) -> None:
    shredded.add(0, 1)
    assert shredded.materialize(BOTH, 0, 1).success
    before, seen = records(shredded.shop), shredded.shop.seen
    again = shredded.materialize(BOTH, 0)
    assert again.success
    assert materializations(again, "warehouse") == run_names(0)
    assert shredded.metadata("warehouse", 0)["already"] is True
    assert shredded.metadata("shredded", 0)["already"] is True
    assert records(shredded.shop) == before
    assert shredded.shop.seen == seen


@pytest.mark.stores("sqlite", "dynamodb")
def test_a_range_is_loaded_in_the_manifests_order(shredded: DagsterShop) -> None:
    shredded.add(2, 0, 1, 4, 3)
    assert shredded.materialize(["warehouse"], 2, 3).success
    assert shredded.shop.seen.runs == run_names(0, 1, 2, 3, 4)


@pytest.mark.stores("sqlite", "dynamodb")
def test_a_range_with_a_gap_is_refused_before_any_load(shredded: DagsterShop) -> None:
    shredded.add(2, 0, 1, 4, 3)
    message = failure(shredded.materialize(["warehouse"], 0, 4))  # in Dagster's order: 0, 1, 4
    assert f"{run_name(4)} is out of order: {run_name(2)} comes first" in message
    assert not (shredded.shop.home / "warehouse.duckdb").exists()
    assert shredded.materialized("warehouse") == set()


def test_a_reversed_range_fails(shredded: DagsterShop) -> None:
    shredded.add(0, 1, 2)
    message = failure(shredded.materialize(["warehouse"], 2, 0))
    assert "selects no partition" in message
    assert "must begin with its older end" in message


def test_a_failure_in_the_middle_keeps_earlier_partitions_materialized(shredded: DagsterShop) -> None:
    shredded.add(0, 1, 2, 3, 4)
    break_listing(shredded.shop, 2)
    result = shredded.materialize(["warehouse"], 0, 4)
    assert f"manifest-platform resolve {run_name(2)}" in failure(result)
    assert materializations(result, "warehouse") == run_names(0, 1)
    assert shredded.materialized("warehouse") == set(run_names(0, 1))
    assert shredded.shop.seen.runs == run_names(0, 1)


def test_the_last_partition_of_a_range_fails_with_its_own_reason(shredded: DagsterShop) -> None:
    shredded.add(0, 1)
    break_listing(shredded.shop, 1)
    result = shredded.materialize(["warehouse"], 0, 1)
    [event] = [event for event in result.all_events if event.is_step_failure]
    told = event.step_failure_data.user_failure_data
    assert told is not None
    shown = told.metadata
    assert shown["items"].value == run_name(1)
    assert shown["commands"].value == f"manifest-platform resolve {run_name(1)}"
    assert shredded.materialized("warehouse") == set(run_names(0))


def test_each_partition_has_its_own_metadata(shredded: DagsterShop) -> None:
    shredded.add(0, 1, 2)
    result = shredded.materialize(["warehouse"], 0, 2)
    assert sorted(map(str, materializations(result, "warehouse"))) == run_names(0, 1, 2)
    rows = 0
    for number in range(3):
        shown = shredded.metadata("warehouse", number)
        with shredded.shop.open() as pipeline:
            item = pipeline.manifest.item(keys(pipeline, number)[0])
            record = item.records[-1]
        assert shown["events"] == record.data["rows"]["events"] == 20
        assert shown["rows"] == shown["dagster/partition_row_count"] == sum(record.data["rows"].values())
        assert shown["bytes"] == record.data["bytes"] > 0
        assert shown["seconds"] > 0
        assert shown["requests"] > 0
        assert shown["lag_seconds"] > 0
        assert (shown["late"], shown["already"]) == (False, False)
        rows += shown["rows"]
    assert rows == sum(shredded.shop.seen.rows.values())


def test_shredding_and_loading_in_one_run(fresh: DagsterShop) -> None:
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 0, 1, bad_lines=1)
    fresh.add(1, 0)
    result = fresh.materialize(BOTH, 1, 0)
    assert result.success
    steps = [event.step_key for event in result.all_events if event.is_step_success]
    assert steps.index("shop__shredded") < steps.index("shop__warehouse")
    assert fresh.shop.seen.runs == run_names(0, 1)
    shown = fresh.metadata("shredded", 1)
    assert (shown["lines"], shown["good"], shown["bad"]) == (21, 20, 1)
    assert shown["bytes_read"] > shown["lines"]
    assert shown["bytes_written"] > 0
    assert shown["requests"] > 0


def test_partitions_may_be_shredded_in_any_order(fresh: DagsterShop) -> None:
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 0, 1)
    fresh.add(0, 1)
    assert fresh.materialize(["shredded"], 1).success
    assert fresh.materialized("shredded") == {run_name(1)}


def test_a_failed_shredding_names_the_run_and_the_command(fresh: DagsterShop) -> None:
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 0)
        fresh.shop.land(pipeline, 1, corrupt=True)
    fresh.add(0, 1)
    result = fresh.materialize(BOTH, 0, 1)
    assert f"{run_name(1)}: shred failed" in failure(result)
    assert fresh.materialized("shredded") == {run_name(0)}
    assert fresh.materialized("warehouse") == set(), "the step behind a failed one does not run"


def test_a_partition_unknown_to_the_manifest_is_refused(shredded: DagsterShop) -> None:
    shredded.add(7)
    assert "is it discovered yet?" in failure(shredded.materialize(["warehouse"], 7))


def test_a_partition_that_is_not_a_run_is_refused(shredded: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform_tests.orchestration.dagster_shop.run_name", lambda _number: "yesterday")
    shredded.instance.add_dynamic_partitions("shop_enriched", ["yesterday"])
    assert "'yesterday' is neither a run name (run=YYYY-MM-DD-HH-MM-SS)" in failure(shredded.materialize(["warehouse"], 0))


@pytest.mark.parametrize(("asset", "application"), [("shredded", SHRED), ("warehouse", LOAD)])
def test_a_lease_of_another_worker_fails_the_run(shredded: DagsterShop, asset: str, application: str) -> None:
    shredded.add(0)
    before = records(shredded.shop)
    with shredded.shop.open() as pipeline, pipeline.lease(FEED, application) as lease:
        message = failure(shredded.materialize([asset], 0))
        assert f"{application} on feed enriched is held by" in message
        lease.check()
    assert records(shredded.shop) == before
