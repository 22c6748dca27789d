"""Vault's list of Direct Data files: what its entries say, and which of them cannot be used.

Belongs here: reading entries as they came, whatever they are. An entry that says something wrong costs only itself: the list
holds ten days of windows, and a malformed one must not keep the others from being captured before the Vault drops them.
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
"""The feeds as Vault names them."""

_NAME = 80
"""How many of a name: an awaited window is noted under it, quoted, and a key of DynamoDB has 1,024 bytes at most."""


MOST = 50_000
"""How many entries a list may have: ten days have some thousand windows. Eight MiB hold four million that are nothing."""


class _Unusable(ValueError):
    """What an entry of the list lacks."""


def read_list(feed: Feed, entries: Sequence[Any]) -> FileListing:
    """What a list says of a feed. Entries that cannot be used are told with the reason; none raises."""
    files: list[DirectDataFile] = []
    awaiting: list[Awaiting] = []
    unusable: list[UnusableEntry] = []
    for entry in entries:
        if not isinstance(entry, dict):
            unusable.append(UnusableEntry("without a name", feed, f"it is {shown(entry)}, and no object"))
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
        raise _Unusable(f"it is of extract_type {text_of(entry['extract_type'])}, and {EXTRACT_TYPES[feed]} was asked for")
    start, stop = (_minute(entry, column) for column in ("start_time", "stop_time"))
    if start < VAULT_BEGAN:
        raise _Unusable(f"it starts at {text_of(entry['start_time'])}, before there was any vault")
    if start >= stop:
        raise _Unusable(f"it stops at {text_of(entry['stop_time'])}, and starts at {text_of(entry['start_time'])}")
    count = None if entry.get("record_count") is None else _whole(entry, "record_count")
    parts = _parts(entry.get("filepart_details") or [])
    if entry.get("fileparts") is not None and (told := _whole(entry, "fileparts")) != len(parts):
        raise _Unusable(f"it has {told} parts (fileparts), and {len(parts)} are described (filepart_details)")
    if not parts:
        _check_empty(entry, count)
    return DirectDataFile(name, feed, start, stop, count, parts)


def _check_empty(entry: Mapping[str, Any], count: int | None) -> None:
    """Lets nothing pass for a window in which nothing happened but what says so: it would be passed over for ever."""
    if count is None:
        raise _Unusable("it has no parts (filepart_details), and does not say that it has no records (record_count)")
    if count:
        raise _Unusable(f"it has {count} records (record_count), and no parts (filepart_details)")
    if entry.get("size") is not None and (size := _whole(entry, "size")):
        raise _Unusable(f"it has {size} bytes (size), and no parts (filepart_details)")


def _parts(entries: Any) -> tuple[Part, ...]:
    if not isinstance(entries, list):
        raise _Unusable(f"its parts (filepart_details) are {shown(entries)}, and a list is needed")
    parts = sorted((_part(entry) for entry in entries), key=lambda part: part.number)
    if [part.number for part in parts] != list(range(1, len(parts) + 1)):
        raise _Unusable(f"its parts are numbered {shown([part.number for part in parts])}")
    return tuple(parts)


def _part(entry: Any) -> Part:
    if not isinstance(entry, dict):
        raise _Unusable(f"one of its parts is {shown(entry)}, and no object")
    name, md5 = entry.get("name"), entry.get("md5checksum")
    if not name:
        raise _Unusable("one of its parts has no name")
    if not isinstance(name, str) or name != text_of(name) or name in (".", ".."):
        raise _Unusable(f"one of its parts is called {shown(name)}, and no file can be")
    return Part(name, _whole(entry, "filepart"), _whole(entry, "size"), text_of(md5).lower() if md5 else None)


def _whole(entry: Mapping[str, Any], column: str) -> int:
    """A number of the entry's, which Vault may tell as a text."""
    value = entry.get(column)
    try:
        number = int(word_of(value))
    except ValueError:
        number = -1
    if number < 0:
        raise _Unusable(f"it has {column} {shown(value)}, and a whole number is needed")
    return number


def _minute(entry: Mapping[str, Any], column: str) -> datetime:
    time = _time_or_none(entry.get(column))
    if time is None or time.second or time.microsecond:
        raise _Unusable(f"it has {column} {shown(entry.get(column))}, and a time is needed, in whole minutes with a zone")
    return time


def _time_or_none(text: Any) -> datetime | None:
    """A time of Vault's, to the minute or to the second; None for what is none."""
    try:
        time = datetime.fromisoformat(word_of(text))
        return time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError):
        return None
