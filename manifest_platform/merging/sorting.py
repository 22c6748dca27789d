"""Sorts the rows of many files, one row group at a time, in bounded memory.

Rows are sorted by a key (their time). Rows with equal keys keep the order of the inputs, and their order within an input.
The sorter takes pieces that are sorted themselves, each with a lower bound of all keys still to come; rows below that bound
are complete and can be written. If too many rows wait, sorted runs are spilled to the local disk and merged at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manifest_platform.merging.schemas import dense

Array = np.ndarray[Any, Any]

LAST = int(np.iinfo(np.int64).max)
"""The key of rows without a time. They are sorted last."""


@dataclass(frozen=True)
class Bounds:
    """Limits: a row group in bytes of Arrow data and in rows, and the bytes that may wait in memory."""

    group_bytes: int
    group_rows: int
    held_bytes: int


@dataclass(frozen=True)
class SortedPiece:
    """Rows sorted by key. `place`: the order among pieces, which decides between equal keys. `bytes`: the approximate size."""

    place: int
    rows: pa.Table
    keys: Array
    bytes: int

    def first(self, count: int) -> SortedPiece:
        """The first `count` rows."""
        return SortedPiece(self.place, self.rows.slice(0, count), self.keys[:count], self._share(count))

    def behind(self, count: int) -> SortedPiece:
        """All rows after the first `count`. A small rest is copied, so that it does not keep the others in memory."""
        left = len(self.keys) - count
        rows = self.rows.slice(count)
        if left <= len(self.keys) // 2:
            rows = rows.take(pa.array(np.arange(left)))
        return SortedPiece(self.place, rows, self.keys[count:].copy(), self._share(left))

    def _share(self, count: int) -> int:
        return self.bytes * count // len(self.keys)


@dataclass(frozen=True)
class Group:
    """The rows of one row group: the concatenated `parts`, permuted by `order` (None if they are in order already).

    `keys`, `places`: the key of each row and the place of its piece, both in the final order.
    """

    parts: tuple[pa.Table, ...]
    order: Array | None
    keys: Array
    places: Array

    def rows(self) -> pa.Table:
        """The rows in order. Dictionary-encoded columns share one dictionary."""
        together = pa.concat_tables(self.parts).unify_dictionaries()
        return together if self.order is None else together.take(pa.array(self.order))


class Sorter:
    """Takes sorted pieces and yields row groups in order, as soon as no later piece can contain an earlier row."""

    def __init__(self, bounds: Bounds, spool: Path):
        self.spilled = 0
        self._bounds, self._spool = bounds, spool
        self._held: list[SortedPiece] = []
        self._bytes = 0
        self._look_at = bounds.group_bytes  # the next check for complete rows is at this many bytes
        self._runs: list[_Run] = []

    def add(self, piece: SortedPiece, least: int) -> Iterator[Group]:
        """Adds a piece and yields the complete row groups. `least`: the lower bound of the keys of all later pieces."""
        if not len(piece.keys):
            return
        self._held.append(piece)
        self._bytes += piece.bytes
        if self._bytes < self._look_at:
            return
        if not self._runs:
            yield from self._ready(least)
        if self._bytes > self._bounds.held_bytes:
            self._spill()
        self._look_at = max(self._bounds.group_bytes, self._bytes + self._bounds.group_bytes // 2)

    def finish(self) -> Iterator[Group]:
        """Yields the remaining row groups."""
        if self._runs:
            self._spill()
            yield from _merged(self._runs, self._bounds)
        else:
            yield from self._groups(self._held, self._bytes)
        self._held, self._bytes = [], 0

    def _ready(self, least: int) -> Iterator[Group]:
        """Yields the complete rows, if they are enough for a row group."""
        cuts = [(piece, int(np.searchsorted(piece.keys, least))) for piece in self._held]
        ready = [piece.first(cut) for piece, cut in cuts if cut]
        size = sum(piece.bytes for piece in ready)
        if size < self._bounds.group_bytes:
            return
        self._held = [piece.behind(cut) if cut else piece for piece, cut in cuts if cut < len(piece.keys)]
        self._bytes = sum(piece.bytes for piece in self._held)
        yield from self._groups(ready, size)

    def _groups(self, pieces: Sequence[SortedPiece], size: int) -> Iterator[Group]:
        rows = sum(len(piece.keys) for piece in pieces)
        if rows:
            count = max(1, round(size / self._bounds.group_bytes), -(-rows // self._bounds.group_rows))
            yield from _portions(pieces, count)

    def _spill(self) -> None:
        """Writes the rows in memory to the local disk, in order."""
        if not self._held:
            return
        count = max(1, round(self._bytes / (self._bounds.group_bytes / 16)))
        self._runs.append(_Run(self._spool / f"run-{len(self._runs)}", _portions(self._held, count)))
        self.spilled += self._bytes
        self._held, self._bytes = [], 0


def _portions(pieces: Sequence[SortedPiece], count: int) -> Iterator[Group]:
    """Yields all rows of the pieces, in order, in `count` groups of similar size."""
    pieces = sorted(pieces, key=lambda piece: piece.place)
    keys = np.concatenate([piece.keys for piece in pieces])
    starts = np.cumsum([0, *(len(piece.keys) for piece in pieces)])
    order = None if np.all(keys[1:] >= keys[:-1]) else np.argsort(keys, kind="stable")
    count = min(count, len(keys))
    taken = np.zeros(len(pieces), np.int64)  # rows used of each piece, from its start because pieces are sorted
    for number in range(count):
        first, end = len(keys) * number // count, len(keys) * (number + 1) // count
        mine = np.arange(first, end) if order is None else order[first:end]
        which = np.searchsorted(starts, mine, "right") - 1
        counts = np.bincount(which, minlength=len(pieces))
        parts = [piece.rows.slice(taken[place], counts[place]) for place, piece in enumerate(pieces) if counts[place]]
        shift = np.cumsum(counts) - counts - starts[:-1] - taken
        places = np.array([piece.place for piece in pieces])[which]
        yield Group(tuple(parts), None if order is None else mine + shift[which], keys[mine], places)
        taken += counts


class _Run:
    """A sorted run on the local disk with its keys and places. Its next rows are in memory."""

    def __init__(self, file: Path, groups: Iterator[Group]):
        writer = None
        for group in groups:
            rows = dense(group.rows())  # an Arrow file cannot have a dictionary for each batch
            rows = rows.append_column("key", pa.array(group.keys)).append_column("place", pa.array(group.places))
            writer = writer or pa.ipc.new_file(str(file), rows.schema)
            # One record batch for each group: `_batch` reads one at a time.
            writer.write_table(rows.combine_chunks())
        assert writer is not None
        writer.close()
        with pa.memory_map(str(file)) as mapped:
            self._file = pa.ipc.open_file(mapped.read_buffer())
        self._next = 0
        self.rows, self.keys, self.places = self._batch()

    def advance(self, count: int) -> pa.Table:
        """Returns the next `count` rows, which must be in memory."""
        taken = self.rows.slice(0, count)
        if count < len(self.keys):
            self.rows, self.keys, self.places = self.rows.slice(count), self.keys[count:], self.places[count:]
        elif self._next < self._file.num_record_batches:
            self.rows, self.keys, self.places = self._batch()
        else:
            self.rows, self.keys, self.places = self.rows.slice(0, 0), self.keys[:0], self.places[:0]
        return taken

    def up_to(self, key: int, place: int) -> int:
        """The number of rows in memory that sort at or before this key and place."""
        first, end = np.searchsorted(self.keys, key), np.searchsorted(self.keys, key, "right")
        return int(first + np.searchsorted(self.places[first:end], place, "right"))

    def _batch(self) -> tuple[pa.Table, Array, Array]:
        batch = pa.Table.from_batches([self._file.get_batch(self._next)])
        self._next += 1
        columns = batch.num_columns
        keys, places = batch.column(columns - 2).to_numpy(), batch.column(columns - 1).to_numpy()
        return batch.select(range(columns - 2)), keys, places


def _merged(runs: Sequence[_Run], bounds: Bounds) -> Iterator[Group]:
    """Merges all runs, in order."""
    windows: list[Group] = []
    size = rows = 0
    while left := [run for run in runs if len(run.keys)]:
        window = _window(left)
        windows.append(window)
        size += sum(part.nbytes for part in window.parts)
        rows += len(window.keys)
        if size >= bounds.group_bytes or rows >= bounds.group_rows:
            yield _together(windows)
            windows, size, rows = [], 0, 0
    if windows:
        yield _together(windows)


def _window(runs: Sequence[_Run]) -> Group:
    """The next rows in memory that no row outside of it can precede."""
    key, place = min((int(run.keys[-1]), int(run.places[-1])) for run in runs)
    counts = [run.up_to(key, place) for run in runs]
    keys = np.concatenate([run.keys[:count] for run, count in zip(runs, counts, strict=True)])
    places = np.concatenate([run.places[:count] for run, count in zip(runs, counts, strict=True)])
    order = np.lexsort((places, keys))
    parts = tuple(run.advance(count) for run, count in zip(runs, counts, strict=True) if count)
    return Group(parts, order, keys[order], places[order])


def _together(windows: Sequence[Group]) -> Group:
    """Joins consecutive groups."""
    orders, offset = [], 0
    for window in windows:
        orders.append((np.arange(len(window.keys)) if window.order is None else window.order) + offset)
        offset += len(window.keys)
    parts = tuple(part for window in windows for part in window.parts)
    keys, places = (np.concatenate(arrays) for arrays in ([w.keys for w in windows], [w.places for w in windows]))
    return Group(parts, np.concatenate(orders), keys, places)
