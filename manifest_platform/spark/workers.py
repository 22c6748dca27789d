"""Waits until a cluster has workers for a session, whose Python has this package.

Spark waits for ever where a cluster has no worker, or none with the memory and cores that the session asks for: it only logs
that a job has not accepted any resources. A drain then hangs with its items claimed. So a session is asked when it begins, and
again before each batch of work, because a cluster may lose its workers while a session stays.
"""

from __future__ import annotations

import platform
import re
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manifest_platform import __version__, progress
from manifest_platform.quantities import duration
from manifest_platform.spark.cancellation import cancellable
from manifest_platform.spark.errors import SparkUnavailable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_seen: dict[str, float] = {}
"""When a worker last ran a task for a session, by the session's id."""

_FRESH_S = 3.0
"""Seconds for which that is not asked again: batches that follow each other need no empty job each."""


def await_workers(session: SparkSession, seconds: float, conf_file: str | Path) -> None:
    """Returns once a worker has run a task for a session, now or seconds ago, in a Python that has this package.

    Raises SparkUnavailable if none does within `seconds`, or if the workers' Python, or what it has, differs from here.
    """
    id_ = _id(session)
    if id_ in _seen and time.monotonic() - _seen[id_] < _FRESH_S:
        return
    late = threading.Event()

    with cancellable(session) as cancel:

        def give_up() -> None:
            late.set()
            cancel()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            with progress.work("waiting for Spark's workers"):
                [row] = session.range(0, 1, 1, 1).mapInArrow(_release, "release string").collect()
        except Exception as error:
            if late.is_set():
                raise SparkUnavailable(_told(session, seconds, conf_file)) from error
            raise SparkUnavailable(_refused(str(error), conf_file)) from error
        finally:
            timer.cancel()
    if row[0] != __version__:
        raise SparkUnavailable(
            f"the workers of Spark with {conf_file} have release {row[0]} of manifest-platform, and this process {__version__}:"
            f" {_BRING}"
        )
    _seen[id_] = time.monotonic()


def _release(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker: yields the release of this package there, once."""
    import pyarrow

    for _ in batches:
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([__version__])], ["release"])


_BRING = "write the archive with `spark package` and set spark.package to it"
_LACKS = re.compile(r"No module named '([\w.]+)'|\[PACKAGE_NOT_INSTALLED\] (\w+)")
_OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\].*?(?=\n|\Z)|manifest-platform: this worker has no Python.*?(?=\n|\Z)")


def _refused(error: str, conf_file: str | Path) -> str:
    """Returns the message for a task that failed: what the workers lack, or the reason without a Java stack trace."""
    if found := _OTHER_PYTHON.search(error):
        return (
            f"the workers of Spark with {conf_file} have another Python than this process, {platform.python_version()}:"
            f" {found[0].strip()}"
        )
    if found := _LACKS.search(error):
        return f"the workers of Spark with {conf_file} have no {found[1] or found[2]}: {_BRING}"
    reason = error.partition("\n\tat ")[0].strip()
    return f"Spark with {conf_file} runs no task: {reason}; see Spark's log"


def _id(session: SparkSession) -> str:
    from pyspark.sql.utils import is_remote

    remote: Any = session
    return str(remote.session_id) if is_remote() else str(session.sparkContext.applicationId)


def _told(session: SparkSession, seconds: float, conf_file: str | Path) -> str:
    asked = [f"{name} {value}" for name in _ASKED if (value := session.conf.get(name, None))]
    with_ = f", with {', '.join(asked)}" if asked else ""
    return (
        f"no worker has run a task within {duration(seconds)}. Spark with {conf_file} needs a worker that is alive and has what"
        f" the session asks for{with_}: start workers, free their cores, or ask for less in that file. If workers need longer"
        " to start, raise spark.start_timeout_seconds"
    )


_ASKED = ("spark.master", "spark.executor.memory", "spark.executor.cores")
"""Properties that decide which workers a session gets."""
