"""The objects that a command line names: the configuration, the dataset's pipeline, an item, a time, and the operator."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import islice
from typing import Annotated

import click
import typer

from manifest_platform import __version__, config
from manifest_platform.cli.app import RUN_VARIABLE, WrongUse, given
from manifest_platform.manifest import InvalidKey, ItemKey, Refused, Store, UnknownItem
from manifest_platform.manifest.records import InvalidRunId, run_id_of
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.pipeline import operator_name
from manifest_platform.storage import UnsupportedLocation

_BESIDE = f"{__name__}.beside"
_LIKE_IT = 500
"""The number of newest items of each feed that are searched for a name similar to a mistyped one."""


def configuration(context: click.Context) -> config.Config:
    """Loads the configuration of the command line, once, and applies its permissions for new files to the process.

    If --dataset names a dataset that only loads beside a former loader, the result has that dataset, too.
    """
    kept = f"{__name__}.configuration"
    if kept not in context.meta:
        context.meta[kept] = found = config.load(given(context, "config"))
        found.files.apply()
        if (name := chosen_dataset(context)) and name not in found.datasets:
            from manifest_platform.operations.cutover.beside import with_beside

            context.meta[kept] = with_beside(found, name)
            context.meta[_BESIDE] = name in context.meta[kept].datasets
    return context.meta[kept]


def is_beside(context: click.Context) -> bool:
    """True if --dataset names a dataset that loads beside a former loader, and that no configuration has."""
    configuration(context)
    return context.meta.get(_BESIDE, False)


def refuse_beside(context: click.Context, what: str) -> None:
    """Raises WrongUse if --dataset names a dataset beside a former loader. `what`: the beginning of the message."""
    if is_beside(context):
        raise WrongUse(f"{what} takes no dataset beside another loader: `cutover adopt --beside` chooses its runs")


Target = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="Only this target, if the dataset is loaded into several.")
]
"""The option `--target`."""


@contextmanager
def open_pipeline(
    context: typer.Context,
    dataset: str | None = None,
    author: str | None = None,
    store: Store | None = None,
    target: str | None = None,
) -> Generator[Pipeline]:
    """Opens the pipeline of a dataset: `dataset`, else the one of the command line, else the only configured dataset.

    `author`: written into the records; `store`: an open store to use; `target`: the target, by default the first.
    """
    settings = configuration(context)
    name = settings.dataset(dataset or chosen_dataset(context))
    with Pipeline(settings, name, run_id(context), author, store, target=target) as pipeline:
        yield pipeline


def only_target(context: click.Context, target: str | None) -> str:
    """Returns the target that a command works on: the named one, or the only one. Raises WrongUse if there are several."""
    settings = configuration(context)
    targets = settings.targets_of(settings.dataset(chosen_dataset(context)))
    if target is None and len(targets) > 1:
        raise WrongUse(f"the dataset has several targets; name one with --target: {', '.join(targets)}")
    return target or targets[0]


def run_id(context: click.Context) -> str:
    """Returns the run id of the command's records: --run-id, else $MANIFEST_PLATFORM_RUN_ID, else a new UUID.

    Raises WrongUse if the variable has no valid run id.
    """
    kept = f"{__name__}.run_id"
    if kept not in context.meta:
        try:
            context.meta[kept] = given(context, "run_id") or run_id_of(os.environ.get(RUN_VARIABLE) or None)
        except InvalidRunId as error:
            raise WrongUse(f"${RUN_VARIABLE}: {error}") from error
    return context.meta[kept]


def item_key(pipeline: Pipeline, item: str) -> ItemKey:
    """Returns the key of an item that the command line names.

    Raises WrongUse if the text is no name of an item, UnknownItem if no such item is registered.
    """
    try:
        return pipeline.key(item)
    except UnknownItem as error:
        meant = _meant(pipeline, item)
        raise UnknownItem(f"dataset {pipeline.name} has no item {item}; {meant or 'was it discovered?'}") from error
    except (Refused, InvalidKey, UnsupportedLocation) as error:
        meant = _meant(pipeline, item)
        raise WrongUse(f"{error}{f'; {meant}' if meant else ''}") from error


def _meant(pipeline: Pipeline, item: str) -> str:
    """Suggests items with similar names, as a question; empty if there are none."""
    newest = (islice(pipeline.manifest.items(feed, reverse=True), _LIKE_IT) for feed in pipeline.manifest.feeds)
    found = get_close_matches(item, [one.key.name for items in newest for one in items], n=3, cutoff=0.85)
    return f"did you mean {' or '.join(found)}?" if found else ""


def point_in_time(option: str, text: str | None) -> datetime | None:
    """Parses the time of an option, in UTC; None if the option is not set. Raises WrongUse if the text is no time."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise WrongUse(f"{option} {text}: write a time such as 2026-01-31T12:00 (UTC, unless it names a zone)") from error
    try:
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except OverflowError as error:
        raise WrongUse(f"{option} {text}: write a time between the years 1 and 9999, in UTC") from error


def chosen_dataset(context: click.Context) -> str | None:
    """Returns the value of --dataset, None if it is not set."""
    return given(context, "dataset")


def operator() -> str:
    """Returns the author of this command's records: the user and the release of this program."""
    return f"{operator_name()} (manifest-platform {__version__})"
