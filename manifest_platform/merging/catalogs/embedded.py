"""The embedded catalog: what readers see is what the manifest says.

Belongs here: the catalog that needs no other system, and what the manifest says of a partition's files; how these are read is
in `readers`. The row of a published version and the partition's own, which names it, are written in one transaction, so there
is no moment at which one is without the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date

from manifest_platform.merging.catalogs.catalog import CatalogError, CatalogTable, Entry, Served
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.state import LIVE, NEW, Partition, ServedFile, SmallObject, Version, from_row, version_key


class EmbeddedCatalog:
    """A catalog without entries of its own: a publication is whole once the manifest notes it."""

    shows_live = True
    requests = 0

    def __init__(self, inventory: Inventory):
        self._inventory = inventory

    def known_as(self, table: CatalogTable) -> None:
        """No name: tables are known as the manifest knows them."""
        return

    def entries(self, schema: str, tables: Sequence[CatalogTable]) -> Mapping[CatalogTable, Entry]:
        """All are as they should be."""
        return dict.fromkeys(tables, "current")

    def put_table(self, table: CatalogTable) -> None:
        """Nothing: the manifest has the table."""

    def remove_table(self, known_as: str, location: str) -> None:
        """Nothing: there is no entry."""

    def write(self, table: CatalogTable, day: date, served: Served, files: Sequence[ServedFile]) -> None:
        """Nothing: the list of files is written together with what names it."""

    def point(self, table: CatalogTable, served: Mapping[date, Served], new: Collection[date]) -> Mapping[date, CatalogError]:
        """Nothing: readers see a version once the manifest notes it."""
        return {}

    def location(self, table: CatalogTable, day: date, served: Served) -> str:
        """What readers look up: the key of the version's row, or the live objects."""
        if served.live:
            return "live objects"
        return version_key(Version(table.table.key, day, served.newest, served.generation, table.table.create_time))

    def locations(self, table: CatalogTable) -> Mapping[date, str]:
        """What readers find of each partition that is not new; a version that is named but not there is missing."""
        found = {}
        for partition in self._inventory.partitions(table.table.key):
            if partition.current == NEW:
                continue
            if partition.current == LIVE or stored_version(self._inventory, partition):
                found[partition.date] = self.location(table, partition.date, Served.recorded(partition))
        return found


def stored_version(inventory: Inventory, partition: Partition) -> Version | None:
    """The merged version that a partition names as what readers see; None if there is none, or not any more."""
    if partition.current <= LIVE:
        return None
    named = Version(partition.table, partition.date, partition.published_newest, partition.published, partition.create_time)
    row = inventory.store.get(inventory.dataset, version_key(named))
    return from_row(Version, row) if row else None


def live_files(inventory: Inventory, partition: Partition, newest: int) -> tuple[ServedFile, ...]:
    """The small objects of a partition up to the id of one that came before the close: what came after it has a larger one."""
    found = inventory.small_objects(partition.table, partition.date)
    return tuple(small_file(one) for one in found if one.id <= newest)


def served_files(inventory: Inventory, partition: Partition) -> tuple[ServedFile, ...]:
    """The files that readers of a partition see by what the manifest notes; none of a new one."""
    if partition.current == NEW:
        return ()
    if partition.current == LIVE:
        return live_files(inventory, partition, partition.published_newest)
    version = stored_version(inventory, partition)
    return version.files if version else ()


def small_file(one: SmallObject) -> ServedFile:
    """A small object as a file that readers see."""
    return ServedFile(one.uri, one.rows, one.bytes, None, one.id)
