"""Spark elsewhere: a Spark Connect server, and a standalone master with a worker, from pyspark's own classes.

A process has one session, so what uses these is run in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from manifest_platform.demo.server import ServerFailed, free_port, kept, running
from manifest_platform.spark.jars import S3A, fetch, verify

HOME = Path(pyspark.__file__).parent
CONF = Path(__file__).parents[2] / "spark_conf"
START_S = 90
"""Seconds that a JVM may take to start on a busy machine."""


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
def spark_connect(folder: Path) -> Generator[str]:
    """Runs a server with two cores, and gives what `spark.remote` is."""
    port = free_port()
    properties = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
    }
    conf = [part for name, value in properties.items() for part in ("--conf", f"{name}={value}")]
    command = [
        HOME / "bin" / "spark-submit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"),
        *conf,
        "spark-internal",
    ]
    with running(command, port, folder / "connect.log", _environment(), START_S):
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def spark_standalone(folder: Path) -> Generator[str]:
    """Runs a master, and a worker with one core and little memory, and gives what `spark.master` is."""
    port, worker_port = free_port(), free_port()
    master, common = f"spark://127.0.0.1:{port}", ["--host", "127.0.0.1", "--webui-port", "0"]
    spark_class = HOME / "bin" / "spark-class"
    begin = [spark_class, "org.apache.spark.deploy.master.Master", *common, "--port", str(port)]
    work = [spark_class, "org.apache.spark.deploy.worker.Worker", master, *common, "--port", str(worker_port)]
    work += ["--cores", "1", "--memory", "600M", "--work-dir", str(folder / "work")]
    with (
        running(begin, port, folder / "master.log", _environment(), START_S),
        running(work, worker_port, folder / "worker.log", _environment(), START_S),
    ):
        yield master


def _environment() -> dict[str, str]:
    found = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    own = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(HOME),
        "SPARK_CONF_DIR": str(CONF),
    }
    return {**found, **own}
