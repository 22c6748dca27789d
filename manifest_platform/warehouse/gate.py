"""The gate of a load: evaluates its checks on the staged rows, and on the tables as they will be, before COMMIT.

The checks of staged rows run before BEGIN. Those that Python can express cost one query for each table, whatever their number;
each SELECT of a user costs one. Checks of the tables as they will be run inside the transaction, after the rows are moved. If
one fails there, the transaction rolls back.

A SELECT that the warehouse refuses is a fault of the configuration, not of an item. So a SELECT for the transaction is tried
before BEGIN, on the tables as they are: some engines end a transaction at its first error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from manifest_platform import outward
from manifest_platform.column_names import matched
from manifest_platform.listing import Table
from manifest_platform.warehouse.checks import (
    EXAMPLES,
    ITEM,
    STAGED,
    TARGET,
    Checked,
    CheckSettings,
    NullsCheck,
    RowsCheck,
    SqlCheck,
    UniqueCheck,
    failed_text,
)
from manifest_platform.warehouse.engines.engine import NTH, Engine, Staging, Transaction, refuse_in_transaction
from manifest_platform.warehouse.errors import CheckFailed, CheckInvalid, LoadFailed, NotTogether
from manifest_platform.warehouse.load import Load
from manifest_platform.warehouse.tables import LOAD_TIME, Staged, Tables, stored_columns

Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs one query and returns its rows."""
_STAGED, _ROWS = '"__mp_staged"', '"__mp_rows"'
_SHOWN_COLUMNS, _SHOWN_CHARACTERS = 3, 60


@dataclass(frozen=True)
class _Part:
    """A check's part of the one query of a table: an expression with its values, and the check's judgment of the result."""

    sql: str
    parameters: tuple[Any, ...]
    judge: Callable[[Any, int], Checked]


class Gate:
    """The checks of one load at a time, on the tables of one dataset. Not thread-safe."""

    def __init__(self, engine: Engine, tables: Tables) -> None:
        self._engine, self._tables = engine, tables
        self._outcomes: dict[str, dict[tuple[str, str], Checked]] = {}  # by item, then by check and table
        self._tried: set[tuple[SqlCheck, Table]] = set()

    def begin(self) -> None:
        """Forgets the outcomes of the loads before."""
        self._outcomes = {}

    def outcomes(self, load: Load) -> tuple[Checked, ...]:
        """Returns the outcomes of a load's checks so far, by check and table."""
        found = self._outcomes.get(load.item, {})
        return tuple(found[key] for key in sorted(found))

    def told(self, load: Load) -> list[str]:
        """Returns the texts for people: warnings, and checks that never apply."""
        return [str(one) for one in self.outcomes(load) if not one.passed]

    def check_items(self, loads: Sequence[Load], staged: Sequence[Mapping[str, Staged]]) -> None:
        """Evaluates the checks of the staged rows of several items. Raises a CannotLoad if one of them must be loaded alone.

        A SELECT on the table as it will be must see it as it is after each item.
        """
        self.begin()
        for load, rows in zip(loads, staged, strict=True):
            if alone := [check.name for _, check in _pairs(load, rows) if isinstance(check, SqlCheck)]:
                raise NotTogether(f"{load.item}: check {alone[0]} reads the table after each item")
            try:
                self.check_staged(load, rows)
            except CheckInvalid as error:
                raise NotTogether(str(error)) from error

    def check_staged(self, load: Load, staged: Mapping[str, Staged]) -> None:
        """Evaluates the checks of the staged rows. Raises CheckFailed with every failed check, CheckInvalid."""
        for table in load.listing.tables:
            checks = [check for check in load.checks if check.covers(table)]
            one = staged.get(table.name)
            self._keep(load, self._simple(load, table, one, checks))
            for check in checks:
                if one and isinstance(check, SqlCheck) and not check.reads_target:
                    self._keep(load, [self._select(load, one, check, self._engine.execute)])
        self._keep(load, _of_absent_tables(load))
        self._refuse(load)

    def try_target(self, load: Load, staged: Mapping[str, Staged]) -> None:
        """Tries the checks of the tables as they will be, on the tables as they are. Raises CheckInvalid."""
        for one, check in _pairs(load, staged):
            if isinstance(check, SqlCheck) and (check, one.table) not in self._tried and self._target(one) is not None:
                tried = self._select(load, one, check, self._engine.execute, plan_only=True)
                if tried.note:
                    self._keep(load, [tried])
                else:
                    self._tried.add((check, one.table))

    def check_target(self, transaction: Transaction, load: Load, staged: Mapping[str, Staged]) -> None:
        """Evaluates the checks of the tables as they will be, within the transaction. Raises CheckFailed, CheckInvalid."""
        for one, check in _pairs(load, staged):
            if self._target(one, of_full=load.full is not None) is None:
                continue  # rows to delete from a table that does not exist
            if isinstance(check, UniqueCheck):
                self._keep(load, [self._unique_in_target(load, one, check, transaction.rows)])
            elif isinstance(check, SqlCheck) and not self._does_not_apply(load, check, one.table):
                self._keep(load, [self._select(load, one, check, transaction.rows)])
        self._refuse(load)

    def _keep(self, load: Load, outcomes: Iterable[Checked]) -> None:
        found = self._outcomes.setdefault(load.item, {})
        for one in outcomes:
            before = found.get((one.check, one.table))
            if before is None or before.passed:  # a value that is doubled among the staged rows is so in the table, too
                found[one.check, one.table] = one

    def _does_not_apply(self, load: Load, check: CheckSettings, table: Table) -> bool:
        known = self._outcomes.get(load.item, {}).get((check.name, table.name))
        return bool(known and known.note)

    def _refuse(self, load: Load) -> None:
        if failed := [one for one in self.outcomes(load) if not one.passed and one.severity == "error"]:
            raise CheckFailed(failed_text(load.item, failed))

    # Checks that are one query for a table

    def _simple(self, load: Load, table: Table, one: Staged | None, checks: Sequence[CheckSettings]) -> Iterator[Checked]:
        listed = load.listing.rows(table.name)
        parts: list[_Part] = []
        for check in checks:
            if isinstance(check, RowsCheck):
                if one is None or check.min is not None or check.max is not None:
                    yield _rows(check, table, listed, listed)  # every load compares the number of its rows with the listing
                else:
                    parts.append(_Part("", (), lambda _, rows, check=check: _rows(check, table, rows, listed)))
            elif isinstance(check, NullsCheck | UniqueCheck) and one:
                columns = (check.column,) if isinstance(check, NullsCheck) else check.columns
                found = [matched([column.name for column in table.columns], name) for name in columns]
                if None in found:
                    yield self._lacks(check, table, [name for name, own in zip(columns, found, strict=True) if own is None])
                    continue
                names = [name for name in found if name]
                maker = self._nulls if isinstance(check, NullsCheck) else self._unique
                parts.append(maker(one, check, names))  # ty: ignore[invalid-argument-type]
        if parts and one:
            expressions = ["count(*)", *(part.sql for part in parts if part.sql)]
            selected = ", ".join(f'{sql} AS "__mp_{place}"' for place, sql in enumerate(expressions))
            values = [value for part in parts for value in part.parameters]
            sql = f"SELECT {selected} FROM {one.staging.sql} AS {_STAGED}"  # noqa: S608
            [(rows, *results)] = self._engine.execute(sql, [*values, *one.staging.parameters])
            left = iter(results)
            yield from [part.judge(next(left) if part.sql else None, int(rows)) for part in parts]

    def _lacks(self, check: CheckSettings, table: Table, columns: Sequence[str]) -> Checked:
        """The outcome of a check of columns that an item's table lacks. It fails as a warning if no table ever had them."""
        known = self._tables.columns_of(table.name) or {}
        strange = [name for name in columns if matched(known, name) is None]
        note = f"the item has no column {', '.join(columns)}"
        if not strange:
            return Checked(check.name, table.name, check.severity, note=note)
        note = f"neither the item nor the warehouse has a column {', '.join(strange)}. Correct load.checks if that is a slip"
        return Checked(check.name, table.name, "warn", passed=False, note=note)

    def _nulls(self, one: Staged, check: NullsCheck, columns: Sequence[str]) -> _Part:
        column = self._engine.quote(columns[0])

        def judge(found: Any, rows: int) -> Checked:
            nulls, share = int(found), int(found) / rows if rows else 0.0
            passed = share <= check.max_share
            told = f"{check.column} is NULL in {nulls:,} of {rows:,} rows ({share:.2%})"
            others = [name for name in (*one.table.key, *(of.name for of in one.table.columns)) if name != columns[0]]
            shown = list(dict.fromkeys(others))[:_SHOWN_COLUMNS] or [columns[0]]
            return Checked(
                check.name,
                one.table.name,
                check.severity,
                passed,
                round(share, 6),
                told,
                f"at most {check.max_share:.2%}",
                () if passed else self._examples(self._engine.execute, _named(one), shown, f"WHERE {column} IS NULL"),
            )

        return _Part(f"coalesce(sum(CASE WHEN {column} IS NULL THEN 1 ELSE 0 END), 0)", (), judge)

    def _unique(self, one: Staged, check: UniqueCheck, columns: Sequence[str]) -> _Part:
        doubled = self._doubled(columns)

        def judge(found: Any, _rows: int) -> Checked:
            examples = self._examples(self._engine.execute, _named(one), columns, doubled) if found else ()
            return _uniqueness(check, one.table, int(found), examples)

        counted = f'SELECT 1 AS "__mp_one" FROM {one.staging.sql} AS {_STAGED} {doubled}'  # noqa: S608
        return _Part(f'(SELECT count(*) FROM ({counted}) AS "__mp_doubled")', one.staging.parameters, judge)  # noqa: S608

    def _doubled(self, columns: Sequence[str], also: str = "") -> str:
        """Returns the rest of a SELECT that finds the values that occur more than once."""
        names = [self._engine.quote(name) for name in columns]
        present = " AND ".join(f"{name} IS NOT NULL" for name in names)
        return f"WHERE {present}{also} GROUP BY {', '.join(names)} HAVING count(*) > 1"

    def _examples(self, run: Run, source: Staging, columns: Sequence[str], rest: str) -> tuple[str, ...]:
        names = ", ".join(self._engine.quote(name) for name in columns)
        found = run(f"SELECT {names} FROM {source.sql} {rest} LIMIT {EXAMPLES}", source.parameters)  # noqa: S608
        return tuple(_example(row, columns) for row in found)

    # Checks of the table as it will be

    def _target(self, one: Staged, of_full: bool = False) -> str | None:
        """Returns the name of the table that staged rows go to; None if it does not exist."""
        name = one.table.target if one.table.mode == "delete" else one.table.name
        exists = bool(name and self._tables.columns_of(name) is not None) or (of_full and one.table.mode == "replace")
        return self._tables.qualified(name) if name and exists else None

    def _unique_in_target(self, load: Load, one: Staged, check: UniqueCheck, run: Run) -> Checked:
        """Counts the staged values that occur more than once in the table as it will be."""
        names = [matched([column.name for column in one.table.columns], name) for name in check.columns]
        if None in names or one.table.mode == "delete":
            return Checked(check.name, one.table.name, check.severity, note="the item lacks its columns")
        own = [name for name in names if name]
        if load.full and one.table.mode == "replace":
            places = self._tables.spelled(self._tables.columns_of(one.table.name) or {}, stored_columns(one.table))
        else:
            places = self._tables.stored(one.table)
        stored = [places[name] for name in own]
        quote, target = self._engine.quote, self._target(one, of_full=load.full is not None)
        there = '"__mp_there"'
        same = " AND ".join(
            f"{there}.{quote(place)} = {_STAGED}.{quote(name)}" for place, name in zip(stored, own, strict=True)
        )
        also = f" AND EXISTS (SELECT 1 FROM {one.staging.sql} AS {_STAGED} WHERE {same})"  # noqa: S608
        rest = self._doubled(stored, also)
        source = Staging(f"{target} AS {there}", one.staging.parameters)
        [(doubled,)] = run(
            f'SELECT count(*) FROM (SELECT 1 AS "__mp_one" FROM {source.sql} {rest}) AS "__mp_doubled"',  # noqa: S608
            source.parameters,
        )
        examples = self._examples(run, source, stored, rest) if doubled else ()
        return _uniqueness(check, one.table, int(doubled), examples)

    # A user's SELECT

    def _select(self, load: Load, one: Staged, check: SqlCheck, run: Run, plan_only: bool = False) -> Checked:
        """Runs a user's SELECT. `plan_only`: only asks the warehouse whether it accepts the SELECT."""
        target = self._target(one, of_full=load.full is not None and not plan_only)
        # Rows that a query selects need a name, and nobody knows if a user's SELECT gives them one.
        is_table = not one.staging.sql.startswith("(")
        rows = (one.staging.sql, one.staging.parameters) if is_table else (_ROWS, ())
        query, parameters = check.bound({STAGED: rows, TARGET: (target or "", ()), ITEM: ("?", (load.item,))})
        query = f'SELECT * FROM (\n{query}\n) AS "__mp_query"'  # noqa: S608
        if not is_table:
            query = f"WITH {_ROWS} AS (SELECT * FROM {one.staging.sql} AS {_STAGED}) {query}"  # noqa: S608
            parameters = (*one.staging.parameters, *parameters)
        limit = 0 if plan_only else EXAMPLES
        # As a part of another SELECT it can only read.
        whole = f'SELECT * FROM ({query}) AS "__mp_check" LIMIT {limit}'  # noqa: S608
        try:
            refuse_in_transaction(whole)
            found = run(whole, parameters)
            if plan_only:
                return Checked(check.name, one.table.name, check.severity)
            if check.returns == "rows":
                bad = len(found)
                if found:
                    [(bad,)] = run(f'SELECT count(*) FROM ({query}) AS "__mp_check"', parameters)  # noqa: S608
                return Checked(
                    check.name,
                    one.table.name,
                    check.severity,
                    not bad,
                    int(bad),
                    f"{int(bad):,} bad rows",
                    "none",
                    tuple(_example(row) for row in found),
                )
        except LoadFailed as error:
            if plan_only and check.mentions(self._new_columns(one.table)):
                return Checked(check.name, one.table.name, check.severity)  # the snapshot brings the column
            return self._refused(one.table, check, error)
        return _single(check, one.table, found)

    def _new_columns(self, table: Table) -> list[str]:
        have = self._tables.columns_of(table.name) or {}
        return [name for name in stored_columns(table) if matched(have, name) is None]

    def _refused(self, table: Table, check: SqlCheck, error: LoadFailed) -> Checked:
        """The outcome of a SELECT on columns that the item lacks. Raises CheckInvalid for any other refused SELECT."""
        own = {name.lower() for name in (*stored_columns(table), LOAD_TIME.name)}
        lacking = [name for name in (self._tables.columns_of(table.name) or {}) if name.lower() not in own]
        if STAGED in check.query and (mentioned := check.mentions(lacking)):
            note = f"the item has no column {', '.join(mentioned)}"
            return Checked(check.name, table.name, check.severity, note=note)
        raise CheckInvalid(_invalid(check, table, str(error).partition("\n")[0])) from error


def part(engine: Engine, table: Table, staging: Staging, nth: int) -> Staged:
    """Returns the rows of one item among the staged rows of several, by the item's number."""
    columns = ", ".join(engine.quote(column.name) for column in table.columns)
    sql = f'(SELECT {columns} FROM {staging.sql} AS "__mp_part" WHERE {engine.quote(NTH)} = {nth})'  # noqa: S608
    return Staged(table, Staging(sql, staging.parameters))


def _named(one: Staged) -> Staging:
    return Staging(f"{one.staging.sql} AS {_STAGED}", one.staging.parameters)


def _pairs(load: Load, staged: Mapping[str, Staged]) -> Iterator[tuple[Staged, CheckSettings]]:
    """Yields the checks of tables as they will be, with the staged rows of these tables."""
    for one in staged.values():
        for check in load.checks:
            reads_target = isinstance(check, UniqueCheck) and check.in_target
            reads_target = reads_target or (isinstance(check, SqlCheck) and check.reads_target)
            if reads_target and check.covers(one.table):
                yield one, check


def _of_absent_tables(load: Load) -> Iterator[Checked]:
    """Yields the checks of the number of rows of tables that the item lacks altogether."""
    there = {table.name for table in load.listing.tables}
    for check in load.checks:
        if isinstance(check, RowsCheck) and check.names_one_table and check.table not in there:
            yield _rows(check, Table(check.table, ()), 0, 0)


def _rows(check: RowsCheck, table: Table, rows: int, listed: int) -> Checked:
    low, high = (listed, listed) if check.min is None and check.max is None else (check.min, check.max)
    bounds = [f"at least {low:,}"] if low is not None else []
    bounds += [f"at most {high:,}"] if high is not None else []
    limit = f"{listed:,}, as shredded" if check.min is None and check.max is None else " and ".join(bounds)
    passed = (low is None or rows >= low) and (high is None or rows <= high)
    return Checked(check.name, table.name, check.severity, passed, rows, f"{rows:,} rows", limit)


def _uniqueness(check: UniqueCheck, table: Table, doubled: int, examples: tuple[str, ...]) -> Checked:
    found = f"{doubled:,} values of {', '.join(check.columns)} occur more than once"
    return Checked(check.name, table.name, check.severity, not doubled, doubled, found, "each value once", examples)


def _single(check: SqlCheck, table: Table, found: Sequence[tuple[Any, ...]]) -> Checked:
    """The outcome of a SELECT that returns a single value. Raises CheckInvalid if it returns anything else."""
    if len(found) != 1 or len(found[0]) != 1:
        shape = f"{len(found)} row with {len(found[0])} columns" if len(found) == 1 else f"{len(found) or 'no'} rows"
        raise CheckInvalid(_invalid(check, table, f"it returned {shape} instead of a single value"))
    value = found[0][0]
    if check.returns == "boolean" and value in (0, 1):  # engines without booleans return numbers
        value = bool(value)
    wanted = bool if check.returns == "boolean" else (int, float, Decimal)
    if value is not None and (not isinstance(value, wanted) or (isinstance(value, bool) and check.returns == "number")):
        raise CheckInvalid(_invalid(check, table, f"it returned {_shown(value)}, which is no {check.returns}"))
    if check.returns == "boolean":
        said = "NULL" if value is None else str(value).lower()
        return Checked(check.name, table.name, check.severity, value is True, value, said, "true")
    low, high = check.min, check.max
    passed = value is not None and (low is None or value >= low) and (high is None or value <= high)
    bounds = [f"at least {low:,g}"] if low is not None else []
    bounds += [f"at most {high:,g}"] if high is not None else []
    number = None if value is None else float(value)
    found_text = "NULL" if value is None else f"{value:,}"
    return Checked(check.name, table.name, check.severity, passed, number, found_text, " and ".join(bounds))


def _invalid(check: SqlCheck, table: Table, why: str) -> str:
    return (
        f"load.checks: the query of check {check.name} is wrong, for table {table.name}: {why}. Nothing was loaded, and no"
        " item failed. Correct or remove the check, then drain again"
    )


def _example(row: Sequence[Any], columns: Sequence[str] = ()) -> str:
    values = [_shown(value) for value in row[: None if columns else _SHOWN_COLUMNS]]
    named = [f"{name} {value}" for name, value in zip(columns, values, strict=True)] if columns else values
    more = ["…"] if not columns and len(row) > _SHOWN_COLUMNS else []
    return ", ".join([*named, *more])


def _shown(value: Any) -> str:
    text = "NULL" if value is None else outward.line(value if isinstance(value, str) else str(value))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
