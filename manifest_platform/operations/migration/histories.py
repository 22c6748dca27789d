"""Histories of items from another manifest: their places, the order of their records, and the problems found.

Belongs here: the parts that reading either source has in common, pure. `importing` writes the histories.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from manifest_platform.manifest import InvalidKey, Item, ItemKey, Record, State
from manifest_platform.sources.source import Source

_NAMESPACE = UUID("2f0a3f0e-6e0b-5c53-9f0d-7d2f4b1c8a55")


class Elsewhere(ValueError):
    """A run of the source that does not belong to the feed, because of its place or its name."""


@dataclass(frozen=True)
class Note:
    """A remark on an item, with the source's own id of it."""

    item: str
    text: str


class Layout(StrEnum):
    """The layout of a source. It determines the command that imports it."""

    PROCESSING_MANIFEST = "Snowplow Processing Manifest"
    LOADER = "Snowflake Loader's manifest"


@dataclass(frozen=True)
class Histories:
    """The histories in a source, the problems and the repairs. `rows`: the number of rows read."""

    items: tuple[Item, ...] = ()
    problems: tuple[Note, ...] = ()
    repairs: tuple[Note, ...] = ()
    rows: int = 0
    layout: Layout = Layout.PROCESSING_MANIFEST


@dataclass(frozen=True)
class Place:
    """The place of another manifest's runs: the main feed of a dataset's source, below its landing root.

    `source_root`: the folder of the runs as that manifest names it, a URI or a key inside the bucket; empty: the landing root.
    """

    source: Source
    source_root: str = ""

    def key(self, run: str) -> ItemKey:
        """Returns the item key of a run's folder, named as in our landing. Raises Elsewhere."""
        folder, _, name = run.rstrip("/").rpartition("/")
        expected = self.source_root or self.source.root
        uri = f"{self.source.root}/{name}"
        placed = self.source.placed(uri)
        if not _same_folder(folder, expected):
            raise Elsewhere(f"is not stored in {expected}: name the folder of the runs with --source-root")
        if placed is None:
            raise Elsewhere(f"{name!r} is not {self.source.words.form}")
        try:
            return ItemKey(placed.feed, placed.sort, uri)
        except InvalidKey as error:
            raise Elsewhere(str(error)) from error


class Collector:
    """Collects the items of a source by key, and the notes on runs that cannot become items."""

    def __init__(self, place: Place):
        self._place = place
        self._items: dict[ItemKey, Item] = {}
        self._names: dict[ItemKey, str] = {}
        self._problems: list[Note] = []
        self._repairs: list[Note] = []

    def key(self, name: str) -> ItemKey | None:
        """Returns the key of a run. Returns None, and adds a note, for a run that is elsewhere or that occurred before."""
        try:
            key = self._place.key(name)
        except Elsewhere as error:
            return self.leave_out(name, str(error))
        if key in self._names:
            self._items.pop(key, None)
            return self.leave_out(name, f"is the same run as {self._names[key]}: both are left out, correct one of them")
        self._names[key] = name
        return key

    def leave_out(self, name: str, *problems: str) -> None:
        """Adds notes on why a row or an item is not imported."""
        self._problems += [Note(name, problem) for problem in problems]

    def keep(self, item: Item, repairs: Iterable[str] = ()) -> None:
        """Keeps an item whose key was asked for, and adds notes on its repairs."""
        self._items[item.key] = item
        self._repairs += [Note(self._names[item.key], repair) for repair in repairs]

    def histories(self, rows: int, layout: Layout = Layout.PROCESSING_MANIFEST) -> Histories:
        """Returns everything that was collected, in the items' order."""
        items = tuple(self._items[key] for key in sorted(self._items))
        return Histories(items, tuple(self._problems), tuple(self._repairs), rows, layout)


def _same_folder(one: str, other: str) -> bool:
    """True if two folders are the same: as URIs of any scheme of S3, or as keys inside the bucket."""
    (bucket, path), (other_bucket, other_path) = _parts(one), _parts(other)
    return path == other_path and ("" in (bucket, other_bucket) or bucket == other_bucket)


def _parts(folder: str) -> tuple[str, str]:
    if "://" not in folder:
        return "", folder.strip("/")
    parts = urlsplit(folder)
    return parts.netloc, parts.path.strip("/")


def derived_id(*parts: str) -> str:
    """Derives a record id from its parts, so that every import gives the same id."""
    return str(uuid5(_NAMESPACE, "\0".join(parts)))


def in_order(records: Iterable[Record]) -> list[Record]:
    """Returns the records by time, each after the record that it points at, numbered from 1. Their links must be valid."""
    by_id = {record.record_id: record for record in records}
    followers: dict[str | None, list[Record]] = {}
    for record in by_id.values():
        followers.setdefault(record.previous if _follows(record, by_id) else None, []).append(record)
    queue = [_rank(record) for record in followers.get(None, [])]
    heapq.heapify(queue)
    ordered: list[Record] = []
    while queue:
        *_, id_ = heapq.heappop(queue)
        ordered.append(dataclasses.replace(by_id[id_], sequence=len(ordered) + 1))
        for record in followers.get(id_, []):
            heapq.heappush(queue, _rank(record))
    return ordered


def _follows(record: Record, by_id: Mapping[str, Record]) -> bool:
    """True if a record's link determines its order. Links between skips do not: they may form a cycle."""
    target = by_id.get(record.previous or "")
    return target is not None and State.SKIPPED not in (record.state, target.state)


def _rank(record: Record) -> tuple[datetime, int, str]:
    return record.timestamp, list(State).index(record.state), record.record_id


def open_work(records: Sequence[Record]) -> list[Record]:
    """Returns the Processing records that no later record ended."""
    ended = {record.previous for record in records if record.state is not State.SKIPPED}
    return [record for record in records if record.state is State.PROCESSING and record.record_id not in ended]
