"""`landing`: compares the landing root with the manifest."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Command, as_json, examples, group
from manifest_platform.cli.context import Target, open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, wrapped
from manifest_platform.cli.remedies import typed
from manifest_platform.manifest import Refused
from manifest_platform.operations.folders import Folders, compare

landing = group("landing", "Compares the landing root with what was loaded.")


@landing.command(cls=Command, epilog=examples("landing check", "landing check --since 7"))
def check(
    context: typer.Context,
    since: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Days before the newest loaded directory. Default: landing.look_back_days."),
    ] = None,
    age: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Time that a directory may take to be loaded. Default: load.max_lag_seconds."
        ),
    ] = None,
    target: Target = None,
) -> int:
    """Finds directories that landed and were never loaded, were deleted, or are incomplete.

    Writes nothing, and answers once for all of them, with the commands that help. Exit code 1 if there are any.
    """
    with open_pipeline(context, target=target) as pipeline:
        if not pipeline.feeds:
            raise Refused(f"dataset {pipeline.name} has no landing root: register its items with `put new`")
        found = compare(pipeline, since, age)
        commands = list(map(typed(context, pipeline.name), found.remedies))
    if as_json(context):
        print_json(_document(found, commands))
    else:
        say(wrapped(found.summary, "", "  "))
        for command in commands:
            say(f"  {command}")
    return Exit.FAILED if found else Exit.DONE


def _document(found: Folders, commands: list[str]) -> dict[str, Any]:
    fields = {name: value for name, value in asdict(found).items() if name not in ("completing", "remedies")}
    return {**fields, "summary": found.summary, "commands": commands}
