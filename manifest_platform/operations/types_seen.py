"""The types of shredded rows: for each the first and last item that had it, and the numbers of items and rows.

Belongs here: the sums over the records of shredding, ours and those of the systems from which items were imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from manifest_platform import progress
from manifest_platform.manifest import Application, Item, ItemKey, Record, State
from manifest_platform.operations.migration.importing import is_imported
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.pipeline.shredding import OutputGone, kept_types, types_of
from manifest_platform.warehouse.errors import Unavailable


@dataclass(frozen=True)
class SeenIn:
    """An item that had a type, and when it was shredded."""

    key: ItemKey
    at: datetime


@dataclass(frozen=True)
class SeenType:
    """A type: the first and last item that had it, in the order of the log, and the numbers of items and rows.

    `rows` is None if a record with the type does not count rows. `table` is empty if the record does not name it.
    """

    type: str
    table: str
    first: SeenIn
    last: SeenIn
    items: int
    rows: int | None


@dataclass(frozen=True)
class Seen:
    """All types, the most recently new one first. `looked_at`: items read; `unread`: items whose listing could not be read."""

    types: list[SeenType]
    looked_at: int
    unread: int


def types_seen(pipeline: Pipeline, feeds: Iterable[str], since: datetime | None = None) -> Seen:
    """Returns the types of the items of some feeds. `since`: only items with this logical time or later.

    Reads only that part of the log. Reads a listing only if a record does not have room for all of its types.
    """
    seen: dict[tuple[str, str], SeenType] = {}
    looked_at = unread = 0
    for feed in feeds:
        for item in _newest(pipeline, feed, since):
            looked_at += 1
            record = _shredding(item)
            if record is None:
                continue
            told, whole = _told(record)
            unread += not whole
            here = SeenIn(item.key, record.timestamp)
            for (type_, table), rows in told.items():
                found = SeenType(type_, table, here, here, 1, rows)
                known = seen.get((type_, table))
                seen[type_, table] = _both(found, known) if known else found
    order = sorted(seen.values(), key=lambda one: one.type)
    return Seen(sorted(order, key=lambda one: one.first.at, reverse=True), looked_at, unread)


def _newest(pipeline: Pipeline, feed: str, since: datetime | None) -> Iterator[Item]:
    """Yields a feed's items, newest first, down to a logical time."""
    for item in progress.each(pipeline.manifest.items(feed, reverse=True), f"reading the log of {feed}, the newest first"):
        time = pipeline.source.time(item.key.name)
        if since and time and time.astimezone(UTC) < since:
            return
        yield item


def _shredding(item: Item) -> Record | None:
    """Returns the newest record with the output of shredding: ours, else that of the system that the item was imported from."""
    if record := item.processed_by(Application(SHRED)):
        return record
    done = (one for one in reversed(item.records) if one.state is State.PROCESSED and is_imported(one))
    return next((one for one in done if one.application.name != LOAD), None)


def _told(record: Record) -> tuple[dict[tuple[str, str], int | None], bool]:
    """Returns the rows by type and table, and whether these are all types of the record."""
    whole = True
    try:
        types = types_of(record)
    except (OutputGone, Unavailable):
        types, whole = kept_types(record), False
    if types:
        return {(one.type, one.table): one.rows for one in types}, whole
    data = record.data
    names = data.get("shreddedTypes") or data.get("shredTypes")
    if names:
        return {(name, ""): None for name in names}, whole
    return {(name, name): None for name in data.get("tables") or ()}, whole


def _both(one: SeenType, other: SeenType) -> SeenType:
    """Combines the facts on a type from two items."""
    first, last = sorted((one.first, other.first), key=_order)[0], sorted((one.last, other.last), key=_order)[-1]
    rows = None if one.rows is None or other.rows is None else one.rows + other.rows
    return replace(other, first=first, last=last, items=one.items + other.items, rows=rows)


def _order(seen: SeenIn) -> tuple[str, str]:
    return seen.key.position, seen.key.feed
