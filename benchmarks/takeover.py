"""The time from a worker's sudden death until another worker continues its item.

    python benchmarks/takeover.py [--repeats 5]

A worker in a process of its own claims an item under a lease of three seconds, and is killed at a moment of its heartbeat's
period that changes from turn to turn. Meanwhile another waits for the lease, settles the item, and claims it again:

    sqlite, dynamodb    manifest_platform, on either store
    lock                python-dynamodb-lock on the same DynamoDB Local, with the same lease and heartbeat: its lock taken again

What is told is the time from the kill to the new claim beyond what was left of the dead worker's lease then.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
from pairs import print_figure

from manifest_platform.demo.dynamodb import REGION, DynamoDbLocal, dynamodb_local
from manifest_platform.manifest import (
    Abandoned,
    Application,
    ItemKey,
    Landed,
    Lease,
    LeaseBusy,
    Manifest,
    Ready,
    Step,
    Store,
)
from manifest_platform.manifest.stores.dynamodb.store import DynamoDbStore
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.manifest.stores.sql import SqlStore

FEED, LOAD = "feed", Application("load")
LEASE, HEARTBEAT = timedelta(seconds=3), timedelta(seconds=1)
GOAL_S = 0.25


def open_manifest(url: str, dataset: str) -> Manifest:
    store: Store = DynamoDbStore(url) if url.startswith("dynamodb:") else SqlStore(url)
    return Manifest(store, dataset, {FEED: [Step(LOAD, order="strict", max_attempts=100)]}, "benchmark")


# The worker that dies


def work_ours(url: str, dataset: str) -> None:
    """Claims the item, says so, and works for ever."""
    manifest = open_manifest(url, dataset)
    with manifest.acquire(FEED, LOAD.key, "dead", LEASE) as lease:
        ready = manifest.next(FEED, LOAD.key, holding=True)
        assert isinstance(ready, Ready)
        manifest.claim(lease, [ready.item], ready.state)
        print("claimed", flush=True)
        time.sleep(3600)


def work_lock(endpoint: str, name: str) -> None:
    """The same with the peer's lock."""
    lock_client(endpoint).acquire_lock(name)
    print("claimed", flush=True)
    time.sleep(3600)


def lock_client(endpoint: str):
    from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient

    resource = boto3.resource("dynamodb", region_name=REGION, endpoint_url=endpoint)
    periods = {"heartbeat_period": HEARTBEAT, "safe_period": 2 * HEARTBEAT, "lease_duration": LEASE}
    return DynamoDBLockClient(resource, table_name="locks", **periods)


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """A worker that has begun."""
    process = subprocess.Popen([sys.executable, __file__, "--worker", *arguments], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"claimed\n"
    return process


def kill(process: subprocess.Popen[bytes]) -> float:
    """Ends a process at once; gives the moment."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    return time.time()


# The worker that takes over


def take_over_ours(url: str, after: float) -> float:
    """Seconds from the kill to the new claim, beyond what was left of the lease."""
    dataset = uuid.uuid4().hex
    manifest = open_manifest(url, dataset)
    manifest.discover(FEED, [Landed(ItemKey(FEED, "1", "s3://bucket/run=1"), 1, 1, "checksum")])
    worker = start(url, dataset)
    time.sleep(after)
    killed = kill(worker)
    dead = manifest.lease(LOAD, FEED)
    assert dead
    left = dead.expires_at.timestamp() - killed
    with wait(manifest) as lease:
        abandoned = manifest.unsettled(lease)
        assert isinstance(abandoned, Abandoned)
        manifest.abandon(lease, abandoned)  # nothing is asked: this step has no ledger
        ready = manifest.next(FEED, LOAD.key, holding=True)
        assert isinstance(ready, Ready), ready
        manifest.claim(lease, [ready.item], ready.state)
        taken = time.time()
    manifest.store.close()
    return taken - killed - left


def wait(manifest: Manifest) -> Lease:
    """The lease, as soon as it has run out."""
    while True:
        try:
            return manifest.acquire(FEED, LOAD.key, "heir", LEASE)
        except LeaseBusy as busy:
            time.sleep(max(0.0, (busy.lease.expires_at - datetime.now(UTC)).total_seconds()))


def take_over_lock(endpoint: str, after: float) -> float:
    """The same with the peer's lock, whose lease runs from its last heartbeat."""
    name = uuid.uuid4().hex
    worker = start(endpoint, name)
    time.sleep(after)
    killed = kill(worker)
    client = lock_client(endpoint)
    left = LEASE.total_seconds() - after % HEARTBEAT.total_seconds()
    client.acquire_lock(name, retry_period=timedelta(milliseconds=50), retry_timeout=timedelta(seconds=30)).release()
    taken = time.time()
    client.close()
    return taken - killed - left


def make_tables(server: DynamoDbLocal) -> None:
    from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient

    create_table(server.store("manifest"))
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=server.endpoint)
    DynamoDBLockClient.create_dynamodb_table(client, table_name="locks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="turns (5)")
    parser.add_argument("--worker", nargs=2, metavar=("WHERE", "WHAT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    if options.worker:
        where, what = options.worker
        return work_lock(where, what) if where.startswith("http") else work_ours(where, what)
    with tempfile.TemporaryDirectory() as root, dynamodb_local(Path(root) / "log") as server:
        os.environ.update(server.environment)
        make_tables(server)
        ways: dict[str, Callable[[float], float]] = {
            "sqlite": lambda after: take_over_ours(f"sqlite:///{root}/manifest.db", after),
            "dynamodb": lambda after: take_over_ours(server.store("manifest"), after),
            "lock": lambda after: take_over_lock(server.endpoint, after),
        }
        moments = [0.3 + 1.7 * turn / options.repeats for turn in range(options.repeats)]
        for name, way in ways.items():
            beyond = [way(moment) for moment in moments]
            told = ", ".join(f"{one:.3f}" for one in beyond)
            print(f"{name:10} median {statistics.median(beyond):6.3f} s beyond the lease   ({told})")
            if name != "lock":
                print_figure(f"takeover, worst on {name}", max(beyond), GOAL_S, " s")
    return None


if __name__ == "__main__":
    main()
