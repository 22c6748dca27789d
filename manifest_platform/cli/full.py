"""The commands about full loads: begin one with a snapshot, look at it, give it up."""

from __future__ import annotations

from typing import Annotated

import typer

from manifest_platform import spark
from manifest_platform.cli.app import Command, Reason, Recording, as_json, examples, group
from manifest_platform.cli.context import open_pipeline, operator
from manifest_platform.cli.drain import event_document, progress
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_lines, print_table, say
from manifest_platform.cli.remedies import Typed, document, typed
from manifest_platform.cli.signals import ending_well
from manifest_platform.manifest.dataset import Mode
from manifest_platform.pipeline.full import LATEST, Begun, FullStatus, begin, cancel, full_status
from manifest_platform.remedies import Action, Remedy
from manifest_platform.warehouse.load import EMPTY, SHRINK

full = group("full", "Loads a snapshot in full, and what came after it anew.")


@full.command(
    "begin", cls=Recording, epilog=examples("full begin latest", "full begin full/stoptime=202601310000 --allow-shrink")
)
def begin_(
    context: typer.Context,
    item: Annotated[str, typer.Argument(metavar="ITEM", help=f"A snapshot's name or URI, or `{LATEST}`.")],
    reason: Reason = "no reason given",
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Load a snapshot without rows: it empties tables.")
    ] = False,
    allow_shrink: Annotated[
        bool, typer.Option("--allow-shrink", help="Let tables shrink by more than `load.shrink` says.")
    ] = False,
) -> int:
    """Begins a full load: a new epoch, with a snapshot.

    The snapshot is shredded if it is not yet. From then on nothing else of the dataset is loaded until a drain has loaded it;
    after that, the changes behind its stop time are loaded anew. Logs stay as they are.
    """
    allows = [consent for consent, given in ((EMPTY, allow_empty), (SHRINK, allow_shrink)) if given]
    with open_pipeline(context, author=operator()) as pipeline, ending_well("nothing was begun"):
        conf = pipeline.config.spark.conf
        for event in begin(pipeline, lambda: spark.session(conf), item, reason, allows):
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
            say(f"{event.key.name}: begun, epoch {event.epoch}. Changes after {event.boundary} are loaded anew behind it.")
            say(f"next: {drain}")
    return Exit.DONE


@full.command("status", cls=Command)
def status_(context: typer.Context) -> int:
    """Shows the epoch, the snapshot that is being loaded or was loaded last, and whether one is needed. Exit 3 if so."""
    with open_pipeline(context) as pipeline:
        found = full_status(pipeline)
    as_typed = typed(context, found.dataset)
    if as_json(context):
        print_json(document(found, as_typed))
    else:
        _print_status(found, as_typed)
    return Exit.BLOCKED if found.needed else Exit.DONE


def _print_status(found: FullStatus, as_typed: Typed) -> None:
    loading = found.mode is Mode.FULL_LOAD
    remedy = Remedy(Action.DRAIN) if loading else found.remedy
    heading = f"loading {found.loading} in full" if loading else "needs a full load" if found.needed else "goes on by changes"
    say(f"dataset {found.dataset}: {heading}")
    print_lines(
        {
            "epoch": str(found.epoch),
            "boundary": found.boundary or "none: no snapshot was loaded yet",
            "watermarks": ", ".join(f"{feed} {mark or 'none'}" for feed, mark in found.watermarks.items()),
            "reason": found.needed,
            "command": as_typed(remedy) if remedy else "",
        }
    )
    if found.snapshots:
        rows = [(one.item, one.stop, "yes" if one.shredded else "no", one.standing) for one in found.snapshots]
        print_table(("snapshot", "taken at", "shredded", "load"), rows)


@full.command("cancel", cls=Recording)
def cancel_(context: typer.Context, reason: Reason = "no reason given") -> int:
    """Gives up the full load that was begun, before it is in the warehouse: what was loaded before counts on."""
    with open_pipeline(context, author=operator()) as pipeline:
        record = cancel(pipeline, reason)
        name = pipeline.key(record.item).name
    if as_json(context):
        print_json({"record": record.to_dict()})
    else:
        say(f"{name}: given up by {record.author}; the next drain goes on by changes")
    return Exit.DONE
