"""The cases of closing, switching and publishing, each by its id: through the embedded catalog, and through one outside."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from manifest_platform.manifest import Store
from manifest_platform.merging.catalogs.embedded import EmbeddedCatalog
from manifest_platform.merging.ledger import MergeLedger
from manifest_platform.merging.publish import Place
from manifest_platform.merging.readers import NotPublished, Reader
from manifest_platform.merging.state import partition_key
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.catalogs.given import MemoryCatalog, merge, pass_the_day, published_day, run, turn
from manifest_platform_tests.merging.given import DAY, TABLE, arrive, version_of

pytestmark = pytest.mark.parametrize(
    ("store_url", "catalog"), [("sqlite", "embedded"), ("sqlite", "outside"), ("dynamodb", "embedded")], indirect=True
)

HERE = Place(TABLE, DAY)


@pytest.fixture
def ledger(store: Store) -> MergeLedger:
    return given.ledger(store)


@pytest.fixture
def catalog(request: pytest.FixtureRequest, ledger: MergeLedger) -> Any:
    return EmbeddedCatalog(ledger) if request.param == "embedded" else MemoryCatalog()


def seen(ledger: MergeLedger, catalog: Any, day: date = DAY) -> list[int]:
    """The ids up to which the files go that readers get."""
    if isinstance(catalog, MemoryCatalog):
        return catalog.seen(day)
    return [file.upper for file in Reader(ledger).files(TABLE, day).files]


def rows(ledger: MergeLedger) -> dict[str, Any]:
    return given.dump(ledger)


def tokyo(ledger: MergeLedger, now: datetime) -> None:
    ledger.sync_table(given.settings(zone="Asia/Tokyo"))
    turn(ledger, now - ledger.clock())


def test_D01_a_day_ends_in_its_tables_zone(ledger: MergeLedger, catalog: Any) -> None:
    tokyo(ledger, datetime(2020, 6, 20, 15, 30, tzinfo=UTC))
    arrive(ledger, 11, day=date(2020, 6, 20))
    arrive(ledger, 12, day=date(2020, 6, 21))
    assert run(ledger, catalog).closed == (Place(TABLE, date(2020, 6, 20)),)
    assert not given.partition(ledger, date(2020, 6, 21)).closed


def test_D02_before_its_midnight_a_day_is_open(ledger: MergeLedger, catalog: Any) -> None:
    tokyo(ledger, datetime(2020, 6, 20, 14, 59, tzinfo=UTC))
    arrive(ledger, 11, day=date(2020, 6, 20))
    arrive(ledger, 12, day=date(2020, 6, 21))
    assert not run(ledger, catalog).closed


def test_D02_a_day_stays_open_for_the_grace_after_its_midnight(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 11)
    pass_the_day(ledger)  # by half an hour
    assert not run(ledger, catalog, grace=timedelta(hours=1)).closed
    assert run(ledger, catalog, grace=timedelta(minutes=30)).closed == (HERE,)


def test_D03_a_close_keeps_the_last_live_id(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 3, 5)
    pass_the_day(ledger)
    run(ledger, catalog)
    arrive(ledger, 7)
    run(ledger, catalog)
    assert version_of(ledger) == (0, 0, 5, False)
    assert [one.delayed for one in ledger.small_objects(TABLE, DAY)] == [False, False, True]


def test_D05_a_disabled_table_is_not_closed_and_not_published(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 11)
    ledger.sync_table(given.settings(enabled=False))
    pass_the_day(ledger)
    before = rows(ledger)
    run(ledger, catalog)
    assert rows(ledger) == before
    assert version_of(ledger) == (-1, 0, None, False)


def test_D06_what_is_not_merged_whole_is_not_switched(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 99)
    merge(ledger)
    arrive(ledger, 100)
    pass_the_day(ledger)
    report = run(ledger, catalog)
    assert (report.switched, report.published) == ((), ())
    assert report.waiting == ((HERE, "closed, and 1 of its objects are not merged yet"),)
    assert version_of(ledger) == (0, 99, 100, False)
    assert seen(ledger, catalog) == [99, 100]


def test_D07_what_was_never_merged_is_served_live(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 100)
    pass_the_day(ledger)
    run(ledger, catalog)
    run(ledger, catalog)
    assert version_of(ledger) == (0, 0, 100, False)
    assert seen(ledger, catalog) == [100]


def test_D07_a_closed_partition_is_merged_soon(ledger: MergeLedger, catalog: Any) -> None:
    ledger.sync_table(given.settings(interval=10 * given.INTERVAL))
    arrive(ledger, 100)
    pass_the_day(ledger)
    run(ledger, catalog)
    assert [due.table for due in ledger.due(ledger.clock())] == [TABLE]


def test_D08_a_closed_partition_that_is_merged_whole_is_switched(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 98, 100)
    run(ledger, catalog)
    pass_the_day(ledger)
    run(ledger, catalog)
    merge(ledger)
    assert version_of(ledger) == (0, 100, 100, False)
    assert seen(ledger, catalog) == [98, 100]
    report = run(ledger, catalog)
    assert (report.switched, report.published) == ((HERE,), ((HERE, 100),))
    assert version_of(ledger) == (100, 100, 100, True)
    assert seen(ledger, catalog) == [100]


def test_D09_two_runs_are_needed_where_two_are_asked_for(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 100)
    merge(ledger)
    pass_the_day(ledger)
    first = run(ledger, catalog, two_runs=True)
    assert (first.closed, first.switched, first.published) == ((HERE,), (), ())
    second = run(ledger, catalog, two_runs=True)
    assert (second.closed, second.switched, second.published) == ((), (HERE,), ((HERE, 100),))


def test_D09_else_one_run_closes_switches_and_publishes(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 100)
    merge(ledger)
    pass_the_day(ledger)
    report = run(ledger, catalog)
    assert (report.closed, report.switched, report.published) == ((HERE,), (HERE,), ((HERE, 100),))


def test_D09_two_runs_do_not_hasten_a_merge(ledger: MergeLedger, catalog: Any) -> None:
    ledger.sync_table(given.settings(interval=10 * given.INTERVAL))
    arrive(ledger, 100)
    scheduled = given.partition(ledger).job
    pass_the_day(ledger)
    run(ledger, catalog, two_runs=True)
    assert given.partition(ledger).closed
    assert given.partition(ledger).job == scheduled


def test_D10_delayed_objects_that_were_merged_early_are_in_the_first_version(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 100)
    pass_the_day(ledger)
    run(ledger, catalog)
    arrive(ledger, 120)
    merge(ledger)
    assert run(ledger, catalog).published == ((HERE, 120),)
    assert version_of(ledger) == (120, 120, 100, True)


def test_D11_an_object_that_lands_at_the_close_is_there_once(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 100)
    pass_the_day(ledger)
    run(ledger, catalog)
    arrive(ledger, 101)  # just after it
    merge(ledger)
    run(ledger, catalog)
    [only] = ledger.ranges(TABLE, DAY)
    assert (only.lower, only.upper, only.objects) == (0, 101, 2)
    assert seen(ledger, catalog) == [101]


def test_E01_a_new_partition_is_shown_live(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 11)
    with pytest.raises(NotPublished, match="publish, and see"):
        Reader(ledger).files(TABLE, DAY)
    assert run(ledger, catalog).shown == (HERE,)
    assert version_of(ledger) == (0, 0, None, False)
    assert seen(ledger, catalog) == [11]


def test_E02_a_live_object_is_seen_at_once_or_with_the_next_run(ledger: MergeLedger, catalog: Any) -> None:
    """The embedded catalog shows it at once. One outside has a list of live objects, for they share no prefix that is theirs
    alone: it shows the object with the next publication."""
    arrive(ledger, 11)
    run(ledger, catalog)
    arrive(ledger, 12)
    assert seen(ledger, catalog) == ([11, 12] if catalog.shows_live else [11])
    assert run(ledger, catalog).shown == (() if catalog.shows_live else (HERE,))
    assert seen(ledger, catalog) == [11, 12]


def test_E03_merging_alone_changes_nothing_for_readers(ledger: MergeLedger, catalog: Any) -> None:
    arrive(ledger, 50)
    run(ledger, catalog)
    merge(ledger)
    before = rows(ledger)
    report = run(ledger, catalog)
    assert (report.shown, report.published) == ((), ())
    assert rows(ledger) == before
    assert version_of(ledger) == (0, 50, None, False)


def test_E04_a_run_without_news_writes_nothing(ledger: MergeLedger, catalog: Any) -> None:
    published_day(ledger, catalog, 11, 12)
    arrive(ledger, 13, day=DAY + timedelta(days=1))
    run(ledger, catalog)
    before, writes = rows(ledger), getattr(catalog, "writes", 0)
    report = run(ledger, catalog)
    assert rows(ledger) == before
    assert getattr(catalog, "writes", 0) == writes
    # The tables, the partitions at work, the one that there is: three questions; one to a catalog outside.
    assert (report.store_requests, report.catalog_requests) == (3, 0 if catalog.shows_live else 1)


def test_E06_a_version_that_its_ranges_do_not_end_at_waits(ledger: MergeLedger, catalog: Any) -> None:
    """Only by hand: the ledger writes the range and the version in one transaction."""
    arrive(ledger, 200)
    pass_the_day(ledger)
    run(ledger, catalog)
    arrive(ledger, 220)
    merge(ledger)
    assert ledger.ranges(TABLE, DAY)[-1].upper == 220
    set_desired(ledger, 200)
    report = run(ledger, catalog)
    assert report.published == ()
    assert report.waiting == ((HERE, "its ranges do not end at 200, the version that is due"),)
    set_desired(ledger, 220)
    assert run(ledger, catalog).published == ((HERE, 220),)


def set_desired(ledger: MergeLedger, desired: int) -> None:
    from manifest_platform.manifest.store import Put

    row = ledger.store.get(given.DATASET, partition_key(TABLE, DAY))
    assert row is not None
    put = Put(row.sort, {**row.data, "desired": desired}, row.version)
    ledger.store.transact(given.DATASET, [put], f"desired {desired}")


def test_E07_delayed_objects_are_seen_once_they_are_merged_and_published(ledger: MergeLedger, catalog: Any) -> None:
    published_day(ledger, catalog, 200)
    arrive(ledger, 230)
    assert seen(ledger, catalog) == [200]
    merge(ledger)
    assert seen(ledger, catalog) == [200]
    assert run(ledger, catalog).published == ((HERE, 230),)
    assert seen(ledger, catalog) == [230]
    assert version_of(ledger) == (230, 230, 200, True)


def test_E07_delayed_objects_are_published_beside_the_merged_ones_where_that_is_asked_for(
    ledger: MergeLedger, catalog: Any
) -> None:
    published_day(ledger, catalog, 200)
    arrive(ledger, 230)
    assert run(ledger, catalog, listed=True).published == ((HERE, 230),)
    assert seen(ledger, catalog) == [200, 230]
    assert version_of(ledger) == (200, 200, 200, True)
    arrive(ledger, 231)
    [only] = ledger.ranges(TABLE, DAY)
    ledger.rebuild(given.partition(ledger), [dataclasses.replace(only, uri="file:///merged/again/part-0-200.parquet")])
    run(ledger, catalog)  # what is seen is not taken back, and nothing is added
    assert seen(ledger, catalog) == [200, 230]
    merge(ledger)
    run(ledger, catalog, listed=True)
    assert seen(ledger, catalog) == [231]
    assert version_of(ledger) == (231, 231, 200, True)


def test_E14_a_rebuilt_partition_is_published_anew_in_the_same_version(ledger: MergeLedger, catalog: Any) -> None:
    published_day(ledger, catalog, 100)
    before = Reader(ledger).files(TABLE, DAY)
    [only] = ledger.ranges(TABLE, DAY)
    rebuilt = dataclasses.replace(only, uri="file:///merged/again/part-0-100.parquet", attempt="again", bytes=29)
    ledger.rebuild(given.partition(ledger), [rebuilt])
    assert Reader(ledger).files(TABLE, DAY) == before
    assert run(ledger, catalog).published == ((HERE, 100),)
    after = Reader(ledger).files(TABLE, DAY)
    assert (after.version, after.generation) == (before.version, before.generation + 1)
    assert [file.uri for file in after.files] == [rebuilt.uri]
    assert version_of(ledger) == (100, 100, 100, True)
