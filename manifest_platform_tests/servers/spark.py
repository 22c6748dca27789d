"""Spark elsewhere: a Spark Connect server, and a standalone cluster of some workers, from pyspark's own classes.

A process has one session, so what uses these is run in a process of its own.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from manifest_platform.demo.server import ServerFailed, free_port, kept, running
from manifest_platform.spark.jars import S3A, fetch, verify

HOME = Path(pyspark.__file__).parent
CONF = Path(__file__).parents[2] / "spark_conf"
START_S = 240
"""Seconds that a JVM may take to start on a busy machine."""
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Code compiled quickly: these programs run for a minute, and four of them share two cores."""


def s3a_jars() -> Path:
    """The folder of the jars with which Spark reads S3, fetched once a machine, as `make jars` does."""
    with kept(S3A) as folder:
        if not folder.exists():
            if not (java := shutil.which("java")):
                raise ServerFailed("jars are fetched by Java, and there is none")
            fetch(S3A, folder, java)
    verify(S3A, folder)
    return folder


@contextmanager
def spark_connect(
    folder: Path,
    master: str = "local[2]",
    more: Mapping[str, object] | None = None,
    port: int | None = None,
    python: str | Path = sys.executable,
) -> Generator[str]:
    """Runs a Connect server in front of a master, and gives what `spark.remote` is.

    `more`: further properties of its Spark. `python`: the interpreter of its workers.
    """
    port = port or free_port()
    properties: dict[str, object] = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": _QUICK_JAVA,
        "spark.executor.extraJavaOptions": _QUICK_JAVA,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        **(more or {}),
    }
    conf = [part for name, value in properties.items() for part in ("--conf", f"{name}={value}")]
    command = [
        HOME / "bin" / "spark-submit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", master),
        *conf,
        "spark-internal",
    ]
    with running(command, port, folder / "connect.log", _environment(python), START_S):
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def spark_standalone(folder: Path) -> Generator[str]:
    """Runs a master, and a worker with one core and little memory, and gives what `spark.master` is."""
    with spark_cluster(folder, workers=1) as cluster:
        yield cluster.master


LITTLE = {"spark.executor.memory": "512m", "spark.executor.cores": 1}
"""The properties of an executor that fits a worker of this cluster."""


_HOSTS = ("127.0.0.1", "localhost")
"""The names of this machine by turns: Spark speculates only on another host."""


class Worker:
    """A worker of a standalone cluster, with one core."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def executors(self) -> list[int]:
        """The ids of its executors' processes."""
        return children(self._process.pid)

    def kill(self) -> None:
        """Kills the worker and its executors, as a machine that is lost."""
        executors = self.executors()
        self._process.kill()
        for process in executors:
            kill_tree(process)
        self._process.wait()

    def kill_executors(self) -> int:
        """Kills its executors with their Python processes. The worker starts others. Returns how many it had."""
        executors = self.executors()
        for process in executors:
            kill_tree(process)
        return len(executors)


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster. `master`: what `spark.master` is."""

    master: str
    workers: Sequence[Worker]
    start_worker: Callable[[], Worker]


@contextmanager
def spark_cluster(folder: Path, workers: int = 2, python: str | Path = sys.executable) -> Generator[Cluster]:
    """Runs a master, and workers with one core and little memory each. `python`: the interpreter of the workers."""
    port = free_port()
    master, common = f"spark://127.0.0.1:{port}", ["--webui-port", "0"]
    spark_class = HOME / "bin" / "spark-class"
    begin = [spark_class, "org.apache.spark.deploy.master.Master", *common, "--host", "127.0.0.1", "--port", str(port)]
    environment = _environment(python)
    with ExitStack() as stack:
        stack.enter_context(running(begin, port, folder / "master.log", environment, START_S))
        numbers = itertools.count(1)

        def start_worker() -> Worker:
            number, its_port = next(numbers), free_port()
            host = _HOSTS[number % len(_HOSTS)]
            work = [
                spark_class,
                "org.apache.spark.deploy.worker.Worker",
                master,
                *common,
                "--host",
                host,
                "--port",
                str(its_port),
            ]
            work += ["--cores", "1", "--memory", "600M", "--work-dir", str(folder / f"work-{number}")]
            log = folder / f"worker-{number}.log"
            worker = Worker(stack.enter_context(running(work, its_port, log, environment, START_S)))
            stack.callback(worker.kill_executors)  # before the worker ends: executors would outlive it for a while
            return worker

        yield Cluster(master, [start_worker() for _ in range(workers)], start_worker)


def children(process: int) -> list[int]:
    """The ids of the processes that a process has started and that still run."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for one in found for child in _text(one).split()]


def kill_tree(process: int) -> None:
    """Kills a process and all that it has started."""
    for child in children(process):
        kill_tree(child)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _text(path: Path) -> str:
    with suppress(OSError):  # the process has ended meanwhile
        return path.read_text()
    return ""


def _environment(python: str | Path = sys.executable) -> dict[str, str]:
    """The environment of these programs: their interpreter, and the programs of the machine, but none of this environment."""
    found = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    java = Path(shutil.which("java") or "/usr/bin/java").parent
    own = {
        "PATH": f"{Path(python).parent}:{java}:/usr/bin:/bin",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
        "SPARK_HOME": str(HOME),
        "SPARK_CONF_DIR": str(CONF),
        "SPARK_DAEMON_JAVA_OPTS": _QUICK_JAVA,
    }
    return {**found, **own}
