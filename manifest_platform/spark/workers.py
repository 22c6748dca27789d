"""Waits until a cluster has workers for a session.

Spark waits for ever where a cluster has no worker, or none with the memory and cores that the session asks for: it only logs
that a job has not accepted any resources. A drain then hangs with its items claimed.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manifest_platform import progress
from manifest_platform.quantities import duration
from manifest_platform.spark.cancellation import cancellable
from manifest_platform.spark.errors import SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_seen: set[str] = set()
"""The sessions whose workers have run a task, by id. A process asks once for each, not for every batch of items."""


def await_workers(session: SparkSession, seconds: float, conf_file: str | Path) -> None:
    """Returns once a worker has run a task for a session. Raises SparkUnavailable if none does within `seconds`."""
    id_ = _id(session)
    if id_ in _seen:
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
                session.range(0, 1, 1, 1).collect()
        except Exception as error:
            if late.is_set():
                raise SparkUnavailable(_told(session, seconds, conf_file)) from error
            reason = str(error).partition("\n\tat ")[0].strip()
            raise SparkUnavailable(f"Spark with {conf_file} runs no task: {reason}; see Spark's log") from error
        finally:
            timer.cancel()
    _seen.add(id_)


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
