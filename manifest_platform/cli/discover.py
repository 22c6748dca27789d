"""`discover`: registers what has landed; and how what a look at the landing root found is told."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from manifest_platform import storage
from manifest_platform.cli.app import Recording, app, as_json, examples
from manifest_platform.cli.context import open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, some, warn, wrapped
from manifest_platform.cli.remedies import Typed, typed
from manifest_platform.manifest import Refused
from manifest_platform.operations.landing import completing, incomplete, left_alone
from manifest_platform.pipeline import DiscoveryReport, Pipeline, discovery
from manifest_platform.remedies import Action, Remedy


@app.command(cls=Recording, epilog=examples("discover", "discover --all"))
def discover(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Look at every directory, not only from the look-back on.")] = False,
) -> int:
    """Registers the complete directories that have landed. Exit 4 if there is nothing new."""
    with open_pipeline(context) as pipeline:
        if not pipeline.feeds:
            raise Refused(f"nothing of dataset {pipeline.name} lands: its items are registered by `put new`")
        report = discovery.discover(pipeline, everything)
        as_typed = typed(context, pipeline.name)
        warn_of(report, pipeline, as_typed)
    if as_json(context):
        print_json(report_document(report))
    else:
        print_found(report, pipeline, as_typed)
    return Exit.DONE if report.registered else Exit.NOTHING


def warn_of(report: DiscoveryReport, pipeline: Pipeline, as_typed: Typed) -> None:
    """Says on stderr what was left alone, or will fail, why, and what helps."""
    root = pipeline.dataset.landing.root
    if report.changed:
        warn(
            f"warning: {some(report.changed)} changed after discovery; the first content stands. Put it back, then run"
            f" {as_typed(Remedy(Action.DISCOVER))} again; or, where it was rewritten on purpose:"
            f" {as_typed(Remedy(Action.ACCEPT, item=report.changed[0]))}"
        )
    if report.doubled:
        warn(
            f"warning: {some(report.doubled)} in {root}: landed twice, under two names; the one in brackets is registered, the"
            " other left alone. Remove the one that is not wanted"
        )
    if report.moved:
        advice = "move it back or set landing.root to where it was"
        if report.moved_from:
            moved = Remedy(Action.IMPORT_MOVED, source=report.moved_from[0], item=storage.as_uri(root))
            advice = f"run {as_typed(moved)}"
        warn(
            f"warning: {some(report.moved)} in {root}: known under another URI, not registered; if the landing root was moved,"
            f" {advice}"
        )
    if report.future:
        warn(f"warning: {some(report.future)} in {root}: dated more than a day ahead, not registered; check the writer's clock")
    if report.unreadable:
        warn(
            f"warning: {len(report.unreadable)} in {root} could not be listed, not registered: {some(report.unreadable)};"
            f" mend or remove what is named, then run {as_typed(Remedy(Action.DISCOVER))} again"
        )
    if report.linked:
        warn(
            f"warning: {len(report.linked)} in {root} will fail, for what is not followed: {some(report.linked)};"
            " land the files themselves in their place, or skip the directory"
        )
    if report.unparseable:
        warn(f"warning: in {root}, left alone: {left_alone(pipeline, report.unparseable)}")


def report_document(report: DiscoveryReport) -> dict[str, Any]:
    """What a look found, as JSON has it."""
    return {
        field.name: getattr(report, field.name)
        for field in dataclasses.fields(report)
        if field.name not in ("landed", "waiting")
    }


def print_found(report: DiscoveryReport, pipeline: Pipeline, as_typed: Typed) -> None:
    """What a look registered, and what it found that is not complete yet."""
    kinds = {
        "new": report.new,
        "late": report.late,
        "quarantined": report.quarantined,
        "skipped by a rule": report.skipped,
    }
    for kind, names in kinds.items():
        if names:
            say(f"{len(names)} {kind}: {some(names)}")
    if report.quarantined:
        explain = as_typed(Remedy(Action.EXPLAIN, item=report.quarantined[0]))
        say(f"behind the watermark, so set aside; what can be done: {explain}")
    if report.waiting:
        say(wrapped(incomplete(pipeline, report.waiting), others="  "))
    if not report.registered:
        say(f"nothing new; {report.known} known")
    if not report.sees_anything:
        form = pipeline.source.words.form
        text = f"nothing has landed in {pipeline.dataset.landing.root} yet; expected: {form}, {completing(pipeline)}"
        say(wrapped(text, others="  "))
