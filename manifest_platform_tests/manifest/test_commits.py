"""The numbers of completions: they follow the order of the commits, for any number of committing processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from manifest_platform.manifest import Application, Failure, FailureKind, Landed, Manifest, Step, Store, StoreError
from manifest_platform_tests.manifest.given import DONE, FEED, HOUR, LossyStore, key

pytestmark = pytest.mark.every_store

SHRED = Application("shred")
ITEMS = range(1, 25)


def manifest(store: Store) -> Manifest:
    return Manifest(store, "acme", {FEED: [Step(SHRED, numbered=True)]}, "test")


def test_completions_are_numbered_in_the_order_of_their_commits(store: Store) -> None:
    of = manifest(store)
    of.discover(FEED, [Landed(key(number), 1, 10, "as-landed") for number in ITEMS])
    assert of.last_commit() == 0
    with of.acquire(FEED, "shred", "test", HOUR) as lease:
        claims = of.claim(lease, [of.item(key(number)) for number in (1, 2, 3)])
        of.fail(claims[1], Failure(FailureKind.PERMANENT, "broken"))
        of.complete(claims[2], DONE)
        done = of.complete(claims[0], DONE)
    assert [(one.number, one.key) for one in of.commits()] == [(1, key(3)), (2, key(1))]
    assert [one.record_id for one in of.commits(after=1)] == [done.record_id]
    assert of.last_commit() == 2


def test_concurrent_commits_get_numbers_without_gaps(store: Store, reopen: Callable[[], Store]) -> None:
    manifests = [manifest(store), manifest(store), manifest(reopen())]
    of = manifests[0]
    of.discover(FEED, [Landed(key(number), 1, 10, "as-landed") for number in ITEMS])
    with of.acquire(FEED, "shred", "test", HOUR) as lease:
        claims = of.claim(lease, [of.item(key(number)) for number in ITEMS])
        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(manifests[place % 3].complete, one, DONE) for place, one in enumerate(claims)]:
                done.result()
    assert [one.number for one in of.commits()] == list(ITEMS)
    assert {one.key for one in of.commits()} == {key(number) for number in ITEMS}


@pytest.mark.parametrize("fault", ["answer lost", "repeat refused", "request lost", "vanished"])
def test_a_lost_answer_costs_no_number(store: Store, fault: str) -> None:
    lossy = LossyStore(store, fault, at=0)
    of = manifest(lossy)
    of.discover(FEED, [Landed(key(number), 1, 10, "as-landed") for number in (1, 2)])
    with of.acquire(FEED, "shred", "test", HOUR) as lease:
        claims = of.claim(lease, [of.item(key(number)) for number in (1, 2)])
        lossy.at = lossy.transactions + 1
        try:
            of.complete(claims[0], DONE)
        except StoreError:
            of.complete(claims[0], DONE)
        of.complete(claims[1], DONE)
    assert [(one.number, one.key) for one in of.commits()] == [(1, key(1)), (2, key(2))]
