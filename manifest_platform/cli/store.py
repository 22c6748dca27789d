"""The commands about the manifest's store itself: making its table, and finding out whether it is set up as it should be."""

from __future__ import annotations

import dataclasses

import typer

from manifest_platform.cli.app import Command, Exit, app, as_json
from manifest_platform.cli.context import configuration
from manifest_platform.cli.output import print_json, say, warn
from manifest_platform.cli.remedies import Typed, typed
from manifest_platform.manifest.store import Difference
from manifest_platform.manifest.stores import Setup, check_store, create_store
from manifest_platform.remedies import Remedy

store = typer.Typer(help="Makes the manifest's store, or checks how it is set up.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(store, name="store")


@store.command(cls=Command)
def create(context: typer.Context) -> int:
    """Makes the table or tables of manifest.store where they are missing, and checks them. May be repeated."""
    return _told(context, create_store(configuration(context).manifest.store))


@store.command(cls=Command)
def check(context: typer.Context) -> int:
    """Says what of the store's settings is not as it should be, and what mends it. Exit 1 if anything is."""
    return _told(context, check_store(configuration(context).manifest.store))


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
