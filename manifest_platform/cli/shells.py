"""The shells that completion supports: how each asks for completions, and the format of the answer.

Does not belong here: the values to complete. Click finds commands and options, `completion` finds datasets and items.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from manifest_platform.cli.output import say

VARIABLE = "_MANIFEST_PLATFORM_COMPLETE"
"""The environment variable that a shell sets to ask for completions."""


class Shell(StrEnum):
    """The shells that completion supports."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class _Bash(BashComplete):
    """Bash splits words at `=` and `:`, so that it passes item names in pieces: `run`, `=`, `2026-01-31`."""

    before = ""
    """The part of the last word that the shell has already; the answer must not repeat it."""

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
    """Returns the script that makes a shell complete a program's command lines."""
    return _CLASSES[shell](root, {}, program, VARIABLE).source()


def complete(root: click.Command, program: str, instruction: str) -> None:
    """Prints the completions for a shell's command line. Prints nothing if there are none, or on any error.

    `instruction`: the value of VARIABLE.
    """
    with suppress(Exception):
        shell = Shell(instruction.partition("_")[0])
        if found := _CLASSES[shell](root, {}, program, VARIABLE).complete():
            say(found)
