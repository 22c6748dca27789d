"""Every command and option has its text, every main command its examples, and every exit code its line."""

import re
import shlex
from pathlib import Path

import click
import pytest

from manifest_platform.cli.app import Group, given, load, main
from manifest_platform.cli.exits import Exit
from manifest_platform_tests.cli.every_command import every_command, help_of

MAIN = {
    "accept", "archive", "bad replay", "capture", "discover", "doctor", "drain", "explain", "full begin", "history", "init",
    "merge explain", "merge run", "merge show", "preview", "query", "queue", "reload", "reshred", "resolve", "skip add",
    "skip items", "sql",
    "status", "unskip", "warehouse check", "warehouse grants", "warehouse reconcile", "warehouse upkeep",
}  # fmt: skip
"""The commands whose help has examples."""


@pytest.mark.parametrize("typed", every_command())
def test_the_help_tells_of_each_argument_and_option_once_in_80_columns(typed):
    command, told = every_command()[typed], help_of(typed)
    assert (command.help or "").strip(), f"{typed}: no text"
    for param in command.params:
        text = getattr(param, "help", None)
        assert text, f"{typed}: {param.opts} has no text"
        assert re.sub(r"\s+", " ", text.strip())[:20] in re.sub(r"\s+", " ", told), f"{typed}: {param.opts} is not told of"
        assert text.endswith((".", "]")) and text[0] == text[0].upper(), f"{typed}: {param.opts}: {text!r} is no sentence"

    assert max(map(len, told.splitlines())) <= 80
    assert not re.search(r"[a-z]\.\.\.", told)  # no text is cut
    assert "Positional arguments" not in told

    options = {option for param in command.params for option in param.opts}
    assert {"--config", "--dataset", "--json"} <= options


@pytest.mark.parametrize("typed", sorted(MAIN))
def test_examples_can_be_typed(typed):
    _, _, block = help_of(typed).partition("Examples:\n")
    lines = [line.strip() for line in block.splitlines() if line.strip()]
    assert lines
    for line in lines:
        name, *arguments = shlex.split(line)[1:]
        command = load(name)
        while isinstance(command, click.Group):
            context = command.make_context(name, arguments)
            name, *arguments = context._protected_args + context.args
            command = command.commands[name]
        command.make_context(name, arguments)


def test_a_group_takes_the_common_options_too():
    group = every_command()["merge"]
    assert isinstance(group, Group)
    context = group.make_context("merge", ["--dataset", "acme", "status"])
    assert given(context, "dataset") == "acme"


def test_exit_codes_are_the_same_in_the_help_and_the_docs(capsys):
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    page = Path("docs/reference/command-line.md").read_text()
    for code in Exit:
        assert f"{code.value}  {code.meaning}" in told
        assert f"| {code.value} | {code.meaning} |" in page
