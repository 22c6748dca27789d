"""The command that captures what a source's origin has published."""

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
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="These directories alone.")] = None,
    feed: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this feed; may be repeated.")] = None,
) -> int:
    """Captures what a dataset's origin has published: downloads, verifies, registers.

    Of snapshots only the newest, unless another is named. It waits for nobody, and nothing that is loaded or blocked is in its
    way. A login that was refused is tried again, as no schedule does within a day: too many tries lock the user out.
    Exit 1 if something could not be captured, 4 if there is nothing new. With --json: one line an event, then the summary.
    """
    report: CaptureReport | None = None
    with open_pipeline(context) as pipeline, ending_well("the next capture goes on from here"):
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
    """What publishes the directories, for people."""
    plan = pipeline.source.captures
    return plan.origin if plan else "the origin"


def _tell(event: CaptureEvent, origin: str, as_typed: Typed) -> None:
    if isinstance(event, Captured):
        what = "empty" if event.is_empty else f"{event.landed.files:,} files  {size_of(event.bytes):>9}  {event.seconds:5.2f} s"
        say(f"✓ {event.name}  captured  {what}{'' if event.outcome == 'new' else f'  {event.outcome}'}")
    elif isinstance(event, Diverged):
        stands = f"{event.name}: {origin} has other content now than was captured; what was captured stands"
        advice = f"To take the other: {as_typed(Remedy(Action.ACCEPT, item=event.name))}"
        known = f"to know it and leave it out: {as_typed(Remedy(Action.KEEP, item=event.name))}"
        warn(wrapped(f"{stands}. {advice} (while it is not loaded); {known}", "✗ ", "    "))
    elif isinstance(event, CaptureFailed):
        warn(wrapped(f"{event.name}: {event.reason}", "✗ ", "    "))
    elif isinstance(event, Awaited):
        retry = f"; it tries again at {moment(event.next_retry)}" if event.next_retry else ""
        warn(wrapped(f"{event.name}: {origin} failed to publish it ({event.message}){retry}", "… ", "    "))


def _print_report(report: CaptureReport, origin: str) -> None:
    say(
        f"{len(report.captured):,} captured ({len(report.empty):,} empty), {report.known:,} known,"
        f" {len(report.awaited):,} awaited, {len(report.failed):,} failed;"
        f" {report.requests:,} requests, {size_of(report.bytes)}"
    )
    if report.oldest:
        oldest = ", ".join(f"{feed} {stop}" for feed, stop in report.oldest.items())
        say(f"the oldest that {origin} still has: {oldest}")
    if report.unavailable:
        warn(wrapped(f"ended early: {report.unavailable}"))
