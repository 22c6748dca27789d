"""The shells that complete with the Tab key: how each asks, and how it is answered.

Belongs here: the words of a shell's line. What there is to complete is said by Click, and by `completion`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from manifest_platform.cli.output import say

VARIABLE = "_MANIFEST_PLATFORM_COMPLETE"
"""The variable by which a shell asks."""


class Shell(StrEnum):
    """The shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class _Bash(BashComplete):
    """Bash takes `=` and `:` for ends of words, and has items' names in pieces: `run`, `=`, `2026-01-31`."""

    before = ""
    """What the shell has of the last word already, and must not be given again."""

    def get_completion_args(self) -> tuple[list[str], str]:
        at = int(os.environ["COMP_CWORD"])
        words = [*os.environ["COMP_WORDS"].split("\n"), ""][: at + 1]
        whole: list[str] = []
        for number, word in enumerate(words):
            self.before = whole[-1] if number and (word[:1] in _ENDS or words[number - 1][-1:] in _ENDS) else ""
            if self.before:
                whole[-1] += word
                self.before = whole[-1] if word[-1:] in _ENDS else self.before
            else:
                whole.append(word)
        return whole[1:-1], whole[-1]

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value.removeprefix(self.before)}"


_ENDS = ("=", ":")
_CLASSES: dict[Shell, type[ShellComplete]] = {Shell.BASH: _Bash, Shell.ZSH: ZshComplete, Shell.FISH: FishComplete}


def script(root: click.Command, program: str, shell: Shell) -> str:
    """What a shell runs to complete a program's lines."""
    return _CLASSES[shell](root, {}, program, VARIABLE).source()


def complete(root: click.Command, program: str, instruction: str) -> None:
    """Answers a shell that asks, by VARIABLE, what may stand at the end of a line. Says nothing where there is nothing."""
    with suppress(Exception):
        shell = Shell(instruction.partition("_")[0])
        if found := _CLASSES[shell](root, {}, program, VARIABLE).complete():
            say(found)
