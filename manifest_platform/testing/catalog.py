"""The contract of a merge catalog, as tests: subclass a suite, and define the fixture `catalog` and the method `files`.

    class TestOurs(EntriesContract):
        @pytest.fixture
        def catalog(self, inventory, tmp_path):
            return OurSettings(kind="ours", path=str(tmp_path)).open(inventory)

        def files(self, catalog, table, day):
            return uris_that_a_reader_of_ours_gets(table.schema, table.name, day)

CatalogContract is for every catalog; EntriesContract is for catalogs that keep entries of their own (`known_as` returns a
name). In these tests, small and merged objects exist in the manifest only, without files: a catalog handles URIs and never
reads them.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.config import ManifestConfig
from manifest_platform.listing import Column
from manifest_platform.manifest import Manifest
from manifest_platform.merging.catalogs.catalog import Catalog, CatalogRejected, CatalogTable, NotOurs, catalog_table
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.publish import PublishReport, PublishSettings, TablePart, differences, publish
from manifest_platform.merging.registration import CommittedObjects, Rules
from manifest_platform.merging.served import Served
from manifest_platform.merging.state import MergedTable, Range, ServedFile, SmallObject, TableSettings
from manifest_platform.merging.transitions import MERGE

DATASET, TABLE, DAY = "shop", "log", date(2026, 3, 2)
NEXT_DAY = DAY + timedelta(days=1)
COLUMNS = (Column("id", "bigint"), Column("at", "timestamp"), Column("text", "string(36)"), Column("said", "json"))
_MORNING = datetime(2026, 3, 2, 10, tzinfo=UTC)
_SETTINGS = TableSettings(TABLE, "app", interval=60, target_bytes=100)


class _Clock:
    """A clock that advances only when a test sets it."""

    def __init__(self) -> None:
        self.now = _MORNING

    def __call__(self) -> datetime:
        return self.now


class CatalogContract:
    """The files that readers get from a catalog during the life of a partition. A subclass defines `catalog` and `files`."""

    @pytest.fixture
    def clock(self) -> _Clock:
        """The clock of a test."""
        return _Clock()

    @pytest.fixture
    def inventory(self, tmp_path: Path, clock: _Clock) -> Iterator[Inventory]:
        """An inventory of one table, on the default store."""
        store = ManifestConfig.model_validate({}, context={"base": tmp_path}).open()
        inventory = Inventory(store, DATASET, "a contract", clock)
        inventory.sync_table(_SETTINGS)
        yield inventory
        store.close()

    @pytest.fixture
    def output(self, tmp_path: Path) -> str:
        """The folder of merged objects; a catalog may keep its own files there."""
        return f"file://{tmp_path}/merged"

    @pytest.fixture
    def catalog(self, inventory: Inventory) -> Catalog:
        """The catalog under test, open and empty. The subclass defines it."""
        raise NotImplementedError("define a fixture `catalog`: the catalog under test, open and empty")

    @abstractmethod
    def files(self, catalog: Catalog, table: CatalogTable, day: date) -> Sequence[str]:
        """Returns the URIs of the files that a reader of a partition gets, from the catalog alone."""

    # Steps of a partition's life

    def arrive(self, inventory: Inventory, *ids: int, day: date = DAY, columns: tuple[Column, ...] = COLUMNS) -> None:
        """Commits small objects with these ids."""
        objects = tuple(SmallObject(id_, f"file:///small/{id_}.parquet", 1, 30) for id_ in ids)
        number = inventory.cursor() + 1
        inventory.register(CommittedObjects(number, f"run={number}", {(TABLE, day): objects}, {TABLE: columns}), Rules())

    def merge(self, inventory: Inventory, day: date = DAY) -> None:
        """Merges all small objects of a partition that are not merged yet into one more merged object."""
        inventory.hasten(TABLE, day, inventory.clock())
        manifest = Manifest(inventory.store, DATASET, {}, inventory.owner, clock=inventory.clock)
        with manifest.hold(MERGE, "0", inventory.owner, timedelta(minutes=1)) as lease:
            [claimed] = inventory.claim(lease, inventory.clock(), 1, [(TABLE, day)])
            job, lower = claimed.job, claimed.partition.upper
            small = inventory.small_objects(TABLE, day, lower)
            upper, size, now = small[-1].id, sum(one.bytes for one in small), inventory.clock()
            uri = f"file:///merged/{lower}-{upper}.parquet"
            made = Range(TABLE, day, lower, upper, uri, len(small), size, len(small), job.id, now, now)
            inventory.commit(job, [made], bytes_in=size)

    def publish(self, inventory: Inventory, catalog: Catalog, output: str, **options: Any) -> PublishReport:
        """Publishes. The publication must succeed and leave no difference between catalog and manifest."""
        settings = PublishSettings(output, clock=inventory.clock, **options)
        report = publish(inventory, catalog, settings, inventory.clock())
        assert (report.failed, report.busy) == ((), None)
        assert differences(inventory, catalog, settings) == []
        return report

    def pass_the_day(self, clock: _Clock, day: date = DAY) -> None:
        """Sets the clock to one hour into the next day."""
        clock.now = datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC) + timedelta(hours=1)

    def entry(self, inventory: Inventory, output: str) -> CatalogTable:
        """The table as readers should see it."""
        table = inventory.table(TABLE)
        assert table is not None
        return catalog_table(table, output, {})

    def seen(self, inventory: Inventory, catalog: Catalog, output: str, day: date = DAY) -> list[str]:
        """Returns the names of the files that a reader gets."""
        return [uri.rsplit("/", 1)[1] for uri in self.files(catalog, self.entry(inventory, output), day)]

    # Requirements

    def test_a_new_partition_shows_its_small_objects(self, inventory: Inventory, catalog: Catalog, output: str) -> None:
        """A new partition has an entry after its first publication. A later object appears after the next publication."""
        self.arrive(inventory, 11, 12)
        assert self.publish(inventory, catalog, output).shown == (TablePart(TABLE, DAY),)
        assert self.seen(inventory, catalog, output) == ["11.parquet", "12.parquet"]
        self.arrive(inventory, 13)
        late = ["13.parquet"] if catalog.shows_live else []
        assert self.seen(inventory, catalog, output) == ["11.parquet", "12.parquet", *late]
        self.publish(inventory, catalog, output)
        assert self.seen(inventory, catalog, output) == ["11.parquet", "12.parquet", "13.parquet"]

    def test_merged_objects_replace_small_objects(
        self, inventory: Inventory, catalog: Catalog, output: str, clock: _Clock
    ) -> None:
        """Merged objects appear after the publication that follows the end of the day, and not earlier."""
        self.arrive(inventory, 11, 12)
        self.publish(inventory, catalog, output)
        self.merge(inventory)
        self.publish(inventory, catalog, output)
        self.pass_the_day(clock)
        assert self.seen(inventory, catalog, output) == ["11.parquet", "12.parquet"]
        assert self.publish(inventory, catalog, output).published == ((TablePart(TABLE, DAY), 12),)
        assert self.seen(inventory, catalog, output) == ["0-12.parquet"]
        self.arrive(inventory, 20)
        self.merge(inventory)
        assert self.seen(inventory, catalog, output) == ["0-12.parquet"]
        self.publish(inventory, catalog, output)
        assert self.seen(inventory, catalog, output) == ["0-12.parquet", "12-20.parquet"]

    def test_later_objects_are_shown_beside_merged_objects(
        self, inventory: Inventory, catalog: Catalog, output: str, clock: _Clock
    ) -> None:
        """A publication with `listed` shows later objects until they are merged."""
        self.arrive(inventory, 11)
        self.merge(inventory)
        self.pass_the_day(clock)
        self.publish(inventory, catalog, output)
        self.arrive(inventory, 20)
        self.publish(inventory, catalog, output, listed=True)
        assert self.seen(inventory, catalog, output) == ["0-11.parquet", "20.parquet"]
        self.merge(inventory)
        self.publish(inventory, catalog, output, listed=True)
        assert self.seen(inventory, catalog, output) == ["0-11.parquet", "11-20.parquet"]

    def test_rebuilt_objects_are_shown_under_the_same_version(
        self, inventory: Inventory, catalog: Catalog, output: str, clock: _Clock
    ) -> None:
        """The two lists of files of one version differ in their generation."""
        self.arrive(inventory, 11)
        self.merge(inventory)
        self.pass_the_day(clock)
        self.publish(inventory, catalog, output)
        partition, [only] = inventory.chain(TABLE, DAY)
        assert partition is not None
        inventory.rebuild(partition, [dataclasses.replace(only, uri="file:///merged/again.parquet")])
        assert self.seen(inventory, catalog, output) == ["0-11.parquet"]
        self.publish(inventory, catalog, output)
        assert self.seen(inventory, catalog, output) == ["again.parquet"]

    def test_a_publication_without_news_changes_nothing(self, inventory: Inventory, catalog: Catalog, output: str) -> None:
        """The second publication changes no entry, and makes at most one request for the tables of a schema."""
        self.arrive(inventory, 11)
        self.arrive(inventory, 12, day=NEXT_DAY)
        self.publish(inventory, catalog, output)
        before = dict(catalog.locations(self.entry(inventory, output)))
        report = self.publish(inventory, catalog, output)
        assert (report.entered, report.shown, report.published) == ((), (), ())
        assert report.catalog_requests <= 1
        assert catalog.locations(self.entry(inventory, output)) == before
        assert sorted(before) == [DAY, NEXT_DAY]

    def test_a_publication_killed_before_its_record_is_repeated(
        self, inventory: Inventory, catalog: Catalog, output: str, clock: _Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The catalog was updated but the manifest was not: readers get either state, and the next run continues."""
        self.arrive(inventory, 11)
        self.publish(inventory, catalog, output)
        self.merge(inventory)
        self.pass_the_day(clock)
        with monkeypatch.context() as patched:
            patched.setattr(inventory, "published", _killed)
            with pytest.raises(_Killed):
                self.publish(inventory, catalog, output)
        assert self.seen(inventory, catalog, output) in (["11.parquet"], ["0-11.parquet"])
        clock.now += timedelta(minutes=10)  # the lease of the killed publisher expires
        self.publish(inventory, catalog, output)
        assert self.seen(inventory, catalog, output) == ["0-11.parquet"]

    def test_a_table_gets_new_columns(self, inventory: Inventory, catalog: Catalog, output: str) -> None:
        """Its partitions stay as they were."""
        self.arrive(inventory, 11)
        self.publish(inventory, catalog, output)
        self.arrive(inventory, 12, columns=(*COLUMNS, Column("page", "string")))
        self.publish(inventory, catalog, output)
        assert self.seen(inventory, catalog, output) == ["11.parquet", "12.parquet"]

    def test_a_renamed_table_keeps_its_partitions(self, inventory: Inventory, catalog: Catalog, output: str) -> None:
        """All partitions exist under the new name, at the same locations."""
        self.arrive(inventory, 11)
        self.arrive(inventory, 12, day=NEXT_DAY)
        self.publish(inventory, catalog, output)
        old = self.entry(inventory, output)
        before = dict(catalog.locations(old))
        inventory.sync_table(dataclasses.replace(_SETTINGS, name="visits", physical_name=TABLE))
        self.publish(inventory, catalog, output)
        new = self.entry(inventory, output)
        assert catalog.locations(new) == before
        assert self.seen(inventory, catalog, output) == ["11.parquet"]
        assert catalog.known_as(new) is None or catalog.locations(old) == {}

    def test_each_version_has_its_own_location(self, inventory: Inventory, catalog: Catalog, output: str) -> None:
        """The location depends on the day, the generation and the newest object. The same values give the same location."""
        table = self.entry(inventory, output)
        told = [(day, served) for day in (DAY, NEXT_DAY) for served in (Served(1, 11), Served(2, 11), Served(2, 12))]
        places = [catalog.location(table, day, served) for day, served in told]
        assert len(set(places)) == len(told)
        assert places == [catalog.location(table, day, served) for day, served in told]


class EntriesContract(CatalogContract):
    """Further requirements for a catalog with entries of its own, which are created, moved and removed one by one."""

    def table(self, output: str, name: str = "visits", schema: str = "site", *columns: Column) -> CatalogTable:
        """Returns a table that no publication knows."""
        found = MergedTable(name, schema, 1, 1, create_time=_MORNING, columns=columns or COLUMNS)
        return catalog_table(found, output, {})

    def tell(self, catalog: Catalog, table: CatalogTable, served: Served, *days: date, new: bool = False) -> None:
        """Writes a list with one file for each of these days, and lets the entries point at the lists."""
        for day in days:
            catalog.write(table, day, served, [self.file(day, served)])
        assert catalog.point(table, dict.fromkeys(days, served), days if new else ()) == {}

    def file(self, day: date, served: Served) -> ServedFile:
        """Returns a different file for each day and each served state."""
        lower = None if served.live else 0
        return ServedFile(f"file:///{day}/{served.generation}-{served.newest}.parquet", 1, 30, lower, served.newest)

    def test_an_entry_is_missing_then_current_then_outdated_by_new_columns(self, catalog: Catalog, output: str) -> None:
        """An entry is missing until it is created, and outdated once the table has more columns. It may be created twice."""
        table, wider = self.table(output), self.table(output, "visits", "site", *COLUMNS, Column("page", "string"))
        assert catalog.entries("site", [table]) == {table: "missing"}
        assert catalog.locations(table) == {}
        for _ in range(2):
            catalog.put_table(table)
            assert catalog.entries("site", [table]) == {table: "current"}
        assert catalog.entries("site", [wider]) == {wider: "outdated"}
        catalog.put_table(wider)
        assert catalog.entries("site", [wider]) == {wider: "current"}

    def test_tables_of_the_same_name_in_two_schemas_are_independent(self, catalog: Catalog, output: str) -> None:
        """A change to one table does not affect the other."""
        table, other = self.table(output), self.table(output, schema="shop")
        assert catalog.known_as(table) != catalog.known_as(other)
        catalog.put_table(table)
        assert catalog.entries("shop", [other]) == {other: "missing"}
        catalog.put_table(other)
        self.tell(catalog, table, Served(0, 1), DAY, new=True)
        assert catalog.locations(other) == {}

    def test_an_entry_with_another_location_is_refused(self, catalog: Catalog, output: str) -> None:
        """An entry of the same name with another location belongs to someone else: it is neither changed nor removed."""
        theirs, ours = self.table(f"{output}-theirs"), self.table(output)
        catalog.put_table(theirs)
        self.tell(catalog, theirs, Served(0, 1), DAY, new=True)
        name, before = catalog.known_as(ours), dict(catalog.locations(theirs))
        assert name is not None and name == catalog.known_as(theirs)
        with pytest.raises(CatalogRejected):
            catalog.put_table(ours)
        with pytest.raises(NotOurs):
            catalog.remove_table(name, ours.location)
        assert catalog.entries("site", [theirs]) == {theirs: "current"}
        assert catalog.locations(theirs) == before

    def test_removing_an_entry_removes_its_partitions(self, catalog: Catalog, output: str) -> None:
        """Removing it again is no error. Created again, it has no partitions."""
        table = self.table(output)
        name = catalog.known_as(table)
        assert name is not None
        catalog.put_table(table)
        self.tell(catalog, table, Served(0, 1), DAY, new=True)
        for _ in range(2):
            catalog.remove_table(name, table.location)
            assert catalog.entries("site", [table]) == {table: "missing"}
        catalog.put_table(table)
        assert catalog.locations(table) == {}

    def test_a_list_is_invisible_until_an_entry_points_at_it(self, catalog: Catalog, output: str) -> None:
        """A new list does not affect the list that readers see, and may be written twice."""
        table, first, second = self.table(output), Served(0, 1), Served(1, 1)
        catalog.put_table(table)
        self.tell(catalog, table, first, DAY, new=True)
        for _ in range(2):
            catalog.write(table, DAY, second, [self.file(DAY, second)])
        assert catalog.locations(table) == {DAY: catalog.location(table, DAY, first)}
        assert self.files(catalog, table, DAY) == [self.file(DAY, first).uri]
        for _ in range(2):
            assert catalog.point(table, {DAY: second}, ()) == {}
            assert self.files(catalog, table, DAY) == [self.file(DAY, second).uri]

    def test_each_list_of_live_objects_has_its_own_location(self, catalog: Catalog, output: str) -> None:
        """The location differs from those of merged objects. A list that readers use never changes."""
        table = self.table(output)
        places = [catalog.location(table, DAY, served) for served in (Served(0, 11), Served(0, 12), Served(1, 11))]
        assert len(set(places)) == 3

    def test_many_partitions_are_updated_with_one_call(self, catalog: Catalog, output: str) -> None:
        """There are more partitions than any catalog accepts in one request."""
        table, days = self.table(output), [DAY + timedelta(days=number) for number in range(250)]
        catalog.put_table(table)
        self.tell(catalog, table, Served(0, 1), *days, new=True)
        self.tell(catalog, table, Served(1, 1), *days)
        assert catalog.locations(table) == {day: catalog.location(table, day, Served(1, 1)) for day in days}

    def test_point_works_whatever_entries_exist(self, catalog: Catalog, output: str) -> None:
        """A killed publication leaves entries that the manifest does not know, and a person may remove entries."""
        table, days = self.table(output), [DAY + timedelta(days=number) for number in range(4)]
        catalog.put_table(table)
        self.tell(catalog, table, Served(0, 1), *days[:2], new=True)
        for day in days:
            catalog.write(table, day, Served(1, 2), [self.file(day, Served(1, 2))])
        assert catalog.point(table, dict.fromkeys(days, Served(1, 2)), [days[0], days[2]]) == {}
        assert catalog.locations(table) == {day: catalog.location(table, day, Served(1, 2)) for day in days}


class _Killed(BaseException):
    """Simulates the end of a process."""


def _killed(*_arguments: Any, **_named: Any) -> None:
    raise _Killed
