"""The cases of closing, switching and publishing, each by its id: through the embedded catalog, and through one outside."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from manifest_platform.manifest import Store
from manifest_platform.merging.catalogs.embedded import EmbeddedCatalog
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.publish import TablePart
from manifest_platform.merging.readers import NotPublished, Reader
from manifest_platform.merging.state import partition_key
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.catalogs.given import MemoryCatalog, merge, pass_the_day, published_day, run, turn
from manifest_platform_tests.merging.given import DAY, TABLE, arrive, version_of

pytestmark = pytest.mark.parametrize(
    ("store_url", "catalog"), [("sqlite", "embedded"), ("sqlite", "outside"), ("dynamodb", "embedded")], indirect=True
)

HERE = TablePart(TABLE, DAY)


@pytest.fixture
def inventory(store: Store) -> Inventory:
    return given.inventory(store)


@pytest.fixture
def catalog(request: pytest.FixtureRequest, inventory: Inventory) -> Any:
    return EmbeddedCatalog(inventory) if request.param == "embedded" else MemoryCatalog()


def seen(inventory: Inventory, catalog: Any, day: date = DAY) -> list[int]:
    """The ids up to which the files go that readers get."""
    if isinstance(catalog, MemoryCatalog):
        return catalog.seen(day)
    return [file.upper for file in Reader(inventory).files(TABLE, day).files]


def rows(inventory: Inventory) -> dict[str, Any]:
    return given.dump(inventory)


def tokyo(inventory: Inventory, now: datetime) -> None:
    inventory.sync_table(given.settings(zone="Asia/Tokyo"))
    turn(inventory, now - inventory.clock())


def test_D01_a_day_ends_in_its_tables_zone(inventory: Inventory, catalog: Any) -> None:
    tokyo(inventory, datetime(2020, 6, 20, 15, 30, tzinfo=UTC))
    arrive(inventory, 11, day=date(2020, 6, 20))
    arrive(inventory, 12, day=date(2020, 6, 21))
    assert run(inventory, catalog).closed == (TablePart(TABLE, date(2020, 6, 20)),)
    assert not given.partition(inventory, date(2020, 6, 21)).closed


def test_D02_before_its_midnight_a_day_is_open(inventory: Inventory, catalog: Any) -> None:
    tokyo(inventory, datetime(2020, 6, 20, 14, 59, tzinfo=UTC))
    arrive(inventory, 11, day=date(2020, 6, 20))
    arrive(inventory, 12, day=date(2020, 6, 21))
    assert not run(inventory, catalog).closed


def test_D02_a_day_stays_open_for_the_grace_after_its_midnight(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 11)
    pass_the_day(inventory)  # by half an hour
    assert not run(inventory, catalog, grace=timedelta(hours=1)).closed
    assert run(inventory, catalog, grace=timedelta(minutes=30)).closed == (HERE,)


def test_D03_a_close_keeps_the_last_live_id(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 3, 5)
    pass_the_day(inventory)
    run(inventory, catalog)
    arrive(inventory, 7)
    run(inventory, catalog)
    assert version_of(inventory) == (0, 0, 5, False)
    assert [one.delayed for one in inventory.small_objects(TABLE, DAY)] == [False, False, True]


def test_D05_a_disabled_table_is_not_closed_and_not_published(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 11)
    inventory.sync_table(given.settings(enabled=False))
    pass_the_day(inventory)
    before = rows(inventory)
    run(inventory, catalog)
    assert rows(inventory) == before
    assert version_of(inventory) == (-1, 0, None, False)


def test_D06_what_is_not_merged_whole_is_not_switched(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 99)
    merge(inventory)
    arrive(inventory, 100)
    pass_the_day(inventory)
    report = run(inventory, catalog)
    assert (report.switched, report.published) == ((), ())
    assert report.waiting == ((HERE, "it is closed, but 1 of its objects are not merged yet"),)
    assert version_of(inventory) == (0, 99, 100, False)
    assert seen(inventory, catalog) == [99, 100]


def test_D07_what_was_never_merged_is_served_live(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 100)
    pass_the_day(inventory)
    run(inventory, catalog)
    run(inventory, catalog)
    assert version_of(inventory) == (0, 0, 100, False)
    assert seen(inventory, catalog) == [100]


def test_D07_a_closed_partition_is_merged_soon(inventory: Inventory, catalog: Any) -> None:
    inventory.sync_table(given.settings(interval=10 * given.INTERVAL))
    arrive(inventory, 100)
    pass_the_day(inventory)
    run(inventory, catalog)
    assert [due.table for due in inventory.due(inventory.clock())] == [TABLE]


def test_D08_a_closed_partition_that_is_merged_whole_is_switched(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 98, 100)
    run(inventory, catalog)
    pass_the_day(inventory)
    run(inventory, catalog)
    merge(inventory)
    assert version_of(inventory) == (0, 100, 100, False)
    assert seen(inventory, catalog) == [98, 100]
    report = run(inventory, catalog)
    assert (report.switched, report.published) == ((HERE,), ((HERE, 100),))
    assert version_of(inventory) == (100, 100, 100, True)
    assert seen(inventory, catalog) == [100]


def test_D09_two_runs_are_needed_where_two_are_asked_for(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 100)
    merge(inventory)
    pass_the_day(inventory)
    first = run(inventory, catalog, two_runs=True)
    assert (first.closed, first.switched, first.published) == ((HERE,), (), ())
    second = run(inventory, catalog, two_runs=True)
    assert (second.closed, second.switched, second.published) == ((), (HERE,), ((HERE, 100),))


def test_D09_else_one_run_closes_switches_and_publishes(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 100)
    merge(inventory)
    pass_the_day(inventory)
    report = run(inventory, catalog)
    assert (report.closed, report.switched, report.published) == ((HERE,), (HERE,), ((HERE, 100),))


def test_D09_two_runs_do_not_hasten_a_merge(inventory: Inventory, catalog: Any) -> None:
    inventory.sync_table(given.settings(interval=10 * given.INTERVAL))
    arrive(inventory, 100)
    scheduled = given.partition(inventory).job
    pass_the_day(inventory)
    run(inventory, catalog, two_runs=True)
    assert given.partition(inventory).closed
    assert given.partition(inventory).job == scheduled


def test_D10_delayed_objects_that_were_merged_early_are_in_the_first_version(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 100)
    pass_the_day(inventory)
    run(inventory, catalog)
    arrive(inventory, 120)
    merge(inventory)
    assert run(inventory, catalog).published == ((HERE, 120),)
    assert version_of(inventory) == (120, 120, 100, True)


def test_D11_an_object_that_lands_at_the_close_is_there_once(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 100)
    pass_the_day(inventory)
    run(inventory, catalog)
    arrive(inventory, 101)  # just after it
    merge(inventory)
    run(inventory, catalog)
    [only] = inventory.ranges(TABLE, DAY)
    assert (only.lower, only.upper, only.objects) == (0, 101, 2)
    assert seen(inventory, catalog) == [101]


def test_E01_a_new_partition_is_shown_live(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 11)
    with pytest.raises(NotPublished, match="run the publication; its report says"):
        Reader(inventory).files(TABLE, DAY)
    assert run(inventory, catalog).shown == (HERE,)
    assert version_of(inventory) == (0, 0, None, False)
    assert seen(inventory, catalog) == [11]


def test_E02_a_live_object_is_seen_at_once_or_with_the_next_run(inventory: Inventory, catalog: Any) -> None:
    """The embedded catalog shows it at once. One outside has a list of live objects, for they share no prefix that is theirs
    alone: it shows the object with the next publication."""
    arrive(inventory, 11)
    run(inventory, catalog)
    arrive(inventory, 12)
    assert seen(inventory, catalog) == ([11, 12] if catalog.shows_live else [11])
    assert run(inventory, catalog).shown == (() if catalog.shows_live else (HERE,))
    assert seen(inventory, catalog) == [11, 12]


def test_E03_merging_alone_changes_nothing_for_readers(inventory: Inventory, catalog: Any) -> None:
    arrive(inventory, 50)
    run(inventory, catalog)
    merge(inventory)
    before = rows(inventory)
    report = run(inventory, catalog)
    assert (report.shown, report.published) == ((), ())
    assert rows(inventory) == before
    assert version_of(inventory) == (0, 50, None, False)


def test_E04_a_run_without_news_writes_nothing(inventory: Inventory, catalog: Any) -> None:
    published_day(inventory, catalog, 11, 12)
    arrive(inventory, 13, day=DAY + timedelta(days=1))
    run(inventory, catalog)
    before, writes = rows(inventory), getattr(catalog, "writes", 0)
    report = run(inventory, catalog)
    assert rows(inventory) == before
    assert getattr(catalog, "writes", 0) == writes
    # Three store requests: the tables, the index of open partitions, and the one open partition.
    assert (report.store_requests, report.catalog_requests) == (3, 0 if catalog.shows_live else 1)


def test_E06_a_version_that_its_ranges_do_not_end_at_waits(inventory: Inventory, catalog: Any) -> None:
    """Only by hand: the inventory writes the range and the version in one transaction."""
    arrive(inventory, 200)
    pass_the_day(inventory)
    run(inventory, catalog)
    arrive(inventory, 220)
    merge(inventory)
    assert inventory.ranges(TABLE, DAY)[-1].upper == 220
    set_desired(inventory, 200)
    report = run(inventory, catalog)
    assert report.published == ()
    assert report.waiting == ((HERE, "its ranges do not end at 200, the version to publish"),)
    set_desired(inventory, 220)
    assert run(inventory, catalog).published == ((HERE, 220),)


def set_desired(inventory: Inventory, desired: int) -> None:
    from manifest_platform.manifest.store import Put

    row = inventory.store.get(given.DATASET, partition_key(TABLE, DAY))
    assert row is not None
    put = Put(row.sort, {**row.data, "desired": desired}, row.version)
    inventory.store.transact(given.DATASET, [put], f"desired {desired}")


def test_E07_delayed_objects_are_seen_once_they_are_merged_and_published(inventory: Inventory, catalog: Any) -> None:
    published_day(inventory, catalog, 200)
    arrive(inventory, 230)
    assert seen(inventory, catalog) == [200]
    merge(inventory)
    assert seen(inventory, catalog) == [200]
    assert run(inventory, catalog).published == ((HERE, 230),)
    assert seen(inventory, catalog) == [230]
    assert version_of(inventory) == (230, 230, 200, True)


def test_E07_delayed_objects_are_published_beside_the_merged_ones_where_that_is_asked_for(
    inventory: Inventory, catalog: Any
) -> None:
    published_day(inventory, catalog, 200)
    arrive(inventory, 230)
    assert run(inventory, catalog, listed=True).published == ((HERE, 230),)
    assert seen(inventory, catalog) == [200, 230]
    assert version_of(inventory) == (200, 200, 200, True)
    arrive(inventory, 231)
    [only] = inventory.ranges(TABLE, DAY)
    inventory.rebuild(given.partition(inventory), [dataclasses.replace(only, uri="file:///merged/again/part-0-200.parquet")])
    run(inventory, catalog)  # what is seen is not taken back, and nothing is added
    assert seen(inventory, catalog) == [200, 230]
    merge(inventory)
    run(inventory, catalog, listed=True)
    assert seen(inventory, catalog) == [231]
    assert version_of(inventory) == (231, 231, 200, True)


def test_E14_a_rebuilt_partition_is_published_anew_in_the_same_version(inventory: Inventory, catalog: Any) -> None:
    published_day(inventory, catalog, 100)
    before = Reader(inventory).files(TABLE, DAY)
    [only] = inventory.ranges(TABLE, DAY)
    rebuilt = dataclasses.replace(only, uri="file:///merged/again/part-0-100.parquet", attempt="again", bytes=29)
    inventory.rebuild(given.partition(inventory), [rebuilt])
    assert Reader(inventory).files(TABLE, DAY) == before
    assert run(inventory, catalog).published == ((HERE, 100),)
    after = Reader(inventory).files(TABLE, DAY)
    assert (after.version, after.generation) == (before.version, before.generation + 1)
    assert [file.uri for file in after.files] == [rebuilt.uri]
    assert version_of(inventory) == (100, 100, 100, True)
