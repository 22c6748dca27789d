"""The copies of earlier rows among the staged rows of a load, and the statements that leave them out.

Either the warehouse's own table is asked, within the transaction, or a memory of what was loaded, before it. Both answers are a
relation of ids and contents; the rows of the main table that it names are left out, and the rows of other tables that refer to
them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from manifest_platform.warehouse.engines.engine import Engine, Staging, Transaction
from manifest_platform.warehouse.load import Load
from manifest_platform.warehouse.repeats import COPIES, Applied, Repeats
from manifest_platform.warehouse.scratch import scratch
from manifest_platform.warehouse.tables import Staged, Tables, naive

_STAGED, _THERE, _COPIES = '"__mp_staged"', '"__mp_there"', '"__mp_copies"'
_ID, _CONTENT = '"__mp_id"', '"__mp_content"'


class LeftOut:
    """The copies among the staged rows of a load. `pairs`: the query of their ids and contents."""

    def __init__(self, engine: Engine, load: Load, staged: Mapping[str, Staged], repeats: Repeats, pairs: Staging) -> None:
        self._engine, self._load, self._staged = engine, load, staged
        self._identity, self._pairs = repeats.rule.identity, pairs

    def ordered(self, appends: Sequence[Staged]) -> list[Staged]:
        """Returns the tables with the main table last: the others are filtered by comparing its staged rows with its rows."""
        return sorted(appends, key=lambda one: one.table.name == self._identity.table)

    def source(self, one: Staged) -> Staging | None:
        """Returns the staged rows of a table without those that are left out; None if the table has no such rows."""
        names = {column.name for column in one.table.columns}
        if one.table.name == self._identity.table:
            same = f"{self._same(_STAGED)}"
            return self._without(one, self._pairs, same)
        if self._identity.refers not in names:
            return None
        return self._without(one, self._ids(), f"{_COPIES}.{_ID} = {_STAGED}.{self._engine.quote(self._identity.refers)}")

    def _same(self, alias: str) -> str:
        quote = self._engine.quote
        return (
            f"{_COPIES}.{_ID} = {alias}.{quote(self._identity.id)}"
            f" AND {_COPIES}.{_CONTENT} = {alias}.{quote(self._identity.content)}"
        )

    def _without(self, one: Staged, copies: Staging, same: str) -> Staging:
        columns = ", ".join(f"{_STAGED}.{self._engine.quote(column.name)}" for column in one.table.columns)
        return Staging(
            f"(SELECT {columns} FROM {one.staging.sql} AS {_STAGED} LEFT JOIN ({copies.sql}) AS {_COPIES} ON {same} "  # noqa: S608
            f'WHERE {_COPIES}.{_ID} IS NULL) AS "__mp_lacking"',
            (*one.staging.parameters, *copies.parameters),
        )

    def _ids(self) -> Staging:
        """Returns the query of the ids of which every staged row is a copy: rows that refer to others of an id stay."""
        main = self._staged[self._identity.table].staging
        id_ = f"{_STAGED}.{self._engine.quote(self._identity.id)}"
        return Staging(
            f"SELECT {id_} AS {_ID} FROM {main.sql} AS {_STAGED} LEFT JOIN ({self._pairs.sql}) AS {_COPIES} "  # noqa: S608
            f"ON {self._same(_STAGED)} GROUP BY {id_} HAVING count(*) = count({_COPIES}.{_ID})",
            (*main.parameters, *self._pairs.parameters),
        )


class Copies:
    """Looks for the copies among the staged rows of loads into one warehouse."""

    def __init__(self, engine: Engine, tables: Tables) -> None:
        self._engine, self._tables = engine, tables

    @contextmanager
    def asked(self, load: Load, applied: Applied) -> Generator[Staging | None]:
        """Asks the memory of a dataset that has one, before the transaction, and stages its answer; None without copies."""
        memory = load.repeats.memory if load.repeats else None
        if memory is None:
            yield None
            return
        with scratch(load.listing) as place:
            uris = memory.copies(load.item, load.listing, applied, place)
            if not uris:
                yield None
                return
            staging = self._engine.stage(COPIES, uris)
            try:
                yield staging
            finally:
                self._engine.unstage_all([staging])

    def within(
        self, transaction: Transaction, load: Load, staged: Mapping[str, Staged], answer: Staging | None
    ) -> LeftOut | None:
        """Returns the copies among the staged rows; None without any, so that the rows move as those of any other load."""
        repeats = load.repeats
        main = staged.get(repeats.rule.identity.table) if repeats else None
        if repeats is None or main is None or (repeats.memory and answer is None):
            return None
        names = {column.name for column in main.table.columns}
        if not {repeats.rule.identity.id, repeats.rule.identity.content} <= names:
            return None
        pairs = self._answered(answer) if answer else self._in_table(load, main, repeats)
        [(found,)] = transaction.rows(f'SELECT count(*) FROM ({pairs.sql}) AS "__mp_found"', pairs.parameters)  # noqa: S608
        return LeftOut(self._engine, load, staged, repeats, pairs) if found else None

    def count(self, transaction: Transaction, one: Staged) -> int:
        """Returns the number of staged rows of a table."""
        [(rows,)] = transaction.rows(f"SELECT count(*) FROM {one.staging.sql} AS {_STAGED}", one.staging.parameters)  # noqa: S608
        return int(rows)

    def _answered(self, answer: Staging) -> Staging:
        id_, content = (self._engine.quote(column.name) for column in COPIES.columns)
        sql = f"SELECT DISTINCT {id_} AS {_ID}, {content} AS {_CONTENT} FROM {answer.sql} AS {_THERE}"  # noqa: S608
        return Staging(sql, answer.parameters)

    def _in_table(self, load: Load, main: Staged, repeats: Repeats) -> Staging:
        identity, quote = repeats.rule.identity, self._engine.quote
        stored = self._tables.stored(main.table)
        mine = [f"{_STAGED}.{quote(name)}" for name in (identity.id, identity.content)]
        other = [f"{_THERE}.{quote(stored[name])}" for name in (identity.id, identity.content)]
        same = " AND ".join(f"{one} = {two}" for one, two in zip(other, mine, strict=True))
        bound, values = "", ()
        if earliest := _earliest(load, identity.table):
            type_ = self._engine.sql_type("timestamp")
            bound = f" WHERE {_THERE}.{quote(stored[identity.time])} >= CAST(? AS {type_})"
            values = (naive(earliest - timedelta(days=repeats.rule.days)),)
        return Staging(
            f"SELECT {mine[0]} AS {_ID}, {mine[1]} AS {_CONTENT} FROM {main.staging.sql} AS {_STAGED} "  # noqa: S608
            f"JOIN {self._tables.qualified(main.table.name)} AS {_THERE} ON {same}{bound} GROUP BY {', '.join(mine)}",
            (*main.staging.parameters, *values),
        )


def _earliest(load: Load, table: str) -> datetime | None:
    """Returns the time of a table's earliest row, by the listing; None if it does not say."""
    times = [one.min_time for one in load.listing.objects if one.table == table]
    return min(map(datetime.fromisoformat, filter(None, times))) if times and all(times) else None


def told(left_out: Mapping[str, int], table: str) -> str:
    """Returns the note on rows that were left out. `left_out`: their number by table. `table`: the main table."""
    others = sum(left_out.values()) - left_out.get(table, 0)
    also = f", and {others:,} rows of other tables that belong to them" if others else ""
    return f"{left_out.get(table, 0):,} rows of table {table} were left out, because earlier loads brought them{also}"
