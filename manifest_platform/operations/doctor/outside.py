"""Data that is too large for the store's rows, and that no row names any more, because rows were rewritten or never written.

Belongs here: noting such objects, and removing them once no backup can name them. The store can be restored to any time of the
last 35 days, and thus to rows that name these objects. So the age of an object is irrelevant; the time since which no row
names it counts. This time is noted in rows of the dataset, which are restored together with the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from manifest_platform.manifest import StoreError
from manifest_platform.manifest.keys import UNNAMED
from manifest_platform.manifest.records import format_time, parse_time
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, Delete, Put, Row, Write, stored_rows
from manifest_platform.manifest.stores.driver import KeepsOutside, StoredObject
from manifest_platform.operations.doctor.findings import CLEAN, EXAMINE, Finding, Kind
from manifest_platform.pipeline import Pipeline

KEPT = timedelta(days=36)
"""The time for which an unnamed object is kept: a day longer than DynamoDB's point-in-time recovery reaches back."""


@dataclass(frozen=True)
class _Left:
    """Unnamed objects. `new`: not noted yet; `due`: noted long ago, with the note; `over`: notes that no longer apply."""

    new: Sequence[StoredObject] = ()
    due: Sequence[tuple[StoredObject, Row]] = ()
    over: Sequence[Row] = ()


def examine(pipeline: Pipeline) -> Iterator[Finding]:
    """Yields a finding for objects to be noted, and one for objects to be removed. Objects noted and not due are no finding."""
    if (place := pipeline.config.manifest.overflow) is None:
        return
    try:
        with closing(pipeline.config.manifest.open()) as store:
            left = _left(pipeline, store) if isinstance(store, KeepsOutside) else _Left()
    except StoreError as error:
        yield Finding(Kind.UNCHECKED, str(error), EXAMINE, place=place)
        return
    if left.new:
        cause = (
            f"{_what(left.new)}. They are noted now and removed in {KEPT.days} days, because a backup may name them until then"
        )
        yield Finding(Kind.OUTSIDE, cause, CLEAN, place=place)
    if left.due:
        cause = f"{_what([one for one, _ in left.due])}, unnamed for more than {KEPT.days} days, so no backup names them"
        yield Finding(Kind.OUTSIDE, cause, CLEAN, place=place)


def clean(pipeline: Pipeline) -> Iterator[str]:
    """Notes new unnamed objects, and removes those that are due. Yields a line for each. Raises StoreError."""
    if pipeline.config.manifest.overflow is None:
        return
    with closing(pipeline.config.manifest.open()) as store:
        if not isinstance(store, KeepsOutside):
            return
        left = _left(pipeline, store)
        for one, _ in left.due:
            store.remove_object(one.path)
    now = format_time(pipeline.clock())
    writes: list[Write] = [Put(_note(one), {"path": one.path, "since": now}, ABSENT) for one in left.new]
    writes += [Delete(row.sort, row.version) for row in (*(note for _, note in left.due), *left.over)]
    for at in range(0, len(writes), MAX_WRITES):
        pipeline.manifest.store.transact(pipeline.name, writes[at : at + MAX_WRITES], str(uuid4()))
    if left.new:
        yield f"noted {_what(left.new)}: doctor --clean removes them in {KEPT.days} days"
    if left.due:
        yield f"removed {_what([one for one, _ in left.due])}"


def _left(pipeline: Pipeline, store: KeepsOutside) -> _Left:
    notes = {row.data["path"]: row for row in stored_rows(pipeline.manifest.store, pipeline.name, UNNAMED)}
    found = {one.path: one for one in store.unnamed(pipeline.name)}
    since = pipeline.clock() - KEPT
    due = [
        (one, notes[path]) for path, one in found.items() if path in notes and parse_time(notes[path].data["since"]) <= since
    ]
    new = [one for path, one in found.items() if path not in notes]
    return _Left(new, due, [row for path, row in notes.items() if path not in found])


def _note(of: StoredObject) -> str:
    return f"{UNNAMED}{of.path.rpartition('/')[2]}"


def _what(of: Sequence[StoredObject]) -> str:
    return f"{len(of):,} objects, {sum(one.bytes for one in of):,} bytes"
