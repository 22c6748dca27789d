"""`discover`: registers the directories that have landed, and prints what a listing of the landing root found."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from manifest_platform import storage
from manifest_platform.cli.app import Recording, app, as_json, examples
from manifest_platform.cli.context import open_pipeline, refuse_beside
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
    everything: Annotated[
        bool, typer.Option("--all", help="List every directory, also those older than the configured look-back.")
    ] = False,
) -> int:
    """Registers the complete directories that have landed. Exit code 4 if there is nothing new."""
    refuse_beside(context, "discover")
    with open_pipeline(context) as pipeline:
        if not pipeline.feeds:
            raise Refused(f"dataset {pipeline.name} has no landing root: register its items with `put new`")
        report = discovery.discover(pipeline, everything)
        as_typed = typed(context, pipeline.name)
        warn_of(report, pipeline, as_typed)
    if as_json(context):
        print_json(report_document(report))
    else:
        print_found(report, pipeline, as_typed)
    return Exit.DONE if report.registered else Exit.NOTHING


def warn_of(report: DiscoveryReport, pipeline: Pipeline, as_typed: Typed) -> None:
    """Prints warnings on stderr: the directories that were not registered or will fail, why, and the remedy."""
    root = pipeline.dataset.landing.root
    if report.changed:
        warn(
            f"warning: {some(report.changed)} changed after discovery; the first content counts. Restore it, then run"
            f" {as_typed(Remedy(Action.DISCOVER))} again. If it was rewritten on purpose, run"
            f" {as_typed(Remedy(Action.ACCEPT, item=report.changed[0]))}"
        )
    if report.doubled:
        warn(
            f"warning: {some(report.doubled)} in {root}: landed twice, under two names; only the directory in brackets is"
            " registered. Remove the other"
        )
    if report.moved:
        advice = "move it back or set landing.root to the old place"
        if report.moved_from:
            moved = Remedy(Action.IMPORT_MOVED, source=report.moved_from[0], item=storage.as_uri(root))
            advice = f"run {as_typed(moved)}"
        warn(
            f"warning: {some(report.moved)} in {root}: known under another URI, not registered; if the landing root was moved,"
            f" {advice}"
        )
    if report.future:
        warn(
            f"warning: {some(report.future)} in {root}: dated more than a day in the future, not registered; check the clock of"
            " the program that writes them"
        )
    if report.unreadable:
        warn(
            f"warning: {len(report.unreadable)} in {root} could not be listed, not registered: {some(report.unreadable)};"
            f" repair or remove them, then run {as_typed(Remedy(Action.DISCOVER))} again"
        )
    if report.linked:
        warn(
            f"warning: {len(report.linked)} in {root} will fail, because links are not followed: {some(report.linked)};"
            " replace the links by the files, or skip the directory"
        )
    if report.unparseable:
        warn(f"warning: in {root}, left alone: {left_alone(pipeline, report.unparseable)}")


def report_document(report: DiscoveryReport) -> dict[str, Any]:
    """Returns the JSON document of a listing."""
    return {
        field.name: getattr(report, field.name)
        for field in dataclasses.fields(report)
        if field.name not in ("landed", "waiting", "partial", "goes_on")
    }


def print_found(report: DiscoveryReport, pipeline: Pipeline, as_typed: Typed) -> None:
    """Prints the items that a listing registered, and the directories that are not complete yet."""
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
        say(f"quarantined because they are behind the watermark; to see what to do: {explain}")
    if report.waiting:
        say(wrapped(incomplete(pipeline, report.waiting), others="  "))
    if not report.registered:
        say(f"nothing new; {report.known} known")
    if not report.sees_anything:
        form = pipeline.source.words.form
        text = f"nothing has landed in {pipeline.dataset.landing.root} yet; expected: {form}, {completing(pipeline)}"
        say(wrapped(text, others="  "))
