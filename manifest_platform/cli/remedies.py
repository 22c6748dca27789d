"""The commands of remedies: turns an action such as `resolve` into the command line that a person types.

Adds --dataset if several datasets are configured, and --config if the command was called with it.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from typing import Any

import click

from manifest_platform.cli.app import given
from manifest_platform.cli.context import chosen_dataset, configuration
from manifest_platform.remedies import Action, Remedy

_COMMANDS = {
    Action.RESOLVE: "resolve {0.item}",
    Action.RESHRED: "reshred {0.item}",
    Action.ACCEPT: "accept {0.item} --reason TEXT",
    Action.KEEP: "accept {0.item} --keep --reason TEXT",
    Action.SKIP: "skip {0.item} --reason TEXT",
    Action.UNSKIP: "unskip {0.item}",
    Action.READ_RECORDS: "history {0.item}",
    Action.RELOAD_MISSING: "reload {0.item} --missing-rows",
    Action.EXPLAIN: "explain {0.item}",
    Action.DISCOVER: "discover",
    Action.DISCOVER_ALL: "discover --all",
    Action.CAPTURE: "capture",
    Action.CAPTURE_SNAPSHOT: "capture --feed {0.feed}",
    Action.BEGIN_FULL_LOAD: "full begin latest",
    Action.LOAD_SNAPSHOT: "full begin {0.item}",
    Action.ALLOW_EMPTY: "full begin {0.item} --allow-empty",
    Action.ALLOW_SHRINK: "full begin {0.item} --allow-shrink",
    Action.CANCEL_FULL_LOAD: "full cancel",
    Action.DRAIN: "drain",
    Action.RUN_PROGRAM: "run --application {0.step} -- COMMAND",
    Action.SHOW_STATUS: "status",
    Action.SHOW_NEXT: "next",
    Action.EXAMINE: "doctor",
    Action.REPAIR: "doctor --repair",
    Action.CLEAN: "doctor --clean",
    Action.CREATE_STORE: "store create",
    Action.RECONCILE: "warehouse reconcile",
    Action.RECONCILE_IN_FULL: "warehouse reconcile --full",
    Action.ACCEPT_WAREHOUSE: "warehouse accept --reason TEXT",
    Action.IMPORT: "import-snowplow {0.source}",
    Action.IMPORT_LOADER: "import-snowflake {0.source}",
    Action.IMPORT_MOVED: "import-moved {0.source} {0.item}",
    Action.MERGE: "merge run",
    Action.MERGE_PARTITION: "merge run --table {0.table} --date {0.day}",
    Action.REBUILD: "merge rebuild {0.table} {0.day}",
    Action.RETRY_MERGE: "merge retry {0.table} {0.day}",
    Action.SHOW_MERGING: "merge status",
    Action.PUBLISH: "merge publish",
    Action.VERIFY_PUBLISHED: "merge publish --verify",
}
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
    own, separator, program = _COMMANDS[remedy.action].format(remedy.quoted()).partition(" -- ")
    return f"manifest-platform {own}{options}{separator}{program}"


def typed(context: click.Context, dataset: str | None = None) -> Typed:
    """Returns the function that turns remedies into command lines for this configuration and dataset.

    `dataset`: overrides the one of the command line.
    """
    name, file = dataset or chosen_dataset(context), given(context, "config")
    settings = configuration(context)
    options = f" --dataset {name}" if name and len(settings.datasets) > 1 else ""
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
