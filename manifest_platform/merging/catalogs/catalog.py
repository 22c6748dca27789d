"""The seam to a catalog: where readers find out which tables there are, and which files a partition of them consists of.

Belongs here: what every kind of catalog provides, what it is told, and how it fails. What is to be told is in `publish`.

A partition is served in one of two ways: from its live small objects, or from a merged version. Which of them, and which
objects belong to it, is said by `Served` alone, so that telling a catalog twice tells it the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, Protocol

from manifest_platform.faults import Permanent, Transient
from manifest_platform.merging import names
from manifest_platform.merging.state import LIVE, MergedTable, Partition, ServedFile

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


@dataclass(frozen=True, order=True)
class Served:
    """What readers of a partition get, older before newer: `generation` 0 is its live small objects up to the id `newest`.

    A higher generation is a merged version whose largest id is `newest`.
    """

    generation: int
    newest: int

    @property
    def live(self) -> bool:
        """Whether these are small objects that came before the close."""
        return self.generation == 0

    @classmethod
    def recorded(cls, partition: Partition) -> Served:
        """What the manifest says that readers of the partition get now; of a new partition none do."""
        return cls(partition.published if partition.current > LIVE else 0, partition.published_newest)


Entry = Literal["missing", "outdated", "current"]
"""How a table's entry in a catalog stands to what it should be."""


class Catalog(Protocol):
    """What a kind of catalog provides. Every method may raise CatalogUnavailable and CatalogRejected.

    `shows_live`: readers see a live object as soon as it is registered; else they see it once its partition is published
    again. `requests` counts the calls made.
    """

    shows_live: bool
    requests: int

    def known_as(self, table: CatalogTable) -> str | None:
        """The name under which the catalog enters a table; None for a catalog that keeps no entries of its own."""
        ...

    def entries(self, schema: str, tables: Sequence[CatalogTable]) -> Mapping[CatalogTable, Entry]:
        """How the entries of a schema's tables stand to what they should be; changes nothing."""
        ...

    def put_table(self, table: CatalogTable) -> None:
        """Makes a table's entry, and its schema's where that is missing, or brings it up to date. May be repeated.

        An entry of the name that is not this table's is refused.
        """
        ...

    def remove_table(self, known_as: str, location: str) -> None:
        """Removes the entry of a table that was renamed or dropped, not its files. May be repeated.

        Raises NotOurs if the entry does not lie at the location.
        """
        ...

    def write(self, table: CatalogTable, day: date, served: Served, files: Sequence[ServedFile]) -> None:
        """Writes what `point` is to point at. No reader sees it yet, and what is there is never changed. May be repeated."""
        ...

    def point(self, table: CatalogTable, served: Mapping[date, Served], new: Collection[date]) -> Mapping[date, CatalogError]:
        """Has readers see what was written for these partitions, each at once; `new` are those thought to have no entry.

        Returns the errors of those that could not be changed.
        """
        ...

    def location(self, table: CatalogTable, day: date, served: Served) -> str:
        """What the catalog says of a partition that is served so."""
        ...

    def locations(self, table: CatalogTable) -> Mapping[date, str]:
        """What the catalog says of each partition of a table that it has; of none where it lacks the table."""
        ...
