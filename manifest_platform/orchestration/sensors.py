"""Sensors: a listing sensor that discovers and asks for drains, and one that tells the manifest of dead runs.

The listing sensor's decisions are pure functions of what the manifest says and of its own cursor, so that they can be read and
tested without Dagster. Dagster remembers a run key for ever, failed runs included; so none is used: at most one drain is on
its way at a time, and the cursor holds how often the same work was asked for in vain.
"""

import dataclasses
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Self

import dagster as dg

from manifest_platform.config import Config, load
from manifest_platform.manifest import Application, Blocked, Item, ItemKey, Ready, State
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.assets import run_partitions
from manifest_platform.orchestration.checks import feed_evaluation
from manifest_platform.orchestration.jobs import drain_job_name
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.pipeline import FEED, LOAD, SHRED, Loaded, Pipeline
from manifest_platform.stores import file_identity

INTERVAL_S = 30
LONGEST_PAUSE = timedelta(hours=1)
DOUBLINGS = 7  # more would be beyond the longest pause
MIRRORED_A_TICK = 200
ADDED_A_TICK = 1000

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dataclass(frozen=True)
class Asked:
    """The sensor's cursor: for which work a drain was asked last, how often in a row, and when (ISO 8601, UTC)."""

    work: str = ""
    times: int = 0
    at: str = ""
    blocked: str = ""

    def wants(self, work: str, now: datetime) -> bool:
        """Whether to ask for a drain: at once for new work, ever more rarely for work that drains have not changed."""
        if work != self.work or not self.at:
            return True
        pause = min(LONGEST_PAUSE, timedelta(seconds=INTERVAL_S * 2 ** min(self.times, DOUBLINGS)))
        return now >= datetime.fromisoformat(self.at) + pause

    def after(self, work: str, now: datetime) -> Self:
        """The cursor after a drain was asked for."""
        times = self.times + 1 if work == self.work else 1
        return dataclasses.replace(self, work=work, times=times, at=now.isoformat())


def asked(instance: dg.DagsterInstance, job: str, work: str | None, cursor: Asked, now: datetime) -> tuple[str | None, Asked]:
    """Why no run of a job is asked for, None if one is; and the cursor from then on."""
    if not work:
        return "nothing to do", cursor
    if instance.get_runs_count(dg.RunsFilter(job_name=job, statuses=UNFINISHED)):
        return f"a run of {job} is on its way", cursor
    if not cursor.wants(work, now):
        return f"asked {cursor.times} times for the same work, which did not change: {work}; asking again later", cursor
    return None, cursor.after(work, now)


def work_waiting(pipeline: Pipeline, now: datetime) -> str | None:
    """What a drain could do now, as text that changes whenever something new may be done; None for nothing.

    Items that failed are not work: they wait for a person. Those of a dead worker are, once its lease has run out. An
    item that is being retried stays the same work however its history grows, so that an outage is asked after ever more
    rarely.
    """
    found: list[str] = []
    ready, stuck = pipeline.manifest.waiting(FEED, SHRED, limit=1)
    found += [_work(SHRED, item) for item in ready]
    verdict = pipeline.manifest.next(FEED, LOAD)
    if isinstance(verdict, Ready):
        found.append(_work(LOAD, verdict.item))
    for stopped in (*stuck, verdict):
        if not isinstance(stopped, Blocked):
            continue
        processing = stopped.item.blocker()
        if processing and processing.state is State.PROCESSING:
            lease = pipeline.manifest.lease(processing.application, FEED)
            if lease is None or not lease.is_live(now):
                found.append(f"settle {stopped.item.key.name} {stopped.item.sequence}")
    return "; ".join(found) or None


def _work(application: str, item: Item) -> str:
    again = item.automatic_retries(Application(application))
    return f"{application} {item.key.name} {'again' if again else item.sequence}"


def mirror(
    pipeline: Pipeline, landed: Collection[ItemKey], shredded: Collection[str], loaded: Collection[str]
) -> Iterator[dg.AssetMaterialization]:
    """Materializations for what was done outside Dagster (by the command line): of `landed`, less what Dagster knows.

    What waits to be loaded is read at once, so that a long backlog costs a tick no request an item.
    """
    waiting = {item.key: item for item, _ in pipeline.manifest.backlog(FEED, LOAD)}
    for key in sorted(landed):
        if key.name in shredded and key.name in loaded:
            continue
        item = waiting.get(key) or pipeline.manifest.item(key)
        record = item.processed_by(Application(SHRED))
        if key.name not in shredded and record:
            yield metadata.shredded_before_event(pipeline.name, item, record)
        record = item.processed_by(Application(LOAD))
        if key.name not in loaded and record:
            done = Loaded(key, record.data["rows"], record.data["bytes"], 0.0, 0.0, 0, record.data["late"], already=True)
            yield metadata.loaded_event(pipeline.name, done)


_kept: dict[tuple[str | None, str], tuple[Config, int, Pipeline]] = {}


def _pipeline(config_file: str | None, dataset: str) -> Pipeline:
    """The sensor's pipeline, kept between ticks: what its manifest has confirmed once costs no request again.

    Another configuration, or another file where the manifest was, makes another pipeline.
    """
    config, kept = load(config_file), _kept.get((config_file, dataset))
    if kept and kept[:2] == (config, file_identity(config.manifest)):
        return kept[2]
    _forget(config_file, dataset)
    pipeline = Pipeline(config, dataset, author="dagster sensor")
    _kept[config_file, dataset] = (config, file_identity(config.manifest), pipeline)
    return pipeline


def _forget(config_file: str | None, dataset: str) -> None:
    if kept := _kept.pop((config_file, dataset), None):
        kept[2].close()


def build_listing_sensor(dataset: str, drain_job: dg.JobDefinition) -> dg.SensorDefinition:
    """The sensor that looks at a dataset's landing root, adds partitions, and asks for a drain when there is work."""
    partitions = run_partitions(dataset)

    @dg.sensor(
        name=f"{dataset}_listing_sensor",
        job=drain_job,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Registers new run directories and starts one drain when there is work and none is on its way.",
    )
    def listing_sensor(context: dg.SensorEvaluationContext, manifest: ManifestResource) -> dg.SensorResult:
        try:
            return _tick(context, _pipeline(manifest.config_file, dataset), partitions)
        except Exception:
            _forget(manifest.config_file, dataset)  # what it remembers may be what is wrong
            raise

    return listing_sensor


def _tick(
    context: dg.SensorEvaluationContext, pipeline: Pipeline, partitions: dg.DynamicPartitionsDefinition
) -> dg.SensorResult:
    now, dataset, instance = datetime.now(UTC), pipeline.name, context.instance
    cursor = Asked(**json.loads(context.cursor)) if context.cursor else Asked()
    report = pipeline.discover()
    for problem, names in (
        ("rewritten after discovery", report.changed),
        ("known under another URI", report.moved),
        ("dated in the future", report.future),
        ("not a run's name", report.unparseable),
    ):
        if names:
            context.log.warning(f"{problem}, left alone: {', '.join(names)}")
    known = set(instance.get_dynamic_partitions(partitions.name or ""))
    missing = sorted((landed for landed in report.landed if landed.key.name not in known), key=lambda landed: landed.key)
    missing = missing[:ADDED_A_TICK]
    done_outside = mirror(
        pipeline,
        [landed.key for landed in report.landed],
        instance.get_materialized_partitions(dg.AssetKey([dataset, "shredded"])),
        instance.get_materialized_partitions(dg.AssetKey([dataset, "warehouse"])),
    )
    events: list = [*(metadata.landed_event(dataset, landed) for landed in missing), *islice(done_outside, MIRRORED_A_TICK)]
    evaluation = feed_evaluation(pipeline)
    if str(evaluation.description) != cursor.blocked:
        events.append(evaluation)
        cursor = dataclasses.replace(cursor, blocked=str(evaluation.description))
    reason, cursor = asked(instance, drain_job_name(dataset), work_waiting(pipeline, now), cursor, now)
    return dg.SensorResult(
        run_requests=[] if reason else [dg.RunRequest()],
        skip_reason=reason,
        cursor=json.dumps(dataclasses.asdict(cursor)),
        dynamic_partitions_requests=[partitions.build_add_request([landed.key.name for landed in missing])],
        asset_events=events,
    )


def build_dead_run_sensors(datasets: Collection[str]) -> list[dg.SensorDefinition]:
    """Sensors that end the leases of a run that failed or was cancelled, so that the next drain need not wait for them."""

    def tell(context: dg.RunStatusSensorContext, manifest: ManifestResource) -> None:
        run_id = context.dagster_run.run_id
        for dataset in datasets:
            with manifest.pipeline(dataset) as pipeline:
                ended = pipeline.manifest.end_leases(run_id)
            if ended:
                context.log.info(f"run {run_id} is dead: {ended} lease(s) of {dataset} ended")

    @dg.run_failure_sensor(
        name="manifest_failure_sensor",
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells the manifest that a run failed, so that its leases need not run out.",
    )
    def failure_sensor(context: dg.RunFailureSensorContext, manifest: ManifestResource) -> None:
        tell(context, manifest)

    @dg.run_status_sensor(
        name="manifest_cancel_sensor",
        run_status=dg.DagsterRunStatus.CANCELED,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells the manifest that a run was cancelled, so that its leases need not run out.",
    )
    def cancel_sensor(context: dg.RunStatusSensorContext, manifest: ManifestResource) -> None:
        tell(context, manifest)

    return [failure_sensor, cancel_sensor]
