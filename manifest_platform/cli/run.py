"""`run` and `put`: steps of users, as programs in any language or as shell scripts."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manifest_platform.cli.app import Recording, WrongUse, app, as_json, group
from manifest_platform.cli.context import item_key, open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, warn, wrapped
from manifest_platform.cli.remedies import typed
from manifest_platform.manifest import Blocked, Failure, FailureKind, Idle, InvalidKey, ItemKey, Record, State
from manifest_platform.operations.standing import helping
from manifest_platform.pipeline import Pipeline

if TYPE_CHECKING:
    from manifest_platform.pipeline.program import Program

NEXT = "next"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
put = group("put", "Registers, claims and completes items from scripts that do the work of a step.")

StepName = Annotated[str, typer.Option(metavar="NAME", help="Name of your step, as declared in the configuration.")]
Chosen = Annotated[str, typer.Option(metavar="ITEM", help="Item to claim: its name, its URI, or `next`.")]
Named = Annotated[str, typer.Option(metavar="ITEM", help="Item that was claimed: its name or its URI.")]
ClaimId = Annotated[str, typer.Option(metavar="ID", help="Record id of the claim, as printed by `put claim`.")]
LeaseSeconds = Annotated[float, typer.Option(min=1, max=86_400, metavar="S", help="Duration of the lease, in seconds.")]


@app.command(
    cls=Recording, context_settings={"allow_interspersed_args": False}, options_metavar="--application NAME [OPTIONS] --"
)
def run(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND [ARGUMENTS]...", help="Program to run, with its arguments.")],
    application: StepName,
    item: Chosen = NEXT,
    lease: LeaseSeconds = 60,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Environment variable to pass to the program; AWS_* for all with this prefix."),
    ] = None,
) -> int:
    """Claims an item, runs a program on it, and records the result.

    Extends the lease while the program runs, and ends the program if the lease is lost. Exit code 0 of the program completes
    the item, with the JSON that the program wrote to $MANIFEST_PLATFORM_OUTPUT. Exit code 75 is a transient failure, any other
    a permanent one. The program may see an item twice, so make it idempotent. Its environment has
    only PATH, HOME, the language, the time zone, and the variables that --env and the step's configuration name.
    """
    from manifest_platform.pipeline.program import Program
    from manifest_platform.pipeline.program import run as running

    output = sys.stderr.fileno() if as_json(context) else None
    with open_pipeline(context) as pipeline, _passing_signals_on() as passing:

        def start(environment: dict[str, str]) -> Program:
            return passing.start(lambda: Program(command, environment, output))

        variables = _variables(env or ())
        ran = running(pipeline, application, _wanted(pipeline, item), timedelta(seconds=lease), start, variables)
        if isinstance(ran, Blocked):
            return _blocked(context, pipeline, application, ran)
    if isinstance(ran, Idle):
        return _idle(context)
    if as_json(context):
        print_json({"item": ran.key, "exit_code": ran.exit_code, "record": ran.record.to_dict()})
    elif ran.record.state is State.FAILED:
        warn(wrapped(f"{ran.key.name}: {application} failed ({ran.record.data['kind']}): {ran.record.data['message']}"))
    else:
        say(f"{ran.key.name}: {ran.record.state} by {application}")
    return Exit.DONE if ran.record.state is State.PROCESSED else Exit.FAILED


@put.command(cls=Recording)
def new(
    context: typer.Context,
    item: Annotated[str, typer.Option(metavar="URI", help="Id of the item: https://…, file:///…, span:…/…, or any URI.")],
    sort: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Sort key of the item. Default: --stop, else --start, else now.")
    ] = None,
    start: Annotated[str | None, typer.Option(metavar="TIME", help="Start of the item's time span.")] = None,
    stop: Annotated[str | None, typer.Option(metavar="TIME", help="End of the item's time span.")] = None,
    checksum: Annotated[
        str, typer.Option(metavar="TEXT", help="Checksum of the content. Another checksum for the same item is refused.")
    ] = "",
    size: Annotated[int, typer.Option(min=0, metavar="BYTES", help="Size of the content.")] = 0,
) -> int:
    """Registers an item that is not a directory, in a dataset with `source: items`.

    Idempotent: a known item does not change. Prints JSON.
    """
    from manifest_platform.pipeline.program import new as registering

    with open_pipeline(context) as pipeline:
        try:
            found = registering(pipeline, item, sort, start, stop, checksum, size)
        except InvalidKey as error:
            raise WrongUse(str(error)) from error
    key = found.landed.key
    print_json({"item": key.id, "sort": key.sort, "outcome": found.outcome, "skipped_by": found.skipped_by})
    return Exit.DONE


@put.command(cls=Recording)
def claim(context: typer.Context, application: StepName, item: Chosen = NEXT, lease: LeaseSeconds = 3600) -> int:
    """Claims an item for a script. The script ends the claim with `put complete` or `put fail`.

    Nothing extends the lease: after it expires, another worker may take the item over. Prints JSON.
    """
    from manifest_platform.pipeline.program import claim as claiming

    with open_pipeline(context) as pipeline:
        claimed = claiming(pipeline, application, _wanted(pipeline, item), timedelta(seconds=lease))
        if isinstance(claimed, Blocked):
            return _blocked(context, pipeline, application, claimed)
        if isinstance(claimed, Idle):
            return _idle(context)
        key, record = claimed.item.key, claimed.processing
        held = pipeline.manifest.lease(record.application, key.feed)
        until = held.expires_at if held else None
        told = {"token": record.token, "lease_until": until, "run_id": record.run_id}
        print_json({"item": key.id, "record": record.record_id, **told})
    return Exit.DONE


@put.command(cls=Recording)
def complete(
    context: typer.Context,
    item: Named,
    application: StepName,
    record: ClaimId,
    payload: Annotated[
        str | None, typer.Option(metavar="FILE", help="File with JSON to write into the record. `-` reads stdin.")
    ] = None,
) -> int:
    """Completes an item that `put claim` claimed."""
    from manifest_platform.manifest.payloads import InvalidPayload
    from manifest_platform.pipeline import program

    try:
        made = program.payload_of(_read(payload) if payload else "{}")
        with open_pipeline(context) as pipeline:
            key = item_key(pipeline, item)
            return _said(context, key, program.complete(pipeline, key, application, record, made))
    except InvalidPayload as error:
        raise WrongUse(str(error)) from error


@put.command(cls=Recording)
def fail(
    context: typer.Context,
    item: Named,
    application: StepName,
    record: ClaimId,
    message: Annotated[str, typer.Option(metavar="TEXT", help="Cause of the failure.")],
    transient: Annotated[
        bool, typer.Option("--transient", help="Mark the failure as transient: it is retried as the policy allows.")
    ] = False,
) -> int:
    """Fails an item that `put claim` claimed."""
    from manifest_platform.pipeline import program

    failure = Failure(FailureKind.TRANSIENT if transient else FailureKind.PERMANENT, message)
    with open_pipeline(context) as pipeline:
        key = item_key(pipeline, item)
        return _said(context, key, program.fail(pipeline, key, application, record, failure))


def _variables(names: Sequence[str]) -> Sequence[str]:
    """Returns the names given to --env. Raises WrongUse if a variable is not set, or if the text is no name."""
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise WrongUse(
                f"--env {name.partition('=')[0]}: write the name of an environment variable, or a prefix such as AWS_*"
            )
        if not name.endswith("*") and name not in os.environ:
            raise WrongUse(f"--env {name}: the variable is not set; set it, or leave the option out")
    return names


def _wanted(pipeline: Pipeline, item: str) -> ItemKey | None:
    return None if item == NEXT else item_key(pipeline, item)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"cannot read {file}: {error}") from error


def _said(context: typer.Context, key: ItemKey, record: Record) -> int:
    if as_json(context):
        print_json({"item": key, "record": record.to_dict()})
    else:
        say(f"{key.name}: {record.state} by {record.application.key}")
    return Exit.DONE


def _idle(context: typer.Context) -> int:
    if as_json(context):
        print_json({"item": None})
    else:
        say("nothing to do")
    return Exit.NOTHING


def _blocked(context: typer.Context, pipeline: Pipeline, application: str, verdict: Blocked) -> int:
    step = pipeline.manifest.step(verdict.item.key.feed, application)
    name, command = verdict.item.key.name, typed(context, pipeline.name)(helping(step, verdict))
    if as_json(context):
        told: dict[str, Any] = {"standing": verdict.standing, "reason": verdict.reason, "command": command}
        print_json({"item": None, "blocked_by": verdict.item.key, **told})
    else:
        warn(wrapped(f"blocked by {name}: {verdict.reason}"))
        warn(f"next: {command}")
    return Exit.BLOCKED


class _Passing:
    """Forwards signals to the running program. A signal that arrives while the program starts is forwarded afterward."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._starting = False
        self._came: list[int] = []

    def start(self, start: Callable[[], Program]) -> Program:
        self._starting = True
        try:
            program = self._program = start()
        finally:
            self._starting = False
        for number in self._came:
            program.pass_on(number)
        return program

    def take(self, number: int, frame: Any) -> None:
        """The handler of the signals."""
        if self._program:
            self._program.pass_on(number)
        elif self._starting:
            self._came.append(number)
        else:
            signal.default_int_handler(number, frame)


@contextmanager
def _passing_signals_on() -> Generator[_Passing]:
    """Forwards signals to the running program, so that it ends and its claim is ended. Without a program they act as usual."""
    passing = _Passing()
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.signal(number, passing.take) for number in numbers]
    try:
        yield passing
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
