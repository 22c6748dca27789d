"""Looks at a landing root in S3 with many directories: requests, CPU and wall seconds, against a plain listing and dlt.

python benchmarks/discovery.py [--scale 1] [--repeats 3] [--dlt PYTHON]

Run directories of three files each lie in the folder of an S3 server on this machine (versitygw). Then, in turns:

nothing new    a look in parts, as the sensor's tick has it, once all directories are registered, and one more directory
plain          boto3's listing of the names, a request for each thousand directories: what the least look at everything takes
files          boto3's listing of all files
dlt            dlt's source `filesystem`, which lists all files and compares their times with its state. PYTHON is
               that of an environment with `dlt[duckdb]` and `s3fs`, which needs another version of botocore than the platform

The first looks, which register everything, are reported too. The seconds of the clock are mostly the server's.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from pairs import arguments, print_figure

from manifest_platform import aws, config
from manifest_platform.pipeline import DiscoveryReport, Pipeline
from manifest_platform.pipeline.discovery import discover

DIRECTORIES, FIRST, STEP = 100_000, datetime(2024, 1, 1), timedelta(minutes=5)
FILES = ("part-00000.gz", "part-00001.gz", "_SUCCESS")
DATASET, BUCKET = "shop", "bench"
TICK_S = 15.0
SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
REQUESTS_GOAL, CPU_GOAL_S, LONGEST_GOAL_S = 3, 1.0, 60.0


@dataclass(frozen=True)
class Cost:
    """The cost of a look."""

    requests: int
    cpu: float
    wall: float

    def told(self, what: str) -> None:
        """Prints a line."""
        print(f"{what:24} {self.requests:5} requests   {self.cpu:7.2f} s CPU   {self.wall:7.1f} s", flush=True)


def land(root: Path, number: int) -> None:
    directory = root / f"run={FIRST + number * STEP:%Y-%m-%d-%H-%M-%S}"
    directory.mkdir(parents=True)
    for name in FILES:
        (directory / name).touch()


@contextmanager
def counting() -> Generator[list[str]]:
    """The listing requests that the process's client sends in the block."""
    sent: list[str] = []
    events, name = aws.client("s3").meta.events, "before-send.s3.ListObjectsV2"

    def note(request: Any, **_more: Any) -> None:
        sent.append(request.url)

    events.register(name, note)
    try:
        yield sent
    finally:
        events.unregister(name, note)


def cost(work: Callable[[], object]) -> Cost:
    """Returns the cost of some work."""
    with counting() as sent:
        cpu, began = time.process_time(), time.perf_counter()
        work()
        return Cost(len(sent), time.process_time() - cpu, time.perf_counter() - began)


def list_all(delimiter: str) -> int:
    """Lists a root with boto3 alone, page by page."""
    pages = aws.client("s3").get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="landing/", Delimiter=delimiter)
    return sum(len(page.get("CommonPrefixes", ())) + len(page.get("Contents", ())) for page in pages)


DLT = """
import dlt, sys, time
from dlt.sources.filesystem import filesystem

pipeline = dlt.pipeline("discovery", pipelines_dir=sys.argv[1], destination=dlt.destinations.duckdb(sys.argv[1] + ".duckdb"))
files = filesystem(bucket_url="s3://%s/landing", file_glob="**/_SUCCESS")
files.apply_hints(incremental=dlt.sources.incremental("modification_date"))
cpu, began = time.process_time(), time.perf_counter()
pipeline.run(files.with_name("directories"))
print(time.process_time() - cpu, time.perf_counter() - began)
"""
"""A pipeline run of dlt that loads the names of new directories, in an environment of its own."""


def dlt_cost(python: str, home: Path) -> Cost:
    """A look of dlt at the root. Its requests are not counted."""
    names = {"RUNTIME__DLTHUB_TELEMETRY": "false", **{f"CREDENTIALS__{name}": os.environ[name] for name in SECRETS}}
    environment = {**os.environ, **names, "CREDENTIALS__ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"]}
    line = [python, "-c", DLT % BUCKET, str(home / "dlt")]
    done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    cpu, wall = map(float, done.stdout.split()[-2:])
    return Cost(0, cpu, wall)


@contextmanager
def served(home: Path, count: int) -> Generator[Path]:
    """An S3 server with that many directories, in whose environment the process works. Yields the folder of the root."""
    from manifest_platform_tests.servers.s3 import S3Server, s3_at

    with s3_at(home) as endpoint:
        os.environ.update(S3Server(endpoint).environment)
        root = home / "data" / BUCKET / "landing"
        for number in range(count):
            land(root, number)
        yield root


def configure(home: Path) -> Path:
    shred = {"output": str(home / "out"), "schemas": ["schemas"]}
    dataset = {"landing": {"root": f"s3://{BUCKET}/landing"}, "shred": shred}
    file = home / "manifest_platform.yaml"
    file.write_text(yaml.safe_dump({"datasets": {DATASET: dataset}, "manifest": {"store": "sqlite:///manifest.db"}}))
    return file


def first_looks(pipeline: Pipeline, count: int) -> None:
    """Registers everything by looks in parts, and prints what they cost."""
    reports: list[DiscoveryReport] = []
    costs = []
    while not reports or reports[-1].goes_on:
        costs.append(cost(lambda: reports.append(discover(pipeline, seconds=TICK_S))))
    assert sum(len(one.registered) for one in reports) == count
    whole = Cost(sum(one.requests for one in costs), sum(one.cpu for one in costs), sum(one.wall for one in costs))
    whole.told(f"first time, {len(costs)} looks")
    print_figure("longest look", max(one.wall for one in costs), LONGEST_GOAL_S, " s")


def main() -> None:
    parser = arguments(__doc__, 3, f"{DIRECTORIES:,} directories")
    parser.add_argument("--dlt", metavar="PYTHON", help="compare with dlt in this environment, which takes minutes a turn")
    options = parser.parse_args()
    count = int(DIRECTORIES * options.scale)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with served(home, count) as root, Pipeline(config.load(configure(home)), DATASET) as pipeline:
            first_looks(pipeline, count)
            peers: dict[str, Callable[[], Cost]] = {
                "plain": lambda: cost(lambda: list_all("/")),
                "files": lambda: cost(lambda: list_all("")),
            }
            if options.dlt:
                peers["dlt"] = lambda: dlt_cost(options.dlt, home)
                peers["dlt"]().told("dlt, first time")
            costs: dict[str, list[Cost]] = {}
            for turn in range(options.repeats):
                for _ in range(3):
                    costs.setdefault("nothing new", []).append(cost(lambda: discover(pipeline, seconds=TICK_S)))
                land(root, count + turn)
                costs.setdefault("one new", []).append(cost(lambda: discover(pipeline, seconds=TICK_S)))
                for name, look in peers.items():
                    costs.setdefault(name, []).append(look())
    medians = {name: statistics.median(one.cpu for one in found) for name, found in costs.items()}
    for name, found in costs.items():
        wall = statistics.median(one.wall for one in found)
        Cost(max(one.requests for one in found), medians[name], wall).told(name)
    ours = costs["nothing new"]
    print_figure("requests, nothing new", max(one.requests for one in ours), REQUESTS_GOAL)
    print_figure("CPU, nothing new", max(one.cpu for one in ours), CPU_GOAL_S, " s")
    for peer in peers:
        print_figure(f"CPU, ours by {peer}", medians["nothing new"] / medians[peer], 1)


if __name__ == "__main__":
    main()
