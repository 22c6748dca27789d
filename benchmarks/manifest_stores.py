"""The manifest's stores against what others keep locks and commits in.

    python benchmarks/manifest_stores.py [--repeats 5] [--scale 1]

By turns, in one run, on the same server or disk:

    lease       a step's lease taken and given back, against python-dynamodb-lock's lock, both on DynamoDB Local
    commit      a durable commit of one row on SQLite, against plain sqlite3 with the same journal and the same fsync, and,
                where no disk is waited for, against an append of one row to a Delta table, which syncs nothing
    transition  claims and completions of a strict step on DynamoDB Local: by one worker on one feed, by four on four feeds of
                as many datasets, and by four on four feeds of one dataset, which share its step's state
"""

from __future__ import annotations

import logging
import os
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import boto3
from pairs import arguments, interleaved, print_figure, print_medians, print_ratio

from manifest_platform.demo.dynamodb import REGION, DynamoDbLocal, dynamodb_local
from manifest_platform.manifest import (
    OUTPUT,
    Application,
    ConditionFailed,
    ItemKey,
    Landed,
    Manifest,
    Payload,
    Ready,
    Step,
    Store,
)
from manifest_platform.manifest.store import ABSENT, Put
from manifest_platform.manifest.stores.dynamodb.store import DynamoDbStore
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.manifest.stores.sql import SqlStore

LEASES, COMMITS, APPENDS, ITEMS, SYNCS = 100, 300, 30, 40, 50
MEMORY = Path("/dev/shm")
LOAD = Application("load")
MINUTE = timedelta(minutes=1)
DONE = Payload(OUTPUT, {"rows": 1})
ROW = {
    "state": "Processing",
    "item": "s3://bucket/enriched/run=2024-05-01-00-00-00",
    "author": "benchmark",
    "padding": "x" * 200,
}


# Leases on DynamoDB Local


def lease_ours(manifest: Manifest, count: int) -> float:
    """Seconds to take a lease and give it back, the given number of times."""
    began = time.perf_counter()
    for _ in range(count):
        manifest.acquire(feed(0), LOAD.key, "benchmark", MINUTE).release()
    return time.perf_counter() - began


@contextmanager
def locks(server: DynamoDbLocal) -> Generator[Callable[[int], float]]:
    """The peer's client: yields a function that takes and releases its lock `count` times and returns the seconds."""
    from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient

    where = {"region_name": REGION, "endpoint_url": server.endpoint}
    DynamoDBLockClient.create_dynamodb_table(boto3.client("dynamodb", **where), table_name="locks")
    client = DynamoDBLockClient(boto3.resource("dynamodb", **where), table_name="locks")

    def lock(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            client.acquire_lock("load").release()
        return time.perf_counter() - began

    try:
        yield lock
    finally:
        client.close()


# Durable commits


def commit_ours(directory: Path, count: int) -> float:
    """Seconds of the given number of transactions of one row."""
    store = SqlStore(f"sqlite:///{directory}/{uuid.uuid4()}.db")
    store.get("shop", "warm")
    began = time.perf_counter()
    for number in range(count):
        store.transact("shop", [Put(f"RECORD#{number:06d}", ROW, ABSENT)], str(uuid.uuid4()))
    seconds = time.perf_counter() - began
    store.close()
    return seconds


def commit_plainly(directory: Path, count: int) -> float:
    """The same rows by sqlite3, as fast as it goes and as durable."""
    connection = sqlite3.connect(directory / f"{uuid.uuid4()}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE manifest (sort TEXT PRIMARY KEY, data TEXT) WITHOUT ROWID")
    text = str(ROW)
    began = time.perf_counter()
    for number in range(count):
        connection.execute("INSERT INTO manifest VALUES (?, ?)", (f"RECORD#{number:06d}", text))
    seconds = time.perf_counter() - began
    connection.close()
    return seconds


def append_to_delta(directory: Path, count: int, commits: int) -> float:
    """Seconds of the given number of commits, each an append of one row to a Delta table."""
    import pyarrow as pa
    from deltalake import write_deltalake

    table = str(directory / str(uuid.uuid4()))
    row = pa.table({name: [value] for name, value in ROW.items()})
    write_deltalake(table, row)
    began = time.perf_counter()
    for _ in range(count):
        write_deltalake(table, row, mode="append")
    return (time.perf_counter() - began) * commits / count


# Transitions on DynamoDB Local


def feed(number: int) -> str:
    return f"feed{number}"


def transitions(store: Store, workers: int, count: int, one_dataset: bool = False) -> float:
    """Seconds in which the given number of workers, a feed each, claim and complete their items."""
    names = [feed(number) for number in range(workers)]
    dataset = uuid.uuid4().hex
    steps = {name: [Step(LOAD, order="strict")] for name in names}
    shared = Manifest(store, dataset, steps, "benchmark")
    manifests = [shared if one_dataset else Manifest(store, f"{dataset} {name}", steps, "benchmark") for name in names]
    for name, manifest in zip(names, manifests, strict=True):
        keys = [ItemKey(name, f"{number:06d}", f"s3://bucket/{name}/run={number:06d}") for number in range(count)]
        manifest.discover(name, [Landed(key, 1, 1, "checksum") for key in keys])
    began = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(work, manifests, names))
    assert done == [count] * workers, done
    return time.perf_counter() - began


def work(manifest: Manifest, name: str) -> int:
    """Claims and completes what is next on a feed until nothing is; returns how many."""
    done = 0
    with manifest.acquire(name, LOAD.key, "benchmark", MINUTE) as lease:
        while isinstance(ready := manifest.next(name, LOAD.key, holding=True), Ready):
            try:
                [claim] = manifest.claim(lease, [ready.item], ready.state)
            except ConditionFailed:
                continue  # another feed progressed meanwhile, and all feeds share the step's state
            manifest.complete(claim, DONE)
            done += 1
    return done


def measure_commits(directory: Path, commits: int, appends: int, repeats: int) -> None:
    """Commits on this disk; and where no disk is waited for, since the peer does not wait for it: it syncs nothing."""
    places = {"disk": directory}
    with ExitStack() as stack:
        if MEMORY.is_dir():
            places["memory"] = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY)))
        for place, path in places.items():
            print(f"commit: {commits} of one row, {appends} appends, in {place}; a sync takes {sync(path) * 1e3:.2f} ms")
            ways = {
                "ours": partial(commit_ours, path, commits),
                "plain": partial(commit_plainly, path, commits),
                "delta": partial(append_to_delta, path, appends, commits),
            }
            seconds = interleaved(ways, repeats)
            print_medians(seconds)
            for way, taken in seconds.items():
                print(f"{way:10} {commits / statistics.median(taken):8.0f} commits/s")
            if place == "disk":
                print_ratio("commits on disk", seconds, "ours", "plain", 0.5, throughput=True)
            if place == list(places)[-1]:
                print_ratio(f"commits in {place}", seconds, "ours", "delta", 10, throughput=True)


def sync(directory: Path) -> float:
    """Seconds that a small write takes until the disk has it."""
    with (directory / "sync").open("wb") as file:
        began = time.perf_counter()
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
        return (time.perf_counter() - began) / SYNCS


def main() -> None:
    options = arguments(__doc__, 3, f"{LEASES} leases, {COMMITS} commits, {ITEMS} items a feed").parse_args()
    leases, commits, appends, items = (max(1, int(count * options.scale)) for count in (LEASES, COMMITS, APPENDS, ITEMS))
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as root, dynamodb_local(Path(root) / "log") as server:
        os.environ.update(server.environment)
        create_table(server.store("manifest"))
        store = DynamoDbStore(server.store("manifest"))
        manifest = Manifest(store, "leases", {feed(0): [Step(LOAD, order="strict")]}, "benchmark")
        print(f"lease: taken and given back {leases} times")
        with locks(server) as lock:
            seconds = interleaved(
                {"ours": partial(lease_ours, manifest, leases), "lock": partial(lock, leases)}, options.repeats
            )
        print_medians(seconds)
        print_ratio("leases", seconds, "ours", "lock", 0.7)

        measure_commits(Path(root), commits, appends, options.repeats)

        print(f"transition: {items} items a feed, a claim and a completion each")
        ways = {
            "one feed": partial(transitions, store, 1, items),
            "four feeds": partial(transitions, store, 4, items),
            "one set": partial(transitions, store, 4, items, one_dataset=True),
        }
        seconds = interleaved(ways, options.repeats)
        print_medians(seconds)
        rates = {way: 2 * items * (4 if way != "one feed" else 1) / statistics.median(taken) for way, taken in seconds.items()}
        print_figure("transitions, one feed", rates["one feed"], 50, "/s", at_least=True)
        print_figure("transitions, four feeds", rates["four feeds"], 150, "/s", at_least=True)
        print_figure("transitions, four of one dataset", rates["one set"], 150, "/s", at_least=True)
        store.close()


if __name__ == "__main__":
    main()
