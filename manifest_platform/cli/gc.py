"""`gc`: deletes the data in storage that retention no longer keeps."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Recording, WrongUse, app, as_json, examples
from manifest_platform.cli.context import open_pipeline, operator
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_lines, print_table, say, some
from manifest_platform.operations.retention.run import Collected, Tally, collect, finish, plan
from manifest_platform.pipeline import Pipeline
from manifest_platform.quantities import moment, size_of


@app.command(cls=Recording, epilog=examples("gc --dry-run", "gc --yes"))
def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> int:
    """Deletes landed directories, shredded output and bad rows that retention no longer keeps.

    The ages are those of the dataset's `retention`; by default nothing is deleted. What a load, a full load, a merge or a
    reader may still need is kept however old it is, and so is the last copy of an item. Without --yes it shows what it would
    delete, and asks. A deletion that was interrupted is finished first. Exit code 4 if there is nothing to delete, 1 if
    something could not be deleted now: run it again.
    """
    if as_json(context) and not (yes or dry_run):
        raise WrongUse("gc asks for confirmation; with --json, add --yes or --dry-run")
    with open_pipeline(context, author=operator()) as pipeline:
        if dry_run:
            return _told(context, pipeline, plan(pipeline), dry_run)
        if yes:
            return _told(context, pipeline, collect(pipeline))
        ended = finish(pipeline)
        if ended.finished or ended.failed:
            _told(context, pipeline, ended)
        found = plan(pipeline)
        code = _told(context, pipeline, found, dry_run=True)
        if not found:
            return Exit.FAILED if ended.failed else Exit.DONE if ended.finished else code
        if not typer.confirm("Delete all of this?"):
            say("nothing more was deleted" if ended.finished else "nothing was deleted")
            return Exit.NOTHING
        return _told(context, pipeline, collect(pipeline))


def _told(context: typer.Context, pipeline: Pipeline, found: Collected, dry_run: bool = False) -> int:
    """Prints what was deleted, or would be, and returns the exit code."""
    if as_json(context):
        data = [_document(one) for one in found.tallies.values()]
        print_json({"dry_run": dry_run, "finished": found.finished, "failed": found.failed, "data": data})
    else:
        _print(pipeline, found, dry_run)
    return Exit.FAILED if found.failed else Exit.DONE if found else Exit.NOTHING


def _document(of: Tally) -> dict[str, Any]:
    kept = [{"why": why, "items": one.items, "example": one.example, "detail": one.detail} for why, one in of.kept.items()]
    found = of.found
    numbers = {"items": of.items, "objects": found.objects, "bytes": found.bytes, "oldest": found.oldest}
    return {"kind": of.kind, **numbers, "kept": kept, "costs": dict(of.costs)}


def _print(pipeline: Pipeline, found: Collected, dry_run: bool) -> None:
    if found.finished:
        say(f"{found.finished:,} interrupted deletions {'would be' if dry_run else 'were'} finished")
    if not pipeline.dataset.retention.is_on:
        say(f"nothing to delete: datasets.{pipeline.name}.retention is not set")
        return
    tallies = list(found.tallies.values())
    if tallies:
        heads = ("data", "items", "objects", "size", "oldest")
        print_table(heads, [_row(one) for one in tallies])
    for one in tallies:
        _print_reasons(one)
    size = size_of(sum(one.found.bytes for one in tallies))
    say(f"{size} {'would be' if dry_run else 'were'} deleted" if found else "nothing to delete")
    print_lines({"not deleted": some(found.failed)})


def _row(of: Tally) -> tuple[str, ...]:
    found = of.found
    return (of.kind, f"{of.items:,}", f"{found.objects:,}", size_of(found.bytes), moment(found.oldest) if found.oldest else "-")


def _print_reasons(of: Tally) -> None:
    """Prints why data is kept, and what is no longer possible with the items whose data is deleted."""
    for cost, items in of.costs.items():
        say(f"{of.kind}: {items:,} items {cost}")
    for why, kept in of.kept.items():
        detail = f"; first {kept.example}: {kept.detail}" if kept.detail else ""
        say(f"{of.kind}: {kept.items:,} items kept: {why}{detail}")
