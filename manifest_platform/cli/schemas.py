"""`schemas`: shows the schemas that describe a dataset's rows, the tables that they make, and their differences."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Annotated, Any

import orjson
import typer

from manifest_platform import outward, plugins
from manifest_platform.cli.app import Command, WrongUse, as_json, examples, group
from manifest_platform.cli.context import chosen_dataset, configuration, open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.offered import chosen_source, offered
from manifest_platform.cli.output import print_json, print_table, say, wrapped
from manifest_platform.listing import Table
from manifest_platform.operations.ddl import creations, imaginary
from manifest_platform.operations.types_seen import types_seen
from manifest_platform.sources.schemas import Difference, Differences, Schemas

_LONGEST_VALUE = 60

schemas = group("schemas", "Shows the schemas that describe rows, the tables that they make, and their differences.")

Name = Annotated[
    str, typer.Argument(metavar="SCHEMA", help="A schema or its model, such as iglu:com.acme/click/jsonschema/1-0-0 or …/1.")
]


@contextmanager
def _opened(context: typer.Context) -> Generator[Schemas]:
    with closing(offered(chosen_source(context), lambda source: source.schemas, "schemas")) as found:
        yield found


@schemas.command("list", cls=Command, epilog=examples("schemas list", "schemas list --seen"))
def list_(
    context: typer.Context,
    seen: Annotated[bool, typer.Option("--seen", help="Show only the models that shredded rows had.")] = False,
) -> int:
    """Lists the models of the registries, with their tables and versions.

    Some registries give no list of what they have: of those, the list has the models that shredded rows had. Exit code 4 if
    there are no models.
    """
    with _opened(context) as found, open_pipeline(context) as pipeline:
        names = [one.type for one in types_seen(pipeline, pipeline.feeds, None).types]
        known = found.known(names)
    models = [one for one in known.models if not seen or any(_is_of(name, one.name) for name in names)]
    if as_json(context):
        print_json({"models": models, "unlisted": known.unlisted})
    else:
        if models:
            print_table(("MODEL", "TABLE", "VERSIONS"), [(one.name, one.table, ", ".join(one.versions)) for one in models])
        for reason in known.unlisted:
            say(wrapped(f"not listed: {reason}", "", "  "))
    return Exit.DONE if models else Exit.NOTHING


def _is_of(schema: str, model: str) -> bool:
    return schema == model or schema.startswith(f"{model}-")


@schemas.command(cls=Command, epilog=examples("schemas show iglu:com.acme/click/jsonschema/1"))
def show(
    context: typer.Context,
    name: Name,
    documents: Annotated[bool, typer.Option("--documents", help="Show the schemas themselves too.")] = False,
) -> int:
    """Shows the versions of a model, and the columns of its tables."""
    with _opened(context) as found:
        shown = found.show(name)
    if as_json(context):
        print_json(
            {
                "model": shown.model,
                "tables": [_table(one) for one in shown.tables],
                "notes": shown.notes,
                "documents": shown.documents if documents else None,
            }
        )
        return Exit.DONE
    say(outward.line(f"{shown.model.name} from {shown.model.place}: versions {', '.join(shown.model.versions)}"))
    for note in shown.notes:
        say(wrapped(note, "note: ", "  "))
    for table in shown.tables:
        say("")
        say(outward.line(f"table {table.name}"))
        print_table(("COLUMN", "TYPE", "NULL"), [(one.name, one.type, "" if one.nullable else "no") for one in table.columns])
    for version, document in shown.documents.items() if documents else ():
        say("")
        say(outward.line(version))
        say(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    return Exit.DONE


def _table(table: Table) -> dict[str, Any]:
    columns = [{"name": one.name, "type": one.type, "nullable": one.nullable} for one in table.columns]
    return {"name": table.name, "columns": columns}


@schemas.command(
    cls=Command,
    epilog=examples(
        "schemas diff iglu:com.acme/click/jsonschema/1-0-0",
    ),
)
def diff(
    context: typer.Context,
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="The earlier schema.")],
    after: Annotated[
        str | None, typer.Argument(metavar="AFTER", help="The later schema. Default: the model's newest version.")
    ] = None,
) -> int:
    """Shows what a version of a schema changes: in its table, and in the schema itself.

    Exit code 1 if rows of the later version do not fit the table of earlier versions, 4 if nothing differs.
    """
    with _opened(context) as found:
        told = found.compare(before, after)
    if as_json(context):
        print_json(told)
    else:
        _print_differences(told)
    if told.problem:
        return Exit.FAILED
    return Exit.DONE if told.columns or told.schema else Exit.NOTHING


def _print_differences(told: Differences) -> None:
    say(outward.line(f"{told.before} → {told.after}"))
    for title, found in (("table", told.columns), ("schema", told.schema)):
        say(f"{title}: {'no difference' if not found else ''}".rstrip())
        for one in found:
            say(outward.line(f"  {_difference(one)}"))
    if told.problem:
        say(wrapped(told.problem, "does not fit: ", "  "))


def _difference(one: Difference) -> str:
    if one.before is None:
        return f"+ {one.place}: {_value(one.after)}"
    if one.after is None:
        return f"- {one.place}: {_value(one.before)}"
    return f"~ {one.place}: {_value(one.before)} → {_value(one.after)}"


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


@schemas.command(
    cls=Command,
    epilog=examples(
        "schemas ddl iglu:com.acme/click/jsonschema/1", "schemas ddl iglu:com.acme/click/jsonschema/1 --engine NAME"
    ),
)
def ddl(
    context: typer.Context,
    name: Name,
    engine: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Engine to write SQL for. Repeatable. Default: the dataset's targets."),
    ] = None,
) -> int:
    """Prints the statements that create a model's tables, as the first load would. Connects to no warehouse."""
    config = configuration(context)
    dataset = config.dataset(chosen_dataset(context))
    with _opened(context) as found:
        shown = found.show(name)
    if engine:
        if unknown := sorted(set(engine) - set(plugins.names(plugins.ENGINES))):
            raise WrongUse(f"--engine {unknown[0]}: allowed: {', '.join(plugins.names(plugins.ENGINES))}")
        settings = {one: imaginary(one) for one in engine}
    else:
        settings = {target: config.engine_of(dataset, target) for target in config.targets_of(dataset)}
    made = {one: creations(each, dataset, shown.tables) for one, each in settings.items()}
    if as_json(context):
        print_json({"statements": [{"target": one, "engine": settings[one].kind, "sql": sql} for one, sql in made.items()]})
    else:
        for one, statements in made.items():
            if len(made) > 1:
                say(f"-- {one}")
            for statement in statements:
                say(f"{statement};")
    return Exit.DONE


@schemas.command(
    cls=Command, epilog=examples("schemas fetch registry iglu:com.acme/click/jsonschema/1", "schemas fetch registry")
)
def fetch(
    context: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder, or s3://bucket/prefix, to copy schemas to.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCHEMA]...", help="Models to copy. Default: those that shredded rows had."),
    ] = None,
) -> int:
    """Copies schemas to a folder, which then serves as a registry without a network.

    Name the folder in the configuration in place of the registries, or before them. Exit code 4 if nothing was copied, 1 if a
    schema is in no registry.
    """
    with _opened(context) as found:
        if not names:
            with open_pipeline(context) as pipeline:
                names = [one.type for one in types_seen(pipeline, pipeline.feeds, None).types]
        done = found.fetch(folder, names)
    if as_json(context):
        print_json(done)
    else:
        for one in done.written:
            say(outward.line(f"copied {one}"))
        for one in done.missing:
            say(outward.line(f"✗ {one} is in none of the registries"))
        say(outward.line(f"{len(done.written):,} schemas copied to {done.folder}, {done.same:,} were there already"))
    if done.missing:
        return Exit.FAILED
    return Exit.DONE if done.written or done.same else Exit.NOTHING
