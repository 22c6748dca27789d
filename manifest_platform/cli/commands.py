"""The commands: each asks the pipeline for one thing, prints the answer, and returns its exit code."""

from __future__ import annotations

import dataclasses
import shlex
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from enum import IntEnum
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from manifest_platform import config, spark
from manifest_platform.cli.output import (
    WIDTH,
    event_document,
    print_history,
    print_json,
    print_outlook,
    print_status,
    print_summary,
    progress,
    say,
    some,
    warn,
)
from manifest_platform.cli.standing import Answer, StepStatus, outlook, step_status
from manifest_platform.identity import operator_name
from manifest_platform.landing.errors import LandingError
from manifest_platform.manifest import (
    EVERYONE,
    InvalidKey,
    ItemKey,
    Record,
    Refused,
    StoreError,
    UnknownItem,
)
from manifest_platform.pipeline import (
    FEED,
    LOAD,
    SHRED,
    Budget,
    DrainReport,
    Pipeline,
    Stop,
)
from manifest_platform.pipeline import drain as draining
from manifest_platform.pipeline.pipeline import __version__
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


EXPECTED = (Interrupted, Refused, LandingError, StoreError, WarehouseError, spark.SparkUnavailable)
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


class _Command(TyperCommand):
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
    "Items are named by run name (run=2024-05-14-12-40-00) or by URI.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

ItemName = Annotated[str, typer.Argument(metavar="ITEM", help="A run name (run=YYYY-MM-DD-HH-MM-SS) or a URI.")]
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
        return _fail(error.format_message(), error, Exit.WRONG_USE, as_json)
    except (config.ConfigError, WrongUse) as error:
        return _fail(str(error), error, Exit.WRONG_USE, as_json)
    except EXPECTED as error:
        return _fail(str(error), error, Exit.FAILED, as_json)
    except (KeyboardInterrupt, click.Abort) as error:
        return _fail("interrupted", error, Exit.FAILED, as_json)


def _fail(message: str, error: BaseException, code: Exit, as_json: bool) -> int:
    warn(f"error: {message}")
    if as_json:
        print_json({"error": {"type": type(error).__name__, "message": message}})
    return code


# Looking


@app.command(cls=_Command)
def status(context: typer.Context) -> int:
    """Shows how every feed stands.

    Watermark, lag, counts, what is next or blocks it, who works on it. Exit 3 if one is blocked.
    """
    settings, chosen = _config(context), context.meta.get(f"{__name__}.dataset")
    reports: list[StepStatus] = []
    for dataset in [settings.dataset(chosen)] if chosen else settings.datasets:
        with _pipeline(context, dataset) as pipeline:
            steps = [step_status(pipeline, application, _options(context)) for application in (SHRED, LOAD)]
            reports += steps
            if not _as_json(context):
                say(f"dataset {dataset}, feed {FEED}, landing at {pipeline.dataset.landing.root}")
                shred, load = steps
                print_status(shred)
                print_status(load, same_reason=shred.outlook.reason == load.outlook.reason != "")
    if _as_json(context):
        print_json({"steps": reports})
    return Exit.BLOCKED if any(report.outlook.answer is Answer.BLOCKED for report in reports) else Exit.DONE


@app.command("next", cls=_Command)
def next_(context: typer.Context) -> int:
    """Says what each step may do next.

    Exit 0 something, 3 blocked, 4 nothing.
    """
    with _pipeline(context) as pipeline:
        outlooks = [outlook(pipeline, application, _options(context)) for application in (SHRED, LOAD)]
    if _as_json(context):
        print_json({"next": outlooks})
    else:
        for step in outlooks:
            print_outlook(step)
    answers = {step.answer for step in outlooks}
    if Answer.READY in answers:
        return Exit.DONE
    return Exit.NOTHING if answers == {Answer.IDLE} else Exit.BLOCKED


@app.command(cls=_Command)
def history(context: typer.Context, item: ItemName) -> int:
    """Shows all that happened to an item."""
    with _pipeline(context) as pipeline:
        found = pipeline.manifest.item(_key(pipeline, item))
    if _as_json(context):
        print_json({"item": found.key, "problems": found.problems, "records": [one.to_dict() for one in found.records]})
        return Exit.DONE
    print_history(found)
    for problem in found.problems:
        warn(f"warning: {problem}")
    return Exit.DONE


# Working


@app.command(cls=_Command)
def discover(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Look at every directory, not only from the look-back on.")] = False,
) -> int:
    """Registers the complete directories that have landed. Exit 4 if there is nothing new."""
    with _pipeline(context) as pipeline:
        report = pipeline.discover(everything)
        root = pipeline.dataset.landing.root
    if report.changed:
        warn(
            f"warning: {some(report.changed)} changed after discovery; the first content stands. Put it back, or land the new"
            " content under another name"
        )
    if report.moved:
        warn(
            f"warning: {some(report.moved)} in {root}: known under another URI, not registered; if the landing root was moved,"
            " move it back or set landing.root to where it was"
        )
    if report.future:
        warn(f"warning: {some(report.future)} in {root}: dated more than a day ahead, not registered; check the writer's clock")
    if report.unparseable:
        warn(f"warning: {some(report.unparseable)} in {root}: no run's name (run=YYYY-MM-DD-HH-MM-SS), left alone")
    if _as_json(context):
        fields = {field.name: getattr(report, field.name) for field in dataclasses.fields(report) if field.name != "landed"}
        print_json(fields)
    else:
        kinds = {
            "new": report.new,
            "late": report.late,
            "quarantined": report.quarantined,
            "not complete yet": report.incomplete,
        }
        for kind, names in kinds.items():
            if names:
                say(f"{len(names)} {kind}: {some(names)}")
        if not report.registered:
            say(f"nothing new; {report.known} known")
    return Exit.DONE if report.registered else Exit.NOTHING


@app.command(cls=_Command)
def drain(
    context: typer.Context,
    items: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after so many items.")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, metavar="S", help="Begin nothing new after so many seconds.")] = None,
) -> int:
    """Shreds and loads in order what has landed.

    Until nothing is left, something blocks, or the budget is spent. Exit 0 work was done, 1 something failed or the lease is
    held, 3 blocked, 4 nothing to do. With --json: one line an event, then the summary.
    """
    as_json = _as_json(context)
    report = DrainReport()
    with _pipeline(context) as pipeline, _ending_well():
        conf = pipeline.config.spark.conf
        with closing(draining(pipeline, lambda: spark.session(conf), Budget(items, seconds))) as events:
            for event in events:
                if isinstance(event, DrainReport):
                    report = event
                elif as_json:
                    print_json(event_document(event))
                else:
                    say(progress(event))
    command = f"{report.command}{_options(context)}" if report.command else ""
    if as_json:
        print_json({"event": "ended", **dataclasses.asdict(report), "command": command})
    else:
        print_summary(report, command)
    if report.stop is Stop.BLOCKED:
        return Exit.BLOCKED
    if report.failed or report.stop in (Stop.BUSY, Stop.UNAVAILABLE, Stop.FENCED):
        return Exit.FAILED
    return Exit.DONE if report.shredded or report.loaded else Exit.NOTHING


@contextmanager
def _ending_well() -> Generator[None]:
    """Lets a terminated drain give its leases back like an interrupted one. Raises Interrupted for either."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted("interrupted; the leases are given back, and the next drain settles what was in work") from error
    finally:
        signal.signal(signal.SIGTERM, before)


# Deciding


@app.command(cls=_Command)
def resolve(context: typer.Context, item: ItemName, reason: Reason = "no reason given") -> int:
    """Frees a failed item for another attempt."""
    with _pipeline(context, author=_operator()) as pipeline:
        key = _key(pipeline, item)
        return _decided(context, key, pipeline.manifest.resolve(key, reason), "the next drain tries it again")


@app.command(cls=_Command)
def skip(
    context: typer.Context,
    item: ItemName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why its data may be missing, for the records.")],
    application: Annotated[str, typer.Option(metavar="NAME", help=f"{SHRED}, {LOAD} or {EVERYONE} for both.")] = EVERYONE,
) -> int:
    """Passes over an item, until `unskip`.

    Its data stays out of the warehouse.
    """
    with _pipeline(context, author=_operator()) as pipeline:
        key = _key(pipeline, item)
        return _decided(context, key, pipeline.manifest.skip(key, reason, application), "the feed goes on without it")


@app.command(cls=_Command)
def unskip(context: typer.Context, item: ItemName, reason: Reason = "no reason given") -> int:
    """Lets a skipped or quarantined item in.

    Behind the watermark it comes in late, where the feed's policy is to append.
    """
    with _pipeline(context, author=_operator()) as pipeline:
        key = _key(pipeline, item)
        return _decided(context, key, pipeline.manifest.unskip(key, reason), "the next drain takes it")


def _decided(context: typer.Context, key: ItemKey, record: Record, outcome: str) -> int:
    if _as_json(context):
        print_json({"item": key, "record": record.to_dict()})
    else:
        say(f"{key.name}: {record.state} by {record.author}; {outcome}")
    return Exit.DONE


def _operator() -> str:
    return f"{operator_name()} (manifest-platform {__version__})"


# Asking the warehouse


@app.command(cls=_Command)
def sql(context: typer.Context, query: Annotated[str, typer.Argument(metavar="QUERY", help="One query, read-only.")]) -> int:
    """Asks the warehouse.

    The dataset's tables need no schema before their names; the ledger is manifest_platform.ledger.
    """
    import duckdb

    from manifest_platform.warehouse.duckdb import DuckDB

    settings = _config(context)
    schema = settings.dataset(context.meta.get(f"{__name__}.dataset"))
    with closing(DuckDB(settings.warehouse.path, read_only=True)) as warehouse:
        connection = warehouse.connection()
        with suppress(duckdb.CatalogException):
            connection.execute(f"SET search_path = '{schema}'")
        try:
            if _as_json(context):
                found = connection.execute(query)
                columns = [column[0] for column in found.description or ()]
                print_json({"rows": [dict(zip(columns, row, strict=True)) for row in found.fetchall()]})
            elif (relation := connection.sql(query)) is not None:
                relation.show(max_width=WIDTH, max_rows=100)
        except duckdb.Error as error:
            raise WarehouseError(f"{warehouse.path}: {error}") from error
    return Exit.DONE


# From the command line to the pipeline


def _as_json(context: typer.Context) -> bool:
    return f"{__name__}.json" in context.meta


def _config(context: typer.Context) -> config.Config:
    return config.load(context.meta.get(f"{__name__}.config"))


@contextmanager
def _pipeline(context: typer.Context, dataset: str | None = None, author: str | None = None) -> Generator[Pipeline]:
    settings = _config(context)
    name = settings.dataset(dataset or context.meta.get(f"{__name__}.dataset"))
    with Pipeline(settings, name, author=author) as pipeline:
        yield pipeline


def _key(pipeline: Pipeline, item: str) -> ItemKey:
    try:
        return pipeline.key(item)
    except UnknownItem:
        raise
    except (Refused, InvalidKey, UnsupportedLocation) as error:
        raise WrongUse(str(error)) from error


def _options(context: typer.Context) -> str:
    """The configuration that this command was given, as the next one must be given it too."""
    given = context.meta.get(f"{__name__}.config")
    return f" --config {shlex.quote(given)}" if given else ""
