"""The assets of a dataset: enriched_runs → shredded → warehouse, and every table that was loaded.

Dagster orders dynamic partitions by insertion and checks neither order nor holes. So what a run was asked for is a set of
partitions, nothing more: the manifest orders it, refuses what does not fit, and makes a no-op of what is done.
"""

import logging
from collections.abc import Iterator
from typing import Any

import dagster as dg

from manifest_platform.config import Config
from manifest_platform.landing.errors import LandingError
from manifest_platform.manifest import ItemKey, Refused, StoreError
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.resources import ManifestResource, SparkResource
from manifest_platform.pipeline import (
    FEED,
    Event,
    ItemFailed,
    Loaded,
    Pipeline,
    Shredded,
    load_chosen,
    shred_chosen,
)
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import WarehouseError

log = logging.getLogger(__name__)

RECENT_RECORDS = 1000
DATASET_TAG = "manifest_platform/dataset"

NO_VALUE: Any = dg.Nothing  # the assets write by themselves, nothing is handed to an IO manager


def run_partitions(dataset: str) -> dg.DynamicPartitionsDefinition:
    """The partition set of a dataset's enriched feed: one partition a run directory, by its name."""
    return dg.DynamicPartitionsDefinition(name=f"{dataset}_{FEED}")


def build_assets(config: Config, dataset: str) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """The assets of one dataset, in one group, all owned by the dataset's owner."""
    partitions = run_partitions(dataset)
    owners = [config.datasets[dataset].owner]
    storage_kind = "s3" if config.datasets[dataset].landing.root.startswith("s3://") else "file"
    enriched_runs = dg.AssetSpec(
        [dataset, "enriched_runs"],
        description="Run directories of Snowplow enriched events, registered in the manifest as soon as they are complete.",
        partitions_def=partitions,
        group_name=dataset,
        owners=owners,
        kinds={"snowplow", storage_kind},
    )

    @dg.asset(
        key=[dataset, "shredded"],
        deps=[enriched_runs],
        description="Typed Parquet of every run: the events, one table an entity type, and the bad rows.",
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=dataset,
        owners=owners,
        kinds={"pyspark", "parquet"},
        pool=dataset,
        dagster_type=NO_VALUE,
    )
    def shredded(context: dg.AssetExecutionContext, manifest: ManifestResource, spark: SparkResource) -> Iterator:
        with manifest.pipeline(dataset, context.run.run_id) as pipeline:
            keys = _chosen(context, pipeline)
            yield from _report(context, pipeline, shred_chosen(pipeline, lambda: spark.spark_session, keys))

    @dg.asset(
        key=[dataset, "warehouse"],
        deps=[shredded],
        description="The runs in the warehouse: strictly in order, exactly once, one transaction a run.",
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=dataset,
        owners=owners,
        kinds={"duckdb", "table"},
        pool=dataset,
        dagster_type=NO_VALUE,
    )
    def warehouse(context: dg.AssetExecutionContext, manifest: ManifestResource) -> Iterator:
        with manifest.pipeline(dataset, context.run.run_id) as pipeline:
            keys = _chosen(context, pipeline)
            yield from _report(context, pipeline, load_chosen(pipeline, keys))

    return [enriched_runs, shredded, warehouse, *_table_specs(config, dataset, owners)]


def _table_specs(config: Config, dataset: str, owners: list[str]) -> Iterator[dg.AssetSpec]:
    """The tables that the newest runs were loaded into, as the manifest and the shredded output tell.

    Without that output there are none: what is gone or out of reach must not keep the rest from being shown.
    """
    with Pipeline(config, dataset) as pipeline:
        try:
            tables = pipeline.recent_tables(RECENT_RECORDS)
        except WarehouseError as error:
            log.warning("no tables of %s are shown, for its shredded output cannot be read: %s", dataset, error)
            return
    for table in tables:
        yield dg.AssetSpec(
            [dataset, "tables", table.name],
            deps=[[dataset, "warehouse"]],
            description=f"Table {dataset}.{table.name} of the warehouse.",
            group_name=dataset,
            owners=owners,
            kinds={"duckdb", "table"},
            metadata=metadata.table_metadata(dataset, table),
        )


def _chosen(context: dg.AssetExecutionContext, pipeline: Pipeline) -> list[ItemKey]:
    """The items of the run's partitions. A reversed range is empty in Dagster's eyes, and would succeed with nothing done."""
    names = context.partition_keys
    if not names:
        raise dg.Failure("The run selects no partition; a range must name its older end first.", allow_retries=False)
    try:
        return [pipeline.key(name) for name in names]
    except Refused as refused:
        raise dg.Failure(str(refused), allow_retries=False) from refused


def _report(context: dg.AssetExecutionContext, pipeline: Pipeline, work: Iterator[Event]) -> Iterator:
    """Each partition's own result; where any fails, a failure that says of each why and what to do.

    The events of a success carry their metadata by partition. A failed run has no output, so those that did succeed in it
    get events of their own.
    """
    dataset = pipeline.name
    done: dict[str, dg.AssetMaterialization] = {}
    loaded: list[Loaded] = []
    failed: list[ItemFailed] = []
    try:
        for event in work:
            if isinstance(event, ItemFailed):
                failed.append(event)
            elif isinstance(event, Shredded):
                done[event.key.name] = metadata.shredded_event(dataset, event)
            elif isinstance(event, Loaded):
                loaded.append(event)
                done[event.key.name] = metadata.loaded_event(dataset, event)
            context.log.info(f"{len(done)} of {len(context.partition_keys)} partitions done, {len(failed)} failed")
    except (Refused, StoreError, WarehouseError, LandingError, SparkUnavailable) as error:
        yield from done.values()
        raise dg.Failure(
            str(error), metadata={"reason": str(error), "error": type(error).__name__}, allow_retries=False
        ) from error
    if failed:
        yield from done.values()
        raise _failure_of(pipeline, failed)
    yield from metadata.table_events(dataset, loaded)
    for name in context.partition_keys:
        shown = done[name].metadata if name in done else {"skipped": True}
        context.add_asset_metadata(dict(shown), partition_key=name)
    yield dg.Output(None)


def _failure_of(pipeline: Pipeline, failed: list[ItemFailed]) -> dg.Failure:
    """The failure of a run in which items failed: every item with its reason and the command that helps."""
    lines = [f"{one.key.name}: {one.application} failed: {one.failure.message}" for one in failed]
    commands = [pipeline.command(f"manifest-platform resolve {one.key.name}") for one in failed]
    return dg.Failure(
        "\n".join(lines),
        metadata={"items": ", ".join(one.key.name for one in failed), "commands": dg.MetadataValue.md("\n\n".join(commands))},
        allow_retries=False,
    )
