"""The archive: the records of finished items, moved out of the manifest's store into Parquet files.

Belongs here: the Parquet form of records, how a run of archiving goes, and how archived records are read back. Which items may
go, and what stays of each in the store, is `manifest.archive`'s.

A file is written, and read back and compared, before any row refers to it; then each item is moved in one transaction, if
it is still as it was read. A run that dies leaves at most a file that no row refers to: nothing is lost, nothing doubled, and
the next run goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from io import BytesIO
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from manifest_platform import failpoints, storage
from manifest_platform.manifest import (
    ConditionFailed,
    Item,
    ItemKey,
    Manifest,
    Record,
    StoreUnavailable,
)
from manifest_platform.manifest.archive import Place, is_finished, move
from manifest_platform.manifest.records import format_time
from manifest_platform.manifest.store import MAX_WRITES, RowDamaged, Write

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 1000
"""Items in one file, at most."""
FILES_KEPT = 2
"""Files of which the records stay in memory, for who reads item after item."""


@dataclass(frozen=True)
class Archived:
    """What a run of archiving did, or would do: items, their records, the files that it wrote and their bytes.

    `left`: items that changed while they were being moved, and so stay.
    """

    items: int = 0
    records: int = 0
    files: int = 0
    bytes: int = 0
    left: int = 0

    def __add__(self, other: Archived) -> Archived:
        return Archived(
            self.items + other.items,
            self.records + other.records,
            self.files + other.files,
            self.bytes + other.bytes,
            self.left + other.left,
        )


# Moving


def archive(manifest: Manifest, feed: str, before: datetime, location: str, dry_run: bool = False) -> Archived:
    """Moves the finished items of a feed whose newest record is older than `before` to Parquet files below a location.

    The newest item stays in any case. One walk over the feed, a row for each item that was archived already; may be repeated,
    and done by several at once. Raises StoreError; OSError where the location cannot be written.
    """
    total = Archived()
    finished = _finished(manifest, feed, before)
    while batch := list(islice(finished, BATCH)):
        if dry_run:
            total += Archived(len(batch), sum(len(item.records) for item in batch))
        else:
            total += _archive(manifest, feed, batch, location)
    return total


def _finished(manifest: Manifest, feed: str, before: datetime) -> Iterator[Item]:
    steps = manifest.steps(feed)
    states = {step.application.key: manifest.state(step.application) for step in steps if step.ordered}
    for item, _next in pairwise(manifest.items(feed, archived=False)):
        if is_finished(item, steps, states, before):
            yield item


def _archive(manifest: Manifest, feed: str, items: Sequence[Item], location: str) -> Archived:
    content = _to_parquet(feed, items)
    checksum = hashlib.sha256(content).hexdigest()
    folder = storage.ObjectFolder(location)
    uri = folder.put(f"{manifest.dataset}/{quote(feed, safe='')}/{checksum}.parquet", content)
    failpoints.reach("archive.written")
    written = _records(uri, checksum)
    for item in items:
        if written.get(item.key.position) != item.records:
            raise RowDamaged(f"{uri} does not read back as it was written: {item.key.name} differs; nothing was moved")
    moved = [item for some in _together(items) for item in _move(manifest, some, uri, checksum)]
    records = sum(len(item.records) for item in moved)
    return Archived(len(moved), records, 1, len(content), len(items) - len(moved))


def _together(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The items in groups that fit into one transaction each."""
    group: list[Item] = []
    writes = 0
    for item in items:
        if writes + len(item.records) + 1 > MAX_WRITES:
            yield group
            group, writes = [], 0
        group.append(item)
        writes += len(item.records) + 1
    yield group


def _move(manifest: Manifest, items: Sequence[Item], uri: str, checksum: str) -> list[Item]:
    """Moves items in one transaction, or each in its own where one of them has changed; returns those that were moved."""
    writes: list[Write] = [write for item in items for write in move(item, Place(uri, checksum, item.sequence))]
    try:
        manifest.store.transact(manifest.dataset, writes, str(uuid4()))
    except ConditionFailed:
        if len(items) == 1:
            return []
        return [moved for item in items for moved in _move(manifest, [item], uri, checksum)]
    failpoints.reach("archive.moved")
    return list(items)


# Reading


def read_archived(key: ItemKey, place: Place) -> tuple[Record, ...]:
    """The archived records of an item, oldest first. Raises RowDamaged where the file is gone or is not what was written."""
    found = _records(place.uri, place.checksum).get(key.position, ())
    if len(found) != place.upto:
        raise RowDamaged(f"{place.uri} has {len(found)} of the {place.upto} records of {key.id}: put it back from a backup")
    return found


@lru_cache(FILES_KEPT)
def _records(uri: str, checksum: str) -> dict[str, tuple[Record, ...]]:
    """All records of a file, by their item's position."""
    try:
        content = storage.read_bytes(uri)
    except FileNotFoundError as error:
        raise RowDamaged(f"{uri} is gone, though archived records are in it: put it back from a backup") from error
    except OSError as error:
        raise StoreUnavailable(f"{uri}, with archived records, cannot be read now: {error}") from error
    if hashlib.sha256(content).hexdigest() != checksum:
        raise RowDamaged(
            f"{uri}, with archived records, is not what was written (SHA-256 {checksum}): put it back from a backup"
        )
    found: dict[str, list[Record]] = {}
    for row in _from_parquet(content):
        found.setdefault(row["position"], []).append(_record(row))
    return {position: tuple(records) for position, records in found.items()}


# The Parquet form: a row a record, in plain columns, for people to query


def _columns() -> dict[str, tuple[pa.DataType, Callable[[Item, Record], Any]]]:
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    return {
        "feed": (text, lambda item, _: item.key.feed),
        "position": (text, lambda item, _: item.key.position),
        "item": (text, lambda _, record: record.item),
        "sequence": (number, lambda _, record: record.sequence),
        "record_id": (text, lambda _, record: record.record_id),
        "previous": (text, lambda _, record: record.previous),
        "state": (text, lambda _, record: str(record.state)),
        "application": (text, lambda _, record: record.application.name),
        "application_version": (text, lambda _, record: record.application.version),
        "application_instance": (text, lambda _, record: record.application.instance),
        "author": (text, lambda _, record: record.author),
        "run_id": (text, lambda _, record: record.run_id),
        "timestamp": (pa.timestamp("us", "UTC"), lambda _, record: record.timestamp),
        "epoch": (number, lambda _, record: record.epoch),
        "token": (number, lambda _, record: record.token),
        "payload_schema": (text, lambda _, record: record.payload and record.payload.schema),
        "payload": (text, lambda _, record: record.payload and json.dumps(record.payload.data)),
    }


def _to_parquet(feed: str, items: Sequence[Item]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    rows = [(item, record) for item in items for record in item.records]
    arrays = {name: pa.array([get(*row) for row in rows], kind) for name, (kind, get) in _columns().items()}
    out = BytesIO()
    parquet.write_table(pa.table(arrays), out, compression="zstd")
    return out.getvalue()


def _from_parquet(content: bytes) -> list[dict[str, Any]]:
    from pyarrow import parquet

    return parquet.read_table(BytesIO(content)).to_pylist()


def _record(row: dict[str, Any]) -> Record:
    application = {name: row[f"application_{name}"] for name in ("version", "instance")}
    payload = {"schema": row["payload_schema"], "data": json.loads(row["payload"])} if row["payload_schema"] else None
    parts = {"application": {"name": row["application"], **application}, "payload": payload}
    return Record.from_dict({**row, **parts, "timestamp": format_time(row["timestamp"])})
