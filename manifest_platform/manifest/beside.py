"""The rows that are kept beside the log: the items that a step may work on, and the items that need a person or a retry.

Belongs here: the rows that an item has beside the log. They follow from its records alone, so one transaction writes them
together with the record that changes them, and the doctor compares them with the log. Each row is put once and deleted once,
never updated. Conditions that depend on more than the records (a watermark, a full load) are evaluated by the readers of the
rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from manifest_platform.manifest.dataset import FeedState, Standing, Step, judge
from manifest_platform.manifest.item import Item, ItemKey
from manifest_platform.manifest.keys import attention_prefix, pending_key, pending_prefix
from manifest_platform.manifest.records import Application
from manifest_platform.manifest.store import ABSENT, Delete, Put, Write


class Need(StrEnum):
    """The reason why an item needs a person or a retry."""

    INVALID = "invalid"
    SET_ASIDE = "set-aside"
    CUT_OFF = "cut-off"
    FAILED = "failed"
    RETRY = "retry"


_NEEDS = {
    Standing.INVALID: Need.INVALID,
    Standing.LATE: Need.SET_ASIDE,
    Standing.CUT_OFF: Need.CUT_OFF,
    Standing.FAILED: Need.FAILED,
}
STANDINGS = {need: standing for standing, need in _NEEDS.items()}
"""The standing of an item that needs a person, by need. An item that waits for a retry is ready."""
_NEVER = 0
"""The epoch of a need that no full load resolves."""


@dataclass(frozen=True)
class Attention:
    """An item that needs a person or a retry, for a step.

    `epoch`: a full load that serves a later epoch resolves the need; 0 if no full load does.
    """

    key: ItemKey
    need: Need
    epoch: int = _NEVER

    def sort(self, application: Application) -> str:
        """The sort key of its row."""
        return f"{attention_prefix(application, self.key.feed)}{self.key.position}#{self.need}.{self.epoch}"

    @classmethod
    def of(cls, sort: str, application: Application, feed: str) -> Self:
        """Parses a key that `sort` made."""
        position, _, said = sort.removeprefix(attention_prefix(application, feed)).rpartition("#")
        need, _, epoch = said.rpartition(".")
        return cls(ItemKey.at(feed, position), Need(need), int(epoch))

    def holds(self, step: Step, feed: FeedState) -> bool:
        """True if the need remains in the feed's current state.

        A full load resolves the needs of all items that its snapshot contains.
        """
        if step.order == "strict" and self.key.position <= feed.boundary:
            return False
        return self.epoch == _NEVER or self.epoch >= feed.serving_epoch


def is_waiting(item: Item, step: Step) -> bool:
    """True if an item has a waiting row for a step: it is ready, being processed, late and will be appended, or reloaded.

    A failed item has no waiting row: 5,000 failed runs among the waiting rows cost each tick of the sensor 5,013 requests.
    """
    if not item.records:
        return False
    if step.order == "any":
        got = all(item.processed_by(step.needed(name)) for name in step.upstream)
        return got and judge(item, step, FeedState()).standing in (Standing.READY, Standing.PROCESSING)
    if item.skipped_for(step.application):
        return False
    if item.is_reload_asked(step.application):
        return True
    marked = item.late_epoch(step.application)
    if marked is None or item.is_set_aside_for(step.application):
        return False
    return not item.processed_by(step.application, marked)


def attention(item: Item, step: Step) -> Attention | None:
    """The need of an item for a step, by its records alone; None if there is none.

    It is judged in the newest epoch in which the step worked on the item.
    """
    if not item.records:
        return None
    application = step.application
    epochs = (record.epoch or _NEVER for record in item.records if record.application.key == application.key)
    newest = max(epochs, default=_NEVER)
    judged = judge(item, dataclasses.replace(step, gap="none", needs_full=False), FeedState(serving_epoch=newest))
    if judged.standing is Standing.LATE:
        return Attention(item.key, Need.SET_ASIDE, item.late_epoch(application) or _NEVER)
    if need := _NEEDS.get(judged.standing):
        own = judged.record is not None and judged.record.application.key == application.key
        return Attention(item.key, need, judged.record.epoch or _NEVER if own and need is Need.FAILED else _NEVER)
    waits = judged.standing in (Standing.READY, Standing.WAITING, Standing.PROCESSING)
    return Attention(item.key, Need.RETRY, newest) if waits and item.automatic_retries(application) else None


def prefixes(step: Step, feed: str) -> tuple[str, str]:
    """The prefixes of the sort keys of a step's waiting rows and attention rows, for a feed."""
    return pending_prefix(step.application, feed), attention_prefix(step.application, feed)


def rows_of(item: Item, step: Step) -> set[str]:
    """The sort keys of the rows that an item has beside the log for a step."""
    rows = {pending_key(step.application, item.key)} if is_waiting(item, step) else set()
    needed = attention(item, step)
    return rows | {needed.sort(step.application)} if needed else rows


def changes(before: Item, after: Item, steps: Sequence[Step]) -> list[Write]:
    """The writes that update the rows beside the log after an item's change."""
    writes: list[Write] = []
    for step in steps:
        were, are = rows_of(before, step), rows_of(after, step)
        writes += [Delete(row, 1) for row in sorted(were - are)]
        writes += [Put(row, {}, ABSENT) for row in sorted(are - were)]
    return writes
