"""How small objects are numbered, and how the objects that merging writes are named.

Belongs here: ids and object names. Nothing here reads or writes, and no object is ever renamed or overwritten: the name of a
merged object has the attempt that wrote it and the try of that, that of a manifest the generation that it lists.
"""

from __future__ import annotations

import hashlib
from datetime import date
from uuid import uuid4

from manifest_platform.merging.state import MergedTable

DIGITS = 19
"""Digits of an id in a name, so that names order as ids do: what a signed 64-bit integer can have."""

OBJECTS_A_COMMIT = 1_000_000
"""Ids that a commit takes: its objects are numbered from 1 to one less."""

_LAST_COMMIT = 9_223_372_036_853  # the ids of the next would not all fit 64 bits


def object_id(commit: int, ordinal: int) -> int:
    """The id of a commit's object, by its place (from 1) in the commit's listing: later commits have larger ids.

    Raises ValueError for a commit or a place that no id has room for.
    """
    if not 1 <= commit <= _LAST_COMMIT:
        raise ValueError(f"commit {commit} has no ids: commits are numbered from 1 to {_LAST_COMMIT}")
    if not 1 <= ordinal < OBJECTS_A_COMMIT:
        raise ValueError(f"object {ordinal} of commit {commit} has no id: a commit's objects are 1 to {OBJECTS_A_COMMIT - 1}")
    return commit * OBJECTS_A_COMMIT + ordinal


def digits(id_: int) -> str:
    """An id or a bound as names have it: 19 digits."""
    return f"{id_:0{DIGITS}d}"


def table_prefix(schema: str, name: str) -> str:
    """The directory of a table: four hexadecimal digits of its name's MD5, which spread tables over a bucket, and the name."""
    full = f"{schema}.{name}"
    return f"{hashlib.md5(full.encode(), usedforsecurity=False).hexdigest()[:4]}.{full}"


def table_uri(output: str, table: MergedTable) -> str:
    """Where all that is written of a table lies: by its physical names, so that renaming it moves nothing."""
    return f"{output}/{table_prefix(table.physical_schema or table.schema, table.physical_name or table.name)}"


def merged_uri(output: str, table: MergedTable, day: date) -> str:
    """Where the merged objects and manifests of a partition lie."""
    return f"{table_uri(output, table)}/merged/dt={day.isoformat()}"


def part_uri(output: str, table: MergedTable, day: date, attempt: str, lower: int, upper: int) -> str:
    """The merged object of a range (lower, upper], as an attempt writes it."""
    return f"{merged_uri(output, table, day)}/{attempt}/part-{digits(lower)}-{digits(upper)}.parquet"


def try_uri(part: str) -> str:
    """The merged object of a range, as one try of its attempt writes it: in a directory that no other try has.

    Spark may run a task again while a lost worker still goes on with the first try.
    """
    folder, _, name = part.rpartition("/")
    return f"{folder}.{uuid4().hex[:8]}/{name}"


def attempt_of(folder: str) -> str:
    """The attempt of a directory that `try_uri` or `part_uri` names."""
    return folder.partition(".")[0]


def manifest_uri(output: str, table: MergedTable, day: date, upper: int, generation: int) -> str:
    """The list of a partition's merged objects up to an id. Two lists of one id differ in the generation."""
    return f"{merged_uri(output, table, day)}/manifest-{digits(upper)}-{generation}.json"


def live_manifest_uri(output: str, table: MergedTable, day: date, newest: int) -> str:
    """The list of a partition's live small objects up to an id."""
    return f"{table_uri(output, table)}/live/dt={day.isoformat()}/manifest-live-{digits(newest)}.json"
