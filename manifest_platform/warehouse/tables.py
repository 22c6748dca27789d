"""The data tables of one schema: the DDL that adds what a listing needs, and the statements that move its rows.

This module covers single tables and their rows. `apply` decides when and if they move.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from manifest_platform.column_names import matched, spelled
from manifest_platform.column_types import widened
from manifest_platform.listing import Column, Table
from manifest_platform.remedies import LAND_ANEW, Action, Remedy
from manifest_platform.warehouse.columns import Fit, Misfit, Renamed, fit, joined_otherwise
from manifest_platform.warehouse.engines.engine import Engine, Staging, TextSize, Transaction
from manifest_platform.warehouse.errors import CountMismatch, DuplicateKey, IncompatibleChange, KeyMissing, LoadFailed
from manifest_platform.warehouse.load import Load

LOAD_TIME = Column("load_tstamp", "timestamp")

# No table of the warehouse may have this alias, or a DELETE would compare the staged rows with themselves.
_STAGED, _THERE, _PART = '"__mp_staged"', '"__mp_there"', '"__mp_part"'
_NEW, _LEAST = '"__mp_new"', '"__mp_least"'
_PASSING = re.compile(r".+__mp_(shadow|old)_e\d+_t\d+", re.DOTALL)
_SIZED = re.compile(r"string\((\d+)\)")
_KEYS_SHOWN = 3


@dataclass(frozen=True)
class Staged:
    """The staged rows of a table. Rows of a `merge`, `delete` or `replace` table have been counted and checked.

    `rows`: their number. `keys`: their number if fully identical rows count once.
    """

    table: Table
    staging: Staging
    rows: int | None = None
    keys: int | None = None

    @property
    def selecting(self) -> str:
        """The keyword that selects each distinct row once."""
        return "SELECT" if self.keys == self.rows else "SELECT DISTINCT"


@dataclass
class Room:
    """The DDL that a load needs: `changes`, to call in order. `renamed`: columns that are stored under another name."""

    changes: list[Callable[[], object]] = field(default_factory=list)
    renamed: list[Renamed] = field(default_factory=list)


def is_passing(table: str) -> bool:
    """True if a name is that of a temporary table of a full load, which may be dropped unless a full load is running."""
    return bool(_PASSING.fullmatch(table))


class Tables:
    """The data tables of one schema. Caches their columns until `forget` is called."""

    def __init__(self, engine: Engine, schema: str) -> None:
        self._engine = engine
        self.schema = schema
        self.known: dict[str, dict[str, str]] | None = None  # None: read the catalog
        self._by_form: dict[str, dict[str, str]] = {}
        self._fitting: dict[str, tuple[Table, bool, bool]] = {}  # each table's newest description that needed no change
        self._sizes: dict[str, dict[str, TextSize]] | None = None
        self._stay_short: set[tuple[str, str]] = set()  # tables and columns that the engine has refused to make longer

    def columns(self) -> dict[str, dict[str, str]]:
        """Returns the logical type of every column, by table and column, cached."""
        if self.known is None:
            self.known = {name: found for name, found in self._engine.columns(self.schema).items() if not is_passing(name)}
            self._by_form = {self._engine.compared(name): found for name, found in self.known.items()}
        return self.known

    def columns_of(self, name: str) -> dict[str, str] | None:
        """Returns the columns of the table with a listing's name; None if it does not exist. Cached."""
        self.columns()
        return self._by_form.get(self._engine.compared(name))

    def counts(self, names: Sequence[str]) -> dict[str, int]:
        """Returns the number of rows of each table, with one query."""
        each = (f"SELECT {place}, count(*) FROM {self.qualified(name)}" for place, name in enumerate(names))  # noqa: S608
        counting = " UNION ALL ".join(each)
        return {names[place]: rows for place, rows in self._engine.execute(counting)} if names else {}

    def forget(self) -> None:
        """Clears the cache: the next question reads the catalog."""
        self.known = self._sizes = None
        self._fitting.clear()

    def passing(self) -> list[str]:
        """Returns the temporary tables that full loads left behind, or are about to rename."""
        return sorted(name for name in self._engine.columns(self.schema) if is_passing(name))

    # DDL for a listing, outside of transactions: some engines commit at DDL, or refuse it in a transaction.

    def room_for(self, load: Load) -> Room:
        """Returns the DDL that a load needs. Raises IncompatibleChange before anything is changed."""
        room = Room()
        self._refuse_names(load)
        for table in load.listing.tables:
            wanted, have = stored_columns(table), self.columns_of(table.name)
            stored = self._engine.stored_name(table.name)
            if table.mode != "delete" and stored != table.name:
                room.renamed.append(Renamed(table.name, "", stored))
            if table.mode == "delete":
                continue  # deletes are not stored
            if table.mode == "replace" and self._engine.swaps_names:  # such a snapshot creates its own tables
                pairs = self.spelled(have or {}, wanted).items()
                room.renamed += [Renamed(table.name, name, stored) for name, stored in pairs if name != stored]
                continue
            if have is None:
                self._refuse_width(table.name, len(wanted))
                room.changes.append(partial(self._engine.execute, self.creation(table.name, wanted, table)))
                pairs = self.spelled({}, wanted).items()
                room.renamed += [Renamed(table.name, name, stored) for name, stored in pairs if name != stored]
                continue
            # A table that stays cannot get other types, so without a column beside it a full load could not resolve them.
            beside = load.splits_types if table.mode == "append" else load.full is not None
            if self._fitting.get(table.name) == (table, load.joins_names, beside):
                continue
            if load.joins_names:
                self._refuse_joined_otherwise(load, table.name, have, wanted)
            try:
                found = self._fit(
                    table.name, wanted, beside, () if table.mode == "append" else table.key, table.mode == "append"
                )
            except Misfit as error:
                raise self._incompatible(load, table.name, error) from error
            self._leave_short(table.name, found)
            room.changes += self._column_changes(table.name, found)
            room.renamed += [Renamed(table.name, name, stored) for name, stored in found.renamed.items()]
            room.renamed += [Renamed(table.name, name, name) for name in found.kept]
            if not (found.added or found.wider or found.renamed or found.kept):
                self._fitting[table.name] = table, load.joins_names, beside
        return room

    def _refuse_joined_otherwise(self, load: Load, table: str, have: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        if found := joined_otherwise(have, wanted):
            raise IncompatibleChange(
                f"table {self.schema}.{table} has the column {found[0]}, and {load.item} names it {found[1]}: shred.names was"
                " changed. Nothing was loaded. Set shred.names as it was, then reshred the item; or load all runs into a new"
                " dataset",
                Remedy(Action.RESHRED),
            )

    def _refuse_names(self, load: Load) -> None:
        by_form: dict[str, str] = {}
        for name in (table.name for table in load.listing.tables if table.mode != "delete"):
            other = by_form.setdefault(self._engine.compared(name), name)
            if other != name:
                one, two = sorted((other, name))
                raise IncompatibleChange(
                    f"{load.item}: {one} and {two} would be one table, because the warehouse matches names without case. "
                    "Nothing was changed. Shred one of them under another name",
                    Remedy(Action.RESHRED),
                )

    def make_fit(self, name: str, columns: Mapping[str, str], item: str, why: str) -> None:
        """Adds what rows with these columns need to a table that stays in place. Raises IncompatibleChange."""
        try:
            found = self._fit(name, columns)
        except Misfit as error:
            raise IncompatibleChange(
                f"table {self.schema}.{name}, column {error.column}: the warehouse has {error.have}, but {item} has "
                f"{error.want}. The table cannot be replaced, {why}. Nothing was changed. Drop that, resolve the item, and "
                "create it again after the load"
            ) from error
        changes = list(self._column_changes(name, found))
        for change in changes:
            change()
        if changes:
            self.forget()

    def _fit(
        self, name: str, wanted: Mapping[str, str], beside: bool = False, key: Sequence[str] = (), keeps_doubles: bool = False
    ) -> Fit:
        have = self.columns_of(name) or {}
        found = fit(have, wanted, self._alike, beside, key, self._engine.stored_name, keeps_doubles)
        self._refuse_width(name, len(have) + len(found.added))
        return found

    def _refuse_width(self, name: str, columns: int) -> None:
        most = self._engine.most_columns
        if most is not None and columns > most:
            raise IncompatibleChange(
                f"table {self.schema}.{name} would have {columns:,} columns, and the warehouse holds {most:,} in a table. "
                "Nothing was changed. Shred the item with fewer columns, or load it into another warehouse",
                Remedy(Action.RESHRED),
            )

    def _alike(self, one: str, other: str) -> bool:
        return one == other or self._engine.sql_type(one) == self._engine.sql_type(other)

    def _incompatible(self, load: Load, table: str, misfit: Misfit) -> IncompatibleChange:
        what = (
            f"table {self.schema}.{table}, column {misfit.column}: the warehouse has {misfit.have}, {load.item} has "
            f"{misfit.want}, and neither holds the other without loss. Nothing was changed. "
        )
        if load.full:
            return IncompatibleChange(
                f"{what}Key columns keep their type as long as the table stays. Drop the table with what depends on it, then "
                "resolve the item: the snapshot creates the table again, with all its rows"
            )
        if load.snapshots:
            return IncompatibleChange(
                f"{what}A full load with a later snapshot replaces the table, and has the new type. If the "
                "new type is wrong, set shred.types and reshred the item; resolve alone loads the old output again",
                Remedy(Action.BEGIN_FULL_LOAD),
            )
        return IncompatibleChange(
            f"{what}Give the column another name or type where the item is shredded (the source's schema, shred.types),"
            " or convert it in the warehouse by hand. Then reshred the item; resolve alone loads the old output again",
            Remedy(Action.RESHRED),
        )

    def creation(self, name: str, columns: dict[str, str], table: Table | None = None) -> str:
        """Returns the statement that creates a table if absent. `table`: its description in the listing."""
        return self._engine.table_creation(self.qualified(name), columns, table)

    def _column_changes(self, table: str, found: Fit) -> Iterator[Callable[[], object]]:
        sql_type, quote, qualified = self._engine.sql_type, self._engine.quote, self.qualified(table)
        for name, type_ in found.added.items():
            yield partial(self._engine.execute, f"ALTER TABLE {qualified} ADD COLUMN {quote(name)} {sql_type(type_)}")
        for name, type_ in found.wider.items():
            yield partial(self._widen, table, name, type_)

    def _widen(self, table: str, column: str, type_: str) -> None:
        """Gives a column a wider type. A text column of another loader that stays as it is holds shorter texts; see `short`."""
        qualified, name, sql_type = self.qualified(table), self._engine.quote(column), self._engine.sql_type(type_)
        try:
            self._engine.widen(qualified, name, sql_type)
        except LoadFailed:
            if not (self._engine.measures_texts and type_.startswith("string")):
                raise
            self._stay_short.add((table, column))

    def _leave_short(self, table: str, found: Fit) -> None:
        """Takes the text columns that cannot be made longer out of the columns to widen."""
        for column in [name for name, type_ in found.wider.items() if type_.startswith("string")]:
            if self.stays_short(table, column):
                del found.wider[column]

    def stays_short(self, table: str, column: str) -> bool:
        """True if a text column cannot be made longer."""
        size = self._size(table, column) if self._engine.measures_texts else None
        return (table, column) in self._stay_short or (size is not None and size.fixed)

    def short(self, table: Table) -> dict[str, int]:
        """Returns what text columns hold that hold less than the listing says, by the listing's names.

        Columns that the load makes longer are not among them. Sends a query only if there may be such columns.
        """
        target = (table.target if table.mode == "delete" else table.name) or ""
        have, found = self.columns_of(target) or {}, {}
        for column in table.columns:
            stored = matched(have, self._engine.stored_name(column.name))
            if not stored or not _SIZED.fullmatch(have[stored]):
                continue
            if self._engine.refuses_listed_lengths and widened(column.type, have[stored]) == have[stored]:
                continue
            if (self._alike(have[stored], column.type) or self.stays_short(target, stored)) and (
                size := self._size(target, stored)
            ):
                found[column.name] = size.most
        return found

    def _size(self, table: str, column: str) -> TextSize | None:
        """Returns what a text column holds. Cached."""
        if self._sizes is None:
            self._sizes = {self._engine.compared(name): found for name, found in self._engine.texts(self.schema).items()}
        return self._sizes.get(self._engine.compared(table), {}).get(column)

    def allow_nulls(self, load: Load) -> list[str]:
        """Lets columns be empty that another loader declared NOT NULL, and that a load may leave empty. Returns messages."""
        required = {self._engine.compared(name): found for name, found in self._engine.required(self.schema).items()}
        told = []
        for table in load.listing.tables:
            if table.mode == "delete" or not (columns := required.get(self._engine.compared(table.name))):
                continue
            if empty := nullable(table, columns, self._engine.stored_name):
                for column in empty:
                    self._engine.allow_null(self.qualified(table.name), self._engine.quote(column))
                told.append(f"table {table.name}: may be empty from now on, as the source says: {', '.join(empty)}")
        return told

    # Checks of staged rows, before anything is changed

    def look_through(self, staged: Sequence[tuple[Table, Staging]], load: Load) -> dict[str, Staged]:
        """Counts the staged rows of tables by one query, and checks that each key occurs once. Returns them by table.

        Raises CountMismatch, KeyMissing (a row lacks a part of its key) and DuplicateKey (two rows of a key differ). Rows to
        delete may differ, because only their keys matter.
        """
        if not staged:
            return {}
        found = self._engine.execute(
            " UNION ALL ".join(self._counting(place, table, staging) for place, (table, staging) in enumerate(staged)),
            [value for _, staging in staged for value in staging.parameters],
        )
        counted = {int(place): tuple(map(int, counts)) for place, *counts in found}
        return {
            table.name: self._checked(table, staging, load, *counted[place]) for place, (table, staging) in enumerate(staged)
        }

    def _counting(self, place: int, table: Table, staging: Staging) -> str:
        """Returns the query of a table's staged rows: its place among the tables, rows, keys, and keys that are not whole."""
        if not table.key or table.mode == "append":
            return f"SELECT {place}, count(*), count(*), 0 FROM {staging.sql}"  # noqa: S608
        key = self.names(table.key)
        lacks = " OR ".join(f"{self._engine.quote(name)} IS NULL" for name in table.key)
        return (
            f'SELECT {place}, coalesce(sum("__mp_rows"), 0), count(*), coalesce(sum("__mp_lacks"), 0) FROM '  # noqa: S608
            f'(SELECT count(*) AS "__mp_rows", max(CASE WHEN {lacks} THEN 1 ELSE 0 END) AS "__mp_lacks" '
            f'FROM {staging.sql} GROUP BY {key}) AS "__mp_keys"'
        )

    def _checked(self, table: Table, staging: Staging, load: Load, rows: int, keys: int, missing: int) -> Staged:
        item = load.item
        check_counts(item, {table.name: rows}, {table.name: load.listing.rows(table.name)})
        if missing:
            raise KeyMissing(
                f"{item}: a row of table {table.name} lacks a part of its key ({', '.join(table.key)}), so nothing could "
                "ever replace it. Nothing was changed. Rows without a key are bad rows. Shred the item again"
            )
        if keys != rows and table.mode != "delete":
            self._refuse_contradictions(table, staging, load)
        return Staged(table, staging, rows, keys)

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
                f"{load.item}: table {table.name} has several rows with the same key ({key_columns}) and different content, "
                f"such as {shown}. Only the source knows the valid row, so nothing was changed. Ask the source. "
            )
            if load.snapshots:
                raise DuplicateKey(
                    f"{what}A full load with a later snapshot has the valid row. Or land the item again, and then accept it",
                    Remedy(Action.BEGIN_FULL_LOAD),
                )
            raise DuplicateKey(f"{what}Land the item again, then accept it; or skip it", LAND_ANEW)

    # Row statements, within a transaction

    def delete(self, transaction: Transaction, target: str, several: Sequence[Staged]) -> None:
        """Deletes the rows of a table that have the key of a staged row, by one statement for all that spell the key alike."""
        alike: dict[tuple[tuple[str, str], ...], list[Staged]] = {}
        for staged in several:
            kinds = {column.name: column.type.partition("(")[0] for column in staged.table.columns}
            key = sorted((self._place(target, name), kinds[name]) for name in staged.table.key)
            alike.setdefault(tuple(key), []).append(staged)
        for key, some in alike.items():
            self._delete(transaction, target, [place for place, _ in key], some)

    def _place(self, target: str, name: str) -> str:
        return matched(self.columns_of(target) or {}, self._engine.stored_name(name)) or name

    def _delete(self, transaction: Transaction, target: str, key: Sequence[str], several: Sequence[Staged]) -> None:
        quote = self._engine.quote
        selects = []
        for staged in several:
            own = {self._place(target, name): name for name in staged.table.key}
            selected = ", ".join(f"{quote(own[place])} AS {quote(place)}" for place in key)
            selects.append(f"SELECT {selected} FROM {staged.staging.sql}")  # noqa: S608
        source = f"({' UNION ALL '.join(selects)}) AS {_STAGED}"
        same = [(f"{_STAGED}.{quote(place)}", f"{quote(target)}.{quote(place)}") for place in key]
        statement = self._engine.deletion(self.qualified(target), source, same, sum(staged.rows or 0 for staged in several))
        transaction.write(statement, [value for staged in several for value in staged.staging.parameters])

    def insert(self, transaction: Transaction, staged: Staged, now: datetime, item: str) -> None:
        """Inserts staged rows whose keys were deleted. Raises CountMismatch if the staged rows changed meanwhile."""
        check_written(item, staged, transaction.write(*self.insertion(staged, staged.table.name, now)))

    def append(self, transaction: Transaction, staged: Staged, now: datetime, source: Staging | None = None) -> int:
        """Inserts staged rows and returns their number. `source`: the rows, by default all staged rows."""
        return transaction.write(*self.insertion(staged, staged.table.name, now, source=source))

    def append_once(self, transaction: Transaction, staged: Staged, now: datetime) -> int:
        """Inserts the staged rows that a table lacks, by key, or by all columns without a key. Returns their number."""
        statement, parameters = self.insertion(staged, staged.table.name, now, source=self._lacking(staged))
        return transaction.write(statement, parameters)

    def _lacking(self, staged: Staged) -> Staging:
        """Returns the staged rows that a table lacks. No warehouse joins fast, or at all, where missing values are equal."""
        names, quote, target = [column.name for column in staged.table.columns], self._engine.quote, staged.table.name
        stored, staging = self.stored(staged.table), staged.staging
        if staged.table.key:
            same = " AND ".join(f"{_THERE}.{quote(stored[one])} = {_STAGED}.{quote(one)}" for one in staged.table.key)
            mine, absent = ", ".join(f"{_STAGED}.{quote(one)}" for one in names), quote(stored[staged.table.key[0]])
            return Staging(
                f"(SELECT {mine} FROM {staging.sql} AS {_STAGED} LEFT JOIN {self.qualified(target)} AS {_THERE} ON {same} "  # noqa: S608
                f'WHERE {_THERE}.{absent} IS NULL) AS "__mp_lacking"',
                staging.parameters,
            )
        columns, known = self.names(names), f"SELECT {self.names([stored[one] for one in names])} FROM {self.qualified(target)}"  # noqa: S608
        both = f"SELECT {columns} FROM {staging.sql} AS {_STAGED} INTERSECT {known}"  # noqa: S608
        marked = (
            f"SELECT {columns}, 1 AS {_NEW} FROM {staging.sql} AS {_STAGED} "  # noqa: S608
            f'UNION ALL SELECT {columns}, 0 FROM ({both}) AS "__mp_both"'
        )
        grouped = f"SELECT {columns}, {_NEW}, min({_NEW}) OVER (PARTITION BY {columns}) AS {_LEAST} FROM ({marked}) AS {_PART}"  # noqa: S608
        return Staging(
            f'(SELECT {columns} FROM ({grouped}) AS "__mp_grouped" WHERE {_NEW} = 1 AND {_LEAST} = 1) AS "__mp_lacking"',  # noqa: S608
            (*staging.parameters, *staging.parameters),
        )

    def stored(self, table: Table) -> dict[str, str]:
        """Returns the stored names of a table's columns. Raises IncompatibleChange."""
        try:
            return self._fit(table.name, stored_columns(table), keeps_doubles=table.mode == "append").names
        except Misfit as error:  # somebody changed the table after the DDL
            raise IncompatibleChange(f"table {self.schema}.{table.name}, {error}. Nothing was changed") from error

    def insertion(
        self,
        staged: Staged,
        target: str,
        now: datetime,
        stored: Mapping[str, str] | None = None,
        source: Staging | None = None,
    ) -> tuple[str, Sequence[object]]:
        """Returns the statement, with its parameters, that inserts staged rows into a table.

        `stored`: the stored names of the columns in the target; by default those of the table of the same name. `source`: the
        rows, by default all staged rows.
        """
        source = source or staged.staging
        stored = self.stored(staged.table) if stored is None else stored
        names = [column.name for column in staged.table.columns]
        columns, selected = self.names([stored[name] for name in names]), self.names(names)
        parameters = source.parameters
        if staged.table.load_time:
            columns = f"{columns}, {self._engine.quote(stored[LOAD_TIME.name])}"
            selected = f"{selected}, CAST(? AS {self._engine.sql_type(LOAD_TIME.type)})"
            parameters = (naive(now), *parameters)
        into = f"INSERT INTO {self.qualified(target)} ({columns})"
        return f"{into} {staged.selecting} {selected} FROM {source.sql}", parameters

    # Names

    def spelled(self, have: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
        """Returns the stored name of each of a listing's columns in a table that has these columns."""
        short = {name: self._engine.stored_name(name) for name in wanted}
        stored = spelled(have, short.values())
        return {name: stored[short[name]] for name in wanted}

    def qualified(self, name: str) -> str:
        """Returns the quoted name of a table in the schema."""
        return self._engine.qualified(self.schema, name)

    def names(self, names: Sequence[str] | dict[str, str]) -> str:
        """Returns quoted names, separated by commas."""
        return ", ".join(self._engine.quote(name) for name in names)


def stored_columns(table: Table) -> dict[str, str]:
    """Returns the columns that a table has in the warehouse, with their types."""
    columns = (*table.columns, LOAD_TIME) if table.load_time else table.columns
    return {column.name: column.type for column in columns}


def nullable(table: Table, required: Sequence[str], stored_name: Callable[[str], str] = str) -> list[str]:
    """Returns the required columns of a table that its listing may leave empty, or does not have."""
    filled = {stored_name(column.name).lower() for column in table.columns if not column.nullable}
    if table.load_time:
        filled.add(LOAD_TIME.name)
    return [name for name in required if name.lower() not in filled]


def check_counts(item: str, rows: dict[str, int], expected: dict[str, int]) -> None:
    """Raises CountMismatch unless each table has the expected number of rows."""
    if rows != expected:
        wrong = [f"{name}: {rows[name]} instead of {expected[name]}" for name in rows if rows[name] != expected[name]]
        raise CountMismatch(
            f"{item}: rows read from its objects differ from its listing ({'; '.join(wrong)}). Nothing was loaded. "
            "Shred the item again"
        )


def check_written(item: str, staged: Staged, written: int) -> None:
    """Raises CountMismatch if the number of written rows is not that of the checked rows."""
    if written != staged.keys:
        raise CountMismatch(
            f"{item}: table {staged.table.name} gave {written} rows after {staged.keys} were counted: its objects were changed "
            "meanwhile. Nothing was loaded. Shred the item again"
        )


def naive(time_: datetime) -> datetime:
    """Returns a time in UTC without a time zone, as the warehouse stores times."""
    return time_.astimezone(UTC).replace(tzinfo=None)
