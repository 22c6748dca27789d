"""A large file of a window is cut into slices, which several tasks shred: the same rows, bad rows and refusals as from one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from manifest_platform import storage
from manifest_platform.listing import Listing
from manifest_platform.shred.batch import ShredFailure
from manifest_platform.sources.veeva import shredder
from manifest_platform.sources.veeva.shredder import VeevaOptions, Window, shred

PRODUCT, ROWS = "Object/product__v.csv", 300
METADATA = b"extract,column_name,type,length\nObject.product__v,id,String,12\nObject.product__v,name__v,String,99\n"
METADATA += b"Object.product__v,price__c,Number,12\n"
BAD = {7: "V7,short", 150: 'V150,"n",no number', 299: 'V299,"n",1,2'}


def product(rows: int = ROWS) -> bytes:
    lines = (BAD.get(row, f'V{row},"name ""{row}"",\r\n of two lines",{row}.5') for row in range(rows))
    return "".join(f"{line}\r\n" for line in ("id,name__v,price__c", *lines)).encode()


def window(folder: Path, content: bytes, records: int = ROWS, registered: bytes | None = None) -> Window:
    """Writes a window whose file was registered with a content, by default its own."""
    manifest = f"extract,extract_label,type,records,file\nObject.product__v,P,updates,{records},{PRODUCT}\n"
    tree = {"manifest.csv": manifest.encode(), "metadata_full.csv": METADATA, PRODUCT: content}
    place = folder / "landed" / "attempt=1"
    for path, data in tree.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    files = tuple((storage.as_uri(place / path), len(data)) for path, data in tree.items())
    expected = {path: hashlib.sha256(data).hexdigest() for path, data in (tree | {PRODUCT: registered or content}).items()}
    output = storage.as_uri(folder / "shredded")
    item = storage.as_uri(place.parent)
    return Window(item, files, output, "a", storage.as_uri(place), "incr", "2026-01-01T00:15Z", expected=expected)


def read(listing: Listing, table: str) -> list[dict[str, Any]]:
    paths = [storage.local_path(one.uri) for one in listing.objects if one.table == table]
    rows = pa.concat_tables([pa.parquet.read_table(path, partitioning=None) for path in paths]).to_pylist()
    return [{name: value for name, value in row.items() if name != "file"} for row in rows]


def shredded(spark: Any, at: Path, split_size: int, content: bytes, **how: Any) -> Listing | ShredFailure:
    return shred(spark, [window(at, content, **how)], VeevaOptions(split_size=split_size, max_bad_share=0.5))[0]


def test_slices_give_the_rows_and_the_line_numbers_of_the_whole_file(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[int] = []
    real = shredder._plan
    monkeypatch.setattr(shredder, "_plan", lambda *given: [planned.append(len(found := real(*given))), found][1])
    whole = shredded(spark, tmp_path / "whole", 1 << 20, product())
    cut = shredded(spark, tmp_path / "cut", 2_000, product())
    assert isinstance(whole, Listing)
    assert isinstance(cut, Listing)
    assert planned[0] == 1
    assert planned[1] >= 5
    assert (cut.lines, cut.good, cut.bad) == (whole.lines, whole.good, whole.bad) == (ROWS, ROWS - 3, 3)
    tables = {one.table for one in whole.objects}
    assert {one.table for one in cut.objects} == tables
    for table in tables:
        assert read(cut, table) == read(whole, table)
    assert [row["line"] for row in read(cut, "bad")] == [row + 2 for row in BAD]


def test_a_file_of_slices_that_was_altered_or_is_not_complete_fails_its_window(tmp_path: Path, spark: Any) -> None:
    altered = shredded(spark, tmp_path / "altered", 2_000, product(), registered=product().replace(b"V9,", b"V8,"))
    assert isinstance(altered, ShredFailure)
    assert "was altered after it was registered" in altered.message
    short = shredded(spark, tmp_path / "short", 2_000, product(), records=ROWS + 1)
    assert isinstance(short, ShredFailure)
    assert f"has {ROWS} records, but manifest.csv says {ROWS + 1}" in short.message


def test_a_large_file_that_cannot_be_cut_is_named_with_the_reason(
    tmp_path: Path, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise nobody learns why one task takes hours while the others are over."""
    content = product().replace(b"V9,", b'V9" tube,')
    whole = shredded(spark, tmp_path, 2_000, content)
    assert isinstance(whole, Listing)
    assert f"{PRODUCT}, {len(content):,} bytes, is shredded by one task: it has a quote that neither" in caplog.text
    caplog.clear()
    assert isinstance(shredded(spark, tmp_path / "cut", 2_000, product()), Listing)
    assert "one task" not in caplog.text
