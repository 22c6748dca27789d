"""`warehouse`: checks a warehouse, and continues after it was restored from a backup or replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, Reason, Recording, as_json, examples, group
from manifest_platform.cli.context import Target, chosen_dataset, configuration, only_target, open_pipeline, operator
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, some, wrapped
from manifest_platform.cli.remedies import typed
from manifest_platform.cli.signals import ending_well
from manifest_platform.operations.reconcile import Reconciled, accept, reconcile, would_reconcile
from manifest_platform.operations.warehouse_check import check, grants
from manifest_platform.pipeline.events import Tidied
from manifest_platform.pipeline.full import LATEST, Begun, begin
from manifest_platform.pipeline.upkeep import tidied, without_old_rows
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.probes import Probed, Result

warehouse = group("warehouse", "Checks a warehouse, or continues after it was restored or replaced.")


@warehouse.command(
    "reconcile",
    cls=Recording,
    epilog=examples("warehouse reconcile --dry-run", "warehouse reconcile --reason 'restored from backup'"),
)
def reconcile_(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and write nothing.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Begin a full load, if a snapshot is missing in the warehouse.")] = False,
    reason: Reason = "the warehouse was set back",
    target: Target = None,
) -> int:
    """Frees all items that the warehouse lacks, so that the next drain loads them again, in order.

    Use it after the warehouse was restored from a backup or emptied. Exit code 3 if a full load is needed, 4 if the warehouse
    lacks nothing.
    """
    one = only_target(context, target)
    with open_pipeline(context, author=operator(), target=one) as pipeline, ending_well("it may be run again"):
        found = list(would_reconcile(pipeline) if dry_run else reconcile(pipeline, reason))
        lost = any(one.lost for one in found)
        begun = None
        if lost and full and not dry_run:
            events = list(begin(pipeline, pipeline.config.spark.session, LATEST, reason))
            begun = next(one for one in events if isinstance(one, Begun))
        as_typed = typed(context, pipeline.name)
    if as_json(context):
        print_json({"dry_run": dry_run, "begun": begun and begun.key, "feeds": [_document(one) for one in found]})
    else:
        _say(found, dry_run, "reopened")
        if begun:
            say(f"{begun.key.name}: full load begun, epoch {begun.epoch}")
        elif lost:
            say(f"next: {as_typed(Remedy(Action.RECONCILE_IN_FULL))}")
        if begun or (found and not lost and not dry_run):
            say(f"next: {as_typed(Remedy(Action.DRAIN))}")
    if not found:
        return Exit.NOTHING
    return Exit.BLOCKED if lost and not begun else Exit.DONE


@warehouse.command("check", cls=Command, epilog=examples("warehouse check", "warehouse check --target reports --json"))
def check_(context: typer.Context, target: Target = None) -> int:
    """Tries everything that loads need of the warehouse, in a schema of its own that it drops.

    That is: the connection, privileges, the way of an object from the storage into a table, transactions, two sessions at
    once, a full load under an open reader, the clock, long names. None of your tables is changed. Exit code 1 if a probe
    failed.
    """
    settings, chosen = configuration(context), only_target(context, target)
    dataset = settings.dataset(chosen_dataset(context))
    found = []
    with ending_well("its schema is dropped; run it again"):
        for one in check(settings, dataset, chosen):
            found.append(one)
            if not as_json(context):
                say(wrapped(f"{one.probe:<16}{one.result:<9}{one.seconds:5.1f} s  {one.note}", "", " " * 34))
                for statement in one.helps:
                    say(f"    this helps: {statement};")
    is_failed = any(one.result is Result.FAILED for one in found)
    if as_json(context):
        print_json(
            {"target": chosen, "place": settings.engine_of(dataset, chosen).place, "probes": [asdict(one) for one in found]}
        )
    else:
        say(_summary(found))
    return Exit.FAILED if is_failed else Exit.DONE


def _summary(found: Sequence[Probed]) -> str:
    if any(one.result is Result.FAILED for one in found):
        return "something that loads need is missing"
    if all(one.result is Result.SKIPPED for one in found):
        return "nothing could be tried yet"
    return "loads find everything that they need"


@warehouse.command("grants", cls=Command, epilog=examples("warehouse grants --role loader"))
def grants_(
    context: typer.Context,
    role: Annotated[str, typer.Option(metavar="NAME", help="The role or user that loads.")],
    target: Target = None,
) -> int:
    """Prints the statements that give a role what loads need, and no more. An administrator runs them.

    Exit code 4 if the warehouse has no roles.
    """
    settings, chosen = configuration(context), only_target(context, target)
    statements = grants(settings, settings.dataset(chosen_dataset(context)), chosen, role)
    if as_json(context):
        print_json({"target": chosen, "role": role, "statements": statements})
    else:
        for one in statements:
            say(one if one.startswith("--") else f"{one};")
        if not statements:
            say("this warehouse has no roles: who may write its file, may load")
    return Exit.DONE if statements else Exit.NOTHING


@warehouse.command("accept", cls=Recording)
def accept_(
    context: typer.Context,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Reason to write into the records.")],
    target: Target = None,
) -> int:
    """Accepts the warehouse with its current rows: nothing is loaded again, and new items are added to these rows.

    Use it after the warehouse was replaced on purpose. Exit code 3 if a full load is needed before new items can be loaded, 4
    if the manifest knows the warehouse already.
    """
    one = only_target(context, target)
    with open_pipeline(context, author=operator(), target=one) as pipeline, ending_well("it may be run again"):
        found = list(accept(pipeline, reason))
        as_typed = typed(context, pipeline.name)
    if as_json(context):
        print_json({"feeds": [_document(one) for one in found]})
    else:
        for one in found:
            say(f"{one.feed}: accepted; items after {one.watermark or 'the beginning'} are added to its rows")
            if one.freed:
                names = some([key.name for key in one.freed])
                say(f"{one.feed}: an earlier reconcile freed {len(one.freed):,} items, which are loaded again: {names}")
            if one.lost:
                say(f"{one.feed}: the snapshot of {one.lost} is not in the warehouse, and changes wait for a full load")
                say(f"next: {as_typed(Remedy(Action.BEGIN_FULL_LOAD))}")
        if not found:
            say("nothing to accept: the manifest knows this warehouse")
    if not found:
        return Exit.NOTHING
    return Exit.BLOCKED if any(one.lost for one in found) else Exit.DONE


@warehouse.command("upkeep", cls=Recording, epilog=examples("warehouse upkeep --dry-run", "warehouse upkeep --target lab"))
def upkeep_(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    target: Target = None,
) -> int:
    """Removes old rows as `load.retention` says, then does what tables need as `warehouse.upkeep` says.

    Housekeeping does the same, and each drain does the latter. Exit code 4 if there is nothing to do, 1 if a part could not be
    done now: run it again.
    """
    documents: list[dict[str, object]] = []
    done: list[Tidied] = []
    with open_pipeline(context, author=operator(), target=target) as pipeline, ending_well("it may be run again"):
        for one in pipeline.each_target():
            if target not in (None, one.target):
                continue
            found = [*without_old_rows(one, dry_run), *tidied(one, dry_run)]
            one.let_go()
            documents.append({"target": one.target, "done": [asdict(each) for each in found]})
            done += found
            if not as_json(context):
                _say_upkeep(found, one.target if len(pipeline.targets) > 1 else "", dry_run)
    if as_json(context):
        print_json({"dry_run": dry_run, "targets": documents})
    elif not done:
        say("nothing to do")
    if any(one.why_not for one in done):
        return Exit.FAILED
    return Exit.DONE if done else Exit.NOTHING


def _say_upkeep(found: Iterable[Tidied], target: str, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    for one in found:
        where = f"{target}: " if target else ""
        what = f"{where}{one.table or 'any table'}: {one.action}"
        if one.why_not:
            say(wrapped(f"{what} was not done: {one.why_not}", "✗ ", "    "))
        elif one.until:
            say(f"✓ {where}{one.table}: {one.rows:,} rows before {one.until:%Y-%m-%d %H:%M} UTC {would}removed")
        else:
            say(f"✓ {what} {would}done, after {one.rows:,} changed rows")


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
        say("the warehouse has everything that the manifest knows as loaded")
