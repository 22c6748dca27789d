"""Listing of landing roots, on a local disk or in S3: the directories below a root, their files, and which are complete.

All sources share this module. Each source interprets the names of its directories itself. The manifest alone decides whether a
directory is new; modification times never do.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from manifest_platform import aws, landed_files, storage
from manifest_platform.sources.errors import LandingDamaged, LandingLinked, LandingMisconfigured, LandingUnavailable

HIDDEN = ("_", ".")
"""Prefixes of names that are not data."""

GHOST = "_$folder$"  # the key by which older Hadoop versions mark an empty folder in S3
_TEMPORARY = "_temporary"  # the folder that Hadoop's committers write to until they commit
NO_NAMES = frozenset({"", ".", ".."})  # parts of an S3 key that cannot be file names
_PAGE = 1000  # keys per request, the maximum of S3

LONG_AGO = timedelta(days=1)
"""In S3, the age of the last change after which a directory counts as settled at the first look.

It exceeds the duration of a multipart upload, because an uploaded file shows the time at which its upload began.
"""

NOTHING = ("", "")
"""An empty range of names."""

_TRANSIENT_CODES = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded"}


@dataclass(frozen=True, slots=True)
class DirectoryName:
    """The name of a directory, with its time (UTC) and its sort key within the feed.

    `sort` orders bytewise by time, then by the rest of the name. It is unique within a feed and contains no `#`.
    """

    name: str
    sort: str
    time: datetime


@dataclass(frozen=True)
class Layout:
    """The naming rules of a source's directories below a root.

    `parse` returns the parsed name, or None if the name is not one of the source's. `hidden`: prefixes of names, at any level,
    that are not data.
    """

    parse: Callable[[str], DirectoryName | None]
    hidden: tuple[str, ...] = HIDDEN


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A data file of a directory.

    `fingerprint`: the ETag in S3, the modification time on a local disk. If it is equal, the file was not rewritten. `written`:
    the time of writing by the storage's clock, if it was requested.
    """

    uri: str
    size: int
    fingerprint: str
    written: datetime | None = None


@dataclass(frozen=True, slots=True)
class LandedDirectory:
    """A directory below the landing root, as a listing showed it.

    `uri` has no trailing slash. `files`: the data files, sorted by URI, without those whose names begin with `_` or `.`.
    `marker`: True if the marker file existed before the files were listed. `in_progress`: True if it contains the `_temporary`
    of a job that has not committed. `checksum`: a hash of the files' relative names, sizes and fingerprints. `changed`: when
    the newest file was written, by the storage's clock; None without files. `links`: relative paths of symbolic links, pipes
    and the like among the files, with a description; they are never followed or opened. `after`: for a late item of a window,
    `files` holds only those written after this time.
    """

    name: str
    uri: str
    sort: str
    time: datetime
    files: tuple[LandedFile, ...]
    marker: bool
    in_progress: bool
    checksum: str
    changed: datetime | None = None
    links: tuple[str, ...] = ()
    after: datetime | None = None

    @property
    def bytes(self) -> int:
        """The size of all data files, in bytes."""
        return sum(file.size for file in self.files)

    def check(self) -> None:
        """Raises LandingLinked if the directory contains a link, a pipe or the like."""
        if self.links:
            raise LandingLinked(f"{self.uri} holds {_some(self.links)}. Land the files themselves in their place")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A directory that could not be listed, and the reason: a link to nothing in it, or a folder without read permission."""

    name: str
    reason: str


@dataclass(frozen=True)
class Found:
    """The result of listing a root: its directories, oldest first.

    `known`: the number of directories known to the manifest that were not read. `unparseable`: names below the root that are
    not the source's. `requests`: requests to the object storage. `now`: the time when the listing began, by the storage's
    clock; None if it was not read. `unreadable`: directories that could not be listed; they do not hold up the others. `upto`:
    the time at which the next part begins, if only a part was asked for; None if nothing is left.
    """

    directories: list[LandedDirectory]
    unparseable: list[str]
    requests: int
    known: int = 0
    now: datetime | None = None
    unreadable: tuple[Unreadable, ...] = ()
    upto: datetime | None = None


@dataclass(frozen=True)
class Marker:
    """A directory is complete when it contains a file of this name, which its writer writes last."""

    name: str = "_SUCCESS"


SUCCESS = Marker()
"""The marker that Hadoop's jobs leave."""


@dataclass(frozen=True)
class Settle:
    """A directory is complete when it has not changed for this many seconds. For writers that leave no marker."""

    seconds: float


@dataclass(frozen=True)
class Look:
    """An earlier observation of a directory: its checksum, and when that was first seen, by the storage's clock."""

    checksum: str
    first_seen: datetime


def find(
    root_uri: str,
    layout: Layout,
    start: str,
    completeness: Marker | Settle,
    below: str = "",
    passed_over: tuple[str, str] | None = None,
    most: int | None = None,
) -> Found:
    """Lists all directories of a root whose names are not below `start`, with their files, in one pass.

    Hidden names are ignored. Other names that are not the source's are reported and left alone. Folders that exist only as S3's
    empty folder keys are ignored. An S3 prefix without keys is an empty root. `below`: the landing root, if `root_uri` is a
    folder in it; symbolic links below it are never followed. `passed_over`: a half-open range of names that is not listed,
    however many names it holds. `most`: the number of files after which the listing ends, at the next whole minute of names
    that sort by their time; None means no limit.

    Raises LandingMisconfigured if the root does not exist or access is refused, LandingLinked if it is a link or below one, and
    LandingUnavailable if a later try may succeed.
    """
    marker = _marker(completeness)
    if storage.is_local(root_uri):
        found = _list_local(root_uri, layout, start, marker, below or root_uri, passed_over or NOTHING, most)
    else:
        found = _list_s3(root_uri, layout, start, marker, passed_over or NOTHING, most)
    runs = [run.directory(root_uri) for run in found.directories]
    runs.sort(key=lambda run: run.sort)
    return Found(runs, sorted(found.unparseable), found.requests, 0, found.now, tuple(found.unreadable), found.upto)


@dataclass(frozen=True)
class FoundNames:
    """The names of a root's directories, in order, the names that are not the source's, and the number of S3 requests.

    `upto`: where the next part of the root begins; None if nothing is left. `now`: the time when the listing began, by the
    storage's clock. `unreadable`: names that could not be listed.
    """

    names: list[DirectoryName]
    unparseable: list[str]
    requests: int
    upto: str | None = None
    now: datetime | None = None
    unreadable: tuple[Unreadable, ...] = ()


def list_names(
    root_uri: str, layout: Layout, start: str, *, beyond: str = "", most: int | None = None, below: str = ""
) -> FoundNames:
    """Lists the names of the directories that `find` would return, without reading the directories.

    In S3 that is one request per thousand directories, however many files they have. `most`: the maximum number of entries,
    from behind `beyond`, which is the `upto` of the previous part. Links are among the names; reading them reports the fault.
    Raises as `find`.
    """
    if storage.is_local(root_uri):
        names, requests, upto, now = _names_local(root_uri, start, beyond, most, below or root_uri)
    else:
        names, requests, upto, now = _names_s3(root_uri, start, beyond, most)
    seen = [name for name in names if name >= start and not name.startswith(layout.hidden) and not name.endswith(GHOST)]
    parsed = {name: layout.parse(name) for name in seen}
    found = sorted((one for one in parsed.values() if one), key=lambda one: one.sort)
    return FoundNames(found, sorted(name for name, one in parsed.items() if one is None), requests, upto, now)


_Names = tuple[list[str], int, str | None, datetime | None]


def folder_key(name: str) -> str:
    """Returns the key of a folder, by which S3 sorts: `run=1-b/` comes before `run=1/`."""
    return f"{name}/"


def _names_local(root_uri: str, start: str, beyond: str, most: int | None, below: str) -> _Names:
    root = str(storage.local_path(root_uri))
    with local_root(root):
        found = landed_files.folders(root, str(storage.local_path(below)))
    names = [name for name, is_folder in found if is_folder and name >= start]
    now = local_time(root)
    if most is None:
        return names, 0, None, now
    left = sorted((name for name in names if folder_key(name) > beyond), key=folder_key)
    return left[:most], 0, folder_key(left[most - 1]) if len(left) > most else None, now


def _names_s3(root_uri: str, start: str, beyond: str, most: int | None) -> _Names:
    bucket, _, prefix = f"{root_uri.removeprefix('s3://')}/".partition("/")
    # "0" follows "/": all keys of a folder sort before "<folder>0", and those of every later folder behind it.
    after = f"{prefix}{f'{beyond[:-1]}0' if beyond.endswith('/') else beyond or start}"
    page = _PAGE if most is None else min(most, _PAGE)
    names: list[str] = []
    requests = 0
    now: datetime | None = None
    client = s3_client(root_uri)
    for answer, attempts in answers(client, bucket, prefix, after, root_uri, Delimiter="/", MaxKeys=page):
        requests += attempts
        now = now or answered_at(answer)
        names += [one["Prefix"][len(prefix) : -1] or "/" for one in answer.get("CommonPrefixes", [])]
        keys = [key["Key"][len(prefix) :] for key in answer.get("Contents", [])]
        if most is not None and answer.get("IsTruncated") and (names or keys):
            return names, requests, max([*map(folder_key, names[-1:]), *keys[-1:]]), now
    return names, requests, None, now


@contextmanager
def local_root(root: str) -> Generator[None]:
    """Converts OSErrors about a root itself into errors of the landing place."""
    try:
        yield
    except landed_files.NotFollowed as error:
        raise LandingLinked(str(error)) from error
    except FileNotFoundError as error:
        raise LandingMisconfigured(
            f"landing root {root} does not exist; create the folder, mount its disk, or correct the path"
        ) from error
    except (PermissionError, NotADirectoryError) as error:
        raise LandingMisconfigured(
            f"landing root {root} cannot be listed: {error}; it must be a directory whose content this user may read"
        ) from error
    except OSError as error:
        raise LandingUnavailable(f"landing root {root} could not be listed: {error}; try again") from error


def read(uri: str, name: DirectoryName, layout: Layout, completeness: Marker | Settle, below: str = "") -> LandedDirectory:
    """Reads the current content of one directory. `below`: the landing root, if the directory is deeper than directly below it.

    Raises LandingDamaged if it is gone or has keys that cannot be read, otherwise as `find`.
    """
    root, _, folder = uri.rpartition("/")
    run, marker = _Reading(folder, name), _marker(completeness)
    if storage.is_local(uri):
        directory = str(storage.local_path(uri))
        try:
            _read_local(directory, str(storage.local_path(below or root)), marker, layout, run)
        except landed_files.NotFollowed as error:
            raise LandingLinked(str(error)) from error
        except OSError as error:
            if not os.path.lexists(directory):
                raise LandingDamaged(f"{uri} is gone; put it back, or skip it") from error
            if isinstance(error, FileNotFoundError | PermissionError):
                kind = LandingDamaged if isinstance(error, FileNotFoundError) else LandingMisconfigured
                raise kind(f"{uri} cannot be listed: {why(error)}; repair it, or skip it") from error
            raise LandingUnavailable(f"{uri} could not be listed: {why(error)}; try again") from error
        return run.directory(root)
    client = s3_client(uri)
    keys, requests = _add_keys(client, uri, marker, layout, run)
    if run.marker and requests > 1:
        _add_keys(client, uri, marker, layout, run)
    if not keys:
        raise LandingDamaged(f"{uri} is gone: no key begins with it; put it back, or skip it")
    if run.misnamed:
        raise LandingDamaged(f"{uri}: {misnamed(run.misnamed)}; or skip the directory")
    return run.directory(root)


def complete_directories(
    runs: Iterable[LandedDirectory], completeness: Marker | Settle, looks: Mapping[str, Look], now: datetime
) -> tuple[list[LandedDirectory], dict[str, Look]]:
    """Returns the complete directories, and the looks, by name, to pass in the next time.

    With a marker, a directory is complete if it has the marker; no looks are needed. With settling, it is complete if no
    uncommitted job is in it and either its files show that they have not changed for `seconds`, or an earlier look, at least
    `seconds` ago, saw the same checksum and the files were not written since. A local disk shows the time of each change. S3
    shows it reliably after `LONG_AGO`. A directory without files is complete by the same rules.

    `now` and the looks use the storage's clock, as in `Found`, so that a worker with a wrong clock neither registers
    a directory too early nor misses one. A file time in the future, which a copy may have, is ignored.
    """
    if isinstance(completeness, Marker):
        return [run for run in runs if run.marker], {}
    complete = []
    next_looks = {}
    for run in runs:
        look = looks.get(run.name)
        if run.changed and not run.in_progress and now - run.changed >= _shown_after(run, completeness):
            complete.append(run)
            continue
        if look is None or look.checksum != run.checksum or look.first_seen > now:
            next_looks[run.name] = Look(run.checksum, now)
            continue
        if run.changed and look.first_seen < run.changed <= now:
            look = Look(run.checksum, run.changed)  # rewritten with the same content
        if not run.in_progress and (now - look.first_seen).total_seconds() >= completeness.seconds:
            complete.append(run)
        next_looks[run.name] = look
    return complete, next_looks


def _shown_after(run: LandedDirectory, settle: Settle) -> timedelta:
    """Returns the age of the newest change after which a directory counts as settled at the first look."""
    seconds = timedelta(seconds=settle.seconds)
    return seconds if storage.is_local(run.uri) else max(LONG_AGO, seconds)


def checksum_of(folder_uri: str, files: Sequence[LandedFile]) -> str:
    """Returns a hash of the names of files below a folder, their sizes and fingerprints."""
    text = "\0".join(f"{one.uri[len(folder_uri) + 1 :]}\0{one.size}\0{one.fingerprint}" for one in files)
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def arrival(status: os.stat_result) -> datetime:
    """Returns the time when a local file was written or moved to its place: a copy may keep the time of its original."""
    return _time(max(status.st_mtime, status.st_ctime))


def _marker(completeness: Marker | Settle) -> str:
    return completeness.name if isinstance(completeness, Marker) else SUCCESS.name


@dataclass(slots=True)
class _Reading:
    """A directory while it is being listed: its files as (relative path, size, fingerprint).

    `changed`: the time of the newest file. `misnamed`: a key that cannot be a file name.
    """

    folder: str
    name: DirectoryName
    files: list[tuple[str, int, str]] = field(default_factory=list)
    marker: bool = False
    in_progress: bool = False
    changed: datetime | None = None
    links: list[str] = field(default_factory=list)
    misnamed: str = ""

    def add(self, path: str, size: int, fingerprint: str, arrived: datetime) -> None:
        self.files.append((path, size, fingerprint))
        self.changed = max(self.changed or arrived, arrived)

    def directory(self, root_uri: str) -> LandedDirectory:
        local = storage.is_local(root_uri)
        uri = f"{root_uri}/{self.folder}"
        self.files.sort()
        text = "\0".join(f"{path}\0{size}\0{fingerprint}" for path, size, fingerprint in self.files)
        return LandedDirectory(
            name=self.name.name,
            uri=uri,
            sort=self.name.sort,
            time=self.name.time,
            files=tuple(
                LandedFile(f"{uri}/{storage.quote_path(path) if local else path}", size, fingerprint)
                for path, size, fingerprint in self.files
            ),
            marker=self.marker,
            in_progress=self.in_progress,
            checksum=hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest(),
            changed=self.changed,
            links=tuple(sorted(self.links)),
        )


@dataclass(slots=True)
class _Listing:
    """The result of one listing of a root. `now`: the time at its start, by the storage's clock."""

    now: datetime
    directories: list[_Reading] = field(default_factory=list)
    unparseable: list[str] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    requests: int = 0
    upto: datetime | None = None

    def end_at(self, time: datetime) -> bool:
        """Ends the listing before the minute of a time, and returns True, if that leaves anything."""
        upto = whole_minute(time)
        kept = [run for run in self.directories if run.name.time < upto]
        if kept:
            self.directories, self.upto = kept, upto
        return bool(kept)


def whole_minute(time: datetime) -> datetime:
    """Returns the beginning of a time's minute, at which a part of a listing may end: names sort by time to the minute."""
    return time.replace(second=0, microsecond=0)


def _list_local(
    root_uri: str,
    layout: Layout,
    start: str,
    marker: str,
    below: str,
    passed_over: tuple[str, str],
    most: int | None,
) -> _Listing:
    root, landing = str(storage.local_path(root_uri)), str(storage.local_path(below))
    with local_root(root):
        entries = sorted(one for one in landed_files.folders(root, landing) if one[0] >= start)
    listing = _Listing(local_time(root))
    files = 0
    for name, is_folder in entries:
        if name.startswith(layout.hidden) or name.endswith(GHOST) or passed_over[0] <= name < passed_over[1]:
            continue
        parsed = layout.parse(name)
        if parsed is None or not is_folder:
            listing.unparseable.append(name)
            continue
        if most is not None and files >= most and listing.end_at(parsed.time):
            break
        run = _Reading(name, parsed)
        try:
            _read_local(f"{root}/{name}", landing, marker, layout, run)
        except landed_files.NotFollowed as error:
            listing.unreadable.append(Unreadable(parsed.name, str(error)))
            continue
        except OSError as error:
            if os.path.lexists(f"{root}/{name}"):  # else it was removed in the meantime
                listing.unreadable.append(Unreadable(parsed.name, why(error)))
            continue
        listing.directories.append(run)
        files += len(run.files)
    return listing


_MAY_WRITE: ContextVar[bool] = ContextVar("may_write", default=True)


@contextmanager
def without_writing() -> Generator[None]:
    """Prevents even the small write that reads a file system's clock."""
    before = _MAY_WRITE.set(False)
    try:
        yield
    finally:
        _MAY_WRITE.reset(before)


def local_time(root: str) -> datetime:
    """Returns the time by the clock of a folder's file system, which is another machine's if it is mounted.

    Only a write reveals that clock; it uses an unnamed temporary file. If the folder is not writable, this machine's clock is
    used.
    """
    if not _MAY_WRITE.get():
        return datetime.now(UTC)
    try:
        with tempfile.TemporaryFile(dir=root, prefix=".manifest-platform-clock-") as file:
            return _time(os.fstat(file.fileno()).st_mtime)
    except OSError:
        return datetime.now(UTC)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def why(error: OSError) -> str:
    """Returns the reason why a directory's content could not be listed, for people."""
    path = str(error.filename or "it")
    if isinstance(error, FileNotFoundError):
        return f"{path} vanished while it was listed"
    return f"{path}: {error.strerror or error}"


def _read_local(directory: str, landing: str, marker: str, layout: Layout, run: _Reading) -> None:
    def is_data(name: str) -> bool:
        return not name.startswith(layout.hidden) and not name.endswith(GHOST) and name != marker

    # Checked first: a marker that appears while the files are read does not vouch for files that were missed.
    run.marker = os.path.lexists(f"{directory}/{marker}")
    for path, status in landed_files.walk(directory, landing, is_data):
        name = path.rpartition("/")[2]
        if not landed_files.is_plain(status) and (path == marker or is_data(name)):
            run.links.append(f"{path}, {landed_files.kind(status.st_mode)}")
        elif name.startswith(layout.hidden):
            run.in_progress = run.in_progress or name == _TEMPORARY
            continue
        elif name.endswith(GHOST) or path == marker or stat.S_ISDIR(status.st_mode):
            continue
        run.add(path, status.st_size, str(status.st_mtime_ns), arrival(status))


def misnamed(key: str) -> str:
    """Returns the message for a key that cannot be a file name."""
    return (
        f"key {key!r} has a part that is empty, '.' or '..', which no file is called by; copy it to another key, and remove it"
    )


def _some(names: Sequence[str]) -> str:
    return "; ".join(names[:3]) + (f"; and {len(names) - 3} more" if len(names) > 3 else "")


def _list_s3(
    root_uri: str, layout: Layout, start: str, marker: str, passed_over: tuple[str, str], most: int | None
) -> _Listing:
    bucket, _, prefix = f"{root_uri.removeprefix('s3://')}/".partition("/")
    found: dict[str, _Reading] = {}
    unparseable: set[str] = set()
    first_page: dict[str, int] = {}
    spread: list[str] = []
    requests = 0
    now: datetime | None = None
    upto: datetime | None = None
    client = s3_client(root_uri)
    jump = f"{prefix}{passed_over[0]}", f"{prefix}{passed_over[1]}"
    for page, (answer, attempts) in enumerate(answers(client, bucket, prefix, f"{prefix}{start}", root_uri, jump)):
        requests += attempts
        now = now or answered_at(answer)
        for key in answer.get("Contents", []):
            name, slash, path = key["Key"][len(prefix) :].partition("/")
            if key["Key"].endswith(("/", GHOST)) or (name.startswith(layout.hidden) and name not in NO_NAMES):
                continue
            if passed_over[0] <= name < passed_over[1]:
                continue
            parsed = layout.parse(name)
            if parsed is None or not slash:
                unparseable.add(name or "/")
                continue
            run = found.setdefault(name, _Reading(name, parsed))
            first_page.setdefault(name, page)
            _add_key(run, path, key, marker, layout)
            if path == marker and first_page[name] < page:
                spread.append(name)
        if most is not None and found and (page + 1) * _PAGE >= most and answer.get("IsTruncated"):
            last = whole_minute(next(reversed(found.values())).name.time)
            if next(iter(found.values())).name.time < last:
                upto = last  # the last directory is not complete
                break
    if upto:
        found = {name: run for name, run in found.items() if run.name.time < upto}
    for name in filter(found.__contains__, spread):
        # The marker came with a later page than the first files: files written between the two pages were missed.
        requests += _add_keys(client, f"{root_uri}/{name}", marker, layout, found[name])[1]
    readable = [run for run in found.values() if not run.misnamed]
    unreadable = [Unreadable(run.name.name, misnamed(run.misnamed)) for run in found.values() if run.misnamed]
    return _Listing(now or datetime.now(UTC), readable, list(unparseable), unreadable, requests, upto)


def answered_at(answer: Mapping[str, Any]) -> datetime:
    """Returns the time of an S3 answer by the server's clock, to the second; this machine's if the server sends none."""
    date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(date).astimezone(UTC) if date else datetime.now(UTC)
    except ValueError:
        return datetime.now(UTC)


def _add_keys(client: Any, uri: str, marker: str, layout: Layout, run: _Reading) -> tuple[int, int]:
    """Lists the files of one directory again, replacing those seen before. Returns the numbers of keys and of requests.

    If the listing takes several pages and the marker may have come with a later page, list again: files that were written
    between the pages were missed.
    """
    bucket, _, prefix = f"{uri.removeprefix('s3://')}/".partition("/")
    seen = requests = 0
    run.files.clear()
    for answer, attempts in answers(client, bucket, prefix, "", uri):
        requests += attempts
        keys = answer.get("Contents", [])
        seen += len(keys)
        for key in keys:
            if not key["Key"].endswith(("/", GHOST)):
                _add_key(run, key["Key"][len(prefix) :], key, marker, layout)
    return seen, requests


def _add_key(run: _Reading, path: str, key: Mapping[str, Any], marker: str, layout: Layout) -> None:
    parts = path.split("/")
    hidden = next((part for part in parts if part.startswith(layout.hidden)), None)
    if not NO_NAMES.isdisjoint(parts):
        run.misnamed = key["Key"]
    elif path == marker:
        run.marker = True
    elif hidden is None:
        run.add(path, key["Size"], key["ETag"].strip('"'), key["LastModified"].astimezone(UTC))
    elif hidden == _TEMPORARY:
        run.in_progress = True


def list_entries(root_uri: str, most: int) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...], bool]:
    """Returns the first folders and files (name, bytes) of an S3 prefix, at most `most`, and True if these are all.

    One request with a short timeout, because a person is waiting. Raises as `find`.
    """
    bucket, _, prefix = f"{root_uri.removeprefix('s3://')}/".partition("/")
    client = s3_client(root_uri, aws.IMPATIENT)
    answer, _ = next(answers(client, bucket, prefix, "", root_uri, Delimiter="/", MaxKeys=most))
    folders = tuple(one["Prefix"][len(prefix) : -1] for one in answer.get("CommonPrefixes", []))
    found = {key["Key"][len(prefix) :]: key["Size"] for key in answer.get("Contents", [])}
    files = tuple((name, size) for name, size in found.items() if name and not name.endswith(GHOST))
    return folders, files, not answer.get("IsTruncated")


def s3_client(root_uri: str, limits: aws.Limits | None = None) -> Any:
    """Returns a boto3 client for listing. Raises LandingMisconfigured if it cannot be created."""
    from botocore.exceptions import BotoCoreError

    try:
        return aws.s3(root_uri, limits)
    except (BotoCoreError, ValueError) as error:
        raise LandingMisconfigured(
            f"no S3 client for {root_uri}: {error}; check the AWS variables of the environment"
        ) from error


def answers(
    client: Any,
    bucket: str,
    prefix: str,
    start_after: str,
    root_uri: str,
    passed_over: tuple[str, str] | None = None,
    **more: Any,
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yields the pages of a listing, each with the number of HTTP requests.

    `passed_over`: a half-open range of keys that is skipped after at most one page of it.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    arguments: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "StartAfter": start_after, "MaxKeys": _PAGE, **more}
    while True:
        try:
            answer = client.list_objects_v2(**arguments)
        except (BotoCoreError, ClientError) as error:
            raise _s3_error(error, root_uri) from error
        yield answer, 1 + answer["ResponseMetadata"].get("RetryAttempts", 0)
        if not answer.get("IsTruncated"):
            return
        last = answer["Contents"][-1]["Key"] if passed_over and answer.get("Contents") else ""
        if passed_over and passed_over[0] <= last < passed_over[1]:
            arguments.pop("ContinuationToken", None)
            arguments["StartAfter"] = passed_over[1]
        else:
            arguments["ContinuationToken"] = answer["NextContinuationToken"]


def _s3_error(error: Exception, root_uri: str) -> LandingMisconfigured | LandingUnavailable:
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = error.response.get("Error", {}).get("Code")
        transient = status >= 500 or status == 429 or code in _TRANSIENT_CODES
    else:
        transient = isinstance(
            error,
            (exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.CredentialRetrievalError),
        )
    if transient:
        return LandingUnavailable(f"landing root {root_uri} could not be listed: {error}; try again")
    return LandingMisconfigured(
        f"landing root {root_uri} cannot be listed: {error}; check that the bucket exists and that these credentials "
        "may list it (s3:ListBucket)"
    )
