"""The typed attributes of a DynamoDB row. Reading collects all problems instead of stopping at the first.

Belongs here: DynamoDB's notation of types (`{"S": "text"}`), and the messages on wrong ones. The meaning of an attribute is
defined by the module that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

Row = Mapping[str, Mapping[str, Any]]
"""A row as DynamoDB's low-level client returns it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {
    "S": "text (S)",
    "N": "a number (N)",
    "BOOL": "a boolean (BOOL)",
    "L": "a list (L)",
    "SS": "a set of texts (SS)",
    "NS": "a set of numbers (NS)",
    "M": "a map (M)",
    "B": "binary (B)",
    "BS": "a set of binaries (BS)",
    "NULL": "null (NULL)",
}


class Attributes:
    """Reads one row's attributes. Each method returns the value, or None if it is absent or wrong; then `problems` grows.

    An absent attribute is a problem unless it is `optional`.
    """

    def __init__(self, row: Row):
        self._row = row
        self.problems: list[str] = []

    def has(self, *names: str) -> Set[str]:
        """Returns those of the attributes that the row has, with any type."""
        return {name for name in names if name in self._row}

    def text(self, name: str, optional: bool = False) -> str | None:
        """Returns a non-empty text."""
        text = self._value(name, "S", optional)
        if text == "":
            self._wrong(name, "is empty")
        return text or None

    def uuid(self, name: str, optional: bool = False) -> str | None:
        """Returns a UUID, as it is written."""
        text = self.text(name, optional)
        try:
            return text and str(UUID(text)) and text
        except ValueError:
            return self._wrong(name, f"must be a UUID, and is {text!r}")

    def time(self, name: str, unit: timedelta, optional: bool = False) -> datetime | None:
        """Returns a time (UTC) that is stored as a whole number of units since 1970."""
        number = self._value(name, "N", optional)
        if number is None:
            return None
        try:
            count = Decimal(number)
            if count != count.to_integral_value():
                return self._wrong(name, f"must be a whole number, and is {number}")
            return _EPOCH + int(count) * unit
        except OverflowError:
            return self._wrong(name, f"is no time: {number}")

    def flag(self, name: str) -> bool | None:
        """Returns a boolean."""
        return self._value(name, "BOOL", optional=False)

    def texts(self, name: str) -> list[str] | None:
        """Returns a list of texts; the members of a set are sorted."""
        if "SS" in self._row.get(name, {}):
            return sorted(self._row[name]["SS"])
        entries = self._value(name, "L", optional=False)
        if entries is None:
            return None
        strangers = [_type(entry) for entry in entries if "S" not in entry]
        if strangers:
            return self._wrong(name, f"must be a list of texts, and holds {strangers[0]}")
        return [entry["S"] for entry in entries]

    def _value(self, name: str, kind: str, optional: bool) -> Any:
        attribute = self._row.get(name)
        if attribute is None:
            return None if optional else self._wrong(name, "is missing")
        if kind not in attribute:
            return self._wrong(name, f"must be {_TYPES[kind]}, and is {_type(attribute)}")
        return attribute[kind]

    def _wrong(self, name: str, what: str) -> None:
        self.problems.append(f"{name} {what}")


def _type(attribute: Mapping[str, Any]) -> str:
    [kind] = attribute
    return _TYPES.get(kind, kind)


def shown(row: Row, name: str) -> str:
    """Returns an attribute's value for a message, whatever its type."""
    attribute = row.get(name)
    return str(next(iter(attribute.values()))) if attribute else f"(no {name})"
