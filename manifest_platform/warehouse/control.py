"""What the warehouse knows of its data tables beside ledger and fence: what each is, and what the source has dropped."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from manifest_platform.listing import Listing, Retired
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, Engine
from manifest_platform.warehouse.tables import naive
from manifest_platform.warehouse.transaction import Transaction

_TABLES = {"dataset": "string", "table": "string", "feed": "string", "mode": "string"}
_RETIRED = {"dataset": "string", "table": "string", "column": "string", "item": "string", "retired_at": "timestamp"}


class KnownTable(NamedTuple):
    """That a feed loads a data table, and in which mode."""

    table: str
    feed: str
    mode: str


@dataclass(frozen=True)
class RetiredEntry:
    """A table, or a column of one, that the source has dropped: which item said so, and when that was loaded (UTC)."""

    table: str
    column: str | None
    item: str
    retired_at: datetime


class KnownTables:
    """What each data table of a dataset is: a snapshot empties those that it lacks, but none of another feed's."""

    def __init__(self, engine: Engine, dataset: str) -> None:
        self._engine, self._dataset = engine, dataset
        self._known: frozenset[KnownTable] | None = None

    def create(self) -> None:
        """Creates the table, where absent."""
        self._engine.execute(creation(self._engine, self._table, _TABLES))

    def read(self) -> frozenset[KnownTable]:
        """All that were remembered, as last seen."""
        if self._known is None:
            found = self._engine.execute(
                f'SELECT DISTINCT "table", "feed", "mode" FROM {self._table} WHERE "dataset" = ?',  # noqa: S608
                (self._dataset,),
            )
            self._known = frozenset(KnownTable(*row) for row in found)
        return self._known

    def remember(self, tables: Collection[KnownTable]) -> None:
        """Adds tables. Two workers may add the same one, which is then there twice, and known."""
        marks = ", ".join("(?, ?, ?, ?)" for _ in tables)
        self._engine.write(
            f'INSERT INTO {self._table} ("dataset", "table", "feed", "mode") VALUES {marks}',  # noqa: S608
            [value for table in tables for value in (self._dataset, *table)],
        )
        self.forget()

    def forget(self) -> None:
        """Makes the next question ask the warehouse."""
        self._known = None

    @property
    def _table(self) -> str:
        return self._engine.qualified(CONTROL_SCHEMA, "tables")


class RetiredEntries:
    """What the source of a dataset has dropped and not brought back. The data stays; this says that it gets no older."""

    def __init__(self, engine: Engine, dataset: str) -> None:
        self._engine, self._dataset = engine, dataset

    def create(self) -> None:
        """Creates the table, where absent."""
        self._engine.execute(creation(self._engine, self._table, _RETIRED))

    def read(self) -> list[RetiredEntry]:
        """All entries, by table and column; writes nothing, and finds none where nothing was ever loaded."""
        if "retired" not in self._engine.columns(CONTROL_SCHEMA):
            return []
        found = self._engine.execute(
            f'SELECT "table", "column", "item", "retired_at" FROM {self._table} WHERE "dataset" = ? '  # noqa: S608
            'ORDER BY "table", "column"',
            (self._dataset,),
        )
        return [RetiredEntry(table, column or None, item, at.replace(tzinfo=UTC)) for table, column, item, at in found]

    def update(self, transaction: Transaction, listing: Listing, now: datetime) -> None:
        """Enters what a listing retires, once, and takes out what it brings back."""
        # A table as a whole has the empty text for its column: NULL equals nothing.
        found = transaction.rows(f'SELECT "table", "column" FROM {self._table} WHERE "dataset" = ?', (self._dataset,))  # noqa: S608
        entered = {Retired(table, column or None) for table, column in found}
        retired = set(listing.retired)
        for back in (entered & _brought(listing)) - retired:
            transaction.write(
                f'DELETE FROM {self._table} WHERE "dataset" = ? AND "table" = ? AND "column" = ?',  # noqa: S608
                (self._dataset, back.table, back.column or ""),
            )
        for gone in retired - entered:
            transaction.write(
                f'INSERT INTO {self._table} ("dataset", "table", "column", "item", "retired_at") VALUES (?, ?, ?, ?, ?)',  # noqa: S608
                (self._dataset, gone.table, gone.column or "", listing.item, naive(now)),
            )

    @property
    def _table(self) -> str:
        return self._engine.qualified(CONTROL_SCHEMA, "retired")


def _brought(listing: Listing) -> set[Retired]:
    """The tables that a listing has columns of, and these columns."""
    columns = {Retired(table.name, column.name) for table in listing.tables for column in table.columns}
    return columns | {Retired(table.name) for table in listing.tables if table.columns}


def creation(engine: Engine, table: str, columns: dict[str, str], key: str = "") -> str:
    """The statement that makes a control table, where absent; of a key only the text in it is used."""
    definitions = ", ".join(f"{engine.quote(name)} {engine.sql_type(type_)}" for name, type_ in columns.items())
    return f"CREATE TABLE IF NOT EXISTS {table} ({definitions}{key})"
