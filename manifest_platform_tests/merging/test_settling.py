"""Rows of small objects that merged objects hold leave the manifest: what stays, what readers get, what is known of them."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from manifest_platform import failpoints
from manifest_platform.manifest import LeaseBusy, Store
from manifest_platform.manifest.store import MAX_WRITES
from manifest_platform.merging import settling
from manifest_platform.merging.catalogs.embedded import EmbeddedCatalog
from manifest_platform.merging.garbage import upkeep
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.readers import Reader
from manifest_platform.merging.registration import CommittedObjects
from manifest_platform.merging.settling import SettledRows, settle_rows, settled_upto
from manifest_platform.merging.state import LOG
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.catalogs.given import merge, pass_the_day, published_day, run, turn
from manifest_platform_tests.merging.given import DAY, TABLE, arrive, small

OLD = timedelta(days=30)


@pytest.fixture
def inventory(store: Store) -> Inventory:
    return given.inventory(store)


def settle(of: Inventory, age: timedelta = OLD, dry_run: bool = False) -> SettledRows:
    return settle_rows(of, of.clock() - age, dry_run)


def published(of: Inventory, *ids: int) -> None:
    """A partition at rest, a month and a day ago."""
    published_day(of, EmbeddedCatalog(of), *ids)
    turn(of, OLD + timedelta(days=1))


def commit(of: Inventory, number: int, item: str, *ids: int, day: date = DAY) -> CommittedObjects:
    return CommittedObjects(number, item, {(TABLE, day): tuple(small(id_) for id_ in ids)}, {TABLE: given.COLUMNS})


def test_what_merged_objects_hold_leaves_and_readers_get_the_same(inventory: Inventory) -> None:
    for id_ in (100, 200):
        arrive(inventory, id_, id_ + 1)
    published(inventory, 300)
    before, rows = Reader(inventory).files(TABLE, DAY), sum(one.rows for one in inventory.small_objects(TABLE, DAY))
    told = settle(inventory, dry_run=True)
    assert len(inventory.small_objects(TABLE, DAY)) == 5
    assert settle(inventory) == told == SettledRows(batches=3, objects=5, jobs=2)
    assert inventory.small_objects(TABLE, DAY) == []
    assert Reader(inventory).files(TABLE, DAY) == before
    [kept] = inventory.settled(TABLE, DAY)
    assert (kept.last, kept.objects, kept.rows, len(kept.items)) == (300, 5, rows, 3)
    assert not inventory.log(10)


def test_a_second_run_writes_nothing(inventory: Inventory) -> None:
    published(inventory, 100)
    settle(inventory)
    rows = given.dump(inventory), inventory.store.query(inventory.dataset, "LEASE#")
    assert not settle(inventory)
    assert (given.dump(inventory), inventory.store.query(inventory.dataset, "LEASE#")) == rows


def test_what_anybody_may_ask_for_stays(inventory: Inventory) -> None:
    arrive(inventory, 100)
    assert not settle(inventory, timedelta(0)), "readers get it as it is"
    merge(inventory)
    assert not settle(inventory, timedelta(0)).batches, "merged, and still read as it is"
    pass_the_day(inventory)
    run(inventory, EmbeddedCatalog(inventory))
    assert settled_upto(given.partition(inventory)) == 100
    assert not settle(inventory).batches, "not old enough"
    arrive(inventory, 200)
    turn(inventory, OLD + timedelta(days=1))
    assert settle(inventory).batches == 1
    assert [one.id for one in inventory.small_objects(TABLE, DAY)] == [200], "not merged yet"
    merge(inventory)
    assert not settle(inventory).batches, "merged, and not published yet"
    run(inventory, EmbeddedCatalog(inventory))
    assert settle(inventory).batches == 1


def test_what_comes_later_is_merged_behind_it(inventory: Inventory) -> None:
    published(inventory, 100)
    settle(inventory)
    arrive(inventory, 200)
    merge(inventory)
    run(inventory, EmbeddedCatalog(inventory))
    assert [file.upper for file in Reader(inventory).files(TABLE, DAY).files][-1] == 200
    turn(inventory, OLD + timedelta(days=1))
    settle(inventory)
    [kept] = inventory.settled(TABLE, DAY)
    assert (kept.last, kept.objects) == (200, 2)


def test_an_item_that_is_shredded_again_is_not_merged_twice(inventory: Inventory) -> None:
    published(inventory, 100)
    [batch] = inventory.batches(TABLE, DAY)
    settle(inventory)
    assert inventory.take_over(commit(inventory, 2, batch.item, 200)).objects == {}
    other = commit(inventory, 2, "s3://bucket/another/", 200)
    assert inventory.take_over(other).objects == other.objects
    elsewhere = commit(inventory, 2, batch.item, 200, day=DAY + timedelta(days=1))
    assert inventory.take_over(elsewhere).objects == elsewhere.objects, "it had no object there"


def test_a_run_that_dies_between_two_transactions_is_gone_on_with(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "BATCHES_AT_ONCE", 2)
    monkeypatch.setattr(settling, "ITEMS", 3)
    for id_ in (100, 200, 300, 400):
        arrive(inventory, id_)
    published(inventory, 500)
    monkeypatch.setenv(failpoints.VARIABLE, "settling.moved:raise")
    with pytest.raises(failpoints.FailpointReached):
        settle(inventory)
    monkeypatch.delenv(failpoints.VARIABLE)
    assert [one.id for one in inventory.small_objects(TABLE, DAY)] == [300, 400, 500]
    again = settle(inventory)
    assert (again.batches, again.objects) == (3, 3)
    kept = inventory.settled(TABLE, DAY)
    assert [(one.number, one.last, one.objects, len(one.items)) for one in kept] == [(1, 200, 2, 2), (2, 500, 3, 3)]
    assert len({item for one in kept for item in one.items}) == 5


def test_nothing_is_settled_beside_a_rebuild_or_a_removal(inventory: Inventory) -> None:
    published(inventory, 100)
    with upkeep(inventory), pytest.raises(LeaseBusy):
        settle(inventory)
    assert inventory.small_objects(TABLE, DAY)


def test_a_dropped_table_leaves_nothing_of_it(inventory: Inventory) -> None:
    published(inventory, 100)
    settle(inventory)
    inventory.drop(TABLE)
    assert not [sort for sort in given.dump(inventory) if sort.startswith("MSETTLED")]


def test_a_table_that_is_dropped_meanwhile_gets_no_row(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    published(inventory, 100)
    real = settling._with

    def meanwhile(*arguments):
        monkeypatch.setattr(settling, "_with", real)
        inventory.drop(TABLE)
        return real(*arguments)

    monkeypatch.setattr(settling, "_with", meanwhile)
    assert not settle(inventory).batches
    assert not [sort for sort in given.dump(inventory) if sort.startswith(("MSETTLED", "MSMALL"))]


def test_a_transaction_has_as_many_writes_as_a_store_takes(inventory: Inventory) -> None:
    for number in range(MAX_WRITES + 1):
        arrive(inventory, 100 + number, size=1)
    published(inventory, 300)
    assert settle(inventory).batches == MAX_WRITES + 2
    assert not settle(inventory)


def test_rows_of_jobs_leave_by_the_time_of_their_end(inventory: Inventory) -> None:
    arrive(inventory, 100)
    merge(inventory)
    turn(inventory, OLD + timedelta(days=1))
    arrive(inventory, 200)
    merge(inventory)
    assert settle(inventory) == SettledRows(jobs=1)
    assert len(inventory.store.query(inventory.dataset, LOG)) == 1
