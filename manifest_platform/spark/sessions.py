"""The Spark session described by a properties file: the same for the command line, Dagster and a user's own assets.

Belongs here: reading the properties file (`spark_conf/` has one for each place to run), settings from the environment, and
messages when Spark does not start.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from manifest_platform import extras, progress
from manifest_platform.spark.errors import SparkUnavailable
from manifest_platform.spark.gateway import forget_dead, launch
from manifest_platform.spark.workers import await_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_S = 120.0
"""Seconds that the workers of a cluster may take to run a first task."""
CONNECT_S = 30
"""Seconds until a Spark Connect server must answer. Spark's own client would try for ten minutes."""

_PROPERTY = re.compile(r"([^\s=:]+)\s*[\s=:]\s*(.*)")
_TOKEN = re.compile(r"[;/]token\s*=", re.IGNORECASE)


def properties(conf_file: str | Path) -> dict[str, str]:
    """Reads a file in the format of `spark-defaults.conf`: a name, blanks or `=`, a value; `#` for comments.

    Raises SparkUnavailable if the file does not exist or a line is not a property.
    """
    found: dict[str, str] = {}
    try:
        lines = Path(conf_file).read_text().splitlines()
    except OSError as error:
        raise SparkUnavailable(f"{conf_file}: {error.strerror}; set spark.conf to a properties file") from error
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _PROPERTY.fullmatch(text)
        if match is None:
            raise SparkUnavailable(f"{conf_file}, line {number}: {text!r} is not a property; write `name value`")
        found[match[1]] = match[2]
    return found


def session(conf_file: str | Path, more: Mapping[str, object] | None = None, start_seconds: float = START_S) -> SparkSession:
    """Returns the process's Spark session, with the properties of a file and `more`. The first call takes about five seconds.

    Workers use this Python interpreter, unless the environment or the file names another for a cluster. A local master also
    gets the loopback address and the logging configuration beside the file (`log4j2.properties`). Without `spark.master` in the
    file, Spark uses the settings of spark-submit. With `spark.remote`, the session belongs to a Spark Connect server. An S3
    endpoint in the environment applies to Spark as well. Raises MissingExtra and SparkUnavailable, also if no worker of a
    cluster runs a task within `start_seconds`.
    """
    settings = {**properties(conf_file), **(more or {})}
    if remote := str(settings.get("spark.remote", "")):
        _reach(remote, conf_file)
    else:
        settings = {**s3_endpoint(), **settings}
        if "spark.jars" in settings:
            settings["spark.jars"] = _jars(str(settings["spark.jars"]), conf_file)
    extras.need("pyspark")
    if python := workers_python(settings, os.environ):
        os.environ["PYSPARK_PYTHON"] = python
    if _is_local(settings):
        if not shutil.which("java") and not os.environ.get("JAVA_HOME"):
            raise SparkUnavailable("Spark needs Java 17 or newer, but there is no java on the PATH; install a JDK or JRE")
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_CONF_DIR", str(Path(conf_file).absolute().parent))
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    forget_dead()
    try:
        builder = SparkSession.builder.appName("manifest_platform")
        for name, value in settings.items():
            builder = builder.config(name, value)
        with progress.work("starting Spark"), _own_interrupts():
            if _is_local(settings):
                launch({"spark.app.name": "manifest_platform", **settings})
            made = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:  # OSError if the JVM is gone
        reason = str(error).partition("\n\tat ")[0]  # the Java stack trace is in the error's cause
        raise SparkUnavailable(f"Spark with {conf_file} does not start: {reason}; see the lines above") from error
    if not _is_local(settings):
        await_workers(made, start_seconds, conf_file)
    return made


def _is_local(settings: Mapping[str, object]) -> bool:
    return str(settings.get("spark.master", "")).startswith("local")


def workers_python(settings: Mapping[str, object], environment: Mapping[str, str]) -> str | None:
    """The Python interpreter of the workers; None if a Connect server or spark-submit decides it.

    Without this setting, Spark uses the `python3` of each worker, which may have another version or lack our packages. Workers
    of a cluster use this interpreter's path, as in a common container image. For another path, set PYSPARK_PYTHON or
    `spark.pyspark.python` in the file.
    """
    if "spark.remote" in settings or "spark.master" not in settings:
        return None
    if _is_local(settings):
        return sys.executable
    return environment.get("PYSPARK_PYTHON") or str(settings.get("spark.pyspark.python") or sys.executable)


@contextmanager
def _own_interrupts() -> Generator[None]:
    """Restores the process's handler for Ctrl-C, which Spark replaces by its own."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)


def s3_endpoint() -> dict[str, str]:
    """Spark settings for the S3 endpoint in the environment variables of AWS tools; empty if there is none.

    They include the region, by default us-east-1, as for Arrow. Without it, s3a signs for another region, and the server
    answers Bad Request.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return {}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint.region": region,
    }


def _reach(remote: str, conf_file: str | Path) -> None:
    """Raises SparkUnavailable if no Spark Connect server answers, or its client is not installed."""
    if not remote.startswith("sc://"):
        raise SparkUnavailable(f"{conf_file}: spark.remote must be sc://HOST:PORT; without a server, set spark.master instead")
    if _TOKEN.search(remote):
        raise SparkUnavailable(
            f"{conf_file}: spark.remote contains a token, which is a secret: set SPARK_CONNECT_AUTHENTICATE_TOKEN instead"
        )
    from pyspark.errors import PySparkException

    try:
        import grpc
        from pyspark.sql.connect.client import DefaultChannelBuilder

        builder = DefaultChannelBuilder(remote)
    except ImportError as error:
        raise SparkUnavailable(
            f"{conf_file}: spark.remote needs the client of Spark Connect: pip install 'manifest-platform[connect]' ({error})"
        ) from error
    except PySparkException as error:
        raise SparkUnavailable(f"{conf_file}: spark.remote must be sc://HOST:PORT: {error}") from error
    with builder.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=CONNECT_S)
        except grpc.FutureTimeoutError as error:
            raise SparkUnavailable(
                f"{conf_file}: no Spark Connect server answers at {builder.endpoint} within {CONNECT_S} s; start it"
                " (sbin/start-connect-server.sh), or correct spark.remote"
            ) from error


def _jars(value: str, conf_file: str | Path) -> str:
    """The files of `spark.jars`. Local patterns are resolved, because Spark resolves them for the driver but not for workers.

    Raises SparkUnavailable if a file does not exist; Spark would continue without it.
    """
    found = []
    for place in filter(None, (one.strip() for one in value.split(","))):
        path = place.removeprefix("file://").removeprefix("file:")
        files = sorted(glob.glob(path)) if path.startswith("/") else [place]
        if not files:
            raise SparkUnavailable(
                f"{conf_file}: spark.jars: {path} does not exist; `make jars JARS=FOLDER` fetches the jars for s3a:// into a"
                " new folder. If no asset reads S3 as a DataFrame, remove the line instead"
            )
        found += files
    return ",".join(found)
