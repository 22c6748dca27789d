"""The bad rows of shredded items: read from the Parquet objects of their listings, and counted by reason.

Belongs here: reading and choosing rows. No warehouse is asked, so the rows of items that are not loaded are found too. The rows
of items that failed are not: no listing names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from manifest_platform import progress, storage
from manifest_platform.listing import BAD_TABLE
from manifest_platform.manifest import Application, Holding, Item, ItemKey
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.shredding import OutputGone, ReplayedLines, bad_listing_of
from manifest_platform.warehouse.errors import Unavailable

MOST_GROUPS = 1000
"""The largest number of groups that are counted one by one: a sender of invented names must not fill the memory."""

_PLACE = ("file", "line", "reasons", "byte_offset", "byte_length")
_CONTENT = ("raw", "raw_base64")
_AT_ONCE = 500


@dataclass(frozen=True)
class Wanted:
    """The bad rows that are asked for. `reason`, `schema`: of any of a row's reasons. `since`: items of this time or later."""

    item: ItemKey | None = None
    feeds: Sequence[str] = ()
    since: datetime | None = None
    reason: str | None = None
    schema: str | None = None

    def has(self, reasons: Sequence[dict[str, Any]]) -> bool:
        """True if one of the reasons has the type and the schema that are asked for."""
        return any(
            self.reason in (None, one["type"]) and (self.schema is None or str(one.get("schema", "")).startswith(self.schema))
            for one in reasons
        )


@dataclass(frozen=True)
class BadLine:
    """A bad row of an item. `row`: its columns by name; those of the content only if they were asked for."""

    key: ItemKey
    reasons: list[dict[str, Any]]
    row: dict[str, Any]

    @property
    def without_content(self) -> BadLine:
        """The same row without the columns of its content."""
        return replace(self, row={name: value for name, value in self.row.items() if name not in _CONTENT})


@dataclass
class Looked:
    """The number of items whose records were read, and the items whose bad rows cannot be read, with the cause."""

    items: int = 0
    unread: list[str] | None = None

    def fail(self, key: ItemKey, error: Exception) -> None:
        """Notes an item whose bad rows cannot be read."""
        self.unread = [*(self.unread or []), f"{key.name}: {error}"]


@dataclass(frozen=True)
class BadGroup:
    """Bad rows with the same first reason. `subject`: its schema or field; None for all beyond the largest number of groups."""

    reason: str
    subject: str | None
    rows: int
    items: int
    newest: ItemKey


def bad_lines(
    pipeline: Pipeline, wanted: Wanted, looked: Looked, content: bool = False, is_open: bool = False
) -> Iterator[BadLine]:
    """Yields the bad rows of shredded items, newest item first, rows of an item in the order of their files.

    Some rows are in memory at a time. `content`: read the lines themselves, too. `is_open`: only rows that were not replayed.
    `looked` is counted up.
    """
    from manifest_platform.shred.rows import kept_bytes

    for item in _items(pipeline, wanted):
        looked.items += 1
        record = item.processed_by(Application(SHRED))
        if record is None or not record.data.get("bad"):
            continue
        if item.deletion_of(Holding.BAD) and wanted.item is None:
            continue
        try:
            replayed = ReplayedLines(item) if is_open else None
            for uri in bad_listing_of(item).uris(BAD_TABLE):
                for one in _lines(item.key, uri, wanted, content or bool(replayed)):
                    if not (replayed and replayed.takes(kept_bytes(one.row))):
                        yield one if content else one.without_content
        except (OutputGone, Unavailable, OSError) as error:
            looked.fail(item.key, error)


def _items(pipeline: Pipeline, wanted: Wanted) -> Iterator[Item]:
    if wanted.item:
        yield pipeline.manifest.item(wanted.item)
        return
    for feed in wanted.feeds or pipeline.feeds:
        for item in progress.each(pipeline.manifest.items(feed, reverse=True), f"reading the log of {feed}, the newest first"):
            time = pipeline.source.time(item.key.name)
            if wanted.since and time and time.astimezone(UTC) < wanted.since:
                break
            yield item


def _lines(key: ItemKey, uri: str, wanted: Wanted, content: bool) -> Iterator[BadLine]:
    from pyarrow.parquet import ParquetFile

    system, path = storage.filesystem(uri)
    with system.open_input_file(path) as source:
        file = ParquetFile(source)
        known = set(file.schema_arrow.names)  # older releases have fewer columns
        columns = [name for name in (*_PLACE, *(_CONTENT if content else ())) if name in known]
        for batch in file.iter_batches(_AT_ONCE, columns=columns):
            for row in batch.to_pylist():
                reasons = orjson.loads(row.pop("reasons"))
                if wanted.has(reasons):
                    yield BadLine(key, reasons, row)


def bad_groups(lines: Iterator[BadLine]) -> list[BadGroup]:
    """Counts bad rows by their first reason and its schema or field, the largest group first. `lines`: newest item first."""
    groups: dict[tuple[str, str | None], BadGroup] = {}
    latest: dict[tuple[str, str | None], ItemKey] = {}
    for line in lines:
        first = line.reasons[0]
        of: tuple[str, str | None] = first["type"], str(first.get("schema") or first.get("field") or "")
        if of not in groups and len(groups) >= MOST_GROUPS:
            of = "more", None
        known = groups.get(of) or BadGroup(*of, 0, 0, line.key)
        is_other = latest.get(of) != line.key
        groups[of] = replace(known, rows=known.rows + 1, items=known.items + is_other)
        latest[of] = line.key
    return sorted(groups.values(), key=lambda one: (-one.rows, one.reason, one.subject or ""))
