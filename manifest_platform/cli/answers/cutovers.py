"""The answers of `cutover`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass
class LoadedBefore:
    """A run that the other loader has loaded."""

    name: str
    place: str
    loaded_at: datetime
    rows: int | None
    types: list[str]


@dataclass
class TableBefore:
    """A table of the other loader: its rows, the columns that loads add or widen, and why it cannot be taken over.

    `short`: text columns that stay shorter than the rows may need. `relaxes`: NOT NULL columns that loads may leave empty.
    """

    table: str
    rows: int
    adds: dict[str, str]
    widens: dict[str, str]
    problem: str
    short: list[str]
    relaxes: list[str]


@dataclass
class CutoverChecked:
    """The state of another loader's tables. `adopted`: the runs that are taken over already.

    `hindrances`: why the tables cannot be taken over; empty if they can.
    """

    loader: str
    schema: str
    runs: list[LoadedBefore]
    never_loaded: list[str]
    newer: list[str]
    gone: list[str]
    adopted: list[str]
    tables: list[TableBefore]
    strangers: list[str]
    rows: int
    noted: int | None
    hindrances: list[str]


@dataclass
class CutoverAdopted:
    """The result of a takeover: new entries of the ledger, new records of the log, and all runs of the other loader."""

    dry_run: bool
    entered: int
    records: int
    items: int


@dataclass
class ComparedTable:
    """A table's rows of a run, here and there. `noted`: the rows of the main table that the other loader noted for the run."""

    item: str
    table: str
    ours: int
    theirs: int
    different: int
    missing: int
    left_out: list[str]
    noted: int | None
    same: bool


@dataclass
class CutoverCompared:
    """The comparison of the newest runs that both loaders have loaded."""

    tables: list[ComparedTable]
