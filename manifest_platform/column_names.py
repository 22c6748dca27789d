"""Rules for column names: names that differ only in case are the same name, spelled as it was first found.

Most warehouses and catalogs compare names without case. A vault that changes the spelling of `Name__c` to `name__c` has not
added a column.

Belongs here: the rule that shredding, merging and loading share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

LONGEST = 255
"""Largest number of characters in a column name. No warehouse accepts longer names."""
MOST = 4096
"""Largest number of columns in a file. No warehouse accepts wider tables."""


class Spellings:
    """A set of names for many fast lookups without case; `matched` searches linearly."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._exact: set[str] = set()
        self._lower: dict[str, str] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Adds a name. The first spelling wins."""
        self._exact.add(name)
        self._lower.setdefault(name.lower(), name)

    def find(self, name: str) -> str | None:
        """The spelling of a name in the set; None if it is not in the set."""
        return name if name in self._exact else self._lower.get(name.lower())


def matched(have: Collection[str], name: str) -> str | None:
    """The spelling of a name among others, compared without case; None if it is not among them."""
    if name in have:
        return name
    lower = name.lower()
    return next((one for one in have if one.lower() == lower), None)


def spelled(have: Collection[str], names: Collection[str]) -> dict[str, str]:
    """Maps each name to its spelling among others, or to itself if it is not among them."""
    known = Spellings(have)
    return {name: known.find(name) or name for name in names}


def spelled_twice(names: Collection[str]) -> list[str]:
    """The names that occur more than once, compared without case; sorted."""
    times = Counter(name.lower() for name in names)
    return sorted({name for name in names if times[name.lower()] > 1})


def problem(names: Collection[str]) -> str | None:
    """The reason why no table can have these columns; None if a table can."""
    if len(names) > MOST:
        return f"has {len(names):,} columns, and the most are {MOST:,}"
    if long := next((name for name in names if len(name) > LONGEST), None):
        return f"has a column whose name has {len(long):,} characters, and the most are {LONGEST}: {long[:40]!r}…"
    if twice := sorted({name.lower() for name in spelled_twice(names)}):
        return f"has {', '.join(twice[:3])}{f' and {len(twice) - 3} more' if len(twice) > 3 else ''} twice"
    return None
