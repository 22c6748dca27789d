"""Which items stand how: by state, application, feed and time; newest first, and never further than it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from itertools import islice
from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Command, Exit, WrongUse, app, as_json
from manifest_platform.cli.context import item_key, open_pipeline
from manifest_platform.cli.history import words_of
from manifest_platform.cli.output import print_json, print_table, say
from manifest_platform.manifest import Application, Item, Manifest, Record, State
from manifest_platform.manifest.queries import failed_by, locked_by, processed_by, unprocessed

_AGE = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    `state`: how an item stands now, for the application where one is named. `since`, `until`: when the record was written that
    says so.
    """

    feed: str
    state: State | None = None
    application: Application | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class Found:
    """An item, and the record by which it stands so."""

    item: Item
    record: Record


@dataclass(frozen=True)
class Answer:
    """What was found, newest first. `looked_at`: how many items.

    `before`: the item behind which to go on, where there may be more. `cut`: `look` ended the search among items that come in
    no such order, so that newer ones may be missing.
    """

    found: list[Found]
    looked_at: int
    before: str | None
    cut: bool = False


@app.command(cls=Command)
def query(
    context: typer.Context,
    state: Annotated[State | None, typer.Option(case_sensitive=False, help="How items stand now; New: not done yet.")] = None,
    application: Annotated[str | None, typer.Option(metavar="NAME", help="For whom; NAME:INSTANCE for one instance.")] = None,
    feed: Annotated[str | None, typer.Option(metavar="NAME", help="Of which feed; else the dataset's main one.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="2026-01-31T12:00 (UTC), or 30m, 12h, 7d ago.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time, written alike.")] = None,
    before: Annotated[str | None, typer.Option(metavar="ITEM", help="Go on behind this item.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Find at most so many items.")] = 50,
    look: Annotated[int, typer.Option(min=1, metavar="N", help="Look at no more than so many items.")] = 10_000,
) -> int:
    """Lists items by how they stand, newest first.

    With --state, those that stand so now; otherwise all, each with its newest record. Exit 4 if none was found.
    """
    now = datetime.now(UTC)
    name, _, instance = (application or "").partition(":")
    who = Application(name, instance=instance or None) if name else None
    with open_pipeline(context) as pipeline:
        feed = feed or pipeline.source.main
        pipeline.manifest.steps(feed)
        wanted = Wanted(feed, state, who, _time("since", since, now), _time("until", until, now))
        bound = item_key(pipeline, before).position if before else None
        answer = ask(pipeline.manifest, wanted, limit, look, bound)
    _print(context, answer)
    return Exit.DONE if answer.found else Exit.NOTHING


def ask(manifest: Manifest, wanted: Wanted, limit: int, look: int, before: str | None = None) -> Answer:
    """The newest items that are wanted, at most `limit`, of at most `look`. `before`: only those before that position."""
    seen: list[str] = []

    def looked(items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            seen.append(item.key.name)
            yield item

    serving = manifest.serving_epochs(wanted.feed)
    source, newest_first = _source(manifest, wanted, before)
    tells = _tells(wanted, serving)
    items = looked(islice(source, look))
    hits = (Found(item, record) for item in items if (record := tells(item)) and _is_within(record, wanted))
    if newest_first:
        found = list(islice(hits, limit))
        more = len(found) == limit or len(seen) == look
        return Answer(found, len(seen), seen[-1] if more and seen else None)
    earlier = (hit for hit in hits if before is None or hit.item.key.position < before)
    found = nlargest(limit, earlier, key=lambda hit: hit.item.key)
    return Answer(found, len(seen), found[-1].item.key.name if len(found) == limit else None, len(seen) == look)


def _source(manifest: Manifest, wanted: Wanted, before: str | None) -> tuple[Iterator[Item], bool]:
    """The items to look at, as few as will do, and whether they come newest first."""
    feed, who = wanted.feed, wanted.application
    declared = [step.application for step in manifest.steps(feed)]
    if who and wanted.state is State.FAILED:
        return failed_by(manifest, feed, who), False
    if who and wanted.state is State.PROCESSING:
        return locked_by(manifest, feed, who), False
    if wanted.state in (State.FAILED, State.PROCESSING):
        by = failed_by if wanted.state is State.FAILED else locked_by
        items = {item.key: item for step in declared for item in by(manifest, feed, step)}
        return iter(items.values()), False
    if wanted.state is State.NEW and who and any(step.key == who.key for step in declared):
        return unprocessed(manifest, feed, who), False
    if wanted.state is State.PROCESSED and who:
        return processed_by(manifest, feed, who, before), True
    return manifest.items(feed, after=before or "", reverse=True), True


def _tells(wanted: Wanted, serving: dict[str, int]) -> Callable[[Item], Record | None]:
    """By which record an item stands as wanted; None where it does not."""
    who, state = wanted.application, wanted.state

    def newest(item: Item) -> Record | None:
        own = (record for record in reversed(item.records) if who is None or who.is_done_by(record.application))
        return next(own, None)

    def tells(item: Item) -> Record | None:
        if state in (State.FAILED, State.PROCESSING):
            still = (one for one in item.open_records(serving) if one.state is state)
            return next((one for one in still if who is None or who.is_done_by(one.application)), None)
        if who and state is State.PROCESSED:
            return item.processed_by(who, serving.get(who.key, 0))
        if who and state is State.SKIPPED:
            return item.skipped_for(who)
        if who and state is State.NEW:
            done = item.processed_by(who, serving.get(who.key, 0)) or item.skipped_for(who)
            return None if done else item.records[0]
        record = newest(item)
        return record if record and state in (None, record.state) else None

    return tells


def _is_within(record: Record, wanted: Wanted) -> bool:
    after = wanted.since is None or record.timestamp >= wanted.since
    return after and (wanted.until is None or record.timestamp < wanted.until)


def _time(option: str, text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    if ago := _AGE.fullmatch(text):
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise WrongUse(f"--{option} {text}: a time as 2026-01-31T12:00 (UTC), or an age as 30m, 12h, 7d") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _print(context: typer.Context, answer: Answer) -> None:
    if as_json(context):
        found = [_document(hit) for hit in answer.found]
        print_json({"items": found, "looked_at": answer.looked_at, "before": answer.before, "cut": answer.cut})
        return
    if answer.found:
        print_table(("item", "state", "application", "time (UTC)", "author", ""), [_row(hit) for hit in answer.found])
    how = f"more may lie behind: --before {answer.before}" if answer.before else "these are all"
    how = "there are more to look at: --look" if answer.cut else how
    say(f"{len(answer.found):,} found; looked at {answer.looked_at:,} items, {how}")


def _row(hit: Found) -> tuple[str, ...]:
    record = hit.record
    return (
        hit.item.key.name,
        str(record.state),
        record.application.key,
        f"{record.timestamp:%Y-%m-%d %H:%M:%S}",
        record.author,
        words_of(record).partition("\n")[0],
    )


def _document(hit: Found) -> dict[str, Any]:
    record = hit.record
    told = {"state": record.state, "application": record.application.key, "time": record.timestamp, "author": record.author}
    return {"item": hit.item.key, **told, "record": record.record_id, "note": words_of(record)}
