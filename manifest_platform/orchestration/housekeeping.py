"""The housekeeping job and its schedule: removes old data from every dataset's manifest and from Dagster's own store."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG

from manifest_platform.config import Config, ConfigError
from manifest_platform.operations.housekeeping import Chore, keep_house
from manifest_platform.orchestration.dagster_store import Pruned, prune
from manifest_platform.orchestration.duties import Duty, run_tags
from manifest_platform.orchestration.events import failure, fit
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.sources.source import Stage

JOB = "housekeeping"


class HousekeepingRun(dg.Config):
    """The options of one housekeeping run."""

    dry_run: bool = False


def build_housekeeping_job(platform: Config, wirings: Mapping[str, Wiring], name: str | None = None) -> dg.JobDefinition:
    """Returns the job that does every dataset's chores, then prunes Dagster's own store.

    `name`: given in a code location with several configurations; then only runs and events of these datasets are pruned.
    """
    job_name = f"{name}_{JOB}" if name else JOB
    sets = {key: name for wiring in wirings.values() for key, name in _partition_sets(wiring)}

    @dg.op(
        name=f"{job_name}_op",
        description="Removes data older than configured under `housekeeping`, of each dataset and of Dagster's store.",
        pool=job_name,
        out=dg.Out(dg.Nothing),
    )
    def housekeeping_op(context: dg.OpExecutionContext, config: HousekeepingRun) -> Iterator:
        shown: dict[str, Any] = {"dry_run": config.dry_run}
        hindered: list[str] = []
        for dataset, wiring in wirings.items():
            with wiring.pipeline(context.run_id) as pipeline:
                for chore in keep_house(pipeline, config.dry_run):
                    context.log.info(f"{dataset}: {chore.name}: {chore.removed or chore.off or chore.hindered}")
                    shown |= _metadata(dataset, chore)
                    hindered += [f"{dataset}: {chore.name}: {chore.hindered}"] if chore.hindered else []
        days = platform.housekeeping.dagster_days
        if days is not None:
            before = datetime.now(UTC) - timedelta(days=days)
            label = context.run.tags.get(REPOSITORY_LABEL_TAG) or context.run.tags_for_storage().get(REPOSITORY_LABEL_TAG)
            ours = wirings if name else None
            shown |= _pruned(prune(context.instance, before, sets, label, config.dry_run, ours))
        if hindered:
            raise failure("Some chores failed. The next run tries again.\n" + "\n".join(hindered), metadata=shown)
        yield dg.Output(None, metadata=fit(shown))

    @dg.job(
        name=job_name,
        description="Removes old data that nothing needs any more and that would grow with every run.",
        executor_def=dg.in_process_executor,
        tags=run_tags(Duty.HOUSEKEEPING, None, job_name),
    )
    def housekeeping_job():
        housekeeping_op()

    return housekeeping_job


def build_housekeeping_schedules(platform: Config, job: dg.JobDefinition) -> list[dg.ScheduleDefinition]:
    """Returns the housekeeping schedule, on by default; empty if none is configured. Raises ConfigError if it is invalid."""
    cron = platform.housekeeping.schedule
    if cron is None:
        return []
    try:
        schedule = dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            cron_schedule=cron,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description="Removes old data of every dataset and of Dagster's store.",
        )
    except dg.DagsterInvalidDefinitionError as error:
        raise ConfigError(f"housekeeping.schedule: {cron!r}: allowed: five fields of cron, such as '30 3 * * *'") from error
    return [schedule]


def _partition_sets(wiring: Wiring) -> Iterator[tuple[dg.AssetKey, str]]:
    """Yields the assets of a dataset's feeds, each with the name of its partition set."""
    names = wiring.names
    for feed in names.feeds:
        for stage in Stage:
            yield names.stage(feed, stage), names.partitions(feed).name or ""


def _metadata(dataset: str, chore: Chore) -> dict[str, Any]:
    numbers = {f"{dataset}: {name}": count for name, count in chore.removed.items()}
    return {**numbers, **({f"{dataset}: found by the doctor": "; ".join(chore.wrong[:10])} if chore.wrong else {})}


def _pruned(pruned: Pruned) -> dict[str, int]:
    return {
        "dagster: runs": pruned.runs,
        "dagster: runs kept": pruned.kept,
        "dagster: events": pruned.events,
        "dagster: evaluations": pruned.evaluations,
    }
