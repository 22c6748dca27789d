"""The data tables of one schema: the DDL that makes room for a listing, and the statements that move its rows.

Belongs here: what concerns single tables and their rows. When they move, and whether they may, is `apply`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from manifest_platform.column_names import matched, spelled
from manifest_platform.listing import Column, Table
from manifest_platform.remedies import LAND_ANEW, Action, Remedy
from manifest_platform.warehouse.columns import Fit, Misfit, Renamed, fit
from manifest_platform.warehouse.engines.engine import Engine, Staging, Transaction
from manifest_platform.warehouse.errors import CountMismatch, DuplicateKey, IncompatibleChange, KeyMissing
from manifest_platform.warehouse.load import Load

LOAD_TIME = Column("load_tstamp", "timestamp")

# A name that no target has, or a DELETE would compare the staged rows with themselves.
_STAGED, _THERE = '"__mp_staged"', '"__mp_there"'
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


@dataclass
class Room:
    """What makes room for a load: `changes`, to be called in turn. `renamed`: columns that are stored under another name."""

    changes: list[Callable[[], object]] = field(default_factory=list)
    renamed: list[Renamed] = field(default_factory=list)


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

    def counts(self, names: Sequence[str]) -> dict[str, int]:
        """How many rows tables hold, by one query."""
        each = (f"SELECT {place}, count(*) FROM {self.qualified(name)}" for place, name in enumerate(names))  # noqa: S608
        counting = " UNION ALL ".join(each)
        return {names[place]: rows for place, rows in self._engine.execute(counting)} if names else {}

    def forget(self) -> None:
        """Makes the next question ask the catalog."""
        self.known = None

    def passing(self) -> list[str]:
        """The tables that full loads left behind, or are about to rename."""
        return sorted(name for name in self._engine.columns(self.schema) if is_passing(name))

    # Room for a listing, outside of transactions: engines commit at DDL, or refuse it within.

    def room_for(self, load: Load) -> Room:
        """What makes room for a load; raises IncompatibleChange before anything is changed."""
        room = Room()
        for table in load.listing.tables:
            wanted, have = stored_columns(table), self.columns().get(table.name)
            if table.mode == "replace":
                pairs = spelled(have or {}, wanted).items()
                room.renamed += [Renamed(table.name, name, stored) for name, stored in pairs if name != stored]
            if table.mode not in ("append", "merge"):
                continue  # deletes are not kept, and a snapshot brings tables of its own
            if have is None:
                room.changes.append(partial(self._engine.execute, self.creation(table.name, wanted)))
                continue
            # A snapshot replaces no table that it merges, so that no full load would help where its type changes.
            beside = load.splits_types if table.mode == "append" else load.full is not None
            try:
                found = self._fit(table.name, wanted, beside, () if table.mode == "append" else table.key)
            except Misfit as error:
                raise self._incompatible(load, table.name, error) from error
            room.changes += self._column_changes(table.name, found)
            room.renamed += [Renamed(table.name, name, stored) for name, stored in found.renamed.items()]
        return room

    def make_fit(self, name: str, columns: Mapping[str, str], item: str, why: str) -> None:
        """Gives a table that stays, and cannot be replaced, what rows with these columns need. Raises IncompatibleChange."""
        try:
            found = self._fit(name, columns)
        except Misfit as error:
            raise IncompatibleChange(
                f"table {self.schema}.{name}, column {error.column}: the warehouse has {error.have}, and {error.want} comes "
                f"with {item}; the table stays, {why}. Nothing was changed. Drop that, resolve the item, and make it anew "
                "after the load"
            ) from error
        changes = list(self._column_changes(name, found))
        for change in changes:
            change()
        if changes:
            self.forget()

    def _fit(self, name: str, wanted: Mapping[str, str], beside: bool = False, key: Sequence[str] = ()) -> Fit:
        return fit(self.columns().get(name, {}), wanted, self._alike, beside, key)

    def _alike(self, one: str, other: str) -> bool:
        return self._engine.sql_type(one) == self._engine.sql_type(other)

    def _incompatible(self, load: Load, table: str, misfit: Misfit) -> IncompatibleChange:
        what = (
            f"table {self.schema}.{table}, column {misfit.column}: the warehouse has {misfit.have}, {load.item} brings "
            f"{misfit.want}, and neither holds the other without loss; nothing was changed. "
        )
        if load.snapshots:
            return IncompatibleChange(
                f"{what}A full load with a snapshot that was taken since replaces the table, and has the new type. Where the "
                "new one is wrong, set shred.types and reshred the item: resolved, it is loaded as it was shredded",
                Remedy(Action.BEGIN_FULL_LOAD),
            )
        return IncompatibleChange(
            f"{what}Give the column a new name, or another type, where the item is shredded (the source's schema, shred.types),"
            " or convert it in the warehouse by hand; then reshred the item: resolved, it is loaded as it was shredded",
            Remedy(Action.RESHRED),
        )

    def creation(self, name: str, columns: dict[str, str]) -> str:
        """The statement that makes a table. No NOT NULL: a later directory may lack a column that this one has."""
        return f"CREATE TABLE IF NOT EXISTS {self.qualified(name)} ({self.definitions(columns)})"

    def _column_changes(self, table: str, found: Fit) -> Iterator[Callable[[], object]]:
        sql_type, quote, qualified = self._engine.sql_type, self._engine.quote, self.qualified(table)
        for name, type_ in found.added.items():
            yield partial(self._engine.execute, f"ALTER TABLE {qualified} ADD COLUMN {quote(name)} {sql_type(type_)}")
        for name, type_ in found.wider.items():
            yield partial(self._engine.widen, qualified, quote(name), sql_type(type_))

    # Staged rows, looked through before anything is changed.

    def look_through(self, table: Table, staging: Staging, load: Load) -> Staged:
        """Counts the staged rows of a load's table whose rows go by key, and looks whether each key occurs once.

        Raises CountMismatch, KeyMissing (a row lacks a part of its key) and DuplicateKey (two rows of a key differ). Of those
        to delete the key alone matters, so that they may differ.
        """
        item, expected = load.item, load.listing.rows(table.name)
        if not table.key or table.mode == "append":
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
            self._refuse_contradictions(table, staging, load)
        return Staged(table, staging, int(rows), keys)

    def _refuse_contradictions(self, table: Table, staging: Staging, load: Load) -> None:
        key, columns = self.names(table.key), self.names([column.name for column in table.columns])
        found = self._engine.execute(
            f'SELECT {key} FROM (SELECT DISTINCT {columns} FROM {staging.sql}) AS "__mp_rows" '  # noqa: S608
            f"GROUP BY {key} HAVING count(*) > 1 ORDER BY {key} LIMIT {_KEYS_SHOWN}",
            staging.parameters,
        )
        if found:
            shown = ", ".join(repr(row[0] if len(row) == 1 else row) for row in found)
            key_columns = ", ".join(table.key)
            what = (
                f"{load.item}: table {table.name} has several rows with the same key ({key_columns}) and other content, "
                f"such as {shown}; which one holds is not for us to choose, so nothing was changed. Ask the source. "
            )
            if load.snapshots:
                raise DuplicateKey(
                    f"{what}A full load with a snapshot that was taken since has the row that holds; or accept the item once it"
                    " was landed anew",
                    Remedy(Action.BEGIN_FULL_LOAD),
                )
            raise DuplicateKey(f"{what}Land the item anew, then accept it; or skip it", LAND_ANEW)

    # The rows, within a transaction.

    def delete(self, transaction: Transaction, staged: Staged, target: str) -> None:
        """Removes the rows of a table that have the key of a staged one, each key column compared with its own."""
        quote, have = self._engine.quote, self.columns().get(target, {})
        same = " AND ".join(
            f"{_STAGED}.{quote(name)} = {quote(target)}.{quote(matched(have, name) or name)}" for name in staged.table.key
        )
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

    def append_once(self, transaction: Transaction, staged: Staged, now: datetime) -> int:
        """Adds the staged rows that a table does not have, by their key, or without one by all their columns; how many."""
        columns = [column.name for column in staged.table.columns]
        stored, quote, target = self._stored(staged.table), self._engine.quote, self.qualified(staged.table.name)
        same = " AND ".join(
            f"({_THERE}.{quote(stored[name])} = {_STAGED}.{quote(name)}"
            + ("" if staged.table.key else f" OR ({_THERE}.{quote(stored[name])} IS NULL AND {_STAGED}.{quote(name)} IS NULL)")
            + ")"
            for name in staged.table.key or columns
        )
        statement, parameters = self.insertion(staged, staged.table.name, now, stored)
        absent = f"NOT EXISTS (SELECT 1 FROM {target} AS {_THERE} WHERE {same})"  # noqa: S608
        return transaction.write(f"{statement} AS {_STAGED} WHERE {absent}", parameters)

    def _stored(self, table: Table) -> dict[str, str]:
        """What a table calls the columns of a listing's. Raises IncompatibleChange."""
        try:
            return self._fit(table.name, stored_columns(table)).names
        except Misfit as error:  # somebody changed the table after there was room
            raise IncompatibleChange(f"table {self.schema}.{table.name}, {error}; nothing was changed") from error

    def insertion(
        self, staged: Staged, target: str, now: datetime, stored: Mapping[str, str] | None = None
    ) -> tuple[str, Sequence[object]]:
        """The statement, with its values, that adds staged rows to a table by the names of their columns.

        `stored`: what the table calls them; else as the table of their name calls them.
        """
        stored = self._stored(staged.table) if stored is None else stored
        names = [column.name for column in staged.table.columns]
        columns, selected = self.names([stored[name] for name in names]), self.names(names)
        parameters = staged.staging.parameters
        if staged.table.load_time:
            columns = f"{columns}, {self._engine.quote(stored[LOAD_TIME.name])}"
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
    columns = (*table.columns, LOAD_TIME) if table.load_time else table.columns
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
