"""Merged tables: an asset for each table, partitioned by day, and the asset of what readers see.

Dagster chooses partitions; the manifest decides which of them may be merged, closed and shown. A run of partitions that are
merged already does nothing and succeeds.
"""

import itertools
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg

from manifest_platform.config import Config
from manifest_platform.manifest import Refused, StoreError
from manifest_platform.merging.publish import PublishReport
from manifest_platform.merging.state import FinishedJob, MergedTable, Outcome, Partition, PartitionName
from manifest_platform.orchestration.capture import NO_VALUE
from manifest_platform.orchestration.duties import merge_pool
from manifest_platform.orchestration.events import failure, fit, materialization, telling_progress
from manifest_platform.orchestration.jobs.assignments import MergePartitions
from manifest_platform.orchestration.jobs.running import reported_events_of
from manifest_platform.orchestration.remedies import command_of, told
from manifest_platform.orchestration.translator import AssetKind, attributes, completed
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import Pipeline, Stop
from manifest_platform.pipeline.merge import MergeBudget, MergeReport, MergeStarted, Merging, register
from manifest_platform.remedies import Action, Remedy
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import WarehouseError

SHOWN = 20
A_MONTH = timedelta(days=31)


def day_partitions(config: Config, dataset: str) -> dg.DailyPartitionsDefinition:
    """Returns the days of a dataset's merged tables, including today."""
    settings = config.datasets[dataset].merge
    if settings is None:
        raise Refused(f"dataset {dataset} is not merged")
    first = settings.first_day or _oldest_day(config, dataset)
    return dg.DailyPartitionsDefinition(start_date=str(first), timezone=settings.zone, end_offset=1)


def _oldest_day(config: Config, dataset: str) -> date:
    """Returns the oldest day of any merged table, within the days that Dagster's pages show; a month ago if there is none."""
    today = datetime.now(UTC).date()
    with Pipeline(config, dataset) as pipeline:
        oldest = min((found.date for found in Merging(pipeline).inventory.partitions()), default=today - A_MONTH)
    return min(max(oldest, today - timedelta(days=config.dagster.partitions)), today)


def merged_tables(wiring: Wiring) -> list[MergedTable | str]:
    """Returns the merged tables: those that the manifest knows, and the names of those that are only configured."""
    source = wiring.source
    settings = source.settings.merge
    with Pipeline(wiring.config, source.dataset) as pipeline:
        known = {table.key: table for table in Merging(pipeline).inventory.tables() if table.enabled and not table.dropped}
    configured = {key for key, table in (settings.tables if settings else {}).items() if table.enabled}
    names = configured | ({source.main_table} if source.main_table else set())
    return [known.get(name) or name for name in sorted(known.keys() | names)]


def build_merged(wiring: Wiring) -> list[dg.AssetsDefinition]:
    """Returns the assets of a dataset's merged tables, and `published`.

    All tables share one asset definition, so that a run of many tables is one Spark job.
    """
    names, source, dataset = wiring.names, wiring.source, wiring.dataset
    partitions = day_partitions(wiring.config, dataset)
    tables = merged_tables(wiring)
    shredded = [dg.AssetDep(names.shredded(feed), partition_mapping=dg.AllPartitionMapping()) for feed in source.feeds]
    specs = [
        completed(names.spec(AssetKind.MERGED, table=table_name(table), columns=known(table)), shredded, partitions)
        for table in tables
    ]
    keys = {spec.key: table_name(table) for spec, table in zip(specs, tables, strict=True)}

    @dg.multi_asset(
        name=f"{dataset}_merged",
        specs=specs,
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=merge_pool(dataset),
    )
    def merged(context: dg.AssetExecutionContext) -> Iterator:
        chosen = [keys[key] for key in context.selected_asset_keys]
        days = [date.fromisoformat(name) for name in context.partition_keys]
        if not days:
            raise failure("The run selects no day. A range must begin with its older end.", allow_retries=False)
        with open_merging(wiring, context.run.run_id) as merging, telling_progress(context):
            yield from _merge_asked(context, wiring, merging, chosen, days)

    @dg.asset(
        **attributes(names.spec(AssetKind.PUBLISHED)),
        deps=[dg.AssetDep(key, partition_mapping=dg.AllPartitionMapping()) for key in keys],
        pool=merge_pool(dataset),
        dagster_type=NO_VALUE,
    )
    def published(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        with open_merging(wiring, context.run.run_id) as merging:
            try:
                report = merging.publish()
            except StoreError as error:
                raise failure(told(error, merging.pipeline, names), allow_retries=False) from error
        _require_published(report)
        return dg.MaterializeResult(metadata=fit(published_metadata(report)))

    return [merged, published]


def table_name(table: MergedTable | str) -> str:
    """The name of a table that is known or only configured."""
    return table if isinstance(table, str) else table.key


def known(table: MergedTable | str) -> MergedTable | None:
    """Returns a table as the manifest knows it; None if it is only configured."""
    return None if isinstance(table, str) else table


@contextmanager
def open_merging(wiring: Wiring, run_id: str | None = None) -> Generator[Merging]:
    """Yields the merging of a dataset, closed at the end of the block."""
    with wiring.pipeline(run_id) as pipeline:
        yield Merging(pipeline)


def _merge_asked(
    context: dg.AssetExecutionContext, wiring: Wiring, merging: Merging, tables: Sequence[str], days: Sequence[date]
) -> Iterator:
    """Merges all objects of the chosen partitions that exist, and adds metadata to each. Raises dagster.Failure."""
    names, inventory = wiring.names, merging.inventory
    try:
        merging.sync()
        for _ in register(merging):
            pass
        there = [place for place in itertools.product(tables, days) if inventory.partition(*place)]
        outcomes: dict[PartitionName, FinishedJob] = {}
        report = MergeReport()
        assignment = MergePartitions(MergeBudget(), tuple(there))
        work = reported_events_of(context, merging.pipeline, wiring.spark_session, assignment)
        for event in work if there else ():
            if isinstance(event, MergeStarted):
                context.log.info(f"{event.ranges} ranges of {event.partitions} partitions, {event.bytes / 2**20:.1f} MiB")
            elif isinstance(event, FinishedJob):
                outcomes[event.table, event.date] = event
                context.log.info(f"{event.table} of {event.date}: {event.outcome} {event.error or ''}")
            elif isinstance(event, MergeReport):
                report = event
    except (Refused, StoreError, WarehouseError, SparkUnavailable) as error:
        said = told(error, merging.pipeline, names)
        raise failure(said, metadata={"error": type(error).__name__}, allow_retries=False) from error
    partitions = {place: inventory.partition(*place) for place in there}
    reasons = [
        f"{found.table} of {found.date} is set aside: {found.set_aside.error}."
        f" Do: {command_of(Remedy(Action.RETRY_MERGE, table=found.table, day=found.date), merging.pipeline)}"
        for found in partitions.values()
        if found and found.set_aside
    ]
    failed = [job for job in outcomes.values() if job.outcome.is_failure]
    reasons += [f"{job.table} of {job.date}: {job.error}" for job in failed]
    if report.stop is not Stop.IDLE:
        reasons.append(f"{report.stop}: {report.reason}")
    if reasons:
        for (table, day), job in outcomes.items():
            if job.outcome is Outcome.MERGED:
                shown = partition_metadata(partitions.get((table, day)), job)
                yield materialization(names.merged(table), partition=str(day), metadata=shown)
        raise failure("\n".join(reasons), allow_retries=False)
    if report.published and (report.published.shown or report.published.published):
        yield materialization(names.published, metadata=published_metadata(report.published))
    for table in tables:
        for day in days:
            shown = partition_metadata(partitions.get((table, day)), outcomes.get((table, day)))
            context.add_asset_metadata(fit(shown), asset_key=names.merged(table), partition_key=str(day))
        yield dg.MaterializeResult(asset_key=names.merged(table))


def partition_metadata(partition: Partition | None, job: FinishedJob | None = None) -> dict[str, Any]:
    """The metadata of a partition: rows, files and bytes before and after, write amplification, versions, waiting objects."""
    if partition is None:
        return {"dagster/partition_row_count": 0, "rows": 0, "empty": True}
    small = partition.live + partition.delayed
    shown: dict[str, Any] = {
        "dagster/partition_row_count": small.rows,
        "rows": small.rows,
        "rows_merged": partition.merged.rows,
        "files_before": small.objects,
        "files_after": partition.merged.objects + partition.waiting.objects,
        "bytes_before": small.bytes,
        "bytes_after": partition.merged.bytes + partition.waiting.bytes,
        "delayed": partition.delayed.objects,
        "waiting": partition.waiting.objects,
        "version": partition.current,
        "version_desired": partition.desired,
        "closed": partition.closed,
        "switched": partition.switched,
    }
    if partition.amplification is not None:
        shown["amplification"] = round(partition.amplification, 3)
    if job and job.bytes_out:
        seconds = (job.finished - job.started).total_seconds()
        shown |= {"bytes_written": job.bytes_out, "seconds": round(seconds, 3)}
    return shown


def published_metadata(report: PublishReport) -> dict[str, Any]:
    """The counts of a publication, and the partitions that it published."""
    versions = [f"{place}: {version}" for place, version in report.published]
    waiting = [f"{place}: {why}" for place, why in report.waiting]
    return {
        "closed": len(report.closed),
        "switched": len(report.switched),
        "shown": len(report.shown),
        "published": len(report.published),
        "versions": listed(versions),
        "waiting": listed(waiting),
        "requests": report.store_requests,
        "catalog_requests": report.catalog_requests,
    }


def listed(lines: Sequence[str]) -> dg.MarkdownMetadataValue:
    """Returns lines as a Markdown list; only the first 20, and the number of the rest."""
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return dg.MetadataValue.md("\n".join(f"- {line}" for line in [*lines[:SHOWN], *more]))


def _require_published(report: PublishReport) -> None:
    if not report.succeeded:
        lines = [f"{one.place}: {one.error}" for one in report.failed]
        raise failure("\n".join(lines), metadata=published_metadata(report), allow_retries=False)
