"""A look at a landing place, on a local disk or in S3: the directories under a root, and which of them are complete.

Belongs here: what all sources share. What a directory's name means is its source's matter. Whether a directory is new is
not decided here and never by a modification time: that is the manifest's matter.
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

from manifest_platform import landed_files, storage
from manifest_platform.sources.errors import LandingDamaged, LandingLinked, LandingMisconfigured, LandingUnavailable

HIDDEN = ("_", ".")
"""How names begin that are no data's."""

GHOST = "_$folder$"  # the key by which older Hadoop versions remember an empty folder in S3
_TEMPORARY = "_temporary"  # where Hadoop's committers write until they commit
NO_NAMES = frozenset({"", ".", ".."})  # parts of a key in S3 that no file can be called by
_PAGE = 1000  # keys a request, the most that S3 gives

LONG_AGO = timedelta(days=1)
"""In S3, a directory without a change for so long has settled though nobody looked at it before. It is longer than an upload in
parts takes: such a file shows the time at which its upload began."""

NOTHING = ("", "")
"""A range of names without any in it."""

_TRANSIENT_CODES = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded"}


@dataclass(frozen=True, slots=True)
class DirectoryName:
    """What a directory's name says: its time (UTC) and its place among the directories of a feed.

    `sort` orders by time, then whatever else the name holds, bytewise; no two names of a feed share one, and it holds no `#`.
    """

    name: str
    sort: str
    time: datetime


@dataclass(frozen=True)
class Layout:
    """How a source lays its directories out under a root.

    `parse` says what a directory's name means, or None where it is none of the source's. `hidden`: how names begin, at any
    level, that are no data's.
    """

    parse: Callable[[str], DirectoryName | None]
    hidden: tuple[str, ...] = HIDDEN


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A data file of a directory. `fingerprint` is S3's ETag or the local modification time: equal means not rewritten.

    `written`: when, by the storage's clock, where that was asked for.
    """

    uri: str
    size: int
    fingerprint: str
    written: datetime | None = None


@dataclass(frozen=True, slots=True)
class LandedDirectory:
    """A directory, a directory that is landed as a whole, as a listing showed it.

    `uri` has no trailing slash. `files` are the data files, by URI; what begins with `_` or `.` is none. `marker`: the
    marker file was there before the files were listed. `in_progress`: it holds an uncommitted job's `_temporary`.
    `checksum` stands for the files' relative names, sizes and fingerprints. `changed`: when the newest file was written, as
    the storage says; None without files. `links`: what of `files` is a symbolic link, a pipe or the like, by relative path,
    each with what it is; none of these is ever followed or opened. `after`: of what came late into a window of time, only the
    files that were written after this moment.
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
        """Raises LandingLinked where the directory holds what may not be read."""
        if self.links:
            raise LandingLinked(f"{self.uri} holds {_some(self.links)}. Land the files themselves in their place")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A directory that could not be listed, by its name, and why: a link to nothing in it, a folder that may not be read."""

    name: str
    reason: str


@dataclass(frozen=True)
class Found:
    """What a look at a root found: directories, oldest first, and how many `known` ones it did not look into.

    `unparseable`: names under the root that are no directory's of the source. `requests`: to the object storage. `now`: when
    the look began, by the storage's clock; None where it was not asked. `unreadable`: directories that could not be listed;
    they hold no other up.
    """

    directories: list[LandedDirectory]
    unparseable: list[str]
    requests: int
    known: int = 0
    now: datetime | None = None
    unreadable: tuple[Unreadable, ...] = ()


@dataclass(frozen=True)
class Marker:
    """A directory is complete when it holds a file of this name, which its writer writes last."""

    name: str = "_SUCCESS"


SUCCESS = Marker()
"""What Hadoop's jobs leave behind."""


@dataclass(frozen=True)
class Settle:
    """A directory is complete when it has not changed for this many seconds: for writers that leave no marker."""

    seconds: float


@dataclass(frozen=True)
class Look:
    """An earlier sight of a directory: its checksum, and when that checksum was first seen, by the storage's clock."""

    checksum: str
    first_seen: datetime


def find(
    root_uri: str,
    layout: Layout,
    start: str,
    completeness: Marker | Settle,
    below: str = "",
    passed_over: tuple[str, str] | None = None,
) -> Found:
    """Finds every directory of a root whose name does not sort before `start`, with its files, in one listing.

    Names that begin as hidden ones do are passed over; all else that is no directory of the source is reported by name and left
    alone. Folders that exist only as S3's empty folder keys do not exist. An S3 prefix with nothing in it is an empty root.
    `below`: the landing root, where `root_uri` is a folder in it. A symbolic link below that is never followed. `passed_over`:
    names from the first on and before the second are not looked at, whatever their number.

    Raises LandingMisconfigured where the root does not exist or access is refused, LandingLinked where it is a link or lies
    below one, LandingUnavailable where it may work later.
    """
    marker = _marker(completeness)
    if storage.is_local(root_uri):
        found = _list_local(root_uri, layout, start, marker, below or root_uri, passed_over or NOTHING)
    else:
        found = _list_s3(root_uri, layout, start, marker, passed_over or NOTHING)
    runs = [run.directory(root_uri) for run in found.directories]
    runs.sort(key=lambda run: run.sort)
    return Found(runs, sorted(found.unparseable), found.requests, 0, found.now, tuple(found.unreadable))


@dataclass(frozen=True)
class FoundNames:
    """The names of a root's directories, in order; the names that are none of the source's; the S3 requests it took.

    `upto`: where the next part of the root begins, where only a part was listed; None where nothing is left. `now`: when the
    listing began, by the storage's clock. `unreadable`: what could not be listed.
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
    """The names of the directories of a root that do not sort before `start`: what `find` finds, without a look into any.

    On S3 that is a request for every thousand directories, however many files they have. `most`: so many entries of the root
    and no more, from behind `beyond`, as the `upto` of the part before says it. Links are among the names: to read one tells of
    it. Raises as `find`.
    """
    if storage.is_local(root_uri):
        names, requests, upto, now = _names_local(root_uri, beyond, most, below or root_uri)
    else:
        names, requests, upto, now = _names_s3(root_uri, start, beyond, most)
    seen = [name for name in names if name >= start and not name.startswith(layout.hidden) and not name.endswith(GHOST)]
    parsed = {name: layout.parse(name) for name in seen}
    found = sorted((one for one in parsed.values() if one), key=lambda one: one.sort)
    return FoundNames(found, sorted(name for name, one in parsed.items() if one is None), requests, upto, now)


_Names = tuple[list[str], int, str | None, datetime | None]


def folder_key(name: str) -> str:
    """The key of a folder, by which S3 lists: `run=1-b/` comes before `run=1/`."""
    return f"{name}/"


def _names_local(root_uri: str, beyond: str, most: int | None, below: str) -> _Names:
    root = str(storage.local_path(root_uri))
    with local_root(root):
        found = landed_files.entries(root, str(storage.local_path(below)))
    names = [name for name, status in found if stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)]
    now = local_time(root)
    if most is None:
        return names, 0, None, now
    left = sorted((name for name in names if folder_key(name) > beyond), key=folder_key)
    return left[:most], 0, folder_key(left[most - 1]) if len(left) > most else None, now


def _names_s3(root_uri: str, start: str, beyond: str, most: int | None) -> _Names:
    bucket, _, prefix = f"{root_uri.removeprefix('s3://')}/".partition("/")
    # "0" follows "/": all keys of a folder lie before it, and those of every folder that comes later behind it.
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
    """What goes wrong with a root itself, as an error of the landing place."""
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
    """One directory as it is now, by its URI. `below`: the landing root, where that is not the folder that it lies in.

    Raises LandingDamaged where it is gone, or has keys that cannot be read; otherwise as `find`.
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
                raise kind(f"{uri} cannot be listed: {why(error)}; mend it, or skip it") from error
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
    """Which of the directories are complete, and the looks, by name, to pass in the next time.

    With a marker: those that have it; no looks are needed. With settling: those that show that they have not changed for so
    long, and those that already had this checksum at a look at least so long ago, whose files were written no later, and no
    uncommitted job in them. A local disk shows it, since each write changes a file's time there; S3 shows it after `LONG_AGO`.
    A directory without files is complete like any other. `now` is the storage's time, as `Found` has it; `looks` have the
    storage's too: a machine whose clock is off registers nothing too early, nor never. A file's time that is still to come, as
    a copy may have, says nothing.
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
            look = Look(run.checksum, run.changed)  # written anew, the same content
        if not run.in_progress and (now - look.first_seen).total_seconds() >= completeness.seconds:
            complete.append(run)
        next_looks[run.name] = look
    return complete, next_looks


def _shown_after(run: LandedDirectory, settle: Settle) -> timedelta:
    """How old the newest change of a directory must be to show, at the first look, that it has settled."""
    seconds = timedelta(seconds=settle.seconds)
    return seconds if storage.is_local(run.uri) else max(LONG_AGO, seconds)


def checksum_of(folder_uri: str, files: Sequence[LandedFile]) -> str:
    """What stands for the names of files below a folder, their sizes and fingerprints."""
    text = "\0".join(f"{one.uri[len(folder_uri) + 1 :]}\0{one.size}\0{one.fingerprint}" for one in files)
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def arrival(status: os.stat_result) -> datetime:
    """When a local file came to where it is, or was written: a copy may keep the time of what it was copied from."""
    return _time(max(status.st_mtime, status.st_ctime))


def _marker(completeness: Marker | Settle) -> str:
    return completeness.name if isinstance(completeness, Marker) else SUCCESS.name


@dataclass(slots=True)
class _Reading:
    """A directory while its listing is read: files as (relative path, size, fingerprint), and when the newest was written.

    `misnamed`: a path that no file can have.
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
    """What one listing of a root saw, by the storage's clock at its begin."""

    now: datetime
    directories: list[_Reading] = field(default_factory=list)
    unparseable: list[str] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    requests: int = 0


def _list_local(root_uri: str, layout: Layout, start: str, marker: str, below: str, passed_over: tuple[str, str]) -> _Listing:
    root, landing = str(storage.local_path(root_uri)), str(storage.local_path(below))
    with local_root(root):
        entries = [(name, status) for name, status in landed_files.entries(root, landing) if name >= start]
    listing = _Listing(local_time(root))
    for name, status in entries:
        if name.startswith(layout.hidden) or name.endswith(GHOST) or passed_over[0] <= name < passed_over[1]:
            continue
        parsed = layout.parse(name)
        if parsed is None or not (stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            listing.unparseable.append(name)
            continue
        run = _Reading(name, parsed)
        try:
            _read_local(f"{root}/{name}", landing, marker, layout, run)
        except landed_files.NotFollowed as error:
            listing.unreadable.append(Unreadable(parsed.name, str(error)))
            continue
        except OSError as error:
            if os.path.lexists(f"{root}/{name}"):  # else removed meanwhile
                listing.unreadable.append(Unreadable(parsed.name, why(error)))
            continue
        listing.directories.append(run)
    return listing


_MAY_WRITE: ContextVar[bool] = ContextVar("may_write", default=True)


@contextmanager
def without_writing() -> Generator[None]:
    """Within it, not even a file system's clock is asked for its time, which only a write does."""
    before = _MAY_WRITE.set(False)
    try:
        yield
    finally:
        _MAY_WRITE.reset(before)


def local_time(root: str) -> datetime:
    """The time by the clock of the file system that a folder is on, which is another machine's where it is mounted.

    Only a write asks a file system for its time: of a file without a name, mostly, which nobody sees. A folder that may not be
    written to is taken to be on this machine.
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
    """What is wrong with a directory's content, for people."""
    path = str(error.filename or "it")
    if isinstance(error, FileNotFoundError):
        return f"{path} vanished while it was listed"
    return f"{path}: {error.strerror or error}"


def _read_local(directory: str, landing: str, marker: str, layout: Layout, run: _Reading) -> None:
    def is_data(name: str) -> bool:
        return not name.startswith(layout.hidden) and not name.endswith(GHOST) and name != marker

    # Asked first: a marker that appears while the files are read says nothing about those missed.
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
    """What is said of a key that no file can have."""
    return (
        f"key {key!r} has a part that is empty, '.' or '..', which no file is called by; copy it to another key, and remove it"
    )


def _some(names: Sequence[str]) -> str:
    return "; ".join(names[:3]) + (f"; and {len(names) - 3} more" if len(names) > 3 else "")


def _list_s3(root_uri: str, layout: Layout, start: str, marker: str, passed_over: tuple[str, str]) -> _Listing:
    bucket, _, prefix = f"{root_uri.removeprefix('s3://')}/".partition("/")
    found: dict[str, _Reading] = {}
    unparseable: set[str] = set()
    first_page: dict[str, int] = {}
    spread: list[str] = []
    requests = 0
    now: datetime | None = None
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
    for name in spread:
        # Its marker came with a later page than its first files: what was written between the two was missed.
        requests += _add_keys(client, f"{root_uri}/{name}", marker, layout, found[name])[1]
    readable = [run for run in found.values() if not run.misnamed]
    unreadable = [Unreadable(run.name.name, misnamed(run.misnamed)) for run in found.values() if run.misnamed]
    return _Listing(now or datetime.now(UTC), readable, list(unparseable), unreadable, requests)


def answered_at(answer: Mapping[str, Any]) -> datetime:
    """When S3 gave an answer, by its own clock, to the second; by this machine's where the server does not say."""
    date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(date).astimezone(UTC) if date else datetime.now(UTC)
    except ValueError:
        return datetime.now(UTC)


def _add_keys(client: Any, uri: str, marker: str, layout: Layout, run: _Reading) -> tuple[int, int]:
    """Lists the files of one directory, in place of those that were seen before; the number of keys, and of requests.

    Where it took several pages and the marker may have come with a later one, list again: what was written between the two
    was missed.
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
    """The first folders and files (name, size in bytes) of a prefix in S3, so many at most, and whether these are all.

    One request, which is given up soon: somebody waits for it. Raises as `find`.
    """
    bucket, _, prefix = f"{root_uri.removeprefix('s3://')}/".partition("/")
    client = s3_client(root_uri, attempts=2, connect_seconds=3)
    answer, _ = next(answers(client, bucket, prefix, "", root_uri, Delimiter="/", MaxKeys=most))
    folders = tuple(one["Prefix"][len(prefix) : -1] for one in answer.get("CommonPrefixes", []))
    found = {key["Key"][len(prefix) :]: key["Size"] for key in answer.get("Contents", [])}
    files = tuple((name, size) for name, size in found.items() if name and not name.endswith(GHOST))
    return folders, files, not answer.get("IsTruncated")


def s3_client(root_uri: str, attempts: int = 5, connect_seconds: float = 10) -> Any:
    """A client for listing. Raises LandingMisconfigured where there can be none."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    retries: Any = {"mode": "standard", "max_attempts": attempts}
    config = Config(retries=retries, connect_timeout=connect_seconds, read_timeout=30)
    try:
        return boto3.client("s3", config=config)
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
    """The answers to a listing, page by page, each with the HTTP requests it took.

    `passed_over`: keys from the first on and before the second; of these, no page follows on another.
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
