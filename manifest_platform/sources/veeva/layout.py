"""The names and places of a vault's windows below the landing root.

    <root>/vault=<id>/incr/stoptime=YYYYMMDDHHMM/    a window of changes, by its stop time
    <root>/vault=<id>/log/date=YYYY-MM-DD/           a day's logs, by their stop time: the day after
    <root>/vault=<id>/full/date=YYYY-MM-DD/          a snapshot, by its stop time

Times are UTC. Logs and snapshots that do not stop at midnight are named `date=YYYY-MM-DDTHHMM`. The feed and the stop time
determine the name, and the name determines them. Windows that others land may also be named `date=YYYYMMDD` or
`date=YYYYMMDDTHHMM`. Such a name means the same window, and the item keeps it. If a window is landed under both names, one is
registered and the other is reported.

A directory holds the tree of an archive, complete by marker or by settling, or an `attempt=…` folder for each attempt of the
producer. Only the producer uses these; an attempt that was never registered is orphaned.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

from manifest_platform import landed_files, storage
from manifest_platform.sources.directories import (
    HIDDEN,
    SUCCESS,
    DirectoryName,
    Found,
    FoundNames,
    LandedDirectory,
    Layout,
    Marker,
    Settle,
    Unreadable,
    find,
    list_names,
    read,
)
from manifest_platform.sources.errors import LandingDamaged, LandingLinked, LandingMisconfigured, LandingUnavailable
from manifest_platform.sources.veeva.files import Feed, Sidecar

FEEDS: tuple[Feed, ...] = get_args(Feed)
SIDECAR = "_files.json"
"""The file beside the files of a captured window that describes them. It is written last."""
ATTEMPT = "attempt="
VAULT_BEGAN = datetime(2000, 1, 1, tzinfo=UTC)
"""The start time of every snapshot."""

_NAME = re.compile(
    r"(?:(?P<incr>incr)/)?stoptime=(?P<stop>[0-9]{12})"
    r"|(?P<feed>log|full)/date=(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8})(?:T(?P<minutes>[0-9]{4}))?"
)
_SPANS = {"incr": timedelta(minutes=15), "log": timedelta(days=1)}


@dataclass(frozen=True, slots=True)
class WindowName(DirectoryName):
    """The parsed name of a window: `incr/stoptime=202601010015` is a window of feed `incr` that stops at `time`.

    `sort` and `start` have the form `2026-01-01T00:15Z`. `start` is the start of such a window by Vault's schedule.
    """

    feed: Feed
    start: str

    @property
    def stop(self) -> str:
        """The stop time of the window in the form of `start`: its sort key."""
        return self.sort


def minute(time: datetime) -> str:
    """Returns a time in the form of windows, `2026-01-01T00:15Z`. Raises ValueError without a zone or if it has seconds."""
    if time.tzinfo is None or time.second or time.microsecond:
        raise ValueError(f"{time!r} is not a whole minute with a time zone")
    return f"{time.astimezone(UTC).isoformat()[:16]}Z"


def parse_minute(text: str) -> datetime | None:
    """Parses a text that `minute` returned; None for any other text."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def window_name(feed: Feed, stop: datetime) -> str:
    """Returns the name of the window of a feed that stops at a time. Raises ValueError as `minute`."""
    text = minute(stop)
    day, time = text[:10], text[11:13] + text[14:16]
    if feed == "incr":
        return f"incr/stoptime={day.replace('-', '')}{time}"
    return f"{feed}/date={day}" + ("" if time == "0000" else f"T{time}")


def parse_window_name(name: str) -> WindowName | None:
    """Parses a window's name; None if the text is not one: the form of `window_name`, or the form without hyphens.

    `stoptime=…` alone means `incr/stoptime=…`; `date=…` needs its feed, and keeps its form.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    feed: Feed = "incr" if found["stop"] else "log" if found["feed"] == "log" else "full"
    text = found["stop"] or f"{found['date'].replace('-', '')}{found['minutes'] or '0000'}"
    try:
        stop = datetime.strptime(text, "%Y%m%d%H%M").replace(tzinfo=UTC)
        start = stop - _SPANS[feed] if feed in _SPANS else VAULT_BEGAN
    except (ValueError, OverflowError):
        return None
    if found["minutes"] == "0000":
        return None  # it would be a second name of the same window
    return WindowName(name if found["feed"] else window_name(feed, stop), minute(stop), stop, feed, minute(start))


def vault_uri(root: str | Path, vault: str) -> str:
    """Returns the URI of the folder with a vault's windows."""
    return f"{storage.as_uri(root)}/vault={vault}"


def item_uri(root: str | Path, vault: str, name: str) -> str:
    """Returns the URI of a window's directory, which is its item's id."""
    return f"{vault_uri(root, vault)}/{name}"


def list_windows(
    root: str | Path,
    vault: str,
    after: datetime | None = None,
    completeness: Marker | Settle = SUCCESS,
    feeds: Collection[Feed] = FEEDS,
    most: int | None = None,
) -> Found:
    """Lists the landed windows of some feeds of a vault that stop at or after a time, one listing per feed.

    `most`: the number of files after which the listing ends, for a single feed whose names sort by their time.

    A directory's `name` is the window's, as `incr/stoptime=202601010015`. The producer's attempts are ignored. So is a
    directory without files and without the marker: an empty window has the marker alone. A feed whose folder does not exist has
    no windows. Raises as `find`, and ValueError for a time without a zone.
    """
    if after is not None and after.tzinfo is None:
        raise ValueError(f"after={after!r} has no time zone; give a time in UTC")
    folder = vault_uri(root, vault)
    runs: list[LandedDirectory] = []
    unparseable: list[str] = []
    unreadable: list[Unreadable] = []
    requests = 0
    now: datetime | None = None
    upto: datetime | None = None
    for feed in (feed for feed in _feeds_there(root, folder) if feed in feeds):
        start = "" if after is None else _first_name(feed, after)
        try:
            passed = _passed_over(feed, after)
            found = find(f"{folder}/{feed}", _layout(feed), start, completeness, storage.as_uri(root), passed, most)
        except LandingLinked as error:
            unreadable.append(Unreadable(feed, str(error)))
            continue
        runs += [run for run in found.directories if (run.files or run.marker) and (after is None or run.time >= after)]
        unparseable += [f"{feed}/{name}" for name in found.unparseable]
        unreadable += found.unreadable
        requests += found.requests
        now = now or found.now
        upto = found.upto
    runs.sort(key=lambda run: (run.sort, run.name))
    return Found(runs, unparseable, requests, 0, now, tuple(unreadable), upto)


def list_window_names(
    root: str | Path, vault: str, feed: Feed, after: datetime | None = None, *, beyond: str = "", most: int | None = None
) -> FoundNames:
    """Lists the names of the windows of a feed that stop at or after a time, without reading the windows.

    `beyond` and `most` list a part of them, as in `list_names`, which also says what is raised.
    """
    folder = vault_uri(root, vault)
    if feed not in _feeds_there(root, folder):
        return FoundNames([], [], 0)
    start = "" if after is None else _first_name(feed, after)
    try:
        found = list_names(f"{folder}/{feed}", _layout(feed), start, beyond=beyond, most=most, below=storage.as_uri(root))
    except LandingLinked as error:
        return FoundNames([], [], 0, unreadable=(Unreadable(feed, str(error)),))
    names = [name for name in found.names if after is None or name.time >= after]
    return replace(found, names=names, unparseable=[f"{feed}/{name}" for name in found.unparseable])


def read_window(place: str, completeness: Marker | Settle = SUCCESS) -> LandedDirectory:
    """Reads the current content of a window, by the URI of its directory or of the attempt that holds it.

    Raises LandingDamaged if it is gone, otherwise as `list_windows`; ValueError for a URI that is not a window's.
    """
    folder, _, last = place.rpartition("/")
    uri = folder if last.startswith(ATTEMPT) else place
    parsed = parse_window_name("/".join(uri.split("/")[-2:]))
    if parsed is None:
        raise ValueError(f"{place} does not end in the name of a window")
    return read(place, parsed, _layout(parsed.feed), completeness, root_of(place))


def root_of(place: str) -> str:
    """Returns the landing root of a window, by the URI of its directory or of the attempt that holds it."""
    folder, _, last = place.rpartition("/")
    return (folder if last.startswith(ATTEMPT) else place).rsplit("/", 3)[0]


def read_files(place: str) -> Sidecar | None:
    """Reads the sidecar of a captured window; None if the producer did not write the folder.

    Raises LandingUnavailable if it cannot be read, and LandingDamaged if it is not a valid sidecar.
    """
    uri = f"{place}/{SIDECAR}"
    try:
        return Sidecar.from_bytes(landed_files.read_bytes(uri, root_of(place)))
    except FileNotFoundError:
        return None
    except landed_files.NotFollowed as error:
        raise LandingLinked(str(error)) from error
    except OSError as error:
        raise LandingUnavailable(f"{uri} could not be read: {error}; try again") from error
    except ValueError as error:
        raise LandingDamaged(f"{uri}: {error}; it was altered: restore it, or skip the window") from error


def check_way(place: str) -> None:
    """Raises LandingLinked if the path to a folder below the landing root leads through a link. Call it before writing."""
    if storage.is_local(place):
        try:
            landed_files.check_way(str(storage.local_path(place)), str(storage.local_path(root_of(place))))
        except landed_files.NotFollowed as error:
            raise LandingLinked(str(error)) from error
        except OSError as error:
            raise LandingUnavailable(f"{place} could not be written: {error}; make room or give access") from error


def attempt_folders(item: str) -> list[str]:
    """Returns the URIs of the producer's attempts in a window's directory, registered or not. Ignores links. Raises OSError."""
    if storage.is_local(item):
        try:
            found = landed_files.entries(str(storage.local_path(item)), str(storage.local_path(root_of(item))))
        except (FileNotFoundError, landed_files.NotFollowed):
            return []
        return sorted(f"{item}/{name}" for name, status in found if name.startswith(ATTEMPT) and stat.S_ISDIR(status.st_mode))
    from pyarrow.fs import FileSelector, FileType  # imported here: no other command that reads names needs it

    system, folder = storage.filesystem(item)
    listed = system.get_file_info(FileSelector(folder, allow_not_found=True))
    names = sorted(info.base_name for info in listed if info.type == FileType.Directory and info.base_name.startswith(ATTEMPT))
    return [f"{item}/{name}" for name in names]


def list_attempts(item: str) -> list[tuple[str, datetime]]:
    """Returns the producer's attempts in a window's directory, with the time of the last write to each. Raises OSError."""
    written: dict[str, datetime] = {}
    for path, time in _written(item):
        attempt = path.partition("/")[0]
        if attempt.startswith(ATTEMPT):
            written[attempt] = max(time, written.get(attempt, time))
    return [(f"{item}/{attempt}", time) for attempt, time in sorted(written.items())]


def _written(item: str) -> Iterator[tuple[str, datetime]]:
    """Yields each path in a window's directory with the time when it was written; for a link, that of the link itself."""
    if storage.is_local(item):
        with contextlib.suppress(FileNotFoundError, landed_files.NotFollowed):
            for path, status in landed_files.walk(str(storage.local_path(item)), str(storage.local_path(root_of(item)))):
                yield path, datetime.fromtimestamp(status.st_mtime, UTC)
        return
    from pyarrow.fs import FileSelector  # imported here: no other command that reads names needs it

    system, folder = storage.filesystem(item)
    for info in system.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True)):
        if info.mtime:
            yield info.path.removeprefix(f"{folder}/"), info.mtime


def is_missing(root: str | Path) -> bool:
    """True if a local landing root does not exist. In S3 a root need not exist."""
    uri = storage.as_uri(root)
    return storage.is_local(uri) and not os.path.exists(storage.local_path(uri))


def _feeds_there(root: str | Path, folder: str) -> tuple[Feed, ...]:
    """Returns the feeds to list. On a disk, a feed's folder may be missing but the root may not; S3 has no folders."""
    if not storage.is_local(folder):
        return FEEDS
    if is_missing(root):
        path = storage.local_path(storage.as_uri(root))
        raise LandingMisconfigured(f"landing root {path} does not exist; create it or correct the dataset's root")
    return tuple(feed for feed in FEEDS if os.path.lexists(storage.local_path(f"{folder}/{feed}")))


def _first_name(feed: Feed, after: datetime) -> str:
    """Returns the name at which the listing of a feed's folder begins: names sort by stop time."""
    return window_name(feed, after.replace(second=0, microsecond=0)).partition("/")[2]


def _passed_over(feed: Feed, after: datetime | None) -> tuple[str, str] | None:
    """Returns the range of names without hyphens of the same year that are too early: they sort behind names with hyphens."""
    if feed == "incr" or after is None:
        return None
    compact = _first_name(feed, after).replace("-", "")
    return compact[: len("date=YYYY")] + "0", compact


def _layout(feed: Feed) -> Layout:
    return Layout(lambda name: parse_window_name(f"{feed}/{name}"), (*HIDDEN, ATTEMPT))
