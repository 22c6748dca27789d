"""`import-moved`: for a landing root that was moved."""

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
"""How many items a command names that is told."""


@app.command("import-moved", cls=Recording)
def import_moved(
    context: typer.Context,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The folder that the items were registered below.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The folder that their directories lie below now.")],
    reason: Reason = "the landing root was moved",
    same_size: Annotated[
        bool, typer.Option("--same-size", help="Take other checksums, too, of as many files and bytes: copies have such.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Tell of so many items at most.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be told.")] = False,
) -> int:
    """Tells the manifest that directories were moved.

    Items keep their names; their files are read at the new place, if they are the same. Set landing.root to it as well. It may
    break off and be run again. Exit 1 if directories are missing or differ, 4 if nothing was moved.
    """
    from manifest_platform.operations import moved

    with open_pipeline(context, author=operator()) as pipeline:
        report = moved.import_moved(pipeline, old, new, reason, same_size=same_size, limit=limit, dry_run=dry_run)
        as_typed = typed(context, pipeline.name)
    if as_json(context):
        print_json(report)
    else:
        verb = "would be told of" if dry_run else "moved"
        say(
            f"{report.moved:,} items {verb}, {report.already:,} were before, {report.elsewhere:,} are elsewhere,"
            f" {report.gone:,} are loaded and gone"
        )
    if report.missing:
        warn(f"{len(report.missing):,} are not below {report.new}: {some(report.missing)}; move them there, or skip them")
    if report.differs:
        warn(
            f"{len(report.differs):,} have another checksum than was registered: {some(report.differs)}; if they are copies,"
            " which have other times or ETags, add --same-size"
        )
    if report.failed:
        # A name or a pattern each: nobody types hundreds of names.
        freed, more = " ".join(report.failed[:NAMED]), len(report.failed) - NAMED
        rest = f"; {more:,} more have to be freed likewise, and patterns are names too" if more > 0 else ""
        warn(f"{len(report.failed):,} had failed: {as_typed(Remedy(Action.RESOLVE, item=freed))}{rest}")
    if report.left:
        warn("the limit was met: run it again")
    if report.missing or report.differs:
        return Exit.FAILED
    return Exit.DONE if report.moved else Exit.NOTHING
