"""Capture: what a vault has published, downloaded, verified and registered; as an asset, as a job, and by schedules.

It has a pool of its own: it waits for no drain, and no drain for it.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from pydantic import Field

from manifest_platform.manifest import Landed, Refused, StoreError, UnknownItem
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.keys import asset_key, group_name, item_partitions
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.pipeline import SOURCES, Pipeline
from manifest_platform.pipeline.capture import capture
from manifest_platform.sources.errors import LandingError
from manifest_platform.sources.settings import DatasetSettings
from manifest_platform.sources.veeva.events import Awaited, Captured, CaptureReport, Diverged
from manifest_platform.sources.veeva.settings import VeevaSettings

NO_VALUE: Any = dg.Nothing  # the asset writes by itself, nothing is handed to an IO manager
OTHER_CONTENT = "the vault has other content now than was captured; what was captured stands, until a full load is begun"
OFTEN, DAILY = ("log", "incr"), ("full",)
"""What each schedule captures. Logs are kept by the vault for two days only, so they are asked for often."""


class CaptureConfig(dg.Config):
    """What one capture is for; where nothing is named, all feeds that are configured."""

    feeds: list[str] | None = Field(None, description="incr, log, full")


@dataclass(frozen=True)
class Capture:
    """A vault's capture: the job, and the schedules that run it."""

    job: dg.JobDefinition
    schedules: list[dg.ScheduleDefinition]


def build_windows(settings: DatasetSettings, dataset: str, feed: str) -> dg.AssetsDefinition:
    """The windows of a feed, which are captured: materialised, those that are chosen; by the schedules, what is new."""
    source = SOURCES[settings.source]

    @dg.asset(
        key=asset_key(dataset, feed, source.landed_as),
        description=source.landed_are,
        partitions_def=item_partitions(dataset, feed),
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=group_name(dataset, feed),
        owners=[settings.owner],
        kinds={source.kind, "s3" if settings.landing.root.startswith("s3://") else "file"},
        pool=f"{dataset}_capture",
        dagster_type=NO_VALUE,
    )
    def windows(context: dg.AssetExecutionContext, manifest: ManifestResource) -> Iterator:
        names = context.partition_keys
        if not names:
            raise dg.Failure("The run selects no partition; a range must name its older end first.", allow_retries=False)
        with manifest.pipeline(dataset, context.run.run_id) as pipeline:
            strangers = [name for name in names if not name.startswith(f"{feed}/")]
            if strangers:
                raise dg.Failure(f"{strangers[0]} is not of feed {feed}", allow_retries=False)
            unknown = [name for name in names if not _landed(pipeline, name)]
            report = _captured(context, pipeline, [feed], unknown, []) if unknown else None
            done = {
                name: metadata.landed_event(dataset, landed, source.landed_as)
                for name in names
                if (landed := _landed(pipeline, name))
            }
        if report and len(done) < len(names):
            yield from done.values()  # a failed run has no output to tell of them
            _fail_on(report)
        for name, event in done.items():
            context.add_asset_metadata(dict(event.metadata), partition_key=name)
        yield dg.Output(None)

    return windows


def build_capture(settings: DatasetSettings, dataset: str) -> Capture:
    """The job that captures what is new of a vault, every quarter of an hour; snapshots daily."""
    source = SOURCES[settings.source]

    @dg.op(
        name=f"{dataset}_capture_op",
        description="Downloads, verifies and registers what the vault has published, with a materialization for every window.",
        pool=f"{dataset}_capture",
        out=dg.Out(dg.Nothing),
    )
    def capture_op(context: dg.OpExecutionContext, config: CaptureConfig, manifest: ManifestResource) -> Iterator:
        with manifest.pipeline(dataset, context.run_id) as pipeline:
            events: list[Captured] = []
            report = _captured(context, pipeline, config.feeds, None, events)
        for feed in source.feeds:
            if mine := [one for one in events if one.feed == feed]:
                partitions = item_partitions(dataset, feed)
                context.instance.add_dynamic_partitions(partitions.name or "", [one.name for one in mine])
                yield from (metadata.landed_event(dataset, one.landed, source.landed_as) for one in mine)
        shown = {
            "captured": len(report.captured),
            "empty": len(report.empty),
            "known": report.known,
            "awaited": ", ".join(one.name for one in report.awaited),
            "diverged": ", ".join(report.diverged),
            "requests": report.requests,
            "bytes": report.bytes,
        }
        _fail_on(report, shown)
        yield dg.Output(None, metadata=shown)

    @dg.job(
        name=f"{dataset}_capture",
        description=f"Captures what the vault of {dataset} has published.",
        executor_def=dg.in_process_executor,  # and no tag of the dataset's: it does not queue behind a drain
    )
    def capture_job():
        capture_op()

    often = _schedule(settings, capture_job, "often", "*/15 * * * *", OFTEN)
    daily = _schedule(settings, capture_job, "daily", "15 2 * * *", DAILY)
    return Capture(capture_job, [often, daily])


def _schedule(
    settings: DatasetSettings, job: dg.JobDefinition, name: str, cron: str, feeds: Collection[str]
) -> dg.ScheduleDefinition:
    """A schedule of captures: on, where there is something to capture and the secret to log in with."""
    assert isinstance(settings, VeevaSettings)
    vault = settings.vault
    wanted = [feed for feed in vault.feeds if feed in feeds]
    variable = vault.oauth.token_variable if vault.oauth else vault.password_variable
    has_secret = bool(os.environ.get(variable))
    status = dg.DefaultScheduleStatus.RUNNING if wanted and has_secret else dg.DefaultScheduleStatus.STOPPED
    off = "" if has_secret else f" Off by default, for {variable} was not in the environment when the code was loaded."
    op = f"{job.name}_op"
    return dg.ScheduleDefinition(
        name=f"{job.name}_{name}",
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        run_config={"ops": {op: {"config": {"feeds": wanted}}}},
        default_status=status,
        description=f"Captures {', '.join(wanted) or 'nothing, as configured'}.{off}",
    )


def _landed(pipeline: Pipeline, name: str) -> Landed | None:
    """A window as it is registered; None for one that is not. Raises dagster.Failure for a name that is none."""
    try:
        return pipeline.manifest.item(pipeline.key(name)).landed
    except UnknownItem:
        return None
    except Refused as refused:
        raise dg.Failure(str(refused), allow_retries=False) from refused


def _captured(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    pipeline: Pipeline,
    feeds: Collection[str] | None,
    names: Collection[str] | None,
    captured: list[Captured],
) -> CaptureReport:
    """Captures, with a line of the log for each event; what was captured is added to `captured`. Raises dagster.Failure."""
    report: CaptureReport | None = None
    try:
        for event in capture(pipeline, feeds, names, insist=False):
            if isinstance(event, CaptureReport):
                report = event
            elif isinstance(event, Captured):
                captured.append(event)
                context.log.info(f"{event.name}: {event.landed.files} files, {event.bytes} bytes, {event.seconds:.1f} s")
            elif isinstance(event, Awaited):
                context.log.warning(f"{event.name}: the vault failed to publish it, and tries again: {event.message}")
            elif isinstance(event, Diverged):
                context.log.error(f"{event.name}: {OTHER_CONTENT}")
            else:
                context.log.error(f"{event.name}: {event.reason}")
    except (Refused, StoreError, LandingError) as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    assert report is not None  # it is the last event
    return report


def _fail_on(report: CaptureReport, shown: Mapping[str, str | int] | None = None) -> None:
    """Raises dagster.Failure where something could not be captured, or is other now. What was captured is registered."""
    reasons = [f"{one.name}: {one.reason}" for one in report.failed]
    reasons += [f"{name}: {OTHER_CONTENT}" for name in report.diverged]
    reasons += [report.unavailable] if report.unavailable else []
    if reasons:
        raise dg.Failure("\n".join(reasons), metadata=dict(shown or {}), allow_retries=False)
