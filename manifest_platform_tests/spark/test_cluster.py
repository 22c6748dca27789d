"""A Spark Connect server in front of a standalone cluster of two workers, which are killed in the middle of jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.demo.server import free_port
from manifest_platform_tests.servers.spark import LITTLE, Cluster, spark_cluster, spark_connect

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

SHOP = """
import json, sys, time, uuid
from pathlib import Path
from manifest_platform.cli import main
from manifest_platform.manifest import State
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.sources.snowplow.events import shredder
from manifest_platform_tests.pipeline.shop import Shop, keys

home, remote, command = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
shop = Shop(home, spark={"where": "connect", "remote": remote}, merge={"first_day": "2024-05-01"}, lease={"max_attempts": 1})
signs = home / "signs"
signs.mkdir(exist_ok=True)

def wait(folder):
    (folder / f"began-{uuid.uuid4()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.05)

def waiting(spark, directories, tasks, work, options, shred_batch=shredder.shred_batch):
    def slow(task):
        wait(signs)
        return work(task)
    return shred_batch(spark, directories, tasks, slow, options)

shredder.shred_batch = waiting
if not any((home / "landing").iterdir()):
    shop.write(*range(4))
codes = [main(["--config", str(shop.config_file), *one.split()]) for one in command.split(",")]
told = {"codes": codes}
with shop.open() as pipeline:
    found = [pipeline.manifest.item(key) for key in keys(pipeline, *range(4))]
    told["failed"] = sum(record.state is State.FAILED for item in found for record in item.records)
    if 0 in codes[:1]:
        told["files"] = [one.uri for item in found for one in listing_of(item).objects]
if codes[0] == 0:
    told |= {"runs": len(shop.seen.runs), "doubled": len(shop.doubled_events)}
from pyspark import SparkContext
told["classic"] = SparkContext._active_spark_context is not None or SparkContext._gateway is not None
print(json.dumps(told))
"""


class Drain:
    """A process that works on a shop by Connect. Its Spark tasks wait until `go`."""

    def __init__(self, home: Path, remote: str, command: str) -> None:
        self.signs = home / "signs"
        for sign in self.signs.glob("*"):
            sign.unlink()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPARK_", "PYSPARK_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SHOP, str(home), remote, command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )

    def began(self, tasks: int = 1) -> None:
        """Waits until this number of tries of tasks have begun."""
        while len(list(self.signs.glob("began-*"))) < tasks:
            assert self._process.poll() is None, self._process.communicate()[0][-3000:]
            time.sleep(0.1)

    def go(self) -> None:
        (self.signs / "go").touch()

    def ended(self) -> dict[str, Any]:
        output = self._process.communicate()[0]
        assert self._process.returncode == 0, output[-4000:]
        return json.loads(output.splitlines()[-1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def remote(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with spark_connect(tmp_path_factory.mktemp("connect"), cluster.master, {**LITTLE, "spark.speculation": "true"}) as remote:
        yield remote


def test_executors_that_are_killed_in_a_job_cost_nothing(tmp_path: Path, cluster: Cluster, remote: str) -> None:
    """A drain by Connect, without a SparkContext in its process, whose job loses its executors."""
    drain = Drain(tmp_path, remote, "drain --discover")
    drain.began()
    assert sum(worker.kill_executors() for worker in cluster.workers)
    drain.began(2)
    drain.go()
    told = drain.ended()
    assert (told["codes"], told["failed"], told["runs"], told["doubled"], told["classic"]) == ([0], 0, 4, 0, False)
    files = [Path(uri.removeprefix("file://")) for uri in told["files"]]
    assert all(file.exists() or list(file.parents[2].glob("*.pack.zip")) for file in files)


def test_a_worker_that_is_lost_in_a_job_costs_nothing(tmp_path: Path, cluster: Cluster, remote: str) -> None:
    drain = Drain(tmp_path, remote, "drain --discover")
    drain.began()
    lost = next(worker for worker in cluster.workers if worker.executors())
    lost.kill()
    drain.began(2)
    drain.go()
    told = drain.ended()
    assert (told["codes"], told["failed"], told["runs"], told["doubled"]) == ([0], 0, 4, 0)


def test_a_server_that_goes_down_in_a_job_is_charged_to_no_item(tmp_path: Path, cluster: Cluster) -> None:
    port = free_port()
    with spark_connect(tmp_path, cluster.master, LITTLE, port) as remote:
        drain = Drain(tmp_path / "shop", remote, "drain --discover")
        drain.began()
    drain.go()
    told = drain.ended()
    assert told["codes"] != [0]
    assert told["failed"] == 0
    with spark_connect(tmp_path, cluster.master, LITTLE, port) as remote:
        again = Drain(tmp_path / "shop", remote, "drain")
        again.go()
        told = again.ended()
    assert (told["codes"], told["failed"], told["runs"], told["doubled"]) == ([0], 0, 4, 0)
