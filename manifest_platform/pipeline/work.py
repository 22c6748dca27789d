"""The work that a drain could do now, according to the manifest: the same question for Dagster's sensor and for a follower.

Belongs here: questions that write nothing. The work itself is in `drain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from manifest_platform.manifest import Application, Blocked, Item, Ready, Standing, State, StepState, Verdict
from manifest_platform.manifest.reading import Kept
from manifest_platform.pipeline.blackout import blackout_reason
from manifest_platform.pipeline.chain import broken
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.sources.source import SHRED

FOLLOW = Application("follow")
"""The application whose lease a follower holds, at the place of its scope."""


@dataclass(frozen=True)
class Scope:
    """The part of a dataset that a follower works on: some targets and feeds. Empty means all."""

    targets: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()

    @classmethod
    def of(cls, pipeline: Pipeline, targets: Sequence[str] | None, feeds: Sequence[str] | None) -> Self:
        """Returns the scope of these targets and feeds of a dataset; None means all."""
        return cls(_part_of(pipeline.targets, targets), _part_of(pipeline.feeds, feeds))

    @classmethod
    def at(cls, place: str) -> Self:
        """Returns the scope of the follower that holds the lease at a place."""
        targets, _, feeds = place.partition("/") if place != _ALL else ("", "", "")
        return cls(*(tuple(filter(None, part.split(","))) for part in (targets, feeds)))

    @property
    def place(self) -> str:
        """The place of its follower's lease. Followers with the same scope take over from each other."""
        return f"{','.join(self.targets)}/{','.join(self.feeds)}" if self != Scope() else _ALL

    def has(self, target: str, feed: str) -> bool:
        """True if it has a feed of a target."""
        return (not self.targets or target in self.targets) and (not self.feeds or feed in self.feeds)


_ALL = "0"
"""The place of a follower of all targets and feeds, as in releases that knew no other."""


def _part_of(all_: Sequence[str], chosen: Sequence[str] | None) -> tuple[str, ...]:
    return () if chosen is None or {*all_} <= {*chosen} else tuple(sorted({*chosen}))


class Reading:
    """The reads of a look: all states and leases with one read, and each feed's next item to load at most once.

    `asks_warehouse`: whether it asks the warehouse for broken chains; a drain finds them too. `shreds`: whether directories to
    shred are work, too; by default for the first target only, so that they are named once.
    """

    def __init__(
        self, pipeline: Pipeline, kept: Kept | None = None, asks_warehouse: bool = True, shreds: bool | None = None
    ) -> None:
        self.pipeline = pipeline
        self.shreds = pipeline.target == pipeline.targets[0] if shreds is None else shreds
        self.kept = kept or pipeline.manifest.kept()
        self.broken = {one.feed: one for one in broken(pipeline, state=self.state)} if asks_warehouse else {}
        self._next: dict[str, Verdict] = {}

    def load(self, feed: str) -> Verdict:
        """Returns the manifest's answer for a feed's next item to load."""
        if feed not in self._next:
            self._next[feed] = self.pipeline.manifest.next(feed, self.pipeline.load.key, state=self.state)
        return self._next[feed]

    @property
    def state(self) -> StepState:
        """The state of the load."""
        return self.kept.state(self.pipeline.load.key)

    def is_held(self, application: Application, feed: str, now: datetime) -> bool:
        """True if a worker holds a feed's lease. An expired lease is read again, because the first read may be old by now."""
        lease = self.kept.leases.get((application.key, feed))
        if lease is None or not lease.is_live(now):
            lease = self.pipeline.manifest.lease(application, feed)
        return lease is not None and lease.is_live(now)


def work_waiting(
    pipeline: Pipeline, now: datetime, feeds: Sequence[str] | None = None, reading: Reading | None = None
) -> str | None:
    """Returns the work that a drain of some feeds (default: all) could do now, None if there is none.

    The text changes whenever new work appears. A failed item is no work, because it waits for a person. The item of a dead
    worker is work once its lease has expired. A retried item remains the same work, so that during an
    outage the pauses between requests become longer. `reading`: reads of this look to reuse.
    """
    seen = reading or Reading(pipeline)
    found = [work for feed in (pipeline.feeds if feeds is None else feeds) for work in _work_of(pipeline, feed, now, seen)]
    return "; ".join(found) or None


def followed(pipeline: Pipeline, now: datetime) -> list[Scope]:
    """Returns the scopes that followers work on, by their leases: there nobody else needs to begin a drain."""
    return [Scope.at(place) for place, lease in pipeline.manifest.leases(FOLLOW).items() if lease.is_live(now)]


def _work_of(pipeline: Pipeline, feed: str, now: datetime, reading: Reading) -> Iterator[str]:
    """Yields the work that could be done now for one feed."""
    stuck: list[Blocked] = []
    if reading.shreds and feed not in pipeline.source.on_demand:
        ready, stuck = pipeline.manifest.waiting(feed, SHRED, limit=1)
        yield from (_work(SHRED, item) for item in ready)
    verdict = reading.load(feed)
    if blackout_reason(pipeline):
        return
    if isinstance(verdict, Ready) and feed not in reading.broken:
        yield _work(pipeline.load.key, verdict.item)
    for stopped in (*stuck, verdict):
        if not isinstance(stopped, Blocked) or stopped.standing is Standing.MODE:
            continue  # the full load ends this by itself
        step = pipeline.manifest.step(feed, pipeline.load.key)
        processing = stopped.item.blocker(counts=step.is_blocked_by)
        if not processing or processing.state is not State.PROCESSING:
            continue
        if not reading.is_held(processing.application, feed, now):
            yield f"settle {stopped.item.key.name} {stopped.item.sequence}"


def _work(application: str, item: Item) -> str:
    again = item.is_repeated(Application(application))
    return f"{application} {item.key.name} {'again' if again else item.sequence}"
