"""The rows that are kept beside the log: which items a step may work on, and which need a person or a retry.

Belongs here: which such rows an item has. They follow from its records alone, so that one transaction writes them with the
record that makes the difference, and the doctor compares them with the log. Each is put once and deleted once: nothing in it
changes. What more than the records decides (a watermark, a full load) is judged by who reads them.
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
    """Why an item needs a person, or a retry."""

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
"""How an item stands that needs a person; one that waits for a retry is ready."""
_NEVER = 0
"""The epoch of what no full load makes up for."""


@dataclass(frozen=True)
class Attention:
    """An item that needs a person or a retry, for a step.

    `epoch`: a full load that serves a later epoch makes up for the item; 0 where no full load does.
    """

    key: ItemKey
    need: Need
    epoch: int = _NEVER

    def sort(self, application: Application) -> str:
        """Sort key of its row."""
        return f"{attention_prefix(application, self.key.feed)}{self.key.position}#{self.need}.{self.epoch}"

    @classmethod
    def of(cls, sort: str, application: Application, feed: str) -> Self:
        """What a key says that `sort` made."""
        position, _, said = sort.removeprefix(attention_prefix(application, feed)).rpartition("#")
        need, _, epoch = said.rpartition(".")
        return cls(ItemKey.at(feed, position), Need(need), int(epoch))

    def holds(self, step: Step, feed: FeedState) -> bool:
        """Whether the need still stands, by the feed's state: a full load makes up for all that its snapshot contains."""
        if step.order == "strict" and self.key.position <= feed.boundary:
            return False
        return self.epoch == _NEVER or self.epoch >= feed.serving_epoch


def is_waiting(item: Item, step: Step) -> bool:
    """Whether an item has a waiting row for a step: it is ready, being worked on, or late and to be appended.

    A failed item has none: 5,000 failed runs among the waiting rows cost each tick of the sensor 5,013 requests.
    """
    if not item.records:
        return False
    if step.order == "any":
        got = all(item.processed_by(Application.parse(name)) for name in step.upstream)
        return got and judge(item, step, FeedState()).standing in (Standing.READY, Standing.PROCESSING)
    if item.skipped_for(step.application):
        return False
    marked = item.late_epoch(step.application)
    if marked is None or item.is_set_aside_for(step.application):
        return False
    return not item.processed_by(step.application, marked)


def attention(item: Item, step: Step) -> Attention | None:
    """What an item needs for a step, by its records alone, in the newest epoch in which the step worked on it."""
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
    """What the sort keys of a step's rows beside the log of a feed start with."""
    return pending_prefix(step.application, feed), attention_prefix(step.application, feed)


def rows_of(item: Item, step: Step) -> set[str]:
    """Sort keys of the rows that an item has beside the log for a step."""
    rows = {pending_key(step.application, item.key)} if is_waiting(item, step) else set()
    needed = attention(item, step)
    return rows | {needed.sort(step.application)} if needed else rows


def changes(before: Item, after: Item, steps: Sequence[Step]) -> list[Write]:
    """The writes by which the rows beside the log follow an item's change."""
    writes: list[Write] = []
    for step in steps:
        were, are = rows_of(before, step), rows_of(after, step)
        writes += [Delete(row, 1) for row in sorted(were - are)]
        writes += [Put(row, {}, ABSENT) for row in sorted(are - were)]
    return writes
