"""The registration of a completed shred: its objects, the rules, and the result.

Belongs here: values and rules. `transitions` turns them into rows, and `inventory` writes the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from manifest_platform.column_names import Spellings
from manifest_platform.column_types import stored_together
from manifest_platform.listing import Column, DateRows, Listing, ShreddedObject
from manifest_platform.merging.names import object_id
from manifest_platform.merging.state import PartitionName, SmallObject


@dataclass(frozen=True)
class Registration:
    """The result of registering a commit: the number of `objects` registered, and of their `partitions`.

    `outside`: number of objects not registered because of their date. `passed_over`: number of objects of tables that are not
    merged. `known`: True if the commit was already registered, so that nothing was done.
    """

    commit: int
    objects: int = 0
    partitions: int = 0
    outside: int = 0
    passed_over: int = 0
    known: bool = False


@dataclass(frozen=True)
class CommittedObjects:
    """The objects of a completed shred: the commit number, the item, and small objects by (table, date) with ascending ids.

    `columns`: the columns of each table, by table.
    """

    number: int
    item: str
    objects: Mapping[PartitionName, tuple[SmallObject, ...]]
    columns: Mapping[str, tuple[Column, ...]]

    @classmethod
    def of(cls, number: int, listing: Listing) -> CommittedObjects:
        """The commit of a listing. An object's id consists of the commit number and its place in the listing.

        Each date of a file of several dates has a place of its own.
        """
        objects: dict[PartitionName, list[SmallObject]] = {}
        for ordinal, (found, part) in enumerate(_parts(listing), start=1):
            small = _small(object_id(number, ordinal), found, part)
            objects.setdefault((found.table, date.fromisoformat(part.date if part else found.date)), []).append(small)
        columns = {table.name: table.columns for table in listing.tables}
        return cls(number, listing.item, {key: tuple(found) for key, found in objects.items()}, columns)


def _parts(listing: Listing) -> Iterator[tuple[ShreddedObject, DateRows | None]]:
    """Yields each file of a single date, and each date of the other files: by table, date and the name of the file.

    So the objects of a partition have one order, whether or not their files hold other dates, too. `take_over` relies on it.
    """
    parts = [(found, part) for found in listing.objects for part in found.dates or (None,)]
    # Listings of files of single dates keep their order, because an earlier release may have registered a part of the commit.
    yield from sorted(parts, key=_place) if any(found.dates for found in listing.objects) else parts


def _place(of: tuple[ShreddedObject, DateRows | None]) -> tuple[str, str, str]:
    found, part = of
    return found.table, part.date if part else found.date, found.uri.rpartition("/")[2]


def _small(id_: int, found: ShreddedObject, part: DateRows | None) -> SmallObject:
    if part is None:
        return SmallObject(id_, found.uri, found.rows, found.bytes, found.min_time, found.max_time)
    size = part.groups.end - part.groups.start
    return SmallObject(id_, found.uri, part.rows, size, part.min_time, part.max_time, groups=part.groups)


@dataclass(frozen=True)
class DateWindow:
    """The dates from `back` ago to `ahead` from now, in UTC, both included."""

    back: timedelta
    ahead: timedelta

    def holds(self, day: date, now: datetime) -> bool:
        """True if the date is in the window at the time `now`."""
        today = now.astimezone(UTC)
        return (today - self.back).date() <= day <= (today + self.ahead).date()


def widened_columns(known: Sequence[Column], found: Sequence[Column]) -> tuple[Column, ...]:
    """Widens known columns to hold the found columns, and appends new columns.

    It never fails: if types do not fit, the known type remains, and the merge of that column reports the conflict.
    """
    columns = {column.name: column for column in known}
    spellings = Spellings(columns)
    for column in found:
        name = spellings.find(column.name) or column.name
        spellings.add(name)
        have = columns.get(name, column)
        type_ = stored_together(have.type, column.type) or have.type
        columns[name] = Column(name, type_, have.nullable or column.nullable)
    return tuple(columns.values())


@dataclass(frozen=True)
class Rules:
    """The rules for registering small objects.

    `accepted`: dates whose objects are registered; others are only counted. `merged`: dates for which a merge is scheduled.
    None means all dates. `by_volume`: True to make a merge due immediately when the waiting objects fill a merged object.
    """

    accepted: DateWindow | None = None
    merged: DateWindow | None = None
    by_volume: bool = True


STRICT_RULES = Rules(
    accepted=DateWindow(timedelta(days=21), timedelta(days=3)),
    merged=DateWindow(timedelta(days=15, hours=1), timedelta(days=1, hours=1)),
    by_volume=False,
)
