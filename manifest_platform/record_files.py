"""Parquet files of archived records: writing them and reading them back.

Belongs here: the content of such a file and its check. `manifest.archive` decides which items may be archived and what remains
in the store; `operations.archive` moves them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from manifest_platform import storage
from manifest_platform.manifest import Item, ItemKey, Record, StoreUnavailable
from manifest_platform.manifest.item import ArchivedRecords
from manifest_platform.manifest.records import format_time
from manifest_platform.manifest.store import RowDamaged
from manifest_platform.releases import FIRST_FORM

if TYPE_CHECKING:
    import pyarrow as pa

FILES_KEPT = 2
"""Number of files whose records stay in memory, for callers that read one item after another."""


@dataclass(frozen=True)
class RecordFile:
    """A file of records: its URI, the SHA-256 of its bytes, and its size in bytes."""

    uri: str
    checksum: str
    bytes: int


def write_records(location: str, dataset: str, feed: str, items: Sequence[Item]) -> RecordFile:
    """Writes the records of a feed's items to a file below a location, named after its content. Raises OSError."""
    content = _to_parquet(feed, items)
    checksum = hashlib.sha256(content).hexdigest()
    uri = storage.ObjectFolder(location).put(f"{dataset}/{quote(feed, safe='')}/{checksum}.parquet", content)
    return RecordFile(uri, checksum, len(content))


def read_archived(key: ItemKey, place: ArchivedRecords) -> tuple[Record, ...]:
    """The archived records of an item, oldest first. Raises RowDamaged if the file does not exist or was changed."""
    found = read_records(place.uri, place.checksum).get(key.position, ())
    if len(found) != place.upto:
        raise RowDamaged(f"{place.uri} has {len(found)} of the {place.upto} records of {key.id}: restore it from a backup")
    return found


@lru_cache(FILES_KEPT)
def read_records(uri: str, checksum: str) -> dict[str, tuple[Record, ...]]:
    """All records of a file, by their item's position. Raises RowDamaged or StoreUnavailable."""
    try:
        content = storage.read_bytes(uri)
    except FileNotFoundError as error:
        raise RowDamaged(f"{uri} is gone, but it contains archived records: restore it from a backup") from error
    except OSError as error:
        raise StoreUnavailable(f"{uri} with archived records cannot be read now: {error}") from error
    if hashlib.sha256(content).hexdigest() != checksum:
        raise RowDamaged(f"{uri} with archived records is not what was written (SHA-256 {checksum}): restore it from a backup")
    found: dict[str, list[Record]] = {}
    for row in _from_parquet(content):
        found.setdefault(row["position"], []).append(_record(row))
    return {position: tuple(records) for position, records in found.items()}


# The Parquet form: a row for each record, in plain columns that people can query


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
        "version": (number, lambda _, record: record.form.number),
        "unknown": (text, lambda _, record: json.dumps(record.unknown) if record.unknown else None),
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


_OWN = ("item", "sequence", "record_id", "previous", "state", "author", "run_id", "epoch", "token")


def _record(row: dict[str, Any]) -> Record:
    application = {name: row[f"application_{name}"] for name in ("version", "instance")}
    payload = {"schema": row["payload_schema"], "data": json.loads(row["payload"])} if row["payload_schema"] else None
    others = json.loads(row.get("unknown") or "{}")  # fields of a newer release; files of release 0.1.0 lack this column
    parts = {"application": {"name": row["application"], **application}, "payload": payload}
    own = {name: row[name] for name in _OWN} | {"version": row.get("version") or FIRST_FORM}
    record = Record.from_dict({**own, **parts, "timestamp": format_time(row["timestamp"])})
    return dataclasses.replace(record, unknown=others)
