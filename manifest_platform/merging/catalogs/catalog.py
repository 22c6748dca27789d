"""The contract of a catalog: where readers find out which tables there are, and which files a partition of them consists of.

Belongs here: what every kind of catalog provides, what it is told, and how it fails. What is to be told is in `publish`.

A plug-in of the group `manifest_platform.catalogs` is a subclass of CatalogSettings, which opens a subclass of Catalog. An
entry point names it; `merge.catalog.kind` of the configuration is the entry point's name.
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
"""The column of a published table that says which partition a row is of."""


class CatalogError(Exception):
    """The catalog did not do what was asked; what else was asked of it may have been done."""


class CatalogUnavailable(CatalogError, Transient):
    """The catalog could not be reached, or is too busy. Passing: the next publication tries again."""


class CatalogRejected(CatalogError, Permanent):
    """The catalog will not do it as things stand. Permanent: the message says what a person has to mend."""


class NotOurs(CatalogRejected):
    """An entry of the name is there, and lies elsewhere: it is another's, and left alone."""


@dataclass(frozen=True)
class CatalogColumn:
    """A column as readers know it: name, logical type (see `listing.Column`), and what a person wrote about it."""

    name: str
    type: str
    comment: str = ""


@dataclass(frozen=True)
class CatalogTable:
    """A table as readers know it: by its logical names. Its files lie under `output`, by its physical names."""

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
        """The URI under which all that was written of the table lies."""
        from manifest_platform.merging import names  # every configuration imports this module, and most need no more of merging

        return names.table_uri(self.output, self.table)


def catalog_table(table: MergedTable, output: str, comments: Mapping[str, str]) -> CatalogTable:
    """A table as readers are to know it; `comments` by column. Raises CatalogRejected if a column has the partitions' name."""
    if any(column.name.lower() == DATE_COLUMN for column in table.columns):
        raise CatalogRejected(
            f"table {table.schema}.{table.name} has a column {DATE_COLUMN!r}, which is what its partitions are told apart by: "
            "rename it in the schema"
        )
    columns = (CatalogColumn(column.name, column.type, comments.get(column.name, "")) for column in table.columns)
    return CatalogTable(table, output, tuple(columns))


@dataclass(frozen=True)
class ExternalSchemas:
    """The SQL by which a warehouse reads the tables through the catalog, a statement each; and what permissions it needs."""

    statements: tuple[str, ...]
    needed: tuple[str, ...]


Entry = Literal["missing", "outdated", "current"]
"""How a table's entry in a catalog stands to what it should be."""


class CatalogSettings(Settings, ABC):
    """The settings of a catalog, the part `merge.catalog` of the configuration.

    A subclass sets `kind: Literal["its name"]` and has fields of its own. `read_by`: the system that people read its tables
    with, by which Dagster marks them.
    """

    kind: str
    read_by: ClassVar[str]

    def database(self, schema: str) -> str | None:
        """Where the catalog has a schema's tables, if all datasets share it: equal for two that readers find in one place."""
        del schema
        return None

    def of_deployment(self, deployment: str) -> CatalogSettings:
        """The catalog as another deployment uses it. Raises ValueError where it knows no place of its own for that."""
        raise ValueError(f"catalog {self.kind} has no place of its own for deployment {deployment!r}; allowed: {PRODUCTION}")

    @abstractmethod
    def open(self, inventory: Inventory) -> Catalog:
        """The catalog that shows what an inventory's partitions consist of. What is heavy is imported here at the earliest."""


class Catalog(ABC):
    """What a kind of catalog provides. Every method may raise CatalogUnavailable and CatalogRejected.

    `shows_live`: readers see a live object as soon as it is registered; else they see it once its partition is published
    again. `requests` counts the calls made.
    """

    shows_live: ClassVar[bool] = False
    requests: int = 0

    @abstractmethod
    def known_as(self, table: CatalogTable) -> str | None:
        """The name under which the catalog enters a table; None for a catalog that keeps no entries of its own."""

    def external_schemas(
        self, schemas: Sequence[str], role: str | None, grantees: Sequence[str], name: str | None
    ) -> ExternalSchemas:
        """The SQL by which a warehouse reads the tables of these schemas through the catalog; changes nothing.

        `role`: what the warehouse takes on to read, None for its default. `grantees`: who may read. `name`: the schema's name
        in the warehouse, where it is not the catalog's. Raises CatalogRejected for what is refused, and for a catalog that no
        warehouse reads, which is what this method does.
        """
        raise CatalogRejected("no warehouse reads this kind of catalog: docs/how-to/merging.md lists those that are read")

    @abstractmethod
    def entries(self, schema: str, tables: Sequence[CatalogTable]) -> Mapping[CatalogTable, Entry]:
        """How the entries of a schema's tables stand to what they should be; changes nothing."""

    @abstractmethod
    def put_table(self, table: CatalogTable) -> None:
        """Makes a table's entry, and its schema's where that is missing, or brings it up to date. May be repeated.

        An entry of the name that is not this table's is refused.
        """

    @abstractmethod
    def remove_table(self, known_as: str, location: str) -> None:
        """Removes the entry of a table that was renamed or dropped, not its files. May be repeated.

        Raises NotOurs if the entry does not lie at the location.
        """

    @abstractmethod
    def write(self, table: CatalogTable, day: date, served: Served, files: Sequence[ServedFile]) -> None:
        """Writes what `point` is to point at. No reader sees it yet, and what is there is never changed. May be repeated."""

    @abstractmethod
    def point(self, table: CatalogTable, served: Mapping[date, Served], new: Collection[date]) -> Mapping[date, CatalogError]:
        """Has readers see what was written for these partitions, each at once; `new` are those thought to have no entry.

        Returns the errors of those that could not be changed.
        """

    @abstractmethod
    def location(self, table: CatalogTable, day: date, served: Served) -> str:
        """What the catalog says of a partition that is served so."""

    @abstractmethod
    def locations(self, table: CatalogTable) -> Mapping[date, str]:
        """What the catalog says of each partition of a table that it has; of none where it lacks the table."""


def open_catalog(settings: CatalogSettings, inventory: Inventory) -> Catalog:
    """The catalog of settings, which shows what an inventory's partitions consist of. Raises CatalogError."""
    return settings.open(inventory)
