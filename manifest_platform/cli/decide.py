"""`resolve`, `reshred`, `accept` and `unskip`: the decisions on items that only a person can take; and how each is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from manifest_platform.cli.app import Reason, Recording, WrongUse, app, as_json, completed_items, examples
from manifest_platform.cli.context import item_key, open_pipeline, operator, point_in_time
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, warn, wrapped
from manifest_platform.cli.remedies import Typed, typed, with_remedy
from manifest_platform.manifest import ItemKey, Record
from manifest_platform.operations import accept as accepting
from manifest_platform.operations import decide
from manifest_platform.operations.decide import Candidates, Decision
from manifest_platform.operations.reshred import reshred as reshred_item
from manifest_platform.pipeline import Pipeline

ItemNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ITEM...",
        help="Names, as run=YYYY-MM-DD-HH-MM-SS, URIs, or patterns, as 'run=2026-01-31-*'.",
        autocompletion=completed_items,
    ),
]
FailedSince = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what failed since, as 2026-01-31T12:00 (UTC); all such without a name.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and show what would be done, and write nothing.")]
Why = Annotated[str, typer.Option(metavar="TEXT", help="Why its data may be missing, for the records.")]


@app.command(
    cls=Recording,
    epilog=examples(
        "resolve run=2026-01-31-12-00-00 --reason 'schema added'",
        "resolve 'run=2026-01-31-*' --dry-run",
        "resolve --failed-since 2026-01-31T12:00",
    ),
)
def resolve(
    context: typer.Context,
    items: ItemNames = None,
    reason: Reason = "no reason given",
    failed_since: FailedSince = None,
    dry_run: DryRun = False,
) -> int:
    """Frees failed items for another attempt.

    A pattern means those that failed. Exit 1 if one is refused; the others are done.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        keys = chosen_items(pipeline, items, decide.failed, failed_since)
        outcome = f"the next {'drain' if pipeline.feeds else 'program'} tries it again"
        return decided(context, pipeline, keys, lambda key: decide.resolve(pipeline, key, reason), outcome, dry_run)


@app.command(cls=Recording, epilog=examples("reshred run=2026-01-31-12-00-00 --reason 'schema mended'"))
def reshred(
    context: typer.Context,
    items: ItemNames = None,
    reason: Reason = "no reason given",
    failed_since: FailedSince = None,
    dry_run: DryRun = False,
) -> int:
    """Has items shredded again.

    For output that is lost, and for a shredder, schemas or settings that were mended since. What failed of them is freed; rows
    that are loaded stay. A pattern means items that are not loaded. Exit 1 if one is refused; the others are done.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        keys = chosen_items(pipeline, items, decide.undone, failed_since)
        outcome = "the next drain shreds it"
        return decided(context, pipeline, keys, lambda key: reshred_item(pipeline, key, reason), outcome, dry_run)


@app.command(cls=Recording, epilog=examples("accept run=2026-01-31-12-00-00 --reason 'landed anew'"))
def accept(
    context: typer.Context,
    items: ItemNames = None,
    reason: Reason = "no reason given",
    keep: Annotated[bool, typer.Option("--keep", help="Acknowledge the other content: it is known, and stays out.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Accepts a directory that was rewritten on purpose.

    As it lies there now, it is shredded again; not where it is loaded already. Exit 1 if one is refused; the others are done.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        keys = chosen_items(pipeline, items, decide.undone, None)
        if keep:
            outcome = "the first content stays, and nobody is told of the other any more"
            return decided(context, pipeline, keys, lambda key: accepting.keep(pipeline, key, reason), outcome, dry_run)
        outcome = "the next drain shreds what is there now"
        return decided(context, pipeline, keys, lambda key: accepting.accept(pipeline, key, reason), outcome, dry_run)


@app.command(cls=Recording, epilog=examples("unskip run=2026-01-31-12-00-00"))
def unskip(context: typer.Context, items: ItemNames = None, reason: Reason = "no reason given", dry_run: DryRun = False) -> int:
    """Lets skipped or quarantined items in.

    Behind the watermark they come in late, where the feed's policy is to append. A pattern means those that are skipped or set
    aside. Exit 1 if one is refused; the others are done.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        keys = chosen_items(pipeline, items, decide.passed_over, None)
        return decided(context, pipeline, keys, lambda key: decide.unskip(pipeline, key, reason), "", dry_run)


def chosen_items(pipeline: Pipeline, names: Sequence[str] | None, among: Candidates, since: str | None) -> list[ItemKey]:
    """The items that the command line means. Raises WrongUse for what cannot be meant, UnknownItem."""
    names = names or []
    for name in names:
        if not decide.is_pattern(pipeline, name):
            item_key(pipeline, name)
    try:
        return decide.chosen(pipeline, names, among, point_in_time("--failed-since", since))
    except ValueError as error:
        raise WrongUse(str(error)) from error


def decided(
    context: typer.Context,
    pipeline: Pipeline,
    keys: Sequence[ItemKey],
    act: Callable[[ItemKey], Record],
    outcome: str,
    dry_run: bool,
) -> int:
    """Decides on each item and tells it; the summary where there are several. `outcome`: empty, to say what it waits for."""
    as_typed = typed(context, pipeline.name)
    done = refused = 0
    for decision in decide.decide(pipeline, keys, act, dry_run):
        done += decision.record is not None
        refused += decision.record is None
        if as_json(context):
            print_json(_document(decision, as_typed, dry_run))
        elif decision.record is None:
            warn(_refusal(decision, as_typed, alone=len(keys) == 1))
        elif dry_run:
            say(f"{decision.key.name}: would be {decision.record.state}; nothing was written")
        else:
            said = outcome or _comes_next(pipeline, decision.key, as_typed)
            say(wrapped(f"{decision.key.name}: {decision.record.state} by {decision.record.author}; {said}"))
    if len(keys) != 1:
        if as_json(context):
            print_json({"event": "ended", "done": done, "refused": refused, "dry_run": dry_run})
        else:
            none = "" if keys else ": no item that this could be done with is called so"
            say(f"{done:,} {'would be ' if dry_run else ''}done, {refused:,} refused{none}")
    return Exit.FAILED if refused else Exit.DONE if done else Exit.NOTHING


def _comes_next(pipeline: Pipeline, key: ItemKey, as_typed: Typed) -> str:
    said, remedy = decide.comes_next(pipeline, key)
    return f"{said}. {'See' if remedy.action.only_looks else 'Next:'} {as_typed(remedy)}"


def _refusal(decision: Decision, as_typed: Typed, alone: bool) -> str:
    """Why a decision was refused, as an error says it; by item where there are several."""
    told = with_remedy(decision.refused, decision.remedy, as_typed) if decision.remedy else decision.refused
    return f"error: {told}" if alone or told.startswith(decision.key.name) else f"error: {decision.key.name}: {told}"


def _document(decision: Decision, as_typed: Typed, dry_run: bool) -> dict[str, object]:
    if decision.record is None:
        message = with_remedy(decision.refused, decision.remedy, as_typed) if decision.remedy else decision.refused
        return {"item": decision.key, "error": {"type": "Refused", "message": message}}
    return {"item": decision.key, "record": decision.record.to_dict(), **({"dry_run": True} if dry_run else {})}
