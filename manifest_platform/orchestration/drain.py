"""The drain job: one run, one process, one Spark session, however many runs wait."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from manifest_platform.config import Config
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.duties import Duty, drain_pool, run_tags
from manifest_platform.orchestration.events import failure, fit
from manifest_platform.orchestration.feed_checks import feed_evaluation
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.landed import register
from manifest_platform.orchestration.remedies import command_of
from manifest_platform.orchestration.resources import ManifestResource, SparkResource
from manifest_platform.pipeline import (
    Budget,
    DrainReport,
    ItemFailed,
    Loaded,
    PutBack,
    Shredded,
    ShreddedAgain,
    ShredStarted,
    Stop,
)
from manifest_platform.pipeline.drain import drain
from manifest_platform.sources.errors import LandingError
from manifest_platform.sources.source import Drain, Source

ABNORMAL = (Stop.UNAVAILABLE, Stop.FENCED)


class DrainConfig(dg.Config):
    """What one drain does: whether it looks first for what has landed; its bounds, else those of the configuration file."""

    max_items: int | None = Field(None, ge=1, description="items to load or shred, at most")
    max_seconds: float | None = Field(None, gt=0, description="seconds after which no new work is begun")
    discover: bool = Field(True, description="whether what has landed is registered first; the listing sensor has done so")


def build_drain_jobs(platform: Config, source: Source) -> list[dg.JobDefinition]:
    """The jobs that drain a dataset, one for each drain of its source."""
    return [_drain_job(platform, source.dataset, drained) for drained in source.drains]


def drain_job_name(dataset: str, drained: Drain) -> str:
    """The name of the job of a drain."""
    return f"{dataset}_{drained.name}"


def already_discovered(job: str) -> dict[str, Any]:
    """The configuration of a drain's run for who has just looked for what has landed."""
    return {"ops": {f"{job}_op": {"config": {"discover": False}}}}


def _drain_job(platform: Config, dataset: str, drained: Drain) -> dg.JobDefinition:
    """The job that drains feeds: registers what has landed, shreds what is ready in batches, loads in order, stops when idle,
    blocked or spent."""
    job_name, pool = drain_job_name(dataset, drained), drain_pool(platform, dataset, drained)

    @dg.op(
        name=f"{job_name}_op",
        description="Registers what has landed, then shreds and loads all that the manifest allows, with a materialization for"
        " every directory.",
        pool=pool,
        out=dg.Out(dg.Nothing),
    )
    def drain_op(
        context: dg.OpExecutionContext, config: DrainConfig, manifest: ManifestResource, spark: SparkResource
    ) -> Iterator:
        defaults = platform.drain
        budget = Budget(config.max_items or defaults.max_items, config.max_seconds or defaults.max_seconds)
        loaded: list[Loaded] = []
        report = DrainReport()
        with manifest.pipeline(dataset, context.run_id) as pipeline:
            names = Names.of(pipeline.source)
            unlisted = ""
            if config.discover:
                try:
                    yield from register(context, pipeline, drained.feeds)
                except LandingError as error:
                    unlisted = f"{error}. What was registered before was worked on"
                    context.log.error(unlisted)
            for event in drain(pipeline, lambda: spark.spark_session, budget, drained.feeds):
                if isinstance(event, ShredStarted):
                    context.log.info(f"shredding {event.items} directories, {event.bytes / 2**20:.1f} MiB")
                elif isinstance(event, Shredded):
                    yield metadata.shredded_event(names, event)
                elif isinstance(event, Loaded):
                    loaded.append(event)
                    yield metadata.loaded_event(names, event)
                elif isinstance(event, ItemFailed):
                    context.log.error(f"{event.key.name}: {event.application} failed: {event.failure.message}")
                elif isinstance(event, PutBack):
                    context.log.warning(f"{event.key.name}: {event.application} put it back: {event.reason}")
                elif isinstance(event, ShreddedAgain):
                    context.log.warning(f"{event.key.name} is shredded again, by itself: {event.reason}")
                else:
                    report = event
            yield from metadata.table_events(names, loaded)
            for feed in drained.feeds:
                yield feed_evaluation(pipeline, feed)
        for end in report.ends:
            context.log.info(f"{end.feed} stopped: {end.stop} {end.reason}")
        shown = metadata.drain_metadata(report, command_of(report.remedy, pipeline) if report.remedy else "")
        abnormal = [f"{end.stop}: {end.reason}" for end in report.ends if end.stop in ABNORMAL]
        if reasons := [*([unlisted] if unlisted else []), *abnormal]:
            raise failure("\n".join(reasons), metadata=shown)
        yield dg.Output(None, metadata=fit(shown))

    @dg.job(
        name=job_name,
        description=f"Drains {dataset} ({', '.join(drained.feeds)}): what has landed is registered, and everything that may be"
        " shredded and loaded now is, in order.",
        executor_def=dg.in_process_executor,
        tags=run_tags(Duty.DRAIN, dataset, pool),
    )
    def drain_job():
        drain_op()

    return drain_job
