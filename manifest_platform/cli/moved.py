"""`import-moved`: updates the manifest after a landing root was moved."""

from __future__ import annotations

from typing import Annotated

import typer

from manifest_platform.cli.app import Reason, Recording, app, as_json
from manifest_platform.cli.context import open_pipeline, operator
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, some, warn
from manifest_platform.cli.remedies import typed
from manifest_platform.remedies import Action, Remedy

NAMED = 20
"""The most items that a suggested command names."""


@app.command("import-moved", cls=Recording)
def import_moved(
    context: typer.Context,
    old: Annotated[str, typer.Argument(metavar="OLD", help="Folder in which the items were registered.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Folder in which their directories are now.")],
    reason: Reason = "the landing root was moved",
    same_size: Annotated[
        bool,
        typer.Option(
            "--same-size", help="Accept other checksums if the number of files and bytes is the same. Copies need this."
        ),
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Update at most this number of items.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be updated, and write nothing.")] = False,
) -> int:
    """Updates the location of items whose directories were moved.

    Items keep their names. Their files are read from the new folder, if they are the same. Also set landing.root to the new
    folder. If the command is interrupted, run it again. Exit code 1 if directories are missing or differ, 4 if no item was
    updated.
    """
    from manifest_platform.operations import moved

    with open_pipeline(context, author=operator()) as pipeline:
        report = moved.import_moved(pipeline, old, new, reason, same_size=same_size, limit=limit, dry_run=dry_run)
        as_typed = typed(context, pipeline.name)
    if as_json(context):
        print_json(report)
    else:
        verb = "would be updated" if dry_run else "updated"
        say(
            f"{report.moved:,} items {verb}, {report.already:,} were updated before, {report.elsewhere:,} are elsewhere,"
            f" {report.gone:,} are loaded and have no files any more"
        )
    if report.missing:
        warn(f"{len(report.missing):,} are not in {report.new}: {some(report.missing)}; move them there, or skip them")
    if report.differs:
        warn(
            f"{len(report.differs):,} have a new checksum: {some(report.differs)}; if they are copies,"
            " which have new times or ETags, add --same-size"
        )
    if report.failed:
        freed, more = " ".join(report.failed[:NAMED]), len(report.failed) - NAMED
        rest = f"; then free the other {more:,} in the same way (a pattern matches many names)" if more > 0 else ""
        warn(f"{len(report.failed):,} failed items to free: {as_typed(Remedy(Action.RESOLVE, item=freed))}{rest}")
    if report.left:
        warn("--limit was reached: run the command again for the other items")
    if report.missing or report.differs:
        return Exit.FAILED
    return Exit.DONE if report.moved else Exit.NOTHING
