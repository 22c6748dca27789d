"""Divides a directory's files of lines into tasks, and reads the lines of each part in chunks of some MiB.

A plain file is cut into byte ranges; a line belongs to the range in which it starts. A compressed file is read as a whole.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from manifest_platform import landed_files
from manifest_platform.shred.batch import CHUNK, open_landed
from manifest_platform.shred.compression import COMPRESSED_NAMES, HEAD, Decompressed, Replayed, compression_of
from manifest_platform.shred.limits import KEPT_OF_LINE, LINES_AT_ONCE, InputLimits

_TAIL = 64 << 10
_LIMITS = InputLimits()


@dataclass(frozen=True)
class Piece:
    """The lines of a file that start at a byte from `start` up to, but not including, `end`. `size`: the size of the file.

    `root`: the landing root, as in Directory.
    """

    uri: str
    size: int
    start: int
    end: int
    root: str = ""


def plan(files: Sequence[tuple[str, int]], split_size: int, root: str = "") -> list[tuple[Piece, ...]]:
    """The pieces of each task, from (URI, size in bytes): large files are cut, small files combined, up to `split_size` bytes.

    A task also takes the beginning of a file that does not fit, if that is at least a quarter of a split: fuller tasks write
    fewer and larger row groups. The plan depends only on the arguments; no file is read. A file whose name indicates
    compression is not cut. If another file turns out to be compressed, its first piece contains all lines and its other pieces
    none. Empty files have no piece.
    """
    tasks: list[tuple[Piece, ...]] = []
    group: list[Piece] = []
    room = split_size
    for uri, size in files:
        is_whole = uri.lower().endswith(COMPRESSED_NAMES)
        start = 0
        while start < size:
            left = size - start
            if group and left > room and (is_whole or 4 * room < split_size):
                tasks.append(tuple(group))
                group, room = [], split_size
            end = size if is_whole else min(size, start + room)
            group.append(Piece(uri, size, start, end, root))
            room -= end - start
            start = end
    return [*tasks, tuple(group)] if group else tasks


@dataclass(frozen=True)
class TooLong:
    """A line that exceeds the limit: its first bytes, and its length without the newline."""

    head: bytes
    bytes: int


def chunks(piece: Piece, chunk: int = CHUNK, limits: InputLimits = _LIMITS) -> Iterator[tuple[int, bytes | TooLong]]:
    """Yields the lines of a piece in chunks of about `chunk` bytes, each with its offset in the (decompressed) file.

    Each chunk has whole lines, at most LINES_AT_ONCE; the last line of a file may lack its newline. A line that is too long is
    yielded alone. If the file is compressed (by its first bytes), its first piece has all lines. Raises FileChanged,
    NotFollowed, Unreadable, LimitExceeded or OSError.
    """
    with open_landed(piece.uri, piece.size, piece.root) as file:
        if piece.start == 0:
            head = file.read(max(HEAD, min(chunk, piece.end)))
            compression = compression_of(head, piece.uri)
            replayed = Replayed(head, file, chunk if compression else 0)
            text = Decompressed(replayed, compression, piece.uri, limits.inflation) if compression else replayed
            start, end = 0, None if compression else piece.end
        else:
            if compression_of(file.read(HEAD), piece.uri):
                return
            file.seek(piece.start - 1)
            start, end, text = _after_newline(file, piece.start - 1, piece.end), piece.end, file
            if start >= piece.end:
                return
            file.seek(start)
        for offset, lines in _whole_lines(text, start, end, chunk, limits.line):
            if isinstance(lines, TooLong):
                yield offset, lines
            else:
                yield from _portions(offset, lines, limits.line)


def newlines_before(piece: Piece, offset: int) -> int:
    """Number of newlines in a plain file before an offset. Reads the file up to there."""
    count = 0
    with landed_files.open_file(piece.uri, piece.root) as stream:
        while offset > 0 and (block := stream.read(min(CHUNK, offset))):
            count += block.count(b"\n")
            offset -= len(block)
    return count


def _after_newline(file: BinaryIO, offset: int, end: int) -> int:
    """The offset just after the first newline at or after `offset`; `end` if there is none before `end`."""
    while block := file.read(min(_TAIL, end - offset)):
        found = block.find(b"\n")
        if found >= 0:
            return offset + found + 1
        offset += len(block)
    return end


class _Begun:
    """An incomplete line; only its first bytes if it is too long."""

    def __init__(self, offset: int, longest: int):
        self.offset, self.size = offset, 0
        self._longest = longest
        self._parts: list[bytes] = []

    @property
    def is_too_long(self) -> bool:
        return self.size > self._longest

    def add(self, block: bytes) -> None:
        self.size += len(block)
        self._parts.append(block)
        if self.is_too_long:
            self._parts = [self.text()[:KEPT_OF_LINE]]

    def text(self) -> bytes:
        return b"".join(self._parts)


def _whole_lines(
    file: BinaryIO | io.RawIOBase, start: int, end: int | None, chunk: int, longest: int
) -> Iterator[tuple[int, bytes | TooLong]]:
    """Yields chunks of whole lines from the file's position `start` to the end of the line with byte `end` - 1.

    At most KEPT_OF_LINE bytes of a line that is too long are kept in memory.
    """
    whole, at = b"", start  # whole lines, and their offset
    begun = _Begun(start, longest)  # the incomplete line after them
    read_to = start
    while True:
        inside = chunk if end is None else min(chunk, end - read_to)
        block = file.read(inside if inside > 0 else chunk if begun.is_too_long else _TAIL)
        first = block.find(b"\n") + 1  # the end of the incomplete line
        if block and not first:
            begun.add(block)
            read_to += len(block)
            continue
        cut = block.rfind(b"\n") + 1 if inside > 0 else first
        begun.add(block[: max(0, first - 1)])
        if begun.is_too_long:
            if whole:
                yield at, whole
            yield begun.offset, TooLong(begun.text(), begun.size)
            whole, at = block[first:cut], read_to + first
        else:
            whole = b"".join([whole, begun.text(), block[max(0, first - 1) : cut]])
        begun = _Begun(read_to + cut, longest)
        is_done = not block or (end is not None and read_to + cut >= end)
        begun.add(block[cut:] if not is_done else b"")
        read_to += len(block)
        if whole and (is_done or end is None or read_to < end):
            yield at, whole
            whole, at = b"", begun.offset
        if is_done:
            return


def _portions(offset: int, data: bytes, longest: int) -> Iterator[tuple[int, bytes | TooLong]]:
    """Yields whole lines, LINES_AT_ONCE at a time, and lines that are too long alone."""
    half = longest // 2 + 1  # a line that is too long fully covers one of the consecutive stretches of this length
    no_stretch = all(data.find(b"\n", at, at + half) >= 0 for at in range(0, len(data) - half + 1, half))
    if no_stretch and data.count(b"\n") <= LINES_AT_ONCE:
        yield offset, data
        return
    import numpy as np

    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    too_long = np.flatnonzero(np.diff(ends, prepend=0) > longest + 1).tolist()
    start = line = 0
    for end_line in [*too_long, len(ends)]:
        while line < end_line:
            line = min(line + LINES_AT_ONCE, end_line)
            yield offset + start, data[start : int(ends[line - 1])]
            start = int(ends[line - 1])
        if end_line < len(ends):
            text = data[start : int(ends[end_line])].removesuffix(b"\n")
            yield offset + start, TooLong(text[:KEPT_OF_LINE], len(text))
            start, line = int(ends[end_line]), end_line + 1
