"""`skip`: skips registered items, and adds, lists and removes rules that skip future items."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated

import click
import typer

from manifest_platform.cli.app import Command, Group, Reason, Recording, WrongUse, as_json, examples, group
from manifest_platform.cli.context import Target, open_pipeline, operator, point_in_time
from manifest_platform.cli.decide import DryRun, FailedSince, ItemNames, Why, chosen_items, decided
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, some, wrapped
from manifest_platform.manifest import EVERYONE
from manifest_platform.manifest.records import format_time
from manifest_platform.manifest.skip_rules import InvalidRule, RuleChange, SkipRule
from manifest_platform.operations import decide, skip_rules
from manifest_platform.pipeline import LOAD, SHRED

ITEMS = "items"
"""The command that `skip ITEM…` is short for."""
_WITH_VALUE = ("--config", "--dataset", "--run-id")

Applications = Annotated[
    str, typer.Option(metavar="NAME", help=f"Application that skips: {SHRED}, {LOAD}, or {EVERYONE} for all.")
]


class _ItemsOrRules(Group):
    """A group whose first word may be an item: `skip run=…` is `skip items run=…`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Inserts the command's name before an item's name."""
        word = _first_word(args)
        if word not in self.commands and args != ["--help"]:
            args = [ITEMS, *args]
        return super().parse_args(ctx, args)


def _first_word(args: Sequence[str]) -> str | None:
    """Returns the first argument that is neither a common option nor the value of one."""
    left = iter(args)
    for one in left:
        if one in _WITH_VALUE:
            next(left, None)
        elif one != "--json" and not one.startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            return one
    return None


skip = group(
    "skip",
    "Skips items, or adds rules that skip future items.\n\n`skip ITEM... --reason TEXT` is short for `skip items`.",
    _ItemsOrRules,
)


@skip.command(
    ITEMS,
    cls=Recording,
    epilog=examples(
        "skip run=2026-01-31-12-00-00 --reason 'test data'", "skip items 'run=2026-01-31-*' --reason test --dry-run"
    ),
)
def items(
    context: typer.Context,
    reason: Why,
    items: ItemNames = None,
    application: Applications = EVERYONE,
    failed_since: FailedSince = None,
    dry_run: DryRun = False,
    target: Target = None,
) -> int:
    """Skips registered items: their data is not loaded, unless `unskip` frees them.

    A pattern matches items that are not loaded. Exit code 1 if a decision is refused; all other decisions are still written.
    """
    if target and application not in (EVERYONE, LOAD):
        raise WrongUse(f"--application {application} has no targets: leave out --target")
    with open_pipeline(context, author=operator(), target=target) as pipeline:
        keys = chosen_items(pipeline, items, decide.undone, failed_since)
        application = f"{LOAD}:{target}" if target else application
        outcome = f"{f'target {target}' if target else 'the feed'} continues without it"
        return decided(context, pipeline, keys, lambda key: decide.skip(pipeline, key, reason, application), outcome, dry_run)


@skip.command(
    "add",
    cls=Recording,
    epilog=examples(
        "skip add 'run=2026-01-3*' --reason 'load test'", "skip add --from 2026-01-30 --to 2026-02-01 --reason test"
    ),
)
def add(
    context: typer.Context,
    reason: Why,
    pattern: Annotated[
        str | None, typer.Argument(metavar="PATTERN", help="Pattern for names, such as 'run=2026-01-3*'; with :// for URIs.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Skip items of this logical time or later.")
    ] = None,
    before: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Skip items before this logical time.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Time at which the rule ends, by the clock.")] = None,
    feed: Annotated[str | None, typer.Option(metavar="NAME", help="Skip items of this feed only.")] = None,
    application: Applications = EVERYONE,
    now: Annotated[bool, typer.Option("--now", help="Also skip matching items that are registered already.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Adds a rule: new directories that match it are registered as skipped.

    Write times as 2026-01-31 or 2026-01-31T12:00; they are in UTC unless they name a zone. The time of a window is its start.
    Matching items that are registered already are listed, and skipped only with --now.
    """
    try:
        wanted = SkipRule(
            reason,
            pattern,
            point_in_time("--from", since),
            point_in_time("--to", before),
            feed,
            point_in_time("--until", until),
            application,
        )
    except InvalidRule as error:
        raise WrongUse(str(error)) from error
    with open_pipeline(context, author=operator()) as pipeline:
        with pipeline.manifest.rehearsing() if dry_run else nullcontext():
            rule = pipeline.manifest.add_skip_rule(wanted)
        keys = list(skip_rules.registered_already(pipeline, rule))
        if as_json(context):
            print_json({"rule": _document(rule), "registered": keys, "dry_run": dry_run})
        else:
            done = "would be added; nothing was written" if dry_run else f"added by {rule.author}"
            say(
                wrapped(f"skip rule {rule.id} ({rule.describe()}): {done}; matching items are skipped when they are registered")
            )
            if keys and not now:
                names = some([key.name for key in keys])
                said = "they are not skipped; to skip them too, use `skip items`, or add the rule with --now"
                say(wrapped(f"{len(keys):,} matching items are registered already: {names}; {said}"))
        if not (keys and now):
            return Exit.DONE
        why = f"{reason} (skip rule {rule.id})"
        outcome = "the feed continues without it"
        return decided(context, pipeline, keys, lambda key: decide.skip(pipeline, key, why, application), outcome, dry_run)


@skip.command("list", cls=Command)
def list_(
    context: typer.Context,
    changes: Annotated[
        bool, typer.Option("--changes", help="Show every rule that was added or removed: by whom, when and why.")
    ] = False,
) -> int:
    """Shows the rules by which new items are skipped. Exit code 4 if there are none."""
    with open_pipeline(context) as pipeline:
        now = pipeline.clock()
        log = list(pipeline.manifest.skip_rule_changes()) if changes else []
        rules = pipeline.manifest.skip_rules().rules
    if changes:
        _print_changes(context, log)
        return Exit.DONE if log else Exit.NOTHING
    if as_json(context):
        print_json({"rules": [{**_document(rule), "over": rule.is_over(now)} for rule in rules]})
    elif rules:
        for rule in rules:
            say(wrapped(_told(rule, now), others="    "))
    else:
        say("no skip rules")
    return Exit.DONE if rules else Exit.NOTHING


@skip.command("remove", cls=Recording)
def remove(
    context: typer.Context,
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Id of the rule, as shown by `skip list`.")],
    reason: Reason = "no reason given",
) -> int:
    """Removes a rule. Items that it skipped stay skipped, unless `unskip` frees them."""
    with open_pipeline(context, author=operator()) as pipeline:
        removed = pipeline.manifest.remove_skip_rule(rule, reason)
    if as_json(context):
        print_json({"rule": _document(removed), "removed": True})
    else:
        say(
            wrapped(
                f"skip rule {removed.id} ({removed.describe()}): removed; items that it skipped stay skipped, unless `unskip`"
                " frees them"
            )
        )
    return Exit.DONE


def _document(rule: SkipRule) -> dict[str, object]:
    said = rule.to_dict()
    period = {"from": said.pop("since"), "to": said.pop("before")}
    return {**said, **period}


def _told(rule: SkipRule, now: datetime) -> str:
    who = "" if rule.application == EVERYONE else f" by {rule.application}"
    until = f"until {rule.until:%Y-%m-%d %H:%M} UTC{' (ended)' if rule.is_over(now) else ''}" if rule.until else "permanently"
    added = f"{rule.added_at:%Y-%m-%d %H:%M} UTC" if rule.added_at else "?"
    return f"{rule.id}  {rule.describe()}: skipped{who} {until}; {rule.reason} ({rule.author}, {added})"


def _print_changes(context: typer.Context, log: Sequence[RuleChange]) -> None:
    if as_json(context):
        print_json(
            {
                "changes": [
                    {
                        "change": one.change,
                        "rule": _document(one.rule),
                        "author": one.author,
                        "run_id": one.run_id,
                        "at": format_time(one.at),
                        "reason": one.reason,
                    }
                    for one in log
                ]
            }
        )
    for one in [] if as_json(context) else log:
        at = f"{one.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        said = f"{at}  {one.rule.id} {one.change} by {one.author}: {one.rule.describe()}; {one.reason}"
        say(wrapped(said, others="    "))
