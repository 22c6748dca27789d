"""The embedded catalog: readers see what the manifest records.

Belongs here: the catalog that needs no other system. `readers` read the files of a partition. The row of a published version
and the partition that names it are written in one transaction, so that readers never see one without the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from manifest_platform.merging.catalogs.catalog import Catalog, CatalogError, CatalogSettings, CatalogTable, Entry
from manifest_platform.merging.served import Served
from manifest_platform.merging.state import LIVE, NEW, ServedFile, Version, version_key

if TYPE_CHECKING:
    from manifest_platform.merging.inventory import Inventory


class EmbeddedSettings(CatalogSettings):
    """The catalog within the manifest, for DuckDB views, Spark, and the IO manager."""

    kind: Literal["embedded"] = Field("embedded", description="in the manifest, for DuckDB and Spark")
    read_by = "duckdb"
    reads_row_groups = True

    def of_deployment(self, deployment: str) -> EmbeddedSettings:
        """The same settings: the catalog is in the deployment's own manifest."""
        del deployment
        return self

    def open(self, inventory: Inventory) -> EmbeddedCatalog:
        """Opens the catalog of an inventory."""
        return EmbeddedCatalog(inventory)


class EmbeddedCatalog(Catalog):
    """A catalog without entries of its own. A publication is complete when the manifest records it."""

    shows_live = True
    reads_row_groups = True

    def __init__(self, inventory: Inventory):
        self._inventory = inventory

    def known_as(self, table: CatalogTable) -> None:
        """Always None: the catalog has no names of its own."""
        return

    def entries(self, schema: str, tables: Sequence[CatalogTable]) -> Mapping[CatalogTable, Entry]:
        """All entries are current."""
        return dict.fromkeys(tables, "current")

    def put_table(self, table: CatalogTable) -> None:
        """Does nothing: the manifest has the table."""

    def remove_table(self, known_as: str, location: str) -> None:
        """Does nothing: there is no entry."""

    def write(self, table: CatalogTable, day: date, served: Served, files: Sequence[ServedFile]) -> None:
        """Does nothing: the list of files is written together with the partition's row."""

    def point(self, table: CatalogTable, served: Mapping[date, Served], new: Collection[date]) -> Mapping[date, CatalogError]:
        """Does nothing: readers see a version when the manifest records it."""
        return {}

    def location(self, table: CatalogTable, day: date, served: Served) -> str:
        """The key of the version's row, or "live objects"."""
        if served.live:
            return "live objects"
        return version_key(Version(table.table.key, day, served.newest, served.generation, table.table.create_time))

    def locations(self, table: CatalogTable) -> Mapping[date, str]:
        """The location of each partition that readers see, except those whose version row does not exist."""
        found = {}
        for partition in self._inventory.partitions(table.table.key):
            if partition.current == NEW:
                continue
            if partition.current == LIVE or self._inventory.shown_version(partition):
                found[partition.date] = self.location(table, partition.date, Served.recorded(partition))
        return found
