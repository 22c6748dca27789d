"""The apply protocol, once for every engine: a directory's rows, the fence and the ledger move in one transaction.

The fence holds a feed's newest epoch, token and applied position; a transaction that does not exceed it changes
nothing. The ledger says what was applied, under which epoch. Both lie beside the data, so that the warehouse itself
refuses what is out of order, doubled or sent by a worker that was replaced, whatever the manifest believes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from manifest_platform import failpoints
from manifest_platform.column_types import widened
from manifest_platform.listing import Column, Listing, Table
from manifest_platform.warehouse.dialect import Dialect, Source
from manifest_platform.warehouse.errors import (
    Behind,
    Conflict,
    ConstraintViolated,
    CountMismatch,
    Fenced,
    IncompatibleChange,
    LoadFailed,
    Unavailable,
    Unclear,
    UnsupportedMode,
)

CONTROL_SCHEMA = "manifest_platform"
LOAD_TIME = Column("load_tstamp", "timestamp")
# Only the event table gets the load's time: all other tables of an event are joined to it, so that once is enough.
TABLES_WITH_LOAD_TIME = frozenset({"events"})

_LEDGER = {
    "dataset": "string",
    "feed": "string",
    "item": "string",
    "position": "string",
    "epoch": "bigint",
    "token": "bigint",
    "record_id": "string",
    "late": "boolean",
    "rows": "string",
    "checksum": "string",
    "applied_at": "timestamp",
}
_FENCE = {"dataset": "string", "feed": "string", "epoch": "bigint", "token": "bigint", "applied": "string"}

_IN_TRANSACTION = re.compile(r"\s*(INSERT|UPDATE|DELETE|SELECT|MERGE|COPY)\b", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
LEDGER_PAGE = 1000
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.005, 0.25

_T = TypeVar("_T")


@dataclass(frozen=True)
class Load:
    """One shredded directory to apply, and on whose authority.

    `position` is the item's place in its feed: texts whose bytewise order is the logical order. `epoch` and `token`
    are those that the item was claimed under; ledger entries of an epoch before `serving_epoch` no longer count.
    `late` marks an item behind the feed's newest one that is to be appended all the same.
    """

    item: str
    feed: str
    position: str
    epoch: int
    serving_epoch: int
    token: int
    record_id: str
    checksum: str
    listing: Listing
    late: bool = False


@dataclass(frozen=True)
class LedgerEntry:
    """What the warehouse knows of one applied item; `rows` by table, `applied_at` in UTC."""

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


@dataclass(frozen=True)
class Applied:
    """The load was committed just now."""

    entry: LedgerEntry


@dataclass(frozen=True)
class AlreadyApplied:
    """The ledger had the item before; nothing was changed."""

    entry: LedgerEntry


class Warehouse:
    """One dataset's tables in one warehouse. Not for several threads at once; several warehouses may work side by side.

    The data tables lie in `schema`, by default named as the dataset; ledger and fence in `manifest_platform`.
    Every method raises Unavailable where the warehouse cannot be reached and LoadFailed where it refuses a statement.
    """

    def __init__(self, dialect: Dialect, dataset: str, schema: str | None = None) -> None:
        self.dataset = dataset
        self.schema = schema or dataset
        if self.schema == CONTROL_SCHEMA:
            raise ValueError(f"schema {CONTROL_SCHEMA!r} is for ledger and fence; give dataset {dataset!r} another schema")
        self._dialect = dialect
        self._prepared: set[str] = set()
        self._columns: dict[str, dict[str, str]] | None = None  # of the data tables; None: ask the catalog

    def prepare(self, feed: str) -> None:
        """Creates ledger, fence and the feed's row in it, where absent. Every other method does so at first use."""
        if feed not in self._prepared:
            self._patiently(lambda: self._create_control_tables(feed))
            self._prepared.add(feed)

    def raise_fence(self, feed: str, token: int, epoch: int) -> None:
        """Lets no older token or epoch commit from now on; what the ledger says afterwards is final for them.

        Raises Fenced where the fence holds a newer token or epoch; Unavailable where an older worker's transaction
        stays open for longer than we wait. May be repeated.
        """
        self.prepare(feed)
        self._patiently(lambda: self._raise_fence(feed, token, epoch))

    def ledger_entry(self, feed: str, item: str, since_epoch: int) -> LedgerEntry | None:
        """The newest entry of an item of this epoch or a later one; None where the item was not applied."""
        self.prepare(feed)
        return self._entry(self._dialect.execute(*self._ledger_query(feed, item, since_epoch)))

    def ledger(self, feed: str, since_epoch: int, after: str = "", limit: int = LEDGER_PAGE) -> list[LedgerEntry]:
        """A page of a feed's ledger beyond a position, by position, the newest of an item first; only what still serves.

        Writes nothing: where nothing was ever loaded it is empty, not made.
        """
        if "ledger" not in self._dialect.columns(CONTROL_SCHEMA):
            return []
        found = self._dialect.execute(
            f'SELECT {self._names(_LEDGER)} FROM {self._ledger} WHERE "dataset" = ? AND "feed" = ? AND "epoch" >= ? '  # noqa: S608
            f'AND "position" > ? ORDER BY "position", "epoch" DESC, "applied_at" DESC LIMIT {limit:d}',
            (self.dataset, feed, since_epoch, after),
        )
        return [entry for row in found if (entry := self._entry([row]))]

    def apply(self, load: Load) -> Applied | AlreadyApplied:
        """Applies a load wholly or not at all, in the feed's order, once for all epochs from `serving_epoch` on.

        Raises Fenced (a newer worker or epoch has taken over), Behind (late), a PermanentFailure (CountMismatch,
        IncompatibleChange, UnsupportedMode, LoadFailed), Unavailable, or Unclear (COMMIT got no answer).
        """
        _refuse_unsupported(load)
        self.prepare(load.feed)
        return self._patiently(lambda: self._apply_with_known_columns(load))

    def row_counts(self) -> dict[str, int]:
        """How many rows each data table holds, by name."""
        tables = sorted(self._dialect.columns(self.schema))
        return {table: self._dialect.execute(f"SELECT count(*) FROM {self._table(table)}")[0][0] for table in tables}  # noqa: S608

    def interrupt(self) -> None:
        """Stops a load that runs in another thread: its transaction rolls back, unless it is committing already."""
        self._dialect.interrupt()

    def close(self) -> None:
        """Closes the connection; the next call opens another."""
        self._columns = None
        self._dialect.close()

    # Tables and columns, outside of transactions: engines commit at DDL, or refuse it within.

    def _create_control_tables(self, feed: str) -> None:
        execute = self._dialect.execute
        for schema in (CONTROL_SCHEMA, self.schema):
            execute(f"CREATE SCHEMA IF NOT EXISTS {self._dialect.qualified(schema)}")
        execute(f"CREATE TABLE IF NOT EXISTS {self._ledger} ({self._definitions(_LEDGER)})")
        # The key keeps two first loads from making two rows where it is enforced; nothing else rests on it.
        fence_columns = f"{self._definitions(_FENCE)}, PRIMARY KEY ({self._names(['dataset', 'feed'])})"
        execute(f"CREATE TABLE IF NOT EXISTS {self._fence} ({fence_columns})")
        if self._fence_row(feed):
            return
        try:
            columns = self._names(_FENCE)
            self._dialect.write(
                f"INSERT INTO {self._fence} ({columns}) VALUES (?, ?, 0, 0, '')",  # noqa: S608
                (self.dataset, feed),
            )
        except ConstraintViolated as error:
            raise Conflict(f"another first load of {self._where(feed)} made its fence at the same time") from error

    def _apply_with_known_columns(self, load: Load) -> Applied | AlreadyApplied:
        """Applies with the columns known from before; somebody else may have changed them, so a failure asks again."""
        known = self._columns
        try:
            return self._attempt(load)
        except (LoadFailed, IncompatibleChange):
            self._columns = self._dialect.columns(self.schema)
            if known is None or known == self._columns:
                raise
            return self._attempt(load)

    def _additive_ddl(self, listing: Listing) -> list[str]:
        """The statements that make room for a listing; raises IncompatibleChange before the first of them is run."""
        if self._columns is None:
            self._columns = self._dialect.columns(self.schema)
        statements = []
        for table in listing.tables:
            wanted = {column.name: column.type for column in _stored_columns(table)}
            have = self._columns.get(table.name)
            if have is None:
                # No NOT NULL: a later directory may lack a column that this one has.
                statements.append(f"CREATE TABLE IF NOT EXISTS {self._table(table.name)} ({self._definitions(wanted)})")
            else:
                statements += self._column_ddl(table.name, have, wanted, listing.item)
        return statements

    def _column_ddl(self, table: str, have: dict[str, str], wanted: dict[str, str], item: str) -> Iterator[str]:
        sql_type = self._dialect.sql_type
        for name, type_ in wanted.items():
            if name not in have:
                yield f"ALTER TABLE {self._table(table)} ADD COLUMN {self._dialect.quote(name)} {sql_type(type_)}"
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
                yield self._dialect.widen(self._table(table), self._dialect.quote(name), sql_type(wider))

    # The transaction.

    def _attempt(self, load: Load) -> Applied | AlreadyApplied:
        try:
            ddl = self._additive_ddl(load.listing)
        except IncompatibleChange:
            if found := self._why_not(load):
                return found
            raise
        if ddl:
            if found := self._why_not(load):  # a worker that was replaced is to change nothing, tables included
                return found
            for statement in ddl:
                self._dialect.execute(statement)
            self._columns = None  # somebody may have done the same at the same time, so look again before the next load
        staged: dict[str, Source] = {}
        try:
            for table in load.listing.tables:
                if uris := load.listing.uris(table.name):
                    staged[table.name] = self._dialect.stage(table, uris)
            failpoints.reach("load.before_transaction")
            return self._transact(load, staged)
        finally:
            for source in staged.values():
                self._dialect.unstage(source)

    def _transact(self, load: Load, staged: dict[str, Source]) -> Applied | AlreadyApplied:
        with self._transaction() as transaction:
            if self._pass_fence(transaction, load) and not self._is_in_ledger(transaction, load):
                entry = self._insert(transaction, load, staged)
                failpoints.reach("load.in_transaction")
                transaction.commit()
                failpoints.reach("load.committed")
                return Applied(entry)
        if found := self._why_not(load):
            return found
        raise Conflict(f"the fence of {self._where(load.feed)} was moved at the same time")

    def _pass_fence(self, transaction: _Transaction, load: Load) -> bool:
        """Moves the fence to the load, as the transaction's first write: of two at once, one conflicts.

        A late load leaves `applied` as it is. Positions compare bytewise: an engine whose text has a collation must
        give the column the binary one.
        """
        sets, conditions = '"epoch" = ?, "token" = ?', '"epoch" <= ? AND "token" <= ?'
        new: list[Any] = [load.epoch, load.token]
        least: list[Any] = [load.epoch, load.token]
        if not load.late:
            sets, conditions = f'{sets}, "applied" = ?', f'{conditions} AND "applied" < ?'
            new.append(load.position)
            least.append(load.position)
        statement = f'UPDATE {self._fence} SET {sets} WHERE "dataset" = ? AND "feed" = ? AND {conditions}'  # noqa: S608
        return transaction.write(statement, [*new, self.dataset, load.feed, *least]) > 0

    def _is_in_ledger(self, transaction: _Transaction, load: Load) -> bool:
        """Whether the load was applied before. What the entry says is read afterwards: to plan that costs ten times as much."""
        statement = f'SELECT 1 FROM {self._ledger} WHERE "dataset" = ? AND "feed" = ? AND "item" = ? AND "epoch" >= ? LIMIT 1'  # noqa: S608
        return bool(transaction.rows(statement, (self.dataset, load.feed, load.item, load.serving_epoch)))

    def _insert(self, transaction: _Transaction, load: Load, staged: dict[str, Source]) -> LedgerEntry:
        now = datetime.now(UTC)
        rows = {table.name: 0 for table in load.listing.tables}
        for table in load.listing.tables:
            if source := staged.get(table.name):
                rows[table.name] = self._insert_rows(transaction, table, source, now)
        expected = {name: load.listing.rows(name) for name in rows}
        if rows != expected:
            wrong = [f"{name}: {rows[name]} instead of {expected[name]}" for name in rows if rows[name] != expected[name]]
            raise CountMismatch(
                f"{load.item}: rows read from its objects differ from its listing ({'; '.join(wrong)}); nothing was loaded. "
                "Shred the item again"
            )
        entry = LedgerEntry(
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
        )
        values = {**vars(entry), "dataset": self.dataset, "rows": json.dumps(rows), "applied_at": _naive(now)}
        marks = ", ".join("?" for _ in _LEDGER)
        transaction.write(
            f"INSERT INTO {self._ledger} ({self._names(_LEDGER)}) VALUES ({marks})",  # noqa: S608
            [values[name] for name in _LEDGER],
        )
        return entry

    def _insert_rows(self, transaction: _Transaction, table: Table, source: Source, now: datetime) -> int:
        names = [column.name for column in table.columns]
        columns, selected, parameters = self._names(names), self._names(names), source.parameters
        if table.name in TABLES_WITH_LOAD_TIME:
            columns = f"{columns}, {self._dialect.quote(LOAD_TIME.name)}"
            selected = f"{selected}, CAST(? AS {self._dialect.sql_type(LOAD_TIME.type)})"
            parameters = (_naive(now), *parameters)
        statement = f"INSERT INTO {self._table(table.name)} ({columns}) SELECT {selected} FROM {source.sql}"  # noqa: S608
        return transaction.write(statement, parameters)

    def _raise_fence(self, feed: str, token: int, epoch: int) -> None:
        with self._transaction() as transaction:
            raised = transaction.write(
                f'UPDATE {self._fence} SET "epoch" = ?, "token" = ? '  # noqa: S608
                'WHERE "dataset" = ? AND "feed" = ? AND "epoch" <= ? AND "token" <= ?',
                (epoch, token, self.dataset, feed, epoch, token),
            )
            if raised:
                try:
                    transaction.commit()
                except Unclear as error:
                    raise Conflict(f"raising the fence of {self._where(feed)} got no clear answer") from error
                return
        self._refuse_older(feed, token, epoch)
        raise Conflict(f"the fence of {self._where(feed)} was moved at the same time")

    def _fence_row(self, feed: str) -> tuple[Any, ...] | None:
        """A feed's newest token, epoch and applied position."""
        found = self._dialect.execute(
            f'SELECT "token", "epoch", "applied" FROM {self._fence} WHERE "dataset" = ? AND "feed" = ?',  # noqa: S608
            (self.dataset, feed),
        )
        return found[0] if found else None

    def _refuse_older(self, feed: str, token: int, epoch: int) -> str:
        """The newest applied position; raises Fenced where the fence holds a newer token or epoch than these."""
        found = self._fence_row(feed)
        if not found:
            raise LoadFailed(
                f"{self._fence} has lost the row of {self._where(feed)}: restore it, with the newest of the ledger"
            )
        held_token, held_epoch, applied = found
        if held_token > token or held_epoch > epoch:
            raise Fenced(self._where(feed), (token, epoch), held_token, held_epoch)
        return applied

    def _why_not(self, load: Load) -> AlreadyApplied | None:
        """Why the fence does not let a load pass: Fenced or Behind is raised; None where it would."""
        applied = self._refuse_older(load.feed, load.token, load.epoch)
        if entry := self.ledger_entry(load.feed, load.item, load.serving_epoch):
            return AlreadyApplied(entry)
        if not load.late and load.position <= applied:  # str compares by code point: the bytewise order of UTF-8
            raise Behind(load.item, load.position, applied)
        return None

    @contextmanager
    def _transaction(self) -> Generator[_Transaction]:
        transaction = _Transaction(self._dialect)
        self._dialect.begin()
        try:
            yield transaction
        finally:
            if not transaction.committed:
                self._dialect.rollback()

    def _patiently(self, attempt: Callable[[], _T]) -> _T:
        """Repeats what lost against a concurrent transaction, from its start, for as long as the dialect is patient."""
        deadline, pause = time.monotonic() + self._dialect.patience, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return attempt()
            except Conflict as error:
                if time.monotonic() >= deadline:
                    raise Unavailable(
                        f"another transaction kept in the way for {self._dialect.patience:g} s: {error}; "
                        "try again when it has ended"
                    ) from error
            self._columns = None  # the other one may have changed a table
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    # Names and rows.

    def _ledger_query(self, feed: str, item: str, since_epoch: int) -> tuple[str, Sequence[Any]]:
        return (
            f'SELECT {self._names(_LEDGER)} FROM {self._ledger} WHERE "dataset" = ? AND "feed" = ? AND "item" = ? '  # noqa: S608
            'AND "epoch" >= ? ORDER BY "epoch" DESC, "applied_at" DESC LIMIT 1',
            (self.dataset, feed, item, since_epoch),
        )

    @staticmethod
    def _entry(found: list[tuple[Any, ...]]) -> LedgerEntry | None:
        if not found:
            return None
        values = dict(zip(_LEDGER, found[0], strict=True))
        del values["dataset"]
        return LedgerEntry(
            **{**values, "rows": json.loads(values["rows"]), "applied_at": values["applied_at"].replace(tzinfo=UTC)}
        )

    @property
    def _ledger(self) -> str:
        return self._dialect.qualified(CONTROL_SCHEMA, "ledger")

    @property
    def _fence(self) -> str:
        return self._dialect.qualified(CONTROL_SCHEMA, "fence")

    def _table(self, name: str) -> str:
        return self._dialect.qualified(self.schema, name)

    def _names(self, names: Sequence[str] | dict[str, str]) -> str:
        return ", ".join(self._dialect.quote(name) for name in names)

    def _definitions(self, columns: dict[str, str]) -> str:
        return ", ".join(f"{self._dialect.quote(name)} {self._dialect.sql_type(type_)}" for name, type_ in columns.items())

    def _where(self, feed: str) -> str:
        return f"feed {feed!r} of dataset {self.dataset!r}"


class _Transaction:
    """The one place through which statements run between BEGIN and COMMIT."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.committed = False

    def write(self, sql: str, parameters: Sequence[Any]) -> int:
        refuse_in_transaction(sql)
        return self._dialect.write(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        refuse_in_transaction(sql)
        return self._dialect.execute(sql, parameters)

    def commit(self) -> None:
        self._dialect.commit()
        self.committed = True


def refuse_in_transaction(sql: str) -> None:
    """Lets pass a single INSERT, UPDATE, DELETE, SELECT, MERGE or COPY; raises LoadFailed for any other statement.

    TRUNCATE, VACUUM or DDL would commit on some engines, and break a load in two that all tests on another engine pass.
    """
    bare = _QUOTED.sub("", sql)
    into_new_table = re.match(r"\s*SELECT\b.*\bINTO\b", bare, re.IGNORECASE | re.DOTALL)
    if not _IN_TRANSACTION.match(bare) or into_new_table or ";" in bare:
        raise LoadFailed(f"not allowed between BEGIN and COMMIT, where some engines would commit at it: {sql}")


def _refuse_unsupported(load: Load) -> None:
    listing = load.listing
    for table in listing.tables:
        if table.mode != "append":
            raise UnsupportedMode(
                f"{load.item}: table {table.name} has mode {table.mode!r}; only 'append' can be loaded so far"
            )
        if table.name in TABLES_WITH_LOAD_TIME and any(column.name == LOAD_TIME.name for column in table.columns):
            raise IncompatibleChange(
                f"{load.item}: table {table.name} brings a column {LOAD_TIME.name}, which the load itself sets; shred it under "
                "another name"
            )
    if unknown := {found.table for found in listing.objects} - {table.name for table in listing.tables}:
        raise CountMismatch(
            f"{load.item}: its listing has objects of tables that it does not describe "
            f"({', '.join(sorted(unknown))}); shred it again"
        )


def _stored_columns(table: Table) -> tuple[Column, ...]:
    return (*table.columns, LOAD_TIME) if table.name in TABLES_WITH_LOAD_TIME else table.columns


def _naive(time_: datetime) -> datetime:
    """UTC without a zone, as the warehouse keeps times."""
    return time_.astimezone(UTC).replace(tzinfo=None)
