"""The newest outcome of each check of a load, from the manifest's records.

A failed check with severity `error` is in the failure of the item that it blocks. Any other outcome is in the record of a load.
"""

from __future__ import annotations

from dataclasses import dataclass

from manifest_platform.manifest import Blocked, ItemKey, Record, State
from manifest_platform.pipeline import Pipeline
from manifest_platform.warehouse.checks import Checked, CheckSettings, failed_names, from_document
from manifest_platform.warehouse.errors import CheckFailed

NEWEST = 400
"""The number of newest records of a feed that are read, in one query."""


@dataclass(frozen=True)
class Outcome:
    """The newest outcome of a check on a feed: the item, and the outcome on each table, or else the text of its failure."""

    item: str
    passed: bool
    text: str
    tables: tuple[Checked, ...] = ()


def newest_outcome(pipeline: Pipeline, feed: str, check: CheckSettings) -> Outcome | None:
    """Returns the newest outcome of a check on a feed; None if no load of the newest has one."""
    verdict = pipeline.manifest.next(feed, pipeline.load.key)
    if isinstance(verdict, Blocked) and (text := _failure_of(verdict, check)):
        return Outcome(verdict.item.key.name, passed=False, text=text)
    for record in pipeline.manifest.newest(feed, NEWEST, State.PROCESSED):
        if record.application.key == pipeline.load.key and (found := _of_record(record, check)):
            text = "; ".join(map(str, found))
            return Outcome(ItemKey(feed, "-", record.item).name, all(one.passed for one in found), text, found)
    return None


def _failure_of(blocked: Blocked, check: CheckSettings) -> str:
    """Returns the text about a check in the failure that blocks an item; empty if it has no such text."""
    failed = [record for record in blocked.item.records if record.state is State.FAILED]
    if not failed or failed[-1].data.get("exception") != CheckFailed.__name__:
        return ""
    message = str(failed[-1].data.get("message", ""))
    if check.name not in failed_names(message):
        return ""
    lines = [line for line in message.splitlines()[1:] if line.startswith(f"check {check.name} ")]
    return "; ".join(lines) or message


def _of_record(record: Record, check: CheckSettings) -> tuple[Checked, ...]:
    documents = record.data.get("checks", ())
    return tuple(from_document(one) for one in documents if one.get("check") == check.name)
