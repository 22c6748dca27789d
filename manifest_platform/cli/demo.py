"""`demo`: tells one of the demo's stories in this folder, or removes what it left."""

from __future__ import annotations

from datetime import datetime
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
    day: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="The day of it all. Default: 2 days ago.")] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Only remove what the demo left.")] = False,
    land: Annotated[bool, typer.Option("--land", help="Only land one more run of the web shop, of this moment.")] = False,
) -> int:
    """Loads invented directories, one of them broken, one late, into this folder: about a minute.

    Writes the story's configuration here, and all else below .demo (a vault: .demo-veeva; on DynamoDB: .demo-dynamodb). An
    earlier demo's is removed first.
    """
    from manifest_platform.demo import run

    try:
        if clean:
            say("\n".join(f"{home} is removed" for home in run.remove(pipeline.value)))
        elif land:
            say(f"{run.land()} has landed")
        else:
            run.tell(pipeline.value, store.value, day.date() if day else None)
    except run.EXPECTED as error:
        return fail(str(error), error, Exit.FAILED, as_json(context))
    except KeyboardInterrupt as error:
        raise Interrupted.of(error, "interrupted; `manifest-platform demo` starts afresh") from error
    return Exit.DONE
