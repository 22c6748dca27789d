"""The Spark session, as a properties file describes it: the same for the command line, Dagster and assets of a user's own.

Belongs here: reading such a file (`spark_conf/` has one for each place to run), what a Spark takes from its environment, and
what is said where it does not start. What Spark is used for does not.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from manifest_platform import extras, progress
from manifest_platform.spark.gateway import launch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_S = 30
"""How long a Spark Connect server may take until it answers. Spark's own client would try for ten minutes."""

_PROPERTY = re.compile(r"([^\s=:]+)\s*[\s=:]\s*(.*)")
_TOKEN = re.compile(r"[;/]token\s*=", re.IGNORECASE)


class SparkUnavailable(RuntimeError):
    """Spark cannot be started; the message says what is missing and what to do."""


def properties(conf_file: str | Path) -> dict[str, str]:
    """The properties of a file in the format of `spark-defaults.conf`: a name, blanks or `=`, a value; `#` for comments.

    Raises SparkUnavailable for a file that is not there, and for a line that is no property.
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
            raise SparkUnavailable(f"{conf_file}, line {number}: {text!r} is no property; write `name value`")
        found[match[1]] = match[2]
    return found


def session(conf_file: str | Path, more: Mapping[str, object] | None = None) -> SparkSession:
    """The process's Spark session, with the properties of a file and `more`; made at the first call, some five seconds.

    Workers get this interpreter, unless the environment or the file names one for those of a cluster. A local master also gets
    the loopback address, and the logging set-up that lies beside the file (`log4j2.properties`). Without `spark.master` in the
    file, Spark takes what it was submitted with; with `spark.remote`, the session is one of a Spark Connect server. An S3
    server that the environment names is this Spark's too. Raises SparkUnavailable, MissingExtra.
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
            raise SparkUnavailable("Spark needs Java 17 or newer, and there is no java on the PATH; install a JDK or JRE")
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_CONF_DIR", str(Path(conf_file).absolute().parent))
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder.appName("manifest_platform")
        for name, value in settings.items():
            builder = builder.config(name, value)
        with progress.work("starting Spark"), _own_interrupts():
            if _is_local(settings):
                launch({"spark.app.name": "manifest_platform", **settings})
            return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:  # of the last, that the JVM is gone
        reason = str(error).partition("\n\tat ")[0]  # the Java stack trace is in the error's cause
        raise SparkUnavailable(f"Spark with {conf_file} does not start: {reason}; see the lines above") from error


def _is_local(settings: Mapping[str, object]) -> bool:
    return str(settings.get("spark.master", "")).startswith("local")


def workers_python(settings: Mapping[str, object], environment: Mapping[str, str]) -> str | None:
    """The interpreter of the workers; None where this process does not decide it: a Connect server does, or who submitted it.

    Without one, Spark takes the `python3` that a worker finds, which has another version or none of our packages. A cluster's
    workers have this interpreter at its path here, as in one image for all; elsewhere, PYSPARK_PYTHON or `spark.pyspark.python`
    of the file names theirs.
    """
    if "spark.remote" in settings or "spark.master" not in settings:
        return None
    if _is_local(settings):
        return sys.executable
    return environment.get("PYSPARK_PYTHON") or str(settings.get("spark.pyspark.python") or sys.executable)


@contextmanager
def _own_interrupts() -> Generator[None]:
    """Leaves Ctrl-C to whom it belongs: Spark puts a handler of its own in the place of the process's."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)


def s3_endpoint() -> dict[str, str]:
    """The Spark settings for the S3 server that the environment names as AWS tools read it; none where it names none.

    Its region goes with it, us-east-1 where the environment has none, as for Arrow: s3a signs for another one where it is not
    told, and the server answers Bad Request.
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
    """Raises SparkUnavailable unless a Spark Connect server answers, or the client of one is missing."""
    if not remote.startswith("sc://"):
        raise SparkUnavailable(f"{conf_file}: spark.remote must be sc://HOST:PORT; without a server, set spark.master instead")
    if _TOKEN.search(remote):
        raise SparkUnavailable(
            f"{conf_file}: spark.remote holds a token, which is a secret: set it as SPARK_CONNECT_AUTHENTICATE_TOKEN instead"
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


def _jars(told: str, conf_file: str | Path) -> str:
    """The files of `spark.jars`, a pattern of local ones resolved: Spark resolves it for the driver, and not for the workers.

    Raises SparkUnavailable where there is no such file: Spark would go on without it.
    """
    found = []
    for place in filter(None, (one.strip() for one in told.split(","))):
        path = place.removeprefix("file://").removeprefix("file:")
        files = sorted(glob.glob(path)) if path.startswith("/") else [place]
        if not files:
            raise SparkUnavailable(
                f"{conf_file}: spark.jars: there is no {path}; `make jars JARS=FOLDER` fetches what s3a:// needs into a new"
                " folder, or remove the line where no asset reads S3 as a DataFrame"
            )
        found += files
    return ",".join(found)


@contextmanager
def cancellable(session: SparkSession) -> Generator[Callable[[], object]]:
    """Gives what cancels, from any thread, the jobs that this thread starts within the block; so does an interrupt."""
    from pyspark.sql.utils import is_remote

    tag = f"manifest-platform-{uuid4()}"

    def tell(remote: str, classic: str) -> object:
        """Of a classic session the context is told: the session's own tags are known to one thread only."""
        return getattr(session, remote)(tag) if is_remote() else getattr(session.sparkContext, classic)(tag)

    # A session that cannot be tagged runs no job either, and the job says why.
    with contextlib.suppress(Exception):
        tell("addTag", "addJobTag")
    cancel = partial(tell, "interruptTag", "cancelJobsWithTag")
    try:
        yield cancel
    except Exception:
        raise
    except BaseException:  # whoever waited for the job is told to end
        with contextlib.suppress(Exception):
            cancel()
        raise
    finally:
        with contextlib.suppress(Exception):
            tell("removeTag", "removeJobTag")
