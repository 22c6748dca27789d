"""A landed directory takes a bounded amount of memory, disk and time: each limit, and what is said where one is met."""

from __future__ import annotations

import gzip
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyarrow import parquet

from manifest_platform import storage
from manifest_platform.listing import Column, Listing
from manifest_platform.shred import lines
from manifest_platform.shred.batch import Directory, Options, ShredFailure, Unusable
from manifest_platform.shred.csv_kernel import CsvFile
from manifest_platform.shred.limits import LINES_AT_ONCE, REASONS_OF_LINE, InputLimits, LimitExceeded
from manifest_platform.sources.veeva.shredder import VeevaOptions
from manifest_platform_tests.security.confined import MIB, Confined, confined
from manifest_platform_tests.security.shredding import bad_rows, run_of, shred_run, shred_window, window_of
from manifest_platform_tests.sources.snowplow.given import acme_registry, enriched

LIMITS = InputLimits(line=256 << 10)
OPTIONS = Options(split_size=4 * MIB, max_bad_share=0.05, max_bad_count=10, limits=LIMITS)


@pytest.fixture
def registry(tmp_path: Path) -> str:
    return str(acme_registry(tmp_path / "registry"))


def landed(tmp_path: Path, **files: bytes) -> Directory:
    """A run of files."""
    return run_of(tmp_path, files)


def in_confinement(directory: Directory, registry: str, options: Options = OPTIONS, memory: int = 512 * MIB) -> Confined:
    ended = confined(shred_run, directory, registry, options, memory=memory)
    assert ended.is_bounded, ended
    assert not ended.says()
    return ended


def failure(ended: Confined) -> str:
    assert isinstance(ended.value, ShredFailure), ended
    return ended.value.message


class TestLines:
    @pytest.mark.parametrize("packed", [False, True])
    def test_a_line_that_is_too_long_is_a_bad_row_and_the_others_are_read(self, tmp_path: Path, registry: str, packed: bool):
        """The bad row keeps 64 KiB of the line, and the position where the line begins."""
        good = enriched() + b"\n"
        text = good * 2 + b"\xff" * (5 * MIB) + b"\n" + good
        directory = landed(tmp_path, f=gzip.compress(text, 1) if packed else text)
        options = replace(OPTIONS, max_bad_share=0.5, limits=replace(LIMITS, inflation=10_000))

        ended = in_confinement(directory, registry, options, memory=256 * MIB)

        listing = ended.value
        assert isinstance(listing, Listing), listing
        assert (listing.lines, listing.good, listing.bad) == (4, 3, 1)
        (row,) = bad_rows(listing)
        (reason,) = orjson.loads(row["reasons"])
        assert (row["line"], reason["type"]) == (3, "too_long")
        assert f"begins at byte {2 * len(good):,} of the file's text and has {5 * MIB:,} bytes" in reason["message"]
        assert "shred.limits.line_kib allows 256 KiB" in reason["message"]
        assert row["raw"].endswith("… (cut off here)") and len(row["raw"]) == (64 << 10) + len("… (cut off here)")
        assert ended.bytes < 100 * MIB

    def test_a_task_in_the_midst_of_a_long_line_reads_no_more_than_its_range(self, tmp_path: Path, monkeypatch: Any):
        """Each task read on to the line's end: a line of 10 GB, cut into 320 tasks, was read 160 times."""
        path = tmp_path / "f"
        path.write_bytes(b"x" * MIB)
        read: list[int] = []

        class Counted(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                read.append(len(block := super().read(size)))
                return block

        monkeypatch.setattr(lines, "open_landed", lambda *_: Counted(path.read_bytes()))

        assert list(lines.chunks(lines.Piece(path.as_uri(), MIB, 100_000, 300_000))) == []
        assert sum(read) < 201_000

    def test_what_was_cut_off_is_no_event_when_it_is_replayed(self, tmp_path: Path, registry: str):
        """Cut behind its last tab it has 131 fields, the last of them empty."""
        text = enriched(page_title="x" * (65_536 - len(enriched()))) + b"y" * (300 << 10)
        assert len(text.rpartition(b"\t")[0]) + 1 == 65_536
        directory = landed(tmp_path, f=text + b"\n" + enriched() + b"\n")

        listing = shred_run(directory, registry, replace(OPTIONS, max_bad_share=0.5))

        assert isinstance(listing, Listing), listing
        (row,) = bad_rows(listing)
        again = landed(tmp_path / "again", f=row["raw"].encode() + b"\n" + enriched() + b"\n")
        listing = shred_run(again, registry, replace(OPTIONS, max_bad_share=0.5))
        assert isinstance(listing, Listing) and (listing.good, listing.bad) == (1, 1)


class TestInflation:
    def test_zeros_without_end_stop_at_the_ratio(self, tmp_path: Path, registry: str):
        """23 MB of gzip, 5 GB of zeros, were a MemoryError."""
        directory = landed(tmp_path, f=gzip.compress(bytes(16 * MIB), 9) * 40)

        message = failure(in_confinement(directory, registry, memory=256 * MIB))

        assert "is gzip, and its first 131,072 bytes became 71,303,168" in message
        assert "shred.limits.inflation allows 200 times as many" in message
        assert directory.files[0][0] in message

    def test_a_small_file_of_one_event_over_and_over_is_no_attack(self, tmp_path: Path, registry: str):
        directory = landed(tmp_path, f=gzip.compress((enriched() + b"\n") * 20_000, 9))
        assert directory.files[0][1] * 200 < 20_000 * len(enriched())

        listing = shred_run(directory, registry, OPTIONS)

        assert isinstance(listing, Listing) and listing.good == 20_000


class TestBadRows:
    def test_newlines_take_little_memory_and_stop_early(self, tmp_path: Path, registry: str):
        """4 MiB of newlines took 3.2 GB."""
        directory = landed(tmp_path, f=b"\n" * MIB)
        options = replace(OPTIONS, limits=replace(LIMITS, inflation=2))

        ended = in_confinement(directory, registry, options, memory=400 * MIB)

        assert "of the first 24576 lines" in failure(ended)
        assert "The rest was not read, because even good lines could not make up for them" in failure(ended)
        assert ended.bytes < 250 * MIB

    def test_more_than_are_kept_fail_whatever_share_is_allowed(self, tmp_path: Path, registry: str):
        directory = landed(tmp_path, f=b"bad\n" * 30_000)
        options = replace(OPTIONS, max_bad_share=1.0, limits=replace(LIMITS, bad_rows=10_000))

        message = failure(in_confinement(directory, registry, options))

        assert "has more than 10,000 bad rows among its first 16,384" in message
        assert "line 1 of f: not_tsv" in message and "shred.limits.bad_rows allows 10,000 a directory" in message
        kept = message.partition("those are in ")[2].partition(";")[0]
        assert parquet.read_table(storage.local_path(kept), partitioning=None).num_rows == 16_384

    def test_all_tasks_of_a_directory_count_together(self, tmp_path: Path, registry: str):
        half = b"bad\n" * 1_500 + (enriched() + b"\n") * 1_500
        directory = landed(tmp_path, a=half, b=half)
        options = Options(split_size=len(half), max_bad_share=1.0, limits=replace(LIMITS, bad_rows=2_000))

        result = shred_run(directory, registry, options)

        assert isinstance(result, ShredFailure) and "more than 2,000 bad rows among its first 6,000" in result.message

    def test_reasons_of_a_line_are_counted_no_further(self, tmp_path: Path, registry: str):
        """16 MiB of entities that are none took 1.7 GB."""
        wrapped = '{"schema":"iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-0","data":[%s1]}' % ("1," * 100_000)
        directory = landed(tmp_path, f=(enriched(contexts=wrapped) + b"\n") * 8 + (enriched() + b"\n") * 8)

        ended = in_confinement(directory, registry)

        assert isinstance(ended.value, Listing), ended.value
        reasons = [orjson.loads(row["reasons"]) for row in bad_rows(ended.value)]
        assert {len(found) for found in reasons} == {REASONS_OF_LINE + 1}
        assert reasons[0][-1] == {"type": "more", "message": "the rest of the row was not checked"}
        assert ended.bytes < 100 * MIB

    def test_what_is_never_too_many_does_not_stop_a_sound_directory(self):
        for share, count in ((0.0, 0), (0.05, 10), (0.5, 100), (0.99, 3)):
            options = Options(max_bad_share=share, max_bad_count=count)
            for good in (0, 1, 7, 100, 12_345):
                most = options.most_bad(good)
                assert most is not None
                assert not any(options.allows(bad, bad + good) for bad in range(most + 1, most + 200))


class TestFilesAndDates:
    def test_a_directory_of_too_many_dates_writes_nothing(self, tmp_path: Path, registry: str):
        """5,000 dates in 960 kB became 5,000 files of 145 MB."""
        days = [f"{1900 + each // 300:04d}-{1 + each % 300 // 28:02d}-{1 + each % 28:02d}" for each in range(500)]
        directory = landed(tmp_path, f=b"".join(enriched(collector_tstamp=f"{day} 00:00:00") + b"\n" for day in days))

        message = failure(in_confinement(directory, registry))

        assert "has events of more than 400 dates, from 1900-01-01 to 1901-04-17" in message
        assert "shred.limits.dates allows 400 a directory" in message and "raise the limit, and resolve the item" in message
        assert not (tmp_path / "out").exists()

    def test_files_are_limited_over_all_tasks(self, tmp_path: Path, registry: str):
        directory = landed(tmp_path, **{f"f{number}": enriched() + b"\n" for number in range(6)})
        options = Options(split_size=1, limits=replace(LIMITS, files=5))

        result = shred_run(directory, registry, options)

        assert isinstance(result, ShredFailure)
        assert "would become more than 5 files" in result.message and "shred.limits.files" in result.message

    def test_rows_are_written_before_they_take_much_memory(self, tmp_path: Path, registry: str):
        """The shortest events become rows of several times their size."""
        short = enriched(app_id="", platform="", event="", v_collector="1", v_etl="1", collector_tstamp="2024-03-05 10:11:12")
        directory = landed(tmp_path, f=(short + b"\n") * (8 * MIB // len(short)))

        ended = in_confinement(directory, registry, replace(OPTIONS, split_size=MIB))

        assert isinstance(ended.value, Listing) and ended.bytes < 250 * MIB


METADATA = b"extract,column_name,type\nObject.product__v,id,String\nObject.product__v,price__c,Number\n"
PRODUCT = "Object/product__v.csv"


def window(tmp_path: Path, rows: bytes, records: int, metadata: bytes = METADATA) -> Any:
    manifest = f"extract,extract_label,type,records,file\nObject.product__v,Product,updates,{records},{PRODUCT}\n"
    return window_of(tmp_path, {"manifest.csv": manifest.encode(), "metadata_full.csv": metadata, PRODUCT: rows})


class TestWindows:
    @pytest.mark.parametrize(
        ("rows", "columns"),
        [(b"1\n" * 60_000, 2), (b"x,\n" * 20_000, 2), ((b"x," * 63 + b"x\n") * 500, 64)],
        ids=["too few fields", "no numbers", "wide"],
    )
    def test_bad_records_come_in_portions(self, rows: bytes, columns: int):
        """A block of 4 MiB has up to two million of them; each is objects and texts, and so is each reason."""
        header = ",".join(f"c{number}" for number in range(columns)).encode() + b"\n"
        typed = [Column(f"c{number}", "decimal(38,10)") for number in range(columns)]
        text = header + b"1" + b"," * (columns - 1) + b"\n" + rows
        count = text.count(b"\n") - 1

        def read() -> tuple[int, int, int]:
            file = CsvFile(io.BytesIO(text), "f")
            portions = [(part.rows.num_rows, part.bad.num_rows) for part in file.rows(typed, ())]
            return sum(good for good, _ in portions), sum(bad for _, bad in portions), max(bad for _, bad in portions)

        good, bad, most = read()

        assert (good, bad) == (1, count - 1) and most <= 2 * LINES_AT_ONCE

    def test_bad_records_are_read_no_further_than_they_are_kept(self, tmp_path: Path):
        """The parser reads on by itself while no record fits."""
        rows = b"id,price__c\nV1,1\n" + b"V1\n" * 100_000
        options = VeevaOptions(max_bad_share=1.0, limits=replace(LIMITS, bad_rows=20_000))

        result = shred_window(window(tmp_path, rows, 100_001), options)

        assert isinstance(result, ShredFailure)
        assert "has more than 20,000 bad rows among its first 20,001" in result.message

    def test_a_window_that_is_sure_to_fail_is_not_read_to_its_end(self, tmp_path: Path):
        rows = b"id,price__c\n" + b"V1,no number\n" * 200_000

        ended = confined(shred_window, window(tmp_path, rows, 200_000), VeevaOptions(), memory=512 * MIB)

        assert ended.is_bounded and isinstance(ended.value, ShredFailure), ended
        assert "16384 of the first 16384 lines" in ended.value.message and "The rest was not read" in ended.value.message

    def test_records_that_the_manifest_lacks_are_not_read_to_their_end(self, tmp_path: Path):
        rows = b"id,price__c\n" + b"V1,1\n" * 200_000

        result = shred_window(window(tmp_path, rows, 7), VeevaOptions())

        assert isinstance(result, ShredFailure)
        assert "has at least 8192 records, but manifest.csv says 7" in result.message

    def test_what_is_read_whole_is_limited(self, tmp_path: Path):
        """manifest.csv and the metadata are read at one go."""
        metadata = METADATA + b"Object.product__v,x,String\n" * 100_000

        result = shred_window(window(tmp_path, b"id\nV1\n", 1, metadata), VeevaOptions(metadata=MIB))

        assert isinstance(result, ShredFailure)
        assert f"metadata_full.csv has {len(metadata):,} bytes, and is read into memory" in result.message
        assert "shred.limits.metadata_mib allows 1 MiB" in result.message

    def test_a_record_that_is_too_long_names_the_limit(self):
        text = b"c\n" + b"x" * 200_000 + b"\n" + b"y\n" * 200_000

        with pytest.raises(Unusable, match=r"a record has at most 65,536 bytes \(shred.limits.line_kib\)"):
            list(CsvFile(io.BytesIO(text), "f", 64 << 10).rows([Column("c", "string")], ()))


def test_an_error_names_limit_figure_place_and_what_to_do():
    text = str(LimitExceeded("dates", "s3://b/run", "has events of more than 4 dates", "4 a directory"))
    assert text == (
        "s3://b/run has events of more than 4 dates; shred.limits.dates allows 4 a directory. If the directory is at fault,"
        " land it again; otherwise raise the limit, and resolve the item"
    )
