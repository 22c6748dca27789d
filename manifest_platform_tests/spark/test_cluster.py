"""A Spark Connect server in front of a standalone cluster of two workers, which are killed in the middle of jobs.

What the cluster does to a job is charged to no item, and counts nothing twice.
"""

from __future__ import annotations

import json
import os
import re
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
import json, os, sys, time, uuid
from pathlib import Path
from manifest_platform.cli import main
from manifest_platform.manifest import State
from manifest_platform.merging import spark_job
from manifest_platform.pipeline.merge import Merging
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.sources.snowplow.events import shredder
from manifest_platform_tests.pipeline.shop import Shop, keys
from manifest_platform_tests.pipeline.test_merge import read, rows_of

home, remote, command, waits = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
spark = {"where": "connect", "remote": remote, "start_timeout_seconds": 600}
shop = Shop(home, spark=spark, merge={"first_day": "2024-05-01"}, lease={"max_attempts": 1})
signs = home / "signs"

def wait(folder):
    from pyspark import TaskContext
    is_again = TaskContext.get().attemptNumber() > 0
    executor = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]  # started the worker's daemon
    (folder / f"began-{uuid.uuid4()}-{executor}").touch()
    while not (folder / "go").exists() and not (waits == "first" and is_again):
        time.sleep(0.05)

def waiting(spark, directories, tasks, work, options, shred_batch=shredder.shred_batch):
    def slow(task):
        wait(signs)
        return work(task)
    return shred_batch(spark, directories, tasks, slow, options)

class Slow:
    def __init__(self, spark):
        self.spark = spark

    def range(self, *numbers):
        self.frame = self.spark.range(*numbers)
        return self

    def mapInArrow(self, work, schema):
        def slow(batches):
            wait(signs)
            yield from work(batches)
        return self.frame.mapInArrow(slow, schema)

def merging(spark, tasks, options=None, merge_all=spark_job.merge_all):
    return merge_all(Slow(spark), tasks, options)

if command.startswith("merge"):
    spark_job.merge_all = merging
else:
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
        told["shredded"] = rows_of(pipeline, *range(4))
    if command.startswith("merge"):
        told["merged"] = read(Merging(pipeline))
        told["outcomes"] = sorted({job.outcome for job in Merging(pipeline).inventory.log(100)})
if codes[0] == 0:
    told |= {"runs": len(shop.seen.runs), "doubled": len(shop.doubled_events)}
from pyspark import SparkContext
told["classic"] = SparkContext._active_spark_context is not None or SparkContext._gateway is not None
print(json.dumps(told))
"""


class Drain:
    """A process that works on a shop by Connect. Its Spark tasks wait until `go`; by `waits`, only the first try."""

    def __init__(self, home: Path, remote: str, command: str, waits: str = "all") -> None:
        self.signs = home / "signs"
        self.signs.mkdir(parents=True, exist_ok=True)
        for sign in self.signs.glob("*"):
            sign.unlink()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPARK_", "PYSPARK_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SHOP, str(home), remote, command, waits],
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

    @property
    def executors(self) -> list[int]:
        """The processes of the executors whose tasks have begun. The loss of an idle executor repeats nothing."""
        return [int(sign.name.rpartition("-")[2]) for sign in self.signs.glob("began-*")]

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
    speculates = {"spark.speculation": "true", "spark.speculation.task.duration.threshold": "3s"}
    with spark_connect(tmp_path_factory.mktemp("connect"), cluster.master, {**LITTLE, **speculates}) as remote:
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


def test_a_second_try_that_spark_speculates_with_writes_files_of_its_own_and_counts_once(tmp_path: Path, remote: str) -> None:
    drain = Drain(tmp_path, remote, "drain --discover", waits="first")
    told = drain.ended()
    assert len(list(drain.signs.glob("began-*"))) == 1 + 4, "the first try waits at its first directory"
    assert (told["codes"], told["failed"], told["runs"], told["doubled"]) == ([0], 0, 4, 0)
    assert all(re.search(r"-[0-9a-f]{8}\.parquet$", uri) for uri in told["files"]), "those of the second try"


def test_executors_that_are_killed_in_a_merge_cost_nothing(tmp_path: Path, cluster: Cluster, remote: str) -> None:
    shredding = Drain(tmp_path, remote, "drain --discover")
    shredding.go()
    shredded = shredding.ended()["shredded"]
    merging = Drain(tmp_path, remote, "merge run")
    merging.began()
    assert sum(worker.kill_executors() for worker in cluster.workers)
    merging.began(2)
    merging.go()
    told = merging.ended()
    assert told["codes"] == [0]
    assert told["merged"] == shredded, "each row once"
    assert told["outcomes"] == ["merged"], "no failed attempt is counted"


def test_a_worker_that_is_lost_in_a_job_costs_nothing(tmp_path: Path, cluster: Cluster, remote: str) -> None:
    drain = Drain(tmp_path, remote, "drain --discover")
    drain.began()
    lost = next(worker for worker in cluster.workers if set(worker.executors()) & set(drain.executors))
    lost.kill()
    drain.began(2)
    drain.go()
    told = drain.ended()
    assert (told["codes"], told["failed"], told["runs"], told["doubled"]) == ([0], 0, 4, 0)


def test_a_server_that_goes_down_in_a_job_is_noticed_within_a_minute_and_charged_to_no_item(tmp_path: Path) -> None:
    """The process notices, puts back what it had, and ends. Spark's client alone continues for ten minutes, more than once."""
    port = free_port()
    with spark_connect(tmp_path, port=port) as remote:
        drain = Drain(tmp_path / "shop", remote, "drain --discover")
        drain.began()
    down = time.monotonic()
    drain.go()
    told = drain.ended()
    assert time.monotonic() - down < 60
    assert told["codes"] != [0]
    assert told["failed"] == 0
    with spark_connect(tmp_path, port=port) as remote:
        again = Drain(tmp_path / "shop", remote, "drain")
        again.go()
        told = again.ended()
    assert (told["codes"], told["failed"], told["runs"], told["doubled"]) == ([0], 0, 4, 0)
