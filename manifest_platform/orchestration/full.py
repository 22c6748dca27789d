"""Full loads: the jobs that begin and cancel them, and the check that none is needed."""

from collections.abc import Iterator
from datetime import datetime

import dagster as dg
from pydantic import Field

from manifest_platform.manifest import Refused, StoreError
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.duties import Duty, feed_pool, full_pool, run_tags
from manifest_platform.orchestration.events import check_result, failure, telling_progress
from manifest_platform.orchestration.jobs.assignments import BeginFull
from manifest_platform.orchestration.jobs.running import reported_events_of
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.remedies import command_of, told
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import Pipeline, Shredded
from manifest_platform.pipeline.full import LATEST, Begun, cancel, remedy, why_needed
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import WarehouseError
from manifest_platform.warehouse.load import EMPTY, SHRINK

NO_FULL_LOAD = "no_full_load_needed"


TARGET = Field(None, min_length=1, description="target to work on; needed only if the dataset has several")


class BeginConfig(dg.Config):
    """The snapshot of a full load, its reason, and the target that loads it."""

    item: str = Field(LATEST, min_length=1, description="name of a snapshot, such as full/date=2026-01-31, or latest")
    reason: str = Field(min_length=1, description="reason, kept in the records")
    allow_empty: bool = Field(False, description="loads a snapshot without rows, which empties tables")
    allow_shrink: bool = Field(False, description="lets tables shrink by more than load.shrink allows")
    target: str | None = TARGET


class CancelConfig(dg.Config):
    """The reason to cancel a full load, and its target."""

    reason: str = Field(min_length=1, description="reason, kept in the records")
    target: str | None = TARGET


def build_full_jobs(wiring: Wiring) -> list[dg.JobDefinition]:
    """Returns the jobs that begin and cancel a full load. The next drain loads the snapshot of a begun full load.

    The begin job waits for no drain, because a blocked drain may be the reason for the full load. The cancel job waits for the
    drain's pool, because both use the warehouse.
    """
    names, dataset = wiring.names, wiring.dataset
    begun_by, cancelled_by = full_pool(dataset), feed_pool(wiring.config, wiring.source, wiring.source.main)

    @dg.op(name=f"{dataset}_full_begin_op", out=dg.Out(dg.Nothing), pool=begun_by)
    def begin_op(context: dg.OpExecutionContext, config: BeginConfig) -> Iterator:
        with wiring.pipeline(context.run_id) as opened, telling_progress(context):
            pipeline = _of_target(opened, config.target)
            try:
                allows = [one for one, given in ((EMPTY, config.allow_empty), (SHRINK, config.allow_shrink)) if given]
                assignment = BeginFull(pipeline.target, config.item, config.reason, tuple(allows))
                for event in reported_events_of(context, opened, wiring.spark_session, assignment):
                    if isinstance(event, Shredded):
                        yield metadata.shredded_event(names, event)
                    elif isinstance(event, Begun):
                        context.log.info(f"begun with {event.key.name}, epoch {event.epoch}. The next drain loads it")
            except (Refused, StoreError, WarehouseError, SparkUnavailable) as error:
                raise failure(told(error, pipeline, names), allow_retries=False) from error
            yield _state_event(pipeline, names)
        yield dg.Output(None)

    @dg.op(name=f"{dataset}_full_cancel_op", out=dg.Out(dg.Nothing), pool=cancelled_by)
    def cancel_op(context: dg.OpExecutionContext, config: CancelConfig) -> Iterator:
        with wiring.pipeline(context.run_id) as opened:
            pipeline = _of_target(opened, config.target)
            try:
                cancel(pipeline, config.reason)
            except (Refused, StoreError, WarehouseError) as error:
                raise failure(told(error, pipeline, names), allow_retries=False) from error
            yield _state_event(pipeline, names)
        yield dg.Output(None)

    @dg.job(
        name=f"{dataset}_full_begin",
        description=f"Begins a full load of {dataset}: a new epoch from a snapshot. The next drain loads it.",
        executor_def=dg.in_process_executor,
        tags=run_tags(Duty.FULL, dataset, begun_by),
    )
    def begin_job():
        begin_op()

    @dg.job(
        name=f"{dataset}_full_cancel",
        description=f"Cancels the full load of {dataset}, if the snapshot is not yet in the warehouse.",
        executor_def=dg.in_process_executor,
        tags=run_tags(Duty.FULL, dataset, cancelled_by),
    )
    def cancel_job():
        cancel_op()

    return [begin_job, cancel_job]


def _of_target(pipeline: Pipeline, target: str | None) -> Pipeline:
    """Returns the pipeline of the named target, or of the only one. Fails the run with the targets' names otherwise."""
    known = ", ".join(pipeline.targets)
    if target is None and len(pipeline.targets) > 1:
        raise failure(f"the dataset has several targets; name one as target: {known}", allow_retries=False)
    if target is not None and target not in pipeline.targets:
        raise failure(f"dataset {pipeline.name} has no target {target!r}; its targets are: {known}", allow_retries=False)
    return pipeline.at(target or pipeline.target)


def _state_event(pipeline: Pipeline, names: Names) -> dg.AssetObservation:
    """Returns the target's state as an observation of its asset of the main feed."""
    state = pipeline.manifest.state(pipeline.load)
    return dg.AssetObservation(
        names.at(pipeline.target).warehouse(pipeline.source.main), metadata=metadata.state_metadata(state)
    )


def build_full_check(wiring: Wiring, target: str) -> dg.AssetChecksDefinition:
    """Returns the check that a dataset's changes continue in a target without a full load."""

    @dg.asset_check(
        asset=wiring.names.at(target).warehouse(wiring.source.main),
        name=NO_FULL_LOAD,
        description="Changes continue from the current state of the warehouse.",
    )
    def no_full_load_needed() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            return no_full_load(pipeline.at(target), pipeline.clock())

    return no_full_load_needed


def no_full_load(pipeline: Pipeline, now: datetime) -> dg.AssetCheckResult:
    """Evaluates the check: fails with the reason and the remedy if a full load is needed."""
    why = why_needed(pipeline, now)
    shown = metadata.state_metadata(pipeline.manifest.state(pipeline.load))
    if not why:
        return check_result(passed=True, metadata=shown, description="No full load is needed.")
    command = command_of(remedy(pipeline), pipeline)
    return check_result(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"A full load is needed: {why}. Do: {command}",
        metadata={**shown, "reason": why, "command": command},
    )
