"""`types`: lists the types of rows that were shredded."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from manifest_platform import outward
from manifest_platform.cli.app import Command, app, as_json
from manifest_platform.cli.context import open_pipeline, point_in_time
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, warn, wrapped
from manifest_platform.operations.types_seen import Seen, SeenIn, SeenType, types_seen
from manifest_platform.quantities import moment


@app.command(cls=Command)
def types(
    context: typer.Context,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Read only items of this logical time or later.")] = None,
    feed: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Read this feed only. Repeatable.")] = None,
) -> int:
    """Lists the types of rows that were shredded, and the items where each was first and last seen.

    The newest types come first. With --since, `first` is the first item since that time. For items that a release before 0.2.0
    shredded, the list shows tables instead of types. Exit code 4 if there are no types.
    """
    after = point_in_time("--since", since)
    with open_pipeline(context) as pipeline:
        for name in feed or ():
            pipeline.manifest.steps(name)
        seen = types_seen(pipeline, feed or pipeline.feeds, after)
    if as_json(context):
        documents = [_document(one) for one in seen.types]
        print_json({"types": documents, "looked_at": seen.looked_at, "unread": seen.unread})
    else:
        _print(seen)
    if seen.unread:
        warn(f"warning: {seen.unread:,} listings cannot be read: for their items, only the types with the most rows are shown")
    return Exit.DONE if seen.types else Exit.NOTHING


def _print(seen: Seen) -> None:
    for one in seen.types:
        table = f" in {one.table}" if one.table not in ("", one.type) else ""
        rows = "" if one.rows is None else f", {one.rows:,} rows"
        say(outward.line(f"{one.type}{table}"))
        say(wrapped(f"first {_words(one.first)}; last {_words(one.last)}; {one.items:,} items{rows}", "    ", "    "))
    say(f"{len(seen.types):,} types in {seen.looked_at:,} items")


def _words(seen: SeenIn) -> str:
    return f"{seen.key.name} (shredded {moment(seen.at)})"


def _document(one: SeenType) -> dict[str, Any]:
    places = {name: {"item": seen.key, "shredded_at": seen.at} for name, seen in (("first", one.first), ("last", one.last))}
    return {"type": one.type, "table": one.table or None, **places, "items": one.items, "rows": one.rows}
