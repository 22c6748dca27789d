"""How long a directory waits for a follower: `drain --follow` on local files, SQLite, DuckDB and a local Spark.

python benchmarks/wakeup.py [--repeats 20]

queryable     from the marker of a small run until its rows can be read by others, with Spark warm
cold          the same, if a drain is started for the directory: what is left of a sensor's way without its waits
ready         from an item that another process has made ready until its load begins
idle          CPU seconds and requests to the manifest's store in a minute in which nothing happens
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
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
from manifest_platform.listing import Column, Table
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.shredding import shredded_payload
from manifest_platform.sources.snowplow.settings import FEED

DATASET, FIRST, EVENTS, COLD = "shop", datetime(2024, 5, 14, 12, tzinfo=UTC), 20, 3
GOAL_S, READY_GOAL_S, IDLE_S = 2.0, 0.5, 60
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
            assert self._change.wait_for(first, 120), self._documents
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


def write_config(home: Path) -> tuple[Path, int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (home / "landing").mkdir()
    shred = {"output": "shredded", "schemas": [str(SCHEMAS)]}
    whole = {
        "datasets": {DATASET: {"landing": {"root": "landing"}, "shred": shred}},
        "manifest": {"store": "sqlite:///manifest.db"},
        "warehouse": {"path": "warehouse.duckdb"},
        "spark": {"conf": str(REPOSITORY / "spark_conf" / "local.conf")},
        "follow": {"health": f"127.0.0.1:{port}"},
    }
    file = home / "manifest_platform.yaml"
    file.write_text(yaml.safe_dump(whole))
    return file, port


@contextmanager
def following(file: Path, port: int) -> Generator[Follower]:
    """A follower that has started Spark, and waits."""
    follower = Follower(file, port)
    try:
        follower.wait(lambda one: one.get("event") == "following")
        while not follower.is_idle():
            time.sleep(0.2)
        yield follower
    finally:
        follower.process.terminate()
        follower.process.wait(60)


def land(home: Path, number: int) -> tuple[str, float]:
    """Lands a run. Returns its name, and the time when it was complete."""
    write_run(str(home / "landing"), FIRST + number * timedelta(minutes=10), EVENTS, seed=1)
    return f"run={FIRST + number * timedelta(minutes=10):%Y-%m-%d-%H-%M-%S}", time.time()


def queryable(home: Path, follower: Follower, number: int) -> float:
    name, complete = land(home, number)
    loaded = follower.loaded(name)
    return follower.wait(lambda one: one.get("event") == "ended", loaded["at"])["at"] - complete


def cold(home: Path, file: Path, number: int) -> float:
    _, complete = land(home, number)
    subprocess.run([sys.executable, "-m", "manifest_platform", "--config", str(file), "drain"], check=True, capture_output=True)
    return time.time() - complete


def ready(home: Path, file: Path, follower: Follower, number: int) -> float:
    """Another process registers a run, and shreds it as a follower elsewhere would."""
    rows = pa.table({"event_id": [str(number)], "position": pa.array([1], pa.int32())})
    with Pipeline(config.load(file), DATASET) as pipeline, pipeline.lease(FEED, SHRED) as lease:
        name, _ = land(home, number)
        discover(pipeline)
        listing = write_listing(home / "made" / str(number), [(TABLE, [rows])])
        [claim] = pipeline.manifest.claim(lease, pipeline.manifest.waiting(FEED, SHRED, 1)[0])
        pipeline.manifest.complete(claim, shredded_payload(listing, f"{listing.item}/listing.json"))
        made = time.time()
    loaded = follower.loaded(name)
    return loaded["at"] - loaded["seconds"] - made


def main() -> None:
    parser = arguments(__doc__, 20, "20 events a run")
    parser.add_argument("--idle", type=float, default=IDLE_S, help=f"seconds without work ({IDLE_S})")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        file, port = write_config(home)
        colds = [cold(home, file, number) for number in range(COLD)]
        with following(file, port) as follower:
            queryable(home, follower, COLD)  # the first Spark job
            numbers = range(COLD + 1, COLD + 1 + options.repeats)
            waits = [queryable(home, follower, number) for number in numbers]
            begins = [ready(home, file, follower, numbers[-1] + 1 + turn) for turn in range(options.repeats)]
            time.sleep(2)
            cpu, requests = follower.cpu, follower.health["requests"]
            time.sleep(options.idle)
            cpu, requests = follower.cpu - cpu, follower.health["requests"] - requests
    for name, seconds in (("queryable", waits), ("cold", colds), ("ready", begins)):
        print(f"{name:10} {', '.join(f'{one:.2f}' for one in sorted(seconds))} s")
    print_figure("complete to queryable, with a follower", statistics.median(waits), GOAL_S, " s")
    print(f"  by a drain that is started for it: {statistics.median(colds):.1f} s, and a sensor's waits before that")
    print_figure("ready to the beginning of its load", statistics.median(begins), READY_GOAL_S, " s")
    print(f"idle: {cpu * 60 / options.idle:.2f} CPU seconds and {requests * 60 / options.idle:.1f} requests a minute")


if __name__ == "__main__":
    main()
