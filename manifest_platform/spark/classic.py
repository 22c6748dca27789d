"""Sessions whose driver is a Java process beside this process: within this machine, and on a cluster in client mode."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manifest_platform import extras, progress
from manifest_platform.spark.errors import SparkUnavailable
from manifest_platform.spark.gateway import forget_dead, launch
from manifest_platform.spark.place import PYTHON_OF_ARCHIVE, is_local
from manifest_platform.spark.properties import jars, s3_endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def opened(settings: Mapping[str, object], conf_file: str | Path) -> SparkSession:
    """Returns the process's session with these properties. The first call takes about five seconds.

    Workers use this Python interpreter, unless the environment or the properties name another for a cluster. A local master
    also gets the loopback address and the logging configuration beside the file (`log4j2.properties`). Without `spark.master`,
    Spark uses the settings of spark-submit. An S3 endpoint in the environment applies to Spark as well. Raises MissingExtra,
    SparkUnavailable.
    """
    settings = {**s3_endpoint(), **settings}
    if "spark.jars" in settings:
        settings["spark.jars"] = jars(str(settings["spark.jars"]), conf_file)
    extras.need("pyspark")
    if python := workers_python(settings, os.environ):
        os.environ["PYSPARK_PYTHON"] = python
    if is_local(settings):
        if not shutil.which("java") and not os.environ.get("JAVA_HOME"):
            raise SparkUnavailable("Spark needs Java 17 or newer, but there is no java on the PATH; install a JDK or JRE")
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_CONF_DIR", str(Path(conf_file).absolute().parent))
    forget_dead()
    return made(settings, conf_file)


def made(settings: Mapping[str, object], conf_file: str | Path) -> SparkSession:
    """Returns the session that Spark has or makes with these properties. Raises SparkUnavailable."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        builder: Any = SparkSession.builder.appName("manifest_platform")
        for name, value in settings.items():
            builder = builder.config(name, value)
        with progress.work("starting Spark"), _own_interrupts():
            if is_local(settings):
                launch({"spark.app.name": "manifest_platform", **settings})
            return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:  # OSError if the JVM is gone
        reason = str(error).partition("\n\tat ")[0]  # the Java stack trace is in the error's cause
        raise SparkUnavailable(f"Spark with {conf_file} does not start: {reason}; see the lines above") from error


def workers_python(settings: Mapping[str, object], environment: Mapping[str, str]) -> str | None:
    """The Python interpreter of the workers; None if spark-submit decides it.

    Without this setting, Spark uses the `python3` of each worker, which may have another version or lack our packages. Workers
    of a cluster use this interpreter's path, as in a common container image. For another path, set PYSPARK_PYTHON or
    `spark.pyspark.python` in the file.
    """
    if "spark.master" not in settings:
        return None
    if is_local(settings):
        return sys.executable
    if (named := str(settings.get("spark.pyspark.python") or "")) == PYTHON_OF_ARCHIVE:
        return named  # the archive's own, whatever another session of this process used
    return environment.get("PYSPARK_PYTHON") or named or sys.executable


@contextmanager
def _own_interrupts() -> Generator[None]:
    """Restores the process's handler for Ctrl-C, which Spark replaces by its own."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)
