"""Optimistic work: read, decide and write on condition that what was read is still so; where it is not, do all of it anew.

Belongs here: the loop alone. An attempt is a function without parameters that does all of it, so that nothing it read before
outlives a try.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from manifest_platform.manifest.store import ConditionFailed

Result = TypeVar("Result")

TRIES = 20
FIRST_PAUSE_S = 0.002


class Changed(Exception):
    """Raised by an attempt that saw by itself, without a write that failed, that what it read changed meanwhile."""


def optimistically(
    attempt: Callable[[], Result],
    given_up: Exception,
    *,
    tries: int = TRIES,
    again_on: tuple[type[Exception], ...] = (ConditionFailed, Changed),
    longest_pause_s: float = 0.0,
) -> Result:
    """Calls `attempt` until others leave alone what it reads; returns what it returns. Raises `given_up` after `tries` calls.

    `again_on`: the errors by which an attempt says that it lost; an attempt whose reading also settles a lost answer adds
    OutcomeUnknown. Any other error goes through. `longest_pause_s`: before each further try a random pause that doubles, up
    to so many seconds; 0 for none.
    """
    last: Exception | None = None
    for done in range(tries):
        if done and longest_pause_s:
            time.sleep(random.uniform(0, min(longest_pause_s, FIRST_PAUSE_S * 2**done)))  # noqa: S311
        try:
            return attempt()
        except again_on as error:
            last = error
    raise given_up from last
