"""`reload`: replaces the rows of loaded items, and its output."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from manifest_platform.cli.app import Reason, Recording, app, as_json, examples
from manifest_platform.cli.context import Target, open_pipeline, operator
from manifest_platform.cli.decide import DryRun, ItemNames, chosen_items, decided
from manifest_platform.cli.output import print_json, say
from manifest_platform.manifest import ItemKey, Refused
from manifest_platform.operations.decide import loaded
from manifest_platform.operations.reload import Replacing, reload_all, replacing
from manifest_platform.pipeline import Pipeline


@app.command(
    "reload",
    cls=Recording,
    epilog=examples(
        "reload run=2026-01-31-12-00-00 --dry-run",
        "reload run=2026-01-31-12-00-00 --reason 'corrected schema'",
    ),
)
def reload_(
    context: typer.Context,
    items: ItemNames = None,
    reason: Reason = "no reason given",
    missing_rows: Annotated[
        bool, typer.Option("--missing-rows", help="Reload also if rows are gone from the warehouse: they come back.")
    ] = False,
    dry_run: DryRun = False,
    target: Target = None,
) -> int:
    """Replaces the rows of loaded items: loads them again from their current output.

    Use it if loaded rows are wrong, or after `reshred`. The next drain removes an item's rows and loads it again in one
    transaction; the item keeps its place. Only for tables whose rows are appended: changes by key need a full load. All targets
    are reloaded, or only --target. A pattern matches loaded items. Exit code 1 if a decision is refused; all other decisions
    are still written.
    """
    with open_pipeline(context, author=operator(), target=target) as pipeline:
        keys = chosen_items(pipeline, items, loaded, None)
        targets = [pipeline] if target else list(pipeline.each_target())
        for key in keys if dry_run else ():
            _say(context, targets, key)
        return decided(
            context,
            pipeline,
            keys,
            lambda key: reload_all(targets, key, reason, missing_rows),
            "the next drain replaces its rows",
            dry_run,
        )


def _say(context: typer.Context, targets: list[Pipeline], key: ItemKey) -> None:
    """Prints the effect that a reload of an item would have on each target."""
    for one in targets:
        try:
            found = replacing(one, key)
        except Refused:
            continue  # the decision tells why
        if as_json(context):
            print_json({"event": "replacing", "item": key, **asdict(found)})
            continue
        where = f" in {found.target}" if len(targets) > 1 else ""
        if found.loaded_at:
            say(f"{key.name}{where} removes: {_rows(found.removes)}, loaded at {found.loaded_at:%Y-%m-%d %H:%M:%S} UTC")
        else:
            say(f"{key.name}{where} removes: rows that are not known, because the warehouse cannot be asked now")
        say(f"{key.name}{where} loads: {_rows(found.loads)}{_changes(found)}")


def _rows(rows: dict[str, int]) -> str:
    return ", ".join(f"{count:,} of {table}" for table, count in sorted(rows.items())) or "no rows"


def _changes(found: Replacing) -> str:
    return "" if not found.loaded_at or found.loads != found.removes else " (as many as before)"
