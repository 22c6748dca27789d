"""Small runs whose tables share a file, from the landing to the warehouse, to a DataFrame's files and to merged tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from manifest_platform import storage
from manifest_platform.operations.doctor import Doctor
from manifest_platform.pipeline.drain import Stop
from manifest_platform.pipeline.merge import MergeReport, Merging, merge
from manifest_platform.pipeline.outputs import read_output
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform_tests.pipeline.shop import EVENTS, Shop, drained, keys, run_names

PACKED = {"pack_kib": 1024}


def test_packed_runs_are_loaded_and_lost_packs_made_again(spark: Any, tmp_path: Path) -> None:
    shop = Shop(tmp_path, shred=PACKED)
    shop.shredded(spark, 3)
    files = [path for path in (tmp_path / "shredded").rglob("*") if path.is_file()]
    assert sorted(re.sub("-[0-9a-f]{8}", "", path.name) for path in files) == [
        *["00000-000.pack.zip"] * 3,
        *["listing.json"] * 3,
        *["shredding_complete.json"] * 3,
    ]
    with shop.open() as pipeline:
        assert Doctor(pipeline).examine().findings == []
        [pack] = listing_of(pipeline.manifest.item(keys(pipeline, 1)[0])).packs
        storage.local_path(pack.uri).unlink()
        assert [one.key for one in Doctor(pipeline).examine().findings] == keys(pipeline, 1)
        _, report = drained(pipeline, spark)
        assert (report.stop, report.loaded, report.failed) == (Stop.IDLE, 3, 0)
    assert (shop.seen.runs, shop.seen.rows["events"], shop.doubled_events) == (run_names(0, 1, 2), 3 * EVENTS, [])


def test_files_of_packed_runs_are_made_for_readers_of_files(spark: Any, tmp_path: Path) -> None:
    shop = Shop(tmp_path, shred=PACKED)
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        [first, second] = keys(pipeline, 0, 1)
        read = read_output(pipeline.manifest.outputs(), first, "shredded", "events")
        assert sum(pq.ParquetFile(storage.local_path(uri)).metadata.num_rows for uri in read.uris) == EVENTS
        rows: dict[str, int] = {}
        for key in (first, second):
            for found in listing_of(pipeline.manifest.item(key)).objects:
                assert found.pack
                rows[found.table] = rows.get(found.table, 0) + found.rows
    shop = Shop(tmp_path, shred=PACKED, merge={})
    with shop.open() as pipeline:
        merging = Merging(pipeline)
        *_, report = merge(merging, lambda: spark)
        assert isinstance(report, MergeReport)
        assert (report.stop, report.merged) == (Stop.IDLE, len(rows))
        day = next(iter(merging.inventory.partitions("events"))).date
        assert {table: merging.inventory.partition(table, day).merged.rows for table in rows} == rows  # ty: ignore
