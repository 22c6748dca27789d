"""An archive of a vault costs no more memory than its limits say, whatever its headers claim."""

from __future__ import annotations

import gzip
import tarfile
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest

from manifest_platform import storage
from manifest_platform.sources.veeva.archive import Limits, unpack
from manifest_platform.sources.veeva.errors import BadArchive
from manifest_platform_tests.sources.veeva.given import TREE, Source, member, split, tar_of

MIB = 1 << 20
GOOD = [member(name, data) for name, data in TREE.items()]


def header(type: bytes, size: int, name: str = "././@LongLink") -> bytes:  # noqa: A002
    found = tarfile.TarInfo(name)
    found.type, found.size = type, size
    return found.tobuf(tarfile.GNU_FORMAT)


def extended(type: bytes, content: bytes) -> bytes:  # noqa: A002
    return header(type, len(content)) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def pax(*records: str) -> bytes:
    """Records of a pax header, each with its length before it."""
    found = b""
    for record in records:
        text = f" {record}\n".encode()
        length = len(text) + len(str(len(text)))
        length += len(str(length)) - len(str(len(text)))
        found += str(length).encode() + text
    return found


def refused(folder: Path, *before: bytes, match: str, limits: Limits = Limits(), most: float = 24) -> None:  # noqa: B008
    """Asserts that `before`, put before a good archive's members, has it refused within `most` MiB of memory."""
    source = Source(split(gzip.compress(b"".join([*before, tar_of(GOOD)]))), block=MIB)
    tracemalloc.start()
    try:
        with pytest.raises(BadArchive, match=match):
            unpack(source.parts, source, storage.as_uri(folder), limits)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most * MIB


@pytest.mark.parametrize(
    "type", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE]
)
def test_a_long_header_is_refused_before_it_is_read(tmp_path: Path, type: bytes) -> None:  # noqa: A002
    """17.8 MB with a name of 800 MB took 2.4 GB; this is 30 KB with one of 30 MB."""
    refused(tmp_path, extended(type, b"a" * 30 * MIB), match="an extended header has 31457280 bytes; the limit is 8192")


def test_a_header_that_claims_more_than_there_is_is_refused_by_what_it_claims(tmp_path: Path) -> None:
    refused(tmp_path, header(tarfile.XHDTYPE, 7 << 30), match="an extended header has 7516192768 bytes")


def test_a_chain_of_headers_is_refused(tmp_path: Path) -> None:
    """Each was read within the one before it: a thousand ended the capture with a RecursionError."""
    one = extended(tarfile.XHDTYPE, pax("comment=again"))
    refused(tmp_path, one * 2000, match="more than 4 extended headers")


def test_headers_of_many_members_are_limited_together(tmp_path: Path) -> None:
    """A global header's values hold for all that follows: those of many would be kept together."""
    one = [extended(tarfile.XGLTYPE, pax(f"k{number}={'v' * 1000}")) for number in range(200)]
    empty = [header(tarfile.DIRTYPE, 0, f"d{number}") for number in range(200)]
    both = [part for pair in zip(one, empty, strict=True) for part in pair]
    refused(tmp_path, *both, match="in all", limits=Limits(extended_bytes=64 << 10))


@pytest.mark.parametrize(
    "records",
    [
        ("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=a", "GNU.sparse.realsize=9"),
        ("GNU.sparse.map=0,1", "GNU.sparse.size=9"),
        ("GNU.sparse.size=9", "GNU.sparse.offset=0", "GNU.sparse.numbytes=1"),
    ],
)
def test_the_map_of_a_sparse_file_is_not_read(tmp_path: Path, records: Iterable[str]) -> None:
    """The map of a sparse file can have any length, and a parsed number takes more memory than its bytes."""
    lines = b"9999999\n" + b"1\n" * (8 * MIB)
    sparse = extended(tarfile.XHDTYPE, pax(*records)) + header(tarfile.REGTYPE, len(lines), "a") + lines
    refused(tmp_path, sparse, match="a sparse file")


def test_an_old_sparse_file_is_refused_before_its_further_headers_are_read(tmp_path: Path) -> None:
    refused(tmp_path, header(tarfile.GNUTYPE_SPARSE, 0, "a"), match="a sparse file")


def test_a_negative_size_is_refused(tmp_path: Path) -> None:
    found = bytearray(header(tarfile.GNUTYPE_LONGNAME, 1))
    found[124:136] = b"\xff" * 11 + b"\x00"  # base 256, which may be negative
    found[148:156] = b" " * 8
    found[148:156] = f"{sum(found):06o}\0 ".encode()
    refused(tmp_path, bytes(found), match="a header has -")


def test_names_are_limited_together_and_in_depth(tmp_path: Path) -> None:
    """Every folder above a member is remembered: a name of 350 of them a member would be 12 GB at 100,000."""
    deep = tar_of([member("/".join("a" * 20), b"")])[: 2 * tarfile.BLOCKSIZE]
    refused(tmp_path, deep[: tarfile.BLOCKSIZE], match="more than 15 folders")
    many = b"".join(header(tarfile.DIRTYPE, 0, f"{number:090}") for number in range(100))
    refused(tmp_path, many, match="have more than 5000 bytes", limits=Limits(name_bytes=5000))


def test_headers_of_members_are_not_kept(tmp_path: Path) -> None:
    """The tar remembered every member with all that its headers said: 100,000 members, 8 KiB each."""
    # no folder is kept twice, so an archive may repeat the same folder
    one = extended(tarfile.XHDTYPE, pax(f"comment={'v' * 4000}")) + header(tarfile.DIRTYPE, 0, "d")
    content = gzip.compress(b"".join([one * 2000, tar_of(GOOD)]))
    source = Source(split(content), block=MIB)
    tracemalloc.start()
    try:
        assert len(unpack(source.parts, source, storage.as_uri(tmp_path))) == 3
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * MIB


def test_long_names_and_headers_of_honest_archives_are_read(tmp_path: Path) -> None:
    name = f"Object/{'n' * 150}.csv"
    manifest = TREE["manifest.csv"].replace(b"Object/product__v.csv", name.encode())
    tree = {"manifest.csv": manifest, "metadata_full.csv": TREE["metadata_full.csv"], name: TREE["Object/product__v.csv"]}
    for number, format_ in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        archive = gzip.compress(tar_of([member(path, data) for path, data in tree.items()], format_))
        source = Source(split(archive))
        assert len(unpack(source.parts, source, storage.as_uri(tmp_path / str(number)))) == 3
