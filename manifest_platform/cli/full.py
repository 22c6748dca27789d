"""`full`: begins a full load with a snapshot, shows its state, and cancels it."""

from __future__ import annotations

from typing import Annotated

import typer

from manifest_platform.cli.app import Command, Reason, Recording, as_json, examples, group
from manifest_platform.cli.context import Target, only_target, open_pipeline, operator
from manifest_platform.cli.drained import event_document, progress
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_lines, print_table, say
from manifest_platform.cli.remedies import Typed, document, typed
from manifest_platform.cli.signals import ending_well
from manifest_platform.manifest.dataset import Mode
from manifest_platform.pipeline.full import LATEST, Begun, FullStatus, begin, cancel, full_status
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.load import EMPTY, SHRINK

full = group("full", "Loads a snapshot as a new epoch, then the changes after it.")


@full.command("begin", cls=Recording, epilog=examples("full begin latest", "full begin full/date=2026-01-31 --allow-shrink"))
def begin_(
    context: typer.Context,
    item: Annotated[str, typer.Argument(metavar="ITEM", help=f"Name or URI of a snapshot, or `{LATEST}`.")],
    reason: Reason = "no reason given",
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Load a snapshot even if it has no rows, which empties tables.")
    ] = False,
    allow_shrink: Annotated[
        bool, typer.Option("--allow-shrink", help="Load a snapshot even if tables shrink by more than `load.shrink` allows.")
    ] = False,
    target: Target = None,
) -> int:
    """Begins a full load: a new epoch that starts with a snapshot.

    Shreds the snapshot, if necessary. The next drain loads it; until then the dataset loads nothing else. After that, the
    drain loads all changes after the snapshot's stop time again. Log feeds are not affected.
    """
    allows = [consent for consent, given in ((EMPTY, allow_empty), (SHRINK, allow_shrink)) if given]
    one = only_target(context, target)
    with open_pipeline(context, author=operator(), target=one) as pipeline, ending_well("no full load was begun"):
        for event in begin(pipeline, pipeline.config.spark.session, item, reason, allows):
            if not isinstance(event, Begun):
                if as_json(context):
                    print_json(event_document(event))
                else:
                    say(progress(event, pipeline.source.words))
                continue
            drain = typed(context, pipeline.name)(Remedy(Action.DRAIN))
            if as_json(context):
                print_json({"event": "begun", "item": event.key, "epoch": event.epoch, "boundary": event.boundary})
                continue
            say(f"{event.key.name}: full load begun, epoch {event.epoch}. The next drain loads it, then the changes since.")
            say(f"next: {drain}")
    return Exit.DONE


@full.command("status", cls=Command)
def status_(context: typer.Context, target: Target = None) -> int:
    """Shows the epoch, the snapshots, and the full load in progress. Exit code 3 if a full load is needed."""
    with open_pipeline(context, target=target) as pipeline:
        asked = [target] if target else pipeline.targets
        found = {name: full_status(pipeline.at(name)) for name in asked}
        as_typed = typed(context, pipeline.name)
    if as_json(context):
        documents = {name: document(one, as_typed) for name, one in found.items()}
        print_json(next(iter(documents.values())) if len(documents) == 1 else {"targets": documents})
    else:
        for name, one in found.items():
            _print_status(one, as_typed, f", target {name}" if len(found) > 1 else "")
    return Exit.BLOCKED if any(one.needed for one in found.values()) else Exit.DONE


def _print_status(found: FullStatus, as_typed: Typed, target: str) -> None:
    loading = found.mode is Mode.FULL_LOAD
    remedy = Remedy(Action.DRAIN) if loading else found.remedy
    heading = f"loading {found.loading} in full" if loading else "needs a full load" if found.needed else "loads changes"
    say(f"dataset {found.dataset}{target}: {heading}")
    print_lines(
        {
            "epoch": str(found.epoch),
            "boundary": found.boundary or "none: no snapshot is loaded yet",
            "watermarks": ", ".join(f"{feed} {mark or 'none'}" for feed, mark in found.watermarks.items()),
            "reason": found.needed,
            "command": as_typed(remedy) if remedy else "",
        }
    )
    if found.snapshots:
        rows = [(one.item, one.stop, "yes" if one.shredded else "no", one.standing) for one in found.snapshots]
        print_table(("snapshot", "taken at", "shredded", "load"), rows)


@full.command("cancel", cls=Recording)
def cancel_(context: typer.Context, reason: Reason = "no reason given", target: Target = None) -> int:
    """Cancels the full load that was begun, unless it is in the warehouse already. The rows loaded before stay in use."""
    with open_pipeline(context, author=operator(), target=only_target(context, target)) as pipeline:
        record = cancel(pipeline, reason)
        name = pipeline.key(record.item).name
    if as_json(context):
        print_json({"record": record.to_dict()})
    else:
        say(f"{name}: full load canceled by {record.author}; the next drain continues with changes")
    return Exit.DONE
