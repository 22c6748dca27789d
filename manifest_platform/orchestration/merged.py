"""Merging in Dagster: an asset a table, by day; what readers are shown; the job and sensor that keep both up; the checks.

Dagster says which partitions are wanted. What of them may be merged, closed and shown is decided by the manifest: asked for
what is merged already, a run does nothing and succeeds.
"""

import dataclasses
import itertools
import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from manifest_platform.config import Config
from manifest_platform.manifest import Refused, StoreError
from manifest_platform.merging.publish import PublishReport
from manifest_platform.merging.state import NEW, FinishedJob, MergedTable, Outcome, Partition, PartitionName
from manifest_platform.orchestration.keys import DATASET_TAG, Names
from manifest_platform.orchestration.resources import ManifestResource, SparkResource
from manifest_platform.orchestration.sensors import INTERVAL_S, Asked, asked
from manifest_platform.pipeline import Pipeline, Stop
from manifest_platform.pipeline.merge import MergeBudget, MergeReport, MergeStarted, Merging, merge, register
from manifest_platform.pipeline.outputs import OutputGone
from manifest_platform.sources.source import Source
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import WarehouseError

COMMITS_A_TICK = 200
CHECKED_DAYS = 31
"""How many of a table's newest partitions its checks look at, besides those that are not at rest."""
ABNORMAL = (Stop.UNAVAILABLE, Stop.FENCED)
SHOWN = 20


def merged_key(dataset: str, table: str) -> dg.AssetKey:
    """The asset of a merged table."""
    return dg.AssetKey([dataset, "merged", table])


def published_key(dataset: str) -> dg.AssetKey:
    """The asset of what readers are shown."""
    return dg.AssetKey([dataset, "published"])


def day_partitions(config: Config, dataset: str) -> dg.DailyPartitionsDefinition:
    """The days of a dataset's merged tables, today's among them."""
    settings = config.datasets[dataset].merge
    if settings is None:
        raise Refused(f"dataset {dataset} is not merged")
    return dg.DailyPartitionsDefinition(start_date=str(settings.first_day), timezone=settings.zone, end_offset=1)


def merged_tables(config: Config, source: Source) -> list[MergedTable | str]:
    """The tables that are merged: as the manifest knows them, and by name those that are only configured."""
    settings = source.settings.merge
    with Pipeline(config, source.dataset) as pipeline:
        known = {table.key: table for table in Merging(pipeline).inventory.tables() if table.enabled and not table.dropped}
    configured = {key for key, table in (settings.tables if settings else {}).items() if table.enabled}
    names = configured | ({source.main_table} if source.main_table else set())
    return [known.get(name) or name for name in sorted(known.keys() | names)]


def build_merged(config: Config, source: Source) -> list[dg.AssetsDefinition]:
    """The merged tables of a dataset, all in one asset definition, so that a run of many is one Spark job; and `published`."""
    dataset, settings = source.dataset, source.settings
    partitions = day_partitions(config, dataset)
    tables = merged_tables(config, source)
    shredded = [
        dg.AssetDep(Names.of(source).shredded(feed), partition_mapping=dg.AllPartitionMapping()) for feed in source.feeds
    ]
    specs = [
        dg.AssetSpec(
            merged_key(dataset, _name(table)),
            deps=shredded,
            description=f"Table {_name(table)} in well-sized Parquet objects, one partition a day.",
            partitions_def=partitions,
            group_name=dataset,
            owners=[settings.owner],
            kinds={"pyspark", "parquet"},
            metadata=_table_metadata(table),
        )
        for table in tables
    ]
    keys = [spec.key for spec in specs]

    @dg.multi_asset(
        name=f"{dataset}_merged",
        specs=specs,
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=f"{dataset}_merge",
    )
    def merged(context: dg.AssetExecutionContext, manifest: ManifestResource, spark: SparkResource) -> Iterator:
        names = [key.path[-1] for key in context.selected_asset_keys]
        days = [date.fromisoformat(name) for name in context.partition_keys]
        if not days:
            raise dg.Failure("The run selects no day; a range must name its older end first.", allow_retries=False)
        with _merging(manifest, dataset, context.run.run_id) as merging:
            yield from _merge_asked(context, merging, spark, names, days)

    @dg.asset(
        key=published_key(dataset),
        deps=[dg.AssetDep(key, partition_mapping=dg.AllPartitionMapping()) for key in keys],
        description="What readers are shown: partitions closed, switched and told to the catalog.",
        group_name=dataset,
        owners=[settings.owner],
        kinds={settings.merge.catalog.read_by} if settings.merge else set(),
        pool=f"{dataset}_merge",
        dagster_type=dg.Nothing,  # ty: ignore[invalid-argument-type]  # a type of Dagster's
    )
    def published(context: dg.AssetExecutionContext, manifest: ManifestResource) -> dg.MaterializeResult:
        with _merging(manifest, dataset, context.run.run_id) as merging:
            try:
                report = merging.publish()
            except StoreError as error:
                raise dg.Failure(str(error), allow_retries=False) from error
        _require_published(report)
        return dg.MaterializeResult(metadata=published_metadata(report))

    return [merged, published]


def _name(table: MergedTable | str) -> str:
    return table if isinstance(table, str) else table.key


def _table_metadata(table: MergedTable | str) -> dict[str, Any]:
    if isinstance(table, str):
        return {}
    columns = [dg.TableColumn(column.name, column.type) for column in table.columns]
    return {
        "dagster/table_name": f"{table.schema}.{table.name}",
        "dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns)),
    }


@contextmanager
def _merging(manifest: ManifestResource, dataset: str, run_id: str | None = None) -> Generator[Merging]:
    with manifest.pipeline(dataset, run_id) as pipeline:
        yield Merging(pipeline)


# Materialising


def _merge_asked(
    context: dg.AssetExecutionContext, merging: Merging, spark: SparkResource, names: Sequence[str], days: Sequence[date]
) -> Iterator:
    """Merges the wanted partitions that there are to their last object, and gives each of them its metadata."""
    dataset, inventory = merging.pipeline.name, merging.inventory
    try:
        merging.sync()
        for _ in register(merging):
            pass
        there = [place for place in itertools.product(names, days) if inventory.partition(*place)]
        outcomes: dict[PartitionName, FinishedJob] = {}
        report = MergeReport()
        for event in merge(merging, lambda: spark.spark_session, asked=there) if there else ():
            if isinstance(event, MergeStarted):
                context.log.info(f"{event.ranges} ranges of {event.partitions} partitions, {event.bytes / 2**20:.1f} MiB")
            elif isinstance(event, FinishedJob):
                outcomes[event.table, event.date] = event
                context.log.info(f"{event.table} of {event.date}: {event.outcome} {event.error or ''}")
            elif isinstance(event, MergeReport):
                report = event
    except (Refused, StoreError, WarehouseError, SparkUnavailable) as error:
        raise dg.Failure(str(error), metadata={"error": type(error).__name__}, allow_retries=False) from error
    partitions = {place: inventory.partition(*place) for place in there}
    reasons = [
        f"{found.table} of {found.date} is set aside: {found.set_aside.error}."
        f" Do: {merging.pipeline.command(f'manifest-platform merge retry {found.table} {found.date}')}"
        for found in partitions.values()
        if found and found.set_aside
    ]
    failed = [job for job in outcomes.values() if job.outcome.is_failure]
    reasons += [f"{job.table} of {job.date}: {job.error}" for job in failed]
    if report.stop is not Stop.IDLE:
        reasons.append(f"{report.stop}: {report.reason}")
    if reasons:
        for (name, day), job in outcomes.items():
            if job.outcome is Outcome.MERGED:
                shown = partition_metadata(partitions.get((name, day)), job)
                yield dg.AssetMaterialization(merged_key(dataset, name), partition=str(day), metadata=shown)
        raise dg.Failure("\n".join(reasons), allow_retries=False)
    if report.published and (report.published.shown or report.published.published):
        yield dg.AssetMaterialization(published_key(dataset), metadata=published_metadata(report.published))
    for name in names:
        for day in days:
            shown = partition_metadata(partitions.get((name, day)), outcomes.get((name, day)))
            context.add_asset_metadata(shown, asset_key=merged_key(dataset, name), partition_key=str(day))
        yield dg.MaterializeResult(asset_key=merged_key(dataset, name))


def partition_metadata(partition: Partition | None, job: FinishedJob | None = None) -> dict[str, Any]:
    """What plots of a partition: rows, files before and after, bytes, how often each byte was written, versions, what waits."""
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
    """What a publication did, counted, and the partitions that it was about."""
    versions = [f"{place}: {version}" for place, version in report.published]
    waiting = [f"{place}: {why}" for place, why in report.waiting]
    return {
        "closed": len(report.closed),
        "switched": len(report.switched),
        "shown": len(report.shown),
        "published": len(report.published),
        "versions": dg.MetadataValue.md(_listed(versions)),
        "waiting": dg.MetadataValue.md(_listed(waiting)),
        "requests": report.store_requests,
        "catalog_requests": report.catalog_requests,
    }


def _listed(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n".join(f"- {line}" for line in [*lines[:SHOWN], *more])


def _require_published(report: PublishReport) -> None:
    if not report.succeeded:
        lines = [f"{one.place}: {one.error}" for one in report.failed]
        raise dg.Failure("\n".join(lines), metadata=published_metadata(report), allow_retries=False)


# The job that merges what is due


class MergeConfig(dg.Config):
    """The bounds of one merge run."""

    max_partitions: int | None = Field(None, ge=1, description="partitions to merge, at most")
    max_seconds: float | None = Field(None, gt=0, description="seconds after which no new Spark job is begun")


def merge_job_name(dataset: str) -> str:
    """The name of a dataset's merge job."""
    return f"{dataset}_merge"


def build_merge_job(platform: Config, dataset: str) -> dg.JobDefinition:
    """The job that merges all that is due, closes, switches and publishes: one process, one Spark session."""

    @dg.op(
        name=f"{dataset}_merge_op",
        description="Merges what is due, with a materialization for every partition, and publishes it.",
        pool=f"{dataset}_merge",
        out=dg.Out(dg.Nothing),
    )
    def merge_op(
        context: dg.OpExecutionContext, config: MergeConfig, manifest: ManifestResource, spark: SparkResource
    ) -> Iterator:
        budget = MergeBudget(config.max_partitions, config.max_seconds or platform.drain.max_seconds)
        report = MergeReport()
        with _merging(manifest, dataset, context.run_id) as merging:
            for event in merge(merging, lambda: spark.spark_session, budget):
                if isinstance(event, MergeReport):
                    report = event
                elif isinstance(event, MergeStarted):
                    context.log.info(
                        f"merging {event.objects} objects of {event.partitions} partitions, {event.bytes / 2**20:.1f} MiB"
                    )
                elif isinstance(event, FinishedJob) and event.outcome is Outcome.MERGED:
                    partition = merging.inventory.partition(event.table, event.date)
                    yield dg.AssetMaterialization(
                        merged_key(dataset, event.table),
                        partition=str(event.date),
                        metadata=partition_metadata(partition, event),
                    )
                elif isinstance(event, FinishedJob) and event.error:
                    context.log.error(f"{event.table} of {event.date}: {event.outcome}: {event.error}")
        if report.published:
            yield dg.AssetMaterialization(published_key(dataset), metadata=published_metadata(report.published))
        if report.stop in ABNORMAL:
            raise dg.Failure(f"{report.stop}: {report.reason}", metadata=merge_metadata(report))
        yield dg.Output(None, metadata=merge_metadata(report))

    @dg.job(
        name=merge_job_name(dataset),
        description=f"Merges what is due of {dataset}, closes, switches and publishes.",
        executor_def=dg.in_process_executor,
        tags={DATASET_TAG: dataset},
    )
    def merge_job():
        merge_op()

    return merge_job


def merge_metadata(report: MergeReport) -> dict[str, Any]:
    """The totals of a merge run and why it stopped."""
    return {
        "stop": str(report.stop),
        "reason": report.reason,
        "commits": report.commits,
        "objects": report.objects,
        "merged": report.merged,
        "failed": report.failed,
        "rows": report.rows,
        "bytes_in": report.bytes_in,
        "bytes_out": report.bytes_out,
        "seconds": round(report.seconds, 3),
        "requests": report.requests,
    }


# The sensor


def merge_waiting(merging: Merging) -> str | None:
    """What a merge run could do now, as text that changes whenever something new may be done; None for nothing.

    A merge that is due by its schedule or its volume; a partition whose day is over; one that readers do not see as it is.
    """
    now, inventory = merging.clock(), merging.inventory
    found = [f"merge {due.table} {due.date} {due.id}" for due in itertools.islice(inventory.due(now), SHOWN)]
    found += [f"take back {job.table} {job.date} {job.id}" for job in inventory.abandoned(datetime.now(UTC))]
    tables = {table.key: table for table in inventory.tables() if table.enabled and not table.dropped}
    for partition in inventory.open_partitions():
        table = tables.get(partition.table)
        if table is None:
            continue
        if merging.is_over(table, partition) and partition.newest_live and not partition.closed:
            found.append(f"close {partition.table} {partition.date}")
        elif partition.last_live is not None and not partition.switched and partition.upper >= partition.last_live:
            found.append(f"switch {partition.table} {partition.date}")
        elif partition.current == NEW and partition.live.objects:
            found.append(f"show {partition.table} {partition.date}")
        elif partition.switched and partition.published < partition.generation:
            found.append(f"publish {partition.table} {partition.date} {partition.generation}")
        if len(found) >= SHOWN:
            break
    return "; ".join(found) or None


def build_merge_sensor(dataset: str, merge_job: dg.JobDefinition) -> dg.SensorDefinition:
    """The sensor that registers what was shredded and asks for a merge run when one is due, by schedule or volume."""

    @dg.sensor(
        name=f"{dataset}_merge_sensor",
        job=merge_job,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Registers shredded objects, and starts one merge run when one is due and none is on its way.",
    )
    def merge_sensor(context: dg.SensorEvaluationContext, manifest: ManifestResource) -> dg.SensorResult:
        now = datetime.now(UTC)
        cursor = Asked(**json.loads(context.cursor)) if context.cursor else Asked()
        with _merging(manifest, dataset) as merging:
            try:
                for registered in itertools.islice(register(merging), COMMITS_A_TICK):
                    context.log.info(f"commit {registered.commit}: {registered.objects} objects")
            except OutputGone as gone:  # what is registered is worth a run all the same
                context.log.error(f"nothing more is registered: {gone}")
            work = merge_waiting(merging)
        reason, cursor = asked(context.instance, merge_job_name(dataset), work, cursor, now)
        return dg.SensorResult(
            run_requests=[] if reason else [dg.RunRequest()],
            skip_reason=reason,
            cursor=json.dumps(dataclasses.asdict(cursor)),
        )

    return merge_sensor


# Checks


def build_merge_checks(config: Config, source: Source) -> list[dg.AssetChecksDefinition]:
    """The checks of each merged table."""
    return [check for table in merged_tables(config, source) for check in _table_checks(source.dataset, _name(table))]


def _table_checks(dataset: str, table: str) -> list[dg.AssetChecksDefinition]:
    key = merged_key(dataset, table)

    @dg.asset_check(asset=key, description="Rows of merged objects = rows of the small objects that they hold.")
    def rows_kept(manifest: ManifestResource) -> dg.AssetCheckResult:
        with _merging(manifest, dataset) as merging:
            wrong, rows = [], 0
            for partition in _looked_at(merging, table):
                ranges = merging.inventory.ranges(table, partition.date)
                small = merging.inventory.small_objects(table, partition.date)
                held = sum(one.rows for one in small if one.id <= (ranges[-1].upper if ranges else 0))
                rows += held
                if sum(one.rows for one in ranges) != held:
                    wrong.append(str(partition.date))
        return dg.AssetCheckResult(passed=not wrong, metadata={"rows": rows, "wrong": ", ".join(wrong)})

    @dg.asset_check(asset=key, description="The ranges of every partition follow each other from 0 without a hole.")
    def chain_whole(manifest: ManifestResource) -> dg.AssetCheckResult:
        with _merging(manifest, dataset) as merging:
            wrong, count = [], 0
            for partition in _looked_at(merging, table):
                ranges = merging.inventory.ranges(table, partition.date)
                bounds = [0, *(one.upper for one in ranges)]
                count += len(ranges)
                if [one.lower for one in ranges] != bounds[:-1] or bounds[-1] != partition.upper:
                    wrong.append(str(partition.date))
        return dg.AssetCheckResult(passed=not wrong, metadata={"ranges": count, "wrong": ", ".join(wrong)})

    @dg.asset_check(asset=key, description="Readers see what came within merge.invisible_seconds.")
    def nothing_invisible_for_long(manifest: ManifestResource) -> dg.AssetCheckResult:
        with _merging(manifest, dataset) as merging:
            limit = merging.longest_invisible(table)
            late, oldest = [], timedelta()
            for partition in merging.inventory.open_partitions():
                if partition.table != table:
                    continue
                age = merging.clock() - since if (since := merging.invisible_since(partition)) else timedelta()
                oldest = max(oldest, age)
                if age > limit:
                    late.append(str(partition.date))
        shown = {"oldest_seconds": round(oldest.total_seconds(), 1), "limit_seconds": limit.total_seconds()}
        return dg.AssetCheckResult(passed=not late, metadata={**shown, "late": ", ".join(late)})

    return [rows_kept, chain_whole, nothing_invisible_for_long]


def _looked_at(merging: Merging, table: str) -> Iterable[Partition]:
    """A table's newest partitions, and those that are not at rest."""
    newest = sorted(merging.inventory.partitions(table), key=lambda found: found.date)[-CHECKED_DAYS:]
    others = [found for found in merging.inventory.open_partitions() if found.table == table]
    return {found.date: found for found in [*others, *newest]}.values()
