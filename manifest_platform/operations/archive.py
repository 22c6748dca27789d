"""Archiving: moves the records of finished items from the manifest's store to Parquet files.

A file is written, read back and compared before any row refers to it. Then each item is moved in a transaction, on condition
that its records have not changed. A crash leaves at most one file that no row refers to. Nothing is lost or duplicated, and
the next run continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from itertools import islice, pairwise
from operator import add
from uuid import uuid4

from manifest_platform import failpoints, progress
from manifest_platform.config import ConfigError
from manifest_platform.manifest import ConditionFailed, Item, Manifest, Refused
from manifest_platform.manifest.archive import is_finished, move
from manifest_platform.manifest.item import ArchivedRecords
from manifest_platform.manifest.store import MAX_WRITES, RowDamaged, Write
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.record_files import RecordFile, read_records, write_records

BATCH = 1000
"""The maximum number of items in a file."""


@dataclass(frozen=True)
class Archived:
    """The result of archiving: numbers of items, their records, files written and bytes written. A dry run writes no files.

    `left`: items that changed during the run and therefore stay in the store.
    """

    items: int = 0
    records: int = 0
    files: int = 0
    bytes: int = 0
    left: int = 0

    def __add__(self, other: Archived) -> Archived:
        return Archived(*map(add, astuple(self), astuple(other)))


def archive_dataset(pipeline: Pipeline, older_than: timedelta, dry_run: bool = False) -> Archived:
    """Archives every feed of a dataset to `manifest.archive`. `older_than`: the minimum age of an item's newest record.

    Raises ConfigError if `manifest.archive` is not set, Refused if `older_than` is not longer than the longest step limit;
    otherwise as `archive`.
    """
    location = pipeline.config.manifest.archive
    if location is None:
        raise ConfigError("manifest.archive is not set: set it to the place for archived records, a path or an s3:// URI")
    key, hours = pipeline.config.limits.longest
    if older_than <= timedelta(hours=hours):
        # A worker that acts on an old read would write its record in the place of an archived one.
        raise Refused(
            f"records must be older than the longest step limit, {hours:g} hours ({key}), to be archived, because a worker may"
            " still depend on younger ones. Choose a greater age"
        )
    before, total = pipeline.clock() - older_than, Archived()
    for feed in pipeline.manifest.feeds:
        total += archive(pipeline.manifest, feed, before, location, dry_run)
    return total


def archive(manifest: Manifest, feed: str, before: datetime, location: str, dry_run: bool = False) -> Archived:
    """Moves the finished items of a feed whose newest record is older than `before` to Parquet files below a location.

    The newest item of the feed always stays. Reads the feed once, and one row for each item that is already archived.
    Idempotent, and safe to run concurrently. Raises StoreError; OSError if the location cannot be written.
    """
    total = Archived()
    found = finished(manifest, feed, before)
    while batch := list(islice(found, BATCH)):
        if dry_run:
            total += Archived(len(batch), sum(len(item.records) for item in batch))
        else:
            total += _archive(manifest, feed, batch, location)
    return total


def finished(manifest: Manifest, feed: str, before: datetime) -> Iterator[Item]:
    """Yields the items of a feed that may be archived, never its newest."""
    steps = manifest.steps(feed)
    states = {step.application.key: manifest.state(step.application) for step in steps if step.ordered}
    for item, _next in pairwise(progress.each(manifest.items(feed, archived=False), f"looking at the items of {feed}")):
        if is_finished(item, steps, states, before):
            yield item


def _archive(manifest: Manifest, feed: str, items: Sequence[Item], location: str) -> Archived:
    file = write_records(location, manifest.dataset, feed, items)
    failpoints.reach("archive.written")
    written = read_records(file.uri, file.checksum)
    for item in items:
        if written.get(item.key.position) != item.records:
            raise RowDamaged(
                f"{file.uri} does not read back as it was written: the records of {item.key.name} differ. Nothing was moved"
            )
    moved = [item for some in _together(items) for item in _move(manifest, some, file)]
    records = sum(len(item.records) for item in moved)
    return Archived(len(moved), records, 1, file.bytes, len(items) - len(moved))


def _together(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yields the items in groups that fit into one transaction each."""
    group: list[Item] = []
    writes = 0
    for item in items:
        if writes + len(item.records) + 1 > MAX_WRITES:
            yield group
            group, writes = [], 0
        group.append(item)
        writes += len(item.records) + 1
    yield group


def _move(manifest: Manifest, items: Sequence[Item], file: RecordFile) -> list[Item]:
    """Moves items in one transaction, or each in its own if one of them has changed. Returns the items that were moved."""
    writes: list[Write] = [
        write for item in items for write in move(item, ArchivedRecords(file.uri, file.checksum, item.sequence))
    ]
    try:
        manifest.store.transact(manifest.dataset, writes, str(uuid4()))
    except ConditionFailed:
        if len(items) == 1:
            return []
        return [moved for item in items for moved in _move(manifest, [item], file)]
    failpoints.reach("archive.moved")
    return list(items)
