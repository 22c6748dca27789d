"""Runs a Spark cluster on this machine for the demo and the tests: a standalone master, workers, and a Spark Connect server.

The programs are pyspark's own classes. The Connect server is the driver: it runs no task, and asks the master for executors on
the workers. Spark listens on the loopback address only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from manifest_platform.carried import carried
from manifest_platform.demo.server import await_port, free_port, running, started

HOST = "127.0.0.1"
START_S = 600
"""The most seconds in which a program of Spark must listen. On a busy machine, each takes many times its usual three."""
WORKER_MEMORY, EXECUTOR_MEMORY = "1g", "640m"
_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class Program:
    """A program of the cluster: its name, its command, and the port on which it listens."""

    name: str
    command: list[str | Path]
    port: int


class SparkCluster:
    """The programs of a cluster of `workers` workers with one core each, whose files are in a folder.

    `environment`: additional variables for all programs, such as the access to S3. Executors and their Python processes get
    those of their worker, as on a machine with a role.
    """

    def __init__(self, folder: Path, workers: int, environment: Mapping[str, str], properties: Mapping[str, object]) -> None:
        self.folder = folder
        self._properties = properties
        self._variables = environment
        self._master_port, self.port = free_port(), free_port()
        self._worker_ports = [free_port() for _ in range(workers)]

    @property
    def master(self) -> str:
        """The value of `spark.master` for the cluster."""
        return f"spark://{HOST}:{self._master_port}"

    @property
    def remote(self) -> str:
        """The value of `spark.remote` for the cluster's Connect server."""
        return f"sc://{HOST}:{self.port}"

    @cached_property
    def _home(self) -> Path:
        spark = find_spec("pyspark")
        assert spark is not None and spark.origin is not None
        return Path(spark.origin).parent

    @property
    def programs(self) -> list[Program]:
        """The programs in the order in which they are started."""
        workers = [self._worker(number, port) for number, port in enumerate(self._worker_ports, 1)]
        return [self._of_class("master", "master.Master", self._master_port), *workers, self._connect_server()]

    def _of_class(self, name: str, class_: str, port: int, *arguments: str) -> Program:
        listening = ["--host", HOST, "--port", str(port), "--webui-port", "0"]
        return Program(
            name, [self._home / "bin" / "spark-class", f"org.apache.spark.deploy.{class_}", *arguments, *listening], port
        )

    def _worker(self, number: int, port: int) -> Program:
        name = f"worker-{number}"
        sizes = ["--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(self.folder / name)]
        return self._of_class(name, "worker.Worker", port, self.master, *sizes)

    def _connect_server(self) -> Program:
        properties = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": self.port,
            "spark.driver.host": HOST,
            "spark.driver.memory": "1g",
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": 2,
            **self._properties,
        }
        conf = [part for name, value in properties.items() for part in ("--conf", f"{name}={value}")]
        submit: list[str | Path] = [self._home / "bin" / "spark-submit", "--master", self.master, "--class", _CONNECT_SERVER]
        return Program("connect", [*submit, *conf, "spark-internal"], self.port)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the programs."""
        found = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
        own = {
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(self._home),
            "SPARK_CONF_DIR": str(carried("spark_conf/log4j2.properties").parent),
        }
        return {**found, **own, **self._variables}


@contextmanager
def spark_cluster(
    folder: Path, workers: int = 2, environment: Mapping[str, str] | None = None, properties: Mapping[str, object] | None = None
) -> Generator[SparkCluster]:
    """Runs a cluster until the block ends. `properties`: of its Connect server, beside the usual. Raises ServerFailed."""
    cluster = SparkCluster(folder, workers, environment or {}, properties or {})
    master, *others = cluster.programs
    with running(master.command, master.port, folder / "master.log", cluster.environment, START_S), ExitStack() as stack:
        logs = [folder / f"{one.name}.log" for one in others]
        processes = [
            stack.enter_context(started(one.command, log, cluster.environment)) for one, log in zip(others, logs, strict=True)
        ]
        for one, process, log in zip(others, processes, logs, strict=True):
            await_port(process, one.port, log, START_S)
        yield cluster
