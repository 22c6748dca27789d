"""A sample of what shredding makes of files: in memory, of so many bytes, within so much time. Nothing is written.

Belongs here: what all sources' samples share. It stands where a shredder's `Writer` stands, so that a sample is what shredding
would make.
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
"""How many bad rows of a sample are kept."""
REASON = 300
"""How many characters of a reason are kept."""
_EXPLAINED = 5_000  # bad rows of a chunk whose reasons are looked at
_OTHERS = "not looked at any further"


class Sampler(Writer):
    """Counts what a task's rows would become, and keeps the first bad ones.

    `rows`: by table. `reasons`: bad rows by the first reason of each. `bad_rows`: of the first KEPT of them, the URI of the
    file, the number of the line, the first reason. `read`: bytes of input, decompressed; `was_cut`: whether it ended before its
    input, or may have.
    """

    def __init__(self, until: float):
        """`until`: when it ends at the latest, by `time.monotonic`."""
        super().__init__(Task(0, 0, "", (), None), sys.maxsize, lambda _name, _rows: (), InputLimits(bad_rows=sys.maxsize))
        self.rows: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.bad_rows: list[tuple[str, int, str]] = []
        self.read = 0
        self.was_cut = False
        self._enough, self._until = 0, until

    @property
    def left(self) -> int:
        """How many bytes more it may read."""
        return max(0, self._enough - self.read)

    def take(self, size: int) -> None:
        """Lets it read so many bytes more, beginning now."""
        self._enough = self.read + size

    @property
    def is_late(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() >= self._until

    @property
    def is_hopeless(self) -> bool:
        """Whether it has read what it may."""
        return self.read >= self._enough or self.is_late

    def add(self, table: Table, rows: pa.Table | None = None, types: Mapping[str, int] | None = None) -> None:
        """Counts rows of a table; none is held."""
        self.written.define(table)
        self.rows[table.name] += rows.num_rows if rows is not None else 0

    def chunk_done(self, size: int, good: int, bad_table: Table, bad: pa.Table) -> None:
        """Counts a chunk of so many bytes, and its bad rows."""
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
        """The tables and their rows, but for the bad rows."""
        found = self.written.tables
        return [(found[name], self.rows[name]) for name in sorted(found) if name != BAD_TABLE]
