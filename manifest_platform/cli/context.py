"""What a command line names: the configuration, the dataset and its pipeline, an item; and who typed it.

Belongs here: the way from a command's context to what it works with.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager

import typer

from manifest_platform import __version__, config
from manifest_platform.cli.app import WrongUse, given
from manifest_platform.manifest import InvalidKey, ItemKey, Refused, Store, UnknownItem
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.pipeline import operator_name
from manifest_platform.storage import UnsupportedLocation

Typed = Callable[[str], str]
"""Makes of a command what must be typed to run it here."""


def configuration(context: typer.Context) -> config.Config:
    """The configuration that the command was given, read once."""
    kept = f"{__name__}.configuration"
    if kept not in context.meta:
        context.meta[kept] = config.load(given(context, "config"))
    return context.meta[kept]


@contextmanager
def open_pipeline(
    context: typer.Context, dataset: str | None = None, author: str | None = None, store: Store | None = None
) -> Generator[Pipeline]:
    """The pipeline of the dataset meant: `dataset`, else that of the command line, else the only one. `store`: an open one."""
    settings = configuration(context)
    name = settings.dataset(dataset or chosen_dataset(context))
    with Pipeline(settings, name, author=author, store=store) as pipeline:
        yield pipeline


def item_key(pipeline: Pipeline, item: str) -> ItemKey:
    """The key of an item as the command line names it. Raises WrongUse for a name that is none, UnknownItem."""
    try:
        return pipeline.key(item)
    except UnknownItem:
        raise
    except (Refused, InvalidKey, UnsupportedLocation) as error:
        raise WrongUse(str(error)) from error


def options(context: typer.Context) -> str:
    """The configuration that this command was given, as the next one must be given it too."""
    file = given(context, "config")
    return f" --config {shlex.quote(file)}" if file else ""


def typed(context: typer.Context, pipeline: Pipeline) -> Typed:
    """Makes of a command what must be typed to run it where this one was run: with the dataset where there are several.

    Commands of other programs stay as they are: they know nothing of our options.
    """
    given_options = options(context)

    def as_typed(command: str) -> str:
        if not command.startswith("manifest-platform "):
            return command
        own, separator, program = command.partition(" -- ")
        return f"{pipeline.command(own)}{given_options}{separator}{program}"

    return as_typed


def chosen_dataset(context: typer.Context) -> str | None:
    """The dataset that the command line names, if any."""
    return given(context, "dataset")


def operator() -> str:
    """Who decides, for the records."""
    return f"{operator_name()} (manifest-platform {__version__})"
