"""The names of columns: those that differ by case alone are one, spelled as it came first.

Most warehouses and catalogs match names without case. A vault that spells a column anew, `Name__c` as `name__c`, has not made
another column.

Belongs here: the rule, which shredding, merging and loading share.
"""

from __future__ import annotations

from collections.abc import Collection


def matched(have: Collection[str], name: str) -> str | None:
    """The name as it is spelled among others; one that differs by case alone is it. None where there is none."""
    if name in have:
        return name
    lower = name.lower()
    return next((one for one in have if one.lower() == lower), None)


def spelled(have: Collection[str], names: Collection[str]) -> dict[str, str]:
    """Names as they are spelled among others, by the names; one that is not among them stays as it is."""
    return {name: matched(have, name) or name for name in names}


def spelled_twice(names: Collection[str]) -> list[str]:
    """The names that stand there twice, those that differ from another one by case alone among them."""
    lower = [name.lower() for name in names]
    return sorted({name for name in names if lower.count(name.lower()) > 1})
