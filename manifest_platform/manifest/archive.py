"""Archiving: which items may leave the log, and what stays of them there.

Belongs here: when an item is finished, and the writes that move its records out, pure. The files that they go to are
`record_files`'; a run that moves them is `operations.archive`'s.

An item is moved as a whole, in one transaction: of its rows the first stays, its first record unchanged, with the place of all
that were there. So the manifest still knows the item, its checksum and its place in the order; and a record that is appended
later takes the next number, as ever. This is the only thing that takes records out of the log.
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
"""Records of an item that is archived, at most: they go in one transaction."""


def is_finished(item: Item, steps: Sequence[Step], states: Mapping[str, StepState], before: datetime) -> bool:
    """Whether an item may be archived: every step is done with it for good, and its newest record is older than `before`.

    Never one that is blocked, waits late, or that an ordered step's watermark stands on or has not left behind.
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
    """The writes that leave of an item's rows the first, with the place of all. Conditional on its being as it was read."""
    first, *others = item.records
    kept = {**first.to_dict(), "archived": dataclasses.asdict(place)}
    after = item.sequence + 1
    return [
        Put(record_key(item.key, first.sequence), kept, 1),
        *(Delete(record_key(item.key, record.sequence), 1) for record in others),
        Check(record_key(item.key, after), ABSENT),
    ]
