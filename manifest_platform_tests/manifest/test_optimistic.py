import pytest

from manifest_platform.manifest import Refused
from manifest_platform.manifest.store import Changed, Check, ConditionFailed, OutcomeUnknown, optimistically

LOST = ConditionFailed([Check("row", 1)])


class Attempt:
    """A call that raises these errors, one at each try, and then returns the number of its tries."""

    def __init__(self, *errors: Exception):
        self.calls, self.errors = 0, list(errors)

    def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


def test_an_attempt_that_lost_a_conflict_is_repeated() -> None:
    assert optimistically(Attempt(LOST, Changed()), lambda: Refused("given up")) == 3


def test_giving_up_names_the_last_conflict_as_its_cause() -> None:
    attempt, given_up = Attempt(*[LOST] * 4), Refused("changed 3 times")
    with pytest.raises(Refused) as told:
        optimistically(attempt, lambda: given_up, tries=3)
    assert (told.value, told.value.__cause__, attempt.calls) == (given_up, LOST, 3)


def test_other_errors_are_raised_unless_they_are_named() -> None:
    with pytest.raises(OutcomeUnknown):
        optimistically(Attempt(OutcomeUnknown("?")), lambda: Refused("given up"))
    assert optimistically(Attempt(OutcomeUnknown("?")), lambda: Refused("given up"), again_on=(OutcomeUnknown,)) == 2
    with pytest.raises(ConditionFailed):
        optimistically(Attempt(LOST), lambda: Refused("given up"), again_on=(OutcomeUnknown,))


def test_pauses_double_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda _low, high: high)
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    optimistically(Attempt(*[LOST] * 4), lambda: Refused("given up"), longest_pause_s=0.01)
    assert slept == [0.004, 0.008, 0.01, 0.01]
    optimistically(Attempt(LOST), lambda: Refused("given up"))
    assert len(slept) == 4
