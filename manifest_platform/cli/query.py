"""`query`: lists items by state, application, feed and time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Command, WrongUse, app, as_json, examples
from manifest_platform.cli.context import item_key, open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.history import words_of
from manifest_platform.cli.output import print_json, print_table, say
from manifest_platform.manifest import Application, State
from manifest_platform.operations.search import Match, Search, SearchResult, search
from manifest_platform.sources.source import Words

_AGE = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@app.command(
    cls=Command,
    epilog=examples(
        "query --state failed",
        "query --application load --since 12h",
        "query --since 2026-01-31 --until 2026-02-01",
    ),
)
def query(
    context: typer.Context,
    state: Annotated[
        State | None, typer.Option(case_sensitive=False, help="Current state of the items. New: not worked on yet.")
    ] = None,
    application: Annotated[
        str | None, typer.Option(metavar="NAME", help="Application whose state counts. NAME:INSTANCE for one instance.")
    ] = None,
    feed: Annotated[str | None, typer.Option(metavar="NAME", help="Feed to list. Default: the dataset's main feed.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Items whose record is not older: 2026-01-31T12:00 (UTC), or 30m, 12h or 7d ago."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Items whose record is older. Same format as --since.")
    ] = None,
    before: Annotated[str | None, typer.Option(metavar="ITEM", help="Continue the list after this item.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Most items to list.")] = 50,
    look: Annotated[int, typer.Option(min=1, metavar="N", help="Most items to search.")] = 10_000,
) -> int:
    """Lists items by state, newest first.

    With --state, lists the items that are in this state now. Otherwise lists all, each with its newest record. Exit code 4 if
    no item is found.
    """
    name, _, instance = (application or "").partition(":")
    who = Application(name, instance=instance or None) if name else None
    with open_pipeline(context) as pipeline:
        now = pipeline.clock()
        feed = feed or pipeline.source.main
        pipeline.manifest.steps(feed)
        wanted = Search(feed, state, who, _time("since", since, now), _time("until", until, now))
        bound = item_key(pipeline, before).position if before else None
        answer = search(pipeline.manifest, wanted, limit, look, bound)
    _print(context, answer, pipeline.source.words)
    return Exit.DONE if answer.found else Exit.NOTHING


def _time(option: str, text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    if ago := _AGE.fullmatch(text):
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise WrongUse(
            f"--{option} {text}: write a time such as 2026-01-31T12:00 (UTC), or an age such as 30m or 7d"
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _print(context: typer.Context, answer: SearchResult, words: Words) -> None:
    if as_json(context):
        found = [_document(hit, words) for hit in answer.found]
        print_json({"items": found, "looked_at": answer.looked_at, "before": answer.before, "cut": answer.cut})
        return
    if answer.found:
        print_table(("item", "state", "application", "time (UTC)", "author", ""), [_row(hit, words) for hit in answer.found])
    how = f"there may be more: --before {answer.before}" if answer.before else "these are all"
    how = "to search more, use --look" if answer.cut else how
    say(f"{len(answer.found):,} found; searched {answer.looked_at:,} items, {how}")


def _row(hit: Match, words: Words) -> tuple[str, ...]:
    record = hit.record
    return (
        hit.item.key.name,
        str(record.state),
        record.application.key,
        f"{record.timestamp:%Y-%m-%d %H:%M:%S}",
        record.author,
        words_of(record, words).partition("\n")[0],
    )


def _document(hit: Match, words: Words) -> dict[str, Any]:
    record = hit.record
    told = {"state": record.state, "application": record.application.key, "time": record.timestamp, "author": record.author}
    return {"item": hit.item.key, **told, "record": record.record_id, "note": words_of(record, words)}
