import gzip
from pathlib import Path

import pytest

from manifest_platform.shred.batch import FileChanged, Piece, chunks, newlines_before, plan

CONTENTS = [b"one\ntwo\n\nfour\n", b"one\ntwo\n\nfour", b"\n\n", b"x", b"a\r\nbb\r\n", b"a long line without an end" * 3]


def piece(path: Path, start: int = 0, end: int | None = None) -> Piece:
    size = path.stat().st_size
    return Piece(path.as_uri(), size, start, size if end is None else end)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_a_file_cut_anywhere_gives_every_line_once_and_in_its_place(tmp_path: Path, content: bytes, chunk: int):
    path = tmp_path / "f"
    path.write_bytes(content)
    lines = content.splitlines(keepends=True)
    starts = [len(b"".join(lines[:number])) for number in range(len(lines))]
    for cut in range(1, len(content)):
        first = list(chunks(piece(path, 0, cut), chunk))
        second = list(chunks(piece(path, cut), chunk))
        assert b"".join(data for _, data in first + second) == content
        assert b"".join(data for _, data in first) == b"".join(
            line for line, start in zip(lines, starts, strict=True) if start < cut
        )
        for offset, data in first + second:
            assert content[offset : offset + len(data)] == data
            assert offset in starts
            assert newlines_before(piece(path), offset) == starts.index(offset)


def test_a_piece_inside_a_line_is_empty(tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(b"a\n" + b"b" * 100 + b"\nc\n")
    assert list(chunks(piece(path, 10, 20))) == []
    assert list(chunks(piece(path, 2, 3))) == [(2, b"b" * 100 + b"\n")]
    assert list(chunks(piece(path, 3, 104))) == [(103, b"c\n")]


def test_chunks_are_bounded_by_whole_lines(tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(b"0123456789\n" * 100)
    sizes = [len(data) for _, data in chunks(piece(path), 50)]
    assert max(sizes) <= 55
    assert sum(sizes) == 1100


def test_gzip_is_read_whole_with_all_its_members(tmp_path: Path):
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree"))
    assert list(chunks(piece(path), 6)) == [(0, b"one\n"), (4, b"two\n"), (8, b"three")]


def test_a_file_of_another_size_is_refused(tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    with pytest.raises(FileChanged, match="has 5 bytes but was registered with 6"):
        list(chunks(Piece(path.as_uri(), 6, 0, 6)))


def sizes(tasks: list[tuple[Piece, ...]]) -> list[list[tuple[str, int, int]]]:
    return [[(piece.uri, piece.start, piece.end) for piece in task] for task in tasks]


def test_large_files_are_cut_and_small_ones_share_a_task():
    files = [("a", 4), ("empty", 0), ("b", 5), ("c", 2), ("d", 25), ("e.gz", 40), ("f", 1)]
    assert sizes(plan(files, 10)) == [
        [("a", 0, 4), ("b", 0, 5)],
        [("c", 0, 2)],
        [("d", 0, 10)],
        [("d", 10, 20)],
        [("d", 20, 25)],
        [("e.gz", 0, 40)],
        [("f", 0, 1)],
    ]
    assert plan([], 10) == plan([("empty", 0), ("empty.gz", 0)], 10) == []
