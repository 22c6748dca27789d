"""The application that the commands belong to: exit codes, common options, and the way from a command line to the pipeline.

Belongs here: what every command needs and no command is. A module of commands registers them with `app`, and is named in
`manifest_platform.cli`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from manifest_platform import __version__, config, spark
from manifest_platform.cli.output import print_json, warn
from manifest_platform.identity import operator_name
from manifest_platform.manifest import InvalidKey, ItemKey, Refused, Store, StoreError, UnknownItem
from manifest_platform.manifest.payloads import InvalidPayload, InvalidSchema
from manifest_platform.manifest.records import InvalidRecord
from manifest_platform.merging.catalogs.catalog import CatalogError
from manifest_platform.merging.errors import MergeError
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.errors import LandingError
from manifest_platform.storage import UnsupportedLocation
from manifest_platform.warehouse.errors import WarehouseError


class Exit(IntEnum):
    """What the exit code says."""

    DONE = 0
    FAILED = 1
    WRONG_USE = 2
    BLOCKED = 3
    NOTHING = 4


class WrongUse(Exception):
    """The command was given something that it cannot mean; the message says what it takes."""


class Interrupted(Exception):
    """A drain was told to end, by Ctrl-C or a signal."""


EXPECTED = (
    Interrupted,
    Refused,
    InvalidPayload,
    InvalidRecord,
    InvalidSchema,
    LandingError,
    CatalogError,
    MergeError,
    StoreError,
    WarehouseError,
    spark.SparkUnavailable,
)
"""Errors that say by themselves what is wrong, where, and what to do: no traceback."""


# The options that every command takes, before its name or behind it.


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta[f"{__name__}.{parameter.name}"] = value


def _common_options() -> list[TyperOption]:
    configuration = f"The configuration; else ${config.VARIABLE}, else {config.DEFAULT_FILE} here."
    return [
        TyperOption(param_decls=["--config"], metavar="FILE", help=configuration, expose_value=False, callback=_keep),
        TyperOption(
            param_decls=["--dataset"],
            metavar="NAME",
            help="The dataset; may be left out where there is only one.",
            expose_value=False,
            callback=_keep,
        ),
        TyperOption(
            param_decls=["--json"],
            is_flag=True,
            default=False,
            help="Answer with JSON on stdout.",
            expose_value=False,
            callback=_keep,
        ),
    ]


class Command(TyperCommand):
    """A command with the common options."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += _common_options()


class _Commands(TyperGroup):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += _common_options()


app = typer.Typer(
    cls=_Commands,
    help="Directories in object storage become ordered, exactly-once warehouse tables: the operator's commands.",
    epilog="\b\nExit codes: 0 done, 1 failed or busy, 2 used wrongly, 3 blocked, 4 nothing to do.\n"
    "Items are named by run name (run=2024-05-14-12-40-00), window (incr/stoptime=202405141245) or URI.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

ItemName = Annotated[str, typer.Argument(metavar="ITEM", help="Its name, as run=YYYY-MM-DD-HH-MM-SS, or its URI.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the records.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; errors that are foreseen are one message on stderr."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in arguments
    try:
        return app(args=arguments, prog_name="manifest-platform", standalone_mode=False) or Exit.DONE
    except click.exceptions.NoArgsIsHelpError as error:
        warn(error.format_message())
        return Exit.WRONG_USE
    except click.ClickException as error:
        if not as_json and isinstance(error, click.UsageError) and error.ctx:
            warn(error.ctx.get_usage())
        return fail(error.format_message(), error, Exit.WRONG_USE, as_json)
    except (config.ConfigError, WrongUse) as error:
        return fail(str(error), error, Exit.WRONG_USE, as_json)
    except EXPECTED as error:
        return fail(str(error), error, Exit.FAILED, as_json)
    except (KeyboardInterrupt, click.Abort) as error:
        return fail("interrupted", error, Exit.FAILED, as_json)


def fail(message: str, error: BaseException, code: Exit, as_json: bool, **told: Any) -> int:
    """Says what went wrong, in JSON with what else is to be told, and returns the exit code."""
    warn(f"error: {message}")
    if as_json:
        print_json({"error": {"type": type(error).__name__, "message": message}, **told})
    return code


# From the command line to the pipeline


def as_json(context: typer.Context) -> bool:
    """Whether the answer is to be JSON."""
    return f"{__name__}.json" in context.meta


def configuration(context: typer.Context) -> config.Config:
    """The configuration that the command was given, read once."""
    kept = f"{__name__}.configuration"
    if kept not in context.meta:
        context.meta[kept] = config.load(context.meta.get(f"{__name__}.config"))
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
    given = context.meta.get(f"{__name__}.config")
    return f" --config {shlex.quote(given)}" if given else ""


def chosen_dataset(context: typer.Context) -> str | None:
    """The dataset that the command line names, if any."""
    return context.meta.get(f"{__name__}.dataset")


def operator() -> str:
    """Who decides, for the records."""
    return f"{operator_name()} (manifest-platform {__version__})"
