"""Parts that only some sources have: a command asks the dataset's source for such a part, and says so if it has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from manifest_platform.cli.context import chosen_dataset, configuration
from manifest_platform.manifest import Refused
from manifest_platform.sources.source import Source, open_source

_Part = TypeVar("_Part")


def chosen_source(context: click.Context) -> Source:
    """Returns the source of the command line's dataset, without opening the manifest's store."""
    settings = configuration(context)
    dataset = settings.dataset(chosen_dataset(context))
    return open_source(dataset, settings.datasets[dataset])


def offered(source: Source, part: Callable[[Source], _Part | None], what: str) -> _Part:
    """Returns a part of a source, such as its schemas. `what`: its name. Raises Refused if the source has none."""
    found = part(source)
    if found is None:
        raise Refused(f"dataset {source.dataset} has no {what}: its source, {source.settings.source}, knows none")
    return found
