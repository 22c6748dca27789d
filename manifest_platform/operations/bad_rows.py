"""How many bad rows the newest items have: what shredding let pass, told before it becomes a habit.

Belongs here: the count, for people. Whether an item has too many is decided once, when it is shredded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from manifest_platform.manifest import ItemKey, Record
from manifest_platform.pipeline import SHRED

NEWEST, GLANCE = 400, 100
"""How many of a feed's newest records are looked at: one query, whatever the feed has; and where many feeds are shown."""


@dataclass(frozen=True)
class BadItem:
    """An item with bad rows among its lines."""

    name: str
    bad: int
    lines: int

    @property
    def share(self) -> float:
        """Bad rows by lines."""
        return self.bad / self.lines


@dataclass(frozen=True)
class BadRows:
    """The bad rows of the newest `items` that were shredded, and those of them that have any, the largest share first."""

    items: int
    lines: int
    bad: int
    found: tuple[BadItem, ...]

    def above(self, share: float) -> tuple[BadItem, ...]:
        """The items with a larger share of bad rows."""
        return tuple(item for item in self.found if item.share > share)


def bad_rows(feed: str, records: Iterable[Record]) -> BadRows:
    """The bad rows of a feed's newest items, by their records, the newest first."""
    newest: dict[str, BadItem] = {}
    for record in records:
        counts = record.data
        if record.application.name == SHRED and "lines" in counts:
            name = ItemKey(feed, "-", record.item).name
            newest.setdefault(record.item, BadItem(name, counts.get("bad", 0), counts["lines"]))
    found = sorted((item for item in newest.values() if item.bad), key=lambda item: item.share, reverse=True)
    lines, bad = (sum(getattr(item, name) for item in newest.values()) for name in ("lines", "bad"))
    return BadRows(len(newest), lines, bad, tuple(found))
