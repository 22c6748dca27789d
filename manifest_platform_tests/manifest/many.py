"""Writes large backlogs in batches, as many steps would have left them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

from manifest_platform.manifest import (
    OUTPUT,
    Application,
    Failure,
    FailureKind,
    Item,
    ItemKey,
    Landed,
    Manifest,
    Payload,
    State,
    transitions,
)
from manifest_platform.manifest.beside import rows_of
from manifest_platform.manifest.records import Stamp
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, Put

SHRED = Application("shred")
START = datetime(2024, 1, 1, tzinfo=UTC)
Then = Literal["new", "failed", "shredded"]


def run_key(feed: str, number: int) -> ItemKey:
    """The key of a run by its number: one run a minute."""
    name = f"{START + timedelta(minutes=number):%Y-%m-%d-%H-%M-%S}"
    return ItemKey(feed, name, f"s3://bucket/{feed}/run={name}/")


def grow(of: Manifest, feed: str, before: int, size: int, then: Then) -> None:
    """Adds runs until there are `size`. `then`: they are new, or their shredding failed, or it is done."""
    puts: list[Put] = []
    for number in range(before, size):
        item = _item(run_key(feed, number), then)
        puts += [transitions.put_record(item.key, record) for record in item.records]
        puts += [Put(row, {}, ABSENT) for step in of.steps(feed) for row in sorted(rows_of(item, step))]
    for start in range(0, len(puts), MAX_WRITES):
        of.store.transact(of.dataset, puts[start : start + MAX_WRITES], f"{then} {before} {start}")


def _item(key: ItemKey, then: Then) -> Item:
    item = transitions.append(Item(key, ()), State.NEW, SHRED, _stamp(), payload=Landed(key, 1, 10, "sum").payload())
    if then == "new":
        return item
    item = transitions.append(item, State.PROCESSING, SHRED, _stamp(), token=1)
    opened = item.records[-1].record_id
    if then == "failed":
        failure = Failure(FailureKind.PERMANENT, "no such schema").payload()
        return transitions.append(item, State.FAILED, SHRED, _stamp(), previous=opened, payload=failure)
    made = Payload(OUTPUT, {"listing": "nowhere", "lines": 1, "good": 1, "bad": 0, "bytes": 1, "tables": []})
    return transitions.append(item, State.PROCESSED, SHRED, _stamp(), previous=opened, payload=made)


def _stamp() -> Stamp:
    return Stamp("by hand", at=START)
