"""Cancels Spark jobs from any thread, in classic and in Spark Connect sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def cancellable(session: SparkSession) -> Generator[Callable[[], object]]:
    """Yields a function that cancels, from any thread, the jobs that this thread starts in the block. So does an interrupt."""
    from pyspark.sql.utils import is_remote

    tag = f"manifest-platform-{uuid4()}"

    def call(remote: str, classic: str) -> object:
        """Calls a method of the session, or of a classic session's context: session tags would be local to one thread."""
        return getattr(session, remote)(tag) if is_remote() else getattr(session.sparkContext, classic)(tag)

    # A session that cannot be tagged cannot run a job either, and the job reports the reason.
    with contextlib.suppress(Exception):
        call("addTag", "addJobTag")
    cancel = partial(call, "interruptTag", "cancelJobsWithTag")
    try:
        yield cancel
    except Exception:
        raise
    except BaseException:  # the waiting thread was interrupted
        with contextlib.suppress(Exception):
            cancel()
        raise
    finally:
        with contextlib.suppress(Exception):
            call("removeTag", "removeJobTag")
