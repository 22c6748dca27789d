"""Compares what this platform has loaded with what a former loader has loaded beside it, run by run.

Rows are compared in the warehouse, by the main table's identity: rows of ours that the other does not have, value by value, in
the columns that both tables have. Rows that are the same in all of them count as equal, each as often as it is there. A table
that only one side has is compared with no rows.
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
    """A table's rows of one run. `ours`, `theirs`: their numbers. `different`: our rows that the other does not have alike, or
    not as often.

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
        runs = (one for one in ours.ledger(pipeline.source.main, 0) if not one.was_taken_over)
        entries = [entry for entry in runs if _name(entry) in noted]
        tables = sorted({*_comparable_tables(loader, ours), *_comparable_tables(loader, theirs)})
        for entry in entries[-newest:]:
            for table in tables:
                found = _compared(entry, table, loader, ours, theirs)
                if table == loader.main_table.name:
                    yield replace(found, noted=noted[found.item])
                elif found.ours or found.theirs:
                    yield found


def _comparable_tables(loader: FormerLoader, side: Warehouse) -> Iterator[str]:
    """Yields the tables whose rows name the row of the main table. Others, such as that of bad rows, belong to no run."""
    return (table for table in side.table_names() if loader.identity(table) in side.columns_of(table))


def _name(entry: LedgerEntry) -> str:
    return entry.item.rpartition("/")[2]


def _compared(entry: LedgerEntry, table: str, loader: FormerLoader, ours: Warehouse, theirs: Warehouse) -> Compared:
    """Compares a table's rows of one run. Equal rows are counted on each side, because a row may occur several times."""
    engine, identity, main = ours.engine, loader.identity(table), loader.main_table.name
    quote = engine.quote
    there = [side for side in (ours, theirs) if identity in side.columns_of(table)]
    mine, other = (side.columns_of(table) for side in (there[0], there[-1]))
    shared = [name for name in mine if name in other and name != LOAD_TIME.name]
    values = ", ".join(
        f"{_comparable(engine, quote(name), mine[name], other[name])} AS {quote(f'__mp_{number}')}"
        for number, name in enumerate(shared)
    )
    names = ", ".join(quote(f"__mp_{number}") for number in range(len(shared)))
    events = (
        f"SELECT {quote(loader.identity(main))} FROM {ours.place_of(main)} "  # noqa: S608
        f"WHERE {quote(LOAD_TIME.name)} = CAST(? AS {engine.sql_type(LOAD_TIME.type)})"
    )
    rows = " UNION ALL ".join(
        f'SELECT {values}, {int(side is ours)} AS "__mp_ours", {int(side is theirs)} AS "__mp_theirs" '  # noqa: S608
        f"FROM {side.place_of(table)} WHERE {quote(identity)} IN ({events})"
        for side in there
    )
    alike = (
        f'SELECT sum("__mp_ours") AS "__mp_ours", sum("__mp_theirs") AS "__mp_theirs" '  # noqa: S608
        f'FROM ({rows}) AS "__mp_rows" GROUP BY {names}'
    )
    [found] = engine.execute(
        'SELECT sum("__mp_ours"), sum("__mp_theirs"), '  # noqa: S608
        'sum(greatest("__mp_ours" - "__mp_theirs", 0)), sum(greatest("__mp_theirs" - "__mp_ours", 0)) '
        f'FROM ({alike}) AS "__mp_alike"',
        [naive(entry.applied_at)] * len(there),
    )
    ours_, theirs_, different, missing = (int(count or 0) for count in found)
    left_out = sorted(({*mine} ^ {*other}) - {LOAD_TIME.name})
    return Compared(_name(entry), table, ours_, theirs_, different, missing, tuple(left_out))


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
