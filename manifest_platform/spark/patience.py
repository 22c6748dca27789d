"""The patience of a Spark Connect client with a server that has gone. It imports the client: import it only with a session."""

from __future__ import annotations

from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState

_FIRST_MS, _LONGEST_MS, _REPEATS = 500, 4000, 5
"""The pauses between repeats of a request double: 11.5 seconds in all. Spark's own client continues for ten minutes."""


class Patience(DefaultPolicy):
    """Repeats a request that meets no server, for seconds. Once that was in vain, no further request is repeated.

    `in_vain`: true from then on. Otherwise each request after a lost job, and each at the end of the process, waits again.
    """

    def __init__(self) -> None:
        super().__init__(_REPEATS, 2.0, _FIRST_MS, _LONGEST_MS, 0)
        self.in_vain = False

    def can_retry(self, e: BaseException) -> bool:
        """True if a request that failed is repeated."""
        return not self.in_vain and super().can_retry(e)

    def to_state(self) -> RetryPolicyState:
        """Returns the state of one request."""
        return _OfRequest(self)


class _OfRequest(RetryPolicyState):
    """The repeats of one request."""

    def __init__(self, patience: Patience) -> None:
        super().__init__(patience)
        self._patience = patience

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        """Returns the pause before the next repeat in milliseconds; None if there is none."""
        pause = super().next_attempt(exception)
        self._patience.in_vain = pause is None
        return pause
