"""Prints docs/reference/commands.md: every command with its arguments and options, from the command line's own help."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import click

from manifest_platform.cli.app import PROGRAM, Recording, _Commands, common_options
from manifest_platform.cli.exits import Exit

HEAD = """# Commands

This page lists every command of `manifest-platform` with its arguments, options and examples. The command line's own help is
the source: `manifest-platform COMMAND --help` prints the same. `make reference` writes this page.
Output, colors, signals and progress are described in [command-line.md](command-line.md), JSON answers in [json.md](json.md).

"""
COMMON = """## Options of every command

Write them before or after the name of the command. `manifest-platform --version` lists what is installed.

"""
RECORDING = "Commands that write records also take this option:\n\n"
CODES = "## Exit codes\n\nThey are the same for every command. Some commands add what a code means for them.\n\n"
MARKS = re.compile(r"(?=[*<|\\])")


def page() -> str:
    """The page in Markdown."""
    return HEAD + "".join(f"{part.strip()}\n\n" for part in _parts()).rstrip() + "\n"


def _parts() -> Iterator[str]:
    top = _Commands()
    context = click.Context(top, info_name=PROGRAM)
    names = top.list_commands(context)
    yield _index(names, top, context)
    yield COMMON + _table("option", [*common_options(), *_help(top, context)], context)
    yield RECORDING + _table("option", _recorded(), context)
    yield CODES + "| code | meaning |\n|---|---|\n" + "".join(f"| {code.value} | {code.meaning} |\n" for code in Exit)
    for name in names:
        _, command, _ = top.resolve_command(context, [name])
        assert command
        yield from _command(command, name, context, level=2)


def _index(names: list[str], top: click.Group, context: click.Context) -> str:
    listed = ((name, top.get_command(context, name)) for name in names)
    rows = (f"| [`{name}`](#{name}) | {_text(command.get_short_help_str())} |" for name, command in listed if command)
    return "| command | purpose |\n|---|---|\n" + "\n".join(rows)


def _command(command: click.Command, typed: str, parent: click.Context, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=typed.split()[-1], parent=parent)
    yield f"{'#' * level} {typed}\n\n{_paragraphs(command.help or '')}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _command(command.commands[name], f"{typed} {name}", context, level + 1)
        return
    yield f"```text\n{' '.join(context.get_usage().removeprefix('Usage: ').split())}\n```"
    known = {option.name for option in [*common_options(), *_recorded()]}
    own = [param for param in command.params if param.name not in known and not getattr(param, "hidden", False)]
    for kind in ("argument", "option"):
        if of_kind := [param for param in own if param.param_type_name == kind]:
            yield _table(kind, of_kind, context)
    if isinstance(command, Recording):
        yield "It also takes [`--run-id`](#options-of-every-command)."
    if command.epilog and "Examples:" in command.epilog:
        yield "```bash\n" + "\n".join(line.strip() for line in command.epilog.split("Examples:\n")[1].splitlines()) + "\n```"


def _recorded() -> list[click.Parameter]:
    return [option for option in Recording("recording").params if option.name == "run_id"]


def _help(top: click.Group, context: click.Context) -> list[click.Parameter]:
    return [option for option in top.get_params(context) if option.name == "help"]


def _table(kind: str, params: list[click.Parameter], context: click.Context) -> str:
    records = [param.get_help_record(context) for param in params]
    rows = [f"| `{record[0]}` | {_text(record[1])} |" for record in records if record]
    return f"| {kind} | meaning |\n|---|---|\n" + "\n".join(rows)


def _paragraphs(text: str) -> str:
    """The help as Markdown: click's mark of a paragraph whose lines stay becomes a block of text."""
    made = []
    for paragraph in text.strip().split("\n\n"):
        kept = paragraph.startswith("\b\n")
        made.append(f"```text\n{paragraph[2:]}\n```" if kept else _text(paragraph))
    return "\n\n".join(made)


def _text(text: str) -> str:
    """Running text with the signs escaped that Markdown would take for its own; what is in backticks stays."""
    parts = text.split("`")
    return "`".join(part.replace("|", "\\|") if inside % 2 else MARKS.sub(r"\\", part) for inside, part in enumerate(parts))


if __name__ == "__main__":
    sys.stdout.write(page())
