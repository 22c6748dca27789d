"""A code location as Dagster runs it: its definitions, an instance, runs in this process, ticks of its sensor."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from manifest_platform.orchestration import listing
from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.pipeline import Pipeline

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

Result = dg.ExecuteInProcessResult


class CodeLocation:
    """The definitions of a configuration (and a user's own assets), with a Dagster instance."""

    def __init__(
        self, config_file: Path, dataset: str, instance: dg.DagsterInstance, assets: Collection[dg.AssetsDefinition] = ()
    ) -> None:
        self.config_file, self.dataset, self.instance = config_file, dataset, instance
        self.defs = build_defs(config_file, assets=assets)

    def key(self, asset: str) -> dg.AssetKey:
        return dg.AssetKey([self.dataset, *asset.split("/")])

    def run_assets(self, assets: Collection[str], first: str | None = None, last: str | None = None) -> Result:
        """Runs assets for a partition, or for a range as a single-run backfill; for no partition if none is given."""
        options: dict[str, Any] = {"tags": {START: first, END: last}} if last else {"partition_key": first}
        job = self.defs.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance,
            asset_selection=[self.key(asset) for asset in assets],
            raise_on_error=False,
            run_config=QUIET,
            **options,
        )

    def run_job(self, name: str, config: Mapping[str, Any]) -> Result:
        """Runs a job of one op, with the op's configuration."""
        job = self.defs.resolve_job_def(name)
        op = {"ops": {f"{name}_op": {"config": dict(config)}}}
        return job.execute_in_process(instance=self.instance, raise_on_error=False, run_config=QUIET | op)

    def run_checks(self) -> dict[tuple[str, str], dg.AssetCheckEvaluation]:
        """Runs all asset checks; returns them by the path of their asset below the dataset and their name."""
        job = dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks())
        defs = dg.Definitions.merge(self.defs, dg.Definitions(jobs=[job]))
        result = defs.resolve_job_def("checks").execute_in_process(instance=self.instance, run_config=QUIET)
        evaluations = result.get_asset_check_evaluations()
        return {("/".join(one.asset_key.path[1:]), one.check_name): one for one in evaluations}

    def tick(self, cursor: str | None = None) -> dg.SensorResult:
        """Evaluates the listing sensor once, and stores its partitions and events as the daemon does."""
        with dg.build_sensor_context(instance=self.instance, cursor=cursor, resources=self.resources) as context:
            result = self.defs.resolve_sensor_def(f"{self.dataset}_listing_sensor")(context)
        assert isinstance(result, dg.SensorResult)
        for request in result.dynamic_partitions_requests or ():
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self.instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
            else:
                for name in request.partition_keys:
                    self.instance.delete_dynamic_partition(request.partitions_def_name, name)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return result

    @property
    def resources(self) -> dict[str, Any]:
        return {"manifest": ManifestResource(config_file=str(self.config_file))}

    @property
    def sensor_pipeline(self) -> Pipeline:
        """The pipeline that the listing sensor keeps between its ticks."""
        return listing._pipeline(str(self.config_file), self.dataset)

    def materialized(self, asset: str) -> set[str]:
        """Returns the partitions of an asset that Dagster shows as materialized."""
        return self.instance.get_materialized_partitions(self.key(asset))

    def failed(self, asset: str) -> set[str]:
        """Returns the partitions of an asset that Dagster shows as failed."""
        key = self.key(asset)
        partitions = self.defs.resolve_asset_graph().get(key).partitions_def
        found = get_and_update_asset_status_cache_value(self.instance, key, partitions)
        if found is None or partitions is None:
            return set()
        with partition_loading_context(dynamic_partitions_store=self.instance):
            return set(found.deserialize_failed_partition_subsets(partitions).get_partition_keys())

    def shown(self, asset: str, partition: str) -> dict[str, Any]:
        """Returns the metadata of the newest materialization of an asset's partition."""
        found = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=self.key(asset), asset_partitions=[partition]), limit=1
        )
        materialization = found.records[0].asset_materialization
        assert materialization is not None
        return {name: value.value for name, value in materialization.metadata.items()}


def materialized_by(result: Result, key: dg.AssetKey) -> list[str | None]:
    """Returns the partitions of an asset that a run materialized, in the run's order."""
    return [event.partition for event in result.all_events if event.is_step_materialization and event.asset_key == key]


def failure(result: Result) -> str:
    """Returns the message of a run's one failed step, which must be a deliberate failure and not an uncaught exception."""
    assert not result.success
    [event] = [event for event in result.all_events if event.is_step_failure]
    told = event.step_failure_data.user_failure_data
    assert told is not None and told.description, event.step_failure_data.error
    return told.description


def failure_metadata(result: Result) -> dict[str, Any]:
    """Returns the metadata of the failure of a run's one failed step."""
    [event] = [event for event in result.all_events if event.is_step_failure]
    told = event.step_failure_data.user_failure_data
    assert told is not None, event.step_failure_data.error
    return {name: value.value for name, value in told.metadata.items()}


def output(result: Result) -> dict[str, Any]:
    """Returns the metadata of a job's output: its report."""
    [event] = [event for event in result.all_events if event.is_successful_output]
    return {name: value.value for name, value in event.step_output_data.metadata.items()}
