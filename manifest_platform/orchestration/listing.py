"""Listing: the sensor that looks at a landing root, shows Dagster what is new, and asks for drains.

Its decisions are pure functions of what the manifest says and of its own cursor, so that they can be read and tested without
Dagster.
"""

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Self

import dagster as dg

from manifest_platform.config import Config, load
from manifest_platform.manifest import Application, Blocked, Item, ItemKey, Ready, Standing, State
from manifest_platform.manifest.stores import file_identity
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.asking import INTERVAL_S, Asked, asked
from manifest_platform.orchestration.drain import drain_job_name
from manifest_platform.orchestration.feed_checks import evaluations
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.pipeline import LOAD, SHRED, DiscoveryReport, Loaded, Pipeline
from manifest_platform.pipeline.chain import broken
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources.source import Source

MIRRORED_A_TICK = 200
ADDED_A_TICK = 1000


def work_waiting(pipeline: Pipeline, now: datetime, feeds: Sequence[str] | None = None) -> str | None:
    """What a drain of these feeds, or all, could do now, as text that changes whenever something new may be done; None for
    nothing.

    Items that failed are not work: they wait for a person. Those of a dead worker are, once its lease has run out. An
    item that is being retried stays the same work however its history grows, so that an outage is asked after ever more
    rarely.
    """
    refused = {one.feed for one in broken(pipeline)}
    found = [work for feed in feeds or pipeline.feeds for work in _work_of(pipeline, feed, now, feed not in refused)]
    return "; ".join(found) or None


def _work_of(pipeline: Pipeline, feed: str, now: datetime, may_load: bool) -> Iterator[str]:
    """What could be done now of one feed. `may_load`: whether its warehouse is the one that the manifest knows."""
    stuck: list[Blocked] = []
    if feed not in pipeline.source.on_demand:
        ready, stuck = pipeline.manifest.waiting(feed, SHRED, limit=1)
        yield from (_work(SHRED, item) for item in ready)
    verdict = pipeline.manifest.next(feed, LOAD)
    if isinstance(verdict, Ready) and may_load:
        yield _work(LOAD, verdict.item)
    for stopped in (*stuck, verdict):
        if not isinstance(stopped, Blocked) or stopped.standing is Standing.MODE:
            continue  # what a full load holds is settled once that is done
        processing = stopped.item.blocker()
        if processing and processing.state is State.PROCESSING:
            lease = pipeline.manifest.lease(processing.application, feed)
            if lease is None or not lease.is_live(now):
                yield f"settle {stopped.item.key.name} {stopped.item.sequence}"


def _work(application: str, item: Item) -> str:
    again = item.is_repeated(Application(application))
    return f"{application} {item.key.name} {'again' if again else item.sequence}"


def mirror(
    pipeline: Pipeline,
    landed: Collection[ItemKey],
    read: Mapping[ItemKey, Item],
    shredded: Collection[str],
    loaded: Collection[str],
) -> Iterator[dg.AssetMaterialization]:
    """Materializations for what was done outside Dagster (by the command line): of `landed`, less what Dagster knows.

    `read`: items as they were read just now, so that a long backlog costs a tick no request an item.
    """
    names = Names.of(pipeline.source)
    for key in sorted(landed):
        if key.name in shredded and key.name in loaded:
            continue
        item = read.get(key) or pipeline.manifest.item(key)
        record = item.processed_by(Application(SHRED))
        if key.name not in shredded and record:
            yield metadata.shredded_before_event(names, item, record)
        record = item.processed_by(Application(LOAD))
        if key.name not in loaded and record:
            data = record.data
            rows, size, late = data["rows"], data["bytes"], data["late"]
            done = Loaded(
                key, rows, size, 0.0, 0.0, 0, late, already=True, epoch=record.epoch or 1, told=tuple(data.get("told", ()))
            )
            yield metadata.loaded_event(names, done)


_kept: dict[tuple[str | None, str], tuple[Config, int, Pipeline]] = {}


def _pipeline(config_file: str | None, dataset: str) -> Pipeline:
    """The sensor's pipeline, kept between ticks: what its manifest has confirmed once costs no request again.

    Another configuration, or another file where the manifest was, makes another pipeline.
    """
    config, kept = load(config_file), _kept.get((config_file, dataset))
    if kept and kept[:2] == (config, file_identity(config.manifest.store)):
        return kept[2]
    _forget(config_file, dataset)
    pipeline = Pipeline(config, dataset, author="dagster sensor")
    _kept[config_file, dataset] = (config, file_identity(config.manifest.store), pipeline)
    return pipeline


def _forget(config_file: str | None, dataset: str) -> None:
    if kept := _kept.pop((config_file, dataset), None):
        kept[2].close()


@dataclass(frozen=True)
class Remembered:
    """The sensor's cursor: what it asked for, by job; what it last told, by asset and check; and, by captured feed, the
    position up to which Dagster has been shown all."""

    asked: dict[str, Asked] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """The cursor of its text; a fresh one where that is none of this form."""
        data = json.loads(text) if text else {}
        if data.keys() != {one.name for one in dataclasses.fields(cls)}:
            return cls()
        asked = {job: Asked(**one) for job, one in data["asked"].items()}
        return cls(asked, data["told"], data["shown"])

    def to_json(self) -> str:
        """The cursor as text."""
        return json.dumps(dataclasses.asdict(self))


def build_listing_sensor(source: Source, drain_jobs: Sequence[dg.JobDefinition]) -> dg.SensorDefinition:
    """The sensor that looks at a dataset's landing root, adds partitions, and asks for a drain when there is work."""
    dataset = source.dataset

    @dg.sensor(
        name=f"{dataset}_listing_sensor",
        jobs=drain_jobs,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Registers new directories and starts one drain when there is work and none is on its way.",
    )
    def listing_sensor(context: dg.SensorEvaluationContext, manifest: ManifestResource) -> dg.SensorResult:
        try:
            return _tick(context, _pipeline(manifest.config_file, dataset))
        except Exception:
            _forget(manifest.config_file, dataset)  # what it remembers may be what is wrong
            raise

    return listing_sensor


def _tick(context: dg.SensorEvaluationContext, pipeline: Pipeline) -> dg.SensorResult:
    now, instance = datetime.now(UTC), context.instance
    remembered = Remembered.from_json(context.cursor)
    report = discover(pipeline)
    for problem, names in (
        ("rewritten after discovery", report.changed),
        ("known under another URI", report.moved),
        ("dated in the future", report.future),
        ("could not be listed", report.unreadable),
        (f"not {pipeline.source.words.form}", report.unparseable),
    ):
        if names:
            context.log.warning(f"{problem}, left alone: {', '.join(names)}")
    events: list = []
    additions: list[dg.AddDynamicPartitionsRequest] = []
    shown: dict[str, str] = {}
    for feed in pipeline.feeds:
        added, found, shown[feed] = _new_in(pipeline, feed, report, instance, remembered.shown.get(feed, ""))
        additions += [added] if added.partition_keys else []
        events += found
    told: dict[str, str] = {}
    for evaluation in evaluations(pipeline, now):
        check = f"{evaluation.asset_key.to_user_string()} {evaluation.check_name}"
        told[check] = str(evaluation.description)
        events += [evaluation] if told[check] != remembered.told.get(check) else []
    requests: list[dg.RunRequest] = []
    reasons: list[str] = []
    asked_for: dict[str, Asked] = {}
    for drain in pipeline.source.drains:
        job = drain_job_name(pipeline.name, drain)
        before = remembered.asked.get(job, Asked())
        work = work_waiting(pipeline, now, drain.feeds)
        reason, asked_for[job] = asked(instance, job, work, before, now)
        reasons += [reason] if reason else []
        requests += [] if reason else [dg.RunRequest(job_name=job)]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join(reasons),
        cursor=Remembered(asked_for, told, shown).to_json(),
        dynamic_partitions_requests=additions,
        asset_events=events,
    )


def _new_in(
    pipeline: Pipeline, feed: str, report: DiscoveryReport, instance: dg.DagsterInstance, shown: str
) -> tuple[dg.AddDynamicPartitionsRequest, list[dg.AssetMaterialization], str]:
    """What of a feed Dagster does not know yet: partitions to add, and what was done outside of it. Last, up to where all is
    shown that a tick need never look at again.

    A sweep sees what others land. What was captured is in the manifest alone: of that a tick looks at what waits to be loaded,
    and goes on from what is shown.
    """
    names = Names.of(pipeline.source)
    partitions = names.partitions(feed)
    known = set(instance.get_dynamic_partitions(partitions.name or ""))
    shredded = instance.get_materialized_partitions(names.shredded(feed))
    loaded = instance.get_materialized_partitions(names.warehouse(feed))
    backlog = list(pipeline.manifest.backlog(feed, LOAD))
    beyond = islice(pipeline.manifest.items(feed, after=shown), ADDED_A_TICK) if pipeline.source.captures else ()
    captured = {item.key: item for item in beyond}
    read = captured | {item.key: item for item, _ in backlog}
    landed = {item.key: item.landed for item in read.values() if item.landed}
    landed |= {one.key: one for one in report.landed if one.key.feed == feed}
    missing = [landed[key] for key in sorted(landed) if key.name not in known][:ADDED_A_TICK]
    done_outside = mirror(pipeline, landed, read, shredded, loaded)
    events = [*(metadata.landed_event(names, one) for one in missing), *islice(done_outside, MIRRORED_A_TICK)]
    if feed not in pipeline.source.on_demand:  # any of those may be loaded at any time; they are few
        waiting = {item.key for item, how in backlog if how.standing is not Standing.LATE}
        for key in takewhile(lambda one: one not in waiting and one.name in known, captured):
            if any(True for _ in mirror(pipeline, [key], captured, shredded, loaded)):
                break
            shown = key.position
    return partitions.build_add_request([one.key.name for one in missing]), events, shown
