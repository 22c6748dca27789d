"""The apply protocol, once for every engine: a directory's rows, the fence and the ledger move in one transaction.

The fence holds a feed's newest epoch, token and applied position; a transaction that does not exceed it changes
nothing. The ledger says what was applied, under which epoch. Both lie beside the data, so that the warehouse itself
refuses what is out of order, doubled or sent by a worker that was replaced, whatever the manifest believes.

Rows go in three ways: they are appended; or deletes by key, then upserts by key; or a snapshot's tables take the place of
those before them, by new names alone, so that readers see the old rows or the new ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from manifest_platform import failpoints, progress
from manifest_platform.column_names import spelled_twice
from manifest_platform.listing import BAD_TABLE, Table
from manifest_platform.manifest.item import short_name
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.columns import RenamedColumns, RenamedEntry
from manifest_platform.warehouse.consent import refuse_empty, refuse_shrinking
from manifest_platform.warehouse.control import (
    Fence,
    KnownTable,
    KnownTables,
    Ledger,
    LedgerEntry,
    RetiredEntries,
    RetiredEntry,
)
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, Engine, EngineSettings, Staging, Transaction, opened
from manifest_platform.warehouse.errors import (
    Behind,
    CannotLoad,
    Conflict,
    ConstraintViolated,
    CountMismatch,
    EpochInUse,
    Fenced,
    IncompatibleChange,
    KeyMissing,
    LoadFailed,
    ManifestBehind,
    OtherContent,
    SnapshotAhead,
    Unavailable,
    Unbelieved,
    Unclear,
    UnsupportedMode,
    WarehouseError,
)
from manifest_platform.warehouse.families import Families
from manifest_platform.warehouse.load import Full, Load
from manifest_platform.warehouse.rules import Entry, Held, Refusal, Why, is_held_back, knows, lift, lifts, moves, refusals
from manifest_platform.warehouse.snapshot import NameKept, Shadows
from manifest_platform.warehouse.tables import LOAD_TIME, Staged, Tables, check_counts, is_passing

__all__ = [
    "AlreadyApplied",
    "Applied",
    "Full",
    "LedgerEntry",
    "Load",
    "RetiredEntry",
    "Warehouse",
    "open_warehouse",
]

RESHRED = Remedy(Action.RESHRED)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.005, 0.25

_T = TypeVar("_T")


@dataclass(frozen=True)
class Applied:
    """The load was committed just now. `told`: what is out of the ordinary about it, in words."""

    entry: LedgerEntry
    told: tuple[str, ...] = ()


@dataclass(frozen=True)
class AlreadyApplied:
    """The ledger had the item before; nothing was changed."""

    entry: LedgerEntry


class Warehouse:
    """One dataset's tables in one warehouse. Not for several threads at once; several warehouses may work side by side.

    The data tables lie in `schema`, by default named as the dataset; ledger and fence in `manifest_platform`.
    Every method raises Unavailable where the warehouse cannot be reached and LoadFailed where it refuses a statement.
    """

    def __init__(self, engine: Engine, dataset: str, schema: str | None = None) -> None:
        self.dataset = dataset
        self.schema = schema or dataset
        if self.schema == CONTROL_SCHEMA:
            raise ValueError(f"schema {CONTROL_SCHEMA!r} is for ledger and fence; give dataset {dataset!r} another schema")
        self._engine = engine
        self._tables = Tables(engine, self.schema)
        self._fence, self._ledger = Fence(engine, dataset), Ledger(engine, dataset)
        self._known_tables, self._retired = KnownTables(engine, dataset), RetiredEntries(engine, dataset)
        self._renamed = RenamedColumns(engine, dataset)
        self._families = Families(engine, dataset)
        self._told: list[str] = []  # of the load that is being applied
        self._prepared: set[str] = set()
        self._authority: dict[str, tuple[int, int]] = {}  # epoch and token of each feed's newest load

    def reach(self) -> None:
        """Connects, where there is a warehouse to connect to; a file that is none yet is not made. Raises Unavailable, Held."""
        if self._engine.exists():
            self._engine.execute("SELECT 1")

    def prepare(self, feed: str) -> None:
        """Creates ledger, fence and the feed's row in it, where absent. Every other method does so at first use."""
        if feed not in self._prepared:
            self._patiently(lambda: self._create_control_tables(feed))
            self._prepared.add(feed)

    def raise_fence(self, feed: str, token: int, epoch: int, believed: str | None = None) -> None:
        """Lets no older token or epoch commit from now on; what the ledger says afterwards is final for them.

        Raises Fenced where the fence holds a newer token or epoch; Unavailable where an older worker's transaction
        stays open for longer than we wait; Unbelieved, with nothing made, where there is no fence and a record is `believed`.
        May be repeated.
        """
        self._require_fence(feed, believed)
        self.prepare(feed)
        self._patiently(lambda: self._raise_fence(feed, token, epoch))

    def ledger_entry(self, feed: str, item: str, since_epoch: int, believed: str | None = None) -> LedgerEntry | None:
        """The newest entry of an item of this epoch or a later one; None where the item was not applied.

        Raises Unbelieved where the ledger lacks the record that is `believed`: then what it says counts for nothing.
        """
        self._require_fence(feed, believed)
        self.prepare(feed)
        if not knows(believed, self._ledger):
            raise Unbelieved(feed, self._fence.where(feed), believed or "", self._fence.row(feed).record)
        return self._ledger.entry(feed, item, since_epoch)

    def fence_records(self) -> dict[str, str]:
        """The record applied last on each feed, by the fence; empty where there is none. Writes nothing, not even a file."""
        return self._fence.records() if self._engine.exists() else {}

    def fence_records_of_all(self) -> dict[str, dict[str, str]]:
        """As `fence_records`, of all datasets of the warehouse."""
        return self._fence.records_of_all() if self._engine.exists() else {}

    def entry_of(self, record: str) -> LedgerEntry | None:
        """The ledger's entry of the attempt with this record id; None where it was not applied. Writes nothing."""
        return self._ledger.of_record(record) if self._engine.exists() else None

    def fence_row(self, feed: str) -> Held:
        """What the fence holds of a feed. Raises LoadFailed where it has no row."""
        return self._fence.row(feed)

    def _require_fence(self, feed: str, believed: str | None) -> None:
        """Raises Unbelieved, before anything is made, where a warehouse without a fence is to hold what is believed.

        A mistyped path, or a warehouse that was deleted: with the first table made there, it would look like the right one.
        """
        if believed and feed not in self._prepared and feed not in self.fence_records():
            raise Unbelieved(feed, self._fence.where(feed), believed, "")

    def ledger(self, feed: str, since_epoch: int, after: str = "") -> Iterator[LedgerEntry]:
        """The newest entry of each of a feed's items beyond a position, by position; only what still serves.

        Writes nothing: where nothing was ever loaded it is empty, not made.
        """
        return self._ledger.newest(feed, since_epoch, after) if self._engine.exists() else iter(())

    def applied_rows(self, feed: str, since_epoch: int) -> dict[str, int]:
        """How many rows a feed's items have brought to each table, by the ledger; only what still serves. Writes nothing."""
        return self._ledger.sums(feed, since_epoch) if self._engine.exists() else {}

    def apply(self, load: Load) -> Applied | AlreadyApplied:
        """Applies a load wholly or not at all, in the feed's order, once for all epochs from `serving_epoch` on.

        Raises Fenced (a newer worker or epoch has taken over), Behind (late), a CannotLoad (CountMismatch, DuplicateKey,
        KeyMissing, OtherFamily, IncompatibleChange, UnsupportedMode, EpochInUse, SnapshotAhead, OtherContent, LoadFailed),
        Unbelieved (the warehouse was set back, or is another one), ManifestBehind (believe what the fence names, and apply
        again), Unavailable, or Unclear (COMMIT got no answer).
        """
        _refuse_unsupported(load)
        self._told = []
        if self._authority.get(load.feed) != (load.epoch, load.token):
            self._forget()  # since our last load another worker, or a snapshot, may have made tables that we would miss
            self._authority[load.feed] = load.epoch, load.token
        if load.full:
            return self._apply_full(load, load.full)
        self._require_fence(load.feed, load.believed)
        self.prepare(load.feed)
        return self._patiently(lambda: self._apply_with_known_columns(load))

    def newest_epoch(self) -> int:
        """The newest epoch that any feed's fence holds; 0 where nothing was ever loaded. Writes nothing."""
        return self._fence.newest_epoch()

    def retired(self) -> list[RetiredEntry]:
        """The tables and columns that the source has dropped and the warehouse keeps. Writes nothing."""
        return self._retired.read()

    def leftovers(self) -> list[str]:
        """The tables that full loads left behind, or are about to rename: nobody's data. Writes nothing."""
        return self._tables.passing()

    def drop_leftovers(self) -> list[str]:
        """Drops the tables that full loads left behind, and returns which. Nobody may be loading a snapshot."""
        left = self.leftovers()
        for name in left:
            self._engine.execute(f"DROP TABLE IF EXISTS {self._tables.qualified(name)}")
        return left

    def renamed(self) -> list[RenamedEntry]:
        """The columns that are stored under another name than the source's. Writes nothing."""
        return self._renamed.read()

    def row_counts(self, only: Collection[str] | None = None) -> dict[str, int]:
        """How many rows each data table holds, by name; with `only`, of those among them that have these names."""
        self._tables.forget()
        tables = sorted(table for table in self._tables.columns() if only is None or table in only)
        return {table: self._engine.execute(f"SELECT count(*) FROM {self._tables.qualified(table)}")[0][0] for table in tables}  # noqa: S608

    def query(self, sql: str, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of a query's columns, and its rows, the first `most` of them. The data tables need no schema."""
        return self._engine.query(sql, self.schema, most)

    def interrupt(self) -> None:
        """Stops a load that runs in another thread: its transaction rolls back, unless it is committing already."""
        self._engine.interrupt()

    def close(self) -> None:
        """Closes the connection; the next call opens another."""
        self._prepared.clear()
        self._forget()
        self._engine.close()

    # Tables and columns, outside of transactions: engines commit at DDL, or refuse it within.

    def _create_control_tables(self, feed: str) -> None:
        for schema in (CONTROL_SCHEMA, self.schema):
            self._engine.execute(self._engine.schema_creation(schema))
        self._fence.create(feed)  # first: it refuses what a newer release has begun
        for control in (self._ledger, self._known_tables, self._retired, self._families):
            control.create()

    def _apply_with_known_columns(self, load: Load) -> Applied | AlreadyApplied:
        """Applies with the columns known from before; somebody else may have changed them, so a failure asks again."""
        known = self._tables.known
        try:
            return self._attempt(load)
        except CannotLoad as error:
            # A load that was applied, or has no say any more, is not held up by what it brings. And the control tables may be
            # gone since they were made: somebody replaced the warehouse under us.
            self._prepared.clear()
            self._require_fence(load.feed, load.believed)
            if found := self._why_not(load):
                return found
            self._forget()
            if not isinstance(error, LoadFailed | IncompatibleChange) or known is None or known == self._tables.columns():
                raise
            return self._attempt(load)

    def _attempt(self, load: Load) -> Applied | AlreadyApplied:
        if found := self._make_room(load):
            return found
        with self._staged(load) as staged:
            failpoints.reach("load.before_transaction")
            return self._transact(load, staged)

    def _make_room(self, load: Load) -> AlreadyApplied | None:
        """Adds the tables and columns that the load needs, unless it was applied. Raises IncompatibleChange, Fenced, Behind."""
        self._families.check(load)
        room = self._tables.room_for(load)
        unknown = {KnownTable(table.name, load.feed, table.mode) for table in load.listing.tables if table.mode != "delete"}
        unknown -= self._known_tables.read()
        _refuse_other_rows(load, unknown, self._known_tables.read())
        renamed = self._renamed.unknown(room.renamed)
        if not room.changes and not unknown and not renamed:
            return None
        if found := self._why_not(load):  # a worker that was replaced is to change nothing, tables included
            return found
        for change in room.changes:
            change()
        if unknown:
            self._known_tables.remember(unknown)
        if renamed:
            self._renamed.remember(renamed, load.item)
            self._told += map(str, renamed)
        self._tables.forget()  # somebody may have done the same at the same time, so look again before the next load
        return None

    @contextmanager
    def _staged(self, load: Load) -> Generator[dict[str, Staged]]:
        """The rows of a load, by table; those that go by key counted and looked through, before anything is changed."""
        listing = load.listing
        stagings: dict[str, Staging] = {}
        staged: dict[str, Staged] = {}
        try:
            for table in listing.tables:
                if uris := listing.uris(table.name):
                    staging = stagings[table.name] = self._engine.stage(table, uris)
                    if table.mode == "append" and not load.overlaps:
                        staged[table.name] = Staged(table, staging)  # counted as it is inserted: to look twice costs time
                    else:
                        staged[table.name] = self._tables.look_through(table, staging, load)
            yield staged
        finally:
            for staging in stagings.values():
                self._engine.unstage(staging)

    # A snapshot.

    def _apply_full(self, load: Load, full: Full) -> Applied | AlreadyApplied:
        found = self._why_not(load)
        if not found:
            refuse_shrinking(load, full, self._tables, self._known_tables)
        return found or self._patiently(lambda: self._attempt_full(load, full))

    def _attempt_full(self, load: Load, full: Full) -> Applied | AlreadyApplied:
        # Before all else, so that no older worker adds a table or a row that the shadows would not know of.
        self._raise_all_fences(load, full)
        self._forget()
        self.drop_leftovers()
        emptied = self._known_tables.emptied_by(full, load.feed, load.listing)
        if found := self._make_room(load):
            return found
        shadows = Shadows(self._engine, self._tables, load.epoch, load.token)
        try:
            with self._staged(load) as staged:
                shadows.build(load.listing, staged, emptied, datetime.now(UTC))
                failpoints.reach("full.shadows_built")
                # Repeated alone: what the shadows hold took long to get there.
                try:
                    return self._patiently(lambda: self._replace(load, staged, shadows))
                except NameKept as kept:
                    shadows.keep_tables(str(kept))
                try:
                    return self._patiently(lambda: self._replace(load, staged, shadows))
                except NameKept as kept:  # of a new table, whose rows have no other place
                    raise kept.error from kept
        finally:
            shadows.drop()
            self._forget()

    def _replace(self, load: Load, staged: Mapping[str, Staged], shadows: Shadows) -> Applied | AlreadyApplied:
        told = shadows.make_room(load.item)
        done = self._transact(load, staged, shadows)
        return replace(done, told=(*done.told, *told)) if isinstance(done, Applied) else done

    def _raise_all_fences(self, load: Load, full: Full) -> None:
        with opened(self._engine) as transaction:
            if self._fence.move_all(transaction, lifts(load, full)):
                _commit_or_conflict(transaction, f"raising the fences of dataset {self.dataset!r}")
                return
        self._why_not(load)
        raise Conflict(f"the fences of dataset {self.dataset!r} were moved at the same time")

    # The transaction.

    def _transact(self, load: Load, staged: Mapping[str, Staged], shadows: Shadows | None = None) -> Applied | AlreadyApplied:
        point = "full" if shadows else "load"
        existing = self._tables.columns().keys()
        with opened(self._engine) as transaction:
            if self._may_go_on(transaction, load):
                self._families.enter(transaction, load)
                now = datetime.now(UTC)
                with _constraints_named(load):
                    total = sum(map(load.listing.rows, staged))
                    with progress.work(f"loading {short_name(load.item)}", total, "rows") as work:
                        rows = self._move_rows(transaction, load, staged, existing, now, work)
                    if shadows:
                        shadows.swap(transaction)
                entry = self._ledger.enter(transaction, load, rows, now)
                failpoints.reach(f"{point}.in_transaction")
                transaction.commit()
                failpoints.reach(f"{point}.committed")
                return Applied(entry, tuple(self._told))
        if found := self._why_not(load):
            return found
        raise Conflict(f"the fence of {self._fence.where(load.feed)} was moved at the same time")

    def _may_go_on(self, transaction: Transaction, load: Load) -> bool:
        """Moves the fences, as the transaction's first writes, and asks the ledger."""
        return self._fence.move_all(transaction, moves(load)) and not is_held_back(load, self._ledger.within(transaction))

    def _move_rows(
        self,
        transaction: Transaction,
        load: Load,
        staged: Mapping[str, Staged],
        existing: Collection[str],
        now: datetime,
        work: progress.Work,
    ) -> dict[str, int]:
        """All deletes, then all upserts, then what is appended; and what is retired. Returns the staged rows by table."""
        listing = load.listing
        rows = {table.name: 0 for table in listing.tables}
        rows.update({name: one.rows for name, one in staged.items() if one.rows is not None})
        by_mode: dict[str, list[Staged]] = {}
        for one in staged.values():
            by_mode.setdefault(one.table.mode, []).append(one)
        for one in by_mode.get("delete", ()):
            if (target := one.table.target) and target in existing:  # of a table that never was there is nothing to delete
                self._tables.delete(transaction, one, target)
            work.advance(listing.rows(one.table.name))
        for one in by_mode.get("merge", ()):
            self._tables.upsert(transaction, one, now, load.item)
            work.advance(listing.rows(one.table.name))
        for one in by_mode.get("append", ()):
            if load.overlaps:
                self._append_once(transaction, one, now, load.overlaps)
            else:
                rows[one.table.name] = self._tables.append(transaction, one, now)
            work.advance(listing.rows(one.table.name))
        check_counts(load.item, rows, {name: listing.rows(name) for name in rows})
        if listing.retired or any(table.mode != "append" for table in listing.tables):
            self._retired.update(transaction, listing, now)
        return rows

    def _append_once(self, transaction: Transaction, staged: Staged, now: datetime, why: str) -> None:
        left_out = (staged.rows or 0) - self._tables.append_once(transaction, staged, now)
        if left_out:
            told = f"table {staged.table.name}: {left_out:,} of {staged.rows:,} rows were there already, for {why}"
            self._told = [*(line for line in self._told if line != told), told]

    def _raise_fence(self, feed: str, token: int, epoch: int) -> None:
        with opened(self._engine) as transaction:
            if self._fence.move(transaction, feed, lift(token, epoch)):
                _commit_or_conflict(transaction, f"raising the fence of {self._fence.where(feed)}")
                return
        held = self._fence.row(feed)
        if not lift(token, epoch).may(held):
            raise Fenced(self._fence.where(feed), (token, epoch), held.token, held.epoch)
        raise Conflict(f"the fence of {self._fence.where(feed)} was moved at the same time")

    def _why_not(self, load: Load) -> AlreadyApplied | None:
        """Why a load may not pass, by `rules.refusals`: raised as what the caller must do; None where it may."""
        for feed in (load.feed, *(load.full.feeds if load.full else ())):
            self.prepare(feed)
        refusal = next(refusals(load, self._fence.row, self._ledger), None)
        if refusal is None:
            return None
        if refusal.why is Why.KNOWN and isinstance(refusal.entry, LedgerEntry):
            return AlreadyApplied(refusal.entry)
        raise self._refused(load, refusal)

    def _refused(self, load: Load, refusal: Refusal) -> WarehouseError:
        where, held, (other, epoch) = self._fence.where(refusal.feed), refusal.held, refusal.other or ("", 0)
        match refusal.why:
            case Why.FENCED:
                token = load.token if refusal.feed == load.feed else held.token
                return Fenced(where, (token, load.epoch), held.token, held.epoch)
            case Why.UNBELIEVED:
                return Unbelieved(load.feed, where, load.believed or "", held.record)
            case Why.MANIFEST_BEHIND:
                return ManifestBehind(where, held.record)
            case Why.BEHIND:
                return Behind(load.item, load.position, held.applied)
            case Why.SNAPSHOT_AHEAD:
                # Whatever the ledger says of the load itself: what was applied before may be in the tables no more.
                return SnapshotAhead(
                    f"{load.item} goes by epoch {load.serving_epoch}, and the warehouse holds the snapshot {other} of epoch "
                    f"{epoch}: the manifest was put back to before that full load; nothing was changed. "
                    "Begin a full load again",
                    Remedy(Action.BEGIN_FULL_LOAD),
                )
            case Why.EPOCH_IN_USE:
                # What the ledger has of an epoch counts as done in it. A snapshot would take that back unnoticed.
                return EpochInUse(
                    f"{load.item} is to begin epoch {load.epoch}, and the warehouse has loaded {other} in epoch {epoch}: "
                    "this full load was cancelled, or the manifest was put back to before another one; nothing was changed. "
                    "Give the full load up, and begin it again: then its epoch is a new one",
                    Remedy(Action.CANCEL_FULL_LOAD),
                )
            case _:
                return other_content(load.item, load.checksum, refusal.entry)

    def _patiently(self, attempt: Callable[[], _T]) -> _T:
        """Repeats what lost against a concurrent transaction, from its start, for as long as the engine is patient."""
        deadline, pause = time.monotonic() + self._engine.patience, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return attempt()
            except Conflict as error:
                if time.monotonic() >= deadline:
                    raise Unavailable(
                        f"another transaction kept in the way for {self._engine.patience:g} s: {error}; "
                        "try again when it has ended"
                    ) from error
            self._forget()  # the other one may have changed a table
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _forget(self) -> None:
        self._tables.forget()
        self._known_tables.forget()
        self._renamed.forget()
        self._families.forget()


def open_warehouse(
    settings: EngineSettings, dataset: str, *, read_only: bool = False, patience: float | None = None
) -> Warehouse:
    """A dataset's tables in the warehouse that the settings are of; it connects at first use. Close it after use.

    `read_only`, `patience`: as `EngineSettings.open`.
    """
    return Warehouse(settings.open(read_only=read_only, patience=patience), dataset)


def other_content(item: str, checksum: str, entry: Entry | None) -> OtherContent:
    """What to raise where the ledger has an item with another checksum than what has landed."""
    applied = f" at {entry.applied_at:%Y-%m-%d %H:%M:%S %Z}" if isinstance(entry, LedgerEntry) else ""
    return OtherContent(
        f"{item} was applied{applied} with checksum {entry.checksum if entry else ''}, and what landed has {checksum}: it "
        "was rewritten since; nothing was changed. Land again what was loaded, or skip the item to keep what the warehouse has"
    )


def _commit_or_conflict(transaction: Transaction, what: str) -> None:
    """Commits what may be done twice: without a clear answer it is done again."""
    try:
        transaction.commit()
    except Unclear as error:
        raise Conflict(f"{what} got no clear answer") from error


@contextmanager
def _constraints_named(load: Load) -> Generator[None]:
    """Says of a row that a constraint refuses what it is: our tables have none, so that somebody put it there."""
    try:
        yield
    except ConstraintViolated as error:
        raise ConstraintViolated(
            f"{load.item}: a constraint that somebody put on a table, or on another that refers to it, refuses a row; nothing "
            f"was loaded. Drop it, then resolve the item. {error}"
        ) from error


def _refuse_unsupported(load: Load) -> None:
    """Raises a CannotLoad for a load that asks for what cannot be. Asks the warehouse nothing."""
    if load.full:
        refuse_empty(load.item, load.listing, load.full)
    for table in load.listing.tables:
        _refuse_mode(load, table)
        _refuse_key(load, table)
        if table.load_time and any(column.name == LOAD_TIME.name for column in table.columns):
            raise IncompatibleChange(
                f"{load.item}: table {table.name} brings a column {LOAD_TIME.name}, which the load itself sets; shred it under "
                "another name"
            )
        if twice := spelled_twice([column.name for column in table.columns]):
            raise IncompatibleChange(
                f"{load.item}: columns {', '.join(twice)} of table {table.name} differ by case alone, and warehouses match "
                "names without case; shred it under other names"
            )
        if is_passing(table.name):
            raise IncompatibleChange(
                f"{load.item}: table {table.name} is called as those that full loads drop; shred it under another name"
            )
    if unknown := {found.table for found in load.listing.objects} - {table.name for table in load.listing.tables}:
        raise CountMismatch(
            f"{load.item}: its listing has objects of tables that it does not describe "
            f"({', '.join(sorted(unknown))}); shred it again",
            RESHRED,
        )


def _refuse_other_rows(load: Load, unknown: Collection[KnownTable], known: Collection[KnownTable]) -> None:
    """Raises IncompatibleChange where rows by key would go into a table of appended ones, or the other way round.

    So it would be where a log of a vault had the name of one of its objects: a snapshot would replace what was logged.
    """
    for table in unknown:
        for other in known:
            is_other = (other.mode == "append") != (table.mode == "append")
            if is_other and other.table == table.table and table.table != BAD_TABLE:
                raise IncompatibleChange(
                    f"{load.item}: table {table.table} has rows of mode {other.mode} by feed {other.feed}, and would get some"
                    f" of mode {table.mode} by feed {table.feed}; shred one of them under another name"
                )


def _refuse_mode(load: Load, table: Table) -> None:
    allowed = ("replace", "merge") if load.full else ("append", "merge", "delete")
    if table.mode not in allowed:
        raise UnsupportedMode(
            f"{load.item}: table {table.name} has mode {table.mode!r}; {'a snapshot' if load.full else 'an item'} can only "
            f"{', '.join(allowed)}"
        )


def _refuse_key(load: Load, table: Table) -> None:
    by_key = table.mode in ("merge", "delete")
    unknown = set(table.key) - {column.name for column in table.columns}
    if by_key and (not table.key or unknown or (table.mode == "delete" and not table.target)):
        raise KeyMissing(
            f"{load.item}: table {table.name} is to {table.mode} rows by key, and lacks "
            f"{'the columns ' + ', '.join(sorted(unknown)) if unknown else 'its key' if not table.key else 'its target'}; "
            "shred it again",
            RESHRED,
        )
