"""`schema`: the JSON Schemas of the answers that commands print with --json."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, WrongUse, app, as_json, examples
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say


@app.command(cls=Command, epilog=examples("schema status", "schema merge run", "schema > json.md"))
def schema(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="Name of a command, such as `status` or `merge run`.")
    ] = None,
) -> int:
    """Prints the JSON Schema of a command's answer with --json.

    Without a name, it prints the reference page of all answers in Markdown; with --json, all schemas by command. Needs no
    configuration.
    """
    from manifest_platform.cli.answers import ANSWERS
    from manifest_platform.cli.answers import schema as schema_of
    from manifest_platform.cli.answers.page import page

    name = " ".join(command or ())
    if name and name not in ANSWERS:
        below = ", ".join(one for one in ANSWERS if one.startswith(f"{name} "))
        raise WrongUse(f"there is no command {name!r}; choose one of {below or ', '.join(ANSWERS)}")
    if as_json(context):
        print_json(schema_of(name) if name else {one: schema_of(one) for one in ANSWERS})
    elif name:
        say(json.dumps(schema_of(name), indent=2))
    else:
        say(page().rstrip())
    return Exit.DONE
