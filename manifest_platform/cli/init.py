"""`init`: writes a project for a landing root, from options, from answers, and from a preview of the landed directories."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Command, Exit, WrongUse, app, as_json, examples
from manifest_platform.cli.context import chosen_dataset
from manifest_platform.cli.output import print_json, say, wrapped
from manifest_platform.cli.preview import check_schemas, print_unknown
from manifest_platform.operations import preview as looking
from manifest_platform.operations import project
from manifest_platform.operations.project import Wanted
from manifest_platform.storage import UnsupportedLocation


@app.command(cls=Command, epilog=examples("init --landing landing/", "init shop --landing s3://bucket/enriched --yes"))
def init(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to write to: empty, or an existing Dagster project.")
    ] = Path(),
    landing: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Place where directories land: a folder or s3://bucket/prefix.")
    ] = None,
    schemas: Annotated[
        list[str] | None, typer.Option(metavar="FOLDER|URL", help="Place of JSON Schemas (Iglu registry). Repeatable.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Store for the manifest. Default: a file in the folder.")
    ] = None,
    warehouse: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of the warehouse. Default: a file in the folder.")
    ] = None,
    output: Annotated[str | None, typer.Option(metavar="PLACE", help="Place for typed Parquet. Default: a folder.")] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="WHO", help="Owner of the assets in Dagster: team:NAME or an e-mail address.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: use the options and the preview's findings.")] = False,
) -> int:
    """Writes a project for a landing root: configuration, Dagster definitions, a test and a README.

    Asks for values that no option sets; the defaults come from a preview of the landed directories. Existing files are never
    changed. In an existing Dagster project, it adds only the configuration and a component definition. Exit code 4 if all files
    existed.
    """
    asks = not yes and not as_json(context) and sys.stdin.isatty()
    if landing is None and asks:
        landing = typer.prompt("Where do directories land? A folder, or s3://bucket/prefix", default="landing")
    if landing is None:
        raise WrongUse("--landing PLACE is missing: the folder, or s3://bucket/prefix, that directories land in")
    check_schemas(schemas or ())
    try:
        found = looking.recognize(landing, schemas or ())
    except (looking.NotThere, UnsupportedLocation) as error:
        raise WrongUse(str(error)) from error
    if isinstance(found, looking.Unknown):
        if as_json(context):
            print_json({"recognized": False, "place": found.uri, "holds": found.holds, "hints": found.hints})
        else:
            print_unknown(landing, found)
        return Exit.NOTHING
    if len(found) > 1:
        roots = ", ".join(one.uri for one in found)
        raise WrongUse(f"{landing} holds {len(found)} landing roots: {roots}; name one with --landing")
    seen = looking.preview(found[0])
    chosen: dict[str, Any] = {
        "dataset": chosen_dataset(context),
        "schemas": tuple(schemas) if schemas else None,
        "store": store,
        "warehouse": warehouse,
        "shredded": output,
        "owner": owner,
    }
    wanted = Wanted.of(seen, **chosen)
    if asks:
        wanted = _asked(seen, wanted, {name for name, value in chosen.items() if value is not None})
    try:
        planned = project.plan(folder, wanted)
    except project.Refused as error:
        raise WrongUse(str(error)) from error
    written = project.write(planned)
    if as_json(context):
        print_json({"folder": str(planned.folder), "into": planned.into, "written": written.made, "kept": written.kept})
    else:
        _tell(folder, planned, written, wanted)
    return Exit.DONE if written.made else Exit.NOTHING


def _asked(seen: looking.Preview, wanted: Wanted, told: set[str]) -> Wanted:
    """Asks for the values that no option sets. `told`: the names of values that options set."""
    counts = ", ".join(f"{feed.sequence.count:,} of feed {feed.name}" for feed in seen.feeds)
    say(wrapped(f"{seen.source}: {seen.layout}; {counts}"))

    def ask(name: str, question: str, default: str) -> str:
        return getattr(wanted, name) if name in told else typer.prompt(question, default=default)

    changed: dict[str, Any] = {"dataset": ask("dataset", "Name of the dataset, and of its schema", wanted.dataset)}
    needs = seen.told.get("shred", {}).get("schemas")
    if needs and "schemas" not in told:
        default = ", ".join(wanted.schemas or needs)
        answer = typer.prompt("Where are the JSON Schemas? Folders, s3:// or http(s)://, by priority", default=default)
        changed["schemas"] = tuple(one.strip() for one in answer.split(",") if one.strip())
    changed["store"] = ask("store", "Where is the manifest kept? The URL of a store", wanted.store)
    changed["warehouse"] = ask("warehouse", "The warehouse's file", wanted.warehouse)
    return Wanted(**{**vars(wanted), **changed})


def _tell(folder: Path, planned: project.Plan, written: project.Written, wanted: Wanted) -> None:
    where = "this folder" if folder == Path() else str(folder)
    if written.made:
        kind = "the Dagster project in " if planned.into else ""
        say(f"written to {kind}{where}:")
        for name in written.made:
            say(f"  {name}")
    if written.kept:
        say(f"existing {'file' if len(written.kept) == 1 else 'files'}, not changed: {', '.join(written.kept)}")
    for note in planned.notes:
        head, *rest = note.split("\n")
        say(wrapped(head, "note: ", "      "))
        for line in rest:
            say(f"      {line}".rstrip())
    say("next:")
    if folder != Path():
        say(f"  cd {shlex.quote(str(folder))}")
    say("  manifest-platform drain")
    say("  dg dev" if planned.into else "  dagster dev")
