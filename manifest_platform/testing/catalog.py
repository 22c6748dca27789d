"""What every merge catalog must do, as tests: subclass a suite, and bring the fixture `catalog`.

    class TestOurs(EntriesContract):
        @pytest.fixture
        def catalog(self, inventory, tmp_path):
            return OurSettings(kind="ours", path=str(tmp_path)).open(inventory)

        def files(self, catalog, table, day):
            return what_a_reader_of_ours_gets(table.schema, table.name, day)

CatalogContract is for every catalog; EntriesContract for those that keep entries of their own (`known_as` gives a name). Small
and merged objects are facts of the manifest here, no files: a catalog is told of URIs and never reads what they stand for.
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
    """A clock that goes only when told to."""

    def __init__(self) -> None:
        self.now = _MORNING

    def __call__(self) -> datetime:
        return self.now


class CatalogContract:
    """What readers get by a catalog through the life of a partition. Subclass it with the fixture `catalog`, and `files`."""

    @pytest.fixture
    def clock(self) -> _Clock:
        """By which all of a test goes."""
        return _Clock()

    @pytest.fixture
    def inventory(self, tmp_path: Path, clock: _Clock) -> Iterator[Inventory]:
        """An inventory of one table, over the store that a configuration has which names none."""
        store = ManifestConfig.model_validate({}, context={"base": tmp_path}).open()
        inventory = Inventory(store, DATASET, "a contract", clock)
        inventory.sync_table(_SETTINGS)
        yield inventory
        store.close()

    @pytest.fixture
    def output(self, tmp_path: Path) -> str:
        """Where merged objects lie; a catalog may keep its own files there."""
        return f"file://{tmp_path}/merged"

    @pytest.fixture
    def catalog(self, inventory: Inventory) -> Catalog:
        """The catalog that is tested, open and empty. To be brought by the subclass."""
        raise NotImplementedError("bring a fixture `catalog`: the catalog to be tested, open and empty")

    @abstractmethod
    def files(self, catalog: Catalog, table: CatalogTable, day: date) -> Sequence[str]:
        """The URIs of the files that a reader of a partition gets by the catalog, and by nothing else."""

    # Steps of a partition's life

    def arrive(self, inventory: Inventory, *ids: int, day: date = DAY, columns: tuple[Column, ...] = COLUMNS) -> None:
        """A commit of small objects with these ids."""
        objects = tuple(SmallObject(id_, f"file:///small/{id_}.parquet", 1, 30) for id_ in ids)
        number = inventory.cursor() + 1
        inventory.register(CommittedObjects(number, f"run={number}", {(TABLE, day): objects}, {TABLE: columns}), Rules())

    def merge(self, inventory: Inventory, day: date = DAY) -> None:
        """All that is not merged of a partition becomes one more merged object."""
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
        """A publication, which must succeed and leave no difference between catalog and manifest."""
        settings = PublishSettings(output, clock=inventory.clock, **options)
        report = publish(inventory, catalog, settings, inventory.clock())
        assert (report.failed, report.busy) == ((), None)
        assert differences(inventory, catalog, settings) == []
        return report

    def pass_the_day(self, clock: _Clock, day: date = DAY) -> None:
        """It is an hour into the day after."""
        clock.now = datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC) + timedelta(hours=1)

    def entry(self, inventory: Inventory, output: str) -> CatalogTable:
        """The table as readers are to know it."""
        table = inventory.table(TABLE)
        assert table is not None
        return catalog_table(table, output, {})

    def seen(self, inventory: Inventory, catalog: Catalog, output: str, day: date = DAY) -> list[str]:
        """What a reader gets: the names of the files."""
        return [uri.rsplit("/", 1)[1] for uri in self.files(catalog, self.entry(inventory, output), day)]

    # What must hold

    def test_a_partition_is_shown_by_its_small_objects_first(self, inventory: Inventory, catalog: Catalog, output: str) -> None:
        """A new partition has an entry after its first publication, and an object that comes later is there by the next."""
        self.arrive(inventory, 11, 12)
        assert self.publish(inventory, catalog, output).shown == (TablePart(TABLE, DAY),)
        assert self.seen(inventory, catalog, output) == ["11.parquet", "12.parquet"]
        self.arrive(inventory, 13)
        late = ["13.parquet"] if catalog.shows_live else []
        assert self.seen(inventory, catalog, output) == ["11.parquet", "12.parquet", *late]
        self.publish(inventory, catalog, output)
        assert self.seen(inventory, catalog, output) == ["11.parquet", "12.parquet", "13.parquet"]

    def test_merged_objects_take_the_place_of_small_ones(
        self, inventory: Inventory, catalog: Catalog, output: str, clock: _Clock
    ) -> None:
        """Once the day is over and all of it merged, and not before that is published."""
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

    def test_later_objects_are_shown_beside_merged_ones(
        self, inventory: Inventory, catalog: Catalog, output: str, clock: _Clock
    ) -> None:
        """Where a publication is asked for them, and until they are merged."""
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

    def test_what_was_rebuilt_is_shown_in_the_same_version(
        self, inventory: Inventory, catalog: Catalog, output: str, clock: _Clock
    ) -> None:
        """Two lists of files of one version differ in the generation."""
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
        """It enters and shows nothing, and asks for a schema's tables at most once."""
        self.arrive(inventory, 11)
        self.arrive(inventory, 12, day=NEXT_DAY)
        self.publish(inventory, catalog, output)
        before = dict(catalog.locations(self.entry(inventory, output)))
        report = self.publish(inventory, catalog, output)
        assert (report.entered, report.shown, report.published) == ((), (), ())
        assert report.catalog_requests <= 1
        assert catalog.locations(self.entry(inventory, output)) == before
        assert sorted(before) == [DAY, NEXT_DAY]

    def test_a_publication_that_ended_before_it_was_noted_is_repeated(
        self, inventory: Inventory, catalog: Catalog, output: str, clock: _Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The catalog was told and the manifest did not note it: readers get the old or the new, and the next run goes on."""
        self.arrive(inventory, 11)
        self.publish(inventory, catalog, output)
        self.merge(inventory)
        self.pass_the_day(clock)
        with monkeypatch.context() as patched:
            patched.setattr(inventory, "published", _killed)
            with pytest.raises(_Killed):
                self.publish(inventory, catalog, output)
        assert self.seen(inventory, catalog, output) in (["11.parquet"], ["0-11.parquet"])
        clock.now += timedelta(minutes=10)  # the lease of the publisher that is gone runs out
        self.publish(inventory, catalog, output)
        assert self.seen(inventory, catalog, output) == ["0-11.parquet"]

    def test_a_table_gets_columns(self, inventory: Inventory, catalog: Catalog, output: str) -> None:
        """And its partitions stay as they were."""
        self.arrive(inventory, 11)
        self.publish(inventory, catalog, output)
        self.arrive(inventory, 12, columns=(*COLUMNS, Column("page", "string")))
        self.publish(inventory, catalog, output)
        assert self.seen(inventory, catalog, output) == ["11.parquet", "12.parquet"]

    def test_a_renamed_table_keeps_its_partitions(self, inventory: Inventory, catalog: Catalog, output: str) -> None:
        """All of them are there under the new name, at the same places."""
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

    def test_each_version_has_a_place_of_its_own(self, inventory: Inventory, catalog: Catalog, output: str) -> None:
        """By its day, its generation and its newest object; for the same facts the same."""
        table = self.entry(inventory, output)
        told = [(day, served) for day in (DAY, NEXT_DAY) for served in (Served(1, 11), Served(2, 11), Served(2, 12))]
        places = [catalog.location(table, day, served) for day, served in told]
        assert len(set(places)) == len(told)
        assert places == [catalog.location(table, day, served) for day, served in told]


class EntriesContract(CatalogContract):
    """What a catalog must do beside that if it keeps entries of its own: they are made, moved and removed one by one."""

    def table(self, output: str, name: str = "visits", schema: str = "site", *columns: Column) -> CatalogTable:
        """A table that no publication knows of."""
        found = MergedTable(name, schema, 1, 1, create_time=_MORNING, columns=columns or COLUMNS)
        return catalog_table(found, output, {})

    def tell(self, catalog: Catalog, table: CatalogTable, served: Served, *days: date, new: bool = False) -> None:
        """Lists a file for each of these days, and has the entries point at the lists."""
        for day in days:
            catalog.write(table, day, served, [self.file(day, served)])
        assert catalog.point(table, dict.fromkeys(days, served), days if new else ()) == {}

    def file(self, day: date, served: Served) -> ServedFile:
        """A file of its own for each day and what is served of it."""
        lower = None if served.live else 0
        return ServedFile(f"file:///{day}/{served.generation}-{served.newest}.parquet", 1, 30, lower, served.newest)

    def test_an_entry_is_missing_then_current_then_outdated(self, catalog: Catalog, output: str) -> None:
        """As long as it was not made; once it was; once the table has more columns. To make it twice is no error."""
        table, wider = self.table(output), self.table(output, "visits", "site", *COLUMNS, Column("page", "string"))
        assert catalog.entries("site", [table]) == {table: "missing"}
        assert catalog.locations(table) == {}
        for _ in range(2):
            catalog.put_table(table)
            assert catalog.entries("site", [table]) == {table: "current"}
        assert catalog.entries("site", [wider]) == {wider: "outdated"}
        catalog.put_table(wider)
        assert catalog.entries("site", [wider]) == {wider: "current"}

    def test_tables_of_one_name_in_two_schemas_are_two(self, catalog: Catalog, output: str) -> None:
        """What is told of one says nothing of the other."""
        table, other = self.table(output), self.table(output, schema="shop")
        assert catalog.known_as(table) != catalog.known_as(other)
        catalog.put_table(table)
        assert catalog.entries("shop", [other]) == {other: "missing"}
        catalog.put_table(other)
        self.tell(catalog, table, Served(0, 1), DAY, new=True)
        assert catalog.locations(other) == {}

    def test_an_entry_of_another_is_refused(self, catalog: Catalog, output: str) -> None:
        """One of the name that lies elsewhere is another's: it is neither changed nor removed."""
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

    def test_an_entry_that_is_removed_takes_its_partitions_along(self, catalog: Catalog, output: str) -> None:
        """To remove it again is no error; made again, it has none."""
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

    def test_nothing_is_seen_before_an_entry_points_at_it(self, catalog: Catalog, output: str) -> None:
        """What is written is beside what readers see, and may be written twice."""
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

    def test_each_list_of_live_objects_has_a_place_of_its_own(self, catalog: Catalog, output: str) -> None:
        """Beside the merged ones': what readers are going by is never changed."""
        table = self.table(output)
        places = [catalog.location(table, DAY, served) for served in (Served(0, 11), Served(0, 12), Served(1, 11))]
        assert len(set(places)) == 3

    def test_many_partitions_are_told_at_once(self, catalog: Catalog, output: str) -> None:
        """More than a request takes, of whatever catalog."""
        table, days = self.table(output), [DAY + timedelta(days=number) for number in range(250)]
        catalog.put_table(table)
        self.tell(catalog, table, Served(0, 1), *days, new=True)
        self.tell(catalog, table, Served(1, 1), *days)
        assert catalog.locations(table) == {day: catalog.location(table, day, Served(1, 1)) for day in days}

    def test_it_matters_not_what_was_thought_to_be_there(self, catalog: Catalog, output: str) -> None:
        """A publication that was killed leaves entries that the manifest does not know of; a person may remove some."""
        table, days = self.table(output), [DAY + timedelta(days=number) for number in range(4)]
        catalog.put_table(table)
        self.tell(catalog, table, Served(0, 1), *days[:2], new=True)
        for day in days:
            catalog.write(table, day, Served(1, 2), [self.file(day, Served(1, 2))])
        assert catalog.point(table, dict.fromkeys(days, Served(1, 2)), [days[0], days[2]]) == {}
        assert catalog.locations(table) == {day: catalog.location(table, day, Served(1, 2)) for day in days}


class _Killed(BaseException):
    """A process ends here."""


def _killed(*_arguments: Any, **_named: Any) -> None:
    raise _Killed
