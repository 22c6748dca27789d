"""The data tables of one schema: the DDL that makes room for a listing, and the statements that move its rows.

Belongs here: what concerns single tables and their rows. When they move, and whether they may, is `apply`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from manifest_platform.column_types import widened
from manifest_platform.listing import Column, Listing, Table
from manifest_platform.warehouse.engines.engine import Engine, Staging, Transaction
from manifest_platform.warehouse.errors import CountMismatch, DuplicateKey, IncompatibleChange, KeyMissing

LOAD_TIME = Column("load_tstamp", "timestamp")
# Only the event table gets the load's time: all other tables of an event are joined to it, so that once is enough.
TABLES_WITH_LOAD_TIME = frozenset({"events"})

# A name that no target has, or a DELETE would compare the staged rows with themselves.
_STAGED = '"__mp_staged"'
_PASSING = re.compile(r".+__mp_(shadow|old)_e\d+_t\d+", re.DOTALL)
_KEYS_SHOWN = 3


@dataclass(frozen=True)
class Staged:
    """Rows of a table that wait to be moved. Those of a `merge`, `delete` or `replace` table were counted and looked through.

    `rows`: how many there are; `keys`: how many are left where those that are alike in everything count once.
    """

    table: Table
    staging: Staging
    rows: int | None = None
    keys: int | None = None

    @property
    def selecting(self) -> str:
        """How to select them: once each."""
        return "SELECT" if self.keys == self.rows else "SELECT DISTINCT"


def is_passing(table: str) -> bool:
    """Whether a table's name is that of a snapshot's tables before or after it is current: nobody's data."""
    return bool(_PASSING.fullmatch(table))


class Tables:
    """The data tables of one schema over an engine. Remembers their columns until told to `forget` them."""

    def __init__(self, engine: Engine, schema: str) -> None:
        self._engine = engine
        self.schema = schema
        self.known: dict[str, dict[str, str]] | None = None  # None: ask the catalog

    def columns(self) -> dict[str, dict[str, str]]:
        """The logical type of every column by table and column, as last seen."""
        if self.known is None:
            self.known = {name: found for name, found in self._engine.columns(self.schema).items() if not is_passing(name)}
        return self.known

    def forget(self) -> None:
        """Makes the next question ask the catalog."""
        self.known = None

    def passing(self) -> list[str]:
        """The tables that full loads left behind, or are about to rename."""
        return sorted(name for name in self._engine.columns(self.schema) if is_passing(name))

    # Room for a listing, outside of transactions: engines commit at DDL, or refuse it within.

    def additive_changes(self, listing: Listing) -> list[Callable[[], object]]:
        """What makes room for a listing, to be called in turn; raises IncompatibleChange before anything is changed."""
        have = self.columns()
        changes: list[Callable[[], object]] = []
        for table in listing.tables:
            if table.mode not in ("append", "merge"):
                continue  # deletes are not kept, and a snapshot brings tables of its own
            wanted = stored_columns(table)
            if table.name in have:
                changes += self._column_changes(table.name, have[table.name], wanted, listing.item)
            else:
                changes.append(partial(self._engine.execute, self.creation(table.name, wanted)))
        return changes

    def creation(self, name: str, columns: dict[str, str]) -> str:
        """The statement that makes a table. No NOT NULL: a later directory may lack a column that this one has."""
        return f"CREATE TABLE IF NOT EXISTS {self.qualified(name)} ({self.definitions(columns)})"

    def _column_changes(
        self, table: str, have: dict[str, str], wanted: dict[str, str], item: str
    ) -> Iterator[Callable[[], object]]:
        sql_type, qualified = self._engine.sql_type, self.qualified(table)
        for name, type_ in wanted.items():
            column = self._engine.quote(name)
            if name not in have:
                yield partial(self._engine.execute, f"ALTER TABLE {qualified} ADD COLUMN {column} {sql_type(type_)}")
                continue
            if sql_type(type_) == sql_type(have[name]):
                continue
            wider = widened(have[name], type_)
            if wider is None:
                raise IncompatibleChange(
                    f"table {self.schema}.{table}, column {name}: the warehouse has {have[name]}, {item} brings {type_}, and "
                    "neither holds the other without loss; nothing was changed. Give the column a new name in the source's "
                    "schema, or convert it in the warehouse by hand, then resolve the item"
                )
            if sql_type(wider) != sql_type(have[name]):
                yield partial(self._engine.widen, qualified, column, sql_type(wider))

    # Staged rows, looked through before anything is changed.

    def look_through(self, table: Table, staging: Staging, expected: int, item: str) -> Staged:
        """Counts the staged rows of a table whose rows go by key, and looks whether each key occurs once.

        Raises CountMismatch, KeyMissing (a row lacks a part of its key) and DuplicateKey (two rows of a key differ). Of those
        to delete the key alone matters, so that they may differ.
        """
        if not table.key:
            [(rows,)] = self._engine.execute(f"SELECT count(*) FROM {staging.sql}", staging.parameters)  # noqa: S608
            keys, missing = rows, 0
        else:
            key = self.names(table.key)
            lacks = " OR ".join(f"{self._engine.quote(name)} IS NULL" for name in table.key)
            [(rows, keys, missing)] = self._engine.execute(
                'SELECT coalesce(sum("__mp_rows"), 0), count(*), coalesce(sum("__mp_lacks"), 0) FROM '  # noqa: S608
                f'(SELECT count(*) AS "__mp_rows", max(CASE WHEN {lacks} THEN 1 ELSE 0 END) AS "__mp_lacks" '
                f'FROM {staging.sql} GROUP BY {key}) AS "__mp_keys"',
                staging.parameters,
            )
        check_counts(item, {table.name: int(rows)}, {table.name: expected})
        if missing:
            raise KeyMissing(
                f"{item}: a row of table {table.name} lacks a part of its key ({', '.join(table.key)}), so that nothing could "
                "ever replace it; nothing was changed. Rows without a key belong to the bad rows: shred the item again"
            )
        if keys != rows and table.mode != "delete":
            self._refuse_contradictions(table, staging, item)
        return Staged(table, staging, int(rows), keys)

    def _refuse_contradictions(self, table: Table, staging: Staging, item: str) -> None:
        key, columns = self.names(table.key), self.names([column.name for column in table.columns])
        found = self._engine.execute(
            f'SELECT {key} FROM (SELECT DISTINCT {columns} FROM {staging.sql}) AS "__mp_rows" '  # noqa: S608
            f"GROUP BY {key} HAVING count(*) > 1 ORDER BY {key} LIMIT {_KEYS_SHOWN}",
            staging.parameters,
        )
        if found:
            shown = ", ".join(repr(row[0] if len(row) == 1 else row) for row in found)
            raise DuplicateKey(
                f"{item}: table {table.name} has several rows with the same key ({', '.join(table.key)}) and other content, "
                f"such as {shown}; which one holds is not for us to choose, so nothing was changed. Ask the source, then skip "
                "the item or land it anew"
            )

    # The rows, within a transaction.

    def delete(self, transaction: Transaction, staged: Staged, target: str) -> None:
        """Removes the rows of a table that have the key of a staged one, each key column compared with its own."""
        quote = self._engine.quote
        same = " AND ".join(f"{_STAGED}.{quote(name)} = {quote(target)}.{quote(name)}" for name in staged.table.key)
        transaction.write(
            f"DELETE FROM {self.qualified(target)} WHERE EXISTS "  # noqa: S608
            f"(SELECT 1 FROM {staged.staging.sql} AS {_STAGED} WHERE {same})",
            staged.staging.parameters,
        )

    def upsert(self, transaction: Transaction, staged: Staged, now: datetime, item: str) -> None:
        """Puts staged rows in place of those with their key. Raises CountMismatch where they are other ones than before."""
        self.delete(transaction, staged, staged.table.name)
        check_written(item, staged, transaction.write(*self.insertion(staged, staged.table.name, now)))

    def append(self, transaction: Transaction, staged: Staged, now: datetime) -> int:
        """Adds staged rows and returns how many."""
        return transaction.write(*self.insertion(staged, staged.table.name, now))

    def insertion(self, staged: Staged, target: str, now: datetime) -> tuple[str, Sequence[object]]:
        """The statement, with its values, that adds staged rows to a table by the names of their columns."""
        names = self.names([column.name for column in staged.table.columns])
        columns, selected, parameters = names, names, staged.staging.parameters
        if staged.table.name in TABLES_WITH_LOAD_TIME:
            columns = f"{columns}, {self._engine.quote(LOAD_TIME.name)}"
            selected = f"{selected}, CAST(? AS {self._engine.sql_type(LOAD_TIME.type)})"
            parameters = (naive(now), *parameters)
        into = f"INSERT INTO {self.qualified(target)} ({columns})"
        return f"{into} {staged.selecting} {selected} FROM {staged.staging.sql}", parameters

    # Names.

    def qualified(self, name: str) -> str:
        """The quoted name of a table in the schema."""
        return self._engine.qualified(self.schema, name)

    def names(self, names: Sequence[str] | dict[str, str]) -> str:
        """Quoted names as a list."""
        return ", ".join(self._engine.quote(name) for name in names)

    def definitions(self, columns: dict[str, str]) -> str:
        """Columns with their types, as a new table's."""
        return ", ".join(f"{self._engine.quote(name)} {self._engine.sql_type(type_)}" for name, type_ in columns.items())


def stored_columns(table: Table) -> dict[str, str]:
    """The columns, by name, that a table has in the warehouse."""
    columns = (*table.columns, LOAD_TIME) if table.name in TABLES_WITH_LOAD_TIME else table.columns
    return {column.name: column.type for column in columns}


def check_counts(item: str, rows: dict[str, int], expected: dict[str, int]) -> None:
    """Raises CountMismatch unless each table's rows are as many as expected."""
    if rows != expected:
        wrong = [f"{name}: {rows[name]} instead of {expected[name]}" for name in rows if rows[name] != expected[name]]
        raise CountMismatch(
            f"{item}: rows read from its objects differ from its listing ({'; '.join(wrong)}); nothing was loaded. "
            "Shred the item again"
        )


def check_written(item: str, staged: Staged, written: int) -> None:
    """Raises CountMismatch where the rows that were written are not those that were looked through."""
    if written != staged.keys:
        raise CountMismatch(
            f"{item}: table {staged.table.name} gave {written} rows after {staged.keys} were counted: its objects were altered "
            "meanwhile; nothing was loaded. Shred the item again"
        )


def naive(time_: datetime) -> datetime:
    """UTC without a zone, as the warehouse keeps times."""
    return time_.astimezone(UTC).replace(tzinfo=None)
