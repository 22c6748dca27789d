"""What the tests of publishing share: a catalog in memory that can be interfered with, and steps of a partition's life."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from manifest_platform.merging.catalogs.catalog import Catalog, CatalogError, CatalogTable, CatalogUnavailable, Entry
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.publish import PublishReport, PublishSettings, publish
from manifest_platform.merging.served import Served
from manifest_platform.merging.state import ServedFile
from manifest_platform_tests.manifest.given import Clock
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.given import DAY, TABLE

OUTPUT = "file:///merged"


class MemoryCatalog(Catalog):
    """A catalog outside the manifest, with its entries in memory.

    `before_point`, `after_point`: what happens, once each, before and after the next partitions are pointed at their files.
    `broken`: tables that cannot be written. `requests` counts writes and questions, `writes` the former.
    """

    def __init__(self) -> None:
        self.tables: dict[str, CatalogTable] = {}
        self.lists: dict[str, tuple[ServedFile, ...]] = {}
        self.partitions: dict[str, dict[date, str]] = {}
        self.broken: set[str] = set()
        self.before_point: list[Callable[[], object]] = []
        self.after_point: list[Callable[[], object]] = []
        self.requests = self.writes = 0

    def known_as(self, table: CatalogTable) -> str:
        return f"{table.schema}.{table.name}"

    def entries(self, schema: str, tables: Sequence[CatalogTable]) -> Mapping[CatalogTable, Entry]:
        self.requests += 1
        return {table: self._standing(table) for table in tables}

    def _standing(self, table: CatalogTable) -> Entry:
        found = self.tables.get(self.known_as(table))
        if found is None:
            return "missing"
        return "current" if (found.columns, found.location) == (table.columns, table.location) else "outdated"

    def put_table(self, table: CatalogTable) -> None:
        self._write(table)
        self.tables[self.known_as(table)] = table
        self.partitions.setdefault(self.known_as(table), {})

    def remove_table(self, known_as: str, location: str) -> None:
        self.requests += 1
        if known_as in self.tables and self.tables[known_as].location == location:
            del self.tables[known_as], self.partitions[known_as]

    def write(self, table: CatalogTable, day: date, served: Served, files: Sequence[ServedFile]) -> None:
        assert files, "a reader would see nothing"
        location = self.location(table, day, served)
        assert self.lists.get(location, tuple(files)) == tuple(files), f"{location} was written with other files before"
        self.lists[location] = tuple(files)

    def point(self, table: CatalogTable, served: Mapping[date, Served], new: Collection[date]) -> Mapping[date, CatalogError]:
        if self.before_point:
            self.before_point.pop(0)()
        try:
            self._write(table)
        except CatalogError as error:
            return dict.fromkeys(served, error)
        for day, one in served.items():
            assert self.location(table, day, one) in self.lists
            self.partitions[self.known_as(table)][day] = self.location(table, day, one)
        if self.after_point:
            self.after_point.pop(0)()
        return {}

    def location(self, table: CatalogTable, day: date, served: Served) -> str:
        return f"{table.location}/{day}/{served.newest}-{served.generation}"

    def locations(self, table: CatalogTable) -> Mapping[date, str]:
        self.requests += 1
        return self.partitions[self.known_as(table)]

    def _write(self, table: CatalogTable) -> None:
        self.requests += 1
        if table.name in self.broken:
            raise CatalogUnavailable(f"{table.name} cannot be reached")
        self.writes += 1

    def seen(self, day: date = DAY, table: str = f"app.{TABLE}") -> list[int]:
        """The upper ids of the files that a reader of a partition sees."""
        return [file.upper for file in self.lists[self.partitions[table][day]]]


def settings(**options: Any) -> PublishSettings:
    return PublishSettings(OUTPUT, **options)


def run(of: Inventory, catalog: Any, **options: Any) -> PublishReport:
    """A publication by the inventory's clock that must succeed."""
    report = publish(of, catalog, settings(clock=of.clock, **options), of.clock())
    assert report.succeeded, report.failed
    assert report.busy is None
    return report


def merge(of: Inventory, day: date = DAY, table: str = TABLE) -> None:
    """Whatever is not merged of a partition is merged, now."""
    of.hasten(table, day, of.clock())
    with given.slot(of) as held:
        given.merge_all(of, held)


def pass_the_day(of: Inventory, day: date = DAY) -> None:
    """Sets the clock to half an hour after the end of the day."""
    turn(of, given.NEXT_DAY + (day - DAY) - of.clock())


def turn(of: Inventory, by: timedelta) -> None:
    """Advances the clock of an inventory, which must be a test clock."""
    assert isinstance(of.clock, Clock)
    of.clock.turn(by)


def published_day(of: Inventory, catalog: Any, *ids: int, day: date = DAY) -> None:
    """A partition that is closed, merged, switched and published."""
    given.arrive(of, *ids, day=day)
    pass_the_day(of, day)
    merge(of, day)
    run(of, catalog)
    assert given.partition(of, day).current == ids[-1]
