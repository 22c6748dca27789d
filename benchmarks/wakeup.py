"""How long a directory waits until it is loaded: by `drain --follow`, and by Dagster's sensor. SQLite, DuckDB, a local Spark.

python benchmarks/wakeup.py [--repeats 10] [--before 3000] [--ways local dynamodb s3 sensor]

--before directories of three files have landed and are known before anything is measured, locally and in S3.

local         a follower whose landing is a local folder:
  queryable   from the marker of a small run until its rows can be read by others, with Spark warm
  cold        the same, if a drain is started for the directory: what is left of a sensor's way without its waits
  ready       from an item that another process has made ready until its load begins
  idle        CPU seconds and requests to the manifest's store in a minute in which nothing happens
dynamodb      ready, if the manifest is in DynamoDB Local, whose stream wakes the follower
s3            queryable, if landing is in S3: a server (versitygw), which posts its events to the follower
sensor        queryable, by Dagster's daemon and code server, each drain a process with a Spark of its own: until the sensor
              asks for the run, until the run begins, and its work. Directories land at even distances between two ticks
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import yaml
from pairs import arguments, print_figure
from prepared import REPOSITORY, write_listing

from manifest_platform import config
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.demo.server import free_port, running
from manifest_platform.listing import Column, Table
from manifest_platform.manifest.skip_rules import SkipRule
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.shredding import shredded_payload
from manifest_platform.sources.snowplow.settings import FEED

DATASET, FIRST, STEP, EVENTS, COLD = "shop", datetime(2024, 5, 14, 12, tzinfo=UTC), timedelta(minutes=10), 20, 1
GOAL_S, SENSOR_GOAL_S, READY_GOAL_S, IDLE_S, SENSOR_TURNS = 2.0, 15.0, 0.5, 20, 5
FILES = ("part-00000.gz", "part-00001.gz", "_SUCCESS")
PATIENCE_S, TICK_S = 300.0, 5.0
TABLE = Table("clicks", (Column("event_id", "string"), Column("position", "integer")))


class Follower:
    """A process of `drain --follow`, and the documents that it has printed, with the time of each."""

    def __init__(self, file: Path, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/healthz"
        line = [sys.executable, "-m", "manifest_platform", "--config", str(file), "drain", "--follow", "--json"]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=file.with_name("log").open("w"), text=True)
        self._documents: list[dict[str, Any]] = []
        self._change = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._change:
                self._documents.append(json.loads(line) | {"at": time.time()})
                self._change.notify_all()

    def wait(self, found: Callable[[dict[str, Any]], bool], after: float = 0) -> dict[str, Any]:
        def first() -> dict[str, Any] | None:
            return next((one for one in self._documents if one["at"] >= after and found(one)), None)

        with self._change:
            assert self._change.wait_for(first, PATIENCE_S), self._documents
            return first() or {}

    def loaded(self, name: str) -> dict[str, Any]:
        return self.wait(lambda one: one.get("event") == "loaded" and one["item"] == name)

    def is_idle(self) -> bool:
        return self.health["doing"] == "idle"

    @property
    def health(self) -> dict[str, Any]:
        return httpx.get(self._url, trust_env=False).json()["datasets"][DATASET]

    @property
    def cpu(self) -> float:
        """The CPU seconds of the process, without Java's."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


def write_config(home: Path, store: str = "sqlite:///manifest.db", **landing: str) -> tuple[Path, int]:
    """Writes a configuration, by default of a local landing. Returns its file, and the port of the follower's health."""
    port = free_port()
    (home / "landing").mkdir(parents=True)
    shred = {"output": "shredded", "schemas": [str(SCHEMAS)]}
    whole = {
        "datasets": {DATASET: {"landing": landing or {"root": "landing"}, "shred": shred}},
        "manifest": {"store": store},
        "warehouse": {"path": "warehouse.duckdb"},
        "spark": {"conf": str(REPOSITORY / "spark_conf" / "local.conf")},
        "follow": {"health": f"127.0.0.1:{port}"},
    }
    file = home / "manifest_platform.yaml"
    file.write_text(yaml.safe_dump(whole))
    return file, port


@contextmanager
def process_of(file: Path, port: int) -> Generator[Follower]:
    follower = Follower(file, port)
    try:
        follower.wait(lambda one: one.get("event") == "following")
        yield follower
    finally:
        follower.process.terminate()
        follower.process.wait(60)


@contextmanager
def following(file: Path, port: int) -> Generator[Follower]:
    """A follower that has started Spark, and waits."""
    with process_of(file, port) as follower:
        wait_until(follower.is_idle)
        yield follower


def land(root: Path | str, number: int) -> tuple[str, float]:
    """Lands a run. Returns its name, and the time when it was complete."""
    write_run(str(root), FIRST + number * STEP, EVENTS, seed=1)
    return run_name(number), time.time()


def run_name(number: int) -> str:
    return f"run={FIRST + number * STEP:%Y-%m-%d-%H-%M-%S}"


def land_before(file: Path, folder: Path, count: int) -> None:
    """Puts directories into the folder of a landing root, and registers them as skipped, so that nobody works on them."""
    for number in range(-count, 0):
        (directory := folder / run_name(number)).mkdir(parents=True)
        for name in FILES:
            (directory / name).touch()
    with Pipeline(config.load(file), DATASET) as pipeline:
        pipeline.manifest.add_skip_rule(SkipRule("landed before", before=FIRST))
        assert len(discover(pipeline, everything=True).skipped) == count


def queryable(root: Path | str, follower: Follower, number: int) -> float:
    name, complete = land(root, number)
    loaded = follower.loaded(name)
    return follower.wait(lambda one: one.get("event") == "ended", loaded["at"])["at"] - complete


def cold(home: Path, file: Path, number: int) -> float:
    _, complete = land(home / "landing", number)
    subprocess.run([sys.executable, "-m", "manifest_platform", "--config", str(file), "drain"], check=True, capture_output=True)
    return time.time() - complete


def ready(home: Path, file: Path, follower: Follower, number: int) -> float:
    """Another process registers a run, and shreds it as a follower elsewhere would."""
    rows = pa.table({"event_id": [str(number)], "position": pa.array([1], pa.int32())})
    with Pipeline(config.load(file), DATASET) as pipeline, pipeline.lease(FEED, SHRED) as lease:
        name, _ = land(home / "landing", number)
        discover(pipeline)
        listing = write_listing(home / "made" / str(number), [(TABLE, [rows])])
        [claim] = pipeline.manifest.claim(lease, pipeline.manifest.waiting(FEED, SHRED, 1)[0])
        pipeline.manifest.complete(claim, shredded_payload(listing, f"{listing.item}/listing.json"))
        made = time.time()
    loaded = follower.loaded(name)
    return loaded["at"] - loaded["seconds"] - made


def tell(name: str, seconds: Sequence[float]) -> None:
    print(f"{name:10} {', '.join(f'{one:.2f}' for one in sorted(seconds))} s", flush=True)


def follow_local(home: Path, repeats: int, idle_s: float, before: int) -> None:
    file, port = write_config(home)
    land_before(file, home / "landing", before)
    colds = [cold(home, file, number) for number in range(COLD)]
    with following(file, port) as follower:
        queryable(home / "landing", follower, COLD)  # the first Spark job
        numbers = range(COLD + 1, COLD + 1 + repeats)
        waits = [queryable(home / "landing", follower, number) for number in numbers]
        begins = [ready(home, file, follower, numbers[-1] + 1 + turn) for turn in range(repeats)]
        time.sleep(2)
        cpu, requests = follower.cpu, follower.health["requests"]
        time.sleep(idle_s)
        cpu, requests = follower.cpu - cpu, follower.health["requests"] - requests
    tell("queryable", waits)
    tell("cold", colds)
    tell("ready", begins)
    print_figure("complete to queryable, with a follower", statistics.median(waits), GOAL_S, " s")
    print(f"  by a drain that is started for it: {statistics.median(colds):.1f} s, and a sensor's waits before that")
    print_figure("ready to the beginning of its load", statistics.median(begins), READY_GOAL_S, " s")
    print(f"idle: {cpu * 60 / idle_s:.2f} CPU seconds and {requests * 60 / idle_s:.1f} requests a minute")


def follow_dynamodb(home: Path, repeats: int) -> None:
    from manifest_platform.demo.dynamodb import dynamodb_local
    from manifest_platform.manifest.stores.dynamodb.table import create_table

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "local")
    home.mkdir()
    with dynamodb_local(home / "dynamodb.log") as server:
        create_table(store := server.store("manifest"))
        file, port = write_config(home, store)
        with following(file, port) as follower:
            queryable(home / "landing", follower, 0)
            begins = [ready(home, file, follower, number) for number in range(1, 1 + repeats)]
    tell("dynamodb", begins)
    print_figure("ready to the beginning of its load, DynamoDB", statistics.median(begins), READY_GOAL_S, " s")


def follow_s3(home: Path, repeats: int, before: int) -> None:
    import boto3

    from manifest_platform.demo import s3

    port, posts = free_port(), free_port()
    os.environ.update(s3.S3Server(f"http://127.0.0.1:{port}").environment)
    file, health = write_config(home, root="s3://landed/enriched", notify=f"http://127.0.0.1:{posts}")
    (home / "data").mkdir()
    command = s3.command(home / "data", port, f"http://127.0.0.1:{posts}")
    with ExitStack() as stack:
        with running(s3.command(home / "data", port), port, home / "s3.log", s3.environment()):
            boto3.Session().client("s3").create_bucket(Bucket="landed")
            land_before(file, home / "data" / "landed" / "enriched", before)
        follower = stack.enter_context(process_of(file, health))
        follower.wait(lambda one: one.get("event") == "hindered")  # it listens, and the server starts only then
        stack.enter_context(running(command, port, home / "s3.log", s3.environment()))
        wait_until(follower.is_idle)
        queryable("s3://landed/enriched", follower, 0)
        waits = [queryable("s3://landed/enriched", follower, number) for number in range(1, 1 + repeats)]
    tell("s3", waits)
    print_figure("complete to queryable in S3, with a follower", statistics.median(waits), GOAL_S, " s")


def wait_until(found: Callable[[], object]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := found()):
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)
    return answer


@contextmanager
def dagster_runs(home: Path, file: Path) -> Generator[Callable[[], list[Any]]]:
    """Dagster's daemon with a code server, as they run in production. Yields a function that returns its runs, newest first."""
    os.environ |= {"DAGSTER_HOME": str(home / "dagster"), "MANIFEST_PLATFORM_CONFIG": str(file)}
    (home / "dagster").mkdir()
    shutil.copy(REPOSITORY / "dagster.yaml", home / "dagster")
    from dagster import DagsterInstance

    with DagsterInstance.get() as instance, (home / "daemon.log").open("w") as log:
        line = [sys.executable, "-m", "dagster._daemon", "run", "-w", str(REPOSITORY / "workspace.yaml")]
        daemon = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)
        try:
            yield lambda: list(instance.get_run_records(limit=5))
        finally:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()


def ended_since(run: Any, since: float) -> bool:
    return run.create_timestamp.timestamp() > since and run.end_time is not None


def by_sensor(home: Path, repeats: int) -> None:
    file, _ = write_config(home)
    waits: list[list[float]] = []
    with dagster_runs(home, file) as runs:
        for number in range(1 + repeats):
            time.sleep(TICK_S * number / (1 + repeats))
            _, complete = land(home / "landing", number)
            run = wait_until(lambda since=complete: next(filter(lambda one: ended_since(one, since), runs()), None))
            assert run.dagster_run.is_success
            asked = run.create_timestamp.timestamp()
            waits.append([asked - complete, run.start_time - asked, run.end_time - run.start_time, run.end_time - complete])
    for name, seconds in zip(("asked", "begins", "works", "sensor"), zip(*waits[1:], strict=True), strict=True):
        tell(name, seconds)
    print_figure("complete to queryable, by the sensor", statistics.median(one[-1] for one in waits[1:]), SENSOR_GOAL_S, " s")


def main() -> None:
    parser = arguments(__doc__, 10, "20 events a run")
    parser.add_argument("--before", type=int, default=3000, help="directories that have landed before (3000)")
    parser.add_argument("--idle", type=float, default=IDLE_S, help=f"seconds without work ({IDLE_S})")
    ways = ["local", "dynamodb", "s3", "sensor"]
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        if "local" in options.ways:
            follow_local(home / "local", options.repeats, options.idle, options.before)
        if "dynamodb" in options.ways:
            follow_dynamodb(home / "dynamodb", options.repeats)
        if "s3" in options.ways:
            follow_s3(home / "s3", options.repeats, options.before)
        if "sensor" in options.ways:
            by_sensor(home / "sensor", min(options.repeats, SENSOR_TURNS))


if __name__ == "__main__":
    main()
