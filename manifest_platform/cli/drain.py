"""`drain`: registers, shreds and loads new directories, and prints the events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Recording, app, as_json, examples
from manifest_platform.cli.context import Target, open_pipeline, run_id
from manifest_platform.cli.discover import print_found, report_document, warn_of
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, warn, wrapped
from manifest_platform.cli.remedies import Typed, document, typed
from manifest_platform.cli.signals import ending_well
from manifest_platform.config.config import ConfigError
from manifest_platform.config.present import problems
from manifest_platform.manifest import Idle, ItemKey
from manifest_platform.manifest.records import FIRST_TARGET
from manifest_platform.operations.bad_rows import clause_of
from manifest_platform.pipeline import (
    Budget,
    DrainReport,
    Event,
    FeedEnd,
    ItemFailed,
    Pipeline,
    PutBack,
    Shredded,
    ShreddedAgain,
    ShredStarted,
    Stop,
)
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.drain import drain as draining
from manifest_platform.quantities import count_of, size_of
from manifest_platform.sources.errors import LandingError
from manifest_platform.sources.source import Words


@app.command(cls=Recording, epilog=examples("drain", "drain --items 10", "drain --feed incr --seconds 600 --json"))
def drain(
    context: typer.Context,
    items: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after this number of items.")] = None,
    feed: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Work on this feed only. Repeatable.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=1, metavar="S", help="Start nothing new after this number of seconds.")
    ] = None,
    look: Annotated[
        bool,
        typer.Option("--discover/--no-discover", help="List the landing root first, or work on registered items only."),
    ] = True,
    target: Target = None,
) -> int:
    """Registers new directories, shreds them and loads them in order.

    Works until nothing is left, a feed is blocked, or --items or --seconds is reached. Exit code 0 if work was done or another
    drain is running, 1 if an item failed or the landing root could not be listed, 3 if a feed is blocked or another
    program has the warehouse open, 4 if there was nothing to do. With --json: one line for each event, then the summary.
    """
    documents = as_json(context)
    report = DrainReport()
    with open_pipeline(context, target=target) as pipeline, ending_well(lambda: _goes_on(pipeline, feed)):
        if wrong := problems(pipeline.config, pipeline.name, landing=False):
            raise ConfigError("\n".join(["nothing was started; correct the configuration:", *(f"  {one}" for one in wrong)]))
        as_typed = typed(context, pipeline.name)
        for name in feed or ():
            pipeline.manifest.steps(name)  # refuses an unknown feed before any work starts
        looked = not look or _discover(pipeline, feed, as_typed, documents)
        budget, targets = Budget(items, seconds), [target] if target else None
        with closing(draining(pipeline, pipeline.config.spark.session, budget, feed, targets)) as events:
            for event in events:
                if isinstance(event, DrainReport):
                    report = event
                elif documents:
                    print_json(event_document(event))
                else:
                    say(progress(event, pipeline.source.words, len(pipeline.targets) > 1))
    if documents:
        ends = [_end_document(end, as_typed) for end in report.ends]
        print_json({"event": "ended", "run_id": run_id(context), **document(report, as_typed), "ends": ends})
    else:
        print_summary(report, as_typed)
    return _exit(report, looked)


def _goes_on(pipeline: Pipeline, feeds: Sequence[str] | None) -> str:
    """Returns in words where the next drain continues, by feed, according to the manifest."""
    found = []
    for name in feeds or pipeline.feeds:
        verdict, last = (
            pipeline.manifest.next(name, pipeline.load.key),
            pipeline.manifest.state(pipeline.load).feed(name).watermark,
        )
        if not isinstance(verdict, Idle):
            loaded = f"{ItemKey.at(name, last).name} is loaded, and " if last else ""
            found.append(f"{loaded}the next drain continues with {verdict.item.key.name}")
    return "; ".join(found) or "the next drain continues from here"


def _discover(pipeline: Pipeline, feeds: Sequence[str] | None, as_typed: Typed, documents: bool) -> bool:
    """Registers new directories and prints them. Returns False, and prints an error, if the landing root cannot be listed.

    The drain then still works on the items that are registered.
    """
    landing = [name for name in pipeline.feeds if feeds is None or name in feeds]
    if not landing:
        return True
    try:
        found = discover(pipeline, feeds=landing)
    except LandingError as error:
        warn(f"error: {error}. The drain works on the items that are registered already")
        if documents:
            print_json({"event": "not_discovered", "reason": str(error)})
        return False
    warn_of(found, pipeline, as_typed)
    if documents:
        print_json({"event": "discovered", **report_document(found)})
    else:
        print_found(found, pipeline, as_typed)
    return True


def _exit(report: DrainReport, looked: bool) -> Exit:
    """Returns the exit code of a drain. BUSY counts as done, because the other drain does the same work."""
    stops = {report.stop, *(end.stop for end in report.ends)}
    if report.stop in (Stop.BLOCKED, Stop.HELD):
        return Exit.BLOCKED
    if report.failed or not looked or stops & {Stop.UNAVAILABLE, Stop.FENCED}:
        return Exit.FAILED
    if stops & {Stop.BLOCKED, Stop.HELD}:
        return Exit.BLOCKED
    return Exit.DONE if report.shredded or report.loaded or Stop.BUSY in stops else Exit.NOTHING


def _end_document(end: FeedEnd, as_typed: Typed) -> dict[str, Any]:
    said = document(end, as_typed)
    return said if end.target else {name: value for name, value in said.items() if name != "target"}


def event_document(event: Event) -> dict[str, Any]:
    """Returns the JSON document of a drain's event."""
    if isinstance(event, ShredStarted):
        return {"event": "shred_started", "items": event.items, "bytes": event.bytes}
    if isinstance(event, Shredded):
        listing = event.listing
        counts: dict[str, Any] = {"lines": listing.lines, "good": listing.good, "bad": listing.bad, "bytes": listing.bytes}
        counts |= {"duplicates": asdict(listing.duplicates)} if listing.duplicates else {}
        counts |= {"remarks": listing.remarks} if listing.remarks else {}
        return {"event": "shredded", "item": event.key.name, **counts, "seconds": event.seconds, "batch": event.batch}
    if isinstance(event, ItemFailed):
        failure = {"kind": event.failure.kind, "message": event.failure.message}
        return {"event": "failed", "item": event.key.name, "application": event.application, **failure}
    if isinstance(event, PutBack):
        return {"event": "put_back", "item": event.key.name, "application": event.application, "reason": event.reason}
    if isinstance(event, ShreddedAgain):
        return {"event": "shredded_again", "item": event.key.name, "reason": event.reason}
    return {
        "event": "loaded",
        "item": event.key.name,
        **({"target": event.target} if event.target != FIRST_TARGET else {}),
        **{name: getattr(event, name) for name in ("rows", "bytes", "seconds", "lag_seconds", "late", "already", "told")},
    }


def progress(event: Event, words: Words, several: bool = False) -> str:
    """Returns an event of a drain as a line of text.

    `words`: the source's words, such as `events` for rows. `several`: the dataset has several targets, so each load names its.
    """
    if isinstance(event, ShredStarted):
        return f"  shredding {count_of(event.items, 'directory', 'directories')}, {size_of(event.bytes)}, in one Spark job"
    if isinstance(event, Shredded):
        listing = event.listing
        counts = f"{listing.good:>7,} {words.rows}  {listing.bad:>5,} bad  {size_of(listing.bytes):>9}"
        counts += clause_of(asdict(listing.duplicates))
        remarks = [wrapped(line, "    ! ", "      ") for line in listing.remarks]
        return "\n".join((f"· {event.key.name}  shredded  {counts}", *remarks))
    if isinstance(event, ItemFailed):
        text = f"{event.key.name}  {event.application} failed ({event.failure.kind}): {event.failure.message}"
        return wrapped(text, "✗ ", "    ")
    if isinstance(event, PutBack):
        text = f"{event.key.name}  {event.application} put it back, without counting an attempt: {event.reason}"
        return wrapped(text, "… ", "    ")
    if isinstance(event, ShreddedAgain):
        return wrapped(f"{event.key.name}  is shredded again automatically: {event.reason}", "↺ ", "    ")
    marks = f"{'  late' if event.late else ''}{'  already in the warehouse' if event.already else ''}"
    counts = f"{event.row_count:>7,} rows  {size_of(event.bytes):>16}  {event.seconds:5.2f} s"
    told = [wrapped(line, "    ! ", "      ") for line in event.told]
    into = f"  into {event.target}" if several else ""
    return "\n".join((f"✓ {event.key.name}  loaded    {counts}{marks}{into}", *told))


def print_summary(report: DrainReport, as_typed: Typed) -> None:
    """Prints what a drain did, why it stopped, and the remedy."""
    say(
        f"{report.shredded:,} shredded, {report.loaded:,} loaded ({report.rows:,} rows), {report.failed:,} failed"
        f"{f', {report.put_back:,} put back' if report.put_back else ''}"
        f" in {report.seconds:.1f} s; stopped: {report.stop}"
    )
    for done in report.upkeep:
        if done.why_not:
            table = f"table {done.table or '(any)'}{f' of {done.target}' if done.target else ''}"
            say(wrapped(f"upkeep: {done.action} of {table} was not done: {done.why_not}", "! ", "  "))
    for end in report.ends:
        feed = f"{end.feed}{f', {end.target}' if end.target else ''}: " if len(report.ends) > 1 else ""
        item = f"{feed}blocked by {end.item}: " if end.item else feed
        if end.reason:
            say(wrapped(f"{item}{end.reason}"))
        if end.remedy:
            say(f"next: {as_typed(end.remedy)}")
