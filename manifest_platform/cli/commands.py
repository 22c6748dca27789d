"""The daily commands: each asks the pipeline for one thing, prints the answer, and returns its exit code."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Annotated

import typer

from manifest_platform import spark
from manifest_platform.cli.app import (
    Command,
    Exit,
    Interrupted,
    ItemName,
    Reason,
    app,
    as_json,
    chosen_dataset,
    configuration,
    item_key,
    open_pipeline,
    operator,
    options,
)
from manifest_platform.cli.output import (
    event_document,
    print_answer,
    print_history,
    print_json,
    print_outlook,
    print_status,
    print_summary,
    progress,
    say,
    some,
    warn,
)
from manifest_platform.cli.standing import Answer, StepStatus, as_typed, outlook, step_status
from manifest_platform.manifest import EVERYONE, ItemKey, Record
from manifest_platform.pipeline import LOAD, SHRED, Budget, DrainReport, Pipeline, Stop, discovery
from manifest_platform.pipeline import drain as draining
from manifest_platform.stores import open_store

# Looking


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


@app.command(cls=Command)
def history(context: typer.Context, item: ItemName) -> int:
    """Shows all that happened to an item."""
    with open_pipeline(context) as pipeline:
        found = pipeline.manifest.item(item_key(pipeline, item))
    if as_json(context):
        print_json({"item": found.key, "problems": found.problems, "records": [one.to_dict() for one in found.records]})
        return Exit.DONE
    print_history(found)
    for problem in found.problems:
        warn(f"warning: {problem}")
    return Exit.DONE


# Working


@app.command(cls=Command)
def discover(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Look at every directory, not only from the look-back on.")] = False,
) -> int:
    """Registers the complete directories that have landed. Exit 4 if there is nothing new."""
    with open_pipeline(context) as pipeline:
        report = discovery.discover(pipeline, everything)
        root, form = pipeline.dataset.landing.root, pipeline.source.form
        explain = as_typed(pipeline, "manifest-platform explain", options(context))
    if report.changed:
        warn(
            f"warning: {some(report.changed)} changed after discovery; the first content stands. Put it back, or land the new"
            " content under another name, then run manifest-platform discover again"
        )
    if report.moved:
        warn(
            f"warning: {some(report.moved)} in {root}: known under another URI, not registered; if the landing root was moved,"
            " move it back or set landing.root to where it was"
        )
    if report.future:
        warn(f"warning: {some(report.future)} in {root}: dated more than a day ahead, not registered; check the writer's clock")
    if report.unparseable:
        warn(f"warning: {some(report.unparseable)} in {root}: not {form}, left alone")
    if as_json(context):
        fields = {field.name: getattr(report, field.name) for field in dataclasses.fields(report) if field.name != "landed"}
        print_json(fields)
    else:
        kinds = {
            "new": report.new,
            "late": report.late,
            "quarantined": report.quarantined,
            "not complete yet": report.incomplete,
        }
        for kind, names in kinds.items():
            if names:
                say(f"{len(names)} {kind}: {some(names)}")
        if report.quarantined:
            name = report.quarantined[0]
            say(f"behind the watermark, so set aside; what can be done: {explain} {name}")
        if not report.registered:
            say(f"nothing new; {report.known} known")
    return Exit.DONE if report.registered else Exit.NOTHING


@app.command(cls=Command)
def drain(
    context: typer.Context,
    items: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after so many items.")] = None,
    feed: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this feed; may be repeated.")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, metavar="S", help="Begin nothing new after so many seconds.")] = None,
) -> int:
    """Shreds and loads in order what has landed.

    Until nothing is left, something blocks, or the budget is spent. Exit 0 work was done, 1 something failed or the lease is
    held, 3 blocked, 4 nothing to do. With --json: one line an event, then the summary.
    """
    documents = as_json(context)
    report = DrainReport()
    with open_pipeline(context) as pipeline, ending_well("the next drain settles what was in work"):
        conf = pipeline.config.spark.conf
        for name in feed or ():
            pipeline.manifest.steps(name)  # refuses a feed that is none before anything is done
        with closing(draining(pipeline, lambda: spark.session(conf), Budget(items, seconds), feed)) as events:
            for event in events:
                if isinstance(event, DrainReport):
                    report = event
                elif documents:
                    print_json(event_document(event))
                else:
                    say(progress(event))
    command = f"{report.command}{options(context)}" if report.command else ""
    if documents:
        print_json({"event": "ended", **dataclasses.asdict(report), "command": command})
    else:
        print_summary(report, options(context))
    if report.stop is Stop.BLOCKED:
        return Exit.BLOCKED
    if report.failed or report.stop in (Stop.BUSY, Stop.UNAVAILABLE, Stop.FENCED):
        return Exit.FAILED
    return Exit.DONE if report.shredded or report.loaded else Exit.NOTHING


@contextmanager
def ending_well(then: str) -> Generator[None]:
    """Lets a terminated run give its leases back like an interrupted one. Raises Interrupted; `then`: what comes next."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(f"interrupted; the leases are given back, and {then}") from error
    finally:
        signal.signal(signal.SIGTERM, before)


# Deciding


@app.command(cls=Command)
def resolve(context: typer.Context, item: ItemName, reason: Reason = "no reason given") -> int:
    """Frees a failed item for another attempt."""
    with open_pipeline(context, author=operator()) as pipeline:
        key = item_key(pipeline, item)
        return _decided(context, key, pipeline.manifest.resolve(key, reason), "the next drain tries it again")


@app.command(cls=Command)
def skip(
    context: typer.Context,
    item: ItemName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why its data may be missing, for the records.")],
    application: Annotated[str, typer.Option(metavar="NAME", help=f"{SHRED}, {LOAD} or {EVERYONE} for both.")] = EVERYONE,
) -> int:
    """Passes over an item, until `unskip`.

    Its data stays out of the warehouse.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        key = item_key(pipeline, item)
        return _decided(context, key, pipeline.manifest.skip(key, reason, application), "the feed goes on without it")


@app.command(cls=Command)
def unskip(context: typer.Context, item: ItemName, reason: Reason = "no reason given") -> int:
    """Lets a skipped or quarantined item in.

    Behind the watermark it comes in late, where the feed's policy is to append.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        key = item_key(pipeline, item)
        return _decided(context, key, pipeline.manifest.unskip(key, reason), "the next drain takes it")


def _decided(context: typer.Context, key: ItemKey, record: Record, outcome: str) -> int:
    if as_json(context):
        print_json({"item": key, "record": record.to_dict()})
    else:
        say(f"{key.name}: {record.state} by {record.author}; {outcome}")
    return Exit.DONE


# Asking the warehouse


@app.command(cls=Command)
def sql(context: typer.Context, query: Annotated[str, typer.Argument(metavar="QUERY", help="One query, read-only.")]) -> int:
    """Asks the warehouse.

    The dataset's tables need no schema before their names; the ledger is manifest_platform.ledger.
    """
    from manifest_platform.warehouse.apply import open_warehouse

    settings = configuration(context)
    dataset = settings.dataset(chosen_dataset(context))
    with closing(open_warehouse(settings.warehouse, dataset, read_only=True)) as warehouse:
        print_answer(lambda most: warehouse.query(query, most), as_json(context))
    return Exit.DONE
