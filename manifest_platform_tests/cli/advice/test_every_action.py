"""Each action that a message may advise has a walk: nobody finds out in a night that a command does not help."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.remedies import Action
from manifest_platform_tests.cli.advice.terminal import Terminal


def _walks() -> set[Action]:
    """The actions that tests of this folder are marked with."""
    walked: set[Action] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        module: Any = import_module(f"{__package__}.{file.stem}")
        for test in vars(module).values():
            for mark in getattr(test, "pytestmark", ()):
                walked.update(mark.args if mark.name == "walks" else ())
    return walked


def test_every_action_is_walked() -> None:
    assert [action.name for action in Action if action not in _walks()] == []


def test_only_actions_are_walked() -> None:
    assert all(isinstance(action, Action) for action in _walks())


def test_what_is_not_typed_is_not_walked(capsys: pytest.CaptureFixture[str]) -> None:
    seen = Terminal(capsys)
    seen.told = "It waits. Do this first: manifest-platform drain --dataset acme."
    assert seen.advised(Action.DRAIN) == ["manifest-platform drain --dataset acme"]
    assert (seen.advised(Action.CAPTURE), seen.advised(Action.EXAMINE)) == ([], [])
    assert seen.missing({Action.DRAIN}) == ["DRAIN"]
    with pytest.raises(AssertionError, match="does not tell the command of EXAMINE"):
        seen.follow(Action.EXAMINE)
    seen.told = "mend it by `manifest-platform doctor --repair`, or look: manifest-platform history run=1"
    assert seen.advised(Action.EXAMINE) == []
    assert seen.advised(Action.REPAIR) == ["manifest-platform doctor --repair"]
    assert seen.advised(Action.READ_RECORDS) == ["manifest-platform history run=1"]
