"""The commands of remedies: turns an action such as `resolve` into the command line that a person types.

Adds --dataset if several datasets are configured, or only another dataset, and --config if the command was called with it.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from typing import Any

import click

from manifest_platform.cli.app import given
from manifest_platform.cli.context import chosen_dataset, configuration
from manifest_platform.operations.remedy_commands import COMMANDS
from manifest_platform.remedies import Action, Remedy

_OF_OTHERS = {Action.CHECK_CLOCK: "timedatectl status"}
"""Commands of other programs, which do not take this program's options."""

Typed = Callable[[Remedy], str]
"""Returns the command line of a remedy."""


def command_of(remedy: Remedy, options: str = "", first: str = "") -> str:
    """Returns the command line of a remedy. `options`: options to add, each with a leading blank.

    `first`: the first target of the dataset, if it has several.
    """
    if remedy.action in _OF_OTHERS:
        return _OF_OTHERS[remedy.action]
    target = remedy.target_of(first)
    if target:
        options = f" --target {target}{options}"
    own, separator, program = COMMANDS[remedy.action].format(remedy.quoted()).partition(" -- ")
    return f"manifest-platform {own}{options}{separator}{program}"


def typed(context: click.Context, dataset: str | None = None) -> Typed:
    """Returns the function that turns remedies into command lines for this configuration and dataset.

    `dataset`: overrides the one of the command line.
    """
    name, file = dataset or chosen_dataset(context), given(context, "config")
    settings = configuration(context)
    options = f" --dataset {name}" if name and [*settings.datasets] != [name] else ""
    if file:
        options += f" --config {shlex.quote(file)}"
    targets = settings.targets_of(name) if name in settings.datasets else ()
    first = targets[0] if len(targets) > 1 else ""
    return lambda remedy: command_of(remedy, options, first)


def with_remedy(message: str, remedy: Remedy, as_typed: Typed) -> str:
    """Returns an error message followed by the command of its remedy."""
    lead = "See" if remedy.action.only_looks else "Do this first:"
    return f"{message.rstrip('.')}. {lead} {as_typed(remedy)}"


def document(value: Any, as_typed: Typed) -> dict[str, Any]:
    """Returns the fields of a dataclass for JSON. The remedy becomes `command`, empty if there is nothing to do."""
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    remedy = fields.pop("remedy")
    return {**fields, "command": as_typed(remedy) if remedy else ""}
