"""The commands about the warehouse as a whole: go on with one that was set back, or take another one on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from manifest_platform import spark
from manifest_platform.cli.app import Reason, Recording, as_json, examples, group
from manifest_platform.cli.context import open_pipeline, operator
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, some
from manifest_platform.cli.remedies import typed
from manifest_platform.cli.signals import ending_well
from manifest_platform.operations.reconcile import Reconciled, accept, reconcile, would_reconcile
from manifest_platform.pipeline.full import LATEST, Begun, begin
from manifest_platform.remedies import Action, Remedy

warehouse = group("warehouse", "Goes on with a warehouse that was set back, or takes another one.")


@warehouse.command(
    "reconcile",
    cls=Recording,
    epilog=examples("warehouse reconcile --dry-run", "warehouse reconcile --reason 'restored from backup'"),
)
def reconcile_(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Begin the full load that a lost snapshot takes.")] = False,
    reason: Reason = "the warehouse was set back",
) -> int:
    """Has everything loaded again that the warehouse lacks, in order.

    For a warehouse that was put back to an older copy or emptied. The next drain loads it. Exit 3 if a full load is needed,
    4 if nothing is lacking.
    """
    with open_pipeline(context, author=operator()) as pipeline, ending_well("it may be run again"):
        found = list(would_reconcile(pipeline) if dry_run else reconcile(pipeline, reason))
        lost = any(one.lost for one in found)
        begun = None
        if lost and full and not dry_run:
            conf = pipeline.config.spark.conf
            events = list(begin(pipeline, lambda: spark.session(conf), LATEST, reason))
            begun = next(one for one in events if isinstance(one, Begun))
        as_typed = typed(context, pipeline.name)
    if as_json(context):
        print_json({"dry_run": dry_run, "begun": begun and begun.key, "feeds": [_document(one) for one in found]})
    else:
        _say(found, dry_run, "reopened")
        if begun:
            say(f"{begun.key.name}: begun, epoch {begun.epoch}")
        elif lost:
            say(f"next: {as_typed(Remedy(Action.RECONCILE_IN_FULL))}")
        if begun or (found and not lost and not dry_run):
            say(f"next: {as_typed(Remedy(Action.DRAIN))}")
    if not found:
        return Exit.NOTHING
    return Exit.BLOCKED if lost and not begun else Exit.DONE


@warehouse.command("accept", cls=Recording)
def accept_(context: typer.Context, reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the records.")]) -> int:
    """Takes the warehouse as it is: nothing is loaded again, and what comes next goes onto what is there.

    For a new or another warehouse, on purpose. Exit 3 if a full load is needed before anything goes on, 4 if the warehouse is
    the one that the manifest knows.
    """
    with open_pipeline(context, author=operator()) as pipeline, ending_well("it may be run again"):
        found = list(accept(pipeline, reason))
        as_typed = typed(context, pipeline.name)
    if as_json(context):
        print_json({"feeds": [_document(one) for one in found]})
    else:
        for one in found:
            say(f"{one.feed}: accepted; what comes after {one.watermark or 'the beginning'} goes onto what is there")
            if one.freed:
                names = some([key.name for key in one.freed])
                say(f"{one.feed}: a reconcile was begun before, so {len(one.freed):,} are loaded again: {names}")
            if one.lost:
                say(f"{one.feed}: the snapshot of {one.lost} is not in it, and changes wait for a full load")
                say(f"next: {as_typed(Remedy(Action.BEGIN_FULL_LOAD))}")
        if not found:
            say("the warehouse is the one that the manifest knows: there is nothing to accept")
    if not found:
        return Exit.NOTHING
    return Exit.BLOCKED if any(one.lost for one in found) else Exit.DONE


def _document(one: Reconciled) -> dict[str, object]:
    return {"feed": one.feed, "freed": [key.name for key in one.freed], "lost": one.lost, "watermark": one.watermark}


def _say(found: Iterable[Reconciled], dry_run: bool, done: str) -> None:
    found = list(found)
    for one in found:
        if one.lost:
            say(f"{one.feed}: the snapshot of {one.lost} is not in the warehouse, and changes cannot be loaded without it")
            continue
        names = f": {some([key.name for key in one.freed])}" if one.freed else ""
        say(f"{one.feed}: {len(one.freed):,} {'would be ' if dry_run else ''}{done}{names}")
        say(f"{one.feed}: the warehouse has {f'loads up to {one.watermark}' if one.watermark else 'no loads'}")
    if not found:
        say("the warehouse lacks nothing that the manifest has loaded")
