"""A terminal: runs command lines in this process, and types what their messages tell to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.cli.app import Command
from manifest_platform.cli.remedies import _OF_OTHERS, typed, with_remedy
from manifest_platform.operations.remedy_commands import COMMANDS
from manifest_platform.remedies import Action

PROGRAM = "manifest-platform"
OPTIONS = ("--dataset", "--config")
"""Options that an advised command may have after the words that identify its action."""


class Terminal:
    """The terminal of a person. `told`: the last message. `followed`: the actions whose commands were typed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.told = ""
        self.followed: set[Action] = set()

    def run(self, *arguments: str, code: int = 0) -> str:
        """Returns stdout and stderr of a command line. Fails if the exit code differs."""
        self._capsys.readouterr()
        ended = main(list(arguments))
        captured = self._capsys.readouterr()
        self.told = captured.out + captured.err
        assert ended == code, f"{shlex.join(arguments)} ended with {ended}: {self.told}"
        return self.told

    def raised(self, error: Any) -> str:
        """The message of an error that helps, as the command line that meets it would say it."""
        with Command("walk", callback=lambda: None).make_context("walk", []) as context:
            self.told = with_remedy(str(error), error.remedy, typed(context))
        return self.told

    def advised(self, action: Action) -> list[str]:
        """The commands of an action that the last message tells, each as a list of words would be typed."""
        if action in _OF_OTHERS:
            return [_OF_OTHERS[action]] if _OF_OTHERS[action] in self._words() else []
        own = re.split(r"\s+", COMMANDS[action].partition(" -- ")[0])
        word = r"[^\s`]+"
        wanted = [word if part.startswith("{") else re.escape(part) for part in own]
        options = "".join(rf"(?: {option} {word})?" for option in OPTIONS)
        program = " -- COMMAND" if " -- " in COMMANDS[action] else ""
        told = re.findall(rf"{PROGRAM} {' '.join(wanted)}{options}{program}(?! --)(?=[\s`.,:;)]|$)", self._words())
        return [command.rstrip(".,:;)") for command in told]

    def follow(self, action: Action, code: int = 0, **words: str) -> str:
        """Types the command that the last message tells for an action, and returns what that prints.

        `words`: what a person puts in place of TEXT or COMMAND.
        """
        found = self.advised(action)
        assert found, f"the message does not tell the command of {action.name}: {self.told}"
        self.followed.add(action)
        if action in _OF_OTHERS:
            return self.told
        typed_ = [words.get(word, word) for word in shlex.split(found[0])]
        assert "TEXT" not in typed_ or words, "a person says why: follow(action, TEXT='…')"
        return self.run(*typed_[1:], code=code)

    def missing(self, actions: Iterable[Action]) -> list[str]:
        """The names of those of the actions that were not followed."""
        return [action.name for action in actions if action not in self.followed]

    def _words(self) -> str:
        """The last message as one line: what is wrapped is one command still."""
        return " ".join(self.told.split())


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Any:
    """A terminal of a shop's or a vault's operator; at the end, what the test is marked with must have been followed."""
    seen = Terminal(capsys)
    yield seen
    marks = {action for mark in request.node.iter_markers("walks") for action in mark.args}
    assert not (left := seen.missing(marks)), f"not walked: {', '.join(left)}"


def at(monkeypatch: pytest.MonkeyPatch, file: Any) -> None:
    """The configuration that command lines find."""
    monkeypatch.setenv(config.VARIABLE, str(file))


__all__ = ["Terminal", "at", "terminal"]
