"""Compares what this platform has loaded with what a former loader has loaded beside it, run by run.

Rows are compared in the warehouse, by the main table's identity: rows of ours that the other does not have, value by value, in
the columns that both tables have. Rows that are the same in all of them count as equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from manifest_platform.operations.cutover.look import former_loader, read_notes, reading
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.cutover import FormerLoader
from manifest_platform.warehouse.apply import LedgerEntry, Warehouse
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform.warehouse.tables import LOAD_TIME, naive


@dataclass(frozen=True)
class Compared:
    """A table's rows of one run. `ours`, `theirs`: their numbers. `different`: our rows that the other does not have alike.

    `missing`: their rows, of the same events, that we do not have alike. `left_out`: columns that only one of the tables has,
    which are not compared. `noted`: the rows of the main table that the other noted for the run; more of them than `theirs` are
    events that we do not have. None if it noted no number.
    """

    item: str
    table: str
    ours: int
    theirs: int
    different: int
    missing: int
    left_out: tuple[str, ...] = ()
    noted: int | None = None

    @property
    def same(self) -> bool:
        """True if both have the same rows, as many as the other noted."""
        return self.ours == self.theirs and not self.different and not self.missing and self.noted in (None, self.theirs)


def compare(pipeline: Pipeline, schema: str | None = None, newest: int = 10) -> Iterator[Compared]:
    """Yields a comparison for each table of the newest runs that both have loaded, oldest run first.

    `schema`: that of the former loader's tables; by default the schema that it uses. Raises NothingToTakeOver, Refused and
    WarehouseError.
    """
    loader = former_loader(pipeline.source)
    schema = schema or loader.schema
    with reading(pipeline, pipeline.schema) as ours:
        theirs = Warehouse(ours.engine, pipeline.name, schema)
        noted = {run.place.rpartition("/")[2]: run.rows for run in read_notes(theirs, loader).runs}
        entries = [entry for entry in ours.ledger(pipeline.source.main, 0) if _name(entry) in noted]
        shared = sorted({*ours.table_names()} & {*theirs.table_names()})
        for entry in entries[-newest:]:
            for table in filter(lambda one: _is_comparable(one, loader, ours, theirs), shared):
                found = _compared(entry, table, loader, ours, theirs)
                is_main = table == loader.main_table.name
                yield replace(found, noted=noted[found.item]) if is_main else found


def _is_comparable(table: str, loader: FormerLoader, ours: Warehouse, theirs: Warehouse) -> bool:
    """True if both tables name the row of the main table. Others, such as that of bad rows, belong to no run."""
    return all(loader.identity(table) in side.columns_of(table) for side in (ours, theirs))


def _name(entry: LedgerEntry) -> str:
    return entry.item.rpartition("/")[2]


def _compared(entry: LedgerEntry, table: str, loader: FormerLoader, ours: Warehouse, theirs: Warehouse) -> Compared:
    engine = ours.engine
    quote = engine.quote
    mine, other = ours.columns_of(table), theirs.columns_of(table)
    both = [name for name in mine if name in other and name != LOAD_TIME.name]
    columns = ", ".join(_comparable(engine, quote(name), mine[name], other[name]) for name in both)
    main = loader.main_table.name
    events = (
        f"SELECT {quote(loader.identity(main))} FROM {ours.place_of(main)} "  # noqa: S608
        f"WHERE {quote(LOAD_TIME.name)} = CAST(? AS {engine.sql_type(LOAD_TIME.type)})"
    )
    here = f"WHERE {quote(loader.identity(table))} IN ({events})"
    left, right = (f"SELECT {columns} FROM {side.place_of(table)} {here}" for side in (ours, theirs))  # noqa: S608

    def count(query: str, runs: int = 1) -> int:
        at = [naive(entry.applied_at)] * runs
        return int(engine.execute(f'SELECT count(*) FROM ({query}) AS "__mp_rows"', at)[0][0])  # noqa: S608

    left_out = sorted(({*mine} ^ {*other}) - {LOAD_TIME.name})
    return Compared(
        item=_name(entry),
        table=table,
        ours=count(left),
        theirs=count(right),
        different=count(f"{left} EXCEPT {right}", 2),
        missing=count(f"{right} EXCEPT {left}", 2),
        left_out=tuple(left_out),
    )


def _comparable(engine: Engine, column: str, ours: str, theirs: str) -> str:
    """Returns the expression of a column that both sides compare by: whole texts, and numbers of different types as DOUBLE.

    Texts are converted, because a CHAR has blanks at its end that a VARCHAR does not have.
    """
    kinds = {ours.partition("(")[0], theirs.partition("(")[0]}
    if len(kinds) > 1 and kinds <= {"integer", "bigint", "double", "decimal"}:
        return f"CAST({column} AS {engine.sql_type('double')})" if "double" in kinds else column
    if kinds & {"json", "string"} or len(kinds) > 1:
        return f"CAST({column} AS {engine.sql_type('string')})"
    return column
