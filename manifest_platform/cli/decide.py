"""`resolve`, `skip` and `unskip`: the decisions on an item that only a person can take."""

from __future__ import annotations

from typing import Annotated

import typer

from manifest_platform.cli.app import Command, Exit, ItemName, Reason, app, as_json
from manifest_platform.cli.context import item_key, open_pipeline, operator
from manifest_platform.cli.output import print_json, say
from manifest_platform.manifest import EVERYONE, ItemKey, Record
from manifest_platform.pipeline import LOAD, SHRED


@app.command(cls=Command)
def resolve(context: typer.Context, item: ItemName, reason: Reason = "no reason given") -> int:
    """Frees a failed item for another attempt."""
    with open_pipeline(context, author=operator()) as pipeline:
        key = item_key(pipeline, item)
        return _decided(context, key, pipeline.manifest.resolve(key, reason), "the next drain tries it again")


@app.command(cls=Command)
def skip(
    context: typer.Context,
    item: ItemName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why its data may be missing, for the records.")],
    application: Annotated[str, typer.Option(metavar="NAME", help=f"{SHRED}, {LOAD} or {EVERYONE} for both.")] = EVERYONE,
) -> int:
    """Passes over an item, until `unskip`.

    Its data stays out of the warehouse.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        key = item_key(pipeline, item)
        return _decided(context, key, pipeline.manifest.skip(key, reason, application), "the feed goes on without it")


@app.command(cls=Command)
def unskip(context: typer.Context, item: ItemName, reason: Reason = "no reason given") -> int:
    """Lets a skipped or quarantined item in.

    Behind the watermark it comes in late, where the feed's policy is to append.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        key = item_key(pipeline, item)
        return _decided(context, key, pipeline.manifest.unskip(key, reason), "the next drain takes it")


def _decided(context: typer.Context, key: ItemKey, record: Record, outcome: str) -> int:
    if as_json(context):
        print_json({"item": key, "record": record.to_dict()})
    else:
        say(f"{key.name}: {record.state} by {record.author}; {outcome}")
    return Exit.DONE
