"""Where the columns of a listing's table lie in the warehouse: by name without case, and by type.

Warehouses match names without case, or catalogs behind them do: `Name__c` and `name__c` are one column, spelled as it came
first. A type that the column cannot hold without loss goes to a column beside it, `name__c__string`, where that is asked for;
whatever comes later goes to the column that holds its type.

Belongs here: the rules, and the control table of the columns that are stored under another name than the source's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, count
from typing import NamedTuple

from manifest_platform.column_names import Spellings
from manifest_platform.column_types import widened
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, Engine

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
    """A column has a type that the warehouse's column cannot hold, and may get no column beside it."""

    def __init__(self, column: str, have: str, want: str) -> None:
        self.column, self.have, self.want = column, have, want
        super().__init__(f"column {column}: the warehouse has {have}, and {want} comes")


@dataclass
class Fit:
    """Where the columns of a table go: `names`, as stored, by the listing's. `added` and `wider` are what must be done before:
    new columns and wider types, by the names as stored.
    """

    names: dict[str, str] = field(default_factory=dict)
    added: dict[str, str] = field(default_factory=dict)
    wider: dict[str, str] = field(default_factory=dict)

    @property
    def renamed(self) -> dict[str, str]:
        """The columns that are stored under another name."""
        return {name: stored for name, stored in self.names.items() if name != stored}


def fit(
    have: Mapping[str, str],
    wanted: Mapping[str, str],
    alike: Callable[[str, str], bool],
    beside: bool,
    key: Collection[str] = (),
) -> Fit:
    """Where the columns of a listing's table, with their types, go in a table that has others.

    `alike`: whether two types are one to the engine. `beside`: whether a column may be added beside one that cannot hold the
    type that comes; one that is there already is used in any case. A column of the `key` gets none. Raises Misfit.
    """
    found = Fit()
    taken = {name.lower() for name in wanted}
    spellings = Spellings(have)
    for name, type_ in wanted.items():
        stored = spellings.find(name)
        if stored is None:
            found.names[name] = name
            found.added[name] = type_
            continue
        beside_it = () if name in key else _beside(have, spellings, stored, type_, taken)
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


def _beside(have: Collection[str], spellings: Spellings, stored: str, type_: str, taken: Collection[str]) -> Iterator[str]:
    """The columns beside one, which may hold another type: those that are there, then what a new one would be called."""
    named = re.compile(rf"{re.escape(stored)}__({'|'.join(_KINDS)})(_\d+)?", re.IGNORECASE)
    yield from sorted(name for name in have if named.fullmatch(name) and name.lower() not in taken)
    own = f"{stored}__{type_.partition('(')[0]}"
    names = (own if number == 1 else f"{own}_{number}" for number in count(1))
    yield next(name for name in names if name.lower() not in taken and spellings.find(name) is None)


def _holds(found: Fit, place: str, have: str, want: str, alike: Callable[[str, str], bool]) -> bool:
    if alike(have, want):
        return True
    wide = widened(have, want)
    if wide is None:
        return False
    if not alike(have, wide):
        found.wider[place] = wide
    return True


class Renamed(NamedTuple):
    """That a table's column, as the source calls it, is stored under another name."""

    table: str
    column: str
    stored_as: str

    def __str__(self) -> str:
        if self.column.lower() == self.stored_as.lower():
            return f"table {self.table}: column {self.column} is {self.stored_as} here; names are matched without case"
        return f"table {self.table}: {self.column} comes with a type that the column cannot hold; it goes to {self.stored_as}"


@dataclass(frozen=True)
class RenamedEntry:
    """A column that is stored under another name: which item brought it first, and since when (UTC)."""

    column: Renamed
    item: str
    since: datetime


class RenamedColumns:
    """The columns of a dataset's tables that are stored under another name than the source's, each told once."""

    def __init__(self, engine: Engine, dataset: str) -> None:
        self._engine, self._dataset = engine, dataset
        self._known: set[Renamed] | None = None

    def create(self) -> None:
        """Creates the table, where absent."""
        columns = ", ".join(f"{self._engine.quote(name)} {self._engine.sql_type(type_)}" for name, type_ in _RENAMED.items())
        self._engine.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns})")

    def read(self) -> list[RenamedEntry]:
        """All entries, by table and column; writes nothing, and finds none where nothing was ever loaded."""
        if "renamed_columns" not in self._engine.columns(CONTROL_SCHEMA):
            return []
        found = self._engine.execute(
            f'SELECT "table", "column", "stored_as", "item", "since" FROM {self._table} '  # noqa: S608
            'WHERE "dataset" = ? ORDER BY "table", "column", "since"',
            (self._dataset,),
        )
        return [RenamedEntry(Renamed(*row[:3]), row[3], row[4].replace(tzinfo=UTC)) for row in found]

    def unknown(self, renamed: Collection[Renamed]) -> list[Renamed]:
        """Those that are not entered yet. Asks the warehouse once, and where there are any."""
        if not renamed:
            return []
        if self._known is None:
            self.create()  # what a release before this one has loaded has none
            self._known = {entry.column for entry in self.read()}
        return sorted(set(renamed) - self._known)

    def remember(self, renamed: Collection[Renamed], item: str) -> None:
        """Enters columns. Two workers may enter the same one, which is then there twice, and known."""
        now = datetime.now(UTC).replace(tzinfo=None)
        for one in renamed:
            self._engine.write(
                f'INSERT INTO {self._table} ("dataset", "table", "column", "stored_as", "item", "since") '  # noqa: S608
                "VALUES (?, ?, ?, ?, ?, ?)",
                (self._dataset, *one, item, now),
            )
        self._known = None

    def forget(self) -> None:
        """Makes the next question ask the warehouse."""
        self._known = None

    @property
    def _table(self) -> str:
        return self._engine.qualified(CONTROL_SCHEMA, "renamed_columns")
