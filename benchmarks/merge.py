"""Merging small Parquet objects against what else makes one file of many.

    python benchmarks/merge.py [--repeats 5] [--scale 1] [--ranges 20] [--objects 2000]

The same 200 files of typed events (180 MB at scale 1), by turns, to one object, all with zstd:

    ours        claimed, planned, one sorted pass, rows, nulls and sums compared, committed, closed, switched and published
    job         the same with the pass as a task of a Spark job, as merge runs have it
    duckdb      COPY (SELECT * FROM read_parquet([…])) TO one file, not sorted
    deltalake   optimize.compact of a Delta table of these files, not sorted
    spark       spark.read.parquet(…).coalesce(1).write.parquet(…), not sorted

Then many objects in many ranges in one Spark job; and what is asked of S3 (versitygw on this machine) for an input object.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pairs import arguments, interleaved, print_figure, print_medians, print_ratio
from prepared import REPOSITORY

from manifest_platform import storage
from manifest_platform.manifest import Manifest
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform.merging.catalogs.embedded import EmbeddedCatalog
from manifest_platform.merging.inputs import Input
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.kernel import Merged, MergeTask, merge
from manifest_platform.merging.names import object_id
from manifest_platform.merging.plan import DEFAULT, plan
from manifest_platform.merging.publish import PublishSettings, publish
from manifest_platform.merging.registration import CommittedObjects, Rules
from manifest_platform.merging.spark_job import merge_all
from manifest_platform.merging.state import Range, SmallObject, TableSettings
from manifest_platform.merging.transitions import MERGE
from manifest_platform.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOALS = {"duckdb": 1.25, "deltalake": 1.05, "spark": 0.5}
MEGABYTES, FILES = 180, 200
ROWS_A_FILE = 7_450  # of these columns: 0.9 MB
REQUESTED = 200  # objects of the range that is merged in S3
DAY = date(2024, 5, 1)
START = 1_714_521_600_000_000  # that day, in microseconds

Pass = Callable[[MergeTask], Merged]
"""The kernel, in this process or in a Spark job."""


# Events


def identifiers(random: np.random.Generator, count: int) -> pa.Array:
    """Random UUIDs."""
    text = np.full((count, 36), ord("-"), np.uint8)
    digits = [place for place in range(36) if place not in (8, 13, 18, 23)]
    text[:, digits] = np.frombuffer(random.bytes(count * 16).hex().encode(), np.uint8).reshape(count, 32)
    offsets = np.arange(count + 1, dtype=np.int32) * 36
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def events(rows: int, start: int, seed: int) -> pa.Table:
    """Events of ten minutes: times, identifiers, texts of which there are few and many, numbers, columns that are empty."""
    random = np.random.default_rng(seed)

    def some_of(values: pa.Array) -> pa.Array:
        return values.take(pa.array(random.integers(0, len(values), rows)))

    users = identifiers(np.random.default_rng(0), 20_000)
    pages = pa.array(
        [f"https://shop.example.com/{'abcdefgh'[n % 8] * 3}/product-{n}?ref={n * 7919 % 100003}" for n in range(5000)]
    )
    agents = pa.array(
        [
            f"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.{n} (KHTML, like Gecko) Chrome/{90 + n % 40}.0.{n}.1"
            for n in range(300)
        ]
    )
    times = start + np.sort(random.integers(0, 600_000_000, rows))
    return pa.table(
        {
            "collector_tstamp": pa.array(times, pa.timestamp("us")),
            "dvce_created_tstamp": pa.array(times - random.integers(0, 5_000_000, rows), pa.timestamp("us")),
            "event_id": identifiers(random, rows),
            "event": some_of(pa.array(["page_view", "page_ping", "struct", "unstruct", "transaction"])),
            "app_id": some_of(pa.array(["web", "ios", "android"])),
            "user_id": some_of(users),
            "domain_sessionid": some_of(users),
            "page_url": some_of(pages),
            "page_referrer": some_of(pages),
            "useragent": some_of(agents),
            "geo_city": some_of(pa.array([f"City {n}" for n in range(2000)])),
            "geo_latitude": random.uniform(-60, 70, rows),
            "geo_longitude": random.uniform(-180, 180, rows),
            "se_value": pa.array(random.normal(50, 20, rows), mask=random.random(rows) < 0.5),
            "tr_total": pa.array(random.integers(0, 100_000, rows)).cast(pa.decimal128(19, 0)),
            "page_width": pa.array(random.integers(300, 2000, rows), pa.int32()),
            "page_height": pa.array(random.integers(300, 20_000, rows), pa.int32()),
            "pp_yoffset": pa.array(random.integers(0, 9000, rows), mask=random.random(rows) < 0.3),
            "domain_sessionidx": random.integers(1, 300, rows),
            "is_bot": random.random(rows) < 0.02,
            "refr_term": pa.nulls(rows, pa.string()),
            "ti_price": pa.nulls(rows, pa.float64()),
        }
    )


def make_files(directory: Path, count: int, rows: int) -> list[Path]:
    """Writes files of events that overlap in time, as those of neighboring runs do."""
    directory.mkdir()
    files = []
    for number in range(count):
        files.append(directory / f"{number:05d}.parquet")
        pq.write_table(events(rows, START + number * 400_000_000 % 80_000_000_000, number + 1), files[-1], compression="zstd")
    return files


def task_of(files: Sequence[Path], output: Path, lower: int = 0) -> MergeTask:
    inputs = [Input(storage.as_uri(file), pq.read_metadata(file).num_rows, file.stat().st_size) for file in files]
    return MergeTask("events", DAY, lower, lower + 1, tuple(inputs), storage.as_uri(output), "collector_tstamp")


# The ways; each gives the size of what it wrote


def registered(files: Sequence[Path], output: Path) -> None:
    """Makes a manifest in which the files are the small objects of a partition, due to be merged."""
    inventory = Inventory(SqlStore(f"sqlite:///{output}/manifest.db"), "bench", "benchmark")
    inventory.sync_table(TableSettings("events", "bench", 0, 1 << 30, time_column="collector_tstamp"))
    objects = tuple(
        SmallObject(object_id(1, place), storage.as_uri(file), pq.read_metadata(file).num_rows, file.stat().st_size)
        for place, file in enumerate(files, 1)
    )
    inventory.register(CommittedObjects(1, "bench", {("events", DAY): objects}, {}), Rules())
    inventory.store.close()


def merge_ours(run: Pass, output: Path) -> int:
    """All of a partition's life from the claim on, by the manifest on the disk."""
    inventory = Inventory(SqlStore(f"sqlite:///{output}/manifest.db"), "bench", "benchmark")
    now, uri = datetime.now(UTC), storage.as_uri(output)
    table = inventory.table("events")
    assert table
    for partition in inventory.open_partitions():
        inventory.close(partition, now)
    with Manifest(inventory.store, "bench", {}, "benchmark").hold(MERGE, "0", "benchmark", timedelta(minutes=1)) as lease:
        [claimed] = inventory.claim(lease, now, 1)
        job, partition = claimed.job, claimed.partition
        [planned] = plan(partition, table, None, inventory.small_objects("events", DAY), DEFAULT).ranges
        merged = run(MergeTask.of(planned, table, DAY, uri, job.id))
        fields = {name: getattr(merged, name) for name in ("lower", "upper", "uri", "rows", "bytes", "min_time", "max_time")}
        made = Range("events", DAY, **fields, objects=len(planned.objects), attempt=job.id, create_time=now, update_time=now)
        inventory.commit(job, [made], bytes_in=sum(found.bytes for found in planned.objects))
    report = publish(inventory, EmbeddedCatalog(inventory), PublishSettings(uri), now)
    assert len(report.published) == 1, report
    inventory.store.close()
    return merged.bytes


def by_job(spark: SparkSession, task: MergeTask) -> Merged:
    [merged] = merge_all(spark, [task])
    assert isinstance(merged, Merged), merged
    return merged


def copy_by_duckdb(files: Sequence[Path], output: Path) -> int:
    names = ", ".join(f"'{file}'" for file in files)
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT * FROM read_parquet([{names}])) TO '{output}/part.parquet' (FORMAT parquet, COMPRESSION zstd)"
        )
    return (output / "part.parquet").stat().st_size


def compact_by_delta(files: Sequence[Path], output: Path) -> int:
    from deltalake import DeltaTable, WriterProperties

    metrics: dict[str, Any] = DeltaTable(str(output)).optimize.compact(
        target_size=1 << 31, writer_properties=WriterProperties(compression="ZSTD")
    )
    assert (metrics["numFilesAdded"], metrics["numFilesRemoved"]) == (1, len(files)), metrics
    return sum(file.stat().st_size for file in output.glob("part-*.parquet"))


def coalesce_by_spark(spark: SparkSession, files: Sequence[Path], output: Path) -> int:
    frame = spark.read.parquet(*(str(file) for file in files))
    frame.coalesce(1).write.option("compression", "zstd").parquet(str(output / "whole"))
    [part] = (output / "whole").glob("part-*.parquet")
    return part.stat().st_size


def a_delta_table(files: Sequence[Path], output: Path) -> None:
    """Makes a Delta table of the files, which stay where they are."""
    from deltalake import convert_to_deltalake

    for file in files:
        os.link(file, output / file.name)
    convert_to_deltalake(str(output))


def timed(
    way: Callable[[Path], int], root: Path, sizes: dict[str, int], name: str, prepare: Callable[[Path], None] | None = None
) -> float:
    """Seconds that a way takes into an empty directory; what it wrote is then removed."""
    output = Path(tempfile.mkdtemp(dir=root))
    try:
        if prepare:
            prepare(output)
        began = time.perf_counter()
        sizes[name] = way(output)
        return time.perf_counter() - began
    finally:
        shutil.rmtree(output)


# What else is shown


def print_many_ranges(spark: SparkSession, root: Path, objects: int, ranges: int) -> None:
    """Many objects in many ranges in one job."""
    files = make_files(root / "many", objects, ROWS_A_FILE // 10)
    each = objects // ranges
    tasks = [task_of(files[n * each : (n + 1) * each], root / "ranges" / f"{n}.parquet", n) for n in range(ranges)]
    megabytes = sum(task.bytes for task in tasks) / 1e6
    began = time.perf_counter()
    results = merge_all(spark, tasks)
    seconds = time.perf_counter() - began
    assert all(isinstance(result, Merged) for result in results), results
    print(
        f"{objects:,} objects of {megabytes:.0f} MB in {ranges} ranges, one job: {seconds:.2f} s, "
        f"{megabytes / seconds:.1f} MB/s, {seconds / objects * 1000:.2f} ms an object"
    )


def print_requests(files: Sequence[Path]) -> None:
    """Prints the number of requests for merging a range of objects in S3."""
    sys.path.append(str(REPOSITORY))
    from manifest_platform.demo.s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server, versitygw
    from manifest_platform.demo.server import free_port, running

    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "data" / "bench").mkdir(parents=True)
        port, log = free_port(), Path(home) / "log"
        command = [versitygw(), "--port", f"127.0.0.1:{port}", "--region", REGION, "posix", Path(home) / "data"]
        environment = {"PATH": os.defpath, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        with running(command, port, log, environment):
            os.environ.update(S3Server(f"http://127.0.0.1:{port}").environment)
            inputs = []
            for file in files:
                inputs.append(Input(f"s3://bench/{file.name}", pq.read_metadata(file).num_rows, file.stat().st_size))
                storage.write_bytes(inputs[-1].uri, file.read_bytes())
            before = asked(log)
            began = time.perf_counter()
            merge(MergeTask("events", DAY, 0, 1, tuple(inputs), "s3://bench/merged.parquet", "collector_tstamp"))
            seconds = time.perf_counter() - began
            requests = asked(log) - before
    print(f"in S3: {len(files)} objects in {seconds:.2f} s, requests: {dict(requests)}")
    assert requests["GET"] >= len(files)
    print_figure("requests beyond an object's own", requests.total() - len(files), 20)


def asked(log: Path) -> Counter[str]:
    """The requests that the server's log has so far, by method."""
    return Counter(re.findall(r"\b(GET|PUT|POST|HEAD|DELETE)\b", log.read_text()))


def main() -> None:
    parser = arguments(__doc__, 3, f"{MEGABYTES} MB in {FILES} files")
    parser.add_argument("--ranges", type=int, default=20, help="ranges of the job of many (20)")
    parser.add_argument("--objects", type=int, default=2000, help="objects of the job of many (2000)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        files = make_files(root / "small", FILES, int(ROWS_A_FILE * options.scale))
        megabytes = sum(file.stat().st_size for file in files) / 1e6
        spark = session(REPOSITORY / "spark_conf" / "local.conf")
        print(f"{len(files)} files, {megabytes:.0f} MB, {spark.sparkContext.defaultParallelism} cores")
        ways: dict[str, Callable[[Path], int]] = {
            "ours": partial(merge_ours, merge),
            "job": partial(merge_ours, partial(by_job, spark)),
            "duckdb": partial(copy_by_duckdb, files),
            "deltalake": partial(compact_by_delta, files),
            "spark": partial(coalesce_by_spark, spark, files),
        }
        prepare = {
            "ours": partial(registered, files),
            "job": partial(registered, files),
            "deltalake": partial(a_delta_table, files),
        }
        seconds = interleaved(
            {name: partial(timed, way, root, sizes, name, prepare.get(name)) for name, way in ways.items()}, options.repeats
        )
        print_medians(seconds)
        for name, taken in seconds.items():
            print(f"{name:10} {megabytes / sorted(taken)[len(taken) // 2]:8.1f} MB/s, {sizes[name] / 1e6:6.1f} MB written")
        for peer, goal in GOALS.items():
            print_ratio("a range", seconds, "ours", peer, goal)
        print_many_ranges(spark, root, options.objects, options.ranges)
        spark.stop()
        print_requests(files[:REQUESTED])


if __name__ == "__main__":
    main()
