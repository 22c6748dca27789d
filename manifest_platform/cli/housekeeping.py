"""`housekeeping`: removes old files and rows that nothing needs any more."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from manifest_platform.cli.app import Recording, app, as_json
from manifest_platform.cli.context import open_pipeline, operator
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_lines, say
from manifest_platform.operations.housekeeping import Chore, keep_house
from manifest_platform.quantities import size_of


@app.command(cls=Recording)
def housekeeping(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")] = False,
) -> int:
    """Removes old files and rows that nothing needs any more, such as those of failed attempts.

    The ages are configured under `housekeeping`. A schedule in Dagster does the same. Exit code 4 if there is nothing to
    remove, 1 if a part could not be done now: run it again.
    """
    chores: list[Chore] = []
    with open_pipeline(context, author=operator()) as pipeline:
        for chore in keep_house(pipeline, dry_run):
            chores.append(chore)
            if not as_json(context):
                _print(chore, dry_run)
    if as_json(context):
        print_json({"dry_run": dry_run, "chores": [dataclasses.asdict(chore) for chore in chores]})
    if any(chore.hindered for chore in chores):
        return Exit.FAILED
    return Exit.DONE if any(chores) else Exit.NOTHING


def _print(chore: Chore, dry_run: bool) -> None:
    numbers = [_number(name, count) for name, count in chore.removed.items() if count]
    verb = "to remove" if dry_run else "removed"
    said = f"off, for {chore.off}" if chore.off else f"{verb}: {', '.join(numbers)}" if numbers else "nothing to remove"
    say(f"{'✗' if chore.hindered else '✓'} {chore.name}: {said}")
    wrong = f"{len(chore.wrong):,} faults ({chore.wrong[0]}); manifest-platform doctor shows them" if chore.wrong else ""
    print_lines({"not done": chore.hindered, "found": wrong})


def _number(name: str, count: int) -> str:
    return size_of(count) if name == "bytes" else f"{count:,} {name}"
