"""`completion`: what a shell completes with the Tab key: commands and options, and the datasets and items that there are.

Completing never fails and says nothing: where the configuration or the store cannot be read, there is nothing to complete.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import click
import typer
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from manifest_platform.cli.app import COMPLETE_VARIABLE, PROGRAM, Command, Exit, app, as_json, given
from manifest_platform.cli.output import print_json, say

OFFERED = 30
"""Newest items that are offered."""


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


@app.command(
    cls=Command,
    epilog="\b\nFor every shell that is started from now on:\n"
    f"  bash  echo 'eval \"$({PROGRAM} completion bash)\"' >> ~/.bashrc\n"
    f"  zsh   echo 'eval \"$({PROGRAM} completion zsh)\"' >> ~/.zshrc\n"
    f"  fish  {PROGRAM} completion fish > ~/.config/fish/completions/{PROGRAM}.fish",
)
def completion(
    context: typer.Context, shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]
) -> int:
    """Prints what makes a shell complete commands, options, datasets and items with the Tab key."""
    root = context.find_root().command
    script = _CLASSES[shell](root, {}, PROGRAM, COMPLETE_VARIABLE).source()
    if as_json(context):
        print_json({"shell": shell, "script": script})
    else:
        say(script)
    return Exit.DONE


def complete(root: click.Command, instruction: str) -> int:
    """Answers a shell that asks, by COMPLETE_VARIABLE, what may stand at the end of a line."""
    with suppress(Exception):
        shell = Shell(instruction.partition("_")[0])
        if found := _CLASSES[shell](root, {}, PROGRAM, COMPLETE_VARIABLE).complete():
            say(found)
    return Exit.DONE


def datasets(context: typer.Context, incomplete: str) -> list[str]:
    """The configured datasets whose names begin so."""
    from manifest_platform import config

    with suppress(Exception):
        return [name for name in config.load(given(context, "config")).datasets if name.startswith(incomplete)]
    return []


def items(context: typer.Context, incomplete: str) -> list[str]:
    """The newest items whose names begin so."""
    from manifest_platform.cli.context import open_pipeline
    from manifest_platform.operations.search import Search, search

    with suppress(Exception), open_pipeline(context) as pipeline:
        found = [
            hit for feed in pipeline.source.feeds for hit in search(pipeline.manifest, Search(feed), OFFERED, OFFERED).found
        ]
        return [hit.item.key.name for hit in found if hit.item.key.name.startswith(incomplete)]
    return []
