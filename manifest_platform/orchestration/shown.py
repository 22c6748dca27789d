"""Synchronization of a feed with Dagster, which shows a bounded number of the newest items.

This module decides which partitions appear and disappear, and reports work that was done outside Dagster. A tick reads only
items that are new or may have changed. An earlier version compared everything, and read 100,000 partitions in each tick. The
manifest remains the full list of items.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

import dagster as dg

from manifest_platform.manifest import Application, Item, ItemKey, Record, Refused
from manifest_platform.manifest.reading import Kept
from manifest_platform.orchestration import metadata
from manifest_platform.orchestration.keys import Names
from manifest_platform.pipeline import SHRED, Loaded, Pipeline
from manifest_platform.pipeline.shredding import OutputGone, listing_of
from manifest_platform.warehouse.errors import Unavailable

ADDED_A_TICK = 1000
MIRRORED_A_TICK = 200
REMOVED_A_TICK = 1000
LOOKED_AT = 500
"""The number of items that a tick compares with Dagster."""
SLACK = 0.02
"""The share by which the number of partitions may exceed the limit before the oldest are removed, which reads their list."""


@dataclass(frozen=True)
class Shown:
    """The part of a feed that Dagster shows.

    `upto`: position of the newest item that was compared. `seen`: versions of the steps' rows when the newest items were last
    compared. A round compares the recent part from the newest item down: `turn` is its next position, None between rounds;
    `covered`: the number of items that it has passed; `began`: versions of the rows at its start. `left`: the name of the
    newest item that was removed from Dagster. `partitions`: the number of partitions in Dagster, None if unknown.
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
    """The result of a tick for a feed: partitions to add and remove, events, and how far Dagster then shows the feed."""

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
    """Returns what Dagster does not know yet of a feed. `registered`: names of items that this tick registered itself.

    New items are beyond the newest compared position. Work done outside Dagster is found by comparison: of the newest loaded
    items whenever a step's row has changed, and of the whole recent part in rounds.
    """
    told = _Told(pipeline, names, feed, instance, News(shown, [], [], []))
    application = pipeline.load.key
    stands = _stands(kept, application, feed)
    if shown == Shown():
        told.let_strangers_leave()
    if stands != shown.seen or not shown.upto or registered:
        told.look_at_the_newest(kept.state(application).feed(feed).watermark)
        told.begin_round(stands)
    if stands != shown.seen or registered or pipeline.manifest.has_heard_beyond(feed, shown.upto):
        told.look_beyond()
    told.go_on(stands)
    told.tell_of_tables()
    told.let_the_oldest_leave()
    return told.news


def _seconds(item: Item, record: Record) -> float:
    """The time, in seconds, from the claim to the record that ends it."""
    begun = next((one.timestamp for one in item.records if one.record_id == record.previous), record.timestamp)
    return (record.timestamp - begun).total_seconds()


def _loaded_outside(item: Item, record: Record, target: str) -> Loaded:
    """Returns the event of an item that was loaded outside Dagster, from its record."""
    data = record.data
    rows, size, late, told = data["rows"], data["bytes"], data["late"], tuple(data.get("told", ()))
    seconds, lag = _seconds(item, record), (record.timestamp - item.records[0].timestamp).total_seconds()
    epoch = record.epoch or 1
    return Loaded(item.key, rows, size, seconds, lag, 0, late, already=True, epoch=epoch, told=told, target=target)


def _stands(kept: Kept, application: str, feed: str) -> str:
    """Returns a text that changes with every claim and completion on a feed: the versions of the rows that they write."""
    leases = sorted((name, lease.version) for (name, place), lease in kept.leases.items() if place == feed)
    return f"{kept.state(application).version} {leases}"


class _Told:
    """The findings of one tick for a feed, while it collects them."""

    def __init__(self, pipeline: Pipeline, names: Names, feed: str, instance: dg.DagsterInstance, news: News):
        self.pipeline, self.feed, self.instance, self.news = pipeline, feed, instance, news
        self.names = names
        self.partitions = self.names.partitions(feed)
        self.most = pipeline.config.dagster.partitions
        self._loads: list[tuple[Item, Loaded]] = []  # loads reported in this tick, oldest first

    def let_strangers_leave(self) -> None:
        """Removes partitions that the manifest does not know, such as those of an earlier store."""
        there = self.instance.get_dynamic_partitions(self.partitions.name or "")
        if there:
            known = {item.key.name for item in islice(self._items(reverse=True), max(self.most, len(there)))}
            self.news.removed = [name for name in there if name not in known][:REMOVED_A_TICK]
            self.news.shown = replace(self.news.shown, partitions=len(there) - len(self.news.removed))

    def look_at_the_newest(self, watermark: str) -> None:
        """Compares the items just below the watermark: those loaded since the last tick."""
        after = f"{watermark}#~" if watermark else ""
        if after:
            self._compare(list(islice(self._items(after, reverse=True), LOOKED_AT)))

    def begin_round(self, stands: str) -> None:
        """Begins a round at the newest item, unless a round is in progress."""
        shown = self.news.shown
        if not shown.upto:
            newest = next(self._items(reverse=True, page=10), None)
            shown = replace(shown, upto=newest.key.position if newest else "")
        if shown.turn is None:
            shown = replace(shown, turn="", covered=0, began=stands)
        self.news.shown = replace(shown, seen=stands)

    def look_beyond(self) -> None:
        """Adds the items beyond the newest compared position."""
        if not self.news.shown.upto:
            return
        found = list(islice(self._items(self.news.shown.upto), ADDED_A_TICK))
        if found and self._compare(found):
            self.news.shown = replace(self.news.shown, upto=found[-1].key.position)

    def go_on(self, stands: str) -> None:
        """Compares the next part of the round. A round ends with the feed, or after as many items as Dagster keeps."""
        shown = self.news.shown
        if shown.turn is None:
            return
        limit = min(LOOKED_AT, self.most - shown.covered)
        found = list(islice(self._items(shown.turn, reverse=True), limit))
        recent = [item for item in found if not self._has_left(item.key.name)]
        if not self._compare(recent):
            return  # there was more than a tick may report: the next tick repeats this part
        covered = shown.covered + len(recent)
        ended = len(recent) < LOOKED_AT or covered >= self.most
        self.news.shown = replace(self.news.shown, turn=None if ended else found[-1].key.position, covered=covered)
        if ended and shown.began != stands:  # items changed behind the round's position
            self.news.shown = replace(self.news.shown, turn="", covered=0, began=stands)

    def _items(self, after: str = "", reverse: bool = False, page: int = LOOKED_AT) -> Iterator[Item]:
        return self.pipeline.manifest.items(self.feed, after=after, page=page, reverse=reverse, archived=False)

    def _compare(self, items: Sequence[Item]) -> bool:
        """Reports what Dagster lacks of some items, in their order. Returns False if there was more than a tick may report."""
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
        shredded = self._materialized(self.names.shredded, names)
        loaded = {one: self._materialized(self.names.at(one).warehouse, names) for one in self.names.targets}
        done = list(islice(self._done_outside(items, shredded, loaded), MIRRORED_A_TICK + 1))
        self.news.events += [event for event, _ in done[:MIRRORED_A_TICK]]
        self._loads += [load for _, load in done[:MIRRORED_A_TICK] if load]
        return len(missing) <= room and len(done) <= MIRRORED_A_TICK

    def _there(self, names: Sequence[str]) -> Set[str]:
        """Returns the names that Dagster has as partitions. An older Dagster returns all, whose number is bounded too."""
        ask = getattr(self.instance, "get_existing_dynamic_partitions", None)
        known = self.partitions.name or ""
        return ask(known, names) if ask else set(self.instance.get_dynamic_partitions(known)).intersection(names)

    def _materialized(self, asset, names: Sequence[str]) -> set[str]:
        """Returns the partitions of an asset that Dagster has as materialized, or that this tick reports."""
        key = asset(self.feed)
        stored = self.instance.get_latest_storage_id_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION, partitions=set(names)
        )
        return {*stored, *(event.partition for event in self.news.events if event.asset_key == key and event.partition)}

    def _done_outside(
        self, items: Iterable[Item], shredded: Collection[str], loaded: Mapping[str, Collection[str]]
    ) -> Iterator[tuple[dg.AssetMaterialization, tuple[Item, Loaded] | None]]:
        for item in items:
            record = item.processed_by(Application(SHRED))
            if item.key.name not in shredded and record:
                yield metadata.shredded_before_event(self.names, item, record), None
            for target, known in loaded.items():
                record = item.processed_by(self.pipeline.at(target).load)
                if item.key.name not in known and record:
                    done = _loaded_outside(item, record, target)
                    yield metadata.loaded_event(self.names.at(target), done), (item, done)

    def tell_of_tables(self) -> None:
        """Reports each table of a target that loads outside Dagster reached: its rows, and the columns of its newest listing.

        Without this, a table that the command line loaded first would appear only when the code location is reloaded. A table
        whose listing cannot be read now gets no event; the tick continues.
        """
        for target in self.names.targets:
            self._tell_of_tables(target, {item.key: (item, done) for item, done in self._loads if done.target == target})

    def _tell_of_tables(self, target: str, loads: Mapping[ItemKey, tuple[Item, Loaded]]) -> None:
        left = {name for _, done in loads.values() for name, rows in done.rows.items() if rows}
        told: list[Loaded] = []
        for item, done in sorted(loads.values(), key=lambda one: one[0].key, reverse=True):
            if left & done.rows.keys():
                with contextlib.suppress(OutputGone, Unavailable, Refused):
                    tables = tuple(table for table in listing_of(item).tables if table.name in left)
                    left -= {table.name for table in tables}
                    done = replace(done, tables=tables)
            told.append(done)
        self.news.events += metadata.table_events(self.names.at(target), told[::-1])

    def _count(self) -> int:
        """The number of partitions in Dagster. Their list is read only if the number is unknown."""
        known = self.news.shown.partitions
        return len(self.instance.get_dynamic_partitions(self.partitions.name or "")) if known is None else known

    def let_the_oldest_leave(self) -> None:
        """Removes the oldest partitions if there are more than Dagster keeps, plus some slack."""
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
