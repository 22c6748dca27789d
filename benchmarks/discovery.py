"""Looks at a landing root in S3 with many directories: requests, CPU and wall seconds, against a plain listing and dlt.

python benchmarks/discovery.py [--scale 1] [--repeats 3] [--python PYTHON | --no-dlt]

Run directories of three files each lie in the folder of an S3 server on this machine (versitygw). Some ticks of the sensor
register the first of them; the rest is written into the manifest's database, and found by further ticks. Then, in turns:

nothing new    a look in parts, as the sensor's tick has it, once all directories are registered; and one more directory
tick           the sensor's whole tick with nothing new
plain          boto3's listing of the names, a request for each thousand directories: what the least look at everything takes
files          boto3's listing of all files
dlt            dlt's source `filesystem`, which lists all files and compares their times with its state

dlt needs `s3fs`, and so another version of botocore than the platform: uv installs them in an environment of their own, or
PYTHON is that of such an environment. Last, fifty datasets of 6,000 directories look once more, in one process. The seconds of
the clock are mostly the server's.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from pairs import arguments, print_figure

from manifest_platform import aws, config
from manifest_platform.orchestration import listing
from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.pipeline import DiscoveryReport, Pipeline
from manifest_platform.pipeline.discovery import discover

DIRECTORIES, FIRST, STEP = 100_000, datetime(2024, 1, 1), timedelta(minutes=5)
FILES = ("part-00000.gz", "part-00001.gz", "_SUCCESS")
DATASET, FEED, BUCKET = "shop", "enriched", "bench"
DATASETS, EACH, ROUNDS = 50, 6_000, 3
MANY = 20_000
"""The directories from which on a listing of all names is a peer; fewer names are only a few requests."""
TICK_S = 15.0
SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
REQUESTS_GOAL, CPU_GOAL_S, LONGEST_GOAL_S, ROUND_GOAL_S, REGISTERED_GOAL_S = 3, 1.0, 60.0, 10.0, 3.0
PAUSE_GOAL_S = 15.0
PACKAGES = ("dlt[duckdb]>=1.31,<2", "s3fs")


COPIED = """
INSERT OR IGNORE INTO manifest (partition, sort, version, data)
SELECT ?, replace(sort, ?, ?), version, replace(data, ?, ?) FROM manifest WHERE partition = ?
"""


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
    """Lands a run directory."""
    directory = root / f"run={FIRST + number * STEP:%Y-%m-%d-%H-%M-%S}"
    directory.mkdir(parents=True)
    for name in FILES:
        (directory / name).touch()


@contextmanager
def counting() -> Generator[list[str]]:
    """The listing requests that the process's clients send in the block."""
    sent: list[str] = []
    name = "before-send.s3.ListObjectsV2"
    with aws.impatient():
        hurried = aws.client("s3").meta.events
    clients = (aws.client("s3").meta.events, hurried)

    def note(request: Any, **_more: Any) -> None:
        sent.append(request.url)

    for events in clients:
        events.register(name, note)
    try:
        yield sent
    finally:
        for events in clients:
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
from aiobotocore.httpsession import AIOHTTPSession
from dlt.sources.filesystem import filesystem

sent, send = [], AIOHTTPSession.send

async def counted(self, request):
    sent.append(request.url)
    return await send(self, request)

AIOHTTPSession.send = counted
pipeline = dlt.pipeline("discovery", pipelines_dir=sys.argv[1], destination=dlt.destinations.duckdb(sys.argv[1] + ".duckdb"))
files = filesystem(bucket_url="s3://%s/landing", file_glob="**/_SUCCESS")
files.apply_hints(incremental=dlt.sources.incremental("modification_date"))
cpu, began = time.process_time(), time.perf_counter()
pipeline.run(files.with_name("directories"))
print(len(sent), time.process_time() - cpu, time.perf_counter() - began)
"""
"""A pipeline run of dlt that loads the names of new directories, in an environment of its own."""


def dlt_cost(python: str | None, home: Path) -> Cost:
    """Returns the cost of a look of dlt at the root. `python`: None means an environment that uv makes."""
    names = {"RUNTIME__DLTHUB_TELEMETRY": "false", **{f"CREDENTIALS__{name}": os.environ[name] for name in SECRETS}}
    environment = {**os.environ, **names, "CREDENTIALS__ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"]}
    made = [str(Path(sys.executable).parent / "uv"), "run", "--isolated", "--no-project", "--python", sys.executable]
    runs = [python] if python else [*made, *(word for name in PACKAGES for word in ("--with", name)), "python"]
    line = [*runs, "-c", DLT % BUCKET, str(home / "dlt")]
    done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    requests, cpu, wall = done.stdout.split()[-3:]
    return Cost(int(requests), float(cpu), float(wall))


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


def configure(home: Path, roots: Sequence[str]) -> Path:
    """Writes a configuration of a dataset for each landing root, and a manifest beside it."""
    every = {
        named(number): {
            "landing": {"root": f"s3://{BUCKET}/{root}"},
            "shred": {"output": str(home / "out" / root), "schemas": ["schemas"]},
        }
        for number, root in enumerate(roots)
    }
    home.mkdir(exist_ok=True)
    file = home / "manifest_platform.yaml"
    file.write_text(yaml.safe_dump({"datasets": every, "manifest": {"store": "sqlite:///manifest.db"}}))
    return file


def named(number: int) -> str:
    """The name of a dataset."""
    return f"{DATASET}{number:02}"


class Sensor:
    """The listing sensor of the first dataset, ticked as Dagster's daemon does.

    `paused`: the seconds of the pause after each tick.
    """

    def __init__(self, file: Path, instance: dg.DagsterInstance):
        self.paused: list[float] = []
        self._file, self._instance, self._cursor = str(file), instance, None
        self._sensor = build_defs(file).resolve_sensor_def(f"{named(0)}_listing_sensor")

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that the sensor keeps between its ticks."""
        return listing._pipeline(self._file, named(0))

    def tick(self) -> Cost:
        """Ticks once, and takes over the partitions and events as the daemon does, which does not count.

        It waits for the end of the sensor's pause before that.
        """
        time.sleep(self._pause)
        resources = {"manifest": ManifestResource(config_file=self._file)}
        results: list[Any] = []
        with dg.build_sensor_context(instance=self._instance, cursor=self._cursor, resources=resources) as context:
            taken = cost(lambda: results.append(self._sensor(context)))
        [result] = results
        for request in result.dynamic_partitions_requests or ():
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self._instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
        for event in result.asset_events:
            self._instance.report_runless_asset_event(event)
        self._cursor = result.cursor
        self.paused.append(self._pause)
        return taken

    @property
    def _pause(self) -> float:
        turn = listing._turns.get((self._file, named(0)))
        return max(0.0, turn.until - time.monotonic()) if turn else 0.0

    def first_ticks(self, count: int, most: int) -> None:
        """Ticks until everything is registered, at most `most` of them by ticks that register, and prints what that cost."""
        costs = [self.tick()]
        while self._goes_on and len(costs) < most:
            costs.append(self.tick())
        done = sum(1 for _ in self.pipeline.manifest.items(FEED))
        if self._goes_on:
            fill(Path(self._file).parent / "manifest.db", done, count)
            costs.append(self.tick())
            while self._goes_on:
                costs.append(self.tick())
        _sum(costs).told(f"first {len(costs)} ticks")
        print_figure(f"CPU, a thousand of {done:,}", _sum(costs[:most]).cpu / done * 1000, REGISTERED_GOAL_S, " s")
        print_figure("longest tick", max(one.wall for one in costs), LONGEST_GOAL_S, " s")
        assert not any(self.paused[:-1]), "there is no pause while a look goes on"
        rest = [cost(lambda: discover(self.pipeline, seconds=TICK_S))]
        while self.pipeline.manifest.full_listing(FEED).beyond:
            rest.append(cost(lambda: discover(self.pipeline, seconds=TICK_S)))
        assert sum(1 for _ in self.pipeline.manifest.items(FEED)) == count
        _sum(rest).told(f"full listing, {len(rest)} looks")

    @property
    def _goes_on(self) -> bool:
        return self.pipeline.sights[FEED].goes_on


def _sum(costs: Sequence[Cost]) -> Cost:
    return Cost(sum(one.requests for one in costs), sum(one.cpu for one in costs), sum(one.wall for one in costs))


def fill(database: Path, first: int, count: int) -> None:
    """Writes the items of the directories from the first on, as copies of the first item of all."""
    known = f"{FIRST:%Y-%m-%d-%H-%M-%S}"
    connection = sqlite3.connect(database)
    chosen = "SELECT sort, version, data FROM manifest WHERE partition = ? AND instr(sort, ?)"
    template = connection.execute(chosen, (named(0), known)).fetchall()
    names = (f"{FIRST + number * STEP:%Y-%m-%d-%H-%M-%S}" for number in range(first, count))
    rows = (
        (named(0), sort.replace(known, name), version, data.replace(known, name))
        for name in names
        for sort, version, data in template
    )
    connection.executemany("INSERT OR IGNORE INTO manifest (partition, sort, version, data) VALUES (?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()


def copy_items(database: Path, roots: Sequence[str]) -> None:
    """Gives all datasets the rows of the first, as if each had registered the directories of its root."""
    connection = sqlite3.connect(database)
    for number, root in enumerate(roots[1:], start=1):
        said = f"/{roots[0]}/", f"/{root}/"
        connection.execute(COPIED, (named(number), *said, *said, named(0)))
    connection.commit()
    connection.close()


def rounds(home: Path, bucket: Path, scale: float) -> None:
    """Prints what a look of each of many datasets costs, with nothing new."""
    count, datasets = int(EACH * scale), max(2, int(DATASETS * scale))
    roots = [f"each/{number:02}" for number in range(datasets)]
    for root, number in itertools.product(roots, range(count)):
        land(bucket / root, number)
    settings = config.load(configure(home, roots))
    with Pipeline(settings, named(0)) as first:
        assert len(discover(first).new) == count
    copy_items(home / "manifest.db", roots)
    with ExitStack() as stack:
        pipelines = [stack.enter_context(Pipeline(settings, named(number))) for number in range(datasets)]
        found: list[DiscoveryReport] = []
        taken = [cost(lambda: found.extend(discover(one, seconds=TICK_S) for one in pipelines)) for _ in range(1 + ROUNDS)]
    assert not any(one.registered or one.changed or one.moved for one in found), "nothing is new"
    taken[0].told(f"first round, {datasets} datasets")
    taken[-1].told("a later round")
    print_figure(f"CPU, {datasets} of {count:,}", max(one.cpu for one in taken[1:]), ROUND_GOAL_S, " s")


def turns(sensor: Sensor, root: Path, count: int, repeats: int, peers: dict[str, Callable[[], Cost]]) -> None:
    """Measures us and the peers in turns, and prints the ratios."""
    costs: dict[str, list[Cost]] = {}
    for turn in range(repeats):
        for _ in range(3):
            costs.setdefault("nothing new", []).append(cost(lambda: discover(sensor.pipeline, seconds=TICK_S)))
        costs.setdefault("tick", []).append(sensor.tick())
        land(root, count + turn)
        costs.setdefault("one new", []).append(cost(lambda: discover(sensor.pipeline, seconds=TICK_S)))
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
        if peer == "plain" and count < MANY:
            continue
        print_figure(f"CPU, ours by {peer}", medians["nothing new"] / medians[peer], 1)


def main() -> None:
    parser = arguments(__doc__, 3, f"{DIRECTORIES:,} directories")
    parser.add_argument("--python", help="that of an environment with dlt and s3fs, instead of the one that uv makes")
    parser.add_argument("--no-dlt", action="store_true", help="leave out dlt, which takes minutes a turn")
    parser.add_argument("--ticks", type=int, default=20, help="the number of ticks that register directories (20)")
    options = parser.parse_args()
    count = int(DIRECTORIES * options.scale)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with served(home, count) as root, dg.DagsterInstance.ephemeral() as instance:
            sensor = Sensor(configure(home, [root.name]), instance)
            sensor.first_ticks(count, options.ticks)
            peers: dict[str, Callable[[], Cost]] = {
                "plain": lambda: cost(lambda: list_all("/")),
                "files": lambda: cost(lambda: list_all("")),
            }
            if not options.no_dlt:
                peers["dlt"] = lambda: dlt_cost(options.python, home)
                peers["dlt"]().told("dlt, first time")
            turns(sensor, root, count, options.repeats, peers)
            print_figure("longest pause", max(sensor.paused), PAUSE_GOAL_S, " s")
            listing._forget(str(home / "manifest_platform.yaml"), named(0))
            rounds(home / "many", root.parent, options.scale)


if __name__ == "__main__":
    main()
