"""Counts of bad rows in the newest items, so that people see them early.

Belongs here: the counts for people. The decision that an item has too many bad rows is made when it is shredded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from manifest_platform.manifest import ItemKey, Record
from manifest_platform.pipeline import SHRED

NEWEST, GLANCE = 400, 100
"""The number of newest records of a feed that are read, in one query: for one feed, and where many feeds are shown."""


@dataclass(frozen=True)
class BadItem:
    """An item with bad rows. `lines`: all its lines, the bad ones included."""

    name: str
    bad: int
    lines: int

    @property
    def share(self) -> float:
        """The bad rows as a fraction of the lines."""
        return self.bad / self.lines


@dataclass(frozen=True)
class BadRows:
    """Bad rows of the `items` most recently shredded items. `found`: the items that have any, largest share first.

    `duplicates`: the duplicates in these items, by kind.
    """

    items: int
    lines: int
    bad: int
    found: tuple[BadItem, ...]
    duplicates: Mapping[str, int] = field(default_factory=dict)

    def above(self, share: float) -> tuple[BadItem, ...]:
        """Returns the items whose share of bad rows is larger than `share`."""
        return tuple(item for item in self.found if item.share > share)


def bad_rows(feed: str, records: Iterable[Record]) -> BadRows:
    """Counts the bad rows of a feed's newest items. `records`: their records, newest first."""
    newest: dict[str, BadItem] = {}
    duplicates: Counter[str] = Counter()
    for record in records:
        counts = record.data
        if record.application.name == SHRED and "lines" in counts:
            name = ItemKey(feed, "-", record.item).name
            if record.item not in newest:
                newest[record.item] = BadItem(name, counts.get("bad", 0), counts["lines"])
                duplicates.update(counts.get("duplicates", {}))
    found = sorted((item for item in newest.values() if item.bad), key=lambda item: item.share, reverse=True)
    lines, bad = (sum(getattr(item, name) for item in newest.values()) for name in ("lines", "bad"))
    return BadRows(len(newest), lines, bad, tuple(found), dict(duplicates))


def clause_of(duplicates: Mapping[str, int] | None) -> str:
    """Returns the numbers of duplicates by kind as a clause, as `, 3 natural duplicates`; empty without any."""
    kinds = [f"{count:,} {kind}" for kind, count in (duplicates or {}).items() if count]
    several = sum((duplicates or {}).values()) > 1
    return f", {' and '.join(kinds)} duplicate{'s' if several else ''}" if kinds else ""
