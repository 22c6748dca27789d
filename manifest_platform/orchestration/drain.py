"""The drain job: one run with one process and one Spark session, for any number of waiting directories."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from manifest_platform.config.present import problems
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.blocks import blocks_of, failures_of, mark_failed
from manifest_platform.orchestration.duties import Duty, drain_job_name, drain_pool, run_tags
from manifest_platform.orchestration.events import failure, fit, telling_progress
from manifest_platform.orchestration.feed_checks import evaluated_by_a_drain, rows_held
from manifest_platform.orchestration.jobs.assignments import DrainFeeds
from manifest_platform.orchestration.jobs.running import reported_events_of
from manifest_platform.orchestration.jobs.service import JobStarted
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.landed import register
from manifest_platform.orchestration.overview import overview_news
from manifest_platform.orchestration.remedies import command_of
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import (
    Budget,
    DrainReport,
    ItemFailed,
    Loaded,
    Pipeline,
    PutBack,
    Shredded,
    ShreddedAgain,
    ShredStarted,
    Stop,
)
from manifest_platform.sources.errors import LandingError
from manifest_platform.sources.source import Drain

ABNORMAL = (Stop.UNAVAILABLE, Stop.FENCED)


class DrainConfig(dg.Config):
    """The options of one drain. Bounds that are not given come from the configuration file."""

    max_items: int | None = Field(None, ge=1, description="largest number of items to shred or load")
    max_seconds: float | None = Field(None, gt=0, description="begins no new work after this many seconds")
    discover: bool = Field(True, description="registers new directories first; the listing sensor has already done so")


def build_drain_jobs(wiring: Wiring) -> list[dg.JobDefinition]:
    """Returns the jobs that drain a dataset: one for each drain of its source."""
    return [_drain_job(wiring, drained) for drained in wiring.source.drains]


def already_discovered(job: str) -> dict[str, Any]:
    """Returns the run configuration for a drain whose caller has just registered new directories."""
    return {"ops": {f"{job}_op": {"config": {"discover": False}}}}


def _drain_job(wiring: Wiring, drained: Drain) -> dg.JobDefinition:
    """Returns a drain job: registers directories, shreds in batches, loads in order; stops when idle, blocked or spent."""
    names, dataset, defaults = wiring.names, wiring.dataset, wiring.config.drain
    job_name, pool = drain_job_name(dataset, drained), drain_pool(wiring.config, dataset, drained)

    @dg.op(
        name=f"{job_name}_op",
        description="Registers new directories, then shreds and loads all that the manifest allows, with a materialization for"
        " every directory.",
        pool=pool,
        out=dg.Out(dg.Nothing),
    )
    def drain_op(context: dg.OpExecutionContext, config: DrainConfig) -> Iterator:
        budget = Budget(config.max_items or defaults.max_items, config.max_seconds or defaults.max_seconds)
        loaded: list[Loaded] = []
        failed: list[ItemFailed] = []
        report = DrainReport()
        with wiring.pipeline(context.run_id) as pipeline, telling_progress(context):
            if wrong := problems(pipeline.config, pipeline.name, landing=False):
                raise failure("Nothing was begun. Fix the configuration first:\n" + "\n".join(wrong))
            unlisted = ""
            if config.discover:
                try:
                    yield from register(context, pipeline, names, drained.feeds)
                except LandingError as error:
                    unlisted = f"{error}. Directories that were registered before are still processed"
                    context.log.error(unlisted)
            assignment, links = DrainFeeds(tuple(drained.feeds), budget), {}
            for event in reported_events_of(context, pipeline, wiring.spark_session, assignment):
                if isinstance(event, JobStarted):
                    links = event.links
                elif isinstance(event, ShredStarted):
                    context.log.info(f"shredding {event.items} directories, {event.bytes / 2**20:.1f} MiB")
                elif isinstance(event, Shredded):
                    yield metadata.shredded_event(names, event)
                elif isinstance(event, Loaded):
                    loaded.append(event)
                    yield metadata.loaded_event(names.at(event.target), event)
                elif isinstance(event, ItemFailed):
                    failed.append(event)
                    context.log.error(f"{event.key.name}: {event.application} failed: {event.failure.message}")
                elif isinstance(event, PutBack):
                    context.log.warning(f"{event.key.name}: {event.application} put it back: {event.reason}")
                elif isinstance(event, ShreddedAgain):
                    context.log.warning(f"{event.key.name} is shredded again automatically: {event.reason}")
                else:
                    report = event
            for target in names.targets:
                one, of_target = pipeline.at(target), names.at(target)
                mine = [event for event in loaded if event.target == target]
                yield from metadata.table_events(of_target, mine, rows_held(one, of_target, mine, context.instance))
                for feed in drained.feeds:
                    yield from evaluated_by_a_drain(one, of_target, feed, context.instance)
            yield from overview_news(pipeline, names, context.instance)
            causes = _told_now(context, pipeline, names, drained.feeds, failed)
        for end in report.ends:
            context.log.info(f"{end.feed}{f', {end.target},' if end.target else ''} stopped: {end.stop} {end.reason}")
        shown = {**metadata.drain_metadata(report, command_of(report.remedy, pipeline) if report.remedy else ""), **links}
        causes += [unlisted] if unlisted else []
        causes += [f"{end.stop}: {end.reason}" for end in report.ends if end.stop in ABNORMAL]
        if causes:
            raise failure("\n".join(causes), metadata=shown, allow_retries=False)
        yield dg.Output(None, metadata=fit(shown))

    @dg.job(
        name=job_name,
        description=f"Drains {dataset} ({', '.join(drained.feeds)}): registers new directories, then shreds and loads"
        " everything that the manifest allows, in order.",
        executor_def=dg.in_process_executor,
        tags=run_tags(Duty.DRAIN, dataset, pool),
    )
    def drain_job():
        drain_op()

    return drain_job


def _told_now(
    context: dg.OpExecutionContext, pipeline: Pipeline, names: Names, feeds: Sequence[str], events: Sequence[ItemFailed]
) -> list[str]:
    """Returns the reasons for this run to fail: items that failed in it, and blocks that no run has reported yet.

    Tags the run with these blocks, and marks their partitions as failed.
    """
    blocks = [one for one in blocks_of(pipeline, feeds) if not one.was_told(context.instance, context.job_name)]
    if blocks:
        context.instance.add_run_tags(context.run_id, {name: text for one in blocks for name, text in one.tag.items()})
    failed = {one.key: one for one in failures_of(pipeline, events)}
    blocking = {one.failed.key: one.failed for one in blocks if one.failed}
    mark_failed(context, names, (failed | blocking).values())
    return [*(one.words for one in blocks), *(one.words for key, one in failed.items() if key not in blocking)]
