"""Rows of many files in one order, a row group at a time, in bounded memory.

Belongs here: the order. Rows are ordered by a key (their time); rows of one key keep the order of the inputs, and in one
input their own. What comes in is pieces, each in order within itself, with a promise of the smallest key that is still to
come: all rows below it can go out. Where that is not enough to stay within the bound, sorted runs are put on the local disk
and merged at the end.
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
"""The key of rows without a time: they come last."""


@dataclass(frozen=True)
class Bounds:
    """How large row groups are, in bytes of Arrow data and in rows, and how many bytes may wait for their order."""

    group_bytes: int
    group_rows: int
    held_bytes: int


@dataclass(frozen=True)
class SortedPiece:
    """Rows in the order of their keys. `place` is theirs among all pieces: it decides between equal keys. `bytes`: about."""

    place: int
    rows: pa.Table
    keys: Array
    bytes: int

    def first(self, count: int) -> SortedPiece:
        """The first rows."""
        return SortedPiece(self.place, self.rows.slice(0, count), self.keys[:count], self._share(count))

    def behind(self, count: int) -> SortedPiece:
        """All rows but the first; where these are few, they no longer keep the others in memory."""
        left = len(self.keys) - count
        rows = self.rows.slice(count)
        if left <= len(self.keys) // 2:
            rows = rows.take(pa.array(np.arange(left)))
        return SortedPiece(self.place, rows, self.keys[count:].copy(), self._share(left))

    def _share(self, count: int) -> int:
        return self.bytes * count // len(self.keys)


@dataclass(frozen=True)
class Group:
    """The rows of a row group: those of `parts`, one after the other, in `order` (None: as they are). `keys`: in order.

    `places`: the piece of each row, in order.
    """

    parts: tuple[pa.Table, ...]
    order: Array | None
    keys: Array
    places: Array

    def rows(self) -> pa.Table:
        """The rows in order. Texts that have dictionaries have one for all."""
        together = pa.concat_tables(self.parts).unify_dictionaries()
        return together if self.order is None else together.take(pa.array(self.order))


class Sorter:
    """Takes pieces and gives row groups in order, as soon as nothing can come before them any more."""

    def __init__(self, bounds: Bounds, spool: Path):
        self.spilled = 0
        self._bounds, self._spool = bounds, spool
        self._held: list[SortedPiece] = []
        self._bytes = 0
        self._look_at = bounds.group_bytes  # bytes held at which it may be worth while to look for what can go out
        self._runs: list[_Run] = []

    def add(self, piece: SortedPiece, least: int) -> Iterator[Group]:
        """Takes a piece. `least`: no piece that follows has a smaller key."""
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
        """Gives all that is left."""
        if self._runs:
            self._spill()
            yield from _merged(self._runs, self._bounds)
        else:
            yield from self._groups(self._held, self._bytes)
        self._held, self._bytes = [], 0

    def _ready(self, least: int) -> Iterator[Group]:
        """The rows that are before all that follows, if they are enough for a row group."""
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
        """Puts what is held on the disk, in order."""
        if not self._held:
            return
        count = max(1, round(self._bytes / (self._bounds.group_bytes / 16)))
        self._runs.append(_Run(self._spool / f"run-{len(self._runs)}", _portions(self._held, count)))
        self.spilled += self._bytes
        self._held, self._bytes = [], 0


def _portions(pieces: Sequence[SortedPiece], count: int) -> Iterator[Group]:
    """All rows of pieces, in order, in so many groups of like size."""
    pieces = sorted(pieces, key=lambda piece: piece.place)
    keys = np.concatenate([piece.keys for piece in pieces])
    starts = np.cumsum([0, *(len(piece.keys) for piece in pieces)])
    order = None if np.all(keys[1:] >= keys[:-1]) else np.argsort(keys, kind="stable")
    count = min(count, len(keys))
    taken = np.zeros(len(pieces), np.int64)  # of each piece, the rows that went out: pieces are in order, so its first ones
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
    """Rows in order, on the local disk, with their keys and places; the next of them in memory."""

    def __init__(self, file: Path, groups: Iterator[Group]):
        writer = None
        for group in groups:
            rows = dense(group.rows())  # a file of batches cannot have a dictionary for each
            rows = rows.append_column("key", pa.array(group.keys)).append_column("place", pa.array(group.places))
            writer = writer or pa.ipc.new_file(str(file), rows.schema)
            # One batch each: what is read at once later.
            writer.write_table(rows.combine_chunks())
        assert writer is not None
        writer.close()
        with pa.memory_map(str(file)) as mapped:
            self._file = pa.ipc.open_file(mapped.read_buffer())
        self._next = 0
        self.rows, self.keys, self.places = self._batch()

    def advance(self, count: int) -> pa.Table:
        """Takes the next rows, as many as are in memory at most."""
        taken = self.rows.slice(0, count)
        if count < len(self.keys):
            self.rows, self.keys, self.places = self.rows.slice(count), self.keys[count:], self.places[count:]
        elif self._next < self._file.num_record_batches:
            self.rows, self.keys, self.places = self._batch()
        else:
            self.rows, self.keys, self.places = self.rows.slice(0, 0), self.keys[:0], self.places[:0]
        return taken

    def up_to(self, key: int, place: int) -> int:
        """How many of the rows in memory come before, or are, those of a key in a place."""
        first, end = np.searchsorted(self.keys, key), np.searchsorted(self.keys, key, "right")
        return int(first + np.searchsorted(self.places[first:end], place, "right"))

    def _batch(self) -> tuple[pa.Table, Array, Array]:
        batch = pa.Table.from_batches([self._file.get_batch(self._next)])
        self._next += 1
        columns = batch.num_columns
        keys, places = batch.column(columns - 2).to_numpy(), batch.column(columns - 1).to_numpy()
        return batch.select(range(columns - 2)), keys, places


def _merged(runs: Sequence[_Run], bounds: Bounds) -> Iterator[Group]:
    """The rows of all runs in order."""
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
    """The rows in memory that nothing outside of it comes before."""
    key, place = min((int(run.keys[-1]), int(run.places[-1])) for run in runs)
    counts = [run.up_to(key, place) for run in runs]
    keys = np.concatenate([run.keys[:count] for run, count in zip(runs, counts, strict=True)])
    places = np.concatenate([run.places[:count] for run, count in zip(runs, counts, strict=True)])
    order = np.lexsort((places, keys))
    parts = tuple(run.advance(count) for run, count in zip(runs, counts, strict=True) if count)
    return Group(parts, order, keys[order], places[order])


def _together(windows: Sequence[Group]) -> Group:
    """Groups that follow each other, as one."""
    orders, offset = [], 0
    for window in windows:
        orders.append((np.arange(len(window.keys)) if window.order is None else window.order) + offset)
        offset += len(window.keys)
    parts = tuple(part for window in windows for part in window.parts)
    keys, places = (np.concatenate(arrays) for arrays in ([w.keys for w in windows], [w.places for w in windows]))
    return Group(parts, np.concatenate(orders), keys, places)
