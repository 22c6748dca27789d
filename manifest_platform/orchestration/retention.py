"""The retention job and its schedule: deletes the data in storage that the datasets' `retention` no longer keeps."""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from manifest_platform.config import Config, ConfigError
from manifest_platform.manifest import LeaseBusy, StoreError
from manifest_platform.merging.errors import MergeError
from manifest_platform.operations.retention.run import Collected, collect, plan
from manifest_platform.orchestration.duties import Duty, run_tags
from manifest_platform.orchestration.events import failure, fit
from manifest_platform.orchestration.wiring import Wiring

JOB = "retention"
HINDERS = (LeaseBusy, MergeError, OSError, StoreError)
"""Errors that prevent deletions of a dataset for now. The next run tries them again."""


class RetentionRun(dg.Config):
    """The options of one run of retention."""

    dry_run: bool = False


def build_retention_job(wirings: Mapping[str, Wiring], name: str | None = None) -> dg.JobDefinition | None:
    """Returns the job that deletes data by the datasets' `retention`; None if no dataset has any.

    `name`: given in a code location with several configurations.
    """
    kept = {dataset: wiring for dataset, wiring in wirings.items() if wiring.source.settings.retention.is_on}
    if not kept:
        return None
    job_name = f"{name}_{JOB}" if name else JOB

    @dg.op(
        name=f"{job_name}_op",
        description="Deletes data in storage that the datasets' `retention` no longer keeps.",
        pool=job_name,
        out=dg.Out(dg.Nothing),
    )
    def retention_op(context: dg.OpExecutionContext, config: RetentionRun) -> Iterator:
        shown: dict[str, Any] = {"dry_run": config.dry_run}
        hindered: list[str] = []
        for dataset, wiring in kept.items():
            with wiring.pipeline(context.run_id) as pipeline:
                try:
                    done = plan(pipeline) if config.dry_run else collect(pipeline)
                except HINDERS as error:
                    hindered.append(f"{dataset}: {error}")
                    continue
            shown |= _metadata(done)
            hindered += [f"{dataset}: {one}" for one in done.failed]
        if hindered:
            raise failure(
                "Some data was not deleted. The next run tries again, but for what was rewritten.\n" + "\n".join(hindered),
                metadata=shown,
            )
        yield dg.Output(None, metadata=fit(shown))

    @dg.job(
        name=job_name,
        description="Deletes old data in storage that nothing needs any more, by the datasets' `retention`.",
        executor_def=dg.in_process_executor,
        tags=run_tags(Duty.HOUSEKEEPING, None, job_name),
    )
    def retention_job():
        retention_op()

    return retention_job


def build_retention_schedule(platform: Config, job: dg.JobDefinition) -> dg.ScheduleDefinition | None:
    """Returns the schedule of retention, on by default; None if none is configured. Raises ConfigError if it is invalid."""
    cron = platform.housekeeping.retention_schedule
    if cron is None:
        return None
    try:
        return dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            cron_schedule=cron,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description="Deletes old data in storage, by the datasets' `retention`.",
        )
    except dg.DagsterInvalidDefinitionError as error:
        raise ConfigError(
            f"housekeeping.retention_schedule: {cron!r}: allowed: five fields of cron, such as '0 5 * * *'"
        ) from error


def _metadata(done: Collected) -> dict[str, Any]:
    numbers = {f"{done.dataset}: {kind}: items": one.items for kind, one in done.tallies.items()}
    sizes = {f"{done.dataset}: {kind}: bytes": one.found.bytes for kind, one in done.tallies.items()}
    return {**numbers, **sizes}
