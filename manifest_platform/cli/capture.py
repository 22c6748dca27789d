"""`capture`: downloads new directories from the system that publishes them."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from manifest_platform.cli.app import Recording, app, as_json, examples
from manifest_platform.cli.context import open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, warn, wrapped
from manifest_platform.cli.remedies import Typed, typed
from manifest_platform.cli.signals import ending_well
from manifest_platform.pipeline import Pipeline
from manifest_platform.quantities import moment, size_of
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.capture import Awaited, Captured, CaptureEvent, CaptureFailed, CaptureReport, Diverged


@app.command("capture", cls=Recording, epilog=examples("capture", "capture --feed full"))
def capture_(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="Names of directories: capture only these.")
    ] = None,
    feed: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Capture only this feed. Repeatable.")] = None,
) -> int:
    """Downloads, verifies and registers the new directories that a dataset's origin has published.

    The origin is the system that publishes the directories, such as a Veeva vault. Captures only the newest snapshot, unless
    another is named. Capturing does not wait for loads: it also works while a feed is blocked. This command logs in even
    if the origin refused the last login; schedules then pause for a day, because too many tries lock the user out.
    Exit code 1 if a directory could not be captured, 4 if there is nothing new. With --json: one line for each event, then
    the summary.
    """
    report: CaptureReport | None = None
    with open_pipeline(context) as pipeline, ending_well("the next capture continues from here"):
        origin = _origin(pipeline)
        for event in pipeline.source.capture(pipeline.manifest, pipeline.clock(), feed, names or None):
            if isinstance(event, CaptureReport):
                report = event
            elif as_json(context):
                print_json({"event": type(event).__name__.lower(), **dataclasses.asdict(event)})
            else:
                _tell(event, origin, typed(context, pipeline.name))
    assert report is not None  # it is the last event
    if as_json(context):
        print_json({"event": "ended", **dataclasses.asdict(report)})
    else:
        _print_report(report, origin)
    if report.failed or report.diverged or report.unavailable:
        return Exit.FAILED
    return Exit.DONE if report.captured else Exit.NOTHING


def _origin(pipeline: Pipeline) -> str:
    """Returns the name of the system that publishes the directories, for messages."""
    plan = pipeline.source.captures
    return plan.origin if plan else "the origin"


def _tell(event: CaptureEvent, origin: str, as_typed: Typed) -> None:
    if isinstance(event, Captured):
        what = "empty" if event.is_empty else f"{event.landed.files:,} files  {size_of(event.bytes):>9}  {event.seconds:5.2f} s"
        say(f"✓ {event.name}  captured  {what}{'' if event.outcome == 'new' else f'  {event.outcome}'}")
    elif isinstance(event, Diverged):
        changed = f"{event.name}: the content at {origin} has changed since it was captured; the captured content is kept"
        accept = f"To take the new content, if the item is not loaded yet: {as_typed(Remedy(Action.ACCEPT, item=event.name))}"
        keep = f"To keep the captured content and end this warning: {as_typed(Remedy(Action.KEEP, item=event.name))}"
        warn(wrapped(f"{changed}. {accept}. {keep}", "✗ ", "    "))
    elif isinstance(event, CaptureFailed):
        warn(wrapped(f"{event.name}: {event.reason}", "✗ ", "    "))
    elif isinstance(event, Awaited):
        retry = f"; the origin tries again at {moment(event.next_retry)}" if event.next_retry else ""
        warn(wrapped(f"{event.name}: {origin} failed to publish it ({event.message}){retry}", "… ", "    "))


def _print_report(report: CaptureReport, origin: str) -> None:
    say(
        f"{len(report.captured):,} captured ({len(report.empty):,} empty), {report.known:,} known,"
        f" {len(report.awaited):,} awaited, {len(report.failed):,} failed;"
        f" {report.requests:,} requests, {size_of(report.bytes)}"
    )
    if report.oldest:
        oldest = ", ".join(f"{feed} {stop}" for feed, stop in report.oldest.items())
        say(f"oldest directory that {origin} still has: {oldest}")
    if report.unavailable:
        warn(wrapped(f"ended early: {report.unavailable}"))
