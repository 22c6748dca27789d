"""Runs that are shredded and wait to be loaded, made without Spark: what benchmarks of loading begin with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import yaml

from manifest_platform import storage
from manifest_platform.listing import Listing, ShreddedObject, Table
from manifest_platform.manifest import ItemKey, Landed
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.shredding import shredded_payload
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.sources.snowplow.source import parse_run_name

DATASET = "bench"
DATE = "2024-05-01"
REPOSITORY = Path(__file__).parents[1]
CLAIM_AT_ONCE = 90


def run_directory(root: Path, number: int) -> Path:
    """The directory of a run, named by its time: ten minutes after the run before."""
    return root / f"run={datetime(2024, 5, 1) + number * timedelta(minutes=10):%Y-%m-%d-%H-%M-%S}"


def write_listing(directory: Path, tables: Sequence[tuple[Table, Sequence[pa.Table]]]) -> Listing:
    """Writes each table's parts as Parquet objects, and the listing of them all as `listing.json`."""
    objects = []
    for table, parts in tables:
        target = directory / table.name
        target.mkdir(parents=True)
        for number, part in enumerate(parts):
            path = target / f"{number}.parquet"
            pa.parquet.write_table(part, path)
            objects.append(ShreddedObject(table.name, DATE, storage.as_uri(path), part.num_rows, path.stat().st_size))
    lines = sum(one.rows for one in objects if one.table == tables[0][0].name)
    definitions = tuple(table for table, _ in tables)
    listing = Listing(storage.as_uri(directory), "1", lines, lines, 0, definitions, tuple(objects))
    listing.write(f"{listing.item}/listing.json")
    return listing


def write_config(home: Path, warehouse: dict[str, Any] | None = None) -> Path:
    """A configuration whose manifest, warehouse and outputs lie under a directory. `warehouse`: another than a file there."""
    (home / "landing").mkdir(parents=True, exist_ok=True)
    whole: dict[str, Any] = {
        "datasets": {
            DATASET: {
                "landing": {"root": "landing"},
                "shred": {"output": "shredded", "schemas": ["schemas"]},
            }
        },
        "manifest": {"store": "sqlite:///manifest.db"},
        "warehouse": warehouse or {"path": "ours.duckdb"},
        "spark": {"conf": str(REPOSITORY / "spark_conf" / "local.conf")},
    }
    file = home / "manifest_platform.yaml"
    file.write_text(yaml.safe_dump(whole))
    return file


def register(pipeline: Pipeline, listings: Sequence[Listing]) -> None:
    """Brings the manifest to where the listings' runs are discovered and shredded."""
    by_item = {listing.item: listing for listing in listings}
    pipeline.manifest.discover(FEED, [_landed(listing) for listing in listings])
    with pipeline.lease(FEED, SHRED) as lease:
        while ready := pipeline.manifest.waiting(FEED, SHRED, CLAIM_AT_ONCE)[0]:
            for claim in pipeline.manifest.claim(lease, ready):
                listing = by_item[claim.item.key.id]
                pipeline.manifest.complete(claim, shredded_payload(listing, f"{listing.item}/listing.json"))


def _landed(listing: Listing) -> Landed:
    name = parse_run_name(listing.item.rpartition("/")[2])
    assert name is not None
    return Landed(ItemKey(FEED, name.sort, listing.item), len(listing.objects), listing.bytes, "checksum")
