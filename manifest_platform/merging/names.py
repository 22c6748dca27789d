"""Ids of small objects, and names of the objects that merging writes.

Nothing here reads or writes. No object is ever renamed or overwritten: the name of a merged object contains the attempt
and the try that wrote it, and the name of a manifest file contains the generation that it lists.
"""

from __future__ import annotations

import hashlib
from datetime import date
from uuid import uuid4

from manifest_platform.merging.state import MergedTable

DIGITS = 19
"""Digits of an id in a name. All signed 64-bit integers fit, and names sort in the order of the ids."""

OBJECTS_A_COMMIT = 1_000_000
"""Ids reserved for each commit. The objects of a commit are numbered from 1 to 999,999."""

_LAST_COMMIT = 9_223_372_036_853  # the largest commit whose ids all fit in 64 bits


def object_id(commit: int, ordinal: int) -> int:
    """The id of a commit's object by its place (from 1) in the commit's listing. Later commits have larger ids.

    Raises ValueError if the commit or the place is out of range.
    """
    if not 1 <= commit <= _LAST_COMMIT:
        raise ValueError(f"commit {commit} has no ids: commits are numbered from 1 to {_LAST_COMMIT}")
    if not 1 <= ordinal < OBJECTS_A_COMMIT:
        raise ValueError(f"object {ordinal} of commit {commit} has no id: a commit's objects are 1 to {OBJECTS_A_COMMIT - 1}")
    return commit * OBJECTS_A_COMMIT + ordinal


def digits(id_: int) -> str:
    """Formats an id for use in a name: 19 digits with leading zeros."""
    return f"{id_:0{DIGITS}d}"


def table_prefix(schema: str, name: str) -> str:
    """The directory name of a table. The first four hexadecimal digits of the name's MD5 spread tables over a bucket."""
    full = f"{schema}.{name}"
    return f"{hashlib.md5(full.encode(), usedforsecurity=False).hexdigest()[:4]}.{full}"


def table_uri(output: str, table: MergedTable) -> str:
    """The location of all files of a table. It uses the physical names, so that a rename of the table moves no file."""
    return f"{output}/{table_prefix(table.physical_schema or table.schema, table.physical_name or table.name)}"


def merged_uri(output: str, table: MergedTable, day: date) -> str:
    """The location of the merged objects and manifest files of a partition."""
    return f"{table_uri(output, table)}/merged/dt={day.isoformat()}"


def part_uri(output: str, table: MergedTable, day: date, attempt: str, lower: int, upper: int) -> str:
    """The URI of the merged object of the range (lower, upper] that an attempt writes."""
    return f"{merged_uri(output, table, day)}/{attempt}/part-{digits(lower)}-{digits(upper)}.parquet"


def try_uri(part: str) -> str:
    """The URI of a merged object for one try of an attempt, in a directory that no other try uses.

    Spark may run a task again while a lost worker still runs the first try.
    """
    folder, _, name = part.rpartition("/")
    return f"{folder}.{uuid4().hex[:8]}/{name}"


def attempt_of(folder: str) -> str:
    """The attempt in a directory name that `try_uri` or `part_uri` made."""
    return folder.partition(".")[0]


def manifest_uri(output: str, table: MergedTable, day: date, upper: int, generation: int) -> str:
    """The URI of the list of a partition's merged objects up to an id. Each generation has its own list."""
    return f"{merged_uri(output, table, day)}/manifest-{digits(upper)}-{generation}.json"


def live_manifest_uri(output: str, table: MergedTable, day: date, newest: int) -> str:
    """The URI of the list of a partition's live small objects up to an id."""
    return f"{table_uri(output, table)}/live/dt={day.isoformat()}/manifest-live-{digits(newest)}.json"
