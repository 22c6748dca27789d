"""The assets of a feed (landed → shredded → warehouse), and an asset for every loaded table.

Dagster orders dynamic partitions by insertion and checks neither order nor gaps. The partitions of a run are therefore only a
set: the manifest orders them, refuses what is out of order, and does nothing for an item that is already done.
"""

import logging
from collections.abc import Iterator

import dagster as dg

from manifest_platform.orchestration.capture import NO_VALUE, build_captured
from manifest_platform.orchestration.duties import feed_pool
from manifest_platform.orchestration.jobs.assignments import ShredItems
from manifest_platform.orchestration.jobs.running import events_of
from manifest_platform.orchestration.overview import overview_spec
from manifest_platform.orchestration.partition_runs import asked_of, report
from manifest_platform.orchestration.translator import AssetKind, attributes, completed
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.chosen import load_chosen
from manifest_platform.pipeline.shredding import recent_tables
from manifest_platform.warehouse.errors import WarehouseError

log = logging.getLogger(__name__)

RECENT_RECORDS = 1000


def build_assets(wiring: Wiring) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """Returns the assets of a dataset: the stages of each feed, its tables and its overview."""
    landed = build_captured if wiring.source.captures else _landed_spec
    return [
        *(asset for feed in wiring.source.feeds for asset in (landed(wiring, feed), *_work(wiring, feed))),
        *_table_specs(wiring),
        overview_spec(wiring),
    ]


def _landed_spec(wiring: Wiring, feed: str) -> dg.AssetSpec:
    """Returns the external asset of a feed's directories, which another system lands."""
    names = wiring.names
    return completed(names.spec(AssetKind.LANDED, feed), [], names.partitions(feed))


def _work(wiring: Wiring, feed: str) -> list[dg.AssetsDefinition]:
    """Returns the assets made from a feed's directories: typed Parquet, and the rows in each target."""
    names, pool = wiring.names, feed_pool(wiring.config, wiring.source, feed)
    made = names.spec(AssetKind.SHREDDED, feed)

    @dg.asset(
        **attributes(made),
        deps=[*made.deps, names.landed(feed)],
        partitions_def=names.partitions(feed),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=pool,
        dagster_type=NO_VALUE,
    )
    def shredded(context: dg.AssetExecutionContext) -> Iterator:
        with wiring.pipeline(context.run.run_id) as pipeline:
            asked = asked_of(context, pipeline, names, feed)
            assignment = ShredItems(tuple(asked.keys), asked.others, asked.patience_s)
            work = events_of(context, pipeline, wiring.spark_session, assignment)
            yield from report(context, pipeline, names, work)

    return [shredded, *(_loads(wiring, feed, target, shredded) for target in names.targets)]


def _loads(wiring: Wiring, feed: str, target: str, shredded: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """Returns the asset of a feed's loads into a target."""
    names = wiring.names.at(target)
    loaded = names.spec(AssetKind.LOADED, feed)

    @dg.asset(
        **attributes(loaded),
        deps=[*loaded.deps, shredded],
        partitions_def=names.partitions(feed),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=feed_pool(wiring.config, wiring.source, feed, target),
        dagster_type=NO_VALUE,
    )
    def warehouse(context: dg.AssetExecutionContext) -> Iterator:
        with wiring.pipeline(context.run.run_id) as opened:
            pipeline = opened.at(target)
            asked = asked_of(context, pipeline, names, feed)
            yield from report(context, pipeline, names, load_chosen(pipeline, asked.keys, asked.others, asked.patience_s))

    return warehouse


def _table_specs(wiring: Wiring) -> Iterator[dg.AssetSpec]:
    """Yields an asset for each table that the newest directories were loaded into.

    Yields none if the shredded output cannot be read: that must not keep the other definitions from loading.
    """
    names, dataset = wiring.names, wiring.dataset
    with Pipeline(wiring.config, dataset) as pipeline:
        try:
            tables = recent_tables(pipeline, RECENT_RECORDS)
        except WarehouseError as error:
            log.warning("no tables of %s are shown, because its shredded output cannot be read: %s", dataset, error)
            return
    for of_target in map(names.at, names.targets):
        for table in tables:
            spec = of_target.spec(AssetKind.TABLE, table=table.name, columns=table)
            yield completed(spec, [of_target.warehouse(feed) for feed in names.feeds])
