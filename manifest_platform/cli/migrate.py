"""`import-snowplow`, `import-snowflake` and `view`: import Snowplow's two manifests, and show a feed in the layout of one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from manifest_platform.cli.app import Command, WrongUse, app, as_json
from manifest_platform.cli.context import open_pipeline, operator
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, some, warn, wrapped
from manifest_platform.cli.remedies import Typed, typed
from manifest_platform.manifest import Application
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.quantities import moment
from manifest_platform.remedies import Action, Remedy

if TYPE_CHECKING:
    from manifest_platform.operations.migration import ForeignTable, Note, Report, Run

NOTES_SHOWN = 20


class ViewLayout(StrEnum):
    """The layouts that `view` can show a feed in."""

    SNOWFLAKE_LOADER = "snowflake-loader"


TableName = Annotated[str, typer.Argument(metavar="TABLE", help="Name of the DynamoDB table. It is read, never written.")]
Region = Annotated[str | None, typer.Option(metavar="NAME", help="AWS region of the table. Default: the environment's.")]
Profile = Annotated[str | None, typer.Option(metavar="NAME", help="AWS profile to read the table with.")]
Endpoint = Annotated[str | None, typer.Option(metavar="URL", help="DynamoDB endpoint, if it is not Amazon's.")]
SourceRoot = Annotated[
    str, typer.Option(metavar="FOLDER", help="Folder of the runs as the table names it. Default: the landing root.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be imported or dropped, and write nothing.")]
Abort = Annotated[
    bool, typer.Option("--abort", help="Drop an unfinished import from this table: remove all records that it wrote.")
]


@app.command("import-snowplow", cls=Command)
def import_snowplow(
    context: typer.Context,
    table: TableName,
    region: Region = None,
    profile: Profile = None,
    endpoint: Endpoint = None,
    source_root: SourceRoot = "",
    shred: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the shredder in the table. Default: [snowplow-]rdb-shredder."),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(metavar="NAME[:TARGET]", help="Name of the loader in the table. Default: [snowplow-]rdb-loader."),
    ] = None,
    free_open: Annotated[
        bool,
        typer.Option("--free-open", help="Free items that are in progress there. Only if the other system was shut down."),
    ] = False,
    abort: Abort = False,
    dry_run: DryRun = False,
) -> int:
    """Imports a table of the Snowplow Processing Manifest.

    Repeat it to import new records, until this platform takes over. Exit code 1 if a record could not be imported, 4 if there
    is nothing new.
    """
    from manifest_platform.operations.migration import (
        Applications,
        ForeignTable,
        Place,
        SeveralTargets,
        import_items,
        read_snowplow,
    )
    from manifest_platform.operations.migration.snowplow_manifest import LOADERS, SHREDDERS

    source = ForeignTable(table, region, profile, endpoint)
    if abort:
        return _drop(context, source, dry_run)
    name, _, target = (load or "").partition(":")
    with open_pipeline(context, author=operator()) as pipeline:
        applications = Applications(
            load=Application(LOAD),
            shred=Application(SHRED),
            shredders=(shred,) if shred else SHREDDERS,
            loaders=(name,) if name else LOADERS,
            target=target or None,
        )
        try:
            histories = read_snowplow(source.rows(), Place(pipeline.source, source_root), applications)
        except SeveralTargets as error:
            raise WrongUse(str(error)) from error
        report = import_items(
            pipeline.manifest, pipeline.source.main, histories, str(source), free_open=free_open, dry_run=dry_run
        )
        return _told(context, pipeline, report)


@app.command("import-snowflake", cls=Command)
def import_snowflake(
    context: typer.Context,
    table: TableName,
    region: Region = None,
    profile: Profile = None,
    endpoint: Endpoint = None,
    source_root: SourceRoot = "",
    abort: Abort = False,
    dry_run: DryRun = False,
) -> int:
    """Imports a table of the Snowflake Loader's manifest.

    Repeat it to import new records, until this platform takes over. Exit code 1 if a record could not be imported, 4 if there
    is nothing new.
    """
    from manifest_platform.operations.migration import ForeignTable, Place, import_items, read_snowflake

    source = ForeignTable(table, region, profile, endpoint)
    if abort:
        return _drop(context, source, dry_run)
    with open_pipeline(context, author=operator()) as pipeline:
        histories = read_snowflake(source.rows(), Place(pipeline.source, source_root), Application(LOAD))
        report = import_items(pipeline.manifest, pipeline.source.main, histories, str(source), dry_run=dry_run)
        return _told(context, pipeline, report)


def _drop(context: typer.Context, source: ForeignTable, dry_run: bool) -> int:
    """Drops an unfinished import, without reading the other system's table."""
    from manifest_platform.operations.migration import drop_import

    with open_pipeline(context, author=operator()) as pipeline:
        dropped = drop_import(pipeline.manifest, pipeline.source.main, str(source), dry_run)
    if as_json(context):
        print_json(dropped)
        return Exit.DONE
    verb = "would drop" if dry_run else "dropped"
    say(
        f"{verb} the import from {source}: {dropped.records:,} records, {dropped.items:,} items;"
        f" {dropped.shortened:,} items keep their earlier records"
    )
    if not dry_run:
        say("the feed is free again")
    return Exit.DONE


def _told(context: typer.Context, pipeline: Pipeline, report: Report) -> int:
    if as_json(context):
        print_json(report)
    else:
        _print_report(pipeline, report, typed(context, pipeline.name))
    if report.problems:
        return Exit.FAILED
    return Exit.DONE if report.records else Exit.NOTHING


def _print_report(pipeline: Pipeline, report: Report, as_typed: Typed) -> None:
    nothing_written = "; dry run, nothing was written" if report.dry_run else ""
    say(f"{report.source} into dataset {pipeline.name}, feed {pipeline.source.main}{nothing_written}")
    lines = {
        "read": f"{report.rows:,} rows",
        "items": f"{report.added:,} added, {report.grown:,} with new records, {report.unchanged:,} unchanged",
        "records": f"{report.records:,} appended",
        "late": _named(report.late, "not done there, and earlier than the item loaded last"),
        "open": _named(report.open, "in progress there, or left by a crash; once that system is stopped, add --free-open"),
        "failed": _named(report.failed, "failed there; resolve or skip them"),
        "undecided": _named(report.undecided, "skipped there by the shredder only; skip them for all, or unskip them"),
        "repaired": f"{len(report.repairs):,} records that lost a race for a lock" if report.repairs else "",
        "left out": f"{len(report.problems):,} problems" if report.problems else "",
    }
    for label, text in lines.items():
        if text:
            say(f"  {label:<11}{text}")
    _print_notes("repaired", report.repairs)
    _print_notes("left out", report.problems)
    if not report.dry_run:
        say(f"  next       once the other system is stopped: {as_typed(Remedy(Action.DRAIN))}")


def _named(names: Sequence[str], meaning: str) -> str:
    return f"{len(names):,}, {meaning}: {some(names)}" if names else ""


def _print_notes(label: str, notes: Sequence[Note]) -> None:
    for note in notes[:NOTES_SHOWN]:
        warn(f"{label}: {note.item}: {note.text}")
    if len(notes) > NOTES_SHOWN:
        warn(f"{label}: and {len(notes) - NOTES_SHOWN:,} more; --json has them all")


@app.command(cls=Command)
def view(
    context: typer.Context,
    layout: Annotated[ViewLayout, typer.Option("--as", help="Manifest to take the layout of.")] = ViewLayout.SNOWFLAKE_LOADER,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Number of the newest runs to show.")] = 50,
) -> int:
    """Shows a feed in the layout of another manifest.

    The layout snowflake-loader lists NEW, PROCESSED and LOADED runs, newest first, and FAILED runs that are not resolved. With
    --json, times are seconds since 1970, as in that manifest. Exit code 4 if there are no runs.
    """
    from manifest_platform.operations.migration import view_as_loader

    with open_pipeline(context) as pipeline:
        rows = list(
            islice(view_as_loader(pipeline.manifest, pipeline.source.main, Application(SHRED), Application(LOAD)), limit)
        )
    if as_json(context):
        print_json({"layout": layout, "rows": [{"State": row.state, **row.attributes()} for row in rows]})
    else:
        for row in rows:
            say(_line(row))
            say(wrapped(_told_of(row), " " * 10, " " * 10))
    return Exit.DONE if rows else Exit.NOTHING


def _line(row: Run) -> str:
    times = {"added": row.added_at, "processed": row.processed_at, "loaded": row.loaded_at}
    told = ", ".join(f"{what} {moment(time)}" for what, time in times.items() if time)
    skip = "; ToSkip" if row.to_skip else ""
    return f"{row.state:<10}{row.run_id}  {told}{skip}"


def _told_of(row: Run) -> str:
    """Returns the authors of a run's states, and the types that it was shredded to."""
    parts = {"FailedBy": row.failed_by, "AddedBy": row.added_by, "LoadedBy": row.loaded_by}
    told = [f"{name} {value}" for name, value in parts.items() if value]
    return "; ".join([*told, f"ShredTypes {', '.join(row.shred_types)}"] if row.shred_types else told)
