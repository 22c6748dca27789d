"""Search for items by state, application, feed and time, and for the work of a Dagster run. Newest first, and bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from itertools import islice

from manifest_platform.manifest import Application, Item, Manifest, Record, State
from manifest_platform.manifest.queries import failed_by, locked_by, processed_by, unprocessed

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHOWN_OF_UUID, _SHOWN_OF_NAME = 8, 24


@dataclass(frozen=True)
class Search:
    """A search for items of a feed.

    `state`: the present state of the item, for `application` if that is given. `since` (inclusive), `until` (exclusive): the
    time of the record that put the item into this state.
    """

    feed: str
    state: State | None = None
    application: Application | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class Match:
    """A found item, and the record that put it into its state."""

    item: Item
    record: Record


@dataclass(frozen=True)
class SearchResult:
    """The items found, newest first. `looked_at`: the number of items read.

    `before`: the item from which to continue, if there may be more. `cut`: true if `look` ended a search whose items are not
    ordered by time, so that newer items may be missing.
    """

    found: list[Match]
    looked_at: int
    before: str | None
    cut: bool = False


def search(manifest: Manifest, wanted: Search, limit: int, look: int, before: str | None = None) -> SearchResult:
    """Returns the newest `limit` matching items of at most `look` items read. `before`: only items before this position."""
    seen: list[str] = []

    def looked(items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            seen.append(item.key.name)
            yield item

    serving = manifest.serving_epochs(wanted.feed)
    source, newest_first = _source(manifest, wanted, before)
    tells = _tells(wanted, serving)
    items = looked(islice(source, look))
    hits = (Match(item, record) for item in items if (record := tells(item)) and _is_within(record, wanted))
    if newest_first:
        found = list(islice(hits, limit))
        more = len(found) == limit or len(seen) == look
        return SearchResult(found, len(seen), seen[-1] if more and seen else None)
    earlier = (hit for hit in hits if before is None or hit.item.key.position < before)
    found = nlargest(limit, earlier, key=lambda hit: hit.item.key)
    return SearchResult(found, len(seen), found[-1].item.key.name if len(found) == limit else None, len(seen) == look)


@dataclass(frozen=True)
class Run:
    """The records of a run, by item: the newest item of each feed first. `looked_at`: the number of items read.

    `cut`: true if not all items were read, so that older items may be missing.
    """

    done: list[tuple[Item, tuple[Record, ...]]]
    looked_at: int
    cut: bool


def of_run(records: Iterable[Record], run: str) -> tuple[Record, ...]:
    """Returns the records that a run wrote. `run`: its name, or the first eight characters of a UUID, as people see them."""
    short = len(run) == _SHOWN_OF_UUID
    return tuple(one for one in records if one.run_id and (one.run_id == run or (short and short_run(one.run_id) == run)))


def short_run(run: str | None) -> str:
    """Shortens a run's name for people: a UUID to its first eight characters, a long name to 24, None to `-`."""
    if run is None:
        return "-"
    if _UUID.fullmatch(run):
        return run[:_SHOWN_OF_UUID]
    return run if len(run) <= _SHOWN_OF_NAME else f"{run[: _SHOWN_OF_NAME - 1]}…"


def search_run(manifest: Manifest, feeds: Iterable[str], run: str, look: int) -> Run:
    """Finds the records of a run on the newest items of the feeds, at most `look` of each. There is no index: items are read.

    Items whose records are archived are passed over.
    """
    done: list[tuple[Item, tuple[Record, ...]]] = []
    looked_at, cut = 0, False
    for feed in feeds:
        for number, item in enumerate(manifest.items(feed, reverse=True, archived=False)):
            if number == look:
                cut = True
                break
            looked_at += 1
            if records := of_run(item.records, run):
                done.append((item, records))
    return Run(done, looked_at, cut)


def _source(manifest: Manifest, wanted: Search, before: str | None) -> tuple[Iterator[Item], bool]:
    """Returns the smallest set of items that must be read, and whether it is ordered newest first."""
    feed, who = wanted.feed, wanted.application
    declared = [step.application for step in manifest.steps(feed)]
    if who and wanted.state is State.FAILED:
        return failed_by(manifest, feed, who), False
    if who and wanted.state is State.PROCESSING:
        return locked_by(manifest, feed, who), False
    if wanted.state in (State.FAILED, State.PROCESSING):
        by = failed_by if wanted.state is State.FAILED else locked_by
        items = {item.key: item for step in declared for item in by(manifest, feed, step)}
        return iter(items.values()), False
    if wanted.state is State.NEW and who and any(step.key == who.key for step in declared):
        return unprocessed(manifest, feed, who), False
    if wanted.state is State.PROCESSED and who:
        return processed_by(manifest, feed, who, before), True
    return manifest.items(feed, after=before or "", reverse=True), True


def _tells(wanted: Search, serving: dict[str, int]) -> Callable[[Item], Record | None]:
    """Returns a function that gives the record by which an item matches; None if it does not match."""
    who, state = wanted.application, wanted.state

    def newest(item: Item) -> Record | None:
        own = (record for record in reversed(item.records) if who is None or who.is_done_by(record.application))
        return next(own, None)

    def tells(item: Item) -> Record | None:
        if state in (State.FAILED, State.PROCESSING):
            still = (one for one in item.open_records(serving) if one.state is state)
            return next((one for one in still if who is None or who.is_done_by(one.application)), None)
        if who and state is State.PROCESSED:
            return item.processed_by(who, serving.get(who.key, 0))
        if who and state is State.SKIPPED:
            return item.skipped_for(who)
        if who and state is State.NEW:
            done = item.processed_by(who, serving.get(who.key, 0)) or item.skipped_for(who)
            return None if done else item.records[0]
        record = newest(item)
        return record if record and state in (None, record.state) else None

    return tells


def _is_within(record: Record, wanted: Search) -> bool:
    after = wanted.since is None or record.timestamp >= wanted.since
    return after and (wanted.until is None or record.timestamp < wanted.until)
