"""The embedded catalog: what readers see is what the manifest says.

Belongs here: the catalog that needs no other system. How the files of a partition are read is in `readers`. The row of a
published version and the partition's own, which names it, are written in one transaction, so there is no moment at which one
is without the other.
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
    """The catalog within the manifest: readers are DuckDB views, Spark, and the IO manager."""

    kind: Literal["embedded"] = Field("embedded", description="in the manifest, for DuckDB and Spark")
    read_by = "duckdb"

    def of_deployment(self, deployment: str) -> EmbeddedSettings:
        """The same: it is in the deployment's own manifest."""
        del deployment
        return self

    def open(self, inventory: Inventory) -> EmbeddedCatalog:
        """The catalog that an inventory is."""
        return EmbeddedCatalog(inventory)


class EmbeddedCatalog(Catalog):
    """A catalog without entries of its own: a publication is whole once the manifest notes it."""

    shows_live = True

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
            if partition.current == LIVE or self._inventory.shown_version(partition):
                found[partition.date] = self.location(table, partition.date, Served.recorded(partition))
        return found
