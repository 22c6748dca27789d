"""Archives are unpacked unchanged, or refused with a message that says what is wrong, where, and what was expected."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import random
import tarfile
import tempfile
import tracemalloc
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifest_platform import storage
from manifest_platform.sources.errors import LandingUnavailable
from manifest_platform.sources.veeva import archive
from manifest_platform.sources.veeva.archive import Limits, RecordCounter, unpack
from manifest_platform.sources.veeva.errors import BadArchive, DownloadBroken
from manifest_platform.sources.veeva.files import Part, UnpackedFile
from manifest_platform_tests.sources.conftest import Place
from manifest_platform_tests.sources.veeva.given import (
    PRODUCT,
    ROWS,
    TREE,
    Source,
    manifest_of,
    manifest_rows,
    member,
    packed,
    split,
    tar_of,
)


def unpacked(folder: Path, content: bytes, limits: Limits = Limits()) -> tuple[UnpackedFile, ...]:  # noqa: B008
    source = Source(split(content))
    return unpack(source.parts, source, storage.as_uri(folder), limits)


def tree_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, tree: Mapping[str, bytes], match: str) -> None:
    with pytest.raises(BadArchive, match=match):
        unpacked(folder, packed(tree))


def refused_members(folder: Path, *members: tuple[tarfile.TarInfo, bytes], match: str) -> None:
    with pytest.raises(BadArchive, match=match):
        unpacked(folder / "unpacked", gzip.compress(tar_of([*(member(name, data) for name, data in TREE.items()), *members])))
    assert {path.parts[len(folder.parts)] for path in folder.rglob("*")} <= {"unpacked"}, "something was written elsewhere"


# --- unpacked as it is -----------------------------------------------------------------------------------------------


def test_the_tree_is_written_byte_for_byte(place: Place) -> None:
    source = Source(split(packed(TREE)))
    files = unpack(source.parts, source, f"{place.root}/attempt=1")
    assert [(file.path, file.bytes, file.records) for file in files] == [
        (PRODUCT, len(ROWS), 3),
        ("manifest.csv", len(TREE["manifest.csv"]), 1),
        ("metadata_full.csv", len(TREE["metadata_full.csv"]), 1),
    ]
    for file in files:
        data = storage.read_bytes(f"{place.root}/attempt=1/{file.path}")
        assert data == TREE[file.path]
        assert file.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
def test_parts_are_slices_of_any_size(tmp_path: Path, size: int) -> None:
    source = Source(split(packed(TREE), size))
    unpack(source.parts, source, storage.as_uri(tmp_path))
    assert tree_of(tmp_path) == TREE
    assert source.asked == [part.name for part in source.parts]


def test_folders_are_not_files_and_leading_dots_are_removed(tmp_path: Path) -> None:
    members = [member("./", type=tarfile.DIRTYPE), member("./Object/", type=tarfile.DIRTYPE)]
    members += [member(f"./{name}", data) for name, data in TREE.items()]
    unpacked(tmp_path, gzip.compress(tar_of(members)))
    assert tree_of(tmp_path) == TREE


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_and_names_beyond_ascii(place: Place, form: int) -> None:
    name = f"Object/{'ein_langer_' * 20}ü+%41.csv"
    tree = {"manifest.csv": manifest_rows([f"Object.x,x,updates,3,{name}"]), name: ROWS}
    source = Source(split(gzip.compress(tar_of([member(path, data) for path, data in tree.items()], form))))
    files = unpack(source.parts, source, place.root)
    assert files[0].path == name
    uri = f"{place.root}/{storage.quote_path(name) if place.is_local else name}"
    assert storage.read_bytes(uri) == ROWS


def test_gzips_that_follow_each_other_are_one(tmp_path: Path) -> None:
    tar = tar_of(member(name, data) for name, data in TREE.items())
    unpacked(tmp_path, gzip.compress(tar[:700]) + gzip.compress(tar[700:]))
    assert tree_of(tmp_path) == TREE


def test_a_part_without_an_announced_md5_is_accepted(tmp_path: Path) -> None:
    [(part, data)] = split(packed(TREE))
    source = Source([(Part(part.name, 1, part.size, None), data)])
    unpack(source.parts, source, storage.as_uri(tmp_path))
    assert tree_of(tmp_path) == TREE


def test_memory_is_flat_and_one_part_at_a_time_waits_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacks twenty-four megabytes in parts of half a megabyte, while at most half a part is kept in memory."""
    block = b"".join(b"V%d,%s\r\n" % (n, random.Random(n).randbytes(8).hex().encode()) for n in range(40_000))
    tree = {"manifest.csv": manifest_of(big=24 * 40_000), "Object/big.csv": b"id,x\r\n" + block * 24}
    slices = split(packed(tree), 1 << 19)
    tree.clear()
    spooled: list[tempfile.SpooledTemporaryFile[bytes]] = []
    monkeypatch.setattr(archive, "_IN_MEMORY", 1 << 18)
    real = tempfile.SpooledTemporaryFile

    def spool(size: int) -> tempfile.SpooledTemporaryFile[bytes]:
        assert all(file.closed for file in spooled)
        spooled.append(real(size))
        return spooled[-1]

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", spool)
    source = Source(slices)
    tracemalloc.start()
    unpack(source.parts, source, storage.as_uri(tmp_path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(spooled) == len(slices) > 10
    assert peak < 8 << 20


# --- parts -----------------------------------------------------------------------------------------------------------


def spoilt(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_P2_a_part_that_is_wrong_is_fetched_again_alone(tmp_path: Path) -> None:
    slices = split(packed(TREE), 100)
    second = slices[1][1]
    source = Source(slices, p2=[spoilt(second), second[:-7], second + b"x"])
    unpack(source.parts, source, storage.as_uri(tmp_path), Limits(attempts=4))
    assert tree_of(tmp_path) == TREE
    assert source.asked == ["archive.001", *["archive.002"] * 4, *[part.name for part in source.parts[2:]]]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (spoilt, r"part archive.002 has MD5 [0-9a-f]{32}, but Vault announced [0-9a-f]{32}"),
        (lambda data: data[:-7], r"part archive.002 has 93 bytes, but Vault announced 100"),
        (lambda data: data + b"x", r"part archive.002 has more than 100 bytes, but Vault announced 100"),
        (lambda data: b"", r"part archive.002 has 0 bytes, but Vault announced 100"),
    ],
)
def test_P2_a_part_that_stays_wrong_fails_before_a_byte_of_it_is_unpacked(tmp_path: Path, change: object, match: str) -> None:
    slices = split(packed(TREE), 100)
    source = Source(slices, p2=[change(slices[1][1])] * 3)  # ty: ignore[not-callable]
    with pytest.raises(BadArchive, match=match):
        unpack(source.parts, source, storage.as_uri(tmp_path))
    assert source.asked == ["archive.001", *["archive.002"] * 3]


def test_P2_a_part_is_not_read_beyond_its_announced_size(tmp_path: Path) -> None:
    given: list[int] = []

    def endless(part: Part) -> Generator[bytes]:
        while len(given) < 1000:
            given.append(1)
            yield bytes(part.size)

    with pytest.raises(BadArchive, match="more than"):
        unpack(Source(split(packed(TREE))).parts, endless, storage.as_uri(tmp_path))
    assert len(given) == 3 * 2


def test_a_download_that_breaks_off_begins_again(tmp_path: Path) -> None:
    source = Source(split(packed(TREE)))
    broken = [2]

    def download(part: Part) -> Generator[bytes]:
        for block in source(part):
            yield block[:10]
            if broken[0]:
                broken[0] -= 1
                raise DownloadBroken("reset")
            yield block[10:]

    unpack(source.parts, download, storage.as_uri(tmp_path))
    assert tree_of(tmp_path) == TREE
    broken[0] = 3
    with pytest.raises(DownloadBroken):
        unpack(source.parts, download, storage.as_uri(tmp_path))


def test_a_temporary_directory_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_spooled: object, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "write", write)
    with pytest.raises(LandingUnavailable, match=r"archive.001 could not be kept in the temporary directory: .*No space left"):
        unpacked(tmp_path, packed(TREE))


def test_a_needed_file_is_missed_though_no_manifest_names_it(tmp_path: Path) -> None:
    source = Source(split(packed({name: data for name, data in TREE.items() if name != archive.METADATA})))
    unpack(source.parts, source, storage.as_uri(tmp_path))
    with pytest.raises(BadArchive, match=r"metadata_full.csv is missing, which every such archive has"):
        unpack(source.parts, source, storage.as_uri(tmp_path), needed=(archive.METADATA,))


# --- archives --------------------------------------------------------------------------------------------------------


def test_an_archive_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    content = packed(TREE)
    for length in [*range(0, 40), *range(40, len(content), 23), len(content) - 1]:
        with pytest.raises(BadArchive):
            unpacked(tmp_path, content[:length] or b"\0")


def test_a_tar_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    """The gzip is valid; only the tar, or the manifest, shows the fault."""
    tree = {name: TREE[name] for name in ("manifest.csv", "metadata_full.csv", PRODUCT)}
    tar = tar_of(member(name, data) for name, data in tree.items())
    end = tar.index(ROWS) + len(ROWS)
    for length in [0, 1, 511, 512, 513, 700, 1024, *range(1100, end, 131), end - 1]:
        with pytest.raises(BadArchive):
            unpacked(tmp_path, gzip.compress(tar[:length]))


def test_bytes_after_the_archive_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="damaged"):
        unpacked(tmp_path, packed(TREE) + b"more")


def test_a_wrong_checksum_at_the_end_of_the_gzip_is_noticed(tmp_path: Path) -> None:
    content = packed(TREE)
    with pytest.raises(BadArchive, match="incorrect data check"):
        unpacked(tmp_path, content[:-8] + spoilt(content[-8:-4]) + content[-4:])


def test_any_damage_to_a_tar_is_refused_or_leaves_the_files_named_as_they_are(tmp_path: Path) -> None:
    """Damages single bytes of the tar, with valid checksums of the gzip and of Vault."""
    tar = bytearray(tar_of(member(name, data) for name, data in TREE.items()))
    chance = random.Random(1)
    for number in range(150):
        changed = bytearray(tar)
        changed[chance.randrange(len(tar))] ^= 1 << chance.randrange(8)
        folder = tmp_path / str(number)
        try:
            unpacked(folder, gzip.compress(changed, 1))
        except BadArchive:
            continue
        assert {"manifest.csv", PRODUCT} <= set(tree_of(folder))


def test_content_that_is_not_gzip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="incorrect header check"):
        unpacked(tmp_path, b'{"responseStatus":"FAILURE"}')


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("/etc/passwd", "is an absolute path"),
        ("../evil.csv", "leads out of the archive"),
        ("Object/../../evil.csv", "leads out of the archive"),
        ("Object/..", "leads out of the archive"),
        ("..\\evil.csv", "has characters"),
        ("Object/a\nb.csv", "has characters"),
        ("Object/a\x1b[2J.csv", "has characters"),
        ("Object/\udcff.csv", "has characters"),
        ("Object//a.csv", "has an empty part"),
        (f"Object/{'a' * 256}.csv", "too long a name"),
        ("/".join(["Object"] * 120), "too long a name"),
        ("_files.json", "marks files that are not data"),
        ("Object/.hidden.csv", "marks files that are not data"),
        ("attempt=1/a.csv", "marks files that are not data"),
        (PRODUCT, "occurs twice"),
        (f"./{PRODUCT}", "occurs twice"),
        (f"{PRODUCT}/below.csv", "is below Object/product__v.csv, which is a file"),
        ("Object", "occurs twice"),
        ("Object/not_named__c.csv", "Object/not_named__c.csv exists, but manifest.csv does not name it"),
    ],
)
def test_names_that_no_member_may_have(tmp_path: Path, name: str, match: str) -> None:
    refused_members(tmp_path, member(name, b"id\r\n"), match=match)


@pytest.mark.parametrize("type_", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, type_: bytes) -> None:
    refused_members(tmp_path, member("Object/x.csv", type=type_, link="/etc/passwd"), match="is a link, a device or the like")


def test_a_link_to_a_folder_outside_is_not_followed(tmp_path: Path) -> None:
    refused_members(
        tmp_path,
        member("Object/out", type=tarfile.SYMTYPE, link=str(tmp_path)),
        member("Object/out/evil.csv", b"x"),
        match="is a link",
    )


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    sparse, data = member("Object/x.csv", b"x")
    sparse.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "1099511627776"}
    refused_members(tmp_path, (sparse, data), match="is a sparse file")


def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    tree = {"manifest.csv": manifest_of(zeros=0), "Object/zeros.csv": bytes(20 << 20)}
    with pytest.raises(BadArchive, match="more than 50 times as many"):
        unpacked(tmp_path, packed(tree), Limits(ratio=50, free_bytes=1 << 20))
    assert sum(map(len, tree_of(tmp_path).values())) < 8 << 20
    unpacked(tmp_path, packed(tree))


def test_a_block_that_becomes_a_thousand_times_as_much_is_unpacked_in_pieces(tmp_path: Path) -> None:
    content = gzip.compress(tar_of([member("manifest.csv", manifest_of(zeros=0)), member("Object/zeros.csv", bytes(40 << 20))]))
    assert len(content) < 1 << 16
    tracemalloc.start()
    unpacked(tmp_path, content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_bomb_in_a_header_is_refused(tmp_path: Path) -> None:
    """The length of a member's name, which tarfile reads into memory completely."""
    header = member("././@LongLink", type=tarfile.GNUTYPE_LONGNAME)[0]
    header.size = 40 << 20
    content = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + b"a" * header.size)
    with pytest.raises(BadArchive, match="times as many"):
        unpacked(tmp_path, content, Limits(ratio=50, free_bytes=1 << 20, header_bytes=1 << 30, extended_bytes=1 << 30))


def test_more_members_than_any_archive_has(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="more than 2 members"):
        unpacked(tmp_path, packed(TREE), Limits(members=2))


def test_a_manifest_that_would_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_MANIFEST_SIZE", 10)
    refused(tmp_path, TREE, r"manifest.csv has \d+ bytes: it is too large")


def test_a_full_disk_is_not_a_fault_of_the_archive(tmp_path: Path) -> None:
    (tmp_path / "Object").touch()
    with pytest.raises(OSError, match="Object"):
        unpacked(tmp_path, packed(TREE))


# --- the manifest ----------------------------------------------------------------------------------------------------


def with_manifest(*rows: str) -> dict[str, bytes]:
    return {**TREE, "manifest.csv": manifest_rows(rows)}


PRODUCTS = f"Object.product__v,Product,updates,3,{PRODUCT}"


@pytest.mark.parametrize(
    ("tree", "match"),
    [
        ({PRODUCT: ROWS}, "manifest.csv is missing"),
        ({**TREE, "manifest.csv": b""}, "manifest.csv is empty"),
        ({**TREE, "manifest.csv": b"extract,records\r\n"}, "manifest.csv has 0 columns 'file' instead of one"),
        ({**TREE, "manifest.csv": b"extract,records,file,records\r\n"}, "manifest.csv has 2 columns 'records' instead of one"),
        ({**TREE, "manifest.csv": b"extract,records,file\r\nObject.\xfcber,0,\r\n"}, "not valid UTF-8 at byte 29"),
        ({**TREE, "manifest.csv": b'extract,records,file\r\n"a"b,0,\r\n'}, "not valid CSV"),
        ({**TREE, "manifest.csv": b'extract,records,file\r\n"a,0,\r\n'}, "not valid CSV"),
        (with_manifest("Object.product__v,Product,updates,3"), "manifest.csv, record 2: 4 fields, but its header has 5"),
        (with_manifest(PRODUCTS.replace("3", "three")), "record 2: records of Object.product__v is 'three', not a number"),
        (with_manifest(PRODUCTS.replace("3", "-3")), "is '-3', not a number"),
        (with_manifest(PRODUCTS.replace("3", "٣")), "not a number"),
        (with_manifest(PRODUCTS, "Object.x,x,updates,2,"), "record 3: Object.x has 2 records, but no file"),
        (with_manifest(PRODUCTS, PRODUCTS), "record 3: Object/product__v.csv is named twice"),
        (
            with_manifest(PRODUCTS, "Object.x,x,updates,2,Object/x.csv"),
            "Object/x.csv is missing: manifest.csv names it, with 2 records",
        ),
        (with_manifest(PRODUCTS.replace("3", "4")), "has 3 records, but manifest.csv says 4"),
        (with_manifest(PRODUCTS.replace("3", "2")), "has 3 records, but manifest.csv says 2"),
        (with_manifest(), r"Object/product__v.csv exists, but manifest.csv does not name it \(1 such\)"),
    ],
)
def test_P3_files_and_records_are_compared_with_the_manifest(tmp_path: Path, tree: dict[str, bytes], match: str) -> None:
    refused(tmp_path, tree, match)


def test_a_manifest_of_any_order_of_columns_with_a_bom_and_blank_files(tmp_path: Path) -> None:
    text = "\ufefffile,new_column,records,extract\r\nObject/product__v.csv,,3,Object.product__v\r\n,,0,Object.other__c\r\n"
    unpacked(tmp_path, packed({**TREE, "manifest.csv": text.encode()}))
    assert tree_of(tmp_path)[PRODUCT] == ROWS


# --- records ---------------------------------------------------------------------------------------------------------


def counted(data: bytes, *cuts: int) -> int:
    counter = RecordCounter()
    for start, stop in zip((0, *cuts), (*cuts, len(data)), strict=True):
        counter.feed(data[start:stop])
    return counter.finish()


texts = st.text(st.sampled_from('ab",\r\n\u2028é '), max_size=6)
tables = st.lists(st.tuples(texts, texts), max_size=8)


@given(tables, st.sampled_from(["\r\n", "\n"]), st.booleans(), st.booleans(), st.data())
def test_records_are_counted_as_a_csv_reader_reads_them(
    rows: list[tuple[str, str]], line_end: str, quote_all: bool, ends: bool, data: st.DataObject
) -> None:
    target = io.StringIO()
    alone = line_end == "\n"  # a lone \r does not cause quoting then
    quoting = csv.QUOTE_ALL if quote_all or alone else csv.QUOTE_MINIMAL
    writer = csv.writer(target, lineterminator=line_end, quoting=quoting)
    writer.writerow(["id", "text"])
    writer.writerows(rows)
    text = target.getvalue() if ends else target.getvalue().removesuffix(line_end)
    content = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(content)), max_size=4)))
    assert counted(content, *cuts) == len(list(csv.reader(io.StringIO(text, newline="")))) - 1 == len(rows)


@pytest.mark.parametrize(
    ("content", "records"),
    [
        (b"", 0),
        (b"id", 0),
        (b"id\r\n", 0),
        (b"id\r\n\r\n\r\n", 0),
        (b"id\n\n1\n\n2\n\n", 2),
        (b"id\r\n1\r\n2", 2),
        (b"id\r\n1\r\n\r", 1),
        (b'id\r\n"\r\n"\r\n', 1),
        (b'id\r\n""\r\n', 1),
    ],
)
def test_records_of_files_at_the_edge(content: bytes, records: int) -> None:
    assert counted(content) == records
    assert all(counted(content, cut) == records for cut in range(len(content)))
    assert counted(content, *range(1, len(content))) == records
