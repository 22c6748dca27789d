"""`store`: creates the manifest's store, checks its settings, and upgrades its rows."""

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

store = group("store", "Creates, checks or upgrades the manifest's store.")


@store.command(cls=Command)
def create(context: typer.Context) -> int:
    """Creates the missing tables of manifest.store, and checks all of them. Idempotent.

    So with the store of what was loaded, if a dataset needs it.
    """
    settings = configuration(context)
    memory = create_store(settings.memory, memory=True) if settings.memory else None
    return _told(context, create_store(settings.manifest.store), memory)


@store.command(cls=Command)
def check(context: typer.Context) -> int:
    """Checks the settings of the store, and prints how to correct them. Exit code 1 if a setting is wrong."""
    settings = configuration(context)
    memory = check_store(settings.memory, memory=True) if settings.memory else None
    return _told(context, check_store(settings.manifest.store), memory)


@store.command(cls=Command)
def upgrade(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, and write nothing.")] = False,
) -> int:
    """Upgrades the rows of an older release to this release. The first write of this release does the same.

    After that, the older release can no longer work on the dataset. Stop its workers first: the upgrade is refused while one
    works. Exit code 4 if there is nothing to do.
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
    was = f"were of version {found.before.number} (release {found.before.release})" if found.before else "did not exist"
    say(f"dataset {dataset}: its rows {was}; {'would be' if dry_run else 'now'} of version {FORM} (release {RELEASE})")
    for what, sorts in (("rewritten", found.rewritten), ("made", (ID, *found.made))):
        if sorts:
            say(wrapped(", ".join(sorts), f"  {what}  ", " " * (len(what) + 4)))
    if found.beside:
        say(f"  derived rows  {found.beside:,} {'would be ' if dry_run else ''}made or removed")


def _meant(context: typer.Context) -> list[str]:
    """Returns the dataset of the command line, else all configured datasets."""
    chosen = chosen_dataset(context)
    settings = configuration(context)
    return [settings.dataset(chosen)] if chosen else list(settings.datasets)


def _told(context: typer.Context, setup: Setup, memory: Setup | None) -> int:
    as_typed = typed(context)
    setups = [_as_typed(one, as_typed) for one in (setup, memory) if one]
    if as_json(context):
        manifest, *others = [dataclasses.asdict(one) for one in setups]
        print_json({**manifest, "memory": others[0] if others else None})
    else:
        for one in setups:
            say(f"{one.name}: {'created' if one.made else 'exists'}, {_judgement(one)}")
            for difference in one.differences:
                warn(f"  {difference}")
    return Exit.FAILED if any(one.differences for one in setups) else Exit.DONE


def _as_typed(setup: Setup, as_typed: Typed) -> Setup:
    return dataclasses.replace(setup, differences=[_told_how(one, as_typed) for one in setup.differences])


def _told_how(difference: Difference, as_typed: Typed) -> Difference:
    """Returns the difference with its remedy as a command line."""
    mend = difference.mend
    return dataclasses.replace(difference, mend=as_typed(mend)) if isinstance(mend, Remedy) else difference


def _judgement(setup: Setup) -> str:
    if not setup.differences:
        return "all settings are correct"
    return f"{len(setup.differences)} wrong {'setting' if len(setup.differences) == 1 else 'settings'}"
