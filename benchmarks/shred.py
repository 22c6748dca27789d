"""Shredding against the plainest Spark script that writes only the event table.

    python benchmarks/shred.py [--repeats 5] [--scale 1] [--directories 6]

The same directories of enriched events (120 MB at scale 1), by turns, in one Spark session:

    ours    manifest_platform.shred: every field checked and typed, entities into tables of their own, bad rows set aside,
            objects by date, a listing a directory
    plain   spark.read.text, split at tabs, 128 casts, one Parquet write (zstd): the event table, and nothing else
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pairs import arguments, interleaved, print_medians, print_ratio
from prepared import REPOSITORY

from manifest_platform import storage
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.listing import Listing
from manifest_platform.shred.batch import Directory, Options
from manifest_platform.sources.snowplow.events.shredder import shred
from manifest_platform.sources.snowplow.fields import FIELDS
from manifest_platform.spark import session

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

GOAL = 0.9
MEGABYTES = 120
SAMPLE = 500  # events to learn an event's size from
FIRST = datetime(2024, 5, 1, 12, tzinfo=UTC)


def make_directories(root: Path, count: int, size: int) -> list[Path]:
    """Writes runs of demo events of about this many bytes together."""
    sample = storage.local_path(write_run(root / "sample", FIRST, SAMPLE, seed=1).uri)
    events = int(size / (_size(sample) / SAMPLE) / count)
    runs = [write_run(root, FIRST + number * timedelta(minutes=10), events, seed=1, parts=2) for number in range(count)]
    return [storage.local_path(run.uri) for run in runs]


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("part-*"))


def shred_ours(spark: SparkSession, directories: list[Path], output: Path) -> None:
    """Shreds a batch of directories as the drain does."""
    batch = [
        Directory(
            storage.as_uri(directory),
            tuple((storage.as_uri(part), part.stat().st_size) for part in sorted(directory.glob("part-*"))),
            storage.as_uri(output / directory.name),
            uuid.uuid4().hex,
        )
        for directory in directories
    ]
    results = shred(spark, batch, [str(SCHEMAS)], Options())
    assert all(isinstance(result, Listing) and result.bad == 0 for result in results), results


def shred_plain(spark: SparkSession, directories: list[Path], output: Path) -> None:
    """The event table by Spark SQL."""
    from pyspark.sql import functions as f

    parts = f.split("value", "\t")

    def typed(position: int, type_: str) -> Column:
        text = f.nullif(parts[position], f.lit(""))
        spark_type = {"integer": "int", "uuid": "string"}.get(type_, "string" if type_.startswith("string") else type_)
        return (text if spark_type == "string" else text.cast(spark_type)).alias(FIELDS[position].name)

    columns = [typed(position, field.type) for position, field in enumerate(FIELDS) if not field.is_json]
    lines = spark.read.text([str(part) for directory in directories for part in directory.glob("part-*")])
    lines.select(*columns).write.option("compression", "zstd").parquet(str(output))


def timed(work: Callable[[SparkSession, list[Path], Path], None], spark: SparkSession, directories: list[Path]) -> float:
    """Seconds to shred all directories into a fresh place."""
    output = Path(tempfile.mkdtemp()) / "shredded"
    try:
        began = time.perf_counter()
        work(spark, directories, output)
        seconds = time.perf_counter() - began
        assert any(output.rglob("*.parquet"))
        return seconds
    finally:
        shutil.rmtree(output.parent)


def main() -> None:
    parser = arguments(__doc__, 3, f"{MEGABYTES} MB")
    parser.add_argument("--directories", type=int, default=6, help="how many (6)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as root:
        directories = make_directories(Path(root), options.directories, int(MEGABYTES * 1e6 * options.scale))
        megabytes = sum(_size(directory) for directory in directories) / 1e6
        spark = session(REPOSITORY / "spark_conf" / "local.conf")
        print(f"{len(directories)} directories, {megabytes:.0f} MB, {spark.sparkContext.defaultParallelism} cores")
        ways = {
            "ours": partial(timed, shred_ours, spark, directories),
            "plain": partial(timed, shred_plain, spark, directories),
        }
        seconds = interleaved(ways, options.repeats)
        spark.stop()
    print_medians(seconds)
    for way, taken in seconds.items():
        print(f"{way:10} {megabytes / sorted(taken)[len(taken) // 2]:8.1f} MB/s")
    print_ratio("throughput", seconds, "ours", "plain", GOAL, throughput=True)


if __name__ == "__main__":
    main()
