"""What a completed shred adds to the inventory, how it is taken in, and what became of it.

Belongs here: values and rules. `transitions` makes the rows of it, `inventory` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from manifest_platform.column_names import Spellings
from manifest_platform.column_types import widened
from manifest_platform.listing import Column, Listing
from manifest_platform.merging.names import object_id
from manifest_platform.merging.state import PartitionName, SmallObject


@dataclass(frozen=True)
class Registration:
    """What became of a commit: `objects` registered, in how many partitions.

    `outside`: objects left for their date is not accepted. `passed_over`: objects of tables that are not merged. `known`: the
    commit was registered before, so nothing was done.
    """

    commit: int
    objects: int = 0
    partitions: int = 0
    outside: int = 0
    passed_over: int = 0
    known: bool = False


@dataclass(frozen=True)
class CommittedObjects:
    """What a completed shred adds: its number among the commits, its item, its small objects by (table, date), ids ascending.

    `columns`: those of each table that has objects in it.
    """

    number: int
    item: str
    objects: Mapping[PartitionName, tuple[SmallObject, ...]]
    columns: Mapping[str, tuple[Column, ...]]

    @classmethod
    def of(cls, number: int, listing: Listing) -> CommittedObjects:
        """The commit of a listing: an object's id is the commit's number and its place in the listing."""
        objects: dict[PartitionName, list[SmallObject]] = {}
        for ordinal, found in enumerate(listing.objects, start=1):
            id_ = object_id(number, ordinal)
            small = SmallObject(id_, found.uri, found.rows, found.bytes, found.min_time, found.max_time)
            objects.setdefault((found.table, date.fromisoformat(found.date)), []).append(small)
        columns = {table.name: table.columns for table in listing.tables}
        return cls(number, listing.item, {key: tuple(found) for key, found in objects.items()}, columns)


@dataclass(frozen=True)
class DateWindow:
    """The dates from that of `back` ago to that of `ahead` from now, by UTC."""

    back: timedelta
    ahead: timedelta

    def holds(self, day: date, now: datetime) -> bool:
        """Whether a date lies in it."""
        today = now.astimezone(UTC)
        return (today - self.back).date() <= day <= (today + self.ahead).date()


def widened_columns(known: Sequence[Column], found: Sequence[Column]) -> tuple[Column, ...]:
    """Known columns, as wide as those found need them, and what is new behind them.

    Never refuses: a type that does not fit the other stays, and the merge that meets the column tells of it.
    """
    columns = {column.name: column for column in known}
    spellings = Spellings(columns)
    for column in found:
        name = spellings.find(column.name) or column.name
        spellings.add(name)
        have = columns.get(name, column)
        type_ = widened(have.type, column.type) or have.type
        columns[name] = Column(name, type_, have.nullable or column.nullable)
    return tuple(columns.values())


@dataclass(frozen=True)
class Rules:
    """How small objects are taken in.

    `accepted`: the dates whose objects are registered; others are counted and left. `merged`: the dates for which a merge is
    scheduled. None: all. `by_volume`: a merge is due at once when it would fill an object.
    """

    accepted: DateWindow | None = None
    merged: DateWindow | None = None
    by_volume: bool = True


STRICT_RULES = Rules(
    accepted=DateWindow(timedelta(days=21), timedelta(days=3)),
    merged=DateWindow(timedelta(days=15, hours=1), timedelta(days=1, hours=1)),
    by_volume=False,
)
