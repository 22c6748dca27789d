"""`queue`: shows a dataset as a control table with a queue, the layout that Veeva's accelerators use."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import click
import typer

from manifest_platform.cli.app import Command, WrongUse, app, as_json, examples
from manifest_platform.cli.context import Target, chosen_dataset, configuration, open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_lines, print_table, say, warn, wrapped
from manifest_platform.operations.queue import ControlRow, QueueRow, Status, queue
from manifest_platform.quantities import moment
from manifest_platform.sources.source import open_source

THE_ONE = ""
"""The value of `--vault` without a number: the only vault."""


class _VaultOption(Command):
    """A command whose option `--vault` has an optional number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Inserts an empty number after a `--vault` that has none."""
        for at in reversed([at for at, one in enumerate(args) if one == "--vault"]):
            if at + 1 == len(args) or not args[at + 1].isdecimal():
                args = [*args[: at + 1], THE_ONE, *args[at + 1 :]]
        return super().parse_args(ctx, args)


@app.command("queue", cls=_VaultOption, epilog=examples("queue --vault", "queue --status FAILED --limit 20"))
def queue_(
    context: typer.Context,
    vault: Annotated[
        str | None, typer.Option(metavar="[ID]", help="Number of the vault to show. Without a number: the only vault.")
    ] = None,
    filetype: Annotated[
        str | None, typer.Option(metavar="NAME", help="Feed to show: FULL, INCR or LOG for a vault. Default: all.")
    ] = None,
    status: Annotated[list[Status] | None, typer.Option(help="Show only items with this status. Repeatable.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="Number of the newest items of each feed.")] = 96,
    target: Target = None,
) -> int:
    """Shows a dataset as a control table: every item with its status, attempts, last error and epoch.

    The newest item comes first. READY means: the item is loaded in its turn. Of several targets it shows the first, unless
    --target names another. Exit code 3 if an item blocks its feed, 4 if there
    are no items.
    """
    dataset = None if vault is None else _dataset_of(context, vault)
    with open_pipeline(context, dataset, target=target) as pipeline:
        named = f", target {pipeline.target}" if len(pipeline.targets) > 1 else ""
        control, rows = queue(pipeline, limit, filetype.lower() if filetype else None)
    shown = [row for row in rows if not status or row.status in status]
    if as_json(context):
        print_json({"control": dataclasses.asdict(control), "queue": [_document(row) for row in shown]})
    else:
        _print_control(control, named)
        _print_queue(shown)
    if control.blocked_by:
        return Exit.BLOCKED
    return Exit.DONE if shown else Exit.NOTHING


def _dataset_of(context: typer.Context, number: str) -> str:
    """Returns the dataset of a vault. Raises WrongUse if there is none, or more than one."""
    chosen, settings = chosen_dataset(context), configuration(context)
    names = [settings.dataset(chosen)] if chosen else [*settings.datasets]
    origins = {name: open_source(name, settings.datasets[name]).origin for name in names}
    found = [name for name, origin in origins.items() if origin and number in (THE_ONE, origin)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{origin} (dataset {name})" for name, origin in origins.items() if origin)
    asked = f"--vault {number}".strip()
    if not known:
        raise WrongUse(f"{asked}: no dataset of a vault is configured")
    raise WrongUse(f"{asked}: {'no such vault' if not found else 'name one of several'}; configured: {known}")


def _document(row: QueueRow) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}


def _print_control(control: ControlRow, target: str) -> None:
    of = f", vault {control.origin}" if control.origin else ""
    say(f"dataset {control.dataset}{of}{target}: {control.mode}, current_epoch {control.current_epoch}")
    full = f"{control.full_load}, since {moment(control.full_load_started_at)}" if control.full_load_started_at else ""
    lines = {"full load": full, "boundary": control.base_boundary or ""}
    watermarks = ", ".join(f"{feed} {name or 'none'}" for feed, name in control.watermarks.items())
    locks = "; ".join(f"{feed} by {held}" for feed, held in control.locks.items())
    print_lines({**lines, "watermarks": watermarks, "locks": locks})
    for feed, reason in control.blocked_by.items():
        warn(wrapped(f"{feed} is blocked by {reason}"))


def _print_queue(rows: list[QueueRow]) -> None:
    if not rows:
        say("no items")
        return
    heads = ("filetype", "start_time", "stop_time", "status", "attempt_count", "epoch")
    print_table(heads, [_cells(row) for row in rows])
    for row in rows:
        if row.status in (Status.FAILED, Status.QUARANTINED) or (row.status is Status.READY and row.last_error):
            said = f"{row.item.name}: {row.last_error or row.detail}"
            say(wrapped(f"  {said}", others="    "))


def _cells(row: QueueRow) -> tuple[str, ...]:
    return row.filetype, row.start_time or "", row.stop_time, row.status, str(row.attempt_count), str(row.epoch)
