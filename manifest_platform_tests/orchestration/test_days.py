"""Days: a daily asset follows the items of a feed, each by the day in which it begins."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from collections.abc import Set as AbstractSet

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import deserialize_value, serialize_value

from manifest_platform.orchestration.days import RunsToDays
from manifest_platform.orchestration.keys import item_partitions

RUNS = item_partitions("shop", "enriched")
DAYS = dg.DailyPartitionsDefinition(start_date="2024-05-14", end_date="2024-05-18")
FOLLOWS = (
    dg.AutomationCondition.any_deps_updated().since_last_handled()
    & ~dg.AutomationCondition.any_deps_missing()
    & ~dg.AutomationCondition.any_deps_in_progress()
    & ~dg.AutomationCondition.in_progress()
)
FIRST, LAST, NEXT = "run=2024-05-14-12-00-00", "run=2024-05-14-23-50-00", "run=2024-05-15-00-10-00"
LOADED = dg.AssetKey(["shop", "warehouse"])


@dg.asset(key=LOADED, partitions_def=RUNS)
def warehouse() -> None: ...


@dg.asset(
    deps=[dg.AssetDep(LOADED, partition_mapping=RunsToDays("snowplow_enriched"))],
    partitions_def=DAYS,
    automation_condition=FOLLOWS,
)
def daily() -> None: ...


def days_of(names: Collection[str], mapping: RunsToDays, windows: dg.TimeWindowPartitionsDefinition) -> set[str]:
    """Returns the windows of items by the mapping, and asserts that the reverse mapping agrees."""
    with dg.DagsterInstance.ephemeral() as instance, partition_loading_context(dynamic_partitions_store=instance):
        instance.add_dynamic_partitions("shop_enriched", list(names))
        found = mapping.get_downstream_partitions_for_partitions(
            RUNS.subset_with_partition_keys(names), RUNS, windows, dynamic_partitions_store=instance
        )
        back = mapping.get_upstream_mapped_partitions_result_for_partitions(
            found, windows, RUNS, dynamic_partitions_store=instance
        )
        days = set(found.get_partition_keys())
        assert set(back.partitions_subset.get_partition_keys()) <= set(names)
        assert bool(days) == bool(set(back.partitions_subset.get_partition_keys()))
        return days


def test_a_run_belongs_to_the_day_in_which_it_begins() -> None:
    assert days_of([FIRST, LAST], RunsToDays("snowplow_enriched"), DAYS) == {"2024-05-14"}
    assert days_of([LAST, NEXT], RunsToDays("snowplow_enriched"), DAYS) == {"2024-05-14", "2024-05-15"}
    berlin = dg.DailyPartitionsDefinition(start_date="2024-05-14", end_date="2024-05-18", timezone="Europe/Berlin")
    assert days_of([LAST], RunsToDays("snowplow_enriched"), berlin) == {"2024-05-15"}
    hours = dg.HourlyPartitionsDefinition(start_date="2024-05-14-00:00", end_date="2024-05-16-00:00")
    assert days_of([LAST, NEXT], RunsToDays("snowplow_enriched"), hours) == {"2024-05-14-23:00", "2024-05-15-00:00"}


@pytest.mark.parametrize("name", ["run=2024-05-13-23-59-59", "run=2024-05-18-00-00-00", "yesterday"])
def test_items_outside_the_days_or_without_a_time_belong_to_no_day(name: str) -> None:
    assert days_of([name], RunsToDays("snowplow_enriched"), DAYS) == set()


def test_a_window_of_a_vault_belongs_to_the_day_in_which_it_begins() -> None:
    vault = RunsToDays("veeva")
    assert days_of(["incr/stoptime=202405150000"], vault, DAYS) == {"2024-05-14"}
    assert days_of(["incr/stoptime=202405150015"], vault, DAYS) == {"2024-05-15"}
    assert days_of(["log/date=2024-05-16"], vault, DAYS) == {"2024-05-15"}
    assert days_of(["full/date=2024-05-16"], vault, DAYS) == {"2024-05-16"}


def test_the_mapping_refuses_other_partitions() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="upstream must be an asset of a dataset"):
        RunsToDays("snowplow_enriched").validate_partition_mapping(DAYS, DAYS)
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="give the downstream asset a DailyPartitionsDefinition"):
        RunsToDays("snowplow_enriched").validate_partition_mapping(RUNS, RUNS)


def test_the_mapping_is_serializable_and_loads_without_a_warning() -> None:
    assert deserialize_value(serialize_value(RunsToDays("veeva")), RunsToDays) == RunsToDays("veeva")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        warnings.filterwarnings("ignore", "Non-built-in PartitionMappings, such as RunsToDays", DeprecationWarning)
        dg.AssetDep(LOADED, partition_mapping=RunsToDays("snowplow_enriched"))
        dg.AssetIn(LOADED, partition_mapping=RunsToDays("snowplow_enriched"))
    repository = dg.Definitions(assets=[warehouse, daily]).get_repository_def()
    told = serialize_value(RepositorySnap.from_def(repository))
    assert "RunsToDays" not in told, "other processes do not know the class"


def test_a_day_is_materialized_once_its_runs_are_loaded_and_again_after_a_late_run() -> None:
    defs = dg.Definitions(assets=[warehouse, daily])
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("shop_enriched", [FIRST, LAST, NEXT])

        def load(*names: str) -> None:
            for name in names:
                instance.report_runless_asset_event(dg.AssetMaterialization(LOADED, partition=name))

        ticks = [dg.evaluate_automation_conditions(defs=defs, instance=instance)]
        assert ticks[0].total_requested == 0, "a day without runs is not made"

        def requested() -> AbstractSet[str | None]:
            ticks.append(dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=ticks[-1].cursor))
            asked = ticks[-1].get_requested_partitions(daily.key)
            for day in asked:
                instance.report_runless_asset_event(dg.AssetMaterialization(daily.key, partition=day))
            return asked

        load(FIRST)
        assert requested() == set(), "one of the day's runs is still to be loaded"
        load(LAST)
        assert requested() == {"2024-05-14"}
        load(NEXT)
        assert requested() == {"2024-05-15"}
        late = "run=2024-05-14-13-00-00"
        instance.add_dynamic_partitions("shop_enriched", [late])
        load(late)
        assert requested() == {"2024-05-14"}
        assert requested() == set()
