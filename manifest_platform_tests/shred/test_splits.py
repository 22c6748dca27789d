import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from manifest_platform.shred import lines as reading
from manifest_platform.shred.batch import CHUNK, FileChanged
from manifest_platform.shred.compression import HEAD, Decompressed, Replayed, Unreadable, compression_of
from manifest_platform.shred.lines import Piece, chunks, newlines_before, plan

CONTENTS = [b"one\ntwo\n\nfour\n", b"one\ntwo\n\nfour", b"\n\n", b"x", b"a\r\nbb\r\n", b"a long line without an end" * 3]


def piece(path: Path, start: int = 0, end: int | None = None) -> Piece:
    size = path.stat().st_size
    return Piece(path.as_uri(), size, start, size if end is None else end)


def texts(piece: Piece, chunk: int) -> Iterator[tuple[int, bytes]]:
    """The chunks of a piece without a line that is too long."""
    for offset, data in chunks(piece, chunk):
        assert isinstance(data, bytes)
        yield offset, data


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_a_file_cut_anywhere_gives_every_line_once_and_in_its_place(tmp_path: Path, content: bytes, chunk: int):
    path = tmp_path / "f"
    path.write_bytes(content)
    lines = content.splitlines(keepends=True)
    starts = [len(b"".join(lines[:number])) for number in range(len(lines))]
    for cut in range(1, len(content)):
        first = list(texts(piece(path, 0, cut), chunk))
        second = list(texts(piece(path, cut), chunk))
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
    sizes = [len(data) for _, data in texts(piece(path), 50)]
    assert max(sizes) <= 55
    assert sum(sizes) == 1100


def zstd(data: bytes) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.CompressedOutputStream(buffer, "zstd") as stream:
        stream.write(data)
    return buffer.getvalue().to_pybytes()


COMPRESSIONS = {"gzip": gzip.compress, "bz2": bz2.compress, "zstd": zstd}


@pytest.mark.parametrize("name", ["f", "f.gz", "f.bz2", "f.zst", "f.tsv"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_is_compressed_is_read_whole_with_all_its_members_however_named(tmp_path: Path, compression: str, name: str):
    """Gzip without `.gz` was read as one bad line, and its item loaded."""
    compress = COMPRESSIONS[compression]
    path = tmp_path / name
    path.write_bytes(compress(b"one\ntw") + compress(b"o\nthree"))
    assert list(chunks(piece(path), 6)) == [(0, b"one\n"), (4, b"two\n"), (8, b"three")]
    half = path.stat().st_size // 2
    assert list(chunks(piece(path, 0, half), 6)) == list(chunks(piece(path), 6)), "the first piece turns out to be all"
    assert list(chunks(piece(path, half), 6)) == []


@pytest.mark.parametrize("name", ["f.gz", "f.bz2", "f.zst", "f.snappy"])
def test_text_is_text_however_named(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_bytes(b"one\ntwo")
    assert list(chunks(piece(path))) == [(0, b"one\ntwo")]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("damage", ["cut", "overwritten", "followed"])
def test_damaged_compressed_data_is_no_outage(tmp_path: Path, compression: str, damage: str):
    whole = COMPRESSIONS[compression](bytes(range(10, 250)) * 10)
    path, at = tmp_path / "f", 6 if compression == "zstd" else 20  # zstd notices it in its header, and elsewhere by chance
    path.write_bytes(
        {"cut": whole[:-6], "overwritten": whole[:at] + b"\xff" * 30 + whole[at + 30 :], "followed": whole + b"garbage"}[damage]
    )
    with pytest.raises(
        Unreadable, match=rf"f is {compression} according to its first bytes, but damaged: .*land the directory again"
    ):
        list(chunks(piece(path)))


def test_storage_that_fails_within_compressed_data_is_an_outage():
    class Storage(io.BytesIO):
        def read(self, _size: int | None = -1) -> bytes:
            raise ConnectionResetError("the store is gone")

    whole = gzip.compress(bytes(range(256)) * 100)
    text = Decompressed(Replayed(whole[:50], Storage(), 100), "gzip", "f")
    with pytest.raises(ConnectionResetError, match="the store is gone"):
        text.read()


@pytest.mark.parametrize(
    ("what", "content"),
    [
        ("Parquet", lambda: _parquet()),
        ("snappy", lambda: b"\xff\x06\x00\x00sNaPpY\x01\x00\x00\x00"),
        ("snappy in Hadoop's block format", lambda: _hadoops_snappy(b"one\ttwo\n" * 50)),
        ("snappy in Hadoop's block format", lambda: _hadoops_snappy(bytes(range(256)) * 1000)),
        ("LZ4", lambda: pa.compress(b"one\n" * 10, codec="lz4", asbytes=True)),
        ("zip", lambda: b"PK\x03\x04rest"),
        ("zlib", lambda: zlib.compress(b"one\ttwo\n" * 50)),
        ("zlib", lambda: zlib.compress(b"one\ttwo\n" * 50, 1)),
        ("Avro", lambda: b"Obj\x01\x04\x14avro.codec"),
        ("xz", lambda: lzma.compress(b"one")),
    ],
)
def test_what_is_no_text_and_not_read_says_what_it_is(tmp_path: Path, what: str, content: Callable[[], bytes]):
    """Snappy and Parquet were read as one bad line each, and the item loaded."""
    path = tmp_path / "part-0"
    path.write_bytes(content())
    with pytest.raises(
        Unreadable, match=rf"part-0 is {what} according to its first bytes, which is not supported; allowed are .* zstd"
    ):
        list(chunks(piece(path)))


def _parquet() -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(pa.table({"a": [1, 2]}), buffer)
    return buffer.getvalue()


def _hadoops_snappy(data: bytes) -> bytes:
    chunk = pa.compress(data, codec="snappy", asbytes=True)
    return len(data).to_bytes(4, "big") + len(chunk).to_bytes(4, "big") + chunk


@pytest.mark.parametrize(
    "text",
    [
        *(b"PAR1shop\tweb\t", b"BZh9\tweb", b"PK\tweb\n", b"shop\tweb\n", b"\x00\x00\x00\x01bad", b"\xff", b""),
        "xڀ\tweb".encode(),
    ],
)
def test_what_only_looks_like_it_is_text(text: bytes):
    assert compression_of(text, "f") is None


def test_what_a_file_is_costs_no_request_where_it_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every read of an object is a request; only the later pieces of a large file look at its beginning as well."""
    path = tmp_path / "f"
    path.write_bytes(b"0123456789\n" * 100)
    reads: list[int] = []

    class Counted(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            reads.append(size or 0)
            return super().read(size)

        def size(self) -> int:
            return len(self.getvalue())

    monkeypatch.setattr(reading, "open_landed", lambda *_: Counted(path.read_bytes()))
    assert len(list(chunks(piece(path), 1100))) == 1
    assert reads == [1100]
    reads.clear()
    list(chunks(piece(path, 0, 550), 1100))
    assert reads == [550]
    reads.clear()
    list(chunks(piece(path, 550), 1100))
    assert reads == [HEAD, 551, 550]
    reads.clear()
    path.write_bytes(gzip.compress(b"0123456789\n" * 100_000))
    assert sum(len(data) for _, data in texts(piece(path), CHUNK)) == 1_100_000
    assert reads[0] == path.stat().st_size, "and what is asked for at the end is no request"


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
        [("c", 0, 2), ("d", 0, 8)],
        [("d", 8, 18)],
        [("d", 18, 25)],
        [("e.gz", 0, 40)],
        [("f", 0, 1)],
    ]
    assert plan([], 10) == plan([("empty", 0), ("empty.gz", 0)], 10) == []
