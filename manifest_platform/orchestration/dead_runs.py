"""Sensors that clean up after runs that failed, died or were canceled.

A killed process cannot report anything itself, so these sensors do: the cause, the items that the run was working on with their
attempts, and the state of a full load if the run was part of it. They report to their own log, and as an observation of each
item's partition. They also end the run's leases, so that the next drain does not have to wait until these expire.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

import dagster as dg
from dagster._core.events import JobFailureData, RunFailureReason

from manifest_platform.manifest import Item, ItemKey, State
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.duties import DUTY_TAG, Duty
from manifest_platform.orchestration.events import observation
from manifest_platform.orchestration.keys import DATASET_TAG, Names
from manifest_platform.orchestration.remedies import command_of
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.pipeline import loads
from manifest_platform.remedies import Action, Remedy


@dataclass(frozen=True)
class Left:
    """An item that a run was working on when it ended. `attempt` counts from 1."""

    item: Item
    application: str
    attempt: int


def build_dead_run_sensors(wirings: Mapping[str, Wiring], seconds: int, name: str) -> list[dg.SensorDefinition]:
    """Returns the sensors that report failed and canceled runs and end their leases, so that the next drain need not wait."""

    def tell(context: dg.RunStatusSensorContext, cause: str) -> None:
        run = context.dagster_run
        context.log.warning(f"run {run.run_id} ({run.job_name}): {cause}")
        for dataset, wiring in wirings.items():
            with wiring.pipeline() as pipeline:
                ended = pipeline.manifest.end_leases(run.run_id)  # first, because reporting may fail
                left = list(left_by(pipeline, run.run_id)) if dataset in datasets_of(run, wirings) else []
                for event in told(pipeline, wiring.names, left, run, cause):
                    context.instance.report_runless_asset_event(event)
            for one in left:
                context.log.warning(f"it was working on {one.item.key.name} ({one.application}, attempt {one.attempt})")
            if ended:
                context.log.info(f"run {run.run_id} is dead: {ended} lease(s) of {dataset} ended")

    @dg.run_failure_sensor(
        name=f"{name}_failure_sensor",
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports why a run failed or died, and ends its leases, so that the next drain need not wait.",
    )
    def failure_sensor(context: dg.RunFailureSensorContext) -> None:
        tell(context, cause_of(context))

    @dg.run_status_sensor(
        name=f"{name}_cancel_sensor",
        run_status=dg.DagsterRunStatus.CANCELED,
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports the items that a canceled run was working on, and ends its leases.",
    )
    def cancel_sensor(context: dg.RunStatusSensorContext) -> None:
        tell(context, "it was canceled")

    return [failure_sensor, cancel_sensor]


def cause_of(context: dg.RunFailureSensorContext) -> str:
    """Returns why a run failed: a step failed, the run never started, or its process died."""
    failures = [event.step_failure_data for event in context.get_step_failure_events()]
    for one in failures:
        said = one.user_failure_data.description if one.user_failure_data else None
        return f"its step failed: {said or (one.error.message.strip() if one.error else 'without a message')}"
    event = context.failure_event
    data = event.event_specific_data
    reason = data.failure_reason if isinstance(data, JobFailureData) else None
    if reason is RunFailureReason.START_TIMEOUT:
        return f"its process did not start in time: {event.message}"
    if reason in (RunFailureReason.RUN_EXCEPTION, RunFailureReason.JOB_INITIALIZATION_FAILURE):
        error = data.error if isinstance(data, JobFailureData) else None
        return f"it failed before any step: {error.message.strip() if error else event.message}"
    return f"its process died without a message (it may have been killed, or out of memory): {event.message}"


def left_by(pipeline: Pipeline, run_id: str) -> Iterator[Left]:
    """Yields the items that a run claimed and that nothing has completed, failed or resolved since."""
    manifest, seen = pipeline.manifest, set()
    for (_, feed), lease in manifest.kept().leases.items():
        if lease.run_id == run_id and lease.current is not None:
            first = ItemKey.at(feed, lease.current)
            seen.add(first)
            if last := lease.through:  # those that were claimed together with it
                coming = manifest.items(feed, after=first.position)
                seen |= {item.key for item in takewhile(lambda item: item.key.position <= last, coming)}
    for feed in pipeline.feeds:
        seen |= {stuck.item.key for stuck in manifest.waiting(feed, SHRED, limit=1)[1]}
    for key in sorted(seen):
        item = manifest.item(key)
        blocker = item.blocker()
        if blocker and blocker.state is State.PROCESSING and blocker.run_id == run_id:
            application = blocker.application.key
            begun = (one for one in item.records if one.state is State.PROCESSING and one.application.key == application)
            yield Left(item, application, sum(1 for _ in begun))


def told(pipeline: Pipeline, names: Names, left: list[Left], run: dg.DagsterRun, cause: str) -> Iterator[dg.AssetObservation]:
    """Yields an observation for each item that a run left, and an observation of a full load that the run was part of."""
    for one in left:
        key = one.item.key
        loaded = {loads(one).key: names.at(one).warehouse(key.feed) for one in names.targets}
        assets = {SHRED: names.shredded(key.feed), **loaded}
        shown = {
            "cause": cause,
            "run": run.run_id,
            "item": key.name,
            "application": one.application,
            "attempt": one.attempt,
            "attempts_at_most": pipeline.config.lease.max_attempts,
            "next": "the next drain checks whether the attempt was completed, and tries again if not",
            "command": command_of(Remedy(Action.READ_RECORDS, item=key.name), pipeline),
        }
        asset = assets.get(one.application) or names.own(key.feed, one.application)
        yield observation(asset, partition=key.name, metadata=shown)
    for one in pipeline.each_target():
        if full := _full_load(one, run, left):
            asset = names.at(one.target).warehouse(pipeline.source.main)
            yield observation(asset, metadata={"cause": cause, "run": run.run_id, **full})


def _full_load(pipeline: Pipeline, run: dg.DagsterRun, left: list[Left]) -> dict[str, dg.MetadataValue | str | int | float]:
    """Returns metadata on the full load of a target that a run began, or was loading; empty if there is none.

    The records of a run do not name the target of a job that had no time to claim an item, so all targets are reported.
    """
    feed = pipeline.source.snapshots
    is_full = run.tags.get(DUTY_TAG) == Duty.FULL and run.tags.get(DATASET_TAG) == pipeline.name
    if feed is None or not (is_full or any(one.item.key.feed == feed for one in left)):
        return {}
    state = pipeline.manifest.state(pipeline.load)
    shown = metadata.state_metadata(state)
    if state.full is None:
        return {**shown, "full_load": "none is in progress: changes continue from the current state of the warehouse"}
    snapshot = ItemKey.at(feed, state.full).name
    going_on = f"in progress with {snapshot}: readers see the old state. The next drain continues it, unless it is canceled"
    cancel = command_of(Remedy(Action.CANCEL_FULL_LOAD, target=pipeline.load.instance or ""), pipeline)
    return {**shown, "snapshot": snapshot, "full_load": going_on, "command": cancel}


def datasets_of(run: dg.DagsterRun, wirings: Mapping[str, Wiring]) -> set[str]:
    """Returns the datasets of a run, by its job's tag or its assets; all datasets if neither tells."""
    tagged = {run.tags[DATASET_TAG]} if DATASET_TAG in run.tags else set()
    if tagged or not run.asset_selection:
        return tagged or set(wirings)
    return {dataset for dataset, wiring in wirings.items() if any(map(wiring.names.place, run.asset_selection))}
