"""Upkeep of a dataset's tables, outside of loads: statistics, space and order of tables that changed, and removal of old rows.

A control table remembers everything that was done. It says which tables changed enough since, and how many rows were removed,
which everybody who counts rows must know. Removed rows and their number are committed together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fnmatch import fnmatchcase
from itertools import pairwise

from manifest_platform.column_names import matched
from manifest_platform.warehouse.control import KnownTables, Ledger
from manifest_platform.warehouse.control_table import ControlTable
from manifest_platform.warehouse.engines.engine import Engine, opened
from manifest_platform.warehouse.errors import Conflict, Unclear
from manifest_platform.warehouse.tables import Tables, naive
from manifest_platform.warehouse.upkeep_settings import RetentionSettings, UpkeepAction, UpkeepSettings

DELETED = "delete"
"""The entry's action for removed rows."""
_AT_ONCE = 1_000_000
"""The number of rows above which a day is removed in several transactions."""
_MOST_PARTS = 1440
_UPKEEP = {
    "dataset": "string",
    "table": "string",
    "action": "string",
    "rows": "bigint",
    "changed": "bigint",
    "until": "timestamp",
    "done_at": "timestamp",
}


@dataclass(frozen=True)
class Due:
    """An action that a table needs. `changed`: the rows that were loaded or removed since it was last done."""

    table: str
    action: UpkeepAction
    changed: int
    total: int


@dataclass(frozen=True)
class OldRows:
    """The old rows of a table: those before `until` in `column`, by day. `why_not`: the reason why they are not removed."""

    table: str
    column: str
    until: datetime
    days: tuple[tuple[date, int], ...] = ()
    why_not: str = ""

    @property
    def rows(self) -> int:
        """The number of old rows."""
        return sum(rows for _, rows in self.days)


class Upkeep:
    """The upkeep of a dataset's tables in one warehouse."""

    def __init__(self, engine: Engine, dataset: str, tables: Tables, ledger: Ledger, known: KnownTables) -> None:
        self._engine, self._dataset = engine, dataset
        self._tables, self._ledger, self._known = tables, ledger, known
        self._control = ControlTable(engine, "upkeep", dataset, _UPKEEP)

    # Actions on tables that changed

    def due(self, settings: UpkeepSettings) -> list[Due]:
        """Returns the actions that tables need, those of the most changed tables first. Writes nothing."""
        if not settings.actions:
            return []
        loaded = {table: rows for table, rows in self._ledger.totals().items() if self._tables.columns_of(table) is not None}
        removed, done = self.removed(), self._done()
        found: list[Due] = []
        for table, rows in loaded.items():
            total = rows + removed.get(table, 0)
            for action in settings.actions:
                before, held = done.get((table, action), (0, 0))
                if total - before > 0 and total - before >= settings.changed_share * held:
                    found.append(Due(table, action, total - before, total))
        return sorted(found, key=lambda one: (-one.changed, one.table, settings.actions.index(one.action)))

    def _done(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Returns the changed rows so far, and the table's rows, when each action was last done with each table."""
        if not self._control.exists():
            return {}
        found = self._engine.execute(
            f'SELECT "table", "action", "changed", "rows" FROM {self._control.qualified} '  # noqa: S608
            'WHERE "dataset" = ? AND "action" <> ? ORDER BY "done_at", "changed"',
            (self._dataset, DELETED),
        )
        return {(table, action): (changed, rows) for table, action, changed, rows in found}

    def tidy(self, due: Due) -> None:
        """Does what a table needs, outside of transactions, and remembers it."""
        self._engine.tidy(self._tables.qualified(due.table), due.action)
        rows = self._tables.counts([due.table])[due.table]
        self._control.create()
        self._engine.write(*self._entry(due.table, due.action, rows, due.total, None))

    # Removal of old rows

    def old_rows(self, retention: Sequence[RetentionSettings], now: datetime) -> Iterator[OldRows]:
        """Yields the old rows of each table that a setting covers, the first such setting. Writes nothing."""
        modes: dict[str, set[str]] = {}
        for one in self._known.read() if retention and self._known.exists() else ():
            modes.setdefault(one.table, set()).add(one.mode)
        for table in sorted(modes):
            setting = next((one for one in retention if fnmatchcase(table, one.table)), None)
            if setting and self._tables.columns_of(table) is not None:
                yield self._old_rows(table, setting, naive(now) - timedelta(days=setting.days), modes[table])

    def _old_rows(self, table: str, setting: RetentionSettings, until: datetime, modes: Collection[str]) -> OldRows:
        have = self._tables.columns_of(table) or {}
        column = matched(have, setting.column)
        if set(modes) != {"append"}:
            return OldRows(table, setting.column, until, why_not="its rows are changed by key, so old rows are not removed")
        if column is None or have[column] not in ("timestamp", "date"):
            return OldRows(table, setting.column, until, why_not=f"it has no column {setting.column} with times")
        name = self._engine.quote(column)
        day = self._engine.day(name)
        if have[column] == "date":
            until = datetime.combine(until.date(), time())
        found = self._engine.execute(
            f"SELECT {day}, count(*) FROM {self._tables.qualified(table)} WHERE {name} < {self._time(have[column])} "  # noqa: S608
            f"GROUP BY {day} ORDER BY 1",
            (until,),
        )
        return OldRows(table, column, until, tuple((_date(one), int(rows)) for one, rows in found))

    def parts(self, old: OldRows) -> Iterator[tuple[datetime, datetime]]:
        """Yields the times between which old rows are removed together: a day, or a part of a day with many rows."""
        type_ = (self._tables.columns_of(old.table) or {})[old.column]
        for day, rows in old.days:
            parts = min(-(-rows // _AT_ONCE), _MOST_PARTS) if type_ == "timestamp" else 1
            starts = [datetime.combine(day, time()) + timedelta(days=1) * nth / parts for nth in range(parts + 1)]
            yield from ((start, min(stop, old.until)) for start, stop in pairwise(starts) if start < old.until)

    def remove(self, old: OldRows, start: datetime, stop: datetime) -> int:
        """Removes the old rows of a part, and remembers their number, in one transaction. Returns it. Raises Conflict."""
        self._control.create()
        name, type_ = self._engine.quote(old.column), (self._tables.columns_of(old.table) or {})[old.column]
        with opened(self._engine) as transaction:
            removed = transaction.write(
                f"DELETE FROM {self._tables.qualified(old.table)} "  # noqa: S608
                f"WHERE {name} >= {self._time(type_)} AND {name} < {self._time(type_)}",
                (start, stop),
            )
            if removed:
                transaction.write(*self._entry(old.table, DELETED, removed, 0, stop))
                try:
                    transaction.commit()
                except Unclear as error:
                    raise Conflict(f"removing old rows of table {old.table} got no clear answer") from error
        return removed

    def removed(self) -> dict[str, int]:
        """Returns the number of rows that were removed from each table. Writes nothing."""
        if not self._control.exists():
            return {}
        found = self._engine.execute(
            f'SELECT "table", sum("rows") FROM {self._control.qualified} '  # noqa: S608
            'WHERE "dataset" = ? AND "action" = ? GROUP BY "table"',
            (self._dataset, DELETED),
        )
        return {table: int(rows) for table, rows in found}

    def _time(self, type_: str) -> str:
        """Returns the SQL text for a bound time, as the type of a column."""
        time_ = f"CAST(? AS {self._engine.sql_type('timestamp')})"
        return time_ if type_ == "timestamp" else f"CAST({time_} AS {self._engine.sql_type(type_)})"

    def _entry(self, table: str, action: str, rows: int, changed: int, until: datetime | None) -> tuple[str, list[object]]:
        marks = ", ".join("?" for _ in _UPKEEP)
        names = ", ".join(self._engine.quote(name) for name in _UPKEEP)
        values = [self._dataset, table, action, rows, changed, until, naive(datetime.now(UTC))]
        return f"INSERT INTO {self._control.qualified} ({names}) VALUES ({marks})", values  # noqa: S608


def _date(day: date | str) -> date:
    return date.fromisoformat(day) if isinstance(day, str) else day
