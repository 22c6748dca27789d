"""A Spark cluster over Connect: one worker against two, and 1,000 tiny runs from landing to the warehouse.

    python benchmarks/cluster.py [--megabytes 1000] [--runs 1000] [--what workers,tiny]

The deployment is the demo's: files in S3 (versitygw), the manifest in DynamoDB Local, the warehouse in PostgreSQL, Spark on
workers of one core each behind a Connect server.

    workers  shredding runs of `--megabytes` together on one worker, and on two. The ratio is that of the processor seconds of
             the busiest worker: what the clock shows on a machine with a core for each. The clock is printed too.
             `driver`: the processor seconds of this process and of the Connect server. Fewer megabytes than a few splits of
             32 MiB are not divided between workers
    tiny     discovering, shredding and loading `--runs` runs of 20 events: milliseconds of this process's processor a run,
             beside Spark, and requests a run to the manifest and to S3, the workers' included; with a file for each table,
             packed, and packed with many runs in a transaction of the warehouse
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pairs import print_figure
from snowplow import generated, processes, write_directory, write_schemas

from manifest_platform import config, storage
from manifest_platform.demo.cluster import BUCKET, Deployment, deployment
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.listing import Listing
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.pipeline import DrainReport, Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.drain import drain
from manifest_platform.shred.batch import Directory, Options
from manifest_platform.sources.snowplow.events.shredder import shred

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS = {"a_file_a_table": (0, 1), "packed": (1024, 1), "packed_and_together": (1024, 1000)}
"""The datasets of tiny runs: their `shred.pack_kib`, and their `load.batch.items`, the most runs in a transaction."""
LARGE = 100
"""The megabytes of a run whose work is divided between workers."""
EVENTS = 20
FIRST = datetime(2024, 5, 1, tzinfo=UTC)
MOST_MS, MOST_REQUESTS = 20, 10
RATIO = 1.7
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cpu:
    """Processor seconds of the parts of a deployment."""

    client: float
    server: float
    workers: tuple[float, ...]

    def since(self, before: Cpu) -> Cpu:
        """The seconds since an earlier reading."""
        workers = tuple(now - then for now, then in zip(self.workers, before.workers, strict=True))
        return Cpu(self.client - before.client, self.server - before.server, workers)


def cpu() -> Cpu:
    """Reads the processor seconds of this process, of the Connect server, and of each worker with its executor and Python."""
    own, server = 0.0, 0.0
    workers: dict[str, float] = {}
    parents, commands = {}, processes()
    for process in commands:
        try:
            told = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[process] = int(told[1])
        seconds = sum(map(int, told[11:15])) / _TICKS
        if process == os.getpid():
            own += sum(map(int, told[11:13])) / _TICKS  # without children that ended
        elif "SparkConnectServer" in commands[process]:
            server += seconds
        elif worker := _worker_of(process, parents, commands):
            workers[worker] = workers.get(worker, 0) + seconds
    return Cpu(own, server, tuple(workers[name] for name in sorted(workers)))


def _worker_of(process: int, parents: dict[int, int], commands: dict[int, str]) -> str:
    """The worker that a process is, or that started it; empty for others. Parents come before their children."""
    while process in parents:
        if found := re.search(r"--work-dir \S*/(worker-\d+)", commands.get(process, "")):
            return found[1]
        process = parents[process]
    return ""


@contextmanager
def deployed(workers: int) -> Generator[tuple[config.Config, Deployment]]:
    """Runs a deployment, and yields its configuration, with a dataset for each of WAYS."""
    with (
        tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as folder,
        deployment(Path(folder), workers) as servers,
    ):
        create_table(servers.store)
        own = servers.configuration("usual")
        usual = own["datasets"].pop("usual")
        for name, (pack, together) in WAYS.items():
            own["datasets"][name] = {
                "landing": {"root": f"s3://{BUCKET}/{name}"},
                "shred": {**usual["shred"], "output": f"s3://{BUCKET}/shredded-{name}", "pack_kib": pack},
                "load": {"batch": {"items": together}},
            }
        file = Path(folder) / "manifest_platform.yaml"
        file.write_text(yaml.safe_dump(own))
        yield config.load(file), servers


def upload(folder: Path, place: str) -> list[tuple[str, int]]:
    """Copies files to a place in S3, and returns their URIs and sizes. A marker is last."""
    found = []
    for file in sorted((file for file in folder.rglob("*") if file.is_file()), key=lambda file: file.name.startswith("_")):
        uri = f"{place}/{file.relative_to(folder).as_posix()}"
        storage.write_bytes(uri, file.read_bytes())
        found.append((uri, file.stat().st_size))
    return found


def of_workers(megabytes: int) -> None:
    """Prints what shredding takes on one worker and on two."""
    busiest, walls = [], []
    with tempfile.TemporaryDirectory(prefix="cluster-bench-") as folder:
        root = Path(folder)
        lines = generated(write_schemas(root / "registry"))
        sizes = [LARGE] * (megabytes // LARGE) or [megabytes]
        for workers in (1, 2):
            with deployed(workers) as (settings, _):
                upload(root / "registry" / "schemas", f"s3://{BUCKET}/schemas/schemas")
                directories = []
                for number, size in enumerate(sizes):
                    place = f"s3://{BUCKET}/large/{number}"
                    files = upload(write_directory(root / f"run-{workers}-{number}", lines, size * 1e6), place)
                    landed = tuple((uri, bytes_) for uri, bytes_ in files if bytes_)
                    directories.append(Directory(place, landed, f"s3://{BUCKET}/out/{number}", "1"))
                spark = settings.spark.session()
                before, began = cpu(), time.perf_counter()
                for result in shred(spark, directories, [f"s3://{BUCKET}/schemas"], Options(max_bad_share=0.2)):
                    assert isinstance(result, Listing), result
                wall, taken = time.perf_counter() - began, cpu().since(before)
                told = ", ".join(f"{one:.1f}" for one in taken.workers)
                print(
                    f"{workers} workers, {megabytes} MB: {wall:.1f} s by the clock; CPU seconds: workers {told},"
                    f" driver {taken.server:.1f} (server) + {taken.client:.1f} (client)",
                    flush=True,
                )
                busiest.append(max(taken.workers))
                walls.append(wall)
                overhead = (taken.server + taken.client) / sum(taken.workers)
                print_figure(f"driver by workers, {workers} workers", overhead, 0.2)
    print(f"by the clock: {walls[0] / walls[1]:.2f} times as fast", flush=True)
    print_figure("one worker by the busiest of two", busiest[0] / busiest[1], RATIO, at_least=True)


def tiny(runs: int) -> None:
    """Prints what tiny runs take beside Spark, and how many requests, in each of WAYS."""
    with deployed(2) as (settings, servers), tempfile.TemporaryDirectory() as folder:
        upload(SCHEMAS, f"s3://{BUCKET}/schemas")
        for number in range(runs):
            write_run(folder, FIRST + number * timedelta(minutes=1), EVENTS, seed=1)
        spark = settings.spark.session()
        for way in WAYS:
            upload(Path(folder), settings.datasets[way].landing.root)
            tiny_in_a_way(settings, way, runs, spark, servers.folder / "log")


def tiny_in_a_way(settings: config.Config, way: str, runs: int, spark: SparkSession, log: Path) -> None:
    """Drains the runs of a dataset. `log`: that of the S3 server."""
    with Pipeline(settings, way) as pipeline:
        store = pipeline.manifest.store
        before, asked, stored, began = cpu(), _asked(log), store.requests, time.perf_counter()
        discover(pipeline)
        *_, report = drain(pipeline, lambda: spark)
        wall, taken = time.perf_counter() - began, cpu().since(before)
        assert isinstance(report, DrainReport) and report.loaded == runs, report
        told, manifest = _asked(log) - asked, (store.requests - stored) / runs
    by_method = ", ".join(f"{count / runs:.1f} {method}" for method, count in sorted(told.items()))
    print(
        f"{runs} tiny runs, {way}: {wall:.1f} s by the clock; CPU: workers {sum(taken.workers):.1f} s,"
        f" server {taken.server:.1f} s, client {taken.client:.1f} s"
    )
    print(f"requests a run, {way}: {manifest:.1f} manifest; S3 {by_method}", flush=True)
    print_figure(f"ms a run beside Spark, {way}", taken.client / runs * 1000, MOST_MS, " ms")
    print_figure(f"requests a run, {way}", manifest + told.total() / runs, MOST_REQUESTS)


def _asked(log: Path) -> Counter[str]:
    return Counter(re.findall(r"\b(GET|PUT|POST|HEAD|DELETE)\b", log.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--what", default="workers,tiny", help="what to measure (workers,tiny)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    what = options.what.split(",")
    if "workers" in what:
        of_workers(options.megabytes)
    if "tiny" in what:
        tiny(options.runs)


if __name__ == "__main__":
    sys.exit(main())
