"""Archiving: which items may leave the log, and the row that remains of each.

Belongs here: the condition that an item is finished, and the writes that move its records out, as pure functions. The files
that hold the archived records are in `record_files`; the run that moves them is in `operations.archive`.

An item is archived as a whole, in one transaction. Its first row remains, with its first record unchanged and the location of
all its records. So the manifest still knows the item, its checksum and its place in the order, and a later record takes the
next number. Archiving is the only operation that removes records from the log.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime

from manifest_platform.manifest.dataset import PASSED, Step, StepState, judge
from manifest_platform.manifest.item import ArchivedRecords, Item
from manifest_platform.manifest.keys import record_key
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, Check, Delete, Put, Write

MOST_RECORDS = MAX_WRITES - 1
"""The most records of an item that can be archived: they are moved in one transaction."""


def is_finished(item: Item, steps: Sequence[Step], states: Mapping[str, StepState], before: datetime) -> bool:
    """True if an item may be archived: every step is permanently done with it, and its newest record is older than `before`.

    An item is not finished if it is blocked, waits as late, or is the current watermark of an ordered step or beyond it.
    """
    fits = item.records[-1].timestamp < before and len(item.records) <= MOST_RECORDS
    return fits and next(item.open_records(), None) is None and all(_is_past(item, step, states) for step in steps)


def _is_past(item: Item, step: Step, states: Mapping[str, StepState]) -> bool:
    state = states.get(step.application.key, StepState())  # unordered steps keep none
    feed, position = state.feed(item.key.feed), item.key.position
    if step.order == "strict" and not (position <= feed.swept and position < feed.watermark):
        return False
    return position != state.full and judge(item, step, state.seen_by(step, item.key.feed)).standing in PASSED


def move(item: Item, place: ArchivedRecords) -> list[Write]:
    """The writes that remove an item's rows except the first, which gets the location of all.

    Conditional: the item is unchanged.
    """
    first, *others = item.records
    kept = {**first.to_dict(), "archived": dataclasses.asdict(place)}
    after = item.sequence + 1
    return [
        Put(record_key(item.key, first.sequence), kept, 1),
        *(Delete(record_key(item.key, record.sequence), 1) for record in others),
        Check(record_key(item.key, after), ABSENT),
    ]
