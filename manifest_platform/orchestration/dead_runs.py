"""Dead runs: what a run that failed, died or was canceled left behind is told, and its leases need not run out.

A run whose process was killed says nothing itself. So the sensors say it: what happened to the run, which items it was working
on and at which attempt, and how the dataset stands where that was a full load. They say it in their log, and as an observation
of each item's partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import dagster as dg
from dagster._core.events import JobFailureData, RunFailureReason

from manifest_platform.manifest import Application, Item, ItemKey, State
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.duties import DUTY_TAG, Duty
from manifest_platform.orchestration.events import observation
from manifest_platform.orchestration.keys import DATASET_TAG, Names
from manifest_platform.orchestration.remedies import command_of
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.remedies import Action, Remedy


@dataclass(frozen=True)
class Left:
    """An item that a run was working on when it ended: by which application, and at which attempt, from 1 on."""

    item: Item
    application: str
    attempt: int


def build_dead_run_sensors(wirings: Mapping[str, Wiring], seconds: int, name: str) -> list[dg.SensorDefinition]:
    """Sensors that tell what became of a run, and end its leases, so that the next drain need not wait for them."""

    def tell(context: dg.RunStatusSensorContext, cause: str) -> None:
        run = context.dagster_run
        context.log.warning(f"run {run.run_id} ({run.job_name}): {cause}")
        for dataset, wiring in wirings.items():
            with wiring.pipeline() as pipeline:
                ended = pipeline.manifest.end_leases(run.run_id)  # first of all: what is told then may fail
                left = list(left_by(pipeline, run.run_id)) if dataset in datasets_of(run, wirings) else []
                for event in told(pipeline, wiring.names, left, run, cause):
                    context.instance.report_runless_asset_event(event)
            for one in left:
                context.log.warning(f"it was at {one.item.key.name} ({one.application}, attempt {one.attempt})")
            if ended:
                context.log.info(f"run {run.run_id} is dead: {ended} lease(s) of {dataset} ended")

    @dg.run_failure_sensor(
        name=f"{name}_failure_sensor",
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells what became of a run that failed or died, and the manifest, so that its leases need not run out.",
    )
    def failure_sensor(context: dg.RunFailureSensorContext) -> None:
        tell(context, cause_of(context))

    @dg.run_status_sensor(
        name=f"{name}_cancel_sensor",
        run_status=dg.DagsterRunStatus.CANCELED,
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells what a run was at that was canceled, and the manifest, so that its leases need not run out.",
    )
    def cancel_sensor(context: dg.RunStatusSensorContext) -> None:
        tell(context, "it was canceled")

    return [failure_sensor, cancel_sensor]


def cause_of(context: dg.RunFailureSensorContext) -> str:
    """What became of a run that failed, in words: a step failed, it never started, or its process died without a word."""
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
    return f"its process died without a word, as by a kill or for want of memory: {event.message}"


def left_by(pipeline: Pipeline, run_id: str) -> Iterator[Left]:
    """The items that a run was working on: claimed by it, and ended by nobody."""
    manifest, seen = pipeline.manifest, set()
    for (_, feed), lease in manifest.kept().leases.items():
        if lease.run_id == run_id and lease.current is not None:
            seen.add(ItemKey.at(feed, lease.current))
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
    """An observation for each item that a run left, and one of the dataset's state where it ended in a full load."""
    for one in left:
        key = one.item.key
        assets = {SHRED: names.shredded(key.feed), LOAD: names.warehouse(key.feed)}
        shown = {
            "cause": cause,
            "run": run.run_id,
            "item": key.name,
            "application": one.application,
            "attempt": one.attempt,
            "attempts_at_most": pipeline.config.lease.max_attempts,
            "next": "the next drain finds out whether it was done, and tries again what was not",
            "command": command_of(Remedy(Action.READ_RECORDS, item=key.name), pipeline),
        }
        asset = assets.get(one.application) or names.own(key.feed, one.application)
        yield observation(asset, partition=key.name, metadata=shown)
    if full := _full_load(pipeline, run, left):
        yield observation(names.warehouse(pipeline.source.main), metadata={"cause": cause, "run": run.run_id, **full})


def _full_load(pipeline: Pipeline, run: dg.DagsterRun, left: list[Left]) -> dict[str, dg.MetadataValue | str | int | float]:
    """How a full load stands that a run was to begin, or was loading; empty where it was about none."""
    feed = pipeline.source.snapshots
    is_full = run.tags.get(DUTY_TAG) == Duty.FULL and run.tags.get(DATASET_TAG) == pipeline.name
    if feed is None or not (is_full or any(one.item.key.feed == feed for one in left)):
        return {}
    state = pipeline.manifest.state(Application(LOAD))
    shown = metadata.state_metadata(state)
    if state.full is None:
        return {**shown, "full_load": "none is in progress: the changes go on from what the warehouse has"}
    snapshot = ItemKey.at(feed, state.full).name
    going_on = (
        f"in progress with {snapshot}: readers see what was loaded before; the next drain goes on with it, or it is canceled"
    )
    cancel = command_of(Remedy(Action.CANCEL_FULL_LOAD), pipeline)
    return {**shown, "snapshot": snapshot, "full_load": going_on, "command": cancel}


def datasets_of(run: dg.DagsterRun, wirings: Mapping[str, Wiring]) -> set[str]:
    """The datasets that a run was about: by its job's tag, or by its assets; all where neither says."""
    tagged = {run.tags[DATASET_TAG]} if DATASET_TAG in run.tags else set()
    if tagged or not run.asset_selection:
        return tagged or set(wirings)
    return {dataset for dataset, wiring in wirings.items() if any(map(wiring.names.place, run.asset_selection))}
