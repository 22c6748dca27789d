"""The replacement of a dataset's rows by those of a snapshot, in one of two ways that the engine declares (`swaps_names`).

- `Shadows`: tables are built beside those that readers see, then swapped in by renaming. A renamed table lacks what people
  added to the old one: indexes, constraints, grants, comments. If the old table has any of them, or something prevents its
  renaming, its rows are replaced instead, in the same transaction.
- `InPlace`: the transaction deletes all rows and inserts the staged rows. Nothing is renamed and no second copy is written, so
  views, indexes, grants and open readers never notice more than other rows.

This module covers one full load, from the first statement on its tables to the removal of what it leaves behind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from manifest_platform.listing import Listing
from manifest_platform.warehouse.engines.engine import Engine, Transaction, refuse_but_rename
from manifest_platform.warehouse.errors import Conflict, CountMismatch, LoadFailed, WarehouseError
from manifest_platform.warehouse.names import with_ending
from manifest_platform.warehouse.tables import Staged, Tables, check_written, stored_columns


class NameKept(Exception):
    """A table cannot be renamed, because of an index or an open reader for example. `error`: the engine's error."""

    def __init__(self, table: str, error: WarehouseError) -> None:
        self.error = error
        super().__init__(f"because {table} cannot be renamed: {str(error).splitlines()[0]}")


class Replacement(ABC):
    """The replacement of rows in one attempt at a full load. The methods are called in this order."""

    @abstractmethod
    def build(self, listing: Listing, staged: Mapping[str, Staged], emptied: Collection[str], now: datetime) -> None:
        """Prepares the replacement, outside of the transaction. `emptied`: the tables that the snapshot lacks."""

    @abstractmethod
    def make_room(self, item: str) -> list[str]:
        """Adds columns that the rows need to tables that stay; returns what to tell people. Raises IncompatibleChange."""

    @abstractmethod
    def swap(self, transaction: Transaction) -> None:
        """Replaces the rows of all tables. Readers see the change at COMMIT. Raises NameKept, CountMismatch."""

    @abstractmethod
    def keep_tables(self, why: str) -> None:
        """Switches to replacing the rows of all tables, because one of the tables cannot be renamed."""

    @abstractmethod
    def drop(self) -> None:
        """Drops what is not needed any more. Ignores errors: the next full load drops the rest."""


def replacement(engine: Engine, tables: Tables, epoch: int, token: int) -> Replacement:
    """Returns the replacement in the engine's way."""
    return Shadows(engine, tables, epoch, token) if engine.swaps_names else InPlace(tables)


class InPlace(Replacement):
    """The replacement of rows within the transaction, straight from the staged rows. Every table fits its rows already."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._item, self._now = "", datetime.now(UTC)
        self._staged: dict[str, Staged] = {}
        self._replaced: list[str] = []

    def build(self, listing: Listing, staged: Mapping[str, Staged], emptied: Collection[str], now: datetime) -> None:
        """Chooses the tables: those that the snapshot brings, and those that it lacks and the warehouse has."""
        self._item, self._now = listing.item, now
        brought = [table.name for table in listing.tables if table.mode == "replace"]
        self._staged = {name: staged[name] for name in brought if name in staged}
        self._replaced = [*brought, *(name for name in emptied if self._tables.columns_of(name) is not None)]

    def make_room(self, item: str) -> list[str]:
        """Returns nothing to tell: replacing rows in place is the engine's normal way, and `Tables.room_for` made the room."""
        return []

    def swap(self, transaction: Transaction) -> None:
        """Deletes all rows of each table and inserts the staged rows. Raises CountMismatch."""
        for name in self._replaced:
            transaction.write(f"DELETE FROM {self._tables.qualified(name)}")  # noqa: S608
            if one := self._staged.get(name):
                check_written(self._item, one, transaction.write(*self._tables.insertion(one, name, self._now)))

    def keep_tables(self, why: str) -> None:
        """Changes nothing: every table stays."""

    def drop(self) -> None:
        """Changes nothing: there are no other tables."""


class Shadows(Replacement):
    """The shadow tables of one attempt at a full load, by the names that they will get."""

    def __init__(self, engine: Engine, tables: Tables, epoch: int, token: int) -> None:
        self._engine, self._tables = engine, tables
        self._suffix = f"e{epoch}_t{token}"
        self._built: dict[str, dict[str, str]] = {}
        self._rows: dict[str, int] = {}
        self._replaced: list[str] = []
        self._kept: dict[str, str] = {}  # the reason why a table's rows are replaced, instead of the table

    def build(self, listing: Listing, staged: Mapping[str, Staged], emptied: Collection[str], now: datetime) -> None:
        """Creates and fills a shadow table for each replaced table, and an empty shadow table for each emptied table."""
        for table in listing.tables:
            if table.mode == "replace":
                old, new = self._tables.columns_of(table.name) or {}, stored_columns(table)
                stored = self._tables.spelled(old, new)
                # The snapshot's types are used: none of the old values, which may have other types, stays.
                self._create(table.name, {**old, **{stored[name]: type_ for name, type_ in new.items()}})
                if one := staged.get(table.name):
                    statement, parameters = self._tables.insertion(one, self._shadow(table.name), now, stored)
                    self._rows[table.name] = self._engine.write(statement, parameters)
                    check_written(listing.item, one, self._rows[table.name])
        for name in emptied:
            if columns := self._tables.columns_of(name):
                self._create(name, columns)
        self._replaced = [name for name in self._built if self._tables.columns_of(name) is not None]
        attached = self._engine.attached(self._tables.schema) if self._replaced else {}
        compared = self._engine.compared
        found = {compared(name): what for name, what in attached.items()}
        self._kept = {
            name: f"because it has {', '.join(found[compared(name)])}" for name in self._replaced if compared(name) in found
        }

    def _create(self, name: str, columns: dict[str, str]) -> None:
        self._engine.execute(self._tables.creation(self._shadow(name), columns))
        self._built[name] = columns

    def keep_tables(self, why: str) -> None:
        """Switches to replacing the rows of all tables, because one of the tables cannot be renamed."""
        self._kept = dict.fromkeys(self._replaced, why) | self._kept

    def make_room(self, item: str) -> list[str]:
        """Adds columns that the rows need to tables that stay; returns why they stay. Raises IncompatibleChange."""
        for name, why in self._kept.items():
            self._tables.make_fit(name, self._built[name], item, why)
        return [f"table {name}: its rows were replaced in place, {why}" for name, why in self._kept.items()]

    def swap(self, transaction: Transaction) -> None:
        """Renames each shadow table to the name of its table, or copies its rows into the table if that stays.

        Readers see the change at COMMIT. Raises NameKept, CountMismatch.
        """
        for name in self._kept:
            self._replace_rows(transaction, name)
        qualified, quote = self._tables.qualified, self._engine.quote
        renamed = [name for name in self._built if name not in self._kept]
        for name in renamed:
            if name in self._replaced:
                self._rename(transaction, name, self._engine.rename(qualified(name), quote(self._old(name))))
        for name in renamed:
            self._rename(transaction, name, self._engine.rename(qualified(self._shadow(name)), quote(name)))

    def _rename(self, transaction: Transaction, name: str, statement: str) -> None:
        refuse_but_rename(statement)
        try:
            transaction.rename(statement)
        except (LoadFailed, Conflict) as error:
            raise NameKept(name, error) from error

    def _replace_rows(self, transaction: Transaction, name: str) -> None:
        table, columns = self._tables.qualified(name), self._tables.names(self._built[name])
        transaction.write(f"DELETE FROM {table}")  # noqa: S608
        written = transaction.write(
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {self._tables.qualified(self._shadow(name))}"  # noqa: S608
        )
        if written != self._rows.get(name, 0):
            raise CountMismatch(f"table {name} got {written} rows instead of {self._rows.get(name, 0)}. Nothing was loaded")

    def drop(self) -> None:
        """Drops the replaced tables and unused shadow tables. Ignores errors: the next full load drops the rest."""
        with suppress(WarehouseError):
            for name in self._built:
                for left in (self._shadow(name), self._old(name)):
                    self._engine.execute(f"DROP TABLE IF EXISTS {self._tables.qualified(left)}")

    def _shadow(self, name: str) -> str:
        return with_ending(name, f"__mp_shadow_{self._suffix}", self._engine.longest_name)

    def _old(self, name: str) -> str:
        return with_ending(name, f"__mp_old_{self._suffix}", self._engine.longest_name)
