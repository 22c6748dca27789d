"""`init`: a project for what has landed: asked for, or told by options, or as a preview suggests."""

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
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the project goes; a Dagster project too.")] = Path(),
    landing: Annotated[str | None, typer.Option(metavar="PLACE", help="Where directories land: a folder or s3://….")] = None,
    schemas: Annotated[
        list[str] | None, typer.Option(metavar="FOLDER|URL", help="Where JSON Schemas are (Iglu registry); may be repeated.")
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="Where the manifest is kept; else a file here.")] = None,
    warehouse: Annotated[str | None, typer.Option(metavar="FILE", help="The warehouse's file; else one here.")] = None,
    output: Annotated[str | None, typer.Option(metavar="PLACE", help="Where typed Parquet goes; else a folder here.")] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="WHO", help="Who is responsible: team:NAME or an e-mail address.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take what is told, and what is found.")] = False,
) -> int:
    """Writes a project for what has landed: configuration, Dagster, a test, a README.

    Asks for what no option tells, with what `preview` found as the default. A file that is there stays as it is; in a
    project of Dagster's, only the configuration and a definition are added. Exit 4 if everything was there.
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
    """What is wanted, as a person says; what an option told is not asked for."""
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
        say(f"there already, left as {'it is' if len(written.kept) == 1 else 'they are'}: {', '.join(written.kept)}")
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
