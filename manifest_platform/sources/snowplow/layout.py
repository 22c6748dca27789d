"""Snowplow enriched runs: the directories `run=…` under one root, on a local disk or in S3.

Belongs here: what a run's name means. How a root is listed, and when a directory is complete, is the same for all sources.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from manifest_platform import storage
from manifest_platform.sources.directories import (
    SUCCESS,
    DirectoryName,
    Found,
    LandedDirectory,
    Layout,
    Marker,
    Settle,
    find,
    read,
)

# Seconds are two digits and then the end or a suffix; where they are missing, the suffix follows the minutes.
_RUN = re.compile(
    r"run=([0-9]{4})-([0-9]{2})-([0-9]{2})-([0-9]{2})-([0-9]{2})"
    r"-(?:(?P<seconds>[0-9]{2})(?:-(?P<suffix>[A-Za-z0-9-]+))?|(?P<after_minutes>(?![0-9]{2}(?:-|$))[A-Za-z0-9-]+))"
)


def parse_run_name(name: str) -> DirectoryName | None:
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
        return DirectoryName(name, name.removeprefix("run="), time)
    # "+" keeps it apart from the same suffix after "-00"; it is lower than all that a suffix is made of.
    return DirectoryName(name, f"{name[len('run=') : found.start('after_minutes')]}00-{found['after_minutes']}+", time)


_LAYOUT = Layout(parse_run_name)


def list_runs(root: str | Path, after: datetime | None = None, completeness: Marker | Settle = SUCCESS) -> Found:
    """Finds every run at or after a time, with its files, in one listing of the root.

    Without a time: every run. The listing begins at the name that a run of that minute would have; entries that sort
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
    found = find(storage.as_uri(root), _LAYOUT, start, completeness)
    return replace(found, directories=[run for run in found.directories if after is None or run.time >= after])


def read_run(uri: str, completeness: Marker | Settle = SUCCESS) -> LandedDirectory:
    """One run as it is now, by its URI. Raises LandingMisconfigured where it is gone, otherwise as `list_runs`."""
    parsed = parse_run_name(uri.rpartition("/")[2])
    if parsed is None:
        raise ValueError(f"{uri} does not end in the name of a run")
    return read(uri, parsed, _LAYOUT, completeness)
