"""Backfills: for any selection, and however Dagster splits it into runs, the result follows the manifest's order."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import dagster as dg
import pytest
from dagster._core.definitions.assets.graph.asset_graph_subset import AssetGraphSubset
from dagster._core.definitions.automation_tick_evaluation_context import build_run_requests_with_backfill_policies
from dagster._core.definitions.events import AssetKeyPartitionKey
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.execution.backfill import PartitionBackfill
from dagster._time import get_current_timestamp

from manifest_platform_tests.orchestration.code_location import QUIET, Result, failure
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, break_listing, key, materializations
from manifest_platform_tests.pipeline.shop import run_name, run_names

BOTH = ("shredded", "warehouse")


class Backfill:
    """A backfill of some assets' partitions, with a run for each range without a gap, as Dagster makes them."""

    def __init__(self, shop: DagsterShop, assets: Collection[str], numbers: Collection[int], name: str = "backfill") -> None:
        self.shop, self.name = shop, name
        graph = shop.defs.resolve_asset_graph()
        chosen = {AssetKeyPartitionKey(key(asset), run) for asset in assets for run in run_names(*numbers)}
        subset = AssetGraphSubset.from_asset_partition_set(chosen, graph)
        shop.instance.add_backfill(
            PartitionBackfill.from_asset_graph_subset(
                name, get_current_timestamp(), {}, shop.instance, subset, None, None, None
            )
        )
        with partition_loading_context(dynamic_partitions_store=shop.instance):
            self.requests: Sequence[dg.RunRequest] = build_run_requests_with_backfill_policies(chosen, graph, shop.instance)

    def run(self, request: dg.RunRequest) -> Result:
        """Executes one of its runs."""
        job = self.shop.defs.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.shop.instance,
            asset_selection=list(request.asset_selection or ()),
            tags={**request.tags, "dagster/backfill": self.name},
            raise_on_error=False,
            run_config=QUIET,
        )

    def ranges(self) -> list[tuple[str, str]]:
        """Returns the first and the last partition of each run."""
        start, end = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
        return [(request.tags[start], request.tags[end]) for request in self.requests]


@pytest.mark.parametrize("seed", range(3))
def test_any_backfill_in_any_split_ends_in_the_manifests_order(shredded: DagsterShop, seed: int) -> None:
    dice = random.Random(seed)
    shredded.add(*dice.sample(range(5), 5))  # the order of insertion decides how Dagster splits
    chosen = dice.sample(range(dice.randint(3, 5)), dice.randint(3, 3))
    chosen = list(range(max(chosen) + 1)) if dice.random() < 0.7 else sorted(chosen)
    backfill = Backfill(shredded, ["warehouse"], chosen)
    results = [backfill.run(request) for request in dice.sample(list(backfill.requests), len(backfill.requests))]
    if chosen == list(range(len(chosen))):
        assert all(result.success for result in results), backfill.ranges()
        assert shredded.shop.seen.runs == run_names(*chosen)
        assert shredded.materialized("warehouse") == set(run_names(*chosen))
    else:
        assert {"comes first" in failure(result) for result in results} == {True}
        assert shredded.materialized("warehouse") == set()


def test_an_early_run_of_a_backfill_also_does_the_items_before_it(shredded: DagsterShop) -> None:
    shredded.add(0, 3, 1, 4, 2)  # 1, 2 and 3 are not a range: two runs
    backfill = Backfill(shredded, ["warehouse"], [0, 1, 2])
    assert sorted(backfill.ranges()) == [(run, run) for run in run_names(0, 1, 2)]
    by_start = dict(zip([start for start, _ in backfill.ranges()], backfill.requests, strict=True))
    last = backfill.run(by_start[run_name(2)])
    assert last.success
    assert shredded.shop.seen.runs == run_names(0, 1, 2)
    assert sorted(map(str, materializations(last, "warehouse"))) == run_names(0, 1, 2)
    assert "loaded: " in shredded.metadata("warehouse", 0)["happened"]
    first = backfill.run(by_start[run_name(0)])
    assert first.success
    assert shredded.metadata("warehouse", 0)["already"] is True
    assert shredded.metadata("warehouse", 0)["happened"] == "is in the warehouse already: nothing was done"
    assert shredded.shop.seen.runs == run_names(0, 1, 2)


def test_shredding_and_loading_together(fresh: DagsterShop) -> None:
    with fresh.shop.open() as pipeline:
        fresh.shop.land(pipeline, 0, 1, 2)
    fresh.add(0, 3, 1, 4, 2)
    backfill = Backfill(fresh, BOTH, [0, 1, 2])
    assert len(backfill.requests) == 3
    assert [backfill.run(request).success for request in reversed(backfill.requests)] == [True, True, True]
    assert fresh.shop.seen.runs == run_names(0, 1, 2)
    assert fresh.materialized("shredded") == fresh.materialized("warehouse") == set(run_names(0, 1, 2))


def test_a_failure_in_the_middle_fails_only_later_runs(shredded: DagsterShop) -> None:
    shredded.add(0, 5, 1, 6, 2, 7, 3)
    break_listing(shredded.shop, 1)
    backfill = Backfill(shredded, ["warehouse"], [0, 1, 2])
    zeroth, first, second = sorted(backfill.requests, key=lambda one: str(one.tags))
    assert f"{run_name(1)} blocks the feed" in failure(backfill.run(second))
    assert shredded.shop.seen.runs == run_names(0), "all that comes before the failure is done"
    assert backfill.run(zeroth).success
    assert f"manifest-platform resolve {run_name(1)}" in failure(backfill.run(first))
    assert shredded.materialized("warehouse") == {run_name(0)}
    assert shredded.shop.seen.runs == run_names(0)


def test_applied_and_skipped_items_are_not_gaps_of_a_backfill(shredded: DagsterShop) -> None:
    shredded.add(0, 5, 1, 6, 2, 7, 3)
    assert shredded.materialize(["warehouse"], 0).success
    with shredded.shop.open() as pipeline:
        pipeline.manifest.skip(pipeline.key(run_name(2)), "not wanted")
    backfill = Backfill(shredded, ["warehouse"], [0, 1, 2, 3])
    assert [backfill.run(request).success for request in reversed(backfill.requests)] == [True] * 4
    assert shredded.shop.seen.runs == run_names(0, 1, 3)
    assert shredded.metadata("warehouse", 2)["happened"] == "is passed over: not wanted"


def test_a_backfill_with_a_gap_names_the_next_item(shredded: DagsterShop) -> None:
    shredded.add(0, 1, 2, 3, 4)
    backfill = Backfill(shredded, ["warehouse"], [0, 1, 4])
    for request in reversed(backfill.requests):
        message = failure(backfill.run(request))
        assert f"{run_name(4)} is out of order: {run_name(2)} comes first and is not loaded" in message
    assert not (shredded.shop.home / "warehouse.duckdb").exists()


def test_a_backfill_that_dagster_has_forgotten_leaves_the_run_its_own_partitions(shredded: DagsterShop) -> None:
    shredded.add(0, 1, 2)
    backfill = Backfill(shredded, ["warehouse"], [0])
    backfill.name = "forgotten"
    assert backfill.run(backfill.requests[0]).success
