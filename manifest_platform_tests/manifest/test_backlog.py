"""What a look at a backlog costs: a bounded number of requests and rows, however many items wait or failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from manifest_platform.manifest import Failure, FailureKind, Item, Manifest, Store, transitions
from manifest_platform.manifest.beside import rows_of
from manifest_platform.manifest.records import Stamp, State
from manifest_platform.manifest.store import ABSENT, Put
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    SHRED,
    START,
    ItemKey,
    Landed,
    manifest,
)

SIZES = [0, 100, 5000]
"""Items that wait or failed: none, some, many."""
MOST_REQUESTS, MOST_ROWS = 14, 3500


class Counting:
    """A store that counts requests, and the rows that they gave."""

    def __init__(self, store: Store):
        self.store, self.rows, self.made = store, 0, 0
        self.transact, self.close, self.units = store.transact, store.close, None

    @property
    def requests(self) -> int:
        return self.store.requests

    def get(self, *where):
        row = self.store.get(*where)
        self.rows += row is not None
        return row

    def get_many(self, *where):
        rows = self.store.get_many(*where)
        self.rows += len(rows)
        return rows

    def query(self, *where, **options):
        rows = self.store.query(*where, **options)
        self.rows += len(rows)
        return rows


def at(number: int) -> ItemKey:
    return ItemKey(FEED, f"2026-02-01-{number:06d}", f"s3://bucket/{FEED}/run={number:06d}/")


def _item(of: ItemKey, then: str) -> Item:
    item = transitions.append(Item(of, ()), State.NEW, SHRED, _stamp(), payload=Landed(of, 1, 10, "sum").payload())
    if then == "new":
        return item
    item = transitions.append(item, State.PROCESSING, SHRED, _stamp(), token=1)
    opened = item.records[-1].record_id
    if then == "failed":
        payload = Failure(FailureKind.PERMANENT, "no such schema").payload()
        return transitions.append(item, State.FAILED, SHRED, _stamp(), previous=opened, payload=payload)
    return transitions.append(item, State.PROCESSED, SHRED, _stamp(), previous=opened, payload=DONE)


def _stamp() -> Stamp:
    return Stamp("by hand", at=START)


LOOKS: dict[str, Callable[[Manifest], object]] = {
    "next shred": lambda of: of.next(FEED, "shred"),
    "next load": lambda of: of.next(FEED, "load"),
    "waiting": lambda of: of.waiting(FEED, "shred", 1),
    "survey shred": lambda of: of.survey(FEED, "shred"),
    "survey load": lambda of: of.survey(FEED, "load"),
}


@pytest.mark.parametrize("then", ["new", "failed", "shredded"])
def test_no_look_reads_a_backlog_to_its_end(store: Store, then: str) -> None:
    costs: dict[str, list[tuple[int, int]]] = {name: [] for name in LOOKS}
    before = 0
    for size in SIZES:
        counting = Counting(store)
        of = manifest(cast(Store, counting))
        many_more(of, before, size, then)
        before = size
        for name, look in LOOKS.items():
            requests, rows = counting.requests, counting.rows
            look(of)
            costs[name].append((counting.requests - requests, counting.rows - rows))
    for name, taken in costs.items():
        assert all(requests <= MOST_REQUESTS and rows <= MOST_ROWS for requests, rows in taken), (name, taken)


def many_more(of: Manifest, before: int, size: int, then: str) -> None:
    """So many items that there are `size`."""
    puts: list[Put] = []
    for number in range(before, size):
        item = _item(at(number), then)
        puts += [transitions.put_record(item.key, record) for record in item.records]
        puts += [Put(row, {}, ABSENT) for step in of.steps(FEED) for row in sorted(rows_of(item, step))]
    for start in range(0, len(puts), 100):
        of.store.transact(of.dataset, puts[start : start + 100], f"{then} {before} {start}")
