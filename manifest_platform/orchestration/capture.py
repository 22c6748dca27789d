"""Capture: an asset, a job and schedules that download, verify and register what a source's origin has published.

Capture has a pool of its own, so captures and drains never wait for each other.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from pydantic import Field

from manifest_platform import masking
from manifest_platform.manifest import Landed, Refused, StoreError, UnknownItem
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.duties import Duty, capture_pool, run_tags
from manifest_platform.orchestration.events import failure, fit, telling_progress
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.remedies import command_of, told
from manifest_platform.orchestration.translator import AssetKind, attributes
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import Pipeline
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.capture import Awaited, Captured, CapturePlan, CaptureReport, CaptureSchedule, Diverged
from manifest_platform.sources.errors import LandingError

NO_VALUE: Any = dg.Nothing  # the asset writes its data itself and hands no value to an IO manager


class CaptureConfig(dg.Config):
    """The feeds of one capture; all configured feeds by default."""

    feeds: list[str] | None = Field(None, description="configured feeds to capture; all by default")


@dataclass(frozen=True)
class Capture:
    """A dataset's capture job and its schedules."""

    job: dg.JobDefinition
    schedules: list[dg.ScheduleDefinition]


def build_captured(wiring: Wiring, feed: str) -> dg.AssetsDefinition:
    """Returns the asset of a captured feed. Materializing partitions captures those; the schedules capture everything new."""
    names, source = wiring.names, wiring.source

    @dg.asset(
        **attributes(names.spec(AssetKind.LANDED, feed)),
        partitions_def=names.partitions(feed),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=capture_pool(wiring.dataset),
        dagster_type=NO_VALUE,
    )
    def captured(context: dg.AssetExecutionContext) -> Iterator:
        chosen = context.partition_keys
        if not chosen:
            raise failure("The run selects no partition. A range must begin with its older end.", allow_retries=False)
        with wiring.pipeline(context.run.run_id) as pipeline, telling_progress(context):
            meant = {name: {one.feed for one in source.named(name)} for name in chosen}
            strangers = [name for name, feeds in meant.items() if feeds and feed not in feeds]
            if strangers:
                raise failure(f"{strangers[0]} does not belong to feed {feed}", allow_retries=False)
            unknown = [name for name in chosen if not _landed(pipeline, names, name)]
            report = _captured(context, pipeline, wiring.names, [feed], unknown, []) if unknown else None
            done = {name: metadata.landed_event(names, landed) for name in chosen if (landed := _landed(pipeline, names, name))}
        if report and len(done) < len(chosen):
            yield from done.values()  # the output of a failed run is not stored, so it cannot report them
            _fail_on(report, pipeline)
        for name, event in done.items():
            context.add_asset_metadata(dict(event.metadata), partition_key=name)
        yield dg.Output(None)

    return captured


def build_capture(wiring: Wiring, plan: CapturePlan) -> Capture:
    """Returns the job that captures everything new of a dataset, and the schedules that its source declares."""
    names, source, dataset = wiring.names, wiring.source, wiring.dataset

    @dg.op(
        name=f"{dataset}_capture_op",
        description=f"Downloads, verifies and registers what {plan.origin} has published, with a materialization for every"
        " directory.",
        pool=capture_pool(dataset),
        out=dg.Out(dg.Nothing),
    )
    def capture_op(context: dg.OpExecutionContext, config: CaptureConfig) -> Iterator:
        with wiring.pipeline(context.run_id) as pipeline, telling_progress(context):
            events: list[Captured] = []
            report = _captured(context, pipeline, wiring.names, config.feeds, None, events)
        for feed in source.feeds:
            if mine := [one for one in events if one.feed == feed]:
                partitions = str(names.partitions(feed).name)
                context.instance.add_dynamic_partitions(partitions, [one.name for one in mine])
                yield from (metadata.landed_event(names, one.landed) for one in mine)
        shown = {
            "captured": len(report.captured),
            "empty": len(report.empty),
            "known": report.known,
            "awaited": ", ".join(one.name for one in report.awaited),
            "diverged": ", ".join(report.diverged),
            "requests": report.requests,
            "bytes": report.bytes,
        }
        _fail_on(report, pipeline, shown)
        yield dg.Output(None, metadata=fit(shown))

    @dg.job(
        name=f"{dataset}_capture",
        description=f"Captures what {plan.origin} of {dataset} has published.",
        executor_def=dg.in_process_executor,
        tags=run_tags(Duty.CAPTURE, dataset, capture_pool(dataset)),
    )
    def capture_job():
        capture_op()

    return Capture(capture_job, [_schedule(capture_job, plan, schedule) for schedule in plan.schedules])


def _schedule(job: dg.JobDefinition, plan: CapturePlan, schedule: CaptureSchedule) -> dg.ScheduleDefinition:
    """Returns a schedule of captures. It is on by default if it has feeds to capture and the login secret is set."""
    has_secret = masking.is_set(plan.secret)
    status = dg.DefaultScheduleStatus.RUNNING if schedule.feeds and has_secret else dg.DefaultScheduleStatus.STOPPED
    off = "" if has_secret else f" Off by default, because {plan.secret} was not set when the code location was loaded."
    return dg.ScheduleDefinition(
        name=f"{job.name}_{schedule.name}",
        job=job,
        cron_schedule=schedule.cron,
        execution_timezone="UTC",
        run_config={"ops": {f"{job.name}_op": {"config": {"feeds": list(schedule.feeds)}}}},
        default_status=status,
        description=f"Captures {', '.join(schedule.feeds) or 'nothing, as configured'}.{off}",
    )


def other_content(pipeline: Pipeline, name: str) -> str:
    """Returns the message for a directory whose content at the origin has changed since it was captured."""
    source = pipeline.source
    origin = source.captures.origin if source.captures else "the origin"
    take, known = (command_of(Remedy(action, item=name), pipeline) for action in (Action.ACCEPT, Action.KEEP))
    return (
        f"{origin} now has other content than was captured. The captured content is kept. To take the new content:"
        f" {take} (only while the item is not loaded). To keep the captured content and end this report: {known}"
    )


def _landed(pipeline: Pipeline, names: Names, name: str) -> Landed | None:
    """Returns a directory as it was registered, None if it was not. Raises dagster.Failure if the name is malformed."""
    try:
        return pipeline.manifest.item(pipeline.key(name)).landed
    except UnknownItem:
        return None
    except Refused as refused:
        raise failure(told(refused, pipeline, names), allow_retries=False) from refused


def _captured(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    pipeline: Pipeline,
    names: Names,
    feeds: Collection[str] | None,
    chosen: Collection[str] | None,
    captured: list[Captured],
) -> CaptureReport:
    """Captures and logs each event; appends what was captured to `captured`. Raises dagster.Failure."""
    source = pipeline.source
    report: CaptureReport | None = None
    origin = source.captures.origin if source.captures else ""
    try:
        for event in source.capture(pipeline.manifest, pipeline.clock(), feeds, chosen, insist=False):
            if isinstance(event, CaptureReport):
                report = event
            elif isinstance(event, Captured):
                captured.append(event)
                context.log.info(f"{event.name}: {event.landed.files} files, {event.bytes} bytes, {event.seconds:.1f} s")
            elif isinstance(event, Awaited):
                context.log.warning(f"{event.name}: {origin} failed to publish it and will try again: {event.message}")
            elif isinstance(event, Diverged):
                context.log.error(f"{event.name}: {other_content(pipeline, event.name)}")
            else:
                context.log.error(f"{event.name}: {event.reason}")
    except (Refused, StoreError, LandingError) as error:
        raise failure(told(error, pipeline, names), allow_retries=False) from error
    assert report is not None  # the report is always the last event
    return report


def _fail_on(report: CaptureReport, pipeline: Pipeline, shown: Mapping[str, str | int] | None = None) -> None:
    """Raises dagster.Failure if something was not captured or has changed at the origin. What was captured stays registered."""
    reasons = [f"{one.name}: {one.reason}" for one in report.failed]
    reasons += [f"{name}: {other_content(pipeline, name)}" for name in report.diverged]
    reasons += [report.unavailable] if report.unavailable else []
    if reasons:
        raise failure("\n".join(reasons), metadata=dict(shown or {}), allow_retries=False)
