"""Snowplow enriched runs: the directories `run=…` under one root, on a local disk or in S3.

Belongs here: what a run's name means, one sweep of a root, and when a run counts as complete. Whether a run is new is
not decided here and never by a modification time: that is the manifest's matter.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from manifest_platform import storage
from manifest_platform.landing.errors import LandingMisconfigured, LandingUnavailable

# Seconds are two digits and then the end or a suffix; where they are missing, the suffix follows the minutes.
_RUN = re.compile(
    r"run=([0-9]{4})-([0-9]{2})-([0-9]{2})-([0-9]{2})-([0-9]{2})"
    r"-(?:(?P<seconds>[0-9]{2})(?:-(?P<suffix>[A-Za-z0-9-]+))?|(?P<after_minutes>(?![0-9]{2}(?:-|$))[A-Za-z0-9-]+))"
)
_IGNORED = ("_", ".")
_GHOST = "_$folder$"  # the key by which older Hadoop versions remember an empty folder in S3
_TEMPORARY = "_temporary"  # where Hadoop's committers write until they commit
_PAGE = 1000  # keys a request, the most that S3 gives

_TRANSIENT_CODES = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded"}


@dataclass(frozen=True, slots=True)
class RunName:
    """What a run's name says: its time (UTC) and its place among the runs of a feed.

    `sort` orders by time, then suffix (none first), bytewise; no two names share one, and it holds no `#`.
    """

    name: str
    sort: str
    time: datetime


@dataclass(frozen=True, slots=True)
class LandedFile:
    """A data file of a run. `fingerprint` is S3's ETag or the local modification time: equal means not rewritten."""

    uri: str
    size: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A run as one sweep saw it.

    `uri` has no trailing slash. `files` are the data files, by URI; what begins with `_` or `.` is none. `marker`: the
    marker file was there before the files were listed. `in_progress`: it holds an uncommitted job's `_temporary`.
    `checksum` stands for the files' relative names, sizes and fingerprints.
    """

    name: str
    uri: str
    sort: str
    time: datetime
    files: tuple[LandedFile, ...]
    marker: bool
    in_progress: bool
    checksum: str

    @property
    def bytes(self) -> int:
        """The size of all data files, in bytes."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class RunListing:
    """One sweep: the runs, oldest first; the names under the root that are no runs; the S3 requests it took."""

    runs: list[RunDirectory]
    unparseable: list[str]
    requests: int


@dataclass(frozen=True)
class Marker:
    """A run is complete when it holds a file of this name, which its writer writes last."""

    name: str = "_SUCCESS"


@dataclass(frozen=True)
class Settle:
    """A run is complete when it has not changed for this many seconds: for writers that leave no marker."""

    seconds: float


@dataclass(frozen=True)
class Look:
    """An earlier sight of a run: its checksum, and when that checksum was first seen."""

    checksum: str
    first_seen: datetime


def parse_run_name(name: str) -> RunName | None:
    """What a directory's name says, or None where it is not a run's.

    Names are `run=YYYY-MM-DD-HH-MM-SS`, by batch jobs, and the same with `-<suffix>` after the seconds or, without
    seconds, after the minutes, by streaming ones; a suffix is letters, digits and dashes. A date that does not exist is
    no run's.
    """
    found = _RUN.fullmatch(name)
    if found is None:
        return None
    try:
        time = datetime(*map(int, found.group(1, 2, 3, 4, 5)), int(found["seconds"] or 0), tzinfo=UTC)
    except ValueError:
        return None
    if found["after_minutes"] is None:
        return RunName(name, name.removeprefix("run="), time)
    # "+" keeps it apart from the same suffix after "-00"; it is lower than all that a suffix is made of.
    return RunName(name, f"{name[len('run=') : found.start('after_minutes')]}00-{found['after_minutes']}+", time)


def list_runs(root: str | Path, after: datetime | None = None, completeness: Marker | Settle = Marker()) -> RunListing:
    """Sees every run at or after a time, with its files, in one sweep of the root.

    Without a time: every run. The sweep begins at the name that a run of that minute would have; entries that sort
    before it are not looked at. `completeness` says which file is the marker.

    In the root, names that begin with `_` or `.` are passed over; all else that is no run directory is reported by name
    and left alone. Folders that exist only as S3's empty folder keys do not exist. An S3 prefix with nothing in it is
    an empty root.

    Raises LandingMisconfigured where the root does not exist or access is refused, LandingUnavailable where it may work
    later, ValueError for a time without a zone.
    """
    if after is not None and after.tzinfo is None:
        raise ValueError(f"after={after!r} has no time zone; give a time in UTC")
    start = "" if after is None else f"run={re.sub('[T:]', '-', after.astimezone(UTC).isoformat()[:16])}"
    marker = completeness.name if isinstance(completeness, Marker) else Marker.name
    uri = storage.as_uri(root)
    list_root = _list_local if storage.is_local(uri) else _list_s3
    found, unparseable, requests = list_root(uri, start, marker)
    runs = [run.directory(uri) for run in found if after is None or run.name.time >= after]
    runs.sort(key=lambda run: run.sort)
    return RunListing(runs, sorted(unparseable), requests)


def read_run(uri: str, completeness: Marker | Settle = Marker()) -> RunDirectory:
    """One run as it is now, by its URI. Raises LandingMisconfigured where it is gone, otherwise as `list_runs`."""
    root, _, name = uri.rpartition("/")
    parsed = parse_run_name(name)
    if parsed is None:
        raise ValueError(f"{uri} does not end in the name of a run")
    marker = completeness.name if isinstance(completeness, Marker) else Marker.name
    run = _Found(parsed)
    if storage.is_local(uri):
        directory = str(storage.local_path(uri))
        run.marker = os.path.exists(f"{directory}/{marker}")
        try:
            _read_local(directory, "", marker, run)
        except FileNotFoundError as error:
            raise LandingMisconfigured(f"{uri} is gone; put it back, or skip it") from error
        except OSError as error:
            raise LandingUnavailable(f"{uri} could not be listed: {error}; try again") from error
        return run.directory(root)
    bucket, _, prefix = f"{uri.removeprefix('s3://')}/".partition("/")
    gone = True
    for keys, _attempts in _pages(_s3_client(uri), bucket, prefix, "", uri):
        for key in keys:
            gone = False
            if not key["Key"].endswith(("/", _GHOST)):
                _add_key(run, key["Key"][len(prefix) :], key, marker)
    if gone:
        raise LandingMisconfigured(f"{uri} is gone: no key begins with it; put it back, or skip it")
    return run.directory(root)


def complete_runs(
    runs: Iterable[RunDirectory], completeness: Marker | Settle, looks: Mapping[str, Look], now: datetime
) -> tuple[list[RunDirectory], dict[str, Look]]:
    """Which of the runs are complete, and the looks, by name, to pass in the next time.

    With a marker: those that have it; no looks are needed. With settling: those that already had this checksum at a
    look at least so long ago, and no uncommitted job in them. A run without files is complete like any other.
    """
    if isinstance(completeness, Marker):
        return [run for run in runs if run.marker], {}
    complete = []
    next_looks = {}
    for run in runs:
        look = looks.get(run.name)
        if look is None or look.checksum != run.checksum:
            look = Look(run.checksum, now)
        elif not run.in_progress and (now - look.first_seen).total_seconds() >= completeness.seconds:
            complete.append(run)
        next_looks[run.name] = look
    return complete, next_looks


@dataclass(slots=True)
class _Found:
    """A run while its listing is read: files as (relative path, size, fingerprint)."""

    name: RunName
    files: list[tuple[str, int, str]] = field(default_factory=list)
    marker: bool = False
    in_progress: bool = False

    def directory(self, root_uri: str) -> RunDirectory:
        local = storage.is_local(root_uri)
        uri = f"{root_uri}/{self.name.name}"
        self.files.sort()
        text = "\0".join(f"{path}\0{size}\0{fingerprint}" for path, size, fingerprint in self.files)
        return RunDirectory(
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
        )


_Sweep = tuple[list[_Found], list[str], int]


def _list_local(root_uri: str, start: str, marker: str) -> _Sweep:
    root = str(storage.local_path(root_uri))
    found: list[_Found] = []
    unparseable: list[str] = []
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                name = entry.name
                if name < start or name.startswith(_IGNORED) or name.endswith(_GHOST):
                    continue
                parsed = parse_run_name(name)
                if parsed is None or not entry.is_dir():
                    unparseable.append(name)
                    continue
                run = _Found(parsed)
                try:
                    # Asked first: a marker that appears while the files are read says nothing about those missed.
                    run.marker = os.path.exists(f"{entry.path}/{marker}")
                    _read_local(entry.path, "", marker, run)
                except FileNotFoundError:
                    if os.path.exists(entry.path):
                        raise
                    continue  # removed meanwhile
                found.append(run)
    except FileNotFoundError as error:
        if error.filename == root:
            raise LandingMisconfigured(f"landing root {root} does not exist; create it or correct the feed's root") from error
        raise LandingUnavailable(
            f"{error.filename} vanished while its run was listed, or is a link to nothing; the next sweep looks again"
        ) from error
    except (PermissionError, NotADirectoryError) as error:
        raise LandingMisconfigured(
            f"landing root {root} cannot be listed: {error}; it must be a directory whose content this user may read"
        ) from error
    except OSError as error:
        raise LandingUnavailable(f"landing root {root} could not be listed: {error}; try again") from error
    return found, unparseable, 0


def _read_local(directory: str, relative: str, marker: str, run: _Found) -> None:
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(_IGNORED):
                run.in_progress = run.in_progress or name == _TEMPORARY
            elif name.endswith(_GHOST) or relative + name == marker:
                continue
            elif entry.is_dir():
                _read_local(entry.path, f"{relative}{name}/", marker, run)
            else:
                status = entry.stat()
                run.files.append((relative + name, status.st_size, str(status.st_mtime_ns)))


def _list_s3(root_uri: str, start: str, marker: str) -> _Sweep:
    bucket, _, prefix = f"{root_uri.removeprefix('s3://')}/".partition("/")
    found: dict[str, _Found] = {}
    unparseable: set[str] = set()
    first_page: dict[str, int] = {}
    spread: list[str] = []
    requests = 0
    client = _s3_client(root_uri)
    for page, (keys, attempts) in enumerate(_pages(client, bucket, prefix, f"{prefix}{start}", root_uri)):
        requests += attempts
        for key in keys:
            name, slash, path = key["Key"][len(prefix) :].partition("/")
            if key["Key"].endswith(("/", _GHOST)) or name.startswith(_IGNORED):
                continue
            parsed = parse_run_name(name)
            if parsed is None or not slash:
                unparseable.add(name)
                continue
            run = found.setdefault(name, _Found(parsed))
            first_page.setdefault(name, page)
            _add_key(run, path, key, marker)
            if path == marker and first_page[name] < page:
                spread.append(name)
    for name in spread:
        # Its marker came with a later page than its first files: what was written between the two was missed.
        found[name].files.clear()
        for keys, attempts in _pages(client, bucket, f"{prefix}{name}/", "", root_uri):
            requests += attempts
            for key in keys:
                if not key["Key"].endswith(("/", _GHOST)):
                    _add_key(found[name], key["Key"][len(prefix) + len(name) + 1 :], key, marker)
    return list(found.values()), list(unparseable), requests


def _add_key(run: _Found, path: str, key: Mapping[str, Any], marker: str) -> None:
    hidden = next((part for part in path.split("/") if part.startswith(_IGNORED)), None)
    if path == marker:
        run.marker = True
    elif hidden is None:
        run.files.append((path, key["Size"], key["ETag"].strip('"')))
    elif hidden == _TEMPORARY:
        run.in_progress = True


def _s3_client(root_uri: str) -> Any:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    config = Config(retries={"mode": "standard", "max_attempts": 5}, connect_timeout=10, read_timeout=30)
    try:
        return boto3.client("s3", config=config)
    except (BotoCoreError, ValueError) as error:
        raise LandingMisconfigured(
            f"no S3 client for {root_uri}: {error}; check the AWS variables of the environment"
        ) from error


def _pages(
    client: Any, bucket: str, prefix: str, start_after: str, root_uri: str
) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """The pages of a flat listing, each with the HTTP requests it took."""
    from botocore.exceptions import BotoCoreError, ClientError

    arguments = {"Bucket": bucket, "Prefix": prefix, "StartAfter": start_after, "MaxKeys": _PAGE}
    while True:
        try:
            answer = client.list_objects_v2(**arguments)
        except (BotoCoreError, ClientError) as error:
            raise _s3_error(error, root_uri) from error
        yield answer.get("Contents", []), 1 + answer["ResponseMetadata"].get("RetryAttempts", 0)
        if not answer.get("IsTruncated"):
            return
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
