"""The listing sensor: looks at a landing root, shows Dagster new directories, and requests drains.

Its decisions are pure functions of the manifest's answers and of the sensor's cursor, so they are tested without Dagster.
"""

import dataclasses
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Self

import dagster as dg

from manifest_platform import aws
from manifest_platform.config import Config, load
from manifest_platform.manifest import Memory, Witness
from manifest_platform.manifest.stores import file_identity
from manifest_platform.orchestration.asking import Asked, asked
from manifest_platform.orchestration.blocks import Block
from manifest_platform.orchestration.drain import already_discovered
from manifest_platform.orchestration.duties import drain_job_name
from manifest_platform.orchestration.feed_checks import evaluation, evaluations, unchecked
from manifest_platform.orchestration.folder_checks import LOADED, FolderNews
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.landed import REGISTERED, left_out, log_findings
from manifest_platform.orchestration.overview import overview_news
from manifest_platform.orchestration.own_assets import OwnAsset, own_evaluations
from manifest_platform.orchestration.shown import Shown, news
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.blackout import blackout_reason
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.work import Reading, Scope, followed, work_waiting


def _untold(pipeline: Pipeline, instance: dg.DagsterInstance, job: str, feeds: Sequence[str], reading: Reading) -> str | None:
    """Returns the blocks that no drain has reported, as work for a drain; None if there are none.

    The drain reports them by its own failure.
    """
    found = [Block.of(pipeline, feed, reading.load(feed), reading.broken.get(feed)) for feed in feeds]
    return (
        "; ".join(f"report the block of {one.feed}: {one.cause}" for one in found if one and not one.was_told(instance, job))
        or None
    )


def _overview_stands(pipeline: Pipeline, reading: Reading) -> str:
    """Returns a text that changes with the content of the overview: loads and blocks."""
    found = [Block.of(pipeline, feed, reading.load(feed), reading.broken.get(feed)) for feed in pipeline.feeds]
    return f"{reading.state.version} {blackout_reason(pipeline)}{'; '.join(one.cause for one in found if one)}"


def _unchecked(names: Names, instance: dg.DagsterInstance, feeds: Sequence[str], reading: Reading) -> str | None:
    """Returns the feeds that were loaded outside Dagster since their last checks, as work for a drain; None if none."""
    state = reading.state
    found = [unchecked(names, feed, state.feed(feed), instance) for feed in feeds]
    return "; ".join(filter(None, found)) or None


def _asks(
    instance: dg.DagsterInstance, names: Names, job: str, now: datetime, feeds: Sequence[str], readings: Sequence[Reading]
) -> str | None:
    """Returns the work that a drain of all targets could do now; else blocks to report; else feeds to check; else None.

    The work on a feed of a target that a follower works on is left to it, until it ends or its lease expires.
    """
    works = [work_waiting(one.pipeline, now, feeds, one) for one in readings]
    if any(works) and (scopes := followed(readings[0].pipeline, now)):
        works = [work_waiting(one.pipeline, now, _left(one, feeds, scopes), one) for one in readings]
    if not any(works):
        works = [_untold(one.pipeline, instance, job, feeds, one) for one in readings]
    if not any(works):
        works = [_unchecked(names.at(one.pipeline.target), instance, feeds, one) for one in readings]
    return "; ".join(filter(None, works)) or None


def _left(reading: Reading, feeds: Sequence[str], scopes: Sequence[Scope]) -> list[str]:
    """Returns the feeds of a reading's target that no follower works on."""
    return [feed for feed in feeds if not any(one.has(reading.pipeline.target, feed) for one in scopes)]


OVERVIEW = "overview"
"""The cursor's key for the state of the overview."""


@dataclass
class Turn:
    """The ticks of a sensor in this process: one at a time, with a pause after a tick that cost much processor time.

    Looks every few seconds thus leave the machine to others. `began`: when the tick at work began, by the monotonic clock.
    """

    cost: float = 0.0
    until: float = 0.0
    began: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def waits(self) -> str | None:
        """Begins a tick, which ends with `end`. Returns why none may begin now; None if it has begun. Raises StillAtWork."""
        if (left := self.until - time.monotonic()) > 0:
            return f"the look before cost {self.cost:.1f} s of processor time; the next is in {left:.0f} s"
        if self._lock.acquire(blocking=False):
            self.began = time.monotonic()
            return None
        if (since := time.monotonic() - self.began) > LONGEST_TICK_S:
            raise StillAtWork(f"a tick that began {since:.0f} s ago has not ended; restart the code location")
        return f"the tick before, which began {since:.0f} s ago, has not ended"

    def end(self, cost: float, goes_on: bool) -> None:
        """Ends a tick. `cost`: its seconds of processor time. `goes_on`: it has not registered everything yet."""
        self.cost = cost
        self.until = time.monotonic() + min(9 * cost, LONGEST_PAUSE_S) if cost > SMALL_LOOK_S and not goes_on else 0.0
        self._lock.release()


class StillAtWork(Exception):
    """A tick that Dagster gave up has been at work for minutes, and so no other can begin."""


SMALL_LOOK_S = 2.0
"""The seconds of processor time of a look after which no pause is needed."""
LONGEST_PAUSE_S = 10.0
"""The longest pause: a directory that lands meanwhile must be queryable within 15 seconds."""
LONGEST_TICK_S = 300.0
"""The time after which a tick that has not ended is told as an error, and not only as the reason why none begins."""
DISCOVERY_SECONDS = 15.0
"""The time after which a tick registers no more, and leaves the rest to the next.

Dagster ends a tick after 60 seconds. The last request to a storage that does not answer takes 21 seconds more.
"""

_turns: dict[tuple[str | None, str], Turn] = {}
_kept: dict[tuple[str | None, str], tuple[Config, int, Pipeline]] = {}
_folder_news: dict[tuple[str | None, str], FolderNews] = {}


def _pipeline(config_file: str | None, dataset: str) -> Pipeline:
    """Returns the sensor's pipeline, cached between ticks: its manifest does not ask the store again for confirmed facts.

    Another configuration, or another file in place of the manifest's, makes a new pipeline.
    """
    config, kept = load(config_file), _kept.get((config_file, dataset))
    if kept and kept[:2] == (config, file_identity(config.manifest.store)):
        return kept[2]
    _forget(config_file, dataset)
    pipeline = Pipeline(config, dataset, author="dagster sensor")
    _kept[config_file, dataset] = (config, file_identity(config.manifest.store), pipeline)
    return pipeline


def _forget(config_file: str | None, dataset: str) -> None:
    _folder_news.pop((config_file, dataset), None)
    if kept := _kept.pop((config_file, dataset), None):
        kept[2].close()


@dataclass(frozen=True)
class Remembered:
    """The sensor's cursor.

    `asked`: the last request of each job. `told`: the last reported finding of each check. `shown`: how far Dagster shows each
    feed. `memory`: evidence by which the manifest tells if the store was replaced or set back since.
    """

    asked: dict[str, Asked] = field(default_factory=dict)
    told: dict[str, str | None] = field(default_factory=dict)
    shown: dict[str, Shown] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Returns the cursor of a text; an empty cursor if the text has another form."""
        data = json.loads(text) if text else {}
        if data.keys() != {one.name for one in dataclasses.fields(cls)}:
            return cls()
        asked = {job: Asked(**one) for job, one in data["asked"].items()}
        if not all(isinstance(one, dict) for one in data["shown"].values()):
            return cls(asked, data["told"])  # written by an older release
        shown = {feed: Shown(**one) for feed, one in data["shown"].items()}
        witnesses = tuple(Witness(**one) for one in data["memory"]["witnesses"])
        return cls(asked, data["told"], shown, Memory(data["memory"]["id"], witnesses))

    def to_json(self) -> str:
        """Returns the cursor as text."""
        return json.dumps(dataclasses.asdict(self))


def build_listing_sensor(
    wiring: Wiring, drain_jobs: Sequence[dg.JobDefinition], seconds: int, own: Sequence[OwnAsset] = ()
) -> dg.SensorDefinition:
    """Returns the sensor that looks at a dataset's landing root, adds partitions, and requests a drain when there is work.

    `seconds`: the pause between two looks. `own`: a user's own assets, whose outputs it reports if a full load superseded them.
    """
    dataset, config_file = wiring.dataset, wiring.manifest.config_file

    @dg.sensor(
        name=f"{dataset}_listing_sensor",
        jobs=drain_jobs,
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Registers new directories, and starts a drain when there is work and no drain is queued or in progress.",
    )
    def listing_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        turn = _turns.setdefault((config_file, dataset), Turn())
        if why := turn.waits():
            return dg.SkipReason(why)
        began, goes_on = time.thread_time(), False
        try:
            pipeline = _pipeline(config_file, dataset)
            folders = _folder_news.setdefault((config_file, dataset), FolderNews())
            with aws.impatient():
                ticked = _tick(context, pipeline, wiring.names, own, folders)
            goes_on = any(sight.goes_on for sight in pipeline.sights.values())
            return ticked
        except Exception:
            _forget(config_file, dataset)  # the cached pipeline may be the cause
            raise
        finally:
            turn.end(time.thread_time() - began, goes_on)

    return listing_sensor


def _tick(
    context: dg.SensorEvaluationContext, pipeline: Pipeline, names: Names, own: Sequence[OwnAsset], folders: FolderNews
) -> dg.SensorResult:
    now, instance = datetime.now(UTC), context.instance
    remembered = Remembered.from_json(context.cursor)
    stands, kept = pipeline.manifest.recall_kept(remembered.memory)
    if not stands:
        context.log.warning("the manifest's store was replaced or set back to an earlier time: everything is compared again")
        remembered = Remembered()
        pipeline.sights.clear()
        folders.forget()
    report = discover(pipeline, recalled=True, state=kept.state(pipeline.load.key), seconds=DISCOVERY_SECONDS)
    log_findings(context.log, pipeline, report)
    events: list = []
    partitions: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
    shown: dict[str, Shown] = {}
    registered = {*report.new, *report.late, *report.quarantined}
    reading = Reading(pipeline, None if registered else kept)  # late and quarantined items changed the state
    others = [Reading(one, reading.kept) for one in pipeline.each_target() if one is not pipeline]
    for feed in pipeline.feeds:
        told_of = news(pipeline, names, feed, registered, instance, remembered.shown.get(feed, Shown()), reading.kept)
        of_feed = names.partitions(feed)
        partitions += [of_feed.build_add_request(told_of.added)] if told_of.added else []
        partitions += [of_feed.build_delete_request(told_of.removed)] if told_of.removed else []
        shown[feed] = told_of.shown
        events += told_of.events
    told: dict[str, str | None] = {}
    ours = chain.from_iterable(
        evaluations(one.pipeline, names.at(one.pipeline.target), now, one.load, one.broken) for one in (reading, *others)
    )
    landed = evaluation(names.landed(pipeline.source.main), REGISTERED, left_out(pipeline, [report]))
    of_root = f"{landed.asset_key.to_user_string()} {REGISTERED}"
    if report.partial and landed.passed:
        told[of_root] = remembered.told.get(of_root)  # this process has not seen everything yet
    else:
        ours = chain(ours, [(of_root, str(landed.description), lambda: landed)])
    for check, description, evaluate in chain(ours, own_evaluations(pipeline, own, reading.state)):
        told[check] = description
        events += [evaluate()] if description != remembered.told.get(check) else []
    told[LOADED], of_folders = folders.look(pipeline, names, remembered.told.get(LOADED), now)
    events += of_folders
    told[OVERVIEW] = "; ".join(_overview_stands(one.pipeline, one) for one in (reading, *others))
    if told[OVERVIEW] != remembered.told.get(OVERVIEW):
        events += overview_news(pipeline, names, instance)
    requests: list[dg.RunRequest] = []
    reasons = [found.reason for one in (reading, *others) for found in one.broken.values()]
    reasons += [why] if (why := blackout_reason(pipeline)) else []
    asked_for: dict[str, Asked] = {}
    for drain in pipeline.source.drains:
        job = drain_job_name(pipeline.name, drain)
        before = remembered.asked.get(job, Asked())
        work = _asks(instance, names, job, now, drain.feeds, (reading, *others))
        reason, asked_for[job] = asked(instance, job, work, before, now)
        reasons += [reason] if reason else []
        requests += [] if reason else [dg.RunRequest(job_name=job, run_config=already_discovered(job))]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join(reasons),
        cursor=Remembered(asked_for, told, shown, pipeline.manifest.memory.with_newest(remembered.memory)).to_json(),
        dynamic_partitions_requests=partitions,
        asset_events=events,
    )
