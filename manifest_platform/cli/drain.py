"""`drain`: registers, shreds and loads new directories, and prints the events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Annotated

import typer

from manifest_platform.cli.app import Recording, WrongUse, app, as_json, examples
from manifest_platform.cli.context import Target, is_beside, open_pipeline, refuse_beside, run_id
from manifest_platform.cli.discover import print_found, report_document, warn_of
from manifest_platform.cli.drained import end_document, event_document, print_summary, progress
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, warn
from manifest_platform.cli.remedies import Typed, document, typed
from manifest_platform.cli.signals import ending_well
from manifest_platform.config.config import ConfigError
from manifest_platform.config.present import problems
from manifest_platform.manifest import Idle, ItemKey
from manifest_platform.pipeline import (
    Budget,
    DrainReport,
    Pipeline,
    Stop,
)
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.drain import drain as draining
from manifest_platform.sources.errors import LandingError


@app.command(
    cls=Recording, epilog=examples("drain", "drain --items 10", "drain --feed incr --seconds 600 --json", "drain --follow")
)
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
    follow: Annotated[
        bool, typer.Option("--follow", help="Stay, and work on what comes, until a signal ends the command.")
    ] = False,
    target: Target = None,
) -> int:
    """Registers new directories, shreds them and loads them in order.

    Works until nothing is left, a feed is blocked, or --items or --seconds is reached. Exit code 0 if work was done or another
    drain is running, 1 if an item failed or the landing root could not be listed, 3 if a feed is blocked or another
    program has the warehouse open, 4 if there was nothing to do. With --json: one line for each event, then the summary.

    With --follow it stays: it works on the dataset, or on all, whenever something lands, until a signal ends it. The exit code
    is then 143 for SIGTERM and 130 for Ctrl-C.
    """
    if follow:
        if items or seconds or not look:
            raise WrongUse("--follow has no end, and lists the landing root: leave out --items, --seconds and --no-discover")
        refuse_beside(context, "--follow")
        from manifest_platform.cli.follow import run

        run(context, feed, target)
    look = look and not is_beside(context)  # `cutover adopt --beside` has registered the runs to compare
    with open_pipeline(context, target=target) as pipeline:
        return work(context, pipeline, Budget(items, seconds), feed, look, [target] if target else None)


def work(
    context: typer.Context,
    pipeline: Pipeline,
    budget: Budget | None = None,
    feed: list[str] | None = None,
    look: bool = False,
    targets: list[str] | None = None,
) -> Exit:
    """Drains a pipeline, prints the events, and returns the exit code. `look`: lists the landing root first."""
    documents = as_json(context)
    report = DrainReport()
    with ending_well(lambda: _goes_on(pipeline, feed)):
        if wrong := problems(pipeline.config, pipeline.name, landing=False):
            raise ConfigError("\n".join(["nothing was started; correct the configuration:", *(f"  {one}" for one in wrong)]))
        as_typed = typed(context, pipeline.name)
        for name in feed or ():
            pipeline.manifest.steps(name)  # refuses an unknown feed before any work starts
        looked = not look or _discover(pipeline, feed, as_typed, documents)
        with closing(draining(pipeline, pipeline.config.spark.session, budget or Budget(), feed, targets)) as events:
            for event in events:
                if isinstance(event, DrainReport):
                    report = event
                elif documents:
                    print_json(event_document(event))
                else:
                    say(progress(event, pipeline.source.words, len(pipeline.targets) > 1))
    if documents:
        ends = [end_document(end, as_typed) for end in report.ends]
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
