"""The control tables of a warehouse, which every load changes together with its rows, in one transaction.

`Fence`: each feed's newest epoch, token and applied position, which a transaction must exceed to change anything. `Ledger`:
what was applied, and under which epoch. `KnownTables` and `RetiredEntries` hold facts about the data tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

from manifest_platform.listing import BAD_TABLE, Listing, Retired
from manifest_platform.releases import FORM, RELEASE
from manifest_platform.warehouse.control_table import POSITION, ControlTable
from manifest_platform.warehouse.engines.engine import Engine, Transaction
from manifest_platform.warehouse.errors import Conflict, ConstraintViolated, LoadFailed, NewerControlTables
from manifest_platform.warehouse.load import About, Full, Load
from manifest_platform.warehouse.rules import Held, Move
from manifest_platform.warehouse.tables import naive

_FENCE = {
    "dataset": "string",
    "feed": "string",
    "epoch": "bigint",
    "token": "bigint",
    "applied": POSITION,
    "record": "string",
}
_RECORD = """coalesce("record", '')"""
"""The column `record`, with NULL as an empty text: rows of releases without this column have NULL until the next load."""
_LEDGER_PAGE = 1000
_NOTHING = About()

_LEDGER = {
    "dataset": "string",
    "feed": "string",
    "item": "string",
    "position": POSITION,
    "epoch": "bigint",
    "token": "bigint",
    "record_id": "string",
    "late": "boolean",
    "rows": "string",
    "checksum": "string",
    "applied_at": "timestamp",
}
_LEDGER_LOOKUPS = [("dataset", "feed", last) for last in ("item", "position", "epoch")] + [("dataset", "record_id")]
_VERSION = {"version": "bigint"}
"""The version of the form of a fence or ledger row (see `releases`); release 0.1.0 wrote none."""
_RELEASE = {"release": "string"}
"""The first release that writes fence rows of this form. An older release names it in its message."""
_ABOUT = {
    "shredding_started": ("timestamp", "started"),
    "shredding_completed": ("timestamp", "completed"),
    "processor": ("string", "processor"),
    "processor_version": ("string", "release"),
    "compression": ("string", "compression"),
    "first_time": ("timestamp", "first_time"),
    "last_time": ("timestamp", "last_time"),
    "good": ("bigint", "good"),
    "types": ("string", "types"),
}
"""Columns of the ledger with the facts of `About`: their types, and the names of the facts. Older releases know none."""
_ABOUT_TYPES = {name: type_ for name, (type_, _) in _ABOUT.items()}
_LEDGER_NAMES = ", ".join(f'"{name}"' for name in _LEDGER)
_TABLES = {"dataset": "string", "table": "string", "feed": "string", "mode": "string"}
_RETIRED = {"dataset": "string", "table": "string", "column": "string", "item": "string", "retired_at": "timestamp"}


Patiently = Callable[[Callable[[], Any]], Any]
"""Repeats a call that failed for a moment (see `retries`)."""


class Fence:
    """The fence's rows of one dataset. A row moves only in a transaction; of two concurrent moves, one gets a Conflict."""

    def __init__(self, engine: Engine, dataset: str) -> None:
        self._engine, self._dataset = engine, dataset
        # Where the engine enforces the key, it prevents two first loads from creating two rows; elsewhere `alone` does.
        self._control = ControlTable(engine, "fence", dataset, _FENCE | _VERSION | _RELEASE, ("dataset", "feed"))

    def create(self, feed: str) -> None:
        """Creates the table and the feed's row, if absent; upgrades those of an older release.

        Raises Conflict if another worker does so at the same time, and NewerControlTables.
        """
        if self._forms().get(feed) == FORM:
            return
        self._control.create()
        self._control.add_columns("record", *_VERSION, *_RELEASE)
        if self.held(feed):
            self._engine.write(
                f'UPDATE {self._table} SET "version" = ?, "release" = ? WHERE "dataset" = ? AND "feed" = ? '  # noqa: S608
                'AND ("version" IS NULL OR "version" < ?)',
                (FORM, RELEASE, self._dataset, feed, FORM),
            )
            return
        try:
            with self._engine.alone(self._table):
                if not self.held(feed):
                    self._engine.write(
                        f'INSERT INTO {self._table} ("dataset", "feed", "epoch", "token", "applied", "record", "version", '  # noqa: S608
                        "\"release\") VALUES (?, ?, 0, 0, '', '', ?, ?)",
                        (self._dataset, feed, FORM, RELEASE),
                    )
        except ConstraintViolated as error:
            raise Conflict(f"another first load of {self.where(feed)} made its fence at the same time") from error

    def _forms(self) -> dict[str, int]:
        """Returns the version of each feed's row, without rows of release 0.1.0. Raises NewerControlTables."""
        if "version" not in (self._control.columns() or ()):
            return {}
        found = self._engine.execute(
            f'SELECT "feed", "version", "release" FROM {self._table} WHERE "dataset" = ? AND "version" IS NOT NULL',  # noqa: S608
            (self._dataset,),
        )
        for _, version, release in found:
            if version > FORM:
                raise NewerControlTables(f"the fence of dataset {self._dataset} in the warehouse", version, release or "")
        return {feed: version for feed, version, _ in found}

    def may_be_written(self) -> bool:
        """Checks that this release and role may write the table; False if there is none. Raises NewerControlTables."""
        if not self._control.exists():
            return False
        self._forms()
        self._control.try_writing()
        return True

    def held(self, feed: str) -> Held | None:
        """Returns the values of a feed's row; None without a row."""
        found = self._engine.execute(
            f'SELECT "token", "epoch", "applied", {_RECORD} FROM {self._table} WHERE "dataset" = ? AND "feed" = ?',  # noqa: S608
            (self._dataset, feed),
        )
        return Held(*found[0]) if found else None

    def row(self, feed: str) -> Held:
        """Returns the values of a feed's row. Raises LoadFailed if the row is lost."""
        held = self.held(feed)
        if not held:
            raise LoadFailed(f"{self._table} has lost the row of {self.where(feed)}. Restore it from the newest ledger entry")
        return held

    def records(self) -> dict[str, str]:
        """Returns the record that each feed's row names; empty if nothing was ever loaded. Writes nothing."""
        columns = self._control.columns()  # each dataset may have a table of its own, so no other is read
        return {} if columns is None else self._records_in(self._table, columns).get(self._dataset, {})

    def records_of_all(self) -> dict[str, dict[str, str]]:
        """Returns the records that the rows of all datasets name, by dataset and feed. Writes nothing."""
        of_all: dict[str, dict[str, str]] = {}
        for table, columns in self._control.of_all().items():
            for dataset, records in self._records_in(table, columns).items():
                of_all.setdefault(dataset, {}).update(records)
        return of_all

    def _records_in(self, table: str, columns: Collection[str]) -> dict[str, dict[str, str]]:
        record = _RECORD if "record" in columns else "''"
        found: dict[str, dict[str, str]] = {}
        for dataset, feed, name in self._engine.execute(f'SELECT "dataset", "feed", {record} FROM {table}'):  # noqa: S608
            found.setdefault(dataset, {})[feed] = name
        return found

    def newest_epoch(self) -> int:
        """Returns the newest epoch of any feed; 0 without a fence."""
        if not self._control.exists():
            return 0
        found = self._engine.execute(f'SELECT max("epoch") FROM {self._table} WHERE "dataset" = ?', (self._dataset,))  # noqa: S608
        return found[0][0] or 0

    def move(self, transaction: Transaction, feed: str, move: Move) -> bool:
        """Moves a feed's row; returns False if a condition does not hold.

        Positions compare bytewise: an engine whose text has a collation must give the column the binary collation.
        """
        sets = [
            f'"{one.column}" = CASE WHEN "{one.column}" < ? THEN ? ELSE "{one.column}" END'
            if one.at_least
            else f'"{one.column}" = ?'
            for one in move.changes
        ]
        new = [value for one in move.changes for value in [one.value] * (1 + one.at_least)]
        conditions = [
            f"{_RECORD if one.column == 'record' else _quoted(one.column)} {one.relation} ?" for one in move.conditions
        ]
        statement = (
            f"UPDATE {self._table} SET {', '.join(sets)} "  # noqa: S608
            f'WHERE "dataset" = ? AND "feed" = ? AND {" AND ".join(conditions)}'
        )
        least = [one.value for one in move.conditions]
        return transaction.write(statement, [*new, self._dataset, feed, *least]) > 0

    def move_all(self, transaction: Transaction, moves: Iterable[tuple[str, Move]]) -> bool:
        """Makes moves of feeds, in their order; returns False if any of them did not change its row."""
        return all(self.move(transaction, feed, move) for feed, move in moves)

    def where(self, feed: str) -> str:
        """The text for a feed and its dataset in messages."""
        return f"feed {feed!r} of dataset {self._dataset!r}"

    @property
    def _table(self) -> str:
        return self._control.qualified


@dataclass(frozen=True)
class LedgerEntry:
    """The ledger's row of one applied item. `rows`: staged rows by table of the listing. `applied_at`: in UTC.

    `about`: what is written beside it; None in entries that were read.
    """

    item: str
    feed: str
    position: str
    epoch: int
    token: int
    record_id: str
    late: bool
    rows: dict[str, int]
    checksum: str
    applied_at: datetime
    about: About | None = field(default=None, compare=False)

    @property
    def was_taken_over(self) -> bool:
        """True if a former loader has loaded the item. `applied_at` is then the time that it noted, which no row has."""
        return self.token == 0


class Ledger:
    """The ledger's rows of one dataset.

    `keeps_about`: the facts of `About` are needed, so that a table of an older release gets their columns too.
    """

    def __init__(
        self, engine: Engine, dataset: str, transaction: Transaction | None = None, *, keeps_about: bool = False
    ) -> None:
        self._engine, self._dataset, self._keeps_about = engine, dataset, keeps_about
        self._control = ControlTable(engine, "ledger", dataset, _LEDGER | _VERSION | _ABOUT_TYPES, lookups=_LEDGER_LOOKUPS)
        self._about: Sequence[str] = ()  # the columns of the facts, as far as the table has them
        self._query = transaction.rows if transaction else engine.execute

    def within(self, transaction: Transaction) -> Ledger:
        """Returns the same ledger, read within a transaction."""
        return Ledger(self._engine, self._dataset, transaction)

    def create(self) -> None:
        """Creates the table if absent; adds the columns that a table of an older release lacks."""
        self._control.create()
        # Only a table's owner may add columns. So a table of an older release stays as it is, unless its facts are asked for.
        known = self._control.add_columns(*_VERSION, *(_ABOUT if self._keeps_about else ()))
        self._about = [name for name in _ABOUT if name in known]

    def entry(self, feed: str, item: str, since_epoch: int) -> LedgerEntry | None:
        """Returns the newest entry of an item in this epoch or later; None if there is none."""
        found = self._query(
            f'SELECT {_LEDGER_NAMES} FROM {self._table} WHERE "dataset" = ? AND "feed" = ? AND "item" = ? '  # noqa: S608
            'AND "epoch" >= ? ORDER BY "epoch" DESC, "applied_at" DESC LIMIT 1',
            (self._dataset, feed, item, since_epoch),
        )
        return _entry(found[0]) if found else None

    def newest(self, feed: str, since_epoch: int, after: str, patiently: Patiently) -> Iterator[LedgerEntry]:
        """Yields the newest entry of each item beyond a position, by position. Each page of them is read patiently."""
        if not patiently(self._control.exists):
            return
        while page := patiently(partial(self._page, feed, since_epoch, after)):
            for entry in page:
                if entry.position != after:
                    yield entry
                after = entry.position

    def _page(self, feed: str, since_epoch: int, after: str) -> list[LedgerEntry]:
        found = self._engine.execute(
            f'SELECT {_LEDGER_NAMES} FROM {self._table} WHERE "dataset" = ? AND "feed" = ? AND "epoch" >= ? '  # noqa: S608
            f'AND "position" > ? ORDER BY "position", "epoch" DESC, "applied_at" DESC LIMIT {_LEDGER_PAGE}',
            (self._dataset, feed, since_epoch, after),
        )
        return [_entry(row) for row in found]

    def sums(self, feed: str, since_epoch: int) -> dict[str, int]:
        """Returns the sum of rows by table over everything applied that still serves, with one query."""
        if not self._control.exists():
            return {}
        entries = self._engine.json_each('applied."rows"')
        found = self._engine.execute(
            f"SELECT {entries.key}, sum(CAST({entries.value} AS BIGINT)) FROM ("  # noqa: S608
            'SELECT "rows", row_number() OVER (PARTITION BY "position" ORDER BY "epoch" DESC, "applied_at" DESC) AS "nth" '
            f'FROM {self._table} WHERE "dataset" = ? AND "feed" = ? AND "epoch" >= ?) AS applied, '
            f'{entries.item} WHERE applied."nth" = 1 GROUP BY {entries.key}',
            (self._dataset, feed, since_epoch),
        )
        return {table: int(rows) for table, rows in found}

    def totals(self) -> dict[str, int]:
        """Returns the sum of rows by table over everything ever applied, with one query. It only grows."""
        if not self._control.exists():
            return {}
        entries = self._engine.json_each('applied."rows"')
        found = self._engine.execute(
            f"SELECT {entries.key}, sum(CAST({entries.value} AS BIGINT)) FROM "  # noqa: S608
            f'(SELECT "rows" FROM {self._table} WHERE "dataset" = ?) AS applied, {entries.item} GROUP BY {entries.key}',
            (self._dataset,),
        )
        return {table: int(rows) for table, rows in found}

    def has(self, feed: str, item: str, since_epoch: int) -> bool:
        """True if an item was applied in this epoch or later. Ten times cheaper than reading its entry."""
        found = self._query(
            f'SELECT 1 FROM {self._table} WHERE "dataset" = ? AND "feed" = ? AND "item" = ? AND "epoch" >= ? LIMIT 1',  # noqa: S608
            (self._dataset, feed, item, since_epoch),
        )
        return bool(found)

    def has_any(self, feed: str, items: Sequence[str], since_epoch: int) -> bool:
        """True if any of these items was applied in this epoch or later."""
        marks = ", ".join("?" for _ in items)
        found = self._query(
            f'SELECT 1 FROM {self._table} WHERE "dataset" = ? AND "feed" = ? AND "item" IN ({marks}) '  # noqa: S608
            'AND "epoch" >= ? LIMIT 1',
            (self._dataset, feed, *items, since_epoch),
        )
        return bool(found)

    def shares(self, entry: LedgerEntry) -> str | None:
        """Returns another item with the load time of an entry; None if the load time names the entry's item alone."""
        found = self._query(
            f'SELECT "item" FROM {self._table} WHERE "dataset" = ? AND "applied_at" = ? '  # noqa: S608
            'AND NOT ("feed" = ? AND "item" = ?) LIMIT 1',
            (self._dataset, naive(entry.applied_at), entry.feed, entry.item),
        )
        return found[0][0] if found else None

    def has_record(self, record: str) -> bool:
        """True if the attempt with this record id was applied, on any feed."""
        found = self._engine.execute(
            f'SELECT 1 FROM {self._table} WHERE "dataset" = ? AND "record_id" = ? LIMIT 1',  # noqa: S608
            (self._dataset, record),
        )
        return bool(found)

    def of_record(self, record: str) -> LedgerEntry | None:
        """Returns the entry of the attempt with this record id; None if there is none. Writes nothing."""
        if not self._control.exists():
            return None
        found = self._engine.execute(
            f'SELECT {_LEDGER_NAMES} FROM {self._table} WHERE "dataset" = ? AND "record_id" = ? LIMIT 1',  # noqa: S608
            (self._dataset, record),
        )
        return _entry(found[0]) if found else None

    def in_epoch(self, load: Load, full: Full) -> tuple[str, int] | None:
        """Returns any item that was loaded in the snapshot's epoch or later, on its own or a covered feed, and its epoch."""
        feeds = [load.feed, *full.covers]
        marks = ", ".join("?" for _ in feeds)
        found = self._query(
            f'SELECT "item", "epoch" FROM {self._table} '  # noqa: S608
            f'WHERE "dataset" = ? AND "feed" IN ({marks}) AND "epoch" >= ? LIMIT 1',
            (self._dataset, *feeds, load.epoch),
        )
        return found[0] if found else None

    def beyond(self, feed: str, epoch: int) -> tuple[str, int] | None:
        """Returns the newest item of a feed that was loaded in a later epoch, with that epoch."""
        found = self._query(
            f'SELECT "item", "epoch" FROM {self._table} WHERE "dataset" = ? AND "feed" = ? AND "epoch" > ? '  # noqa: S608
            'ORDER BY "epoch" DESC LIMIT 1',
            (self._dataset, feed, epoch),
        )
        return found[0] if found else None

    def enter(self, transaction: Transaction, load: Load, rows: dict[str, int], now: datetime) -> LedgerEntry:
        """Adds the entry of a load whose rows were moved."""
        return self.enter_all(transaction, [(load, rows, now)])[0]

    def enter_all(
        self, transaction: Transaction, applied: Sequence[tuple[Load, dict[str, int], datetime]]
    ) -> list[LedgerEntry]:
        """Adds the entries of loads whose rows were moved, each with its rows by table and its time, by one statement."""
        entries = [_entry_of(*one) for one in applied]
        self.write(transaction, entries)
        return entries

    def write(self, transaction: Transaction, entries: Sequence[LedgerEntry]) -> None:
        """Adds entries by one statement."""
        names = (*_LEDGER, "version", *self._about)
        marks = ", ".join(f"({', '.join('?' for _ in names)})" for _ in entries)
        values: list[Any] = []
        for entry in entries:
            stored = {**vars(entry), "dataset": self._dataset, "rows": json.dumps(entry.rows), "version": FORM}
            stored |= {name: getattr(entry.about or _NOTHING, fact) for name, (_, fact) in _ABOUT.items()}
            values += [naive(value) if isinstance(value := stored[name], datetime) else value for name in names]
        transaction.write(f"INSERT INTO {self._table} ({', '.join(map(_quoted, names))}) VALUES {marks}", values)  # noqa: S608

    @property
    def table(self) -> str:
        """The table's quoted name with its schema."""
        return self._table

    @property
    def _table(self) -> str:
        return self._control.qualified


def _entry_of(load: Load, rows: dict[str, int], now: datetime) -> LedgerEntry:
    return LedgerEntry(
        item=load.item,
        feed=load.feed,
        position=load.position,
        epoch=load.epoch,
        token=load.token,
        record_id=load.record_id,
        late=load.late,
        rows=rows,
        checksum=load.checksum,
        applied_at=now,
        about=load.about,
    )


def _entry(row: tuple[Any, ...]) -> LedgerEntry:
    values = dict(zip(_LEDGER, row, strict=True))
    del values["dataset"]
    return LedgerEntry(**{**values, "rows": json.loads(values["rows"]), "applied_at": values["applied_at"].replace(tzinfo=UTC)})


class KnownTable(NamedTuple):
    """A data table, a feed that loads it, and the mode of its rows."""

    table: str
    feed: str
    mode: str


@dataclass(frozen=True)
class RetiredEntry:
    """A table or a column that the source has dropped, the item that said so, and the time of that load (UTC)."""

    table: str
    column: str | None
    item: str
    retired_at: datetime


class KnownTables:
    """The feeds and modes of each data table of a dataset. They show which tables a snapshot empties because it lacks them."""

    def __init__(self, engine: Engine, dataset: str) -> None:
        self._engine, self._dataset = engine, dataset
        self._control = ControlTable(engine, "tables", dataset, _TABLES)
        self._known: frozenset[KnownTable] | None = None

    def create(self) -> None:
        """Creates the table if absent."""
        self._control.create()

    def exists(self) -> bool:
        """True if the table exists. Writes nothing."""
        return self._control.exists()

    def read(self) -> frozenset[KnownTable]:
        """Returns all known tables, cached."""
        if self._known is None:
            found = self._engine.execute(
                f'SELECT DISTINCT "table", "feed", "mode" FROM {self._table} WHERE "dataset" = ?',  # noqa: S608
                (self._dataset,),
            )
            self._known = frozenset(KnownTable(*row) for row in found)
        return self._known

    def remember(self, tables: Collection[KnownTable]) -> None:
        """Adds tables. If two workers add the same table, it has two rows, which is harmless."""
        marks = ", ".join("(?, ?, ?, ?)" for _ in tables)
        self._engine.write(
            f'INSERT INTO {self._table} ("dataset", "table", "feed", "mode") VALUES {marks}',  # noqa: S608
            [value for table in tables for value in (self._dataset, *table)],
        )
        self.forget()

    def emptied_by(self, full: Full, feed: str, listing: Listing) -> list[str]:
        """Returns the tables that a snapshot empties because its listing lacks them. `feed`: the snapshot's own feed.

        These are tables that this feed or a covered feed loads. Appended tables, and those that `full.keeps` names, stay.
        """
        known = self.read()
        compared = self._engine.compared  # a source may spell a name in two ways that are one table
        mine = {compared(one.table): one.table for one in known if one.feed in (feed, *full.covers)}
        kept = {one.table for one in known if one.mode == "append"} | {table.name for table in listing.tables} | {BAD_TABLE}
        staying = set(map(compared, kept))
        gone = [name for form, name in mine.items() if form not in staying]
        return sorted(name for name in gone if not any(fnmatchcase(name, pattern) for pattern in full.keeps))

    def forget(self) -> None:
        """Clears the cache: the next question queries the warehouse."""
        self._known = None

    @property
    def _table(self) -> str:
        return self._control.qualified


class RetiredEntries:
    """The tables and columns that a dataset's source has dropped. Their data stays, but is no longer updated."""

    def __init__(self, engine: Engine, dataset: str) -> None:
        self._engine, self._dataset = engine, dataset
        self._control = ControlTable(engine, "retired", dataset, _RETIRED)
        self._entered: dict[Retired, Retired] | None = None  # None: read the table

    def create(self) -> None:
        """Creates the table if absent."""
        self._control.create()

    def read(self) -> list[RetiredEntry]:
        """Returns all entries, by table and column. Writes nothing; empty if nothing was ever loaded."""
        if not self._control.exists():
            return []
        found = self._engine.execute(
            f'SELECT "table", "column", "item", "retired_at" FROM {self._table} WHERE "dataset" = ? '  # noqa: S608
            'ORDER BY "table", "column"',
            (self._dataset,),
        )
        return [RetiredEntry(table, column or None, item, at.replace(tzinfo=UTC)) for table, column, item, at in found]

    def forget(self) -> None:
        """Clears the cache of `update`: the next load queries the warehouse. Only the feed's own worker changes its entries."""
        self._entered = None

    def update(self, transaction: Transaction, listing: Listing, now: datetime) -> None:
        """Adds entries for what a listing retires, once, and deletes entries for what it brings back."""
        self.update_all(transaction, [(listing, now)])

    def update_all(self, transaction: Transaction, listings: Sequence[tuple[Listing, datetime]]) -> None:
        """Updates the entries by listings in their order. Writes only what differs afterward."""
        if self._entered is None:
            # The entry of a whole table has an empty text as column, because NULL equals nothing.
            found = transaction.rows(f'SELECT "table", "column" FROM {self._table} WHERE "dataset" = ?', (self._dataset,))  # noqa: S608
            self._entered = {_caseless(one): one for one in (Retired(table, column or None) for table, column in found)}
        entered = dict(self._entered)
        before, new = dict(entered), dict[Retired, tuple[str, datetime]]()
        for listing, now in listings:
            retired = {_caseless(one): one for one in listing.retired}
            for back in (entered.keys() & _brought(listing)) - retired.keys():
                del entered[back]
                new.pop(back, None)
            for gone in retired.keys() - entered.keys():
                entered[gone], new[gone] = retired[gone], (listing.item, now)
        for back in (before.keys() - entered.keys()) | (before.keys() & new.keys()):
            transaction.write(
                f'DELETE FROM {self._table} WHERE "dataset" = ? AND "table" = ? AND "column" = ?',  # noqa: S608
                (self._dataset, before[back].table, before[back].column or ""),
            )
        if before.keys() != entered.keys() or new:
            self.forget()  # the transaction may yet be rolled back
        for gone, (item, now) in new.items():
            transaction.write(
                f'INSERT INTO {self._table} ("dataset", "table", "column", "item", "retired_at") VALUES (?, ?, ?, ?, ?)',  # noqa: S608
                (self._dataset, entered[gone].table, entered[gone].column or "", item, naive(now)),
            )

    @property
    def _table(self) -> str:
        return self._control.qualified


def _caseless(one: Retired) -> Retired:
    """The comparison form of a retired column: column names match without case."""
    return Retired(one.table, one.column.lower() if one.column else None)


def _brought(listing: Listing) -> set[Retired]:
    """Returns the tables for which a listing has columns, and these columns, in comparison form."""
    columns = {_caseless(Retired(table.name, column.name)) for table in listing.tables for column in table.columns}
    return columns | {Retired(table.name) for table in listing.tables if table.columns}


def _quoted(column: str) -> str:
    return f'"{column}"'
