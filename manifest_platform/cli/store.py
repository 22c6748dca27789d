"""The commands about the manifest's store itself: making its table, and finding out whether it is set up as it should be."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, as_json, group
from manifest_platform.cli.context import chosen_dataset, configuration, open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, warn, wrapped
from manifest_platform.cli.remedies import Typed, typed
from manifest_platform.manifest.keys import ID
from manifest_platform.manifest.store import Difference
from manifest_platform.manifest.stores import Setup, check_store, create_store
from manifest_platform.manifest.takeover import Takeover
from manifest_platform.operations import upgrade as operations
from manifest_platform.releases import FORM, RELEASE
from manifest_platform.remedies import Remedy

store = group("store", "Makes the manifest's store, checks it, or takes an older one over.")


@store.command(cls=Command)
def create(context: typer.Context) -> int:
    """Makes the table or tables of manifest.store where they are missing, and checks them. May be repeated."""
    return _told(context, create_store(configuration(context).manifest.store))


@store.command(cls=Command)
def check(context: typer.Context) -> int:
    """Says what of the store's settings is not as it should be, and what mends it. Exit 1 if anything is."""
    return _told(context, check_store(configuration(context).manifest.store))


@store.command(cls=Command)
def upgrade(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")] = False,
) -> int:
    """Takes the rows of an older release over, as this release's first write does. Exit 4 if there is nothing to do.

    From then on an older release can work on the dataset no more. End its workers before; while one works, it is refused.
    """
    done = []
    for name in _meant(context):
        with open_pipeline(context, name) as pipeline:
            if found := operations.upgrade(pipeline, dry_run):
                done.append({"dataset": name, "dry_run": dry_run, **dataclasses.asdict(found)})
                if not as_json(context):
                    _say_taken_over(name, found, dry_run)
            elif not as_json(context):
                say(f"dataset {name}: its rows are of version {FORM}, as this release writes them")
    if as_json(context):
        print_json({"upgraded": done})
    return Exit.DONE if done else Exit.NOTHING


def _say_taken_over(dataset: str, found: Takeover, dry_run: bool) -> None:
    was = f"are of version {found.before.number} (release {found.before.release})" if found.before else "are not begun"
    say(f"dataset {dataset}: its rows {was}; {'would be' if dry_run else 'now'} of version {FORM} (release {RELEASE})")
    for what, sorts in (("rewritten", found.rewritten), ("made", (ID, *found.made))):
        if sorts:
            say(wrapped(", ".join(sorts), f"  {what}  ", " " * (len(what) + 4)))
    if found.beside:
        say(f"  beside the log  {found.beside:,} rows {'would be ' if dry_run else ''}made or removed")


def _meant(context: typer.Context) -> list[str]:
    """The dataset that the command line names, or else all that are configured."""
    chosen = chosen_dataset(context)
    settings = configuration(context)
    return [settings.dataset(chosen)] if chosen else list(settings.datasets)


def _told(context: typer.Context, setup: Setup) -> int:
    as_typed = typed(context)
    differences = [_told_how(one, as_typed) for one in setup.differences]
    if as_json(context):
        print_json({**dataclasses.asdict(setup), "differences": differences})
    else:
        say(f"{setup.name}: {'made' if setup.made else 'is there'}, {_judgement(setup)}")
        for difference in differences:
            warn(f"  {difference}")
    return Exit.FAILED if setup.differences else Exit.DONE


def _told_how(difference: Difference, as_typed: Typed) -> Difference:
    """The difference with a command for what mends it."""
    mend = difference.mend
    return dataclasses.replace(difference, mend=as_typed(mend)) if isinstance(mend, Remedy) else difference


def _judgement(setup: Setup) -> str:
    if not setup.differences:
        return "as it should be"
    return f"{len(setup.differences)} {'setting' if len(setup.differences) == 1 else 'settings'} not as it should be"
