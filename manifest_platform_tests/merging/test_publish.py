"""Publications that are ended at every step, that meet another, and of which a part fails."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import pytest

from manifest_platform import failpoints
from manifest_platform.failpoints import FailpointReached
from manifest_platform.listing import Column
from manifest_platform.manifest import Manifest, Store
from manifest_platform.manifest.store import Delete
from manifest_platform.merging.catalogs.catalog import (
    CatalogRejected,
    CatalogTable,
    CatalogUnavailable,
    Entry,
    catalog_table,
)
from manifest_platform.merging.catalogs.embedded import EmbeddedCatalog
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.publish import (
    PLACE,
    PUBLISH,
    CatalogDifference,
    Failed,
    PublishReport,
    TablePart,
    differences,
    publish,
)
from manifest_platform.merging.readers import Reader
from manifest_platform.merging.registration import CommittedObjects
from manifest_platform.merging.served import Served
from manifest_platform.merging.state import ServedFile, Version
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.catalogs.given import (
    MemoryCatalog,
    merge,
    pass_the_day,
    published_day,
    run,
    settings,
    turn,
)
from manifest_platform_tests.merging.given import DAY, TABLE, arrive, version_of

EVERY_STORE = pytest.mark.every_store

HERE = TablePart(TABLE, DAY)
STEPS = ("closed", "switched", "entered", "written", "pointed", "recorded", "renamed", "removed")


@pytest.fixture
def inventory(store: Store) -> Inventory:
    return given.inventory(store)


@pytest.fixture
def catalog() -> MemoryCatalog:
    return MemoryCatalog()


def end_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, f"{point}:raise")


def crashed(inventory: Inventory, catalog: Any, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A publication that is killed at a step; its lease runs out by itself."""
    with monkeypatch.context() as patch:
        end_at(patch, f"publish.{step}")
        patch.setattr("manifest_platform.manifest.lease.Lease.release", lambda self: given.kill(self))
        with pytest.raises(FailpointReached, match=step):
            publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    turn(inventory, timedelta(minutes=5))


@pytest.mark.parametrize("step", STEPS)
def test_E08_the_next_publication_goes_on_from_any_step(
    inventory: Inventory, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    other = DAY + timedelta(days=1)
    arrive(inventory, 11)
    run(inventory, catalog)
    pass_the_day(inventory)
    merge(inventory)
    arrive(inventory, 12, day=other)
    inventory.sync_table(given.settings("visits", physical_name=TABLE))
    before = catalog.seen()
    crashed(inventory, catalog, monkeypatch, step)
    seen = [catalog.seen(table=name) for name in catalog.partitions if DAY in catalog.partitions[name]]
    assert all(one in ([11], before) for one in seen)
    assert seen
    run(inventory, catalog)
    assert version_of(inventory) == (11, 11, 11, True)
    assert version_of(inventory, other)[0] == 0
    assert catalog.seen(table="app.visits") == [11]
    assert catalog.seen(other, "app.visits") == [12]
    assert set(catalog.tables) == {"app.visits"}
    assert differences(inventory, catalog, settings()) == []
    before = given.dump(inventory), catalog.writes
    run(inventory, catalog)
    assert (given.dump(inventory), catalog.writes) == before


@EVERY_STORE
def test_E08_a_version_that_the_catalog_has_already_is_told_again_the_same(
    inventory: Inventory, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive(inventory, 11)
    pass_the_day(inventory)
    merge(inventory)
    crashed(inventory, catalog, monkeypatch, "pointed")
    assert (catalog.seen(), version_of(inventory)[0]) == ([11], -1)
    before = dict(catalog.partitions), dict(catalog.lists)
    run(inventory, catalog)
    assert (catalog.partitions, catalog.lists) == before
    assert version_of(inventory) == (11, 11, 11, True)


@pytest.mark.parametrize("step", ["closed", "switched", "written", "pointed", "recorded"])
def test_E08_the_embedded_catalog_has_the_old_or_the_new_files_at_any_step(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    arrive(inventory, 11, 12)
    run(inventory, EmbeddedCatalog(inventory))
    pass_the_day(inventory)
    merge(inventory)
    crashed(inventory, EmbeddedCatalog(inventory), monkeypatch, step)
    assert [file.upper for file in Reader(inventory).files(TABLE, DAY).files] == ([12] if step == "recorded" else [11, 12])
    run(inventory, EmbeddedCatalog(inventory))
    assert [file.upper for file in Reader(inventory).files(TABLE, DAY).files] == [12]


def interfering(inventory: Inventory, reopen: Callable[[], Store]) -> Inventory:
    """The inventory of another process, whose clock shows that the lease of the first process has expired."""
    clock = given.clock_at(inventory.clock() + timedelta(minutes=10))
    return Inventory(reopen(), given.DATASET, "other", clock)


def later_version(other: Inventory, catalog: MemoryCatalog) -> PublishReport:
    arrive(other, 200)
    merge(other)
    return run(other, catalog)


@EVERY_STORE
def test_E13_a_publisher_who_wakes_up_late_puts_the_newer_version_back(
    inventory: Inventory, catalog: MemoryCatalog, reopen: Callable[[], Store]
) -> None:
    arrive(inventory, 100)
    pass_the_day(inventory)
    merge(inventory)
    other = interfering(inventory, reopen)
    catalog.before_point.append(lambda: later_version(other, catalog))
    report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    assert report.put_back == (HERE,)
    assert report.published == ()
    assert catalog.seen() == [200]
    assert version_of(inventory) == (200, 200, 100, True)
    assert differences(inventory, catalog, settings()) == []


@EVERY_STORE
def test_E13_a_version_is_told_again_after_another_publisher_told_an_older_one(
    inventory: Inventory, catalog: MemoryCatalog, reopen: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older publisher pauses after it has written its list. Its other two steps run between the newer publisher's."""
    arrive(inventory, 100)
    pass_the_day(inventory)
    merge(inventory)
    crashed(inventory, catalog, monkeypatch, "written")
    older, [first] = given.partition(inventory), inventory.ranges(TABLE, DAY)
    table, other = inventory.table(TABLE), interfering(inventory, reopen)
    assert table is not None
    file = ServedFile(first.uri, first.rows, first.bytes, first.lower, first.upper)
    version = Version(TABLE, DAY, 100, 1, other.clock(), (file,))
    arrive(inventory, 200)
    merge(inventory)

    def the_older_one_wakes_up() -> None:
        catalog.point(catalog_table(table, settings().output, {}), {DAY: Served(1, 100)}, [])
        other.published(older, 1, 100, version)

    catalog.after_point.append(the_older_one_wakes_up)
    report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    assert (report.published, report.put_back) == (((HERE, 200),), (HERE,))
    assert catalog.seen() == [200]
    assert version_of(inventory) == (200, 200, 100, True)


@EVERY_STORE
def test_E13_a_lower_generation_with_later_objects_is_put_back(
    inventory: Inventory, catalog: MemoryCatalog, reopen: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older publisher lists a late object beside the merged object. The newer publisher lists a rebuild without it."""
    arrive(inventory, 100)
    pass_the_day(inventory)
    merge(inventory)
    crashed(inventory, catalog, monkeypatch, "written")
    arrive(inventory, 200)
    older, [first] = inventory.chain(TABLE, DAY)
    table, other = inventory.table(TABLE), interfering(inventory, reopen)
    assert table is not None and older is not None
    inventory.rebuild(older, [dataclasses.replace(first, uri="file:///anew")])
    late = given.small(200)
    merged = ServedFile(first.uri, first.rows, first.bytes, first.lower, first.upper)
    version = Version(TABLE, DAY, 200, 1, other.clock(), (merged, ServedFile(late.uri, late.rows, late.bytes, None, 200)))

    def the_older_one_wakes_up() -> None:
        entry = catalog_table(table, settings().output, {})
        catalog.write(entry, DAY, Served(1, 200), version.files)
        catalog.point(entry, {DAY: Served(1, 200)}, [])
        other.published(older, 1, 200, version)

    catalog.before_point.append(the_older_one_wakes_up)
    report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    assert (report.published, report.put_back) == ((), (HERE,))
    assert catalog.seen() == [100, 200]
    assert differences(inventory, catalog, settings()) == []


def test_what_is_put_back_is_nothing_where_the_partition_is_another(inventory: Inventory, catalog: MemoryCatalog) -> None:
    """Its table was dropped and came again: there is no list yet that readers could be told."""
    arrive(inventory, 100)
    run(inventory, catalog)
    pass_the_day(inventory)
    merge(inventory)

    def the_table_comes_again() -> None:
        inventory.drop(TABLE)
        inventory.sync_table(given.settings())
        arrive(inventory, 200)

    catalog.before_point.append(the_table_comes_again)
    report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    assert (report.published, report.put_back) == ((), ())
    run(inventory, catalog)
    assert catalog.seen() == [200]


def test_E13_what_is_put_back_is_looked_at_until_nobody_changes_it(
    inventory: Inventory, catalog: MemoryCatalog, reopen: Callable[[], Store]
) -> None:
    arrive(inventory, 100)
    pass_the_day(inventory)
    merge(inventory)
    other = interfering(inventory, reopen)

    def another_version(id_: int) -> None:
        arrive(other, id_)
        merge(other)
        run(other, catalog)

    catalog.before_point += [lambda: another_version(200), lambda: None, lambda: another_version(300)]
    report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    assert report.put_back == (HERE, HERE)
    assert catalog.seen() == [300]
    assert version_of(inventory)[0] == 300


def test_E13_what_another_published_before_the_lease_was_taken_is_not_taken_back(
    inventory: Inventory, reopen: Callable[[], Store]
) -> None:
    other = Inventory(reopen(), given.DATASET, "other", inventory.clock)

    class Watched(MemoryCatalog):
        def entries(self, schema: str, tables: Sequence[CatalogTable]) -> Mapping[CatalogTable, Entry]:
            pass_the_day(other)
            run(other, outside)
            merge(other)
            run(other, outside)
            return super().entries(schema, tables)

    outside, catalog = MemoryCatalog(), Watched()
    arrive(inventory, 11)
    run(inventory, outside)
    catalog.tables, catalog.partitions, catalog.lists = outside.tables, outside.partitions, outside.lists
    arrive(inventory, 12)
    report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    assert (report.busy, report.shown, report.put_back, catalog.writes) == (None, (), (), 0)
    assert catalog.seen() == [12]


def test_E13_what_is_mended_is_looked_at_too(inventory: Inventory, catalog: MemoryCatalog, reopen: Callable[[], Store]) -> None:
    published_day(inventory, catalog, 100)
    catalog.partitions[f"app.{TABLE}"][DAY] = "somewhere"
    other = interfering(inventory, reopen)
    catalog.before_point.append(lambda: later_version(other, catalog))
    report = publish(inventory, catalog, settings(verify=True, clock=inventory.clock), inventory.clock())
    assert report.put_back == (HERE,)
    assert catalog.seen() == [200]


def test_one_publisher_works_at_a_time(inventory: Inventory, catalog: MemoryCatalog) -> None:
    arrive(inventory, 11)
    manifest = Manifest(inventory.store, given.DATASET, {}, "other", clock=inventory.clock)
    with manifest.hold(PUBLISH, PLACE, "other", timedelta(minutes=1)):
        report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
        assert (report.busy, report.shown, catalog.writes) == ("other", (), 0)
        assert report.succeeded
    assert run(inventory, catalog).shown == (HERE,)


def test_without_news_no_lease_is_asked_for(inventory: Inventory, catalog: MemoryCatalog) -> None:
    published_day(inventory, catalog, 11)
    manifest = Manifest(inventory.store, given.DATASET, {}, "other", clock=inventory.clock)
    with manifest.hold(PUBLISH, PLACE, "other", timedelta(minutes=1)):
        run(inventory, catalog)


def test_a_publisher_that_lost_its_lease_tells_the_catalog_nothing_more(
    inventory: Inventory, reopen: Callable[[], Store]
) -> None:
    other = interfering(inventory, reopen)

    class Slow(MemoryCatalog):
        def put_table(self, table: CatalogTable) -> None:
            super().put_table(table)
            manifest = Manifest(other.store, given.DATASET, {}, "other", clock=other.clock)
            manifest.hold(PUBLISH, PLACE, "other", timedelta(minutes=1)).leave()

    catalog = Slow()
    arrive(inventory, 11)
    report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    [failed] = report.failed
    assert failed.transient
    assert "another publisher continues" in failed.error
    assert catalog.partitions == {f"app.{TABLE}": {}}
    assert version_of(inventory)[0] == -1


def test_E12_a_table_that_fails_does_not_stop_the_others(inventory: Inventory, catalog: MemoryCatalog) -> None:
    for table in ("a", "b", "c"):
        inventory.sync_table(given.settings(table))
        arrive(inventory, 11, table=table)
    catalog.broken = {"b"}
    report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    assert report.failed == (Failed(TablePart("b"), "b cannot be reached", transient=True),)
    assert not report.succeeded
    assert report.shown == (TablePart("a", DAY), TablePart("c", DAY))
    catalog.broken = set()
    assert run(inventory, catalog).shown == (TablePart("b", DAY),)


def test_E12_a_database_that_cannot_be_asked_does_not_stop_the_others(inventory: Inventory) -> None:
    class Closed(MemoryCatalog):
        def entries(self, schema: str, tables: Sequence[CatalogTable]) -> Mapping[CatalogTable, Entry]:
            if schema == "secret":
                raise CatalogRejected("secret may not be read")
            return super().entries(schema, tables)

    for table, schema in (("a", "secret"), ("b", "secret"), ("c", "app")):
        inventory.sync_table(given.settings(table, schema=schema))
        arrive(inventory, 11, table=table)
    report = publish(inventory, Closed(), settings(clock=inventory.clock), inventory.clock())
    assert [(failed.place, failed.transient) for failed in report.failed] == [(TablePart("a"), False), (TablePart("b"), False)]
    assert report.shown == (TablePart("c", DAY),)


def test_E12_a_partition_whose_list_cannot_be_written_does_not_stop_the_others(inventory: Inventory) -> None:
    class Full(MemoryCatalog):
        def write(self, table: CatalogTable, day: date, served: Served, files: Sequence[ServedFile]) -> None:
            if day == DAY:
                raise CatalogUnavailable("the disk is full")
            super().write(table, day, served, files)

    other = DAY + timedelta(days=1)
    arrive(inventory, 11)
    arrive(inventory, 12, day=other)
    report = publish(inventory, Full(), settings(), inventory.clock())
    assert report.failed == (Failed(HERE, "the disk is full", transient=True),)
    assert report.shown == (TablePart(TABLE, other),)
    assert (version_of(inventory)[0], version_of(inventory, other)[0]) == (-1, 0)


def test_a_table_with_a_column_of_the_partitions_name_is_refused(inventory: Inventory, catalog: MemoryCatalog) -> None:
    columns = {TABLE: (Column("dt", "date"),)}
    inventory.register(
        CommittedObjects(1, "s3://bucket/run=001/", {(TABLE, DAY): (given.small(11),)}, columns), given.RIDE_ALONG
    )
    report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    [failed] = report.failed
    assert not failed.transient
    assert "'dt'" in failed.error and "rename the column" in failed.error


def test_E05_a_version_lists_its_ranges_in_order_with_their_sizes(inventory: Inventory, catalog: MemoryCatalog) -> None:
    arrive(inventory, 100, size=100)
    merge(inventory)
    arrive(inventory, 200, size=20)
    merge(inventory)
    pass_the_day(inventory)
    run(inventory, catalog)
    files = Reader(inventory).files(TABLE, DAY).files
    assert [(file.lower, file.upper, file.bytes) for file in files] == [(0, 100, 100), (100, 200, 20)]
    assert catalog.lists[catalog.partitions[f"app.{TABLE}"][DAY]] == files


def test_E09_a_new_column_is_one_update_of_the_table(inventory: Inventory, catalog: MemoryCatalog) -> None:
    arrive(inventory, 11)
    run(inventory, catalog)
    columns = (*given.COLUMNS, Column("page", "string(100)"))
    commit = CommittedObjects(2, "s3://bucket/run=002/", {(TABLE, DAY): (given.small(12),)}, {TABLE: columns})
    inventory.register(commit, given.RIDE_ALONG)
    assert run(inventory, catalog).entered == (TablePart(TABLE),)
    assert [column.name for column in catalog.tables[f"app.{TABLE}"].columns] == ["id", "at", "page"]
    assert run(inventory, catalog).entered == ()


def test_E10_E11_a_renamed_table_keeps_its_place_and_its_partitions(inventory: Inventory, catalog: MemoryCatalog) -> None:
    days = [DAY + timedelta(days=n) for n in range(5)]
    for number, day in enumerate(days[:4], start=1):
        published_day(inventory, catalog, number * 10, day=day)
    arrive(inventory, 50, day=days[4])
    run(inventory, catalog)
    before, location = dict(catalog.partitions[f"app.{TABLE}"]), catalog.tables[f"app.{TABLE}"].location
    inventory.sync_table(given.settings("visits", physical_name=TABLE, physical_schema="app"))
    run(inventory, catalog)
    assert catalog.partitions == {"app.visits": before}
    assert catalog.tables["app.visits"].location == location
    report = run(inventory, catalog)
    assert (report.entered, report.shown, report.published) == ((), (), ())


def test_a_renamed_table_keeps_its_old_name_until_all_partitions_are_there(
    inventory: Inventory, catalog: MemoryCatalog
) -> None:
    published_day(inventory, catalog, 11)
    inventory.sync_table(given.settings("visits", physical_name=TABLE))
    catalog.before_point.append(lambda: catalog.broken.add("visits"))
    assert not publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock()).succeeded
    assert catalog.seen() == [11]
    catalog.broken.clear()
    run(inventory, catalog)
    assert catalog.seen(table="app.visits") == [11]
    assert set(catalog.tables) == {"app.visits"}


def test_an_old_name_that_cannot_be_removed_is_reported_once(inventory: Inventory) -> None:
    class Locked(MemoryCatalog):
        def remove_table(self, known_as: str, location: str) -> None:
            raise CatalogRejected(f"{known_as} may not be removed")

    catalog = Locked()
    published_day(inventory, catalog, 11)
    inventory.sync_table(given.settings("visits", physical_name=TABLE))
    report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    assert report.failed == (Failed(TablePart(TABLE), f"app.{TABLE} may not be removed", transient=False),)
    run(inventory, catalog)
    assert catalog.seen(table="app.visits") == [11]


def test_a_catalog_that_comes_later_gets_all_partitions(inventory: Inventory, catalog: MemoryCatalog) -> None:
    published_day(inventory, EmbeddedCatalog(inventory), 11)
    arrive(inventory, 12, 13, day=DAY + timedelta(days=1))
    run(inventory, EmbeddedCatalog(inventory))
    run(inventory, catalog)
    assert (catalog.seen(), catalog.seen(DAY + timedelta(days=1))) == ([11], [12, 13])
    assert differences(inventory, catalog, settings()) == []


def test_differences_are_found_and_mended(inventory: Inventory, catalog: MemoryCatalog) -> None:
    published_day(inventory, catalog, 11)
    arrive(inventory, 12)
    merge(inventory)
    old = catalog.partitions[f"app.{TABLE}"][DAY]
    run(inventory, catalog)
    new = catalog.partitions[f"app.{TABLE}"][DAY]
    other = DAY + timedelta(days=1)
    catalog.partitions[f"app.{TABLE}"] = {DAY: old, other: "somewhere"}
    assert differences(inventory, catalog, settings()) == [
        CatalogDifference(HERE, new, old),
        CatalogDifference(TablePart(TABLE, other), "missing", "somewhere"),
    ]
    assert run(inventory, catalog).put_back == ()
    assert catalog.seen() == [11]
    run(inventory, catalog, verify=True)
    assert catalog.seen() == [12]
    del catalog.tables[f"app.{TABLE}"], catalog.partitions[f"app.{TABLE}"]
    run(inventory, catalog)
    assert catalog.seen() == [12]


def test_a_version_whose_row_is_gone_is_a_difference(inventory: Inventory) -> None:
    catalog = EmbeddedCatalog(inventory)
    published_day(inventory, catalog, 11)
    assert differences(inventory, catalog, settings()) == []
    [row] = inventory.store.query(given.DATASET, "MVERSION#")
    inventory.store.transact(given.DATASET, [Delete(row.sort, row.version)], "gone")
    assert differences(inventory, catalog, settings()) == [CatalogDifference(HERE, row.sort, "missing", lost=True)]


def test_a_table_that_is_dropped_meanwhile_is_not_published(inventory: Inventory, catalog: MemoryCatalog) -> None:
    arrive(inventory, 11)
    catalog.before_point.append(lambda: inventory.drop(TABLE))
    report = publish(inventory, catalog, settings(clock=inventory.clock), inventory.clock())
    [failed] = report.failed
    assert (failed.place, failed.transient) == (HERE, True)
    assert "dropped" in failed.error
    assert list(inventory.partitions()) == []


@EVERY_STORE
def test_publishers_at_once_publish_each_version_once(inventory: Inventory, reopen: Callable[[], Store]) -> None:
    """While one publisher works, each concurrent publisher reports that it is busy, or finds nothing left to do."""
    catalog = EmbeddedCatalog(inventory)
    for number in range(1, 6):
        arrive(inventory, number * 10, day=DAY + timedelta(days=number))
    reports: list[PublishReport] = []
    others = [Inventory(reopen(), given.DATASET, f"publisher {number}", inventory.clock) for number in range(3)]
    publishers = [
        threading.Thread(target=lambda one=one: reports.append(publish(one, EmbeddedCatalog(one), settings(), one.clock())))
        for one in others
    ]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.join()
    assert len(reports) == 3
    assert all(report.succeeded for report in reports)
    shown = [place for report in reports for place in report.shown]
    assert len(shown) == len(set(shown))
    run(inventory, catalog)
    assert {one.current for one in inventory.partitions()} == {0}
