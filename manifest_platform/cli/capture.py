"""The command that captures a Vault's windows."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, Exit, app, as_json, ending_well
from manifest_platform.cli.context import open_pipeline
from manifest_platform.cli.output import print_json, say, warn, wrapped
from manifest_platform.pipeline.capture import capture
from manifest_platform.quantities import moment, size_of
from manifest_platform.sources.veeva.events import Awaited, Captured, CaptureFailed, CaptureReport, Diverged, Event


@app.command("capture", cls=Command)
def capture_(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[WINDOW]…", help="These alone, as full/date=2026-01-31.")
    ] = None,
    feed: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only incr, log or full; may be repeated.")] = None,
) -> int:
    """Captures what a Vault has published: downloads, verifies, registers.

    Of snapshots only the newest, unless one is named. It waits for nobody, and nothing that is loaded or blocked is in its way.
    A login that Vault refused is tried again, as no schedule does within a day: too many tries lock the user out.
    Exit 1 if something could not be captured, 4 if there is nothing new. With --json: one line an event, then the summary.
    """
    report: CaptureReport | None = None
    with open_pipeline(context) as pipeline, ending_well("the next capture goes on from here"):
        for event in capture(pipeline, feed, names or None):
            if isinstance(event, CaptureReport):
                report = event
            elif as_json(context):
                print_json({"event": type(event).__name__.lower(), **dataclasses.asdict(event)})
            else:
                _tell(event)
    assert report is not None  # it is the last event
    if as_json(context):
        print_json({"event": "ended", **dataclasses.asdict(report)})
    else:
        _print_report(report)
    if report.failed or report.diverged or report.unavailable:
        return Exit.FAILED
    return Exit.DONE if report.captured else Exit.NOTHING


def _tell(event: Event) -> None:
    if isinstance(event, Captured):
        what = "empty" if event.is_empty else f"{event.landed.files:,} files  {size_of(event.bytes):>9}  {event.seconds:5.2f} s"
        say(f"✓ {event.name}  captured  {what}{'' if event.outcome == 'new' else f'  {event.outcome}'}")
    elif isinstance(event, Diverged):
        warn(wrapped(f"{event.name}: Vault has other content now than was captured; what was captured stands", "✗ ", "    "))
    elif isinstance(event, CaptureFailed):
        warn(wrapped(f"{event.name}: {event.reason}", "✗ ", "    "))
    elif isinstance(event, Awaited):
        retry = f"; it tries again at {moment(event.next_retry)}" if event.next_retry else ""
        warn(wrapped(f"{event.name}: Vault failed to publish it ({event.message}){retry}", "… ", "    "))


def _print_report(report: CaptureReport) -> None:
    say(
        f"{len(report.captured):,} captured ({len(report.empty):,} empty), {report.known:,} known,"
        f" {len(report.awaited):,} awaited, {len(report.failed):,} failed;"
        f" {report.requests:,} requests, {size_of(report.bytes)}"
    )
    if report.oldest:
        oldest = ", ".join(f"{feed} {stop}" for feed, stop in report.oldest.items())
        say(f"the oldest that the Vault still has: {oldest}")
    if report.unavailable:
        warn(wrapped(f"ended early: {report.unavailable}"))
