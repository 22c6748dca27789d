"""A shop as Dagster sees it: the definitions of its configuration, an instance, runs in this process, ticks of its sensor.

What is run here is what users run: the whole code location with real Spark, SQLite and DuckDB.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from typing import Any

import dagster as dg

from manifest_platform.manifest import Ready
from manifest_platform.orchestration import sensors
from manifest_platform.orchestration.assets import run_partitions
from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.pipeline import FEED, LOAD, Pipeline
from manifest_platform_tests.pipeline.shop import NAME, Shop, keys, run_name, run_names

PARTITIONS = str(run_partitions(NAME).name)
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

Result = dg.ExecuteInProcessResult


def key(asset: str) -> dg.AssetKey:
    return dg.AssetKey([NAME, *asset.split("/")])


class DagsterShop:
    """A shop with its definitions (and a user's own assets) and a Dagster instance; its partitions are added by number."""

    def __init__(self, shop: Shop, instance: dg.DagsterInstance, assets: Collection[dg.AssetsDefinition] = ()) -> None:
        self.shop, self.instance = shop, instance
        self.defs = dg.Definitions.merge(build_defs(shop.config_file), dg.Definitions(assets=list(assets)))

    def add(self, *numbers: int) -> None:
        """Partitions, in this order of insertion, which is Dagster's order."""
        self.instance.add_dynamic_partitions(PARTITIONS, run_names(*numbers))

    def materialize(self, assets: Collection[str], first: int, last: int | None = None) -> Result:
        """A run of one partition, or of a range as a backfill in a single run makes it."""
        if last is None:
            return self._run([key(asset) for asset in assets], partition_key=run_name(first))
        tags = {START: run_name(first), END: run_name(last)}
        return self._run([key(asset) for asset in assets], tags=tags)

    def _run(self, selection: list[dg.AssetKey], **options: Any) -> Result:
        job = self.defs.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance, asset_selection=selection, raise_on_error=False, run_config=QUIET, **options
        )

    def drain(self, **config: Any) -> Result:
        """A run of the drain job."""
        op = {"ops": {f"{NAME}_drain_op": {"config": config}}}
        job = self.defs.resolve_job_def(f"{NAME}_drain")
        return job.execute_in_process(instance=self.instance, raise_on_error=False, run_config=QUIET | op)

    def checks(self) -> dict[str, dg.AssetCheckEvaluation]:
        """All asset checks, run now."""
        checked = [key("warehouse"), key("shredded")]
        job = dg.define_asset_job("checks", selection=dg.AssetSelection.checks_for_assets(*checked))
        defs = dg.Definitions.merge(self.defs, dg.Definitions(jobs=[job]))
        result = defs.resolve_job_def("checks").execute_in_process(instance=self.instance, run_config=QUIET)
        return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}

    def tick(self, cursor: str | None = None) -> dg.SensorResult:
        """A tick of the listing sensor, its partitions and events stored as the daemon stores them."""
        with dg.build_sensor_context(instance=self.instance, cursor=cursor, resources=self.resources) as context:
            result = self.defs.resolve_sensor_def(f"{NAME}_listing_sensor")(context)
        assert isinstance(result, dg.SensorResult)
        for request in result.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return result

    @property
    def resources(self) -> dict[str, Any]:
        return {"manifest": ManifestResource(config_file=str(self.shop.config_file))}

    @property
    def sensor_pipeline(self) -> Pipeline:
        """The pipeline that the listing sensor keeps between its ticks."""
        return sensors._pipeline(str(self.shop.config_file), NAME)

    def partitions(self) -> list[str]:
        return list(self.instance.get_dynamic_partitions(PARTITIONS))

    def materialized(self, asset: str) -> set[str]:
        """The partitions of an asset that Dagster shows as materialized."""
        return self.instance.get_materialized_partitions(key(asset))

    def metadata(self, asset: str, number: int) -> dict[str, Any]:
        """The metadata of the newest materialization of an asset's partition."""
        found = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=key(asset), asset_partitions=[run_name(number)]), limit=1
        )
        materialization = found.records[0].asset_materialization
        assert materialization is not None
        return {name: value.value for name, value in materialization.metadata.items()}


def materializations(result: Result, asset: str) -> list[str | None]:
    """The partitions of an asset that a run materialized, in its order."""
    return [event.partition for event in result.all_events if event.is_step_materialization and event.asset_key == key(asset)]


def failure(result: Result) -> str:
    """Why the run's one failed step failed: on purpose, in words for people, and not by an exception that got away."""
    assert not result.success
    [event] = [event for event in result.all_events if event.is_step_failure]
    told = event.step_failure_data.user_failure_data
    assert told is not None and told.description, event.step_failure_data.error
    return told.description


def drain_output(result: Result) -> dict[str, Any]:
    """The metadata of the drain's output: its report."""
    [event] = [event for event in result.all_events if event.is_successful_output]
    return {name: value.value for name, value in event.step_output_data.metadata.items()}


def records(shop: Shop) -> int:
    """How many records the log has."""
    with shop.open() as pipeline:
        return sum(len(item.records) for item in pipeline.manifest.items(FEED))


def tamper(shop: Shop, number: int, application: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the payload of what an application made of an item, behind the manifest's back."""
    with closing(sqlite3.connect(shop.home / "manifest.db")) as store, store:
        for sort, record in _rows(store, number):
            if record["state"] == "Processed" and record["application"]["name"] == application:
                change(record["payload"]["data"])
                store.execute("UPDATE manifest SET data = ? WHERE sort = ?", (json.dumps(record), sort))
                return
    raise AssertionError(f"{application} has not processed {run_name(number)}")


def _rows(store: sqlite3.Connection, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    found = store.execute("SELECT sort, data FROM manifest WHERE sort LIKE 'RECORD#%'").fetchall()
    return ((sort, json.loads(data)) for sort, data in found if run_name(number) in sort)


def break_listing(shop: Shop, number: int) -> None:
    """Makes the load of a shredded item fail for good: what it wrote cannot be found."""
    tamper(shop, number, "shred", lambda data: data.update(listing=f"file://{shop.home}/nowhere.json"))


def resolve(shop: Shop, number: int) -> None:
    with shop.open() as pipeline:
        pipeline.manifest.resolve(keys(pipeline, number)[0], "tried again")


def next_ready(pipeline: Pipeline) -> Ready:
    """The item that is to be loaded next, as the holder of the lease learns it."""
    verdict = pipeline.manifest.next(FEED, LOAD, holding=True)
    assert isinstance(verdict, Ready)
    return verdict
