"""The merge job, which merges what is due, and the sensor that requests it."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

import dagster as dg
from pydantic import Field

from manifest_platform.merging.state import NEW, FinishedJob, Outcome
from manifest_platform.orchestration.asking import Asked, asked
from manifest_platform.orchestration.duties import Duty, merge_pool, run_tags
from manifest_platform.orchestration.events import failure, fit, materialization, telling_progress
from manifest_platform.orchestration.jobs.assignments import MergePartitions
from manifest_platform.orchestration.jobs.running import reported_events_of
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.merged import listed, open_merging, partition_metadata, published_metadata
from manifest_platform.orchestration.overview import overview_news
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import Stop
from manifest_platform.pipeline.merge import MergeBudget, MergeReport, MergeStarted, Merging, plan_of, register
from manifest_platform.pipeline.shredding import OutputGone

COMMITS_A_TICK = 200
MIRRORED_A_TICK = 200
ABNORMAL = (Stop.UNAVAILABLE, Stop.FENCED)
SHOWN = 20


class MergeConfig(dg.Config):
    """The bounds of one merge run."""

    max_partitions: int | None = Field(None, ge=1, description="largest number of partitions to merge")
    max_seconds: float | None = Field(None, gt=0, description="begins no new Spark job after this many seconds")


def merge_job_name(dataset: str) -> str:
    """The name of a dataset's merge job."""
    return f"{dataset}_merge"


def build_merge_job(wiring: Wiring) -> dg.JobDefinition:
    """Returns the job that merges what is due, closes, switches and publishes, in one process with one Spark session."""
    names, dataset = wiring.names, wiring.dataset

    @dg.op(
        name=f"{dataset}_merge_op",
        description="Merges partitions that are due, with a materialization for each, and publishes them.",
        pool=merge_pool(dataset),
        out=dg.Out(dg.Nothing),
    )
    def merge_op(context: dg.OpExecutionContext, config: MergeConfig) -> Iterator:
        budget = MergeBudget(config.max_partitions, config.max_seconds or wiring.config.drain.max_seconds)
        report = MergeReport()
        with open_merging(wiring, context.run_id) as merging, telling_progress(context):
            for event in reported_events_of(context, merging.pipeline, wiring.spark_session, MergePartitions(budget)):
                if isinstance(event, MergeReport):
                    report = event
                elif isinstance(event, MergeStarted):
                    context.log.info(
                        f"merging {event.objects} objects of {event.partitions} partitions, {event.bytes / 2**20:.1f} MiB"
                    )
                elif isinstance(event, FinishedJob) and event.outcome is Outcome.MERGED:
                    partition = merging.inventory.partition(event.table, event.date)
                    yield materialization(
                        names.merged(event.table),
                        partition=str(event.date),
                        metadata=partition_metadata(partition, event),
                    )
                elif isinstance(event, FinishedJob) and event.error:
                    context.log.error(f"{event.table} of {event.date}: {event.outcome}: {event.error}")
            yield from overview_news(merging.pipeline, names, context.instance)
        if report.published:
            yield materialization(names.published, metadata=published_metadata(report.published))
        if report.stop in ABNORMAL:
            raise failure(f"{report.stop}: {report.reason}", metadata=merge_metadata(report))
        yield dg.Output(None, metadata=fit(merge_metadata(report)))

    @dg.job(
        name=merge_job_name(dataset),
        description=f"Merges the partitions of {dataset} that are due; closes, switches and publishes.",
        executor_def=dg.in_process_executor,
        tags=run_tags(Duty.MERGE, dataset, merge_pool(dataset)),
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


@dataclass(frozen=True)
class Remembered:
    """The sensor's cursor.

    `asked`: the last request. `idle`: jobs that are due but would write nothing, by id, each with the state of its partition,
    which changes when objects arrive or the partition is closed. `told`: the last finished job that was reported to Dagster.
    """

    asked: Asked = field(default_factory=Asked)
    idle: dict[str, str] = field(default_factory=dict)
    told: str = ""

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Returns the cursor of a text; of an older release's text, only the last request."""
        data = json.loads(text) if text else {}
        if {"asked", "idle"} <= data.keys():
            return cls(Asked(**data["asked"]), data["idle"], data.get("told", ""))
        return cls(Asked(**data)) if data else cls()

    def to_json(self) -> str:
        """Returns the cursor as text."""
        return json.dumps(dataclasses.asdict(self))


@dataclass(frozen=True)
class Waiting:
    """The work that a merge run could do now.

    `work`: a text that changes whenever new work appears; empty if there is none. `idle`: jobs that are due but would write
    nothing, as the cursor keeps them.
    """

    work: str
    idle: dict[str, str]


def merge_waiting(merging: Merging, idle: Mapping[str, str] | None = None) -> Waiting:
    """Returns the work that a merge run could do now.

    That is: merges that are due by schedule or volume, partitions whose day is over, and partitions whose current state readers
    do not see. A due merge that would write nothing (a few objects of an open day) is no work: it waits for more objects, or
    for the end of the day. `idle`: such merges that were found before. While their partitions are unchanged, they cost no
    further request.
    """
    now, inventory = merging.clock(), merging.inventory
    tables = {table.key: table for table in inventory.tables() if table.enabled and not table.dropped}
    partitions = {(found.table, found.date): found for found in inventory.open_partitions()}
    found: list[str] = []
    nothing: dict[str, str] = {}
    for due in inventory.due(now):
        partition, table = partitions.get((due.table, due.date)), tables.get(due.table)
        stands = f"{partition.newest} {partition.closed}" if partition else ""
        if partition and table and ((idle or {}).get(due.id) == stands or not plan_of(merging, partition, table).ranges):
            nothing[due.id] = stands
        elif table:
            found.append(f"merge {due.table} {due.date} {due.id}")
        if len(found) >= SHOWN:
            break
    found += [f"take back {job.table} {job.date} {job.id}" for job in inventory.abandoned(datetime.now(UTC))]
    for partition in partitions.values():
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
    return Waiting("; ".join(found), nothing)


def merged_outside(
    merging: Merging, names: Names, instance: dg.DagsterInstance, told: str
) -> tuple[list[dg.AssetMaterialization], str]:
    """Returns events for merges that were done outside Dagster since the last reported job, and the new last reported job."""
    if [_ended(one) for one in merging.inventory.log(1)] in ([], [told]):
        return [], told
    log = merging.inventory.log(MIRRORED_A_TICK)
    new = list(itertools.takewhile(lambda job: _ended(job) != told, log))
    known = {run_id: instance.has_run(run_id) for run_id in {job.run_id for job in new if job.run_id}}
    outside = {
        (job.table, job.date): job for job in reversed(new) if job.outcome is Outcome.MERGED and not known.get(job.run_id)
    }
    partitions = [merging.inventory.partition(*place) for place in outside]
    events = [
        materialization(names.merged(table), partition=str(day), metadata=partition_metadata(partition, outside[table, day]))
        for (table, day), partition in zip(outside, partitions, strict=True)
    ]
    if shown := [one for one in partitions if one and one.switched and one.published >= one.generation]:
        places = sorted(f"{one.table} of {one.date}: {one.published}" for one in shown)
        events.append(materialization(names.published, metadata={"published": len(shown), "versions": listed(places)}))
    return events, _ended(log[0])


def _ended(job: FinishedJob) -> str:
    """A text that identifies one end of one job."""
    return f"{job.finished.isoformat()} {job.id}"


def build_merge_sensor(wiring: Wiring, merge_job: dg.JobDefinition, seconds: int) -> dg.SensorDefinition:
    """Returns the sensor that registers shredded objects and requests a merge run when one is due, by schedule or volume.

    `seconds`: the pause between two looks.
    """

    @dg.sensor(
        name=f"{wiring.dataset}_merge_sensor",
        job=merge_job,
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Registers shredded objects, and starts a merge run when one is due and none is queued or in progress.",
    )
    def merge_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now = datetime.now(UTC)
        before = Remembered.from_json(context.cursor)
        with open_merging(wiring) as merging:
            try:
                for registered in itertools.islice(register(merging), COMMITS_A_TICK):
                    context.log.info(f"commit {registered.commit}: {registered.objects} objects")
            except OutputGone as gone:  # objects that are registered already can still be merged
                context.log.error(f"registering stopped: {gone}")
            waiting = merge_waiting(merging, before.idle)
            events, told = merged_outside(merging, wiring.names, context.instance, before.told)
            if told != before.told:
                events += overview_news(merging.pipeline, wiring.names, context.instance)
        reason, cursor = asked(context.instance, merge_job_name(wiring.dataset), waiting.work, before.asked, now)
        return dg.SensorResult(
            run_requests=[] if reason else [dg.RunRequest()],
            skip_reason=reason,
            cursor=Remembered(cursor, waiting.idle, told).to_json(),
            asset_events=events,
        )

    return merge_sensor
