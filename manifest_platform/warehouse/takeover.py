"""Tables that another loader has filled: whether loads can continue in them, and the ledger's entries of their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from manifest_platform.column_types import widened
from manifest_platform.listing import Table
from manifest_platform.manifest.item import short_name
from manifest_platform.warehouse.columns import Misfit, fit
from manifest_platform.warehouse.control import LedgerEntry
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform.warehouse.errors import NotTakenOver
from manifest_platform.warehouse.tables import Tables, nullable, stored_columns

AT_ONCE = 500
"""Entries of a statement."""


@dataclass(frozen=True)
class FormerNotes:
    """The table in which another loader, `loader`, notes what it has loaded into the same schema."""

    loader: str
    table: str


def refuse_unless_taken_over(engine: Engine, schema: str, notes: FormerNotes) -> None:
    """Raises NotTakenOver if another loader has filled a schema into which this platform has loaded nothing.

    A drain before `cutover adopt` would load again all runs whose rows are in the tables.
    """
    if any(engine.compared(name) == engine.compared(notes.table) for name in engine.columns(schema)):
        raise NotTakenOver(
            f"schema {schema} has the table {notes.table}, in which {notes.loader} notes what it has loaded, and the runs that"
            " are landed would be loaded again. Take the tables over with `cutover adopt`, or load into another schema"
            " (load.schema_name). If the table has nothing to do with the rows of the schema, rename it. Nothing was loaded"
        )


@dataclass(frozen=True)
class Standing:
    """A table of the former loader, compared with the table that this platform would make of the same rows.

    `rows`: in the table. `adds`, `widens`: the columns that the first load with them adds or widens, with their types.
    `short`: text columns that stay shorter than the rows may need. `relaxes`: NOT NULL columns that a load which needs it lets
    be empty. `problem`: why loads cannot continue in it; empty if they can.
    """

    table: str
    rows: int
    adds: dict[str, str]
    widens: dict[str, str]
    problem: str = ""
    short: tuple[str, ...] = ()
    relaxes: tuple[str, ...] = ()


def standings(engine: Engine, tables: Tables, wanted: Sequence[Table]) -> Iterator[Standing]:
    """Yields the standing of each of the wanted tables that exist. Writes nothing."""
    there = [(table, have) for table in wanted if (have := tables.columns_of(table.name)) is not None]
    rows = tables.counts([table.name for table, _ in there])
    required = {engine.compared(name): columns for name, columns in engine.required(tables.schema).items()}

    def alike(one: str, other: str) -> bool:
        return engine.sql_type(one) == engine.sql_type(other)

    for table, have in there:
        try:
            found = fit(have, stored_columns(table), alike, False, (), engine.stored_name, keeps_doubles=table.mode == "append")
        except Misfit as error:
            yield Standing(table.name, rows[table.name], {}, {}, str(error))
        else:
            types = stored_columns(table)
            short = tuple(
                name
                for name in (tables.short(table) if engine.measures_texts else ())
                if widened(types[name], have[found.names[name]]) != have[found.names[name]]
            )
            wider = {name: type_ for name, type_ in found.wider.items() if not tables.stays_short(table.name, name)}
            empty = nullable(table, required.get(engine.compared(table.name), []), engine.stored_name)
            yield Standing(table.name, rows[table.name], dict(found.added), wider, "", short, tuple(empty))


def strange(entered: Collection[str], noted: Collection[str]) -> str:
    """Returns a sentence on an item that the ledger has, and that the former loader did not note; empty if there is none."""
    own = sorted({*entered} - {*noted})
    if not own:
        return ""
    return (
        f"the ledger has {short_name(own[0])}, which this platform has loaded itself: tables are taken over before the first"
        " load"
    )


def completed(entries: Sequence[LedgerEntry], rows: Mapping[str, int], entered: Mapping[str, int]) -> list[LedgerEntry]:
    """Returns the entries so that the ledger's rows add up to those of the tables: the newest has what the others do not have.

    The former loader noted the rows of its main table at most, so the rows of the others cannot be told apart. `entered`: the
    rows of entries that the ledger has.
    """
    if not entries:
        return []
    *earlier, newest = entries
    noted = Counter(entered)
    for entry in earlier:
        noted.update(entry.rows)
    rest = {table: count - noted[table] for table, count in rows.items()}
    return [*earlier, replace(newest, rows={table: count for table, count in rest.items() if count > 0})]
