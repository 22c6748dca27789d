"""The mapping from a listing's columns to the warehouse's columns, by name without case and by type.

Warehouses, or the catalogs behind them, match names without case: `Name__c` and `name__c` are one column, with the spelling
that came first. A column may be allowed to split by type: values that the column cannot hold without loss then go to a column
beside it, such as `name__c__string`. Later values go to the column that holds their type.

This module has the rules, and the control table of columns that are stored under another name than the source's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, count
from typing import NamedTuple

from manifest_platform.column_names import Spellings
from manifest_platform.column_types import stored_together, widened
from manifest_platform.warehouse.control_table import ControlTable
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform.warehouse.names import is_short_form

_KINDS = ("boolean", "integer", "bigint", "double", "decimal", "string", "timestamp", "date", "json")
_RENAMED = {
    "dataset": "string",
    "table": "string",
    "column": "string",
    "stored_as": "string",
    "item": "string",
    "since": "timestamp",
}


class Misfit(Exception):
    """A column has a type that the warehouse's column cannot hold, and must not get a column beside it."""

    def __init__(self, column: str, have: str, want: str) -> None:
        self.column, self.have, self.want = column, have, want
        super().__init__(f"column {column}: the warehouse has {have}, the item has {want}")


@dataclass
class Fit:
    """The mapping of a table's columns.

    `names`: the stored name of each of the listing's columns. `added`, `wider`: the new columns and the wider types that are
    needed first, by stored name. `kept`: columns that stay doubles and take decimals, if `keeps_doubles`.
    """

    keeps_doubles: bool = False
    names: dict[str, str] = field(default_factory=dict)
    added: dict[str, str] = field(default_factory=dict)
    wider: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)

    @property
    def renamed(self) -> dict[str, str]:
        """The columns that are stored under another name, with that name."""
        return {name: stored for name, stored in self.names.items() if name != stored}


def fit(
    have: Mapping[str, str],
    wanted: Mapping[str, str],
    alike: Callable[[str, str], bool],
    beside: bool,
    key: Collection[str] = (),
    stored_name: Callable[[str], str] = str,
    keeps_doubles: bool = False,
) -> Fit:
    """Maps the columns of a listing's table, with their types, to the columns of a table in the warehouse. Raises Misfit.

    `alike`: tells if two types are the same for the engine. `beside`: allows a new column beside a column that cannot hold the
    type. An existing column beside it is used in any case, except for a column of the `key`. `stored_name`: the engine's, for
    names that are too long for it. `keeps_doubles`: a double takes decimals, as in tables that an older release created.
    """
    found = Fit(keeps_doubles=keeps_doubles)
    taken = {name.lower() for name in wanted}
    spellings = Spellings(have)
    for name, type_ in wanted.items():
        stored = spellings.find(stored_name(name))
        if stored is None:
            found.names[name] = stored_name(name)
            found.added[stored_name(name)] = type_
            continue
        beside_it = () if name in key else _beside(have, spellings, stored, type_, taken, stored_name)
        for place in chain([stored], beside_it):
            there = have.get(place)
            if there is not None and _holds(found, place, there, type_, alike):
                found.names[name] = place
                break
            if there is None and beside:
                found.names[name] = place
                found.added[place] = type_
                break
        else:
            raise Misfit(name, have[stored], type_)
    return found


def joined_otherwise(have: Collection[str], wanted: Collection[str]) -> tuple[str, str] | None:
    """Returns a column of the warehouse and one of a listing that differ only in dots and underscores, if there are such.

    The names of nested properties are joined by one of the two. If that was changed, the values would go into new columns.
    """
    known, new = {name.lower() for name in have}, {name.lower() for name in wanted}
    dotless = {name.lower().replace(".", "_"): name for name in have if name.lower() not in new}
    for name in wanted:
        other = dotless.get(name.lower().replace(".", "_"))
        if other is not None and name.lower() not in known:
            return other, name
    return None


def _beside(
    have: Collection[str],
    spellings: Spellings,
    stored: str,
    type_: str,
    taken: Collection[str],
    stored_name: Callable[[str], str],
) -> Iterator[str]:
    """Yields the columns beside a column that may hold another type: the existing columns, then the name of a new column."""
    named = re.compile(rf"{re.escape(stored)}__({'|'.join(_KINDS)})(_\d+)?", re.IGNORECASE)
    short = {stored_name(f"{stored}__{kind}") for kind in _KINDS}
    yield from sorted(name for name in have if (named.fullmatch(name) or name in short) and name.lower() not in taken)
    own = f"{stored}__{type_.partition('(')[0]}"
    names = (stored_name(own if number == 1 else f"{own}_{number}") for number in count(1))
    yield next(name for name in names if name.lower() not in taken and spellings.find(name) is None)


def _holds(found: Fit, place: str, have: str, want: str, alike: Callable[[str, str], bool]) -> bool:
    if alike(have, want):
        return True
    if want == "json" and alike("json", "string"):  # another loader gave such a column a length
        want = "string"
    wide = widened(have, want)
    if wide is None and found.keeps_doubles and have == "double" == stored_together(have, want):
        found.kept.append(place)
        return True
    if wide is None:
        return False
    if not alike(have, wide):
        found.wider[place] = wide
    return True


class Renamed(NamedTuple):
    """A column of a table that is stored under another name than the source's; without a column, the table itself."""

    table: str
    column: str
    stored_as: str

    def __str__(self) -> str:
        what, name = (f"column {self.column}", self.column) if self.column else ("", self.table)
        if what and name == self.stored_as:
            return f"table {self.table}: {what} stays a double, as an older release created it, and takes decimals"
        stored = f"table {self.table}{': ' if what else ''}{what} is stored as {self.stored_as}"
        if name.lower() == self.stored_as.lower():
            return f"{stored}: names are matched without case"
        if is_short_form(self.stored_as, name):
            return f"{stored}: its name is too long for the warehouse"
        return f"table {self.table}: {self.column} has a type that the column cannot hold, so it is stored in {self.stored_as}"


@dataclass(frozen=True)
class RenamedEntry:
    """A column that is stored under another name, the item that brought it first, and the time of that load (UTC)."""

    column: Renamed
    item: str
    since: datetime


class RenamedColumns:
    """The columns of a dataset's tables that are stored under another name than the source's. Each is reported once."""

    def __init__(self, engine: Engine, dataset: str) -> None:
        self._engine, self._dataset = engine, dataset
        self._control = ControlTable(engine, "renamed_columns", dataset, _RENAMED)
        self._known: set[Renamed] | None = None

    def create(self) -> None:
        """Creates the table if absent."""
        self._control.create()

    def read(self) -> list[RenamedEntry]:
        """Returns all entries, by table and column. Writes nothing; empty if nothing was ever loaded."""
        if not self._control.exists():
            return []
        found = self._engine.execute(
            f'SELECT "table", "column", "stored_as", "item", "since" FROM {self._table} '  # noqa: S608
            'WHERE "dataset" = ? ORDER BY "table", "column", "since"',
            (self._dataset,),
        )
        return [RenamedEntry(Renamed(*row[:3]), row[3], row[4].replace(tzinfo=UTC)) for row in found]

    def unknown(self, renamed: Collection[Renamed]) -> list[Renamed]:
        """Returns those columns that have no entry yet. Queries the warehouse at most once."""
        if not renamed:
            return []
        if self._known is None:
            self.create()  # a warehouse that an older release loaded lacks this table
            self._known = {entry.column for entry in self.read()}
        return sorted(set(renamed) - self._known)

    def remember(self, renamed: Collection[Renamed], item: str) -> None:
        """Adds entries. If two workers add the same column, it has two entries, which is harmless."""
        now = datetime.now(UTC).replace(tzinfo=None)
        for one in renamed:
            self._engine.write(
                f'INSERT INTO {self._table} ("dataset", "table", "column", "stored_as", "item", "since") '  # noqa: S608
                "VALUES (?, ?, ?, ?, ?, ?)",
                (self._dataset, *one, item, now),
            )
        self._known = None

    def forget(self) -> None:
        """Clears the cache: the next question queries the warehouse."""
        self._known = None

    @property
    def _table(self) -> str:
        return self._control.qualified
