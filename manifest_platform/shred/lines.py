"""A directory's files of lines: which task reads which part of which file, and the lines of a part, some MiB at a time.

A plain file is cut into ranges, and a line belongs to the range in which it starts; a compressed one is read whole.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from manifest_platform import landed_files
from manifest_platform.shred.batch import CHUNK, open_landed
from manifest_platform.shred.compression import COMPRESSED_NAMES, HEAD, Decompressed, Replayed, compression_of

_TAIL = 64 << 10


@dataclass(frozen=True)
class Piece:
    """The lines of a file that start in the bytes from `start` to before `end`; `size` is that of the whole file.

    `root`: the landing root, as a Directory has it.
    """

    uri: str
    size: int
    start: int
    end: int
    root: str = ""


def plan(files: Sequence[tuple[str, int]], split_size: int, root: str = "") -> list[tuple[Piece, ...]]:
    """The pieces of each task, from (URI, size in bytes): large files cut, small ones together, up to `split_size` bytes.

    The plan depends on its arguments alone: nothing is read for it. A name that tells of compression spares its file the
    cuts; where the name does not tell, the first piece turns out to be all, and the others nothing. Empty files have no piece.
    """
    tasks: list[tuple[Piece, ...]] = []
    group: list[Piece] = []
    room = split_size
    for uri, size in files:
        step = size if uri.lower().endswith(COMPRESSED_NAMES) else split_size
        for start in range(0, size, max(1, step)):
            piece = Piece(uri, size, start, min(start + step, size), root)
            if group and piece.end - piece.start > room:
                tasks.append(tuple(group))
                group, room = [], split_size
            group.append(piece)
            room -= piece.end - piece.start
    return [*tasks, tuple(group)] if group else tasks


def chunks(piece: Piece, chunk: int = CHUNK) -> Iterator[tuple[int, bytes]]:
    """The lines of a piece, about `chunk` bytes at a time, each with its offset in the (decompressed) file.

    Every chunk is of whole lines; the last line of a file may lack its newline. Of a compressed file, by its first bytes, the
    piece that begins it has all lines. Raises FileChanged, NotFollowed, Unreadable, OSError.
    """
    with open_landed(piece.uri, piece.size, piece.root) as file:
        if piece.start == 0:
            head = file.read(max(HEAD, min(chunk, piece.end)))
            compression = compression_of(head, piece.uri)
            replayed = Replayed(head, file, chunk if compression else 0)
            text = Decompressed(replayed, compression, piece.uri) if compression else replayed
            yield from _whole_lines(text, 0, None if compression else piece.end, chunk)
            return
        if compression_of(file.read(HEAD), piece.uri):
            return
        file.seek(piece.start - 1)
        start = _after_newline(file, piece.start - 1)
        if start >= piece.end:
            return
        file.seek(start)
        yield from _whole_lines(file, start, piece.end, chunk)


def newlines_before(piece: Piece, offset: int) -> int:
    """How many lines of the piece's plain file end before an offset; reads the file up to there."""
    count = 0
    with landed_files.open_file(piece.uri, piece.root) as stream:
        while offset > 0 and (block := stream.read(min(CHUNK, offset))):
            count += block.count(b"\n")
            offset -= len(block)
    return count


def _after_newline(file: BinaryIO, offset: int) -> int:
    """The offset after the first newline at or after an offset, which the file stands at; its end where there is none."""
    while block := file.read(_TAIL):
        found = block.find(b"\n")
        if found >= 0:
            return offset + found + 1
        offset += len(block)
    return offset


def _whole_lines(file: BinaryIO | io.RawIOBase, start: int, end: int | None, chunk: int) -> Iterator[tuple[int, bytes]]:
    """Chunks of whole lines from `start`, where the file stands, to the end of the line that holds byte `end` - 1."""
    held: list[bytes] = []  # the beginning of a line whose end is not read yet
    held_at = read_to = start
    while True:
        rest = chunk if end is None else min(chunk, end - read_to)
        block = file.read(rest if rest > 0 else _TAIL)
        if not block:
            if held:
                yield held_at, b"".join(held)
            return
        if rest > 0 and (end is None or read_to + len(block) < end):
            cut = block.rfind(b"\n") + 1
            done = False
        else:
            cut = block.find(b"\n", len(block) - 1 if rest > 0 else 0) + 1
            done = cut > 0
        read_to += len(block)
        if cut:
            yield held_at, b"".join([*held, block[:cut]])
            held = [block[cut:]] if cut < len(block) else []
            held_at = read_to - len(block) + cut
        else:
            held.append(block)
        if done:
            return
