"""What merging, its readers and rebuilds need of small objects, over the life of a partition."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from manifest_platform.listing import Listing, ShreddedObject
from manifest_platform.manifest import Item, ItemKey, Store
from manifest_platform.merging.catalogs.embedded import EmbeddedCatalog
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.settling import settle_rows
from manifest_platform.operations.retention.merged import MergingNeeds
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.catalogs.given import merge, pass_the_day, run, turn
from manifest_platform_tests.merging.given import DAY, TABLE, arrive

GRACE = timedelta(days=7)
NOT_MERGED = f"{TABLE} of {DAY}: its small objects are not merged, or the merged objects may be made again from them"


@pytest.fixture
def inventory(store: Store) -> Inventory:
    return given.inventory(store)


def _item(number: int) -> Item:
    return Item(ItemKey("enriched", f"{number:03d}", f"s3://bucket/run={number:03d}/"), ())


def _listing(number: int) -> Listing:
    found = ShreddedObject(TABLE, str(DAY), f"file:///small/{number}.parquet", 1, 30)
    bad = ShreddedObject("bad", "2026-03-01", "file:///small/bad.parquet", 1, 30)
    return Listing(_item(number).key.id, "attempt", 1, 1, 0, (), (found, bad))


def need(of: Inventory, number: int, unregistered: bool = False, settles: datetime | None = None) -> str:
    item = _item(number)
    needs = MergingNeeds(of, {item.key} if unregistered else set(), of.clock() - GRACE, settles)
    return needs.of(item, _listing(number))


def test_small_objects_are_needed_until_nobody_can_ask_for_them(inventory: Inventory) -> None:
    assert need(inventory, 1, unregistered=True) == "no merge has registered its objects yet"
    assert need(inventory, 1) == "", "the table is not merged"
    arrive(inventory, 100)
    assert need(inventory, 1) == NOT_MERGED
    merge(inventory)
    assert need(inventory, 1) == NOT_MERGED, "readers see small objects"
    pass_the_day(inventory)
    run(inventory, EmbeddedCatalog(inventory))
    assert need(inventory, 1) == NOT_MERGED, "a rebuild reads them"
    turn(inventory, timedelta(days=1))
    settle_rows(inventory, inventory.clock())
    assert need(inventory, 1) == f"{TABLE} of {DAY}: readers saw small objects until a short time ago"
    turn(inventory, GRACE)
    assert need(inventory, 1) == ""
    arrive(inventory, 200)
    assert (need(inventory, 1), need(inventory, 2)) == ("", NOT_MERGED), "the delayed object is above the chain's tail"


def test_a_dry_run_foresees_which_rows_are_settled_before(inventory: Inventory) -> None:
    arrive(inventory, 100)
    pass_the_day(inventory)
    merge(inventory)
    run(inventory, EmbeddedCatalog(inventory))
    turn(inventory, 2 * GRACE)
    arrive(inventory, 200)
    assert need(inventory, 1) == NOT_MERGED
    assert need(inventory, 1, settles=inventory.clock()) == ""
    assert need(inventory, 1, settles=inventory.clock() - 3 * GRACE) == NOT_MERGED, "registered too late to be settled"
    assert need(inventory, 2, settles=inventory.clock() + GRACE) == NOT_MERGED, "not merged, however old"


def test_a_version_that_names_small_objects_keeps_them(inventory: Inventory) -> None:
    arrive(inventory, 100)
    pass_the_day(inventory)
    merge(inventory)
    run(inventory, EmbeddedCatalog(inventory))
    turn(inventory, 2 * GRACE)
    arrive(inventory, 200)
    run(inventory, EmbeddedCatalog(inventory), listed=True)
    merge(inventory)
    turn(inventory, timedelta(days=1))
    run(inventory, EmbeddedCatalog(inventory))
    turn(inventory, timedelta(days=1))
    settle_rows(inventory, inventory.clock())
    assert inventory.small_objects(TABLE, DAY) == []
    versions = inventory.versions(TABLE, DAY)
    named = any(file.lower is None for version in versions for file in version.files)
    assert named, "the version of the delayed object is still there"
    assert need(inventory, 2) == f"{TABLE} of {DAY}: a version that readers may still use names small objects"
