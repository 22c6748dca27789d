"""Ids in the order of the commits: whoever is slow, and however many work at once, every object is in exactly one range."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from manifest_platform.listing import Listing, ShreddedObject
from manifest_platform.listing import Table as ListedTable
from manifest_platform.manifest import Application, Claim, ItemKey, Landed, Manifest, Step, Store
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.registration import CommittedObjects, Rules
from manifest_platform.merging.state import SmallObject
from manifest_platform.merging.transitions import EarlierCommitMissing
from manifest_platform_tests.effort import cases
from manifest_platform_tests.manifest.given import DONE, FEED, HOUR, key, number_of
from manifest_platform_tests.merging.given import (
    COLUMNS,
    DATASET,
    DAY,
    MORNING,
    TABLE,
    assert_consistent,
    bounds,
    claim,
    clock_at,
    inventory,
    make,
    merge_all,
    settings,
    slot,
)

pytestmark = pytest.mark.every_store
SHRED = Application("shred")
DAYS = (DAY, DAY - timedelta(days=1))


def manifest(store: Store) -> Manifest:
    return Manifest(store, DATASET, {FEED: [Step(SHRED, numbered=True)]}, "test", clock=clock_at(MORNING))


def listing(item: ItemKey) -> Listing:
    """The output of shredding an item: three objects, two of the first date and one of the second."""
    number = number_of(item)
    objects = tuple(
        ShreddedObject(TABLE, str(day), f"file:///small/{number}/{place}", 1 + (number + place) % 3, 30)
        for place, day in enumerate((DAYS[0], DAYS[1], DAYS[0]))
    )
    return Listing(item.id, "1", 10, 10, 0, (ListedTable(TABLE, COLUMNS),), objects)


def landed(of: Manifest, count: int) -> None:
    of.discover(FEED, [Landed(key(number), 1, 10, "as-landed") for number in range(1, count + 1)])


def register(of: Manifest, to: Inventory) -> int:
    """Registers the commits after the cursor. Returns the number of new registrations."""
    done = 0
    for commit in of.commits(after=to.cursor()):
        try:
            done += not to.register(CommittedObjects.of(commit.number, listing(commit.key)), Rules()).known
        except EarlierCommitMissing:
            break  # another worker registers too, and this worker has read an old cursor
    return done


def test_C19_what_is_committed_late_is_merged_all_the_same(store: Store) -> None:
    of, to = manifest(store), inventory(store)
    landed(of, 2)
    with of.acquire(FEED, "shred", "test", HOUR) as lease, slot(to) as held:
        early, late = of.claim(lease, [of.item(key(1)), of.item(key(2))])
        for claimed in (late, early):  # who began first commits last, after the other's objects are merged
            of.complete(claimed, DONE)
            register(of, to)
            for day in DAYS:
                to.hasten(TABLE, day, MORNING)
            merge_all(to, held)
    assert [(commit.number, number_of(commit.key)) for commit in of.commits()] == [(1, 2), (2, 1)]
    assert [one.uri for one in to.small_objects(TABLE, DAY)] == [
        f"file:///small/{item}" for item in ("2/0", "2/2", "1/0", "1/2")
    ]
    assert bounds(to) == [(0, 2_000_001), (2_000_001, 2_000_003)]  # the first of them extended
    for day in DAYS:
        to.close(to.partition(TABLE, day) or pytest.fail(), MORNING + timedelta(days=2))
        assert to.switch(to.partition(TABLE, day) or pytest.fail()).switched
    assert_consistent(to)


ITEMS = cases(8, 20)


@pytest.mark.thorough
@pytest.mark.timeout(120)
def test_C19_many_complete_register_and_merge_at_once(store: Store, reopen: Callable[[], Store]) -> None:
    stores = [store, reopen(), reopen()]
    ledgers = [inventory(one) for one in stores]
    manifests = [manifest(one) for one in stores]
    to = ledgers[0]
    to.sync_table(settings(target_bytes=100))
    landed(manifests[0], ITEMS)
    ended = threading.Event()

    def complete(claims: list[Claim], worker: int) -> None:
        for claimed in claims:
            manifests[worker].complete(claimed, DONE)

    def keep_registering(worker: int) -> None:
        while not ended.is_set():
            register(manifests[worker], ledgers[worker])
            if ledgers[worker].cursor() == ITEMS:
                ended.set()

    def keep_merging(worker: int) -> int:
        merged = 0
        with slot(ledgers[worker], str(worker)) as held:
            while not ended.is_set():
                for one in claim(ledgers[worker], held, limit=2):
                    merged += make(ledgers[worker], one).commit(ledgers[worker]).outcome == "merged"
        return merged

    with manifests[0].acquire(FEED, "shred", "test", HOUR) as lease, ThreadPoolExecutor(6) as pool:
        claims = manifests[0].claim(lease, [manifests[0].item(key(number)) for number in range(1, ITEMS + 1)])
        work: list[Any] = [pool.submit(complete, claims[worker::2], worker) for worker in (0, 1)]
        work += [pool.submit(keep_registering, worker) for worker in (1, 2)]
        mergers = [pool.submit(keep_merging, worker) for worker in (0, 2)]
        try:
            for one in work:
                one.result(timeout=90)
        finally:
            ended.set()
        for one in mergers:  # on a busy machine they may come too late to merge anything
            one.result()
    assert to.requeue(MORNING + timedelta(days=1)) == []  # nobody left a job behind
    with slot(to) as held:
        for day in DAYS:
            to.close(to.partition(TABLE, day) or pytest.fail(), MORNING + timedelta(days=2))
            to.hasten(TABLE, day, MORNING)
        merge_all(to, held)
    assert_consistent(to)
    for day, count in zip(DAYS, (2 * ITEMS, ITEMS), strict=True):
        objects = to.small_objects(TABLE, day)
        assert len({one.uri for one in objects}) == len(objects) == count
        assert all(_holders(to, day, one) == 1 for one in objects)
        assert to.switch(to.partition(TABLE, day) or pytest.fail()).switched


def _holders(of: Inventory, day: Any, small: SmallObject) -> int:
    return sum(lower < small.id <= upper for lower, upper in bounds(of, day))
