"""The cost of a look at a backlog: a bounded number of requests and rows, however many items wait or failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from manifest_platform.manifest import Blocked, Failure, FailureKind, Manifest, Ready, Standing, Store
from manifest_platform.manifest.choosing import ATTENDED, SURVEYED
from manifest_platform_tests.manifest.given import FEED, LOAD, SHRED, claim_next, discover, key, land, lease, manifest
from manifest_platform_tests.manifest.many import Then, grow

# The cost is decided above the store's contract, and 5,000 items take minutes in DynamoDB Local
pytestmark = pytest.mark.stores("sqlite")

SIZES = [0, 100, 5000]
"""Items that wait or failed: none, some, many."""
MOST_REQUESTS, MOST_ROWS = 14, 3500


class Counting:
    """A store that counts requests and the rows that they return."""

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


LOOKS: dict[str, Callable[[Manifest], object]] = {
    "next shred": lambda of: of.next(FEED, "shred"),
    "next load": lambda of: of.next(FEED, "load"),
    "waiting": lambda of: of.waiting(FEED, "shred", 1),
    "survey shred": lambda of: of.survey(FEED, "shred"),
    "survey load": lambda of: of.survey(FEED, "load"),
}


@pytest.mark.parametrize("then", ["new", "failed", "shredded"])
def test_no_look_reads_a_backlog_to_its_end(store: Store, then: Then) -> None:
    costs: dict[str, list[tuple[int, int]]] = {name: [] for name in LOOKS}
    before = 0
    for size in SIZES:
        counting = Counting(store)
        of = manifest(cast(Store, counting))
        grow(of, FEED, before, size, then)
        before = size
        for name, look in LOOKS.items():
            requests, rows = counting.requests, counting.rows
            look(of)
            costs[name].append((counting.requests - requests, counting.rows - rows))
    for name, taken in costs.items():
        assert all(requests <= MOST_REQUESTS and rows <= MOST_ROWS for requests, rows in taken), (name, taken)


def test_the_survey_of_a_long_backlog_says_that_its_counts_are_partial(store: Store) -> None:
    of = manifest(store)
    grow(of, FEED, 0, SURVEYED, "new")
    short = of.survey(FEED, "shred")
    assert (short.counts, short.more) == ({Standing.READY: SURVEYED}, False)
    grow(of, FEED, SURVEYED, SURVEYED + 1, "new")
    long = of.survey(FEED, "shred")
    assert (long.counts, long.more, type(long.verdict)) == ({Standing.READY: SURVEYED}, True, Ready)
    assert (of.survey(FEED, "load").counts, of.survey(FEED, "load").more) == ({Standing.WAITING: SURVEYED}, True)


def test_failed_items_are_counted_up_to_a_bound(store: Store) -> None:
    of = manifest(store)
    grow(of, FEED, 0, ATTENDED + 1, "failed")
    survey = of.survey(FEED, "shred")
    assert (survey.counts, survey.more) == ({Standing.FAILED: ATTENDED}, True)
    assert isinstance(survey.verdict, Blocked)
    assert survey.verdict.item.key == survey.needed[0].key


def test_an_item_that_is_retried_needs_no_person_and_is_reported(store: Store) -> None:
    of = manifest(store)
    land(of, 1)
    with lease(of) as held:
        of.fail(claim_next(of, held), Failure(FailureKind.TRANSIENT, "no answer"))
    survey = of.survey(FEED, "load")
    assert isinstance(survey.verdict, Ready)
    assert [(one.key, one.need) for one in survey.needed] == [(key(1), "retry")]
    assert survey.counts == {Standing.READY: 1}


def test_a_failure_behind_thousands_of_waiting_items_is_reported(store: Store) -> None:
    of = manifest(store)
    grow(of, FEED, 0, SURVEYED + 10, "new")
    discover(of, 999)
    with lease(of, SHRED) as held:
        [claim] = of.claim(held, [of.item(key(999))])
        of.fail(claim, Failure(FailureKind.PERMANENT, "no such schema"))
    for step in (SHRED, LOAD):
        survey = of.survey(FEED, step.key)
        assert survey.counts[Standing.FAILED] == 1
        assert [one.key for one in survey.needed] == [key(999)]
