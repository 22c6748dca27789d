"""Calls every command of an installed package, with arguments made up; prints, as JSON, how each ended.

A program for the interpreter of another environment, which lacks the tests' packages: `python walk.py`, in a folder with a
configuration. What is printed of a command: its exit code and what it said, or the exception that it let out.
"""

import contextlib
import io
import json
import sys
import traceback

import click

from manifest_platform.cli import app, main

ITEM = "run=2026-11-01-10-00-00"
NEVER_END = {"fake-vault"}
GIVEN = {
    "accept": [ITEM],
    "archive": ["--older-than", "90d"],
    "explain": [ITEM],
    "history": [ITEM],
    "import": ["/dev/null"],
    "reload": [ITEM],
    "reshred": [ITEM],
    "resolve": [ITEM],
    "run": ["--application", "report", "--", "true"],
    "skip": [ITEM, "--reason", "not wanted"],
    "skip add": ["run=2020*", "--reason", "not wanted"],
    "sql": ["SELECT 1"],
    "merge query": ["SELECT 1"],
    "unskip": [ITEM],
    "preview": ["landing"],
}
"""Arguments for commands that would do nothing with invented values."""


def commands(command, context, path=()):
    """Every command below a group by its words, with its parameters. A group that is a command itself counts as well."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = app.load(name) if not path else command.get_command(context, name)
            yield from commands(inner, click.Context(inner, parent=context, info_name=name), (*path, name))
    if path and (not isinstance(command, click.Group) or command.invoke_without_command or path == ("skip",)):
        yield path, command


def made_up(command):
    """A value for whatever the command requires."""
    for parameter in command.params:
        if parameter.required:
            value = parameter.type.choices[0] if isinstance(parameter.type, click.Choice) else "1"
            yield from ([value] if isinstance(parameter, click.Argument) else [parameter.opts[0], value])


def called(arguments):
    """Runs a command line and returns its result."""
    out, err = io.StringIO(), io.StringIO()
    found = {"arguments": arguments}
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            found["code"] = int(main(arguments))
        except BaseException:
            found["exception"] = traceback.format_exc()
    return {**found, "out": out.getvalue(), "err": err.getvalue()}


every = app._Commands()
with click.Context(every, info_name="manifest-platform") as root:
    known = [(" ".join(path), list(made_up(command))) for path, command in commands(every, root)]
for name, arguments in known:
    if name not in NEVER_END:
        json.dump({"name": name, **called([*name.split(), *GIVEN.get(name, arguments)])}, sys.stdout)
        print()
