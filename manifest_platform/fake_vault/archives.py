"""Direct Data archives of a simulated vault: the CSV files of a window, packed as tar.gz and split into parts.

This module decides the contents and form of files. `publication` decides when they can be downloaded, and `faults` what is
wrong with them.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Literal

from manifest_platform.fake_vault.events import DAY, WINDOW, Changes, Row, State, Value
from manifest_platform.fake_vault.extracts import LEGACY, LOGS, METADATA, RELATIONSHIP, Extract, label_of
from manifest_platform.fake_vault.simulation import Simulation

Feed = Literal["incr", "log", "full"]
EXTRACT_TYPES: dict[Feed, str] = {"incr": "incremental_directdata", "log": "log_directdata", "full": "full_directdata"}
"""The feeds by the API's names."""
LETTERS: dict[Feed, str] = {"incr": "N", "log": "L", "full": "F"}
FULL_START = datetime(2000, 1, 1, tzinfo=UTC)
"""The start time of every snapshot."""

MANIFEST = "manifest.csv"
METADATA_FULL = "metadata_full.csv"
_MANIFEST_COLUMNS = ("extract", "extract_label", "type", "records", "file")
_DELETES_BY_NAME = ("Picklist", "Workflow", "Metadata")


@dataclass(frozen=True)
class Window:
    """The time that an archive covers, in UTC."""

    feed: Feed
    start: datetime
    stop: datetime

    @property
    def ref(self) -> str:
        """The name of the window in faults: feed and stop time, as `incr/2026-01-01T00:15Z`."""
        return f"{self.feed}/{minutes(self.stop)}"

    def name(self, vault_id: int) -> str:
        """Returns the archive's name at the vault, without extension, as `146478-20260101-0015-N`."""
        return f"{vault_id}-{self.stop:%Y%m%d-%H%M}-{LETTERS[self.feed]}"


@dataclass(frozen=True)
class Entry:
    """A line of an archive's manifest.csv. `type`: `updates` or `deletes`, None if left out; `file`: empty if there is none."""

    extract: str
    label: str
    type: str | None
    records: int
    file: str


@dataclass(frozen=True)
class Archive:
    """The manifest of an archive, and its other files by path. `truncated`: the share of the packed bytes that is cut off."""

    entries: tuple[Entry, ...]
    files: dict[str, bytes] = field(hash=False)
    truncated: float = 0.0
    packed_at: int = 0

    @property
    def record_count(self) -> int:
        """The number of records of all extracts."""
        return sum(entry.records for entry in self.entries)

    def tree(self) -> dict[str, bytes]:
        """Returns all files by path, manifest.csv included, in the order of the archive."""
        typed = any(entry.type for entry in self.entries)
        columns = [column for column in _MANIFEST_COLUMNS if typed or column != "type"]
        lines = [
            (entry.extract, entry.label, *((entry.type,) if typed else ()), str(entry.records), entry.file)
            for entry in self.entries
        ]
        return {MANIFEST: table_of(columns, lines), **self.files}

    def packed(self) -> bytes:
        """Returns the tar.gz. The same files always give the same bytes."""
        tarred = io.BytesIO()
        with tarfile.open(fileobj=tarred, mode="w") as tar:
            for path, content in self.tree().items():
                member = tarfile.TarInfo(path)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        whole = gzip.compress(tarred.getvalue(), compresslevel=1, mtime=self.packed_at)
        return whole[: len(whole) - int(len(whole) * self.truncated)]


@dataclass(frozen=True)
class Part:
    """A slice of an archive's bytes. `number` counts from 1."""

    number: int
    content: bytes = field(repr=False)

    @property
    def md5(self) -> str:
        """The MD5 in the listing."""
        return hashlib.md5(self.content, usedforsecurity=False).hexdigest()


def split(packed: bytes, part_bytes: int) -> tuple[Part, ...]:
    """Splits an archive into parts of `part_bytes`; the last may be shorter."""
    starts = range(0, len(packed), part_bytes)
    return tuple(Part(number, packed[start : start + part_bytes]) for number, start in enumerate(starts, 1))


def minutes(time: datetime) -> str:
    """Returns a time in the API's form, `2026-01-01T00:15Z`."""
    return f"{time:%Y-%m-%dT%H:%MZ}"


def increments(begin: datetime, upto: datetime) -> list[Window]:
    """Returns the windows of 15 minutes that begin at or after `begin` and have ended by `upto`."""
    ended = max(0, (upto - begin) // WINDOW)
    return [Window("incr", begin + number * WINDOW, begin + (number + 1) * WINDOW) for number in range(ended)]


def daily(begin: datetime, upto: datetime, hour_utc: int) -> list[datetime]:
    """Returns the times at an hour of each day between two times."""
    first = begin.replace(hour=hour_utc, minute=0, second=0, microsecond=0)
    first += DAY if first < begin else timedelta(0)
    return [first + number * DAY for number in range(max(0, (upto - first) // DAY + 1))]


def archive_of(simulation: Simulation, window: Window) -> Archive:
    """Returns the archive of a window, without faults."""
    return _BUILDERS[window.feed](simulation, window)


def _snapshot(simulation: Simulation, window: Window) -> Archive:
    state = simulation.state(window.stop)
    files, entries = {}, []
    for name, extract in state.extracts.items():
        path = f"{extract.component}/{extract.table}.csv"
        files[path] = _csv(extract, state.rows[name].values())
        entries.append(Entry(name, extract.label, None, len(state.rows[name]), path))
    legacy = simulation.legacy(window.stop)
    _add(files, entries, LEGACY, legacy, None)
    _add_configuration(files, entries, state)
    return Archive(tuple(entries), files)


def _increment(simulation: Simulation, window: Window) -> Archive:
    state, changes = simulation.shape(window.stop), simulation.changes(window.start, window.stop)
    files, entries = {METADATA_FULL: _csv(METADATA, state.rows[METADATA.name].values())}, list[Entry]()
    if not (any(changes.written.values()) or any(changes.deleted.values())):
        return Archive((), files)
    for name, extract in state.extracts.items():
        written = changes.written.get(name, {}).values()
        rows = [event.row | ({"modified_date": event.time} if extract is METADATA else {}) for event in written]
        _add(files, entries, extract, rows, "updates")
        _add_deletes(files, entries, extract, changes)
    return Archive(tuple(entries), files)


def _audit_trails(simulation: Simulation, window: Window) -> Archive:
    state = simulation.shape(max(window.stop, simulation.begin))
    files, entries = {METADATA_FULL: _csv(METADATA, state.rows[METADATA.name].values())}, list[Entry]()
    trails = simulation.logs(window.stop, since=window.start)
    for extract in LOGS:
        _add(files, entries, extract, trails[extract.table], None)
    return Archive(tuple(entries), files)


_BUILDERS: dict[Feed, Callable[[Simulation, Window], Archive]] = {
    "incr": _increment,
    "log": _audit_trails,
    "full": _snapshot,
}


def _add(files: dict[str, bytes], entries: list[Entry], extract: Extract, rows: Sequence[Row], kind: str | None) -> None:
    """Adds a file of rows and its line in the manifest. Without rows, only the line."""
    path = f"{extract.component}/{extract.table}.csv" if rows else ""
    entries.append(Entry(extract.name, extract.label, kind, len(rows), path))
    if rows:
        files[path] = _csv(extract, rows)


def _add_deletes(files: dict[str, bytes], entries: list[Entry], extract: Extract, changes: Changes) -> None:
    deleted = changes.deleted.get(extract.name)
    if not deleted:
        return
    name = _name_of_deletes(extract)
    told = name if extract is RELATIONSHIP or extract.component in _DELETES_BY_NAME else extract.name
    path = f"{extract.component}/{name.partition('.')[2]}.csv"
    entries.append(Entry(told, extract.label, "deletes", len(deleted), path))
    lines = [(*key, text_of(event.time)) for key, event in deleted.items()]
    files[path] = table_of((*extract.key, "deleted_date"), lines)


def _name_of_deletes(extract: Extract) -> str:
    """Returns the name of an extract's deletes: a suffix, except for one extract with the word in the middle."""
    return "Document.document_relationships_deleted__sys" if extract is RELATIONSHIP else f"{extract.name}_deletes"


def _add_configuration(files: dict[str, bytes], entries: list[Entry], state: State) -> None:
    """Adds the vault's configuration, which snapshots include: the fields of objects and of documents."""
    for component, path in (("Object", "Metadata/object.csv"), ("Document", "Metadata/document.csv")):
        found = [extract for extract in state.extracts.values() if extract.component == component]
        lines = [(extract.table, field.name, label_of(field.name)) for extract in found for field in extract.fields]
        files[path] = table_of((component.lower(), "field", "label"), lines)
        entries.append(Entry(f"Metadata.{component.lower()}", f"{component} configuration", None, len(lines), path))


def _csv(extract: Extract, rows: Iterable[Row]) -> bytes:
    quoting = csv.QUOTE_ALL if extract.component == "Document" else csv.QUOTE_MINIMAL
    lines = ([text_of(row.get(column)) for column in extract.columns] for row in rows)
    return table_of(extract.columns, lines, quoting)


def table_of(
    columns: Sequence[str], lines: Iterable[Sequence[str | None]], quoting: Literal[0, 1, 2, 3] = csv.QUOTE_MINIMAL
) -> bytes:
    """Returns a CSV file (RFC 4180). Texts may hold surrogates for bytes that are not valid UTF-8."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n", quoting=quoting)
    writer.writerow(columns)
    writer.writerows(lines)
    return out.getvalue().encode("utf-8", "surrogateescape")


def text_of(value: Value) -> str:
    """Returns a value as Vault writes it in a CSV file; an empty text for None."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
        case date():
            return value.isoformat()
    return value
