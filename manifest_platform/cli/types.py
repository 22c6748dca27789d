"""`types`: which types of rows were shredded, and which was seen first when."""

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
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Of items of this logical time or later.")] = None,
    feed: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this feed; may be repeated.")] = None,
) -> int:
    """Lists the types that were shredded, with their versions, and when each was seen first.

    What was seen first last comes first. --since looks at that part of the log alone, so that `first` is the first in it. What
    was shredded by a release before 0.2.0 shows its tables. Exit 4 if there are none.
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
        warn(f"warning: {seen.unread:,} listings cannot be read: of those items the types with the most rows are shown alone")
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
