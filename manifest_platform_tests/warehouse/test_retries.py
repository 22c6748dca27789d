"""Repeats of what failed for a moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from manifest_platform.warehouse.errors import Conflict, Fenced, LoadFailed, Unavailable, Unclear
from manifest_platform.warehouse.retries import patiently


def failing(*errors: Exception) -> Callable[[], str]:
    """A call that raises each error once, then answers."""
    left = list(errors)

    def call() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return call


def test_what_passes_soon_is_repeated_within_the_patience() -> None:
    between: list[int] = []
    call = failing(Unavailable("cut", soon=True), Conflict("lost"))
    assert patiently(call, 30, lambda: between.append(1)) == "done"
    assert between == [1, 1]


@pytest.mark.parametrize(
    "error", [Unavailable("the password is wrong"), LoadFailed("wrong"), Unclear("?"), Fenced("x", (1, 1), 2, 1)]
)
def test_what_does_not_pass_or_may_have_happened_is_not_repeated(error: Exception) -> None:
    with pytest.raises(type(error)):
        patiently(failing(error), 30, lambda: None)


def test_after_the_patience_a_conflict_is_an_outage_and_nobody_around_waits_again() -> None:
    with pytest.raises(Unavailable, match="another transaction was in the way for 0 s") as lost:
        patiently(failing(Conflict("lost")), 0, lambda: None)
    with pytest.raises(Unavailable) as cut:
        patiently(failing(Unavailable("cut", soon=True)), 0, lambda: None)
    assert not lost.value.soon
    assert not cut.value.soon


def test_an_attempt_that_needs_its_connection_is_left_to_the_attempt_around_it() -> None:
    with pytest.raises(Unavailable) as cut:
        patiently(failing(Unavailable("cut", soon=True)), 30, lambda: None, cut=False)
    assert cut.value.soon
