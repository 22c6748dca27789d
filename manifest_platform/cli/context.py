"""What a command line names: the configuration, the dataset and its pipeline, an item; and who typed it.

Belongs here: the way from a command's context to what it works with.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import islice

import click
import typer

from manifest_platform import __version__, config
from manifest_platform.cli.app import RUN_VARIABLE, WrongUse, given
from manifest_platform.manifest import InvalidKey, ItemKey, Refused, Store, UnknownItem
from manifest_platform.manifest.records import InvalidRunId, run_id_of
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.pipeline import operator_name
from manifest_platform.storage import UnsupportedLocation

_LIKE_IT = 500
"""Of so many items of each feed one is looked for that is called nearly as what was typed."""


def configuration(context: click.Context) -> config.Config:
    """The configuration that the command was given, read once. Files that are made from then on are as private as it says."""
    kept = f"{__name__}.configuration"
    if kept not in context.meta:
        context.meta[kept] = found = config.load(given(context, "config"))
        found.files.apply()
    return context.meta[kept]


@contextmanager
def open_pipeline(
    context: typer.Context, dataset: str | None = None, author: str | None = None, store: Store | None = None
) -> Generator[Pipeline]:
    """The pipeline of the dataset meant: `dataset`, else that of the command line, else the only one. `store`: an open one."""
    settings = configuration(context)
    name = settings.dataset(dataset or chosen_dataset(context))
    with Pipeline(settings, name, run_id(context), author, store) as pipeline:
        yield pipeline


def run_id(context: click.Context) -> str:
    """The run that all is recorded under which a command writes: --run-id, else $MANIFEST_PLATFORM_RUN_ID, else a new one."""
    kept = f"{__name__}.run_id"
    if kept not in context.meta:
        try:
            context.meta[kept] = given(context, "run_id") or run_id_of(os.environ.get(RUN_VARIABLE) or None)
        except InvalidRunId as error:
            raise WrongUse(f"${RUN_VARIABLE}: {error}") from error
    return context.meta[kept]


def item_key(pipeline: Pipeline, item: str) -> ItemKey:
    """The key of an item as the command line names it. Raises WrongUse for a name that is none, UnknownItem."""
    try:
        return pipeline.key(item)
    except UnknownItem as error:
        meant = _meant(pipeline, item)
        raise UnknownItem(f"dataset {pipeline.name} has no item {item}; {meant or 'is it discovered yet?'}") from error
    except (Refused, InvalidKey, UnsupportedLocation) as error:
        meant = _meant(pipeline, item)
        raise WrongUse(f"{error}{f'; {meant}' if meant else ''}") from error


def _meant(pipeline: Pipeline, item: str) -> str:
    """What may have been meant by a name that no item has, as a question: names like it, of each feed's newest items."""
    newest = (islice(pipeline.manifest.items(feed, reverse=True), _LIKE_IT) for feed in pipeline.manifest.feeds)
    found = get_close_matches(item, [one.key.name for items in newest for one in items], n=3, cutoff=0.85)
    return f"did you mean {' or '.join(found)}?" if found else ""


def point_in_time(option: str, text: str | None) -> datetime | None:
    """The time that an option is given; None where it is not. Raises WrongUse for a text that is no time."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise WrongUse(f"{option} {text}: give a time as 2026-01-31T12:00, in UTC where it names no zone") from error
    try:
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except OverflowError as error:
        raise WrongUse(f"{option} {text}: a time between the years 1 and 9999 in UTC") from error


def chosen_dataset(context: click.Context) -> str | None:
    """The dataset that the command line names, if any."""
    return given(context, "dataset")


def operator() -> str:
    """Who decides, for the records."""
    return f"{operator_name()} (manifest-platform {__version__})"
