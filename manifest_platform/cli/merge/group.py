"""The group `merge`: the arguments that its commands share, and access to the merging of a dataset."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

import click
import typer

from manifest_platform.cli.app import Group, WrongUse, group
from manifest_platform.cli.context import open_pipeline
from manifest_platform.pipeline.merge import Merging

ORDER = [
    "run",
    "publish",
    "rebuild",
    "retry",
    "gc",
    "drop",
    "status",
    "explain",
    "files",
    "query",
    "log",
    "show",
    "external-schema",
]
"""The order of the commands in the help."""


class _Commands(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.commands, key=ORDER.index)


merge = group("merge", "Merges small objects into well-sized ones, and publishes them.", _Commands)

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="Name of a table, in shredding or in the catalog.")]
DateText = Annotated[str, typer.Argument(metavar="DATE", help="Date of the partition: YYYY-MM-DD.")]
TableOption = Annotated[str | None, typer.Option("--table", metavar="TABLE", help="Show this table only.")]
DateOption = Annotated[str | None, typer.Option("--date", metavar="DATE", help="Show this date only: YYYY-MM-DD.")]


@contextmanager
def open_merging(context: typer.Context, author: str | None = None, ahead: timedelta = timedelta()) -> Generator[Merging]:
    """Opens the merging of the command line's dataset. Raises Refused if merging is not configured for it.

    `author`: written into the records; `ahead`: added to the clock.
    """
    with open_pipeline(context, author=author) as pipeline:
        yield Merging(pipeline, lambda: datetime.now(UTC) + ahead)


def date_of(text: str) -> date:
    """Parses a date. Raises WrongUse if the text is no date."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise WrongUse(f"{text!r} is no date: write a date such as 2026-01-31") from error
