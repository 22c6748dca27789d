"""Repeats of what failed for a moment: a lost race, a cut connection, a server that starts again.

Only what is safe to repeat is repeated: a transaction that was certainly rolled back, and reads. A COMMIT without an answer is
Unclear instead, and never repeated. None of it counts as a failure of an item.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential

from manifest_platform.warehouse.errors import Conflict, Unavailable

_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.01, 1.0

_T = TypeVar("_T")
_P = ParamSpec("_P")


def patiently(attempt: Callable[[], _T], patience: float, between: Callable[[], None], *, cut: bool = True) -> _T:
    """Repeats an attempt with pauses of random length that grow, until `patience` seconds after its first failure.

    It repeats after a Conflict, and after an Unavailable that may pass soon. `cut`: False for an attempt that needs what its
    connection holds, such as staged rows, which are lost with the connection. `between`: called before each repeat. Raises
    Unavailable.
    """
    first_failure: list[float] = []

    def passes_soon(error: BaseException) -> bool:
        return isinstance(error, Conflict) or (cut and isinstance(error, Unavailable) and error.soon)

    def is_over(state: RetryCallState) -> bool:
        now = state.outcome_timestamp or 0.0
        first_failure.append(now)
        return now - first_failure[0] >= patience

    retrying = Retrying(
        retry=retry_if_exception(passes_soon),
        stop=is_over,
        wait=wait_random_exponential(_SHORTEST_SECONDS, _LONGEST_SECONDS),
        before_sleep=lambda _: between(),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except Conflict as error:
        raise Unavailable(
            f"another transaction was in the way for {patience:g} s: {error}. Try again when it has ended"
        ) from error
    except Unavailable as error:
        error.soon = error.soon and not cut  # the attempt around it does not wait again
        raise


class Patient(Protocol):
    """An object whose methods are repeated."""

    def patiently(self, attempt: Callable[[], Any]) -> Any:
        """Repeats an attempt."""


_Self = TypeVar("_Self", bound=Patient)


def repeated(method: Callable[Concatenate[_Self, _P], _T]) -> Callable[Concatenate[_Self, _P], _T]:
    """Makes a method repeat itself patiently."""

    @functools.wraps(method)
    def patient(self: _Self, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return self.patiently(lambda: method(self, *arguments, **named))

    return patient
