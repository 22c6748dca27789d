"""Shredding the next batch while the batch before is loaded, against doing one after the other.

    python benchmarks/overlap.py [--repeats 3] [--scale 1] [--latency-ms 0 25] [--batch 5]

The same 20 runs of demo events (5 MB each at scale 1) are drained from registered to loaded, with Spark of two cores:

    ahead    one drain that shreds the next batch while it loads
    turns    one drain that shreds and loads by turns (`shred.ahead: false`)
    four     four drains of the dataset in four processes

once into a DuckDB file, and once for each latency above 0 into PostgreSQL behind a relay that holds back each answer for it, as
a warehouse elsewhere does. Each process has its Spark session before the time begins; it ends when the last process ended. Each
way begins with a manifest and a warehouse of its own, and must load each run once.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the servers of the tests

import psycopg
import yaml
from pairs import arguments, interleaved, print_medians, print_ratio
from prepared import DATASET, REPOSITORY
from psycopg.sql import SQL, Identifier

from manifest_platform import config
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.pipeline import DrainReport, Pipeline
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.drain import drain
from manifest_platform.spark import session
from manifest_platform_tests.servers.postgres import Postgres, postgres_at

RUNS, EVENTS = 20, 3_300
CORES = 2
GOALS = {"duckdb": 1.0, "postgresql": 0.9}
FIRST = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Relay:
    """Passes the bytes between clients on a port and a PostgreSQL socket, answers after a delay."""

    def __init__(self, folder: str, seconds: float) -> None:
        self._server, self._seconds = f"{folder}/.s.PGSQL.5432", seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            for source, sink, wait in ((client, server, 0.0), (server, client, self._seconds)):
                threading.Thread(target=self._pass, args=(source, sink, wait), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket, wait: float) -> None:
        with suppress(OSError):
            while block := source.recv(1 << 20):
                time.sleep(wait)
                sink.sendall(block)
            sink.shutdown(socket.SHUT_WR)


def write_config(home: Path, landing: Path, warehouse: dict[str, Any], batch: int, ahead: bool) -> Path:
    """Writes the configuration of one way."""
    conf = home / "local.conf"
    text = (REPOSITORY / "spark_conf" / "local.conf").read_text()
    conf.write_text(text.replace("local[*]", f"local[{CORES}]"))
    shred = {"output": str(home / "shredded"), "schemas": [str(SCHEMAS)], "batch": batch, "ahead": ahead}
    whole = {
        "datasets": {DATASET: {"landing": {"root": str(landing)}, "shred": shred}},
        "manifest": {"store": "sqlite:///manifest.db"},
        "warehouse": warehouse,
        "spark": {"conf": str(conf)},
    }
    file = home / "manifest_platform.yaml"
    file.write_text(yaml.safe_dump(whole))
    return file


def work(file: str) -> None:
    """Drains in this process: says when Spark is there, waits for a line, and prints what was loaded and when it ended."""
    logging.disable(logging.WARNING)
    settings = config.load(file)
    spark = session(settings.spark.conf)
    spark.range(0, CORES, 1, CORES).mapInArrow(lambda batches: batches, "id bigint").collect()
    print("ready", flush=True)
    sys.stdin.readline()
    with Pipeline(settings, DATASET) as pipeline:
        *_, report = drain(pipeline, lambda: spark)
    assert isinstance(report, DrainReport)
    print(json.dumps({"loaded": report.loaded, "stop": report.stop, "ended": time.time()}), flush=True)


def started(command: list[str]) -> subprocess.Popen[str]:
    """Starts a process that waits for a line."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)


def timed(landing: Path, warehouse: dict[str, Any], batch: int, ahead: bool, drains: int) -> float:
    """Seconds from all processes ready to all ended."""
    with tempfile.TemporaryDirectory() as folder, empty(warehouse) as of_this_way:
        file = write_config(Path(folder), landing, of_this_way, batch, ahead)
        with Pipeline(config.load(file), DATASET) as pipeline:
            discover(pipeline, everything=True)
        command = [sys.executable, __file__, "--work", str(file)]
        processes = [started(command) for _ in range(drains)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        began = time.time()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        reports = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    assert sum(report["loaded"] for report in reports) == RUNS, reports
    return max(report["ended"] for report in reports) - began


@contextmanager
def empty(warehouse: dict[str, Any]) -> Generator[dict[str, Any]]:
    """Yields the settings of an empty warehouse: a file beside the configuration, or a database of its own on the server."""
    if "server" not in warehouse:
        yield {"path": "warehouse.duckdb"}
        return
    name = f"overlap_{time.time_ns()}"
    with psycopg.connect(warehouse["server"], autocommit=True) as server:
        server.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        yield {"kind": "postgresql", "url": f"postgresql://postgres@127.0.0.1:{warehouse['port']}/{name}?sslmode=disable"}
        server.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


def compare(what: str, landing: Path, warehouse: dict[str, Any], batch: int, repeats: int) -> None:
    """Measures all ways into one warehouse by turns."""
    one = partial(timed, landing, warehouse, batch)
    ways = {"ahead": partial(one, True, 1), "turns": partial(one, False, 1), "four": partial(one, True, 4)}
    seconds = interleaved(ways, repeats)
    print_medians(seconds)
    goal = GOALS[what.partition(" ")[0]]
    print_ratio(f"{what}: one drain", seconds, "ahead", "turns", goal)
    print_ratio(f"{what}: four drains", seconds, "four", "turns", goal)


def main() -> None:
    parser = arguments(__doc__, 3, f"{RUNS} runs of 5 MB")
    parser.add_argument("--latency-ms", type=int, nargs="+", default=[0, 25], help="of the warehouse; 0: a DuckDB file")
    parser.add_argument("--batch", type=int, default=5, help="runs in a Spark job (5)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as root, postgres_at(Path(root)) as folder:
        landing = Path(root) / "landing"
        for number in range(RUNS):
            write_run(landing, FIRST + number * timedelta(minutes=10), int(EVENTS * options.scale), seed=number, parts=2)
        size = sum(part.stat().st_size for part in landing.rglob("part-*")) / 1e6
        print(f"{RUNS} runs, {size:.0f} MB, {options.batch} a Spark job, load of the machine {os.getloadavg()[0]:.1f}")
        for latency in options.latency_ms:
            warehouse: dict[str, Any] = {}
            if latency:
                relay = Relay(folder, latency / 1000)
                warehouse = {"server": Postgres(Path(folder)).url, "port": relay.port}
            what = f"postgresql at {latency} ms" if latency else "duckdb"
            compare(what, landing, warehouse, options.batch, options.repeats)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2])
    else:
        main()
