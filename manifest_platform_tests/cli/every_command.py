"""All commands and groups, as the terminal knows them: what tests about each of them walk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import click

from manifest_platform.cli.app import _Commands, load


@cache
def every_command() -> dict[str, click.Command]:
    """Commands and groups of commands by what is typed after the program's name; the program itself by nothing."""
    top = _Commands()
    return {"": top, **{" ".join(path): command for name in top.list_commands(_context(top)) for path, command in _below(name)}}


def _below(name: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    command = load(name)
    yield (name,), command
    if isinstance(command, click.Group):
        yield from (((name, part), command.commands[part]) for part in command.list_commands(_context(command)))


def _context(command: click.Command) -> click.Context:
    return click.Context(command, terminal_width=80, max_content_width=80)


def help_of(typed: str) -> str:
    """The help of a command on a terminal of 80 columns."""
    command = every_command()[typed]
    return command.get_help(click.Context(command, info_name=f"manifest-platform {typed}".strip(), terminal_width=80))
