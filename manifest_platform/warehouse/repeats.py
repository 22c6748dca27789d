"""Rows that an earlier load of the same dataset has brought already, and that a load therefore leaves out.

A source declares its identity columns, and a dataset where to look: in the warehouse's own table, or in a memory of what was
loaded. Either way the result is a relation of the copies among the staged rows; the rows of the main table that it names are
left out, and so are the rows of other tables that refer to them.

The decision depends only on the item and on what was applied, so a load that is repeated after a crash decides the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from manifest_platform.listing import Column, Listing, Table
from manifest_platform.warehouse.scratch import Scratch

COPIES = Table("repeated", (Column("id", "string"), Column("content", "string")))
"""The table of a memory's answer: the copies among the rows of an item."""


@dataclass(frozen=True)
class Identity:
    """The columns that tell that a row repeats a row of an earlier load.

    `table`: the main table. `id`, `content`: copies agree in both; a row without either is never a copy. `time`: the timestamp
    that bounds the look-back. `made`: the timestamp of when the row was made. `refers`: the column of other tables that holds
    the id of their row of the main table.
    """

    table: str
    id: str
    content: str
    time: str
    made: str
    refers: str


Applied = Callable[[str], bool]
"""True if the warehouse has applied the item of an id."""


class Memory(Protocol):
    """A memory of the identities that were loaded into one target."""

    def copies(self, item: str, listing: Listing, applied: Applied, place: Scratch) -> list[str]:
        """Claims the identities of an item, and returns the URIs of Parquet files with those that other items have: COPIES.

        A claim counts only if the warehouse has applied its item. The same item may claim again. `place`: takes the files.
        Raises Unavailable.
        """
        ...


@dataclass(frozen=True)
class Rule:
    """The choice of a dataset: where copies of earlier rows are looked for.

    `days`: how much earlier than the load's earliest row the other copy may be in the warehouse, or how long a memory keeps
    what was loaded. `remembered`: True for a memory, False to look into the warehouse.
    """

    identity: Identity
    days: float
    remembered: bool = False


@dataclass(frozen=True)
class Repeats:
    """The rule as a load takes it. `memory`: that of the load's target; None to look into the warehouse."""

    rule: Rule
    memory: Memory | None = field(default=None, compare=False)
