"""Assets of your own downstream of a dataset, a partition a day: one in Python, one in dbt.

Both follow what is loaded: once the runs of a day are in the warehouse, the day is made; when a late one comes, made again.
"""

import os
from pathlib import Path

import dagster as dg
from dagster_dbt import DagsterDbtTranslator, DbtCliResource, DbtProject, dbt_assets

from manifest_platform.config import load
from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.days import RunsToDays
from manifest_platform.orchestration.duties import ONE_WRITER
from manifest_platform.orchestration.resources import WarehouseResource

DAYS = dg.DailyPartitionsDefinition(start_date="2024-05-01", end_offset=1)
LOADED = dg.AssetKey(["shop", "warehouse"])
BY_DAY = dg.AssetDep(LOADED, partition_mapping=RunsToDays("snowplow_enriched"))
FOLLOWS = (
    dg.AutomationCondition.any_deps_updated().since_last_handled()
    & ~dg.AutomationCondition.any_deps_missing()
    & ~dg.AutomationCondition.any_deps_in_progress()
    & ~dg.AutomationCondition.in_progress()
).allow(dg.AssetSelection.assets(LOADED))
"""A day is made once all of its runs are loaded, and anew after a late one. A table is no reason: it has no days."""


@dg.asset(key=["shop", "events_a_day"], deps=[BY_DAY], partitions_def=DAYS, automation_condition=FOLLOWS, pool=ONE_WRITER)
def events_a_day(context: dg.AssetExecutionContext, manifest_warehouse: WarehouseResource) -> dg.MaterializeResult:
    """The number of events of a day in the warehouse."""
    days = manifest_warehouse.query("SELECT collector_tstamp::DATE::VARCHAR, count(*) FROM shop.events GROUP BY ALL")
    count = dict(days).get(context.partition_key, 0)
    return dg.MaterializeResult(metadata={"dagster/partition_row_count": count})


class ByDay(DagsterDbtTranslator):
    """dbt's models beside our tables, whose keys the sources name by `meta.dagster.asset_key`; each day follows its runs."""

    def get_asset_spec(self, manifest, unique_id, project):
        """A model depends on its tables, and on the runs that are loaded into them."""
        spec = super().get_asset_spec(manifest, unique_id, project)
        if not unique_id.startswith("model."):
            return spec
        return spec.replace_attributes(deps=[*spec.deps, BY_DAY], automation_condition=FOLLOWS)


os.environ["SHOP_WAREHOUSE"] = load().warehouse.place  # profiles.yml reads it
PROJECT = DbtProject(Path(__file__).parent, target_path=os.environ.get("DBT_TARGET_PATH", "target"))
PROJECT.prepare_if_dev()


@dbt_assets(
    manifest=PROJECT.manifest_path,
    project=PROJECT,
    dagster_dbt_translator=ByDay(),
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.multi_run(1),
    pool=ONE_WRITER,  # DuckDB's file is read while nobody writes it
)
def models(context: dg.AssetExecutionContext, dbt: DbtCliResource):
    """The models of dbt's project, of one day."""
    yield from dbt.cli(["build", "--vars", f"{{day: '{context.partition_key}'}}"], context=context).stream()


defs = dg.Definitions.merge(
    build_defs(),
    dg.Definitions(
        assets=[events_a_day, models],
        resources={"dbt": DbtCliResource(project_dir=PROJECT)},
        sensors=[dg.AutomationConditionSensorDefinition("follow", target="*", use_user_code_server=True)],
    ),
)
