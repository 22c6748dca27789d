"""`demo`: tells one of the demo's stories in this folder, or removes what it left."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, app, as_json, fail
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import say
from manifest_platform.cli.signals import Interrupted


class Story(StrEnum):
    """Whose directories the demo loads."""

    SNOWPLOW = "snowplow"
    VEEVA = "veeva"


class Kept(StrEnum):
    """Where the demo keeps its manifest."""

    SQLITE = "sqlite"
    DYNAMODB = "dynamodb"


@app.command(cls=Command)
def demo(
    context: typer.Context,
    pipeline: Annotated[Story, typer.Option(help="A web shop's runs, or a vault's day.")] = Story.SNOWPLOW,
    store: Annotated[Kept, typer.Option(help="Where the manifest is kept; dynamodb: DynamoDB Local.")] = Kept.SQLITE,
    clean: Annotated[bool, typer.Option("--clean", help="Only remove what the demo left.")] = False,
) -> int:
    """Loads invented directories, one of them broken, one late, into this folder: about a minute.

    Writes the story's configuration here, and all else below .demo (a vault: .demo-veeva). An earlier demo's is removed first.
    """
    from manifest_platform.demo import run

    try:
        home = run.remove(pipeline.value) if clean else run.tell(pipeline.value, store.value)
    except run.EXPECTED as error:
        return fail(str(error), error, Exit.FAILED, as_json(context))
    except KeyboardInterrupt as error:
        raise Interrupted.of(error, "interrupted; `manifest-platform demo` starts afresh") from error
    if clean:
        say(f"{home} is removed")
    return Exit.DONE
