"""Cuts a large CSV file into slices of whole records, so that several tasks can shred it.

A newline within quotes ends no record, and whether a byte is within quotes depends on all quotes before it. So each chunk of
the file is scanned alone, for both possible states at its beginning; then the states follow from the quotes of earlier chunks.
A chunk is sound for a state if each of its quotes begins a field, ends one, or is doubled within one. In a file of sound
chunks, a byte with an odd number of quotes before it is within quotes, for every parser of RFC 4180. Any other file is not
cut: one with a quote in the middle of an unquoted field, with an empty line, or with a CR alone at the end of a line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from manifest_platform.shred.batch import CHUNK

if TYPE_CHECKING:
    from manifest_platform.shred.csv_kernel import Stream

_LF, _CR, _COMMA, _QUOTE = b'\n\r,"'
_BESIDE_FIELD = np.array([_LF, _CR, _COMMA, _QUOTE], np.uint8)
_WRONG_QUOTE = "a quote that neither begins a field, nor ends one, nor is doubled within one"
_WRONG_LINE = "an empty line, or a carriage return alone at the end of a line"


class NotCut(ValueError):
    """A file that cannot be cut into slices. The message says why, as the end of a sentence."""


@dataclass(frozen=True)
class Outcome:
    """The records of a chunk, for one state at its beginning.

    `fault`: what the chunk has if the state is impossible there, or the file cannot be cut; empty for a sound chunk.
    `records`: the number of records that end in the chunk. `first`: the offset in the chunk after the first of them; None if
    there is none.
    """

    fault: str
    records: int
    first: int | None


@dataclass(frozen=True)
class Scan:
    """The scan of a chunk: whether its quotes are odd, and what it contains if it begins outside and within quotes."""

    is_odd: bool
    outside: Outcome
    within: Outcome


@dataclass(frozen=True)
class Slice:
    """Whole records of a file: its bytes from `start` up to `end`.

    `header`: the bytes of the header, at the beginning of the file. `before`: the number of records between the header and the
    slice. `records`: those of the slice, `total`: those of the file.
    """

    header: int
    start: int
    end: int
    before: int
    records: int
    total: int


def scan(stream: Stream, size: int, before: bytes = b"", after: bytes = b"") -> Scan:
    """Scans a chunk of `size` bytes. `before`: up to two bytes before it in the file; `after`: the byte after it, if any."""
    is_odd, offset = False, 0
    faults, records, firsts = ["", ""], [0, 0], list[int | None]([None, None])
    for block, following in _with_next(stream, size, after):
        data = np.frombuffer(before.rjust(2, b"\n") + block + (following[:1] or b"\n"), np.uint8)
        two_before, one_before, own, one_after = data[:-3], data[1:-2], data[2:-1], data[3:]
        quotes, ends = own == _QUOTE, own == _LF
        odd = np.logical_xor.accumulate(quotes) ^ is_odd
        is_empty = ends & ((one_before == _LF) | ((one_before == _CR) & (two_before == _LF)))
        never = is_empty | ((own == _CR) & (one_after != _LF))
        opens, closes = np.isin(one_before, _BESIDE_FIELD), np.isin(one_after, _BESIDE_FIELD)
        for state, inside in enumerate((odd, ~odd)):
            if (quotes & np.where(inside, ~opens, ~closes)).any():
                faults[state] = faults[state] or _WRONG_QUOTE
            if (never & ~inside).any():
                faults[state] = faults[state] or _WRONG_LINE
            found = np.flatnonzero(ends & ~inside)
            if firsts[state] is None and len(found):
                firsts[state] = offset + int(found[0]) + 1
            records[state] += len(found)
        is_odd, before, offset = bool(odd[-1]), (before + block)[-2:], offset + len(block)
    outside, within = (Outcome(faults[state], records[state], firsts[state]) for state in (0, 1))
    return Scan(is_odd, outside, within)


def _with_next(stream: Stream, size: int, after: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the blocks of the next `size` bytes of a stream, each with the bytes after it."""
    left = size
    block = stream.read(min(CHUNK, left))
    while block:
        left -= len(block)
        following = stream.read(min(CHUNK, left)) if left else b""
        yield block, following or after
        block = following


def slices(scans: Sequence[Scan], starts: Sequence[int], size: int, ends_line: bool) -> list[Slice]:
    """Returns the slices of a file by the scans of its chunks, in order. Raises NotCut.

    `starts`: the offsets of the chunks. `size`: the file's. `ends_line`: True if the file's last byte is a newline.
    """
    is_within, records = False, 0
    cuts: list[tuple[int, int]] = []  # offsets after a record, and the number of records up to there
    for found, start in zip(scans, starts, strict=True):
        outcome = found.within if is_within else found.outside
        if outcome.fault:
            raise NotCut(f"it has {outcome.fault}, in the part from byte {start}")
        if outcome.first is not None:
            cuts.append((start + outcome.first, records + 1))
        records += outcome.records
        is_within ^= found.is_odd
    if is_within:
        raise NotCut("its last quote is not closed")
    if not cuts:
        raise NotCut("no line ends in it")
    header, total = cuts[0][0], records + (not ends_line)
    edges = [*(cut for cut in cuts if cut[0] < size), (size, total)]
    return [
        Slice(header, start, end, before - 1, upto - before, total - 1)
        for (start, before), (end, upto) in itertools.pairwise(edges)
    ]
