"""The rows of consecutive items of a feed, moved together: staged with the item's number, folded by key, counted by item.

Appended rows of all items go into a table by one INSERT. Of changes by key only the newest row of each key counts, deletes
included: within an item, deletes come before upserts. So a table costs one DELETE and one INSERT, however many items change it.

Anything unusual raises a CannotLoad: the items are then applied one by one, which finds the item that causes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from manifest_platform.column_names import matched
from manifest_platform.listing import Table
from manifest_platform.warehouse.engines.engine import NTH, Engine, Staging, Transaction
from manifest_platform.warehouse.errors import CountMismatch, DuplicateKey, KeyMissing, NotTogether
from manifest_platform.warehouse.gate import part
from manifest_platform.warehouse.load import Load
from manifest_platform.warehouse.tables import LOAD_TIME, Staged, Tables, naive

_DELETED, _UPSERTED = 0, 1  # in the order within an item
# No table of the warehouse may have one of these aliases, or a DELETE would compare the staged rows with themselves.
_STAGED, _PART = '"__mp_staged"', '"__mp_part"'
_KIND, _NEWEST = '"__mp_kind"', '"__mp_newest"'


@dataclass(frozen=True)
class StagedItems:
    """The staged rows of a table of several items, each with its item's number. `rows`: their number by the listings."""

    table: Table
    staging: Staging
    rows: Mapping[int, int]


@dataclass
class Changes:
    """The staged changes of one table by key. `written`: the number of keys whose newest change is an upsert."""

    target: str
    upserts: list[StagedItems] = field(default_factory=list)
    deletes: list[StagedItems] = field(default_factory=list)
    written: int = 0


def require_consecutive(loads: Sequence[Load]) -> None:
    """Raises ValueError for loads that may not be in one transaction: of several claims' authority, late, or out of order."""
    first = loads[0]
    authority = {(one.feed, one.epoch, one.serving_epoch, one.token, one.snapshots) for one in loads}
    alone = [one.item for one in loads if one.late or one.full or one.overlaps]
    ascending = all(one.position < after.position for one, after in pairwise(loads))
    if len(authority) > 1 or alone or not ascending:
        raise ValueError(f"{first.item} and {len(loads) - 1} more are no consecutive items of one feed: {', '.join(alone)}")


def times_of(loads: Sequence[Load], now: datetime) -> list[datetime]:
    """Returns the load time of each item. They differ, because the load time in a row names the row's item."""
    return [now + timedelta(microseconds=nth) for nth in range(len(loads))]


class Rows:
    """The rows of several items in the data tables. `stagings`: what to remove after the transaction."""

    def __init__(self, engine: Engine, tables: Tables, loads: Sequence[Load]) -> None:
        self._engine, self._tables, self._loads = engine, tables, loads
        self.stagings: list[Staging] = []
        self._appends: list[StagedItems] = []
        self._changes: dict[str, Changes] = {}

    @contextmanager
    def staged(self) -> Generator[Rows]:
        """Stages the rows of all items, and counts and checks those that are loaded by key. Raises a CannotLoad."""
        try:
            for table, uris in self._objects():
                staging = self._engine.stage_items(table, uris)
                self.stagings.append(staging)
                rows = {nth: self._loads[nth].listing.rows(table.name) for nth in uris}
                self._sort(StagedItems(table, staging, rows))
            for changes in self._changes.values():
                self._look_through(changes)
            yield self
        finally:
            self._engine.unstage_all(self.stagings)

    def by_item(self) -> list[dict[str, Staged]]:
        """Returns the staged rows of each item, by table."""
        found: list[dict[str, Staged]] = [{} for _ in self._loads]
        if not any(load.checks for load in self._loads):
            return found
        of_changes = (one for changes in self._changes.values() for one in (*changes.upserts, *changes.deletes))
        for one in (*self._appends, *of_changes):
            for nth in one.rows:
                found[nth][one.table.name] = part(self._engine, one.table, one.staging, nth)
        return found

    def _objects(self) -> Iterator[tuple[Table, dict[int, list[str]]]]:
        """Yields each table with the objects of the items that describe it alike, by item."""
        found: dict[Table, dict[int, list[str]]] = defaultdict(dict)
        for nth, load in enumerate(self._loads):
            for table in load.listing.tables:
                if uris := load.listing.uris(table.name):
                    found[table][nth] = uris
        yield from found.items()

    def _sort(self, staged: StagedItems) -> None:
        table = staged.table
        if table.mode == "append":
            self._appends.append(staged)
            return
        target = table.target or table.name if table.mode == "delete" else table.name
        changes = self._changes.setdefault(target, Changes(target))
        (changes.deletes if table.mode == "delete" else changes.upserts).append(staged)

    # Checks of staged rows, before the transaction

    def _look_through(self, changes: Changes) -> None:
        """Counts the staged changes of a table by item, and checks their keys."""
        keys = self._keys(changes)
        names, lacks = self._tables.names(keys), " OR ".join(f"{self._engine.quote(name)} IS NULL" for name in keys)
        events, parameters = self._events(changes, keys)
        nth = self._engine.quote(NTH)
        by_key = (
            f'SELECT {nth}, {_KIND}, {names}, count(*) AS "__mp_rows", max(CASE WHEN {lacks} THEN 1 ELSE 0 END) AS "__mp_lacks"'  # noqa: S608
            f" FROM ({events}) AS {_STAGED} GROUP BY {nth}, {_KIND}, {names}"
        )
        ranked = (
            f'SELECT {nth}, {_KIND}, "__mp_rows", "__mp_lacks", '  # noqa: S608
            f"row_number() OVER (PARTITION BY {names} ORDER BY {nth} DESC, {_KIND} DESC) AS {_NEWEST} "
            f'FROM ({by_key}) AS "__mp_by_key"'
        )
        found = self._engine.execute(
            f'SELECT {nth}, {_KIND}, sum("__mp_rows"), count(*), sum("__mp_lacks"), '  # noqa: S608
            f"sum(CASE WHEN {_NEWEST} = 1 AND {_KIND} = {_UPSERTED} THEN 1 ELSE 0 END) "
            f'FROM ({ranked}) AS "__mp_ranked" GROUP BY {nth}, {_KIND}',
            parameters,
        )
        counted = {(int(item), int(kind)): int(rows) for item, kind, rows, *_ in found}
        for kind, staged in ((_DELETED, changes.deletes), (_UPSERTED, changes.upserts)):
            expected: dict[int, int] = defaultdict(int)
            for one in staged:
                for item, rows in one.rows.items():
                    expected[item] += rows
            for item, rows in expected.items():
                if counted.get((item, kind), 0) != rows:
                    read = counted.get((item, kind), 0)
                    raise CountMismatch(f"{self._loads[item].item}: {changes.target} has {read} staged rows instead of {rows}")
        if lacking := [item for item, _, _, _, missing, _ in found if missing]:
            raise KeyMissing(f"{self._loads[int(lacking[0])].item}: a row of {changes.target} lacks a part of its key")
        changes.written = sum(int(newest) for *_, newest in found)
        if any(kind == _UPSERTED and rows != distinct for _, kind, rows, distinct, _, _ in found):
            self._refuse_contradictions(changes, keys)

    def _refuse_contradictions(self, changes: Changes, keys: Sequence[str]) -> None:
        nth, names = self._engine.quote(NTH), self._tables.names(keys)
        for staged in changes.upserts:
            own = self._tables.names(list(self._own_keys(staged.table, keys).values()))
            columns = self._tables.names([column.name for column in staged.table.columns])
            found = self._engine.execute(
                f"SELECT {nth} FROM (SELECT DISTINCT {nth}, {columns} FROM {staged.staging.sql} AS {_STAGED}) "  # noqa: S608
                f'AS "__mp_rows" GROUP BY {nth}, {own} HAVING count(*) > 1 LIMIT 1',
                staged.staging.parameters,
            )
            if found:
                raise DuplicateKey(
                    f"{self._loads[int(found[0][0])].item}: table {changes.target} has several rows with the same key ({names})"
                )

    def _keys(self, changes: Changes) -> list[str]:
        """Returns the stored names of a table's key. Raises NotTogether if the items do not agree on them."""
        keys = {frozenset(self._stored_keys(one.table, changes.target)) for one in (*changes.upserts, *changes.deletes)}
        times = {one.table.load_time for one in changes.upserts}
        if len(keys) > 1 or len(times) > 1:
            raise NotTogether(f"the items differ in the key or the load time of table {changes.target}")
        return sorted(next(iter(keys)))

    def _stored_keys(self, table: Table, target: str) -> dict[str, str]:
        """Maps the stored names of a key's columns to the staged names."""
        have = self._tables.columns_of(target) or {}
        return {matched(have, self._engine.stored_name(name)) or name: name for name in table.key}

    def _own_keys(self, table: Table, keys: Sequence[str]) -> dict[str, str]:
        stored = self._stored_keys(table, (table.target or table.name) if table.mode == "delete" else table.name)
        return {key: stored[key] for key in keys}

    def _events(self, changes: Changes, keys: Sequence[str], columns: Sequence[str] = ()) -> tuple[str, tuple[object, ...]]:
        """Returns the query of all staged changes of a table: number of the item, kind, key, and these further columns."""
        selects, parameters = [], []
        types = self._tables.columns_of(changes.target) or {}
        several = len(changes.upserts) + len(changes.deletes) > 1
        for kind, staged in ((_UPSERTED, changes.upserts), (_DELETED, changes.deletes)):
            for one in staged:
                own: dict[str, str] = self._own_keys(one.table, keys)
                if kind == _UPSERTED and columns:
                    own = {
                        stored: name for name, stored in self._tables.stored(one.table).items() if name != LOAD_TIME.name
                    } | own
                alike = {column.name: column.type for column in one.table.columns}
                selected = [
                    f"{self._selected(own.get(name), alike, types.get(name), several)} AS {self._engine.quote(name)}"
                    for name in (*keys, *columns)
                ]
                selects.append(
                    f"SELECT {self._engine.quote(NTH)}, {kind} AS {_KIND}, {', '.join(selected)} "  # noqa: S608
                    f"FROM {one.staging.sql} AS {_PART}"
                )
                parameters += one.staging.parameters
        return " UNION ALL ".join(selects), tuple(parameters)

    def _selected(self, own: str | None, alike: Mapping[str, str], type_: str | None, several: bool) -> str:
        """Returns the expression for a column: NULL if the rows lack it, of the stored type if the items' types may differ."""
        if own is None:
            return f"CAST(NULL AS {self._engine.sql_type(type_ or 'string')})"
        name = self._engine.quote(own)
        same = type_ is None or self._engine.sql_type(alike.get(own, "string")) == self._engine.sql_type(type_)
        return name if same or not several else f"CAST({name} AS {self._engine.sql_type(type_ or 'string')})"

    # Row statements, within the transaction

    def move(self, transaction: Transaction, times: Sequence[datetime]) -> None:
        """Runs all deletes and upserts, then appends. Raises CountMismatch if the staged rows are not those of the listings."""
        for changes in self._changes.values():
            if self._tables.columns_of(changes.target) is not None:  # a table that does not exist has nothing to delete
                self._fold(transaction, changes, times)
        for staged in self._appends:
            written, expected = self._append(transaction, staged, times), sum(staged.rows.values())
            if written != expected:
                raise CountMismatch(f"table {staged.table.name} gave {written} rows instead of {expected}. Nothing was loaded")

    def _fold(self, transaction: Transaction, changes: Changes, times: Sequence[datetime]) -> None:
        """Applies the newest change of each key."""
        keys, quote, target = self._keys(changes), self._engine.quote, self._tables.qualified(changes.target)
        events, parameters = self._events(changes, keys)
        same = [(f"{_STAGED}.{quote(name)}", f"{quote(changes.target)}.{quote(name)}") for name in keys]
        staged_rows = sum(sum(one.rows.values()) for one in (*changes.upserts, *changes.deletes))
        transaction.write(self._engine.deletion(target, f"({events}) AS {_STAGED}", same, staged_rows), parameters)
        if not changes.upserts:
            return
        have = self._tables.columns_of(changes.target) or {}
        stored = {place for one in changes.upserts for name, place in self._tables.stored(one.table).items()}
        rest = sorted((stored & set(have)) - set(keys) - ({LOAD_TIME.name} if changes.upserts[0].table.load_time else set()))
        events, parameters = self._events(changes, keys, rest)
        ranked = (
            f"SELECT {_STAGED}.*, row_number() OVER (PARTITION BY {self._tables.names(keys)} "  # noqa: S608
            f"ORDER BY {quote(NTH)} DESC, {_KIND} DESC) AS {_NEWEST} FROM ({events}) AS {_STAGED}"
        )
        columns, values = [*map(quote, (*keys, *rest))], [*map(quote, (*keys, *rest))]
        if changes.upserts[0].table.load_time:
            place = self._tables.stored(changes.upserts[0].table)[LOAD_TIME.name]
            numbers = sorted({nth for one in changes.upserts for nth in one.rows})
            time_, time_values = self._load_time(numbers, times)
            columns, values, parameters = [*columns, quote(place)], [*values, time_], (*time_values, *parameters)
        written = transaction.write(
            f"INSERT INTO {target} ({', '.join(columns)}) SELECT {', '.join(values)} FROM ({ranked}) "  # noqa: S608
            f'AS "__mp_ranked" WHERE {_NEWEST} = 1 AND {_KIND} = {_UPSERTED}',
            parameters,
        )
        if written != changes.written:
            raise CountMismatch(
                f"table {changes.target} gave {written} rows after {changes.written} were counted. Nothing was loaded"
            )

    def _append(self, transaction: Transaction, staged: StagedItems, times: Sequence[datetime]) -> int:
        stored, names = self._tables.stored(staged.table), [column.name for column in staged.table.columns]
        columns, values = [stored[name] for name in names], [*map(self._engine.quote, names)]
        parameters: tuple[object, ...] = staged.staging.parameters
        if staged.table.load_time:
            time_, time_values = self._load_time(sorted(staged.rows), times)
            columns, values, parameters = [*columns, stored[LOAD_TIME.name]], [*values, time_], (*time_values, *parameters)
        return transaction.write(
            f"INSERT INTO {self._tables.qualified(staged.table.name)} ({self._tables.names(columns)}) "  # noqa: S608
            f"SELECT {', '.join(values)} FROM {staged.staging.sql} AS {_STAGED}",
            parameters,
        )

    def _load_time(self, numbers: Sequence[int], times: Sequence[datetime]) -> tuple[str, tuple[object, ...]]:
        """Returns the expression of a row's load time, by its item's number, and its values."""
        type_ = self._engine.sql_type(LOAD_TIME.type)
        cases = " ".join(f"WHEN {nth} THEN CAST(? AS {type_})" for nth in numbers)
        return f"CASE {self._engine.quote(NTH)} {cases} END", tuple(naive(times[nth]) for nth in numbers)
