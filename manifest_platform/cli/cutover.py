"""`cutover`: takes over the tables of another loader, after a check, or compares with tables beside them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer

from manifest_platform import outward
from manifest_platform.cli.app import Command, as_json, examples, group
from manifest_platform.cli.context import chosen_dataset, configuration, open_pipeline, operator, run_id
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_table, say, some, warn, wrapped
from manifest_platform.operations.cutover import Compared, Cutover, adopt, compare, look, register
from manifest_platform.operations.cutover import beside as beside_of
from manifest_platform.pipeline import Pipeline
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
    """Compares another loader's tables and notes with the landing, the schemas, the log and the ledger.

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
        "adopted": found.adopted,
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
    if found.noted is not None and found.rows > found.noted and (found.never_loaded or found.newer):
        text = (
            f"note: the main table has {found.rows - found.noted:,} rows more than were noted. If they are of a run below, "
            "loading it doubles them; load.duplicates: warehouse leaves out events that are there"
        )
        say(wrapped(text, "", "  "))
    for what, names in (
        ("landed before its newest run, and never loaded", found.never_loaded),
        ("landed after its newest run", found.newer),
        ("loaded, and no longer in the landing", found.gone),
        ("loaded, and taken over already", found.adopted),
        ("tables without a noted type", found.strangers),
    ):
        if names:
            say(wrapped(f"{what}: {len(names):,}: {some(names)}", "", "  "))
    say("")
    rows = [(one.table, f"{one.rows:,}", ", ".join(one.adds), ", ".join(one.widens)) for one in found.tables]
    print_table(("TABLE", "ROWS", "COLUMNS TO ADD", "COLUMNS TO WIDEN"), rows)
    for what, columns in (
        ("stay shorter than texts may be, so that such a text is refused, or cut if load.text says so", "short"),
        ("are NOT NULL, and may be empty here: a load that needs it changes that", "relaxes"),
    ):
        named = [f"{one.table}.{name}" for one in found.tables for name in getattr(one, columns)]
        if named:
            say(wrapped(f"columns that {what}: {len(named):,}: {some(named)}", "", "  "))
    for text in found.hindrances:
        warn(wrapped(f"not to be taken over: {outward.line(text)}", "", "  "))


@cutover.command(
    "adopt", cls=Command, epilog=examples("cutover adopt --dry-run", "cutover adopt", "cutover adopt --beside shop_trial")
)
def adopt_(
    context: typer.Context,
    schema: Schema = None,
    source_root: SourceRoot = "",
    load_missing: Annotated[
        bool, typer.Option("--load-missing", help="Load runs that the other loader never loaded, as late runs.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be taken over, and write nothing.")] = False,
    beside: Annotated[
        str | None,
        typer.Option(
            "--beside",
            metavar="NAME",
            help="Take nothing over: load the other loader's newest runs into this schema, to compare.",
        ),
    ] = None,
    newest: Annotated[int, typer.Option("--newest", metavar="N", min=1, help="With --beside: the number of runs.")] = 10,
) -> int:
    """Takes over another loader's tables as they are, and continues after its newest run.

    What it has loaded is entered in the ledger and in the log. Repeat it until the other loader is stopped. Exit code 4 if
    there is nothing new. With --beside its tables are only read, and the exit code is that of a drain.
    """
    if beside is not None:
        return _load_beside(context, beside, schema, source_root, newest)
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
        last = max(done.found.runs, default="")
        say(f"loads continue after {last}" if last else "nothing was loaded by the other loader")
    return Exit.DONE if new else Exit.NOTHING


def _load_beside(context: typer.Context, beside: str, schema: str | None, source_root: str, newest: int) -> int:
    from manifest_platform.cli.drain import work

    with _pipeline_beside(context, beside) as pipeline:
        names = register(pipeline, schema, source_root, newest)
        if not as_json(context):
            say(f"{count_of(len(names), 'run')} of the other loader, for schema {beside}, as dataset {pipeline.name}")
        return work(context, pipeline)


@contextmanager
def _pipeline_beside(context: typer.Context, schema: str) -> Generator[Pipeline]:
    """Yields the pipeline of the dataset that loads beside the other loader."""
    settings = configuration(context)
    changed, name = beside_of(settings, settings.dataset(chosen_dataset(context)), schema)
    with Pipeline(changed, name, run_id(context), operator()) as pipeline:
        yield pipeline


@cutover.command("compare", cls=Command, epilog=examples("cutover compare --beside shop_trial", "cutover compare --newest 100"))
def compare_(
    context: typer.Context,
    schema: Schema = None,
    beside: Annotated[
        str | None, typer.Option("--beside", metavar="NAME", help="Schema that cutover adopt --beside has loaded into.")
    ] = None,
    newest: Annotated[int, typer.Option("--newest", metavar="N", min=1, help="The number of newest runs to compare.")] = 10,
) -> int:
    """Compares the rows of runs that both this platform and another loader have loaded, each into its own schema.

    Writes nothing. Exit code 1 if rows differ, 4 if there are no such runs.
    """
    with open_pipeline(context) if beside is None else _pipeline_beside(context, beside) as pipeline:
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
