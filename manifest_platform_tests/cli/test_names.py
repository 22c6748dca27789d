"""The commands by name: the help knows them without importing them, and says of each what it says itself."""

import subprocess
import sys

import click
import pytest
import typer

from manifest_platform import config, plugins
from manifest_platform.cli import main
from manifest_platform.cli.app import app, load
from manifest_platform.cli.commands import COMMANDS

HEAVY = {"yaml", "pydantic", "sqlalchemy", "httpx", "duckdb", "pyarrow", "pyspark", "boto3", "jsonschema", "dagster", "rich"}
LIGHT = {
    "manifest_platform",
    "manifest_platform.cli",
    *(f"manifest_platform.cli.{name}" for name in ("app", "commands", "exits", "fake_vault", "output", "signals", "waiting")),
    *(f"manifest_platform.{name}" for name in ("faults", "masking", "outward", "plugins", "progress", "quantities")),
}
"""Modules that the help imports. Of command modules, only those of plug-ins are allowed."""


def test_the_help_imports_neither_commands_nor_what_they_work_with() -> None:
    script = """
import sys
from manifest_platform.cli import main
assert main(["--help"]) == 0
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert {name for name in loaded if name.partition(".")[0] == "manifest_platform"} == LIGHT
    assert not HEAVY & loaded


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_help_says_of_it(name: str) -> None:
    command = load(name)
    assert command.name == name
    assert command.get_short_help_str(limit=1000).rstrip(".") == COMMANDS[name].help.rstrip(".")


def test_every_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        load(name)
    assert set(typer.main.get_group(app).commands) == set(COMMANDS)
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out.partition("Commands:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in shown.splitlines() if line[2] != " "] == [*COMMANDS, *plugins.names(plugins.COMMANDS)]


def test_a_name_that_is_mistyped_is_answered_with_one_that_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drian"]) == 2
    assert capsys.readouterr().err.count("Did you mean") == 1
    assert main(["store", "chek"]) == 2
    assert capsys.readouterr().err.count("Did you mean 'check'") == 1


def test_the_help_says_where_the_configuration_is_looked_for() -> None:
    context = click.Context(load("status"))
    [option] = [one for one in load("status").get_params(context) if one.name == "config"]
    assert isinstance(option, click.Option)
    assert option.help == f"Configuration file. Default: ${config.VARIABLE}, else {config.DEFAULT_FILE} in this folder."
