"""`cutover`: takes over the tables of another loader, after a check, or compares with tables beside them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from manifest_platform import outward
from manifest_platform.cli.app import Command, as_json, examples, group
from manifest_platform.cli.context import open_pipeline, operator
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_table, say, some, warn, wrapped
from manifest_platform.operations.cutover import Compared, Cutover, adopt, compare, look
from manifest_platform.quantities import count_of, moment

cutover = group("cutover", "Replaces another loader: checks its tables, takes them over, or compares with tables beside them.")

Schema = Annotated[
    str | None, typer.Option("--schema", metavar="NAME", help="Schema of the other loader's tables. Default: the one it uses.")
]
SourceRoot = Annotated[
    str, typer.Option(metavar="FOLDER", help="Folder of the runs as the other loader notes them. Default: as it notes each.")
]


@cutover.command(cls=Command, epilog=examples("cutover check", "cutover check --schema atomic_eu"))
def check(context: typer.Context, schema: Schema = None, source_root: SourceRoot = "") -> int:
    """Compares another loader's tables and notes with the landing and the schemas.

    Writes nothing. Exit code 1 if its tables cannot be taken over.
    """
    with open_pipeline(context) as pipeline:
        found = look(pipeline, schema, source_root)
    if as_json(context):
        print_json(_told(found))
    else:
        _tell(found)
    return Exit.FAILED if found.hindrances else Exit.DONE


def _told(found: Cutover) -> dict[str, object]:
    return {
        "loader": found.loader,
        "schema": found.schema,
        "runs": [
            {"name": name, "place": run.place, "loaded_at": run.loaded_at, "rows": run.rows, "types": run.types}
            for name, run in found.runs.items()
        ],
        "never_loaded": found.never_loaded,
        "newer": found.newer,
        "gone": found.gone,
        "tables": [asdict(one) for one in found.tables],
        "strangers": found.strangers,
        "rows": found.rows,
        "noted": found.noted,
        "hindrances": found.hindrances,
    }


def _tell(found: Cutover) -> None:
    times = [run.loaded_at for run in found.runs.values()]
    span = f", from {moment(min(times))} to {moment(max(times))}" if times else ""
    say(f"{found.loader} has loaded {count_of(len(found.runs), 'run')} into schema {found.schema}{span}")
    noted = "not all noted" if found.noted is None else f"{found.noted:,} noted"
    say(f"rows of the main table: {found.rows:,}, {noted}")
    for what, names in (
        ("landed before its newest run, and never loaded", found.never_loaded),
        ("landed after its newest run", found.newer),
        ("loaded, and no longer in the landing", found.gone),
        ("tables without a noted type", found.strangers),
    ):
        if names:
            say(wrapped(f"{what}: {len(names):,}: {some(names)}", "", "  "))
    say("")
    rows = [(one.table, f"{one.rows:,}", ", ".join(one.adds), ", ".join(one.widens)) for one in found.tables]
    print_table(("TABLE", "ROWS", "COLUMNS TO ADD", "COLUMNS TO WIDEN"), rows)
    for text in found.hindrances:
        warn(wrapped(f"not to be taken over: {outward.line(text)}", "", "  "))


@cutover.command("adopt", cls=Command, epilog=examples("cutover adopt --dry-run", "cutover adopt"))
def adopt_(
    context: typer.Context,
    schema: Schema = None,
    source_root: SourceRoot = "",
    load_missing: Annotated[
        bool, typer.Option("--load-missing", help="Load runs that the other loader never loaded, as late runs.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be taken over, and write nothing.")] = False,
) -> int:
    """Takes over another loader's tables as they are, and continues after its newest run.

    What it has loaded is entered in the ledger and in the log. Repeat it until the other loader is stopped. Exit code 4 if
    there is nothing new.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        done = adopt(pipeline, schema, source_root, load_missing=load_missing, dry_run=dry_run)
    new = done.entered + done.imported.records
    if as_json(context):
        print_json(
            {"dry_run": dry_run, "entered": done.entered, "records": done.imported.records, "items": len(done.found.runs)}
        )
    else:
        verb = "would enter" if dry_run else "entered"
        say(f"{verb} {count_of(done.entered, 'run')} in the ledger, and {count_of(done.imported.records, 'record')} in the log")
        newest = max(done.found.runs, default="")
        say(f"loads continue after {newest}" if newest else "nothing was loaded by the other loader")
    return Exit.DONE if new else Exit.NOTHING


@cutover.command("compare", cls=Command, epilog=examples("cutover compare", "cutover compare --newest 100"))
def compare_(
    context: typer.Context,
    schema: Schema = None,
    newest: Annotated[int, typer.Option("--newest", metavar="N", min=1, help="The number of newest runs to compare.")] = 10,
) -> int:
    """Compares the rows of runs that both this platform and another loader have loaded, each into its own schema.

    Writes nothing. Exit code 1 if rows differ, 4 if there are no such runs.
    """
    with open_pipeline(context) as pipeline:
        found = list(compare(pipeline, schema, newest))
    if as_json(context):
        print_json({"tables": [{**asdict(one), "same": one.same} for one in found]})
    elif found:
        rows = [
            (
                one.item,
                one.table,
                f"{one.ours:,}",
                _theirs(one),
                f"{one.different:,}",
                f"{one.missing:,}",
                _left_out(one.left_out),
            )
            for one in found
        ]
        print_table(("RUN", "TABLE", "OURS", "THEIRS", "ONLY OURS", "ONLY THEIRS", "NOT COMPARED"), rows)
    else:
        say("no run was loaded by both")
    if not found:
        return Exit.NOTHING
    return Exit.DONE if all(one.same for one in found) else Exit.FAILED


def _theirs(one: Compared) -> str:
    return f"{one.theirs:,}" if one.noted in (None, one.theirs) else f"{one.theirs:,} ({one.noted:,} noted)"


def _left_out(columns: tuple[str, ...]) -> str:
    return some(columns) if columns else ""
