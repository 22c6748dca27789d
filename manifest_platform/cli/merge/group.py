"""The group of commands `merge`, and what they share: their arguments, and the way to a dataset's merging."""

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
"""The commands as the help lists them."""


class _Commands(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.commands, key=ORDER.index)


merge = group("merge", "Merges small objects into well-sized ones, and publishes them.", _Commands)

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="A table, as shredding or as readers call it.")]
DateText = Annotated[str, typer.Argument(metavar="DATE", help="The partition's date: YYYY-MM-DD.")]
TableOption = Annotated[str | None, typer.Option("--table", metavar="TABLE", help="Of this table only.")]
DateOption = Annotated[str | None, typer.Option("--date", metavar="DATE", help="Of this date only: YYYY-MM-DD.")]


@contextmanager
def open_merging(context: typer.Context, author: str | None = None, ahead: timedelta = timedelta()) -> Generator[Merging]:
    """Merging of the dataset meant, by a clock that is `ahead` of the real one. Raises Refused if it is not merged."""
    with open_pipeline(context, author=author) as pipeline:
        yield Merging(pipeline, lambda: datetime.now(UTC) + ahead)


def date_of(text: str) -> date:
    """A date from its text. Raises WrongUse."""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise WrongUse(f"{text!r} is no date: write it as 2026-01-31") from error
