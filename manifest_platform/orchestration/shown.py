"""What Dagster is shown of a feed: a bounded recent part, of which a tick reads what is new and what may have changed.

Belongs here: which partitions come and go, and the events of what was done outside Dagster. The manifest stays the index. A
tick that compared all that both know read 100,000 partitions each time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

import dagster as dg

from manifest_platform.manifest import Application, Item, Record, Refused
from manifest_platform.manifest.manifest import Kept
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.keys import Names
from manifest_platform.pipeline import LOAD, SHRED, Loaded, Pipeline
from manifest_platform.pipeline.shredding import OutputGone, listing_of
from manifest_platform.warehouse.errors import Unavailable

ADDED_A_TICK = 1000
MIRRORED_A_TICK = 200
REMOVED_A_TICK = 1000
LOOKED_AT = 500
"""Items that a tick compares with Dagster."""
SLACK = 0.02
"""By how much of their number the partitions may exceed it before the oldest leave: the list of them is read then."""


@dataclass(frozen=True)
class Shown:
    """How far a feed is shown.

    `upto`: position of the newest item that was looked at. `seen`: how the steps' rows stood when the newest were last compared
    with Dagster. A round compares the recent part from the newest down: `turn` is where it goes on, None where none is under
    way; `covered`: how many items it has passed; `began`: how the rows stood then. `left`: the name of the newest item that
    left Dagster; `partitions`: how many it has, None where that is not known.
    """

    upto: str = ""
    seen: str = ""
    turn: str | None = None
    covered: int = 0
    began: str = ""
    left: str = ""
    partitions: int | None = None


@dataclass
class News:
    """What a tick tells Dagster of a feed: partitions that come and go, events, and how far all is shown then."""

    shown: Shown
    added: list[str]
    removed: list[str]
    events: list[dg.AssetMaterialization]


def news(
    pipeline: Pipeline,
    names: Names,
    feed: str,
    registered: Collection[str],
    instance: dg.DagsterInstance,
    shown: Shown,
    kept: Kept,
) -> News:
    """What Dagster does not know yet of a feed. `registered`: the names of what this tick registered itself.

    New items lie beyond the newest that was looked at. What was done outside Dagster is found by comparing: the newest of what
    is loaded, whenever a step's row has changed, and in rounds all of the recent part.
    """
    told = _Told(pipeline, names, feed, instance, News(shown, [], [], []))
    stands = _stands(kept, feed)
    if shown == Shown():
        told.let_strangers_leave()
    if stands != shown.seen or not shown.upto or registered:
        told.look_at_the_newest(kept.state(LOAD).feed(feed).watermark)
        told.begin_round(stands)
    if stands != shown.seen or registered or pipeline.manifest.has_heard_beyond(feed, shown.upto):
        told.look_beyond()
    told.go_on(stands)
    told.tell_of_tables()
    told.let_the_oldest_leave()
    return told.news


def _seconds(item: Item, record: Record) -> float:
    """How long it took to do what a record says: since the claim that it ends."""
    begun = next((one.timestamp for one in item.records if one.record_id == record.previous), record.timestamp)
    return (record.timestamp - begun).total_seconds()


def _stands(kept: Kept, feed: str) -> str:
    """Text that changes with every claim and completion on a feed, by the versions of the rows that they write."""
    leases = sorted((name, lease.version) for (name, place), lease in kept.leases.items() if place == feed)
    return f"{kept.state(LOAD).version} {leases}"


class _Told:
    """What is told of a feed in one tick, while it is found."""

    def __init__(self, pipeline: Pipeline, names: Names, feed: str, instance: dg.DagsterInstance, news: News):
        self.pipeline, self.feed, self.instance, self.news = pipeline, feed, instance, news
        self.names = names
        self.partitions = self.names.partitions(feed)
        self.most = pipeline.config.dagster.partitions
        self._loads: list[tuple[Item, Loaded]] = []  # those that are told of in this tick, oldest first

    def let_strangers_leave(self) -> None:
        """Has partitions leave that the manifest does not know, as those of a store that was there before."""
        there = self.instance.get_dynamic_partitions(self.partitions.name or "")
        if there:
            known = {item.key.name for item in islice(self._items(reverse=True), max(self.most, len(there)))}
            self.news.removed = [name for name in there if name not in known][:REMOVED_A_TICK]
            self.news.shown = replace(self.news.shown, partitions=len(there) - len(self.news.removed))

    def look_at_the_newest(self, watermark: str) -> None:
        """Compares what lies just behind the watermark: what was loaded since the last tick."""
        after = f"{watermark}#~" if watermark else ""
        if after:
            self._compare(list(islice(self._items(after, reverse=True), LOOKED_AT)))

    def begin_round(self, stands: str) -> None:
        """Begins a round from the newest item down, unless one is under way."""
        shown = self.news.shown
        if not shown.upto:
            newest = next(self._items(reverse=True, page=10), None)
            shown = replace(shown, upto=newest.key.position if newest else "")
        if shown.turn is None:
            shown = replace(shown, turn="", covered=0, began=stands)
        self.news.shown = replace(shown, seen=stands)

    def look_beyond(self) -> None:
        """Adds what lies beyond the newest item that was looked at."""
        if not self.news.shown.upto:
            return
        found = list(islice(self._items(self.news.shown.upto), ADDED_A_TICK))
        if found and self._compare(found):
            self.news.shown = replace(self.news.shown, upto=found[-1].key.position)

    def go_on(self, stands: str) -> None:
        """The next part of the round. It ends with the feed, or with as many items as Dagster keeps."""
        shown = self.news.shown
        if shown.turn is None:
            return
        limit = min(LOOKED_AT, self.most - shown.covered)
        found = list(islice(self._items(shown.turn, reverse=True), limit))
        recent = [item for item in found if not self._has_left(item.key.name)]
        if not self._compare(recent):
            return  # there was more than a tick tells: this part once more
        covered = shown.covered + len(recent)
        ended = len(recent) < LOOKED_AT or covered >= self.most
        self.news.shown = replace(self.news.shown, turn=None if ended else found[-1].key.position, covered=covered)
        if ended and shown.began != stands:  # something was done behind the round's back
            self.news.shown = replace(self.news.shown, turn="", covered=0, began=stands)

    def _items(self, after: str = "", reverse: bool = False, page: int = LOOKED_AT) -> Iterator[Item]:
        return self.pipeline.manifest.items(self.feed, after=after, page=page, reverse=reverse, archived=False)

    def _compare(self, items: Sequence[Item]) -> bool:
        """Tells what Dagster lacks of some items, in their order; whether that was all."""
        items = sorted((item for item in items if item.landed and not self._has_left(item.key.name)), key=lambda one: one.key)
        names = [item.key.name for item in items]
        if not names:
            return True
        there = self._there(names)
        missing = [item for item in items if item.key.name not in there and item.key.name not in self.news.added]
        room = ADDED_A_TICK - len(self.news.added)
        added = missing[:room]
        self.news.added += [item.key.name for item in added]
        self.news.events += [metadata.landed_event(self.names, item.landed) for item in added if item.landed]
        self.news.shown = replace(self.news.shown, partitions=self._count() + len(added))
        shredded, loaded = (self._materialized(asset, names) for asset in (self.names.shredded, self.names.warehouse))
        done = list(islice(self._done_outside(items, shredded, loaded), MIRRORED_A_TICK + 1))
        self.news.events += [event for event, _ in done[:MIRRORED_A_TICK]]
        self._loads += [load for _, load in done[:MIRRORED_A_TICK] if load]
        return len(missing) <= room and len(done) <= MIRRORED_A_TICK

    def _there(self, names: Sequence[str]) -> Set[str]:
        """Which of some names Dagster has as partitions. An older Dagster can be asked for all alone, which are bounded too."""
        ask = getattr(self.instance, "get_existing_dynamic_partitions", None)
        known = self.partitions.name or ""
        return ask(known, names) if ask else set(self.instance.get_dynamic_partitions(known)).intersection(names)

    def _materialized(self, asset, names: Sequence[str]) -> set[str]:
        """Which of some partitions of an asset Dagster has seen, or is told of in this tick."""
        key = asset(self.feed)
        stored = self.instance.get_latest_storage_id_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION, partitions=set(names)
        )
        return {*stored, *(event.partition for event in self.news.events if event.asset_key == key and event.partition)}

    def _done_outside(
        self, items: Iterable[Item], shredded: Collection[str], loaded: Collection[str]
    ) -> Iterator[tuple[dg.AssetMaterialization, tuple[Item, Loaded] | None]]:
        for item in items:
            record = item.processed_by(Application(SHRED))
            if item.key.name not in shredded and record:
                yield metadata.shredded_before_event(self.names, item, record), None
            record = item.processed_by(Application(LOAD))
            if item.key.name not in loaded and record:
                data = record.data
                rows, size, late, told = data["rows"], data["bytes"], data["late"], tuple(data.get("told", ()))
                seconds, lag = _seconds(item, record), (record.timestamp - item.records[0].timestamp).total_seconds()
                done = Loaded(item.key, rows, size, seconds, lag, 0, late, already=True, epoch=record.epoch or 1, told=told)
                yield metadata.loaded_event(self.names, done), (item, done)

    def tell_of_tables(self) -> None:
        """Tells of each table that what was loaded outside Dagster reached: its rows, and the columns of the newest listing.

        Without that, a table that a drain of the command line made would be shown once the code is loaded anew. A listing that
        cannot be read now costs a table its event, not the tick.
        """
        loads = {item.key: (item, done) for item, done in self._loads}
        left = {name for _, done in loads.values() for name, rows in done.rows.items() if rows}
        told: list[Loaded] = []
        for item, done in sorted(loads.values(), key=lambda one: one[0].key, reverse=True):
            if left & done.rows.keys():
                with contextlib.suppress(OutputGone, Unavailable, Refused):
                    tables = tuple(table for table in listing_of(item).tables if table.name in left)
                    left -= {table.name for table in tables}
                    done = replace(done, tables=tables)
            told.append(done)
        self.news.events += metadata.table_events(self.names, told[::-1])

    def _count(self) -> int:
        """How many partitions Dagster has; their list is read only where nothing is known."""
        known = self.news.shown.partitions
        return len(self.instance.get_dynamic_partitions(self.partitions.name or "")) if known is None else known

    def let_the_oldest_leave(self) -> None:
        """Has the oldest partitions leave where there are too many: they are as many as Dagster keeps, and some more."""
        if (self.news.shown.partitions or 0) <= self.most * (1 + SLACK):
            return
        there = {*self.instance.get_dynamic_partitions(self.partitions.name or ""), *self.news.added} - {*self.news.removed}
        oldest = sorted(there, key=self._age)[: max(0, len(there) - self.most)][:REMOVED_A_TICK]
        gone = set(oldest)
        self.news.added = [name for name in self.news.added if name not in gone]
        self.news.removed = [*self.news.removed, *oldest]
        left = max([*oldest, *filter(None, [self.news.shown.left])], key=self._age, default="")
        self.news.shown = replace(self.news.shown, left=left, partitions=len(there) - len(oldest))

    def _has_left(self, name: str) -> bool:
        left = self.news.shown.left
        return bool(left) and self._age(name) <= self._age(left)

    def _age(self, name: str) -> tuple[datetime, str]:
        return self.pipeline.source.time(name) or datetime.min.replace(tzinfo=UTC), name
