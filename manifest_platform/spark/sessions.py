"""The Spark session, as a properties file describes it.

Belongs here: reading such a file (`spark_conf/` has one for each place to run), and what a local Spark needs from its
environment. What Spark is used for does not.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTY = re.compile(r"([^\s=:]+)\s*[\s=:]\s*(.*)")


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


def session(conf_file: str | Path, more: Mapping[str, str] | None = None) -> SparkSession:
    """The process's Spark session, with the properties of a file and `more`; made at the first call, some five seconds.

    A local master gets this interpreter for its workers, the loopback address, and the logging set-up that lies beside
    the file (`log4j2.properties`). Without `spark.master` in the file, Spark takes what it was submitted with.
    Raises SparkUnavailable.
    """
    settings = properties(conf_file) | dict(more or {})
    if settings.get("spark.master", "").startswith("local"):
        if not shutil.which("java") and not os.environ.get("JAVA_HOME"):
            raise SparkUnavailable("Spark needs Java 17 or newer, and there is no java on the PATH; install a JDK or JRE")
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_CONF_DIR", str(Path(conf_file).absolute().parent))
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("manifest_platform")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        reason = str(error).partition("\n\tat ")[0]  # the Java stack trace is in the error's cause
        raise SparkUnavailable(f"Spark with {conf_file} does not start: {reason}; see the lines above") from error


@contextmanager
def cancellable(session: SparkSession) -> Generator[Callable[[], object]]:
    """Gives what cancels, from any thread, the jobs that this thread starts within the block."""
    from pyspark.sql.utils import is_remote

    tag = f"manifest-platform-{uuid4()}"

    def tell(remote: str, classic: str) -> object:
        """Of a classic session the context is told: the session's own tags are known to one thread only."""
        return getattr(session, remote)(tag) if is_remote() else getattr(session.sparkContext, classic)(tag)

    # A session that cannot be tagged runs no job either, and the job says why.
    with contextlib.suppress(Exception):
        tell("addTag", "addJobTag")
    try:
        yield partial(tell, "interruptTag", "cancelJobsWithTag")
    finally:
        with contextlib.suppress(Exception):
            tell("removeTag", "removeJobTag")
