"""Samples the result of shredding files, in memory, up to a number of bytes and a time limit. Nothing is written.

Belongs here: the part that all sources share. It replaces a shredder's `Writer`, so that a sample equals what shredding
would produce.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import orjson

from manifest_platform.listing import BAD_TABLE, Table
from manifest_platform.shred.batch import Task, Writer
from manifest_platform.shred.limits import InputLimits
from manifest_platform.shred.rows import in_words

if TYPE_CHECKING:
    import pyarrow as pa

KEPT = 200
"""Number of bad rows of a sample that are kept."""
REASON = 300
"""Number of characters of a reason that are kept."""
_EXPLAINED = 5_000  # bad rows of a chunk whose reasons are counted
_OTHERS = "not counted by reason"


class Sampler(Writer):
    """Counts the rows that a task would write, and keeps the first bad rows.

    `rows`: number of rows by table. `reasons`: number of bad rows by their first reason. `bad_rows`: the first KEPT bad rows as
    (URI of the file, line, first reason). `read`: bytes of input, decompressed. `was_cut`: True if the sample ended, or may
    have ended, before the end of its input.
    """

    def __init__(self, until: float):
        """`until`: the time limit, as a value of `time.monotonic`."""
        super().__init__(Task(0, 0, "", (), None), sys.maxsize, lambda _name, _rows: (), InputLimits(bad_rows=sys.maxsize))
        self.rows: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.bad_rows: list[tuple[str, int, str]] = []
        self.read = 0
        self.was_cut = False
        self._enough, self._until = 0, until

    def give(self, seconds: float) -> None:
        """Moves the time limit, by time that was spent on something else than the input."""
        self._until += seconds

    @property
    def left(self) -> int:
        """Number of bytes that may still be read."""
        return max(0, self._enough - self.read)

    def take(self, size: int) -> None:
        """Allows `size` more bytes from now on."""
        self._enough = self.read + size

    @property
    def is_late(self) -> bool:
        """True after the time limit."""
        return time.monotonic() >= self._until

    @property
    def is_hopeless(self) -> bool:
        """True if the allowed bytes were read or the time is over."""
        return self.read >= self._enough or self.is_late

    def add(self, table: Table, rows: pa.Table | None = None, types: Mapping[str, int] | None = None) -> None:
        """Counts rows of a table without keeping them."""
        self.written.define(table)
        self.rows[table.name] += rows.num_rows if rows is not None else 0

    def chunk_done(self, size: int, good: int, bad_table: Table, bad: pa.Table) -> None:
        """Counts a chunk of `size` bytes and its bad rows."""
        super().chunk_done(size, good, bad_table, bad)
        self.read += size
        self.was_cut = self.was_cut or self.is_hopeless
        for number, row in enumerate(bad.select(["file", "line", "reasons"]).to_pylist()):
            if number >= _EXPLAINED:
                self.reasons[_OTHERS] += bad.num_rows - number
                break
            reason = in_words(orjson.loads(row["reasons"])[0])[:REASON]
            self.reasons[reason] += 1
            if len(self.bad_rows) < KEPT:
                self.bad_rows.append((row["file"], row["line"], reason))

    def tables(self) -> list[tuple[Table, int]]:
        """The tables with their numbers of rows, except the table of bad rows."""
        found = self.written.tables
        return [(found[name], self.rows[name]) for name in sorted(found) if name != BAD_TABLE]
