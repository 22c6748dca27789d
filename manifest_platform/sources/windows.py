"""Windows of time: files that are placed by the time when they were written, as Snowplow's S3 loader places them.

This module lists windows and divides each into items. A window becomes an item once it is over and has settled. Files that come
later become an item of their own (`-late-1`), so that a loaded item never changes. An item holds the files of its window that
were written in one interval of the storage's time.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from manifest_platform import landed_files, storage
from manifest_platform.sources import directories
from manifest_platform.sources.directories import (
    HIDDEN,
    Found,
    LandedDirectory,
    LandedFile,
    Unreadable,
    checksum_of,
    folder_key,
)
from manifest_platform.sources.errors import LandingDamaged
from manifest_platform.sources.layouts import Template, Window, parse_window_name


@dataclass(slots=True)
class _Reading:
    """A window while its files are being listed."""

    window: Window
    files: list[tuple[str, int, str, datetime]] = field(default_factory=list)
    changed: datetime | None = None
    links: list[str] = field(default_factory=list)

    def add(self, path: str, size: int, fingerprint: str, written: datetime, arrived: datetime) -> None:
        self.files.append((path, size, fingerprint, written))
        self.changed = max(self.changed or arrived, arrived)

    def directory(self, root_uri: str) -> LandedDirectory:
        local = storage.is_local(root_uri)
        files = tuple(
            LandedFile(f"{root_uri}/{storage.quote_path(path) if local else path}", size, fingerprint, written)
            for path, size, fingerprint, written in sorted(self.files)
        )
        return _directory(self.window, root_uri, files, self.changed, tuple(sorted(self.links)))


def _directory(
    window: Window,
    root_uri: str,
    files: tuple[LandedFile, ...],
    changed: datetime | None,
    links: tuple[str, ...],
    after: datetime | None = None,
) -> LandedDirectory:
    """Returns a window, or some of its files, as a directory. Windows have no markers and no known writers."""
    name = window.name
    return LandedDirectory(
        name=name.name,
        uri=f"{root_uri}/{name.name}",
        sort=name.sort,
        time=name.time,
        files=files,
        marker=False,
        in_progress=False,
        checksum=checksum_of(root_uri, files),
        changed=changed,
        links=links,
        after=after,
    )


@dataclass
class FoundWindows:
    """Windows with all their files, oldest first.

    `upto`: the name behind which the next part begins; None if nothing is left. `unparseable`: paths below the root that are
    not in any window. `now`: the time when the listing began, by the storage's clock.
    """

    directories: list[LandedDirectory]
    unparseable: list[str]
    unreadable: tuple[Unreadable, ...]
    requests: int
    now: datetime | None
    upto: str | None = None

    def found(self) -> Found:
        """Returns the same as the result of listing a root."""
        return Found(self.directories, self.unparseable, self.requests, 0, self.now, self.unreadable)


def list_windows(
    root_uri: str, template: Template, start: datetime | None = None, beyond: str = "", most: int | None = None
) -> FoundWindows:
    """Lists the windows below a root that do not start before a time, with their files.

    `most`: the maximum number of files, though at least one window is listed, from behind the window named `beyond`. In S3 that
    is one request per thousand files. Raises as `directories.find`.
    """
    after = parse_window_name(beyond.rstrip("/")) if beyond else None
    from_ = after.stop if after else start
    lowest = template.path(from_) if from_ else ""
    if storage.is_local(root_uri):
        listed = _list_local(root_uri, template, lowest, most=most)
    else:
        listed = _list_s3(root_uri, template, lowest, most)
    readings = sorted(listed.windows.values(), key=lambda one: one.window.start)
    upto = None
    if most is not None and (listed.truncated or sum(len(one.files) for one in readings) > most):
        readings, upto = _part(readings, most, listed.truncated)
    unreadable = {one.name for one in listed.unreadable}  # their listing may be incomplete
    return FoundWindows(
        [one.directory(root_uri) for one in readings if one.window.name.name not in unreadable],
        sorted(listed.unparseable),
        tuple(listed.unreadable),
        listed.requests,
        listed.now,
        upto,
    )


def _part(readings: list[_Reading], most: int, truncated: bool) -> tuple[list[_Reading], str | None]:
    """Returns the first windows, each complete, and the name of the last if others follow."""
    whole = readings[:-1] if truncated else readings
    files, taken = 0, []
    for one in whole:
        files += len(one.files)
        if taken and files > most:
            break
        taken.append(one)
    left = truncated or len(taken) < len(readings)
    return taken, folder_key(taken[-1].window.name.name) if left and taken else None


def read_window(root_uri: str, template: Template, window: Window) -> LandedDirectory:
    """Reads the current files of a window, late files included.

    Raises LandingDamaged if it is gone, otherwise as `list_windows`.
    """
    path = template.path(window.start)
    if storage.is_local(root_uri):
        listed = _list_local(root_uri, template, path, path)
    else:
        listed = _list_s3(root_uri, template, "", None, path if template.of_files else f"{path}/")
    found = next((one for one in listed.windows.values() if one.window.start == window.start), None)
    for damaged in listed.unreadable:
        raise LandingDamaged(f"{root_uri}/{path}: {damaged.reason}")
    if found is None:
        raise LandingDamaged(f"{root_uri}/{path}{'*' if template.of_files else ''} is gone; put it back, or skip it")
    return found.directory(root_uri)


@dataclass
class _Listed:
    """The result of one listing. `truncated`: it ended within the last window."""

    now: datetime
    windows: dict[datetime, _Reading] = field(default_factory=dict)
    unparseable: set[str] = field(default_factory=set)
    unreadable: list[Unreadable] = field(default_factory=list)
    requests: int = 0
    truncated: bool = False

    def reading(self, window: Window) -> _Reading:
        return self.windows.setdefault(window.start, _Reading(window))


def _list_s3(root_uri: str, template: Template, lowest: str, most: int | None, below: str = "") -> _Listed:
    bucket, _, prefix = f"{root_uri.removeprefix('s3://')}/".partition("/")
    client = directories.s3_client(root_uri)
    listed = _Listed(datetime.now(UTC))
    files = 0
    answers = directories.answers(client, bucket, f"{prefix}{below}", f"{prefix}{lowest}" if lowest else "", root_uri)
    for number, (answer, attempts) in enumerate(answers):
        listed.requests += attempts
        listed.now = directories.answered_at(answer) if not number else listed.now
        for key in answer.get("Contents", []):
            files += _add_key(listed, template, key["Key"][len(prefix) :], key)
        if most is not None and files >= most and len(listed.windows) > 1 and answer.get("IsTruncated"):
            listed.truncated = True
            break
    return listed


def _add_key(listed: _Listed, template: Template, path: str, key: Any) -> int:
    parts = path.split("/")
    if path.endswith(("/", directories.GHOST)) or any(part.startswith(HIDDEN) and part not in (".", "..") for part in parts):
        return 0
    window = template.window(path)
    if window is None:
        listed.unparseable.add(template.stranger(path))
        return 0
    if not directories.NO_NAMES.isdisjoint(parts):
        listed.unreadable.append(Unreadable(window.name.name, directories.misnamed(key["Key"])))
        return 0
    written = key["LastModified"].astimezone(UTC)
    listed.reading(window).add(path, key["Size"], key["ETag"].strip('"'), written, written)
    return 1


def _list_local(root_uri: str, template: Template, lowest: str, only: str = "", most: int | None = None) -> _Listed:
    """Lists a local root. `only`: the path of the single window to list. `most`: the number of files after which it ends."""
    root = str(storage.local_path(root_uri))
    with directories.local_root(root):
        landed_files.entries(root, root)
    listed = _Listed(directories.local_time(root))
    for folder in _folders(listed, template, root, "", 0, lowest, only):
        try:
            for path, status in _files(root, folder, template):
                _add_file(listed, template, path, status, lowest, only)
        except (landed_files.NotFollowed, OSError) as error:
            window = template.named(folder)
            listed.unreadable.append(Unreadable(window.name.name if window else folder, _reason(error)))
        if most is not None and len(listed.windows) > 1 and sum(len(one.files) for one in listed.windows.values()) > most:
            listed.truncated = True
            break
    return listed


def _folders(listed: _Listed, template: Template, root: str, folder: str, depth: int, lowest: str, only: str) -> Iterator[str]:
    """Yields the folders that hold windows' files, by their paths below the root, from `lowest` on."""
    if depth == template.depth:
        yield folder
        return
    try:
        entries = sorted(landed_files.entries(f"{root}/{folder}".rstrip("/"), root))
    except (landed_files.NotFollowed, OSError) as error:
        listed.unreadable.append(Unreadable(folder, _reason(error)))
        return
    for name, status in entries:
        path = f"{folder}/{name}".lstrip("/")
        bound = only or path
        if name.startswith(HIDDEN) or path < lowest[: len(path)] or path != bound[: len(path)]:
            continue
        if stat.S_ISDIR(status.st_mode) and template.begins(name, depth):
            yield from _folders(listed, template, root, path, depth + 1, lowest, only)
        elif stat.S_ISLNK(status.st_mode) and template.begins(name, depth):
            listed.unreadable.append(Unreadable(path, f"{root}/{path} is {landed_files.kind(status.st_mode)}"))
        else:
            listed.unparseable.add(path)


def _files(root: str, folder: str, template: Template) -> Iterator[tuple[str, Any]]:
    """Yields the files of a folder by their paths below the root. A window's own folder is read with all folders below it."""
    opened = f"{root}/{folder}".rstrip("/")
    found: Iterable[tuple[str, Any]]
    if template.of_files:
        found = landed_files.entries(opened, root)
    else:
        found = landed_files.walk(opened, root, lambda name: not name.startswith(HIDDEN))
    for path, status in found:
        yield f"{folder}/{path}".lstrip("/"), status


def _add_file(listed: _Listed, template: Template, path: str, status: Any, lowest: str, only: str) -> None:
    if path.rpartition("/")[2].startswith(HIDDEN) or path < lowest or not path.startswith(only):
        return
    window = template.window(path)
    if stat.S_ISDIR(status.st_mode) and not template.of_files:
        return
    if window is None or stat.S_ISDIR(status.st_mode):
        listed.unparseable.add(template.stranger(path))
        return
    reading = listed.reading(window)
    if not landed_files.is_plain(status):
        reading.links.append(f"{path}, {landed_files.kind(status.st_mode)}")
    written = datetime.fromtimestamp(status.st_mtime, UTC)
    reading.add(path, status.st_size, str(status.st_mtime_ns), written, directories.arrival(status))


def _reason(error: landed_files.NotFollowed | OSError) -> str:
    return directories.why(error) if isinstance(error, OSError) else str(error)


@dataclass(frozen=True)
class Stretch:
    """The files of a window that belong to an item: those written after one time and up to another, by the storage's clock."""

    after: datetime | None
    upto: datetime | None

    def of(self, whole: LandedDirectory, window: Window, root_uri: str) -> LandedDirectory:
        """Returns these files of a window as the directory of the item."""
        files = tuple(file for file in whole.files if self.has(file.written))
        written = [file.written for file in files if file.written]
        is_whole = whole.changed and len(files) == len(whole.files)
        changed = whole.changed if is_whole else max(written, default=None)
        return _directory(window, root_uri, files, changed, whole.links, self.after)

    def has(self, written: datetime | None) -> bool:
        """True if a file written at this time belongs to the item."""
        if written is None:
            return False
        return (self.after is None or written > self.after) and (self.upto is None or written <= self.upto)


@dataclass(frozen=True)
class Registered:
    """A registered item of a window: its number among the late items, the interval of its files, and its checksum."""

    late: int
    stretch: Stretch
    checksum: str


def divide(whole: LandedDirectory, window: Window, registered: Sequence[Registered], root_uri: str) -> list[LandedDirectory]:
    """Divides the current files of a window into its registered items and, if files came since, a new late item.

    If a registered item has changed, the new files may be rewritten files of that item, and loading them would double its
    rows. They then count as part of the last item. That item now differs from its registered content, which is reported.
    """
    items = sorted(registered, key=lambda one: one.late)
    own = [one.stretch.of(whole, Window(window.start, window.unit, one.late), root_uri) for one in items]
    last = items[-1]
    rest = Stretch(last.stretch.upto, None)
    if all(now.checksum == before.checksum for now, before in zip(own, items, strict=True)):
        more = rest.of(whole, Window(window.start, window.unit, last.late + 1), root_uri)
        return [*own, *([more] if more.files else [])]
    open_end = Stretch(last.stretch.after, None)
    return [*own[:-1], open_end.of(whole, Window(window.start, window.unit, last.late), root_uri)]
