"""The apply protocol, the same for every engine: a directory's rows, the fence and the ledger change in one transaction.

The fence holds a feed's newest epoch, token and applied position; a transaction that does not exceed it changes nothing. The
ledger records what was applied, and under which epoch. Both are stored beside the data. The warehouse itself therefore refuses
a load that is out of order, repeated, or sent by a replaced worker, whatever the manifest believes.

Rows are loaded in one of three ways. They are appended; or rows are deleted by key, then upserted by key; or a snapshot's
tables replace the old tables by renaming, so that readers see either the old rows or the new rows.

Two words of the parameters. `believed`: the id of the attempt that the manifest believes was applied last on the feed (see
`rules`). Serving epochs: the epochs whose rows are current, because no later snapshot has replaced them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from manifest_platform import failpoints, progress
from manifest_platform.column_names import matched, spelled_twice
from manifest_platform.listing import BAD_TABLE, Table
from manifest_platform.manifest.item import short_name
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse import applied_view, takeover
from manifest_platform.warehouse.applied_view import AppliedView
from manifest_platform.warehouse.batch import Rows, require_consecutive, times_of
from manifest_platform.warehouse.checks import Checked
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
from manifest_platform.warehouse.copies import Copies, told
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
    NotTogether,
    OtherContent,
    SnapshotAhead,
    Unbelieved,
    Unclear,
    UnsupportedMode,
    WarehouseError,
)
from manifest_platform.warehouse.families import Families
from manifest_platform.warehouse.gate import Gate
from manifest_platform.warehouse.load import Full, Load
from manifest_platform.warehouse.readable import readable
from manifest_platform.warehouse.reload import Reloads
from manifest_platform.warehouse.retries import patiently, repeated
from manifest_platform.warehouse.rules import (
    Entry,
    Held,
    Refusal,
    Why,
    are_held_back,
    is_held_back,
    knows,
    lift,
    lifts,
    moves,
    passing_all,
    refusals,
    replacing,
)
from manifest_platform.warehouse.snapshot import NameKept, Replacement, replacement
from manifest_platform.warehouse.tables import LOAD_TIME, Staged, Tables, check_counts, is_passing
from manifest_platform.warehouse.takeover import FormerNotes, Standing
from manifest_platform.warehouse.texts import Texts
from manifest_platform.warehouse.upkeep import OldRows, Upkeep

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

_T = TypeVar("_T")


@dataclass(frozen=True)
class Applied:
    """The load was just committed. `told`: messages for people about anything unusual in it. `checks`: their outcomes."""

    entry: LedgerEntry
    told: tuple[str, ...] = ()
    checks: tuple[Checked, ...] = ()


@dataclass(frozen=True)
class AlreadyApplied:
    """The ledger already had the item; nothing was changed."""

    entry: LedgerEntry


class Warehouse:
    """The tables of one dataset in one warehouse. Not thread-safe; several instances may work concurrently.

    The data tables are in `schema`, by default the dataset's name; ledger and fence are in `manifest_platform`. Every method
    raises Unavailable if the warehouse cannot be reached, and LoadFailed if it refuses a statement. `view`: the view of loaded
    items that the schema gets before the next load. `former`: the notes of another loader, whose tables must be taken over
    before the first load.
    """

    def __init__(
        self,
        engine: Engine,
        dataset: str,
        schema: str | None = None,
        view: AppliedView | None = None,
        former: FormerNotes | None = None,
    ) -> None:
        self.dataset = dataset
        self.schema = schema or dataset
        if self.schema == CONTROL_SCHEMA:
            raise ValueError(f"schema {CONTROL_SCHEMA!r} is reserved. Give dataset {dataset!r} another schema")
        self._engine = engine
        self._tables = Tables(engine, self.schema)
        self._view, self._has_view = view, False
        self._former = former
        self._fence, self._ledger = Fence(engine, dataset), Ledger(engine, dataset, keeps_about=view is not None)
        self._known_tables, self._retired = KnownTables(engine, dataset), RetiredEntries(engine, dataset)
        self._renamed = RenamedColumns(engine, dataset)
        self._families = Families(engine, dataset)
        self._gate = Gate(engine, self._tables)
        self._copies = Copies(engine, self._tables)
        self._texts = Texts(engine, self._tables)
        self.upkeep = Upkeep(engine, dataset, self._tables, self._ledger, self._known_tables)
        self._reloads = Reloads(engine, self._tables, self._ledger, self._known_tables, self.upkeep.removed)
        self._told: list[str] = []  # of the load in progress
        self._prepared: set[str] = set()
        self._authority: dict[str, tuple[int, int]] = {}  # epoch and token of each feed's newest load

    @repeated
    def reach(self) -> None:
        """Connects if the warehouse exists; does not create a missing file. Raises Unavailable, Held."""
        if self._engine.exists():
            self._engine.execute("SELECT 1")

    def exists(self) -> bool:
        """True if the warehouse exists. Creates nothing."""
        return self._engine.exists()

    @repeated
    def prepare(self, feed: str) -> None:
        """Creates the ledger, the fence and the feed's row in the fence, if absent. Methods that write do so at first use."""
        if feed not in self._prepared:
            self._create_control_tables(feed)
            self._prepared.add(feed)

    @repeated
    def raise_fence(self, feed: str, token: int, epoch: int, believed: str | None = None) -> None:
        """Refuses commits of older tokens and epochs from now on. Idempotent.

        After this call, an older worker can no longer commit, so the ledger's answer about its load is final.

        Raises Fenced if the fence holds a newer token or epoch. Raises Unavailable if an older worker's transaction stays open
        for longer than the engine waits. Raises Unbelieved, without creating anything, if the warehouse has no fence although
        the manifest has a `believed` record.
        """
        self._require_fence(feed, believed)
        self.prepare(feed)
        self._raise_fence(feed, token, epoch)

    @repeated
    def ledger_entry(self, feed: str, item: str, since_epoch: int, believed: str | None = None) -> LedgerEntry | None:
        """Returns the newest entry of an item in this epoch or later; None if the item was not applied.

        Raises Unbelieved if the ledger lacks the record that is `believed`, because then its answers do not count.
        """
        self._require_fence(feed, believed)
        self.prepare(feed)
        if not knows(believed, self._ledger):
            raise Unbelieved(feed, self._fence.where(feed), believed or "", self._fence.row(feed).record)
        return self._ledger.entry(feed, item, since_epoch)

    @repeated
    def fence_records(self) -> dict[str, str]:
        """Returns the record applied last on each feed, from the fence; empty without a fence. Writes nothing."""
        return self._fence.records() if self._engine.exists() else {}

    @repeated
    def fence_records_of_all(self) -> dict[str, dict[str, str]]:
        """Returns the same as `fence_records`, for all datasets of the warehouse."""
        return self._fence.records_of_all() if self._engine.exists() else {}

    @repeated
    def entry_of(self, record: str) -> LedgerEntry | None:
        """Returns the ledger's entry of the attempt with this record id; None if it was not applied. Writes nothing."""
        return self._ledger.of_record(record) if self._engine.exists() else None

    @repeated
    def fence_row(self, feed: str) -> Held:
        """Returns the fence's values for a feed. Raises LoadFailed if it has no row."""
        return self._fence.row(feed)

    @repeated
    def require_taken_over(self) -> None:
        """Raises NotTakenOver if another loader has filled the schema, and this platform has loaded nothing. Writes nothing."""
        if self._engine.exists():
            self._require_taken_over()

    def _require_taken_over(self) -> None:
        if self._former and not self._fence.records():
            takeover.refuse_unless_taken_over(self._engine, self.schema, self._former)

    def _require_fence(self, feed: str, believed: str | None) -> None:
        """Raises Unbelieved, before anything is created, if a warehouse without a fence should hold a believed record.

        The path may be mistyped, or the warehouse deleted. If tables were created there first, the wrong warehouse would look
        like the right one.
        """
        if believed and feed not in self._prepared and feed not in self.fence_records():
            raise Unbelieved(feed, self._fence.where(feed), believed, "")

    def ledger(self, feed: str, since_epoch: int, after: str = "") -> Iterator[LedgerEntry]:
        """Yields the newest entry in serving epochs of each of a feed's items after a position, ordered by position."""
        return self._ledger.newest(feed, since_epoch, after, self.patiently) if self._engine.exists() else iter(())

    @repeated
    def applied_rows(self, feed: str, since_epoch: int) -> dict[str, int]:
        """Returns the number of rows that a feed's items brought to each table in serving epochs, by the ledger."""
        return self._ledger.sums(feed, since_epoch) if self._engine.exists() else {}

    @repeated
    def apply(self, load: Load) -> Applied | AlreadyApplied:
        """Applies a load completely or not at all, in the feed's order, once for all epochs since `serving_epoch`.

        Raises Fenced (a newer worker or epoch has taken over); Behind (the item is late); a CannotLoad (CountMismatch,
        DuplicateKey, KeyMissing, OtherFamily, IncompatibleChange, UnsupportedMode, EpochInUse, SnapshotAhead, OtherContent,
        CheckFailed, LoadFailed); CheckInvalid and ViewRefused (charged to no item); Unbelieved (the warehouse was set back, or
        is another database); ManifestBehind (believe the fence's record, then apply again); Unavailable; Unclear (COMMIT got no
        answer).
        """
        _refuse_unsupported(load)
        self._told = []
        self._engine.working_on(self.dataset, load.item, load.record_id)
        if self._authority.get(load.feed) != (load.epoch, load.token):
            self._forget()  # another worker or a snapshot may have created tables since our last load
            self._authority[load.feed] = load.epoch, load.token
        if load.full:
            with readable(load.listing, self._engine) as listing:
                return self._apply_full(replace(load, listing=listing), load.full)
        self._require_fence(load.feed, load.believed)
        self.prepare(load.feed)
        self._create_view()
        with readable(load.listing, self._engine) as listing:
            return self._apply_with_known_columns(replacing(replace(load, listing=listing), self._ledger))

    @repeated
    def apply_all(self, loads: Sequence[Load]) -> list[Applied]:
        """Applies consecutive loads of one feed in one transaction: all or none, each with its own entry in the ledger.

        The rows are those of `apply`, load by load. None may be late, a snapshot, or overlap earlier loads: raises ValueError.
        Raises a CannotLoad if the loads cannot be applied together, whatever the reason: apply fewer then, down to one by
        one, which tells the reason and finds the load. Raises Unavailable, or Unclear (COMMIT got no answer).
        """
        first = loads[0]
        require_consecutive(loads)
        for load in loads:
            _refuse_unsupported(load)
        self._engine.working_on(self.dataset, first.item, first.record_id)
        if self._authority.get(first.feed) != (first.epoch, first.token):
            self._forget()
            self._authority[first.feed] = first.epoch, first.token
        self._require_fence(first.feed, first.believed)
        self.prepare(first.feed)
        self._create_view()
        try:
            with ExitStack() as stack:
                flat = [replace(load, listing=stack.enter_context(readable(load.listing, self._engine))) for load in loads]
                return self._attempt_all(flat)
        except CannotLoad:
            self._prepared.clear()
            self._forget()
            raise
        except (Fenced, Behind, ManifestBehind) as error:
            raise NotTogether(str(error)) from error

    @repeated
    def standings(self, tables: Sequence[Table]) -> list[Standing]:
        """Compares those of these tables that exist with what loads need. Writes nothing."""
        self._tables.forget()
        return list(takeover.standings(self._engine, self._tables, tables)) if self._engine.exists() else []

    @repeated
    def take_over(self, feed: str, entries: Sequence[LedgerEntry], rows: dict[str, int]) -> int:
        """Enters what another loader has loaded into these tables, and returns the number of new entries. Idempotent.

        `entries`: in the feed's order, with the rows that are known. `rows`: those of each table, all entries together. Nobody
        else may do this, or load, meanwhile. Raises LoadFailed if the ledger has loads of the feed that are not among them.
        """
        self._former = None
        self.prepare(feed)
        there = {entry.item for entry in self._ledger.newest(feed, 0, "", self.patiently)}
        if own := takeover.strange(there, {entry.item for entry in entries}):
            raise LoadFailed(f"{own}. Nothing was changed")
        missing = takeover.completed([one for one in entries if one.item not in there], rows, self._ledger.sums(feed, 0))
        if not missing:
            return 0
        with opened(self._engine) as transaction:
            for start in range(0, len(missing), takeover.AT_ONCE):
                self._ledger.write(transaction, missing[start : start + takeover.AT_ONCE])
            failpoints.reach("takeover.in_transaction")
            _commit_or_conflict(transaction, f"the takeover of the tables of dataset {self.dataset!r}")
        return len(missing)

    @repeated
    def table_names(self) -> list[str]:
        """Returns the names of the data tables, as the warehouse has them. Writes nothing."""
        self._tables.forget()
        return sorted(self._tables.columns()) if self._engine.exists() else []

    @repeated
    def content(self, table: str, order: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Returns the columns and all rows of a small table of the schema, ordered by a column. Writes nothing."""
        names = list(self.columns_of(table))
        by = matched(names, order)
        ordered = f" ORDER BY {self._engine.quote(by)}" if by else ""
        query = f"SELECT {self._tables.names(names)} FROM {self._tables.qualified(table)}{ordered}"  # noqa: S608
        return names, self._engine.execute(query)

    @property
    def engine(self) -> Engine:
        """The engine, for a `Warehouse` of another schema on the same connection."""
        return self._engine

    def columns_of(self, table: str) -> dict[str, str]:
        """Returns the types of a data table's columns; empty without such a table. Cached."""
        return dict(self._tables.columns_of(table) or {})

    def place_of(self, table: str) -> str:
        """Returns the name of a data table with its schema, quoted for queries."""
        return self._tables.qualified(table)

    def remove_old(self, old: OldRows) -> int:
        """Removes the old rows of a table in several transactions, and returns their number."""
        parts = list(self.upkeep.parts(old))
        return sum(self.patiently(lambda one=one: self.upkeep.remove(old, *one)) for one in parts)

    @repeated
    def removed_rows(self) -> dict[str, int]:
        """Returns the number of old rows that upkeep removed from each table. Writes nothing."""
        return self.upkeep.removed() if self._engine.exists() else {}

    @repeated
    def newest_epoch(self) -> int:
        """Returns the newest epoch in any feed's fence; 0 if nothing was ever loaded. Writes nothing."""
        return self._fence.newest_epoch()

    @repeated
    def retired(self) -> list[RetiredEntry]:
        """Returns the tables and columns that the source has dropped and the warehouse keeps. Writes nothing."""
        return self._retired.read()

    @repeated
    def leftovers(self) -> list[str]:
        """Returns the temporary tables that full loads left behind, or are about to rename. Writes nothing."""
        return self._tables.passing()

    @repeated
    def drop_leftovers(self) -> list[str]:
        """Drops the tables that full loads left behind, and returns their names. No snapshot may be loading meanwhile."""
        left = self.leftovers()
        for name in left:
            self._engine.execute(f"DROP TABLE IF EXISTS {self._tables.qualified(name)}")
        return left

    @repeated
    def renamed(self) -> list[RenamedEntry]:
        """Returns the columns that are stored under another name than the source's. Writes nothing."""
        return self._renamed.read()

    @repeated
    def row_counts(self, only: Collection[str] | None = None) -> dict[str, int]:
        """Returns the number of rows of each data table, by its name in listings. `only`: limits it to these tables."""
        self._tables.forget()
        compared = self._engine.compared
        given = {compared(one): one for one in (self._known_names() if only is None else only)}
        tables = sorted(table for table in self._tables.columns() if only is None or compared(table) in given)
        counting = "SELECT count(*) FROM "
        return {
            given.get(compared(name), name): self._engine.execute(counting + self._tables.qualified(name))[0][0]
            for name in tables
        }

    def _known_names(self) -> Collection[str]:
        """Returns the names in listings of tables, if the engine may store them in a shorter form."""
        has_short_names = self._engine.longest_name and self._known_tables.exists()
        return {known.table for known in self._known_tables.read()} if has_short_names else ()

    @repeated
    def query(self, sql: str, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Returns a query's column names and its rows, at most `most`. The data tables need no schema before their names."""
        return self._engine.query(sql, self.schema, most)

    def interrupt(self) -> None:
        """Stops a load that runs in another thread. Its transaction rolls back, unless COMMIT has begun."""
        self._engine.interrupt()

    def release(self, idle: bool = False) -> bool:
        """Lets other processes use a warehouse that only a single process can have open. See `Engine.release`."""
        return self._engine.release(idle)

    @property
    def is_at_hand(self) -> bool:
        """False if the next statement may have to wait until another process lets go of the warehouse."""
        return self._engine.is_at_hand

    def close(self) -> None:
        """Closes the connection; the next call opens a new connection."""
        self._prepared.clear()
        self._has_view = False
        self._forget()
        self._engine.close()

    # Tables and columns, changed outside of transactions: some engines commit at DDL, or refuse it in a transaction.

    def _create_control_tables(self, feed: str) -> None:
        self._require_taken_over()
        for schema in (CONTROL_SCHEMA, self.schema):
            self._engine.create_schema(schema)
        self._fence.create(feed)  # first, because it refuses a fence that a newer release has written
        for control in (self._ledger, self._known_tables, self._retired, self._families):
            control.create()

    def _create_view(self) -> None:
        """Creates the view of loaded items, once. Raises ViewRefused, Conflict."""
        if self._view and not self._has_view:
            applied_view.create(self._engine, self.schema, self.dataset, self._view, self._ledger.table)
            self._has_view = True

    def _apply_with_known_columns(self, load: Load) -> Applied | AlreadyApplied:
        """Applies with cached columns. If that fails, reads them again, because another process may have changed them."""
        known = self._tables.known
        try:
            return self._attempt(load)
        except CannotLoad as error:
            # A load that was applied, or was replaced, does not fail for its content. The control tables may be missing because
            # the warehouse was replaced since they were created.
            self._prepared.clear()
            self._has_view = False
            self._require_fence(load.feed, load.believed)
            if found := self._why_not(load):
                return found
            self._forget()
            if isinstance(error, LoadFailed) and (told := self._tables.allow_nulls(load)):
                self._told += told
            elif not isinstance(error, LoadFailed | IncompatibleChange) or known is None or known == self._tables.columns():
                raise
            return self._attempt(load)

    def _attempt(self, load: Load) -> Applied | AlreadyApplied:
        if not load.checks and (found := self._make_room(load)):
            return found
        with self._staged(load) as staged, self._copies.asked(load, lambda item: self._has_applied(load, item)) as answer:
            if load.checks and (found := self._make_room(load)):  # a failed check leaves no empty table behind
                return found
            self._gate.try_target(load, staged)
            failpoints.reach("load.before_transaction")
            return self._transact(load, staged, answer=answer)

    def _has_applied(self, load: Load, item: str) -> bool:
        """True if the ledger has an item whose rows are current."""
        return self._ledger.entry(load.feed, item, load.serving_epoch) is not None

    def _make_room(self, load: Load) -> AlreadyApplied | None:
        """Adds the tables and columns that the load needs, unless it was applied. Raises IncompatibleChange, Fenced, Behind."""
        self._families.check(load)
        room = self._tables.room_for(load)
        unknown = {KnownTable(table.name, load.feed, table.mode) for table in load.listing.tables if table.mode != "delete"}
        unknown -= self._known_tables.read()
        _refuse_other_rows(load, unknown, self._known_tables.read(), self._engine.compared)
        renamed = self._renamed.unknown(room.renamed)
        if not room.changes and not unknown and not renamed:
            return None
        if found := self._why_not(load):  # a replaced worker must change nothing, tables included
            return found
        for change in room.changes:
            change()
        if unknown:
            self._known_tables.remember(unknown)
        if renamed:
            self._renamed.remember(renamed, load.item)
            self._told += map(str, renamed)
        self._tables.forget()  # another process may have changed them too, so they are read again before the next load
        return None

    @contextmanager
    def _staged(self, load: Load) -> Generator[dict[str, Staged]]:
        """Yields the staged rows of a load, by table. Rows that are loaded by key are first counted and checked."""
        listing = load.listing
        stagings: dict[str, Staging] = {}
        staged: dict[str, Staged] = {}
        try:
            for table in listing.tables:
                if uris := listing.uris(table.name):
                    staging, told = self._texts.staged(load, table, uris)
                    stagings[table.name] = staging
                    self._told = list(dict.fromkeys([*self._told, *told]))  # staged again after a conflict
                    staged[table.name] = Staged(table, staging)  # appended rows are counted by the INSERT: a second read costs
            counted = [(one.table, one.staging) for one in staged.values() if one.table.mode != "append" or load.overlaps]
            staged |= self._tables.look_through(counted, load)
            self._gate.begin()
            self._gate.check_staged(load, staged)
            yield staged
        finally:
            self._engine.unstage_all(stagings.values())

    # Several loads

    def _attempt_all(self, loads: Sequence[Load]) -> list[Applied]:
        told: list[tuple[str, ...]] = []
        for load in loads:
            self._told = []
            try:
                # The ledger lacks the records before this load's until the transaction is committed.
                if self._make_room(replace(load, believed=loads[0].believed)):
                    raise NotTogether(f"the ledger has {load.item} already")
            except CannotLoad as error:
                error.fitting = len(told)
                raise
            told.append(tuple(self._told))
        with Rows(self._engine, self._tables, loads).staged() as rows:
            self._gate.check_items(loads, rows.by_item())
            failpoints.reach("batch.before_transaction")
            return self._transact_all(loads, rows, told)

    def _transact_all(self, loads: Sequence[Load], rows: Rows, told: Sequence[tuple[str, ...]]) -> list[Applied]:
        feed = loads[0].feed
        self._tables.columns()  # read before the transaction, which holds the fence
        with opened(self._engine) as transaction:
            if self._fence.move(transaction, feed, passing_all(loads)) and not are_held_back(
                loads, self._ledger.within(transaction)
            ):
                times = times_of(loads, datetime.now(UTC))
                for load in loads:
                    self._families.enter(transaction, load)
                with _constraints_named(loads[0]):
                    rows.move(transaction, times)
                changes = [
                    (load.listing, now)
                    for load, now in zip(loads, times, strict=True)
                    if load.listing.retired or any(table.mode != "append" for table in load.listing.tables)
                ]
                if changes:
                    self._retired.update_all(transaction, changes)
                for load, staged in zip(loads, rows.by_item(), strict=True):
                    self._gate.check_target(transaction, load, staged)
                moved = [{table.name: load.listing.rows(table.name) for table in load.listing.tables} for load in loads]
                entries = self._ledger.enter_all(transaction, list(zip(loads, moved, times, strict=True)))
                failpoints.reach("batch.in_transaction")
                transaction.commit()
                failpoints.reach("batch.committed")
                return [self._committed(*one) for one in zip(loads, entries, told, strict=True)]
        for load in loads:
            if next(refusals(replace(load, believed=loads[0].believed), self._fence.row, self._ledger), None):
                raise NotTogether(f"the fence or the ledger refuse {load.item}")
        raise Conflict(f"the fence of {self._fence.where(feed)} was moved at the same time")

    def _committed(self, load: Load, entry: LedgerEntry, told: Sequence[str]) -> Applied:
        return Applied(entry, (*told, *self._gate.told(load)), self._gate.outcomes(load))

    # Snapshots

    def _apply_full(self, load: Load, full: Full) -> Applied | AlreadyApplied:
        found = self._why_not(load)
        if not found:
            refuse_shrinking(load, full, self._tables, self._known_tables)
        return found or self._attempt_full(load, full)

    def _attempt_full(self, load: Load, full: Full) -> Applied | AlreadyApplied:
        # First, so that no older worker adds a table or a row that the shadow tables would lack.
        self._raise_all_fences(load, full)
        self._forget()
        self.drop_leftovers()
        emptied = self._known_tables.emptied_by(full, load.feed, load.listing)
        if found := self._make_room(load):
            return found
        replacing = replacement(self._engine, self._tables, load.epoch, load.token)
        try:
            with self._staged(load) as staged:
                self._gate.try_target(load, staged)
                replacing.build(load.listing, staged, emptied, datetime.now(UTC))
                failpoints.reach("full.shadows_built")
                # Only the swap is repeated, because filling the shadow tables took long.
                try:
                    return self.patiently(lambda: self._replace(load, staged, replacing), cut=False)
                except NameKept as kept:
                    replacing.keep_tables(str(kept))
                try:
                    return self.patiently(lambda: self._replace(load, staged, replacing), cut=False)
                except NameKept as kept:  # a new table has no other place for its rows
                    raise kept.error from kept
        finally:
            replacing.drop()
            self._forget()

    def _replace(self, load: Load, staged: Mapping[str, Staged], replacing: Replacement) -> Applied | AlreadyApplied:
        told = replacing.make_room(load.item)
        done = self._transact(load, staged, replacing)
        return replace(done, told=(*done.told, *told)) if isinstance(done, Applied) else done

    def _raise_all_fences(self, load: Load, full: Full) -> None:
        with opened(self._engine) as transaction:
            if self._fence.move_all(transaction, lifts(load, full)):
                _commit_or_conflict(transaction, f"raising the fences of dataset {self.dataset!r}")
                return
        self._why_not(load)
        raise Conflict(f"the fences of dataset {self.dataset!r} were moved at the same time")

    # The transaction

    def _transact(
        self,
        load: Load,
        staged: Mapping[str, Staged],
        replacing: Replacement | None = None,
        answer: Staging | None = None,
    ) -> Applied | AlreadyApplied:
        point = "full" if replacing else "load"
        self._tables.columns()  # read before the transaction, which holds the fence
        with opened(self._engine) as transaction:
            if self._may_go_on(transaction, load):
                self._families.enter(transaction, load)
                now = datetime.now(UTC)
                if load.replaces:
                    now = self._reloads.remove(transaction, load, now)
                with _constraints_named(load):
                    total = sum(map(load.listing.rows, staged))
                    with progress.work(f"loading {short_name(load.item)}", total, "rows") as work:
                        rows = self._move_rows(transaction, load, staged, now, work, answer)
                    if replacing:
                        replacing.swap(transaction)
                self._gate.check_target(transaction, load, staged)
                entry = self._ledger.enter(transaction, load, rows, now)
                failpoints.reach(f"{point}.in_transaction")
                transaction.commit()
                failpoints.reach(f"{point}.committed")
                return self._committed(load, entry, self._told)
        if found := self._why_not(load):
            return found
        raise Conflict(f"the fence of {self._fence.where(load.feed)} was moved at the same time")

    def _may_go_on(self, transaction: Transaction, load: Load) -> bool:
        """Moves the fences as the transaction's first writes, and checks the ledger. Returns False if the load may not pass."""
        return self._fence.move_all(transaction, moves(load)) and not is_held_back(load, self._ledger.within(transaction))

    def _move_rows(
        self,
        transaction: Transaction,
        load: Load,
        staged: Mapping[str, Staged],
        now: datetime,
        work: progress.Work,
        answer: Staging | None = None,
    ) -> dict[str, int]:
        """Runs all deletes, then upserts, then appends; records retired columns.

        Returns the staged rows by table, without those that are left out because earlier loads brought them.
        """
        listing = load.listing
        rows = {table.name: 0 for table in listing.tables}
        rows.update({name: one.rows for name, one in staged.items() if one.rows is not None})
        by_mode: dict[str, list[Staged]] = {}
        for one in staged.values():
            by_mode.setdefault(one.table.mode, []).append(one)
        by_target: dict[str, list[Staged]] = {}
        for one in (*by_mode.get("delete", ()), *by_mode.get("merge", ())):
            target = (one.table.target or "") if one.table.mode == "delete" else one.table.name
            by_target.setdefault(target, []).append(one)
        for target, changes in by_target.items():
            if self._tables.columns_of(target) is not None:  # a table that does not exist has nothing to delete
                self._tables.delete(transaction, target, changes)
            work.advance(sum(listing.rows(one.table.name) for one in changes if one.table.mode == "delete"))
        for one in by_mode.get("merge", ()):
            self._tables.insert(transaction, one, now, load.item)
            work.advance(listing.rows(one.table.name))
        appends, written = by_mode.get("append", []), {}
        copies = self._copies.within(transaction, load, staged, answer)
        for one in copies.ordered(appends) if copies else appends:
            if copies and (source := copies.source(one)):
                written[one.table.name] = self._tables.append(transaction, one, now, source)
                rows[one.table.name] = self._copies.count(transaction, one)
            elif load.overlaps:
                self._append_once(transaction, one, now, load.overlaps)
            else:
                rows[one.table.name] = self._tables.append(transaction, one, now)
            work.advance(listing.rows(one.table.name))
        check_counts(load.item, rows, {name: listing.rows(name) for name in rows})
        if listing.retired or any(table.mode != "append" for table in listing.tables):
            self._retired.update(transaction, listing, now)
        if copies and load.repeats:
            left_out = {name: rows[name] - some for name, some in written.items()}
            self._told = list(dict.fromkeys([*self._told, told(left_out, load.repeats.rule.identity.table)]))
        return rows | written

    def _append_once(self, transaction: Transaction, staged: Staged, now: datetime, why: str) -> None:
        left_out = (staged.rows or 0) - self._tables.append_once(transaction, staged, now)
        if left_out:
            told = f"table {staged.table.name}: {left_out:,} of {staged.rows:,} rows existed already, because {why}"
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
        """Returns AlreadyApplied if the ledger has the load, None if it may pass; otherwise raises the reason."""
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
                # The ledger's entry for the load does not matter: its rows may no longer be in the tables.
                return SnapshotAhead(
                    f"{load.item} belongs to epoch {load.serving_epoch}, but the warehouse holds the snapshot {other} of "
                    f"epoch {epoch}: the manifest was set back to a time before that full load. Nothing was changed. "
                    "Begin a full load again",
                    Remedy(Action.BEGIN_FULL_LOAD),
                )
            case Why.EPOCH_IN_USE:
                # An item in the ledger under an epoch counts as done in it. A snapshot would silently take its rows away.
                return EpochInUse(
                    f"{load.item} would begin epoch {load.epoch}, but the warehouse has loaded {other} in epoch {epoch}: "
                    "this full load was canceled, or the manifest was set back to a time before another full load. "
                    "Nothing was changed. Cancel the full load and begin it again: it then gets a new epoch",
                    Remedy(Action.CANCEL_FULL_LOAD),
                )
            case _:
                return other_content(load.item, load.checksum, refusal.entry)

    def patiently(self, attempt: Callable[[], _T], *, cut: bool = True) -> _T:
        """Repeats an attempt that failed for a moment, within the engine's patience (see `retries`). Raises Unavailable."""
        return patiently(attempt, self._engine.patience, self._forget, cut=cut)

    def _forget(self) -> None:
        self._tables.forget()
        self._known_tables.forget()
        self._renamed.forget()
        self._retired.forget()
        self._families.forget()


def open_warehouse(
    settings: EngineSettings,
    dataset: str,
    schema: str | None = None,
    *,
    read_only: bool = False,
    patience: float | None = None,
    view: AppliedView | None = None,
    former: FormerNotes | None = None,
) -> Warehouse:
    """Returns a dataset's tables in the warehouse of the settings. It connects at first use. Close it after use.

    `schema`: that of the tables; None: the dataset's name. `read_only`, `patience`: as in `EngineSettings.open`. `view`: the
    view of loaded items that a load creates. `former`: the notes of another loader, if a first load must not meet them.
    """
    return Warehouse(settings.open(read_only=read_only, patience=patience), dataset, schema, view, former)


def other_content(item: str, checksum: str, entry: Entry | None) -> OtherContent:
    """Returns the error for an item that the ledger has with another checksum than what has landed."""
    applied = f" at {entry.applied_at:%Y-%m-%d %H:%M:%S %Z}" if isinstance(entry, LedgerEntry) else ""
    return OtherContent(
        f"{item} was applied{applied} with checksum {entry.checksum if entry else ''}, but what landed has {checksum}: it "
        "was rewritten since. Nothing was changed. Land the loaded content again, or skip the item to keep the warehouse's rows"
    )


def _commit_or_conflict(transaction: Transaction, what: str) -> None:
    """Commits a transaction that is safe to repeat: an unclear answer becomes a Conflict."""
    try:
        transaction.commit()
    except Unclear as error:
        raise Conflict(f"{what} got no clear answer") from error


@contextmanager
def _constraints_named(load: Load) -> Generator[None]:
    """Explains a constraint violation: our tables have no constraints, so a user added one."""
    try:
        yield
    except ConstraintViolated as error:
        raise ConstraintViolated(
            f"{load.item}: a constraint that somebody added to a table, or to a table that refers to it, refuses a row. "
            f"Nothing was loaded. Drop the constraint, then resolve the item. {error}"
        ) from error


def _refuse_unsupported(load: Load) -> None:
    """Raises a CannotLoad for a load that no warehouse can apply. Sends no query."""
    if load.full:
        refuse_empty(load.item, load.listing, load.full)
    for table in load.listing.tables:
        _refuse_mode(load, table)
        _refuse_key(load, table)
        if table.load_time and any(column.name == LOAD_TIME.name for column in table.columns):
            raise IncompatibleChange(
                f"{load.item}: table {table.name} has a column {LOAD_TIME.name}, which the load itself sets. Shred it under "
                "another name"
            )
        if twice := spelled_twice([column.name for column in table.columns]):
            raise IncompatibleChange(
                f"{load.item}: columns {', '.join(twice)} of table {table.name} differ only by case, and warehouses match "
                "names without case. Shred it under other names"
            )
        if is_passing(table.name):
            raise IncompatibleChange(
                f"{load.item}: table name {table.name} is reserved for tables that full loads drop. Shred it under another name"
            )
    if unknown := {found.table for found in load.listing.objects} - {table.name for table in load.listing.tables}:
        raise CountMismatch(
            f"{load.item}: its listing has objects of tables that it does not describe "
            f"({', '.join(sorted(unknown))}). Shred it again",
            RESHRED,
        )


def _refuse_other_rows(
    load: Load, unknown: Collection[KnownTable], known: Collection[KnownTable], compared: Callable[[str], str]
) -> None:
    """Raises IncompatibleChange if rows by key would go into a table of appended rows, or the reverse.

    This happens if a log of a vault has the name of one of its objects: a snapshot would replace the logged rows.
    """
    for table in unknown:
        for other in known:
            is_other = (other.mode == "append") != (table.mode == "append")
            if is_other and compared(other.table) == compared(table.table) and table.table != BAD_TABLE:
                raise IncompatibleChange(
                    f"{load.item}: table {table.table} has rows of mode {other.mode} from feed {other.feed}, and would get rows"
                    f" of mode {table.mode} from feed {table.feed}. Shred one of them under another name"
                )


def _refuse_mode(load: Load, table: Table) -> None:
    allowed = ("replace", "merge") if load.full else ("append", "merge", "delete")
    if table.mode not in allowed:
        raise UnsupportedMode(
            f"{load.item}: table {table.name} has mode {table.mode!r}. {'A snapshot' if load.full else 'An item'} can only "
            f"{', '.join(allowed)}"
        )


def _refuse_key(load: Load, table: Table) -> None:
    by_key = table.mode in ("merge", "delete")
    unknown = set(table.key) - {column.name for column in table.columns}
    if by_key and (not table.key or unknown or (table.mode == "delete" and not table.target)):
        raise KeyMissing(
            f"{load.item}: table {table.name} must {table.mode} rows by key, but lacks "
            f"{'the columns ' + ', '.join(sorted(unknown)) if unknown else 'its key' if not table.key else 'its target'}. "
            "Shred it again",
            RESHRED,
        )
