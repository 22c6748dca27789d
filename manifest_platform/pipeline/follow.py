"""The follower: a drain that stays, with Spark and its connections warm, and is woken by notices.

Belongs here: when to look, when to drain, and when to wait. A turn looks at one dataset: it lists landing if that is due or
rang, asks the manifest for work, and drains if there is some. A notice is a hint, so a listing at intervals finds what notices
lost. One follower at a time works on a dataset, or on the same targets and feeds of it, under a lease of its own; others stand
by. That lease only spares them the double work: the leases of the steps and the fence keep order, as between any two drains.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta

from manifest_platform import storage
from manifest_platform.config.config import FollowConfig
from manifest_platform.manifest import Blocked, Lease, LeaseBusy, Memory, Refused, Standing
from manifest_platform.manifest.store import StoreError
from manifest_platform.manifest.stores import file_identity, notices
from manifest_platform.notices import Bell, Notices, kind_of
from manifest_platform.notices.files import FileNotices
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.drain import Spark, drain
from manifest_platform.pipeline.events import Budget, DiscoveryReport, DrainReport, Event, FeedEnd, Loaded, Stop
from manifest_platform.pipeline.health import Doing, Health
from manifest_platform.pipeline.heard import Heard
from manifest_platform.pipeline.idle import Idleness
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.work import FOLLOW, Reading, Scope, work_waiting
from manifest_platform.sources.directories import Marker, Settle
from manifest_platform.sources.errors import LandingError
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import WarehouseError

log = logging.getLogger(__name__)

LANDING, STORE = "landing", "store"
"""The two things that ring: a dataset's landing, as `landing NAME`, and the store of all datasets."""
TURN_SECONDS, SHARED_SECONDS = 60.0, 5.0
"""The time, for each target, after which a drain with a long backlog ends, so that its follower looks again; and the time after
which it ends for other datasets of the process that have something to do. What has begun is finished first."""
LOOK_SECONDS = 5.0
"""The time after which a look with much to register lets the follower load what it has found; then it looks again at once."""
STANDBY_SECONDS = 2.0
"""The seconds between two tries of a follower that stands by. A notice of the store wakes it before that."""
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_TURN_WAIT = 1.0, 60.0, 5.0
_WAITS = (Standing.WAITING, Standing.PROCESSING, Standing.MODE)
_FAULTS = (Stop.UNAVAILABLE, Stop.FENCED, Stop.HELD, Stop.BUSY)


@dataclass(frozen=True)
class StandsBy:
    """Another follower works on the dataset."""

    holder: str


@dataclass(frozen=True)
class TookOver:
    """This follower works on the dataset from now on."""


@dataclass(frozen=True)
class Hindered:
    """A look or a drain ended with an error that a later try may not meet. `pause`: seconds until then."""

    reason: str
    pause: float = 0.0


@dataclass(frozen=True)
class Drained:
    """A drain ended. `news`: ends that were not told before."""

    report: DrainReport
    news: tuple[FeedEnd, ...]


@dataclass(frozen=True)
class Stuck:
    """Feeds are blocked, as the manifest says without a drain. Told once."""

    ends: tuple[FeedEnd, ...]


Told = Event | DiscoveryReport | StandsBy | TookOver | Hindered | Drained | Stuck


class Follower:
    """Follows one dataset. `opened` opens its pipeline; `feeds`, `targets`: None for all.

    `due`: the time of its next turn, by the monotonic clock. `others_wait`: whether its turn should end soon for others.
    """

    def __init__(
        self,
        opened: Callable[[], Pipeline],
        spark: Spark,
        settings: FollowConfig,
        feeds: Sequence[str] | None = None,
        targets: Sequence[str] | None = None,
    ) -> None:
        self._opened, self._spark, self._settings = opened, spark, settings
        self._feeds, self._targets = feeds, targets
        self.pipeline = opened()
        self._scope = Scope.of(self.pipeline, targets, feeds)
        self.others_wait: Callable[[], bool] = lambda: False
        self.notices: Notices | None = None  # those of landing
        self.due = 0.0
        limits = self.pipeline.config.limits
        longest = max(limits.of(step) for step in ("shred", "load", "full"))
        self.health = Health(self.pipeline.name, limit=2 * longest.total_seconds())
        self._file = self._identity()
        self._lease: Lease | None = None
        self._heard = Heard()
        self._listing = 0.0  # when the next listing is due
        self._pause = _Pause()
        self._told: dict[tuple[str, str], tuple[object, ...]] = {}
        self._outage, self._hindered = _Pause(), ""
        self._warmed = not settings.warm_spark

    def close(self) -> None:
        """Gives the lease back, so that another follower takes over at once, and closes the connections."""
        try:
            if self._lease:
                self._lease.release()
        finally:
            self.pipeline.close()

    def landing_notices(self) -> Notices | None:
        """Returns new notices of the dataset's landing root. The next look reads what they name."""
        return landing_notices(self.pipeline, self._heard.hear)

    def turn(self, landing_rang: bool) -> Generator[Told]:
        """Looks, and drains if there is work. Sets the time of the next turn."""
        self.health.heard = time.monotonic()
        try:
            for told in self._guarded(landing_rang):
                yield told
                self.health.heard = time.monotonic()
        finally:
            self.health.heard = None

    def _guarded(self, landing_rang: bool) -> Iterator[Told]:
        try:
            yield from self._turn(landing_rang)
        except (StoreError, Refused, WarehouseError, SparkUnavailable) as error:
            yield from self._hinder(str(error))

    def _turn(self, landing_rang: bool) -> Iterator[Told]:
        self._reopen()
        before = self.health.doing
        if busy := self._lacks_lease():
            self.health.doing = Doing.STANDBY
            left = (busy.lease.expires_at - self.pipeline.clock()).total_seconds()
            self.due = time.monotonic() + min(STANDBY_SECONDS, max(0.05, left))
            if before is not Doing.STANDBY:
                yield StandsBy(busy.lease.holder)
            return
        if before in (Doing.STARTING, Doing.STANDBY):
            self._listing = 0.0
            yield TookOver()
        self.health.doing = Doing.WORKING
        unlisted = ""
        if landing_rang or time.monotonic() >= self._listing:
            try:
                yield from self._list()
            except LandingError as error:
                unlisted = str(error)
        yield from self._work()
        self.health.looked_at = self.pipeline.clock()
        self.health.requests = self.pipeline.manifest.store.requests
        if unlisted:
            yield from self._hinder(unlisted)
            self._listing = self.due
            return
        self._hindered, self._outage = "", _Pause()
        if self.health.doing is Doing.WORKING:
            self.health.doing, self.health.unavailable = Doing.IDLE, ""
            self._warm()

    def _reopen(self) -> None:
        """Opens the pipeline again if another file has replaced the store's, as after a restore."""
        if (found := self._identity()) != self._file:
            self.close()
            self.pipeline, self._lease, self._file = self._opened(), None, found

    def _identity(self) -> int:
        return file_identity(self.pipeline.config.manifest.store)

    def _lacks_lease(self) -> LeaseBusy | None:
        """Takes the follower's lease, unless it is held already. Returns the refusal if another follower has it."""
        if self._lease and not self._lease.lost.is_set():
            return None
        self._lease, seconds = None, timedelta(seconds=self.pipeline.config.lease.seconds)
        try:
            self._lease = self.pipeline.manifest.hold(FOLLOW, self._scope.place, self.pipeline.holder, seconds)
        except LeaseBusy as busy:
            return busy
        return None

    def _list(self) -> Iterator[Told]:
        """Looks at landing in parts, and sets the time of the next look.

        That is at once if this look has not registered everything, and earlier if a directory will have settled by then.
        """
        self._listing = time.monotonic() + self._settings.listing_seconds
        feeds = [feed for feed in self.pipeline.feeds if self._feeds is None or feed in self._feeds]
        settle = self.notices.taken() if self.notices else None
        self._heard.bring_forward(self.pipeline)
        found = discover(self.pipeline, feeds=feeds, seconds=LOOK_SECONDS)
        if settle:
            self._settle(settle)
        self.health.listed_at = now = self.pipeline.clock()
        completeness = self.pipeline.source.completeness
        for one in found.waiting:
            ready = one.over
            if ready is None and isinstance(completeness, Settle):
                ready = max(one.changed or now, now) + timedelta(seconds=completeness.seconds)
            if ready and ready > now:
                self._listing = min(self._listing, time.monotonic() + (ready - now).total_seconds())
        if found.goes_on:
            self._listing = time.monotonic()
        yield found

    def _settle(self, settle: Callable[[], object]) -> None:
        """Settles the notices that a listing covers. What cannot be settled comes again, and does no harm."""
        try:
            settle()
        except Exception as error:  # any error of the place of the notices, which the platform does not rest on
            log.warning("notices of %s were not settled and will come again: %s", self.health.dataset, error)

    def _work(self) -> Iterator[Told]:
        """Drains if the manifest has work. After a fault, or without progress, the same work waits for a growing pause."""
        self.due = self._listing
        now = self.pipeline.clock()
        readings, work = self._waiting(now)
        if work:
            if not self._pause.allows(work):
                self.due = min(self.due, self._pause.until)
                return
            yield from self._drain(work)
            return
        self._wait_for_leases(readings, now)
        stands = {(end.feed, end.target): end for one in readings for end in _blocks(one, self._feeds)}
        if news := self._news(stands):
            yield Stuck(tuple(news))

    def _waiting(self, now: datetime) -> tuple[list[Reading], str]:
        """Returns reads of the manifest for each target, and the work that a drain could do now, as text."""
        kept = self.pipeline.manifest.recall_kept(Memory())[1]
        targets = [self.pipeline.at(name) for name in self._targets or self.pipeline.targets]
        # Whatever its targets are, it shreds what they wait for.
        readings = [Reading(one, kept, asks_warehouse=False, shreds=one is targets[0]) for one in targets]
        works = filter(None, (work_waiting(one.pipeline, now, self._feeds, one) for one in readings))
        return readings, "; ".join(works)

    def wants_turn(self, rung: Collection[str]) -> bool:
        """True if a turn is due, or would do more than look, after these rang. A follower that stands by wants none."""
        if self.health.doing is Doing.STANDBY:
            return False
        if time.monotonic() >= self.due or self.rings_for_landing in rung:
            return True
        if STORE not in rung or not self._lease or self._lease.lost.is_set():
            return False
        try:
            work = self._waiting(self.pipeline.clock())[1]
        except (StoreError, Refused):
            return True  # its turn reports it
        return bool(work) and self._pause.allows(work)

    @property
    def rings_for_landing(self) -> str:
        """The text that rings if something landed."""
        return f"{LANDING} {self.health.dataset}"

    def _drain(self, work: str) -> Iterator[Told]:
        asked = time.monotonic()

        def gives_way() -> bool:
            nonlocal asked
            if time.monotonic() - asked < SHARED_SECONDS:
                return False
            asked = time.monotonic()
            return self.others_wait()

        seconds = TURN_SECONDS * len(self._targets or self.pipeline.targets)
        budget = Budget(seconds=seconds)
        with closing(drain(self.pipeline, self._spark, budget, self._feeds, self._targets, gives_way)) as events:
            for event in events:
                if isinstance(event, DrainReport):
                    self._pause.after(event, work)
                    self._keep(event)
                    stands = {(end.feed, end.target): end for end in event.ends if end.stop is not Stop.IDLE}
                    yield Drained(event, tuple(self._news(stands)))
                else:
                    if isinstance(event, Loaded):
                        self.health.item, self.health.item_at = event.key.name, self.pipeline.clock()
                    yield event

    def _keep(self, report: DrainReport) -> None:
        """Keeps what a drain's end means for the next turn, and for the health."""
        if unavailable := next((end.reason for end in report.ends if end.stop in (Stop.UNAVAILABLE, Stop.HELD)), ""):
            self.health.doing, self.health.unavailable = Doing.UNAVAILABLE, unavailable
        out_of_time = any(end.stop is Stop.BUDGET_SECONDS for end in report.ends)
        if out_of_time or self._pause.until:
            self.due = min(self.due, time.monotonic() if out_of_time else self._pause.until)

    def _wait_for_leases(self, readings: Sequence[Reading], now: datetime) -> None:
        """Sets the next turn to the time when the lease of another worker on the next item expires, if that comes first."""
        for reading in readings:
            for (application, _), lease in reading.kept.leases.items():
                if application != FOLLOW.key and lease.is_live(now):
                    self.due = min(self.due, time.monotonic() + (lease.expires_at - now).total_seconds() + 0.05)

    def _news(self, stands: dict[tuple[str, str], FeedEnd]) -> list[FeedEnd]:
        """Returns the ends that were not told yet. An end that is over may be told again when it comes back."""
        marks = {place: _mark(end) for place, end in stands.items()}
        news = [end for place, end in stands.items() if self._told.get(place) != marks[place]]
        self._told = marks
        self.health.blocked = {
            " ".join(filter(None, place)): end.reason for place, end in stands.items() if end.stop is Stop.BLOCKED
        }
        return news

    def _hinder(self, reason: str) -> Iterator[Told]:
        """Notes an error, tells it once, and waits for a growing pause."""
        pause = self._outage.longer()
        self.due = time.monotonic() + pause
        self.health.doing, self.health.unavailable = Doing.UNAVAILABLE, reason
        if not self._hindered:
            yield Hindered(reason, pause)
        self._hindered = reason

    def _warm(self) -> None:
        """Starts Spark, once, if nothing waits."""
        if not self._warmed:
            self._warmed = True
            self._spark()


class _Pause:
    """The pause before the same work is tried again: it doubles, and has jitter, so that many do not come at once."""

    def __init__(self) -> None:
        self.until = 0.0
        self._times, self._work, self._strict = 0, "", False

    def allows(self, work: str) -> bool:
        """True if the work may begin now. New work may begin before the pause is over, unless an attempt would be counted."""
        return time.monotonic() >= self.until or (work != self._work and not self._strict)

    def longer(self, longest: float = _LONGEST_PAUSE) -> float:
        """Begins the next pause, and returns its seconds."""
        pause = min(longest, _FIRST_PAUSE * 2.0**self._times) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        self._times = min(self._times + 1, 10)
        self.until = time.monotonic() + pause
        return pause

    def after(self, report: DrainReport, work: str) -> None:
        """Ends the pause after a drain that made progress without a fault; begins the next after any other."""
        stops = {end.stop for end in report.ends}
        faults = bool(report.failed or report.put_back or stops & {*_FAULTS})
        progress = bool(report.loaded or report.shredded)
        if progress:
            self._times = 0
        self._work, self._strict = work, bool(report.failed)
        if faults or not progress:
            self.longer(_LONGEST_TURN_WAIT if stops <= {Stop.BUSY, Stop.IDLE} else _LONGEST_PAUSE)
        else:
            self.until = 0.0


def _mark(end: FeedEnd) -> tuple[object, ...]:
    """Returns what tells an end from another. Reasons of an outage may have times and numbers in them, so they do not count."""
    return end.stop, end.item, end.reason if end.stop is Stop.BLOCKED else ""


def _blocks(reading: Reading, feeds: Sequence[str] | None) -> Iterator[FeedEnd]:
    """Yields the blocked feeds of a target, as the manifest has them."""
    pipeline = reading.pipeline
    target = pipeline.target if len(pipeline.targets) > 1 else ""
    for feed in feeds or pipeline.feeds:
        verdict = reading.load(feed)
        if isinstance(verdict, Blocked) and verdict.standing not in _WAITS:
            yield FeedEnd(feed, Stop.BLOCKED, verdict.item.key.name, verdict.reason, verdict.remedy, target)


def landing_notices(pipeline: Pipeline, hear: Callable[[str], object]) -> Notices | None:
    """Returns the notices of a dataset's landing root; None if there are none for such a place.

    `hear` is called with the URI of each object and folder that counts, in a thread of the notices.
    """
    source = pipeline.source
    landing = getattr(pipeline.dataset, "landing", None)

    def counts(uri: str, is_folder: bool = False) -> bool:
        # A folder may have been moved into place with its marker in it.
        if not source.holds(uri) or not (is_folder or _is_last(pipeline, uri)):
            return False
        hear(uri)
        return True

    if landing and landing.notify:
        return kind_of(landing.notify)(landing.notify, counts)
    if not storage.is_local(source.root):
        return None
    return FileNotices(storage.local_path(source.root), lambda path, is_folder: counts(storage.as_uri(path), is_folder))


def _is_last(pipeline: Pipeline, path: str) -> bool:
    """True for a file that may complete its directory: the marker, or any file if there are no markers."""
    completeness = pipeline.source.completeness
    return not isinstance(completeness, Marker) or path.rpartition("/")[2] == completeness.name


def follow(followers: Sequence[Follower], bell: Bell, warn: Callable[[str], object]) -> Generator[tuple[Follower, Told]]:
    """Gives every follower a turn when it is due or something rings for it, for ever. Yields the events of each.

    A turn ends early for others that have something to do.

    `warn` is called with a message for notices that fail.
    """
    settings = followers[0].pipeline.config
    for one in followers:
        others = [other for other in followers if other is not one]
        one.others_wait = lambda others=others: any(other.wants_turn(bell.rung) for other in others)
    if of_store := notices(settings.manifest.store):
        bell.listen(of_store, STORE, warn)
    idleness = Idleness(settings.spark.ends_idle_after)
    idleness.worked()  # a session may be warm already
    while True:
        rung = bell.wait(min(idleness.due, *(one.due for one in followers)) - time.monotonic())
        idleness.look()
        for one in followers:
            landing_rang = one.rings_for_landing in rung
            if landing_rang or STORE in rung or time.monotonic() >= one.due:
                for told in one.turn(landing_rang):
                    if not isinstance(told, DiscoveryReport | Stuck | StandsBy):
                        idleness.worked()
                    if isinstance(told, TookOver) and (of_landing := one.landing_notices()):
                        one.notices = of_landing  # not before: a queue's messages are for whoever lists
                        bell.listen(of_landing, one.rings_for_landing, warn)
                    elif isinstance(told, StandsBy) and one.notices:
                        bell.hush(one.notices)
                        one.notices = None
                    yield one, told
