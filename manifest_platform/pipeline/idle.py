"""The end of Spark's session in a follower that has nothing to do, at places where a session costs money while it waits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from manifest_platform import spark


class Idleness:
    """Ends the session of this process after some seconds without work. The next work opens another.

    `seconds`: None to keep the session. `due`: the time when the session is ended, by the monotonic clock.
    """

    def __init__(self, seconds: float | None, end: Callable[[], object] = spark.end) -> None:
        self._seconds, self._end = seconds, end
        self.due = math.inf

    def worked(self) -> None:
        """Notes that the session may have been used just now."""
        self.due = math.inf if self._seconds is None else time.monotonic() + self._seconds

    def look(self) -> None:
        """Ends the session if it is due."""
        if time.monotonic() >= self.due:
            self.due = math.inf
            self._end()
