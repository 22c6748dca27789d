"""Notes of the newest loads: unusual facts, such as a column spelled differently, or values kept in a second column.

Belongs here: a bounded number of the notes that loads leave in their records, for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from manifest_platform.manifest import ItemKey, Record
from manifest_platform.pipeline import LOAD

LINES = 5
"""The number of notes that are shown. The records have all of them."""


@dataclass(frozen=True)
class Note:
    """A note of a load, in one line, and its item."""

    item: str
    line: str


@dataclass(frozen=True)
class Told:
    """The number of notes, and the newest of them."""

    count: int
    newest: tuple[Note, ...]


def told(feed: str, newest: Iterable[Record]) -> Told | None:
    """Returns the notes in a feed's newest records, newest first; None if there are none."""
    notes = [
        Note(ItemKey(feed, "-", record.item).name, line)
        for record in newest
        if record.application.name == LOAD
        for line in record.data.get("told", ())
    ]
    return Told(len(notes), tuple(notes[:LINES])) if notes else None


def some_of(lines: Sequence[str]) -> list[str]:
    """Returns the first lines, and a last line with the number of the others."""
    more = len(lines) - LINES
    return [*lines[:LINES], *([f"and {more:,} more notes, in its records"] if more > 0 else [])]
