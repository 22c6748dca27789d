"""`resolve`, `reshred`, `accept` and `unskip`: decisions that only a person can take, and their output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from manifest_platform.cli.app import Reason, Recording, WrongUse, app, as_json, completed_items, examples
from manifest_platform.cli.context import Target, item_key, open_pipeline, operator, point_in_time
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
        help="Item names such as run=YYYY-MM-DD-HH-MM-SS, URIs, or patterns such as 'run=2026-01-31-*'.",
        autocompletion=completed_items,
    ),
]
FailedSince = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Only items that failed at this time or later, such as 2026-01-31T12:00 (UTC). Needs no ITEM."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and show what would be done, and write nothing.")]
Why = Annotated[str, typer.Option(metavar="TEXT", help="Reason why the data may be missing, to write into the records.")]


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
    target: Target = None,
) -> int:
    """Frees failed items for another attempt.

    A pattern matches failed items only. Exit code 1 if a decision is refused; all other decisions are still written.
    """
    with open_pipeline(context, author=operator(), target=target) as pipeline:
        keys = chosen_items(pipeline, items, decide.failed, failed_since)
        only = target is not None
        outcome = f"the next {'drain' if pipeline.feeds else 'program'} tries it again"
        return decided(context, pipeline, keys, lambda key: decide.resolve(pipeline, key, reason, only), outcome, dry_run)


@app.command(cls=Recording, epilog=examples("reshred run=2026-01-31-12-00-00 --reason 'schema fixed'"))
def reshred(
    context: typer.Context,
    items: ItemNames = None,
    reason: Reason = "no reason given",
    failed_since: FailedSince = None,
    dry_run: DryRun = False,
) -> int:
    """Frees items for shredding again.

    Use it if the output of shredding is lost, or if the shredder, a schema or a setting has changed since. It also frees failed
    items. Loaded rows do not change. A pattern matches items that are not loaded. Exit code 1 if a decision is refused; all
    other decisions are still written.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        keys = chosen_items(pipeline, items, decide.undone, failed_since)
        outcome = "the next drain shreds it"
        return decided(context, pipeline, keys, lambda key: reshred_item(pipeline, key, reason), outcome, dry_run)


@app.command(cls=Recording, epilog=examples("accept run=2026-01-31-12-00-00 --reason 'sent again'"))
def accept(
    context: typer.Context,
    items: ItemNames = None,
    reason: Reason = "no reason given",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the first content, and stop reporting the new one.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Accepts the new content of a directory that was rewritten on purpose.

    The next drain shreds the directory with its new content. Refused for an item that is loaded. Exit code 1 if a decision is
    refused; all other decisions are still written.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        keys = chosen_items(pipeline, items, decide.undone, None)
        if keep:
            outcome = "the first content is kept, and the new one is no longer reported"
            return decided(context, pipeline, keys, lambda key: accepting.keep(pipeline, key, reason), outcome, dry_run)
        outcome = "the next drain shreds the new content"
        return decided(context, pipeline, keys, lambda key: accepting.accept(pipeline, key, reason), outcome, dry_run)


@app.command(cls=Recording, epilog=examples("unskip run=2026-01-31-12-00-00"))
def unskip(context: typer.Context, items: ItemNames = None, reason: Reason = "no reason given", dry_run: DryRun = False) -> int:
    """Frees skipped or quarantined items for loading.

    Every skip of an item is lifted, of all steps and targets; skip it again for those that shall stay without it. An item
    behind the watermark is loaded late, if the feed appends late items (`load.late: append`). A pattern matches skipped and
    quarantined items. Exit code 1 if a decision is refused; all other decisions are still written.
    """
    with open_pipeline(context, author=operator()) as pipeline:
        keys = chosen_items(pipeline, items, decide.passed_over, None)
        code = decided(context, pipeline, keys, lambda key: decide.unskip(pipeline, key, reason), "", dry_run)
        if code is Exit.DONE and not dry_run and len(pipeline.targets) > 1 and not as_json(context):
            say(f"skips are lifted for all targets: {', '.join(pipeline.targets)}")
        return code


def chosen_items(pipeline: Pipeline, names: Sequence[str] | None, among: Candidates, since: str | None) -> list[ItemKey]:
    """Returns the items that the command line names, by name, URI or pattern.

    `among`: the items that a pattern can match. Raises WrongUse if a name or time is invalid, UnknownItem.
    """
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
    """Decides on each item and prints the result, with a summary if there are several. Returns the exit code.

    `act`: writes the decision; `outcome`: the consequence of the decision in words, empty to print what the item waits for.
    """
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
            none = "" if keys else ": no item that this decision applies to matches"
            say(f"{done:,} {'would be ' if dry_run else ''}done, {refused:,} refused{none}")
    return Exit.FAILED if refused else Exit.DONE if done else Exit.NOTHING


def _comes_next(pipeline: Pipeline, key: ItemKey, as_typed: Typed) -> str:
    said, remedy = decide.comes_next(pipeline, key)
    return f"{said}. {'See' if remedy.action.only_looks else 'Next:'} {as_typed(remedy)}"


def _refusal(decision: Decision, as_typed: Typed, alone: bool) -> str:
    """Returns the error message of a refused decision; it names the item if there are several."""
    told = with_remedy(decision.refused, decision.remedy, as_typed) if decision.remedy else decision.refused
    return f"error: {told}" if alone or told.startswith(decision.key.name) else f"error: {decision.key.name}: {told}"


def _document(decision: Decision, as_typed: Typed, dry_run: bool) -> dict[str, object]:
    if decision.record is None:
        message = with_remedy(decision.refused, decision.remedy, as_typed) if decision.remedy else decision.refused
        return {"item": decision.key, "error": {"type": "Refused", "message": message}}
    return {"item": decision.key, "record": decision.record.to_dict(), **({"dry_run": True} if dry_run else {})}
