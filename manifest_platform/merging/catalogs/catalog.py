"""The contract of a catalog, through which readers find tables and the files of their partitions.

Belongs here: the interface, the values that it takes, and its errors. `publish` decides what a catalog shows.

A plug-in of the entry-point group `manifest_platform.catalogs` is a subclass of CatalogSettings that opens a subclass of
Catalog. `merge.catalog.kind` in the configuration is the name of the entry point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, ClassVar, Literal

from manifest_platform.deployments import PRODUCTION
from manifest_platform.faults import Permanent, Transient
from manifest_platform.settings import Settings

if TYPE_CHECKING:
    from manifest_platform.merging.inventory import Inventory
    from manifest_platform.merging.served import Served
    from manifest_platform.merging.state import MergedTable, ServedFile

DATE_COLUMN = "dt"
"""The column of a published table that names a row's partition."""


class CatalogError(Exception):
    """The catalog did not perform a request. Other requests of the same call may have been performed."""


class CatalogUnavailable(CatalogError, Transient):
    """The catalog could not be reached, or throttles requests. The next publication retries."""


class CatalogRejected(CatalogError, Permanent):
    """The catalog refuses the request until a person acts. The message says what to do."""


class NotOurs(CatalogRejected):
    """An entry with this name exists at another location. It belongs to somebody else and is not changed."""


@dataclass(frozen=True)
class CatalogColumn:
    """A column of a published table: name, logical type (see `listing.Column`), and a comment by a person."""

    name: str
    type: str
    comment: str = ""


@dataclass(frozen=True)
class CatalogTable:
    """A table for the catalog, by its logical names. Its files are stored under `output`, by its physical names."""

    table: MergedTable
    output: str
    columns: tuple[CatalogColumn, ...]

    @property
    def schema(self) -> str:
        """The logical schema."""
        return self.table.schema

    @property
    def name(self) -> str:
        """The logical name."""
        return self.table.name

    @property
    def location(self) -> str:
        """The URI of all files of the table."""
        from manifest_platform.merging import names  # a late import, because every configuration imports this module

        return names.table_uri(self.output, self.table)


def catalog_table(table: MergedTable, output: str, comments: Mapping[str, str]) -> CatalogTable:
    """Describes a table for the catalog; `comments` by column. Raises CatalogRejected if a column is called `dt`."""
    if any(column.name.lower() == DATE_COLUMN for column in table.columns):
        raise CatalogRejected(
            f"table {table.schema}.{table.name} has a column {DATE_COLUMN!r}, which is the name of the partition column: "
            "rename the column in the schema"
        )
    columns = (CatalogColumn(column.name, column.type, comments.get(column.name, "")) for column in table.columns)
    return CatalogTable(table, output, tuple(columns))


@dataclass(frozen=True)
class ExternalSchemas:
    """SQL statements that let a warehouse read the tables through the catalog, and the permissions that this needs."""

    statements: tuple[str, ...]
    needed: tuple[str, ...]


Entry = Literal["missing", "outdated", "current"]
"""The state of a table's entry in a catalog compared with the manifest."""


class CatalogSettings(Settings, ABC):
    """The settings of a catalog, the part `merge.catalog` of the configuration.

    A subclass sets `kind: Literal["its name"]` and adds its own fields. `read_by`: the system with which people read the
    tables, as Dagster marks them. `reads_row_groups`: True if its readers can read some row groups of a file. Otherwise,
    shredding writes a file for each date.
    """

    kind: str
    read_by: ClassVar[str]
    reads_row_groups: ClassVar[bool] = False

    def database(self, schema: str) -> str | None:
        """The place of a schema's tables if datasets share the catalog, else None. Equal places hold the same tables."""
        del schema
        return None

    def of_deployment(self, deployment: str) -> CatalogSettings:
        """The settings for another deployment. Raises ValueError if the catalog has no separate place for a deployment."""
        raise ValueError(f"catalog {self.kind} has no separate place for deployment {deployment!r}; allowed: {PRODUCTION}")

    @abstractmethod
    def open(self, inventory: Inventory) -> Catalog:
        """Opens the catalog for the partitions of an inventory. Heavy imports belong in this method."""


class Catalog(ABC):
    """The operations of a catalog. Every method may raise CatalogUnavailable and CatalogRejected.

    `shows_live`: True if readers see a live object as soon as it is registered, False if only after the next publication.
    `reads_row_groups`: as in its settings. If False, `write` gets no files of several dates. `requests` counts the calls made.
    """

    shows_live: ClassVar[bool] = False
    reads_row_groups: ClassVar[bool] = False
    requests: int = 0

    @abstractmethod
    def known_as(self, table: CatalogTable) -> str | None:
        """The table's name in the catalog; None for a catalog without entries of its own."""

    def external_schemas(
        self, schemas: Sequence[str], role: str | None, grantees: Sequence[str], name: str | None
    ) -> ExternalSchemas:
        """Returns SQL that lets a warehouse read the tables of these schemas through the catalog; changes nothing.

        `role`: the role that the warehouse assumes for reading, None for its default. `grantees`: who may read. `name`: the
        schema's name in the warehouse, if it differs from the catalog's. Raises CatalogRejected if an argument is refused; this
        default implementation always does.
        """
        raise CatalogRejected("no warehouse reads this kind of catalog; docs/how-to/merging.md lists those that are read")

    @abstractmethod
    def entries(self, schema: str, tables: Sequence[CatalogTable]) -> Mapping[CatalogTable, Entry]:
        """The state of each entry of a schema's tables; changes nothing."""

    @abstractmethod
    def put_table(self, table: CatalogTable) -> None:
        """Creates or updates a table's entry, and its schema's entry if it does not exist. Idempotent.

        Refuses an entry of this name that does not belong to the table.
        """

    @abstractmethod
    def remove_table(self, known_as: str, location: str) -> None:
        """Removes the entry of a table that was renamed or dropped, without its files. Idempotent.

        Raises NotOurs if the entry has another location.
        """

    @abstractmethod
    def write(self, table: CatalogTable, day: date, served: Served, files: Sequence[ServedFile]) -> None:
        """Writes the list of files for `point`. No reader sees it yet, and an existing list is never changed. Idempotent."""

    @abstractmethod
    def point(self, table: CatalogTable, served: Mapping[date, Served], new: Collection[date]) -> Mapping[date, CatalogError]:
        """Shows to readers what was written for these partitions, each atomically. `new`: partitions expected to have no entry.

        Returns the errors of the partitions that could not be changed.
        """

    @abstractmethod
    def location(self, table: CatalogTable, day: date, served: Served) -> str:
        """The location that the catalog has for a partition in this state."""

    @abstractmethod
    def locations(self, table: CatalogTable) -> Mapping[date, str]:
        """The location of each partition of a table in the catalog; empty if the table does not exist there."""


def open_catalog(settings: CatalogSettings, inventory: Inventory) -> Catalog:
    """Opens the catalog of the settings for the partitions of an inventory. Raises CatalogError."""
    return settings.open(inventory)
