"""`status` and `next`: the state of every feed, and the next item of each step."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Command, app, as_json, examples
from manifest_platform.cli.context import Target, chosen_dataset, configuration, open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_lines, say, some, wrapped
from manifest_platform.cli.remedies import Typed, document, typed
from manifest_platform.manifest import Application
from manifest_platform.operations.bad_rows import clause_of
from manifest_platform.operations.landing import Landing, told
from manifest_platform.operations.landing import look as look_at
from manifest_platform.operations.standing import Answer, Outlook, StepStatus, done_last, outlook, over_chain, step_status
from manifest_platform.pipeline import LOAD, Pipeline
from manifest_platform.pipeline.chain import Look, broken
from manifest_platform.quantities import duration, moment
from manifest_platform.remedies import Action, Remedy


@app.command(cls=Command, epilog=examples("status", "status --dataset acme --json"))
def status(
    context: typer.Context,
    landing: Annotated[
        bool, typer.Option("--landing/--no-landing", help="List the landing roots too, or read the manifest only.")
    ] = True,
    target: Target = None,
) -> int:
    """Shows the state of every feed.

    Shows the watermark, the lag, the number of items in each state, the next or blocking item, the lease, and the directories
    that have landed but are not registered. Exit code 3 if a feed is blocked, 1 if a landing root cannot be listed.
    """
    settings, chosen = configuration(context), chosen_dataset(context)
    answers: set[Answer] = set()
    documents: list[dict[str, Any]] = []
    landings: list[dict[str, Any]] = []
    with closing(settings.manifest.open()) as store, ExitStack() as opened:
        looks: dict[str, Look] = {}
        for name, engine in settings.engines.items():  # each connects only if a dataset has loads to check
            looks[name] = Look(opened.enter_context(closing(engine.open(read_only=True, patience=0.1))))
        for dataset in [settings.dataset(chosen)] if chosen else settings.datasets:
            with open_pipeline(context, dataset, store=store, target=target) as pipeline:
                as_typed, kept = typed(context, pipeline.name), pipeline.manifest.kept()
                chain = [found for one in pipeline.each_target() for found in broken(one, look=looks[one.target])]
                for feed in pipeline.manifest.feeds:
                    last = done_last(pipeline, feed)
                    steps = [step_status(pipeline, feed, name, kept, last) for name in _steps(pipeline, feed, target)]
                    steps = [dataclasses.replace(step, outlook=over_chain(step.outlook, chain)) for step in steps]
                    answers |= {step.outlook.answer for step in steps}
                    documents += [_status_document(step, as_typed) for step in steps]
                    looked = look_at(pipeline, feed) if landing and feed in pipeline.feeds else None
                    landings += [_landing_document(looked, pipeline)] if looked else []
                    if not as_json(context):
                        root = f", landing at {pipeline.dataset.landing.root}" if feed in pipeline.feeds else ""
                        say(f"dataset {dataset}, feed {feed}{root}")
                        print_landing(looked, pipeline, as_typed)
                        before = ""
                        for step in steps:
                            reason = step.outlook.reason
                            print_status(step, as_typed, same_reason=_loads(step.outlook.step) and reason == before != "")
                            before = reason
    if as_json(context):
        print_json({"steps": documents, "landing": landings})
    if Answer.BLOCKED in answers:
        return Exit.BLOCKED
    return Exit.FAILED if any(one["problem"] for one in landings) else Exit.DONE


def _landing_document(landing: Landing, pipeline: Pipeline) -> dict[str, Any]:
    found = landing.found
    return {
        "dataset": landing.dataset,
        "feed": landing.feed,
        "root": landing.root,
        "problem": landing.problem,
        "not_registered": found.new,
        "incomplete": [{"name": one.name, "changed": one.changed, "over": one.over} for one in found.waiting],
        "unparseable": found.unparseable,
        "unreadable": found.unreadable,
        "future": found.future,
        "told": list(told(landing, pipeline)),
    }


def print_landing(landing: Landing | None, pipeline: Pipeline, as_typed: Typed) -> None:
    """Prints the directories that have landed but are not registered; nothing if there are none."""
    if landing is None:
        return
    for line in told(landing, pipeline):
        say(wrapped(line, f"{'landing':<5} ", "      "))
    if landing.found.new:
        say(f"      {'command':<12}{as_typed(Remedy(Action.DRAIN))}")


def _steps(pipeline: Pipeline, feed: str, target: str | None) -> list[str]:
    """Returns the names of a feed's steps: the platform's own, and those that the configuration declares.

    `target`: without the loads of other targets.
    """
    names = (step.application.key for step in pipeline.manifest.steps(feed))
    return [name for name in names if not target or not _loads(name) or name == pipeline.load.key]


def _loads(step: str) -> bool:
    return Application.parse(step).name == LOAD


@app.command("next", cls=Command)
def next_(context: typer.Context, target: Target = None) -> int:
    """Shows the next item of each step, or the reason why there is none.

    Exit code 0 if a step can work, 3 if the next item is blocked or must wait, 4 if there is nothing to do.
    """
    with open_pipeline(context, target=target) as pipeline:
        steps = [(feed, name) for feed in pipeline.manifest.feeds for name in _steps(pipeline, feed, target)]
        outlooks = [outlook(pipeline, feed, name) for feed, name in steps]
        chain = [found for one in pipeline.each_target() for found in broken(one)]
        outlooks = [over_chain(one, chain) for one in outlooks]
        as_typed = typed(context, pipeline.name)
    if as_json(context):
        print_json({"next": [document(step, as_typed) for step in outlooks]})
    else:
        for step in outlooks:
            print_outlook(step, as_typed)
    answers = {step.answer for step in outlooks}
    if Answer.READY in answers:
        return Exit.DONE
    return Exit.NOTHING if answers == {Answer.IDLE} else Exit.BLOCKED


def _status_document(status: StepStatus, as_typed: Typed) -> dict[str, Any]:
    shown = [field.name for field in dataclasses.fields(status) if field.name not in ("remedies", "bad_rows", "told")]
    fields = {name: getattr(status, name) for name in shown}
    fields["bad_rows"] = dataclasses.asdict(status.bad_rows) if status.bad_rows else None
    fields["told"] = dataclasses.asdict(status.told) if status.told else None
    commands = {kind: as_typed(remedy) for kind, remedy in status.remedies.items()}
    return {**fields, "outlook": document(status.outlook, as_typed), "commands": commands}


def print_status(status: StepStatus, as_typed: Typed, same_reason: bool = False) -> None:
    """Prints the status of a step, in about eight lines. `same_reason`: the reason was printed for the step before."""
    print_outlook(dataclasses.replace(status.outlook, reason="as above") if same_reason else status.outlook, as_typed)
    lines: dict[str, str] = {}
    if status.watermark or _loads(status.outlook.step):
        time = f" ({moment(status.watermark_time)})" if status.watermark_time else ""
        lines["watermark"] = f"{status.watermark}{time}" if status.watermark else "none: nothing is loaded yet"
    if status.oldest_waiting and status.lag_seconds is not None:
        lines["lag"] = f"{duration(status.lag_seconds)}; the oldest was discovered at {moment(status.oldest_waiting)}"
    if late := status.behind:
        told = f"{duration(late.seconds)} since the watermark; a directory is expected every {duration(late.expected_seconds)}"
        lines["behind"] = f"{told}: nothing new is loaded, check if its producer has stopped" if late.stopped else told
    counted = ", ".join(f"{word} {count:,}" for word, count in status.counts.items()) or "none wait"
    lines["items"] = f"{counted}, and more (only the first items of a long backlog are counted)" if status.more else counted
    for kind in ("failed", "retried", "late", "reloads", "quarantined"):
        if names := getattr(status, kind):
            lines[kind] = f"{some(names)}: {as_typed(status.remedies[kind])}"
    if (bad := status.bad_rows) and bad.bad:
        worst = bad.found[0]
        lines["bad rows"] = (
            f"{bad.bad:,} of {bad.lines:,} lines of the newest {bad.items:,} items; most in {worst.name}: {worst.bad:,} of"
            f" {worst.lines:,} ({worst.share:.1%})"
        )
    if (bad := status.bad_rows) and (duplicates := clause_of(bad.duplicates)):
        lines["duplicates"] = f"{duplicates.removeprefix(', ')} in the newest {bad.items:,} items"
    if status.told:
        more = status.told.count - len(status.told.newest)
        notes = [f"{one.item}: {one.line}" for one in status.told.newest]
        lines["told"] = "; ".join([*notes, *([f"and {more:,} more notes"] if more else [])])
    lease = status.lease
    lines["lease"] = f"held by {lease['holder']} until {moment(lease['until'])}, token {lease['token']}" if lease else "free"
    print_lines(lines)


def print_outlook(outlook: Outlook, as_typed: Typed) -> None:
    """Prints what a step may do next, with the reason, since when, and the command to run."""
    words = {
        Answer.READY: f"READY: {outlook.item} may be claimed now",
        Answer.WAITING: f"WAITING: {outlook.item} comes next",
        Answer.PROCESSING: f"PROCESSING: {outlook.item}",
        Answer.BLOCKED: f"BLOCKED by {outlook.item or 'the warehouse'}",
        Answer.IDLE: "IDLE: nothing to do",
    }
    say(f"{outlook.step:<5} {words[outlook.answer]}")
    lines = {"reason": outlook.reason}
    if outlook.since:
        age = duration((datetime.now(UTC) - outlook.since).total_seconds())
        lines["since"] = f"{moment(outlook.since)} ({age})"
    print_lines({**lines, "command": as_typed(outlook.remedy) if outlook.remedy else ""})
