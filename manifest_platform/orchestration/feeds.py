"""The assets of a dataset: what landed → shredded → warehouse, for each of its feeds, and every table that was loaded.

Dagster orders dynamic partitions by insertion and checks neither order nor holes. So what a run was asked for is a set of
partitions, nothing more: the manifest orders it, refuses what does not fit, and makes a no-op of what is done.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from manifest_platform.config import Config
from manifest_platform.manifest import ItemKey, Refused, StoreError
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.capture import NO_VALUE, build_captured, landed_kinds
from manifest_platform.orchestration.duties import feed_pool
from manifest_platform.orchestration.events import VERSION, failure, fit
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.remedies import command_of, told
from manifest_platform.orchestration.resources import ManifestResource, SparkResource
from manifest_platform.pipeline import Event, ItemFailed, Loaded, Pipeline, PutBack, Shredded
from manifest_platform.pipeline.chosen import load_chosen, shred_chosen
from manifest_platform.pipeline.shredding import recent_tables
from manifest_platform.sources.errors import LandingError
from manifest_platform.sources.source import Source
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import WarehouseError

log = logging.getLogger(__name__)

RECENT_RECORDS = 1000


def build_assets(config: Config, source: Source) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """The assets of a dataset, a group for each feed, all owned by the dataset's owner."""
    landed = build_captured if source.captures else _landed_spec
    return [
        *(asset for feed in source.feeds for asset in (landed(source, feed), *_work(config, source, feed))),
        *_table_specs(config, source),
    ]


def _landed_spec(source: Source, feed: str) -> dg.AssetSpec:
    """The directories of a feed, which somebody else lands."""
    names = Names.of(source)
    return dg.AssetSpec(
        names.landed(feed),
        description=source.words.landed,
        partitions_def=names.partitions(feed),
        group_name=names.group(feed),
        owners=[source.settings.owner],
        kinds=landed_kinds(source),
    )


def _work(config: Config, source: Source, feed: str) -> list[dg.AssetsDefinition]:
    """What is made of a feed's directories: typed Parquet, and rows in the warehouse."""
    names, dataset = Names.of(source), source.dataset

    @dg.asset(
        key=names.shredded(feed),
        deps=[names.landed(feed)],
        description=source.words.shredded,
        partitions_def=names.partitions(feed),
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=names.group(feed),
        owners=[source.settings.owner],
        kinds={"pyspark", "parquet"},
        pool=feed_pool(config, source, feed),
        dagster_type=NO_VALUE,
    )
    def shredded(context: dg.AssetExecutionContext, manifest: ManifestResource, spark: SparkResource) -> Iterator:
        with manifest.pipeline(dataset, context.run.run_id) as pipeline:
            keys = _chosen(context, pipeline, feed)
            yield from _report(context, pipeline, shred_chosen(pipeline, lambda: spark.spark_session, keys))

    @dg.asset(
        key=names.warehouse(feed),
        deps=[shredded],
        description=source.words.loaded[feed],
        partitions_def=names.partitions(feed),
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=names.group(feed),
        owners=[source.settings.owner],
        kinds={config.warehouse.kind, "table"},
        pool=feed_pool(config, source, feed),
        dagster_type=NO_VALUE,
    )
    def warehouse(context: dg.AssetExecutionContext, manifest: ManifestResource) -> Iterator:
        with manifest.pipeline(dataset, context.run.run_id) as pipeline:
            keys = _chosen(context, pipeline, feed)
            yield from _report(context, pipeline, load_chosen(pipeline, keys))

    return [shredded, warehouse]


def _table_specs(config: Config, source: Source) -> Iterator[dg.AssetSpec]:
    """The tables that the newest directories were loaded into, as the manifest and the shredded output tell.

    Without that output there are none: what is gone or out of reach must not keep the rest from being shown.
    """
    names, dataset = Names.of(source), source.dataset
    with Pipeline(config, dataset) as pipeline:
        try:
            tables = recent_tables(pipeline, RECENT_RECORDS)
        except WarehouseError as error:
            log.warning("no tables of %s are shown, for its shredded output cannot be read: %s", dataset, error)
            return
    for table in tables:
        yield dg.AssetSpec(
            names.table(table.name),
            deps=[names.warehouse(feed) for feed in source.feeds],
            description=f"Table {dataset}.{table.name} of the warehouse.",
            group_name=dataset,
            owners=[source.settings.owner],
            kinds={config.warehouse.kind, "table"},
            metadata=metadata.table_metadata(dataset, table),
        )


def _chosen(context: dg.AssetExecutionContext, pipeline: Pipeline, feed: str) -> list[ItemKey]:
    """The items of the run's partitions. A reversed range is empty in Dagster's eyes, and would succeed with nothing done."""
    names = context.partition_keys
    if not names:
        raise failure("The run selects no partition; a range must name its older end first.", allow_retries=False)
    try:
        keys = [pipeline.key(name) for name in names]
        if strangers := [key.name for key in keys if key.feed != feed]:
            raise Refused(f"{strangers[0]} is not of feed {feed}")
        return keys
    except Refused as refused:
        raise failure(told(refused, pipeline), allow_retries=False) from refused


def _report(context: dg.AssetExecutionContext, pipeline: Pipeline, work: Iterator[Event]) -> Iterator:
    """Each partition's own result; where any fails, a failure that says of each why and what to do.

    The events of a success carry their metadata by partition. A failed run has no output, so those that did succeed in it
    get events of their own.
    """
    names = Names.of(pipeline.source)
    done: dict[str, dg.AssetMaterialization] = {}
    loaded: list[Loaded] = []
    failed: list[ItemFailed] = []
    put_back: list[PutBack] = []
    try:
        for event in work:
            if isinstance(event, ItemFailed):
                failed.append(event)
            elif isinstance(event, PutBack):
                put_back.append(event)
            elif isinstance(event, Shredded):
                done[event.key.name] = metadata.shredded_event(names, event)
            elif isinstance(event, Loaded):
                loaded.append(event)
                done[event.key.name] = metadata.loaded_event(names, event)
            context.log.info(f"{len(done)} of {len(context.partition_keys)} partitions done, {len(failed)} failed")
    except (Refused, StoreError, WarehouseError, LandingError, SparkUnavailable) as error:
        yield from done.values()
        reason = told(error, pipeline)
        raise failure(reason, metadata={"reason": reason, "error": type(error).__name__}, allow_retries=False) from error
    if failed:
        yield from done.values()
        raise _failure_of(pipeline, failed)
    if put_back:
        yield from done.values()
        reason = f"out of reach, and no item's fault: {put_back[0].reason}"
        raise failure(reason, metadata={"reason": reason, "items": ", ".join(one.key.name for one in put_back)})
    yield from metadata.table_events(names, loaded)
    for name in context.partition_keys:
        shown = done[name].metadata if name in done else {"skipped": True}
        context.add_asset_metadata(fit(shown), partition_key=name)
    yield dg.Output(None, data_version=_version(context.partition_keys, done))


def _version(names: Sequence[str], done: Mapping[str, dg.AssetMaterialization]) -> dg.DataVersion | None:
    """The data version of a run's partitions, where all have the same one: Dagster takes one for a run's output."""
    found = {(done[name].tags or {}).get(VERSION) if name in done else None for name in names}
    [version, *others] = found
    return dg.DataVersion(version) if version and not others else None


def _failure_of(pipeline: Pipeline, failed: list[ItemFailed]) -> dg.Failure:
    """The failure of a run in which items failed: every item with its reason and the command that helps."""
    lines = [f"{one.key.name}: {one.application} failed: {one.failure.message}" for one in failed]
    commands = [command_of(one.failure.remedy_for(one.key.name), pipeline) for one in failed]
    return failure(
        "\n".join(lines),
        metadata={"items": ", ".join(one.key.name for one in failed), "commands": dg.MetadataValue.md("\n\n".join(commands))},
        allow_retries=False,
    )
