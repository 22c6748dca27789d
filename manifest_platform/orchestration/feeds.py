"""The assets of a dataset: what landed → shredded → warehouse, for each of its feeds, and every table that was loaded.

Dagster orders dynamic partitions by insertion and checks neither order nor holes. So what a run was asked for is a set of
partitions, nothing more: the manifest orders it, refuses what does not fit, and makes a no-op of what is done.
"""

import logging
from collections.abc import Iterator

import dagster as dg

from manifest_platform.config import Config
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.capture import NO_VALUE, build_captured, landed_kinds
from manifest_platform.orchestration.duties import feed_pool
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.partition_runs import asked_of, report
from manifest_platform.orchestration.resources import ManifestResource, SparkResource
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.chosen import load_chosen, shred_chosen
from manifest_platform.pipeline.shredding import recent_tables
from manifest_platform.sources.source import Source
from manifest_platform.warehouse.errors import WarehouseError

log = logging.getLogger(__name__)

RECENT_RECORDS = 1000


def build_assets(config: Config, source: Source) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """The assets of a dataset, a group for each feed and one for its tables, all owned by the dataset's owner."""
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
            asked = asked_of(context, pipeline, feed)
            work = shred_chosen(pipeline, lambda: spark.spark_session, asked.keys, asked.others, asked.patience_s)
            yield from report(context, pipeline, work)

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
            asked = asked_of(context, pipeline, feed)
            yield from report(context, pipeline, load_chosen(pipeline, asked.keys, asked.others, asked.patience_s))

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
            group_name=names.tables_group,
            owners=[source.settings.owner],
            kinds={config.warehouse.kind, "table"},
            metadata=metadata.table_metadata(dataset, table),
        )
