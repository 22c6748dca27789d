"""What was out of the ordinary about the newest loads: a column that is spelled otherwise, a type that went beside it.

Belongs here: the notes that loads left in their records, a bounded part of them, for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from manifest_platform.manifest import ItemKey, Record
from manifest_platform.pipeline import LOAD

LINES = 5
"""How many notes are shown; the records have all."""


@dataclass(frozen=True)
class Note:
    """What was told of a load, in a line, and of which item."""

    item: str
    line: str


@dataclass(frozen=True)
class Told:
    """How many notes there are, and the newest of them."""

    count: int
    newest: tuple[Note, ...]


def told(feed: str, newest: Iterable[Record]) -> Told | None:
    """The notes among a feed's newest records, the newest first; None where there are none."""
    notes = [
        Note(ItemKey(feed, "-", record.item).name, line)
        for record in newest
        if record.application.name == LOAD
        for line in record.data.get("told", ())
    ]
    return Told(len(notes), tuple(notes[:LINES])) if notes else None


def some_of(lines: Sequence[str]) -> list[str]:
    """The first lines, and how many there are beyond."""
    more = len(lines) - LINES
    return [*lines[:LINES], *([f"and {more:,} notes more, in its records"] if more > 0 else [])]
