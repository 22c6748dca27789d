"""Vault's list of Direct Data files: reads its entries, and reports those that cannot be used.

A faulty entry affects only itself. The list holds the windows of ten days, and a malformed entry must not keep the others from
being captured before Vault drops them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from manifest_platform.sources.veeva.files import Awaiting, DirectDataFile, Feed, FileListing, Part, UnusableEntry
from manifest_platform.sources.veeva.layout import VAULT_BEGAN
from manifest_platform.sources.veeva.reading import shown, text_of, word_of

EXTRACT_TYPES: Mapping[Feed, str] = {
    "incr": "incremental_directdata",
    "log": "log_directdata",
    "full": "full_directdata",
}
"""The feeds by Vault's names."""

_NAME = 80
"""The most characters of a name: an awaited window is stored under its quoted name, and DynamoDB's keys have 1,024 bytes."""


MOST = 50_000
"""The most entries of a list. Ten days have about a thousand windows, but eight MiB can hold four million useless entries."""


class _Unusable(ValueError):
    """The reason why an entry of the list cannot be used."""


def read_list(feed: Feed, entries: Sequence[Any]) -> FileListing:
    """Reads the list of a feed. Entries that cannot be used are reported with the reason; none raises."""
    files: list[DirectDataFile] = []
    awaiting: list[Awaiting] = []
    unusable: list[UnusableEntry] = []
    for entry in entries:
        if not isinstance(entry, dict):
            unusable.append(UnusableEntry("without a name", feed, f"it is {shown(entry)}, not an object"))
            continue
        name = text_of(entry.get("name") or entry.get("filename") or "without a name", _NAME)
        error = entry.get("error")
        if error and not entry.get("filepart_details"):
            told = error if isinstance(error, dict) else {"message": error}
            message = text_of(told.get("message") or "")
            awaiting.append(Awaiting(name, feed, _time_or_none(told.get("next_retry")), message))
            continue
        try:
            files.append(_file(feed, name, entry))
        except _Unusable as problem:
            unusable.append(UnusableEntry(name, feed, str(problem)))
    files.sort(key=lambda file: (file.stop, file.name))
    return FileListing(tuple(files), tuple(awaiting), tuple(unusable))


def _file(feed: Feed, name: str, entry: Mapping[str, Any]) -> DirectDataFile:
    if entry.get("extract_type") not in (None, EXTRACT_TYPES[feed]):
        raise _Unusable(f"it is of extract_type {text_of(entry['extract_type'])}, but {EXTRACT_TYPES[feed]} was requested")
    start, stop = (_minute(entry, column) for column in ("start_time", "stop_time"))
    if start < VAULT_BEGAN:
        raise _Unusable(f"it starts at {text_of(entry['start_time'])}, before there was any vault")
    if start >= stop:
        raise _Unusable(f"it stops at {text_of(entry['stop_time'])}, but starts at {text_of(entry['start_time'])}")
    count = None if entry.get("record_count") is None else _whole(entry, "record_count")
    parts = _parts(entry.get("filepart_details") or [])
    if entry.get("fileparts") is not None and (told := _whole(entry, "fileparts")) != len(parts):
        raise _Unusable(f"it has {told} parts (fileparts), but {len(parts)} are described (filepart_details)")
    if not parts:
        _check_empty(entry, count)
    return DirectDataFile(name, feed, start, stop, count, parts)


def _check_empty(entry: Mapping[str, Any], count: int | None) -> None:
    """Refuses entries without parts, unless they say that nothing happened: an empty window is never captured again."""
    if count is None:
        raise _Unusable("it has no parts (filepart_details), but does not say that it has no records (record_count)")
    if count:
        raise _Unusable(f"it has {count} records (record_count), but no parts (filepart_details)")
    if entry.get("size") is not None and (size := _whole(entry, "size")):
        raise _Unusable(f"it has {size} bytes (size), but no parts (filepart_details)")


def _parts(entries: Any) -> tuple[Part, ...]:
    if not isinstance(entries, list):
        raise _Unusable(f"its parts (filepart_details) are {shown(entries)}, not a list")
    parts = sorted((_part(entry) for entry in entries), key=lambda part: part.number)
    if [part.number for part in parts] != list(range(1, len(parts) + 1)):
        raise _Unusable(f"its parts are numbered {shown([part.number for part in parts])}")
    return tuple(parts)


def _part(entry: Any) -> Part:
    if not isinstance(entry, dict):
        raise _Unusable(f"one of its parts is {shown(entry)}, not an object")
    name, md5 = entry.get("name"), entry.get("md5checksum")
    if not name:
        raise _Unusable("one of its parts has no name")
    if not isinstance(name, str) or name != text_of(name) or name in (".", ".."):
        raise _Unusable(f"one of its parts is named {shown(name)}, which cannot be the name of a file")
    return Part(name, _whole(entry, "filepart"), _whole(entry, "size"), text_of(md5).lower() if md5 else None)


def _whole(entry: Mapping[str, Any], column: str) -> int:
    """Returns a whole number of the entry, which Vault may give as text."""
    value = entry.get(column)
    try:
        number = int(word_of(value))
    except ValueError:
        number = -1
    if number < 0:
        raise _Unusable(f"it has {column} {shown(value)}, which is not a whole number")
    return number


def _minute(entry: Mapping[str, Any], column: str) -> datetime:
    time = _time_or_none(entry.get(column))
    if time is None or time.second or time.microsecond:
        raise _Unusable(f"it has {column} {shown(entry.get(column))}, which is not a time in whole minutes with a zone")
    return time


def _time_or_none(text: Any) -> datetime | None:
    """Returns a time of Vault's, to the minute or to the second; None if the value is not a time."""
    try:
        time = datetime.fromisoformat(word_of(text))
        return time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError):
        return None
