"""`status` and `next`: how the feeds stand, and what each step may do next."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from datetime import UTC, datetime

import typer

from manifest_platform.cli.app import Command, Exit, app, as_json
from manifest_platform.cli.context import chosen_dataset, configuration, open_pipeline, options
from manifest_platform.cli.output import duration, moment, print_json, print_lines, say, some
from manifest_platform.cli.standing import Answer, Outlook, StepStatus, outlook, step_status
from manifest_platform.pipeline import LOAD, Pipeline
from manifest_platform.stores import open_store


@app.command(cls=Command)
def status(context: typer.Context) -> int:
    """Shows how every feed stands.

    Watermark, lag, counts, what is next or blocks it, who works on it. Exit 3 if one is blocked.
    """
    settings, chosen = configuration(context), chosen_dataset(context)
    reports: list[StepStatus] = []
    with closing(open_store(settings.manifest)) as store:
        for dataset in [settings.dataset(chosen)] if chosen else settings.datasets:
            with open_pipeline(context, dataset, store=store) as pipeline:
                for feed in pipeline.feeds:
                    steps = [step_status(pipeline, feed, name, options(context)) for name in _steps(pipeline, feed)]
                    reports += steps
                    if not as_json(context):
                        say(f"dataset {dataset}, feed {feed}, landing at {pipeline.dataset.landing.root}")
                        shred, load, *own = steps
                        print_status(shred)
                        print_status(load, same_reason=shred.outlook.reason == load.outlook.reason != "")
                        for step in own:
                            print_status(step)
    if as_json(context):
        print_json({"steps": reports})
    return Exit.BLOCKED if any(report.outlook.answer is Answer.BLOCKED for report in reports) else Exit.DONE


def _steps(pipeline: Pipeline, feed: str) -> list[str]:
    """A feed's steps: the platform's, and those that the configuration declares beside."""
    return [step.application.key for step in pipeline.manifest.steps(feed)]


@app.command("next", cls=Command)
def next_(context: typer.Context) -> int:
    """Says what each step may do next.

    Exit 0 something, 3 blocked, 4 nothing.
    """
    with open_pipeline(context) as pipeline:
        outlooks = [
            outlook(pipeline, feed, name, options(context)) for feed in pipeline.feeds for name in _steps(pipeline, feed)
        ]
    if as_json(context):
        print_json({"next": outlooks})
    else:
        for step in outlooks:
            print_outlook(step)
    answers = {step.answer for step in outlooks}
    if Answer.READY in answers:
        return Exit.DONE
    return Exit.NOTHING if answers == {Answer.IDLE} else Exit.BLOCKED


def print_status(status: StepStatus, same_reason: bool = False) -> None:
    """A step's status, some eight lines."""
    print_outlook(dataclasses.replace(status.outlook, reason="as above") if same_reason else status.outlook)
    lines: dict[str, str] = {}
    if status.watermark or status.outlook.step == LOAD:
        time = f" ({moment(status.watermark_time)})" if status.watermark_time else ""
        lines["watermark"] = f"{status.watermark}{time}" if status.watermark else "none: nothing is loaded yet"
    if status.oldest_waiting and status.lag_seconds is not None:
        lines["lag"] = f"{duration(status.lag_seconds)}; the oldest was discovered at {moment(status.oldest_waiting)}"
    lines["items"] = ", ".join(f"{word} {count:,}" for word, count in status.counts.items()) or "none wait"
    for kind in ("failed", "late", "quarantined"):
        if names := getattr(status, kind):
            lines[kind] = f"{some(names)}: {status.commands[kind]}"
    lease = status.lease
    lines["lease"] = f"held by {lease['holder']} until {moment(lease['until'])}, token {lease['token']}" if lease else "free"
    print_lines(lines)


def print_outlook(outlook: Outlook) -> None:
    """What a step may do next; why, since when and what to do."""
    words = {
        Answer.READY: f"READY: {outlook.item} may be claimed now",
        Answer.WAITING: f"WAITING: {outlook.item} comes next",
        Answer.PROCESSING: f"PROCESSING: {outlook.item}",
        Answer.BLOCKED: f"BLOCKED by {outlook.item}",
        Answer.IDLE: "IDLE: nothing to do",
    }
    say(f"{outlook.step:<5} {words[outlook.answer]}")
    lines = {"reason": outlook.reason, "command": outlook.command}
    if outlook.since:
        age = duration((datetime.now(UTC) - outlook.since).total_seconds())
        lines = {"reason": outlook.reason, "since": f"{moment(outlook.since)} ({age})", "command": outlook.command}
    print_lines(lines)
