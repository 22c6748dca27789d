"""The rows of an earlier load of an item, removed in the transaction that loads the item again.

The load time in a row of an appended table names the row's item. Exactly the rows that the ledger counts must go: more would be
another item's, fewer may have been removed on purpose. Either is refused, and the transaction changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from manifest_platform.column_names import matched
from manifest_platform.manifest.item import short_name
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.control import KnownTables, Ledger, LedgerEntry
from manifest_platform.warehouse.engines.engine import Engine, Transaction
from manifest_platform.warehouse.errors import CannotReload
from manifest_platform.warehouse.load import Load, Origin
from manifest_platform.warehouse.tables import LOAD_TIME, Tables, naive


class Reloads:
    """Removes the rows of earlier loads from a dataset's tables. `removed`: the old rows that upkeep removed, by table."""

    def __init__(
        self,
        engine: Engine,
        tables: Tables,
        ledger: Ledger,
        known: KnownTables,
        removed: Callable[[], Mapping[str, int]],
    ) -> None:
        self._engine, self._tables, self._ledger, self._known, self._removed = engine, tables, ledger, known, removed

    def remove(self, transaction: Transaction, load: Load, now: datetime) -> datetime:
        """Removes the rows that the ledger's newest entry of an item counts. Returns the load time of the rows that follow.

        That is later than the entry's, whatever the clock says, so that the newest entry is the newest by time. Raises
        CannotReload.
        """
        ledger = self._ledger.within(transaction)
        entry = ledger.entry(load.feed, load.item, load.serving_epoch)
        if entry is None or load.reload is None:
            raise ValueError(f"{load.item} has no rows to replace")
        if entry.was_taken_over:
            raise CannotReload(
                f"{load.item} was loaded by a former loader, so its rows cannot be told from those of other items. Nothing was"
                " changed"
            )
        if other := ledger.shares(entry):
            raise CannotReload(f"{load.item} and {other} have the same load time, so their rows cannot be told apart")
        self._refuse_by_key(load, entry)
        counted = {table: rows for table, rows in entry.rows.items() if rows}
        missing = {}
        for table, rows in self._children_first(load, counted):
            found = self._remove(transaction, load, entry, table, rows)
            missing |= {table: rows - found} if found < rows else {}
        if not load.overlaps:  # otherwise rows that existed already were left out
            self._refuse_missing(load, missing)
        return max(now, entry.applied_at + timedelta(microseconds=1))

    def _refuse_by_key(self, load: Load, entry: LedgerEntry) -> None:
        """Raises CannotReload if any of the tables has rows by key: those of later items may have replaced them."""
        described = {table.name for table in load.listing.tables if table.mode != "append"}
        known = {one.table for one in self._known.read() if one.mode != "append"} & entry.rows.keys()
        if by_key := sorted(described | known):
            raise CannotReload(
                f"{load.item}: the rows of table {', '.join(by_key)} change by key, so later items build on them. Only a full "
                "load replaces them. Nothing was changed"
            )

    def _children_first(self, load: Load, counted: Mapping[str, int]) -> list[tuple[str, int]]:
        """Returns the tables with their counted rows; last those that others refer to."""
        parents = {origin.table for origin in (load.reload.origins if load.reload else ()) if origin.table}
        return sorted(counted.items(), key=lambda one: (one[0] in parents, one[0]))

    def _remove(self, transaction: Transaction, load: Load, entry: LedgerEntry, table: str, rows: int) -> int:
        """Removes an item's rows from a table, and returns their number. Raises CannotReload if there are too many."""
        have = self._tables.columns_of(table)
        if have is None:
            return 0
        found, time_ = 0, self._load_time(table)
        if time_:
            sql = f"DELETE FROM {self._tables.qualified(table)} WHERE {time_} = {self._bound}"  # noqa: S608
            found = transaction.write(sql, (naive(entry.applied_at),))
        for origin in load.reload.origins if load.reload and found < rows else ():
            column = matched(have, self._engine.stored_name(origin.column))
            if column:
                found += self._remove_older(transaction, load, entry, table, origin, self._engine.quote(column))
        if found > rows:
            raise CannotReload(
                f"{load.item}: table {table} has {found:,} rows of the item, and the ledger counts {rows:,}. Somebody has "
                "copied rows, or an older release has loaded the same rows in two items. Nothing was changed"
            )
        return found

    def _remove_older(
        self, transaction: Transaction, load: Load, entry: LedgerEntry, table: str, origin: Origin, column: str
    ) -> int:
        """Removes rows without a load time, which an older release has loaded, by what they refer to."""
        parameters: tuple[object, ...]
        if origin.table:
            refers, parent = self._tables.columns_of(origin.table) or {}, self._load_time(origin.table)
            referred = matched(refers, self._engine.stored_name(origin.refers))
            if referred is None or parent is None or origin.table == table:
                return 0
            source = self._tables.qualified(origin.table)
            there = f"SELECT {self._engine.quote(referred)} FROM {source} WHERE {parent} = {self._bound}"  # noqa: S608
            condition, parameters = f"{column} IN ({there})", (naive(entry.applied_at),)
        else:
            below = f"{load.item.rstrip('/')}/"
            condition, parameters = f"substring({column}, 1, {len(below)}) = ?", (below,)
        time_ = self._load_time(table)
        older = f"{time_} IS NULL AND " if time_ else ""
        return transaction.write(f"DELETE FROM {self._tables.qualified(table)} WHERE {older}{condition}", parameters)  # noqa: S608

    def _refuse_missing(self, load: Load, missing: Mapping[str, int]) -> None:
        if not missing:
            return
        told = ", ".join(f"{rows:,} of table {table}" for table, rows in sorted(missing.items()))
        if old := sorted(self._removed().keys() & missing.keys()):
            raise CannotReload(
                f"{load.item}: rows that it loaded are gone ({told}), and old rows of table {', '.join(old)} were removed by "
                "load.retention. A reload would bring them back. Nothing was changed"
            )
        if not (load.reload and load.reload.allows_missing):
            raise CannotReload(
                f"{load.item}: rows that it loaded are gone ({told}). If they were deleted on purpose, a reload would bring "
                "them back. Nothing was changed",
                Remedy(Action.RELOAD_MISSING, item=short_name(load.item)),
            )

    def _load_time(self, table: str) -> str | None:
        """Returns the quoted name of a table's column with load times; None if it has none."""
        have = self._tables.columns_of(table) or {}
        column = matched(have, self._engine.stored_name(LOAD_TIME.name))
        return self._engine.quote(column) if column and have[column] == LOAD_TIME.type else None

    @property
    def _bound(self) -> str:
        return f"CAST(? AS {self._engine.sql_type(LOAD_TIME.type)})"
