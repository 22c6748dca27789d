"""The names of columns: those that differ by case alone are one, spelled as it came first.

Most warehouses and catalogs match names without case. A vault that spells a column anew, `Name__c` as `name__c`, has not made
another column.

Belongs here: the rule, which shredding, merging and loading share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

LONGEST = 255
"""How many characters the name of a column may have: no warehouse takes longer ones."""
MOST = 4096
"""How many columns a file may have: no warehouse has wider tables."""


class Spellings:
    """Names among which many are looked for, each in no time: `matched` looks at all of them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._exact: set[str] = set()
        self._lower: dict[str, str] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Adds a name behind the others."""
        self._exact.add(name)
        self._lower.setdefault(name.lower(), name)

    def find(self, name: str) -> str | None:
        """As `matched`."""
        return name if name in self._exact else self._lower.get(name.lower())


def matched(have: Collection[str], name: str) -> str | None:
    """The name as it is spelled among others; one that differs by case alone is it. None where there is none."""
    if name in have:
        return name
    lower = name.lower()
    return next((one for one in have if one.lower() == lower), None)


def spelled(have: Collection[str], names: Collection[str]) -> dict[str, str]:
    """Names as they are spelled among others, by the names; one that is not among them stays as it is."""
    known = Spellings(have)
    return {name: known.find(name) or name for name in names}


def spelled_twice(names: Collection[str]) -> list[str]:
    """The names that stand there twice, those that differ from another one by case alone among them."""
    times = Counter(name.lower() for name in names)
    return sorted({name for name in names if times[name.lower()] > 1})


def problem(names: Collection[str]) -> str | None:
    """Why no table can have these columns; None where it can."""
    if len(names) > MOST:
        return f"has {len(names):,} columns, and the most are {MOST:,}"
    if long := next((name for name in names if len(name) > LONGEST), None):
        return f"has a column whose name has {len(long):,} characters, and the most are {LONGEST}: {long[:40]!r}…"
    if twice := sorted({name.lower() for name in spelled_twice(names)}):
        return f"has {', '.join(twice[:3])}{f' and {len(twice) - 3} more' if len(twice) > 3 else ''} twice"
    return None
