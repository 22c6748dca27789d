"""The commands by which programs of any language take part: a step of one's own, from a shell."""

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
put = group("put", "Registers items and claims them, for scripts that do a step's work by themselves.")

StepName = Annotated[str, typer.Option(metavar="NAME", help="A step of your own, declared in the configuration.")]
Chosen = Annotated[str, typer.Option(metavar="ITEM", help="A run name, a URI, or `next`.")]
Named = Annotated[str, typer.Option(metavar="ITEM", help="The item that was claimed: a run name or a URI.")]
ClaimId = Annotated[str, typer.Option(metavar="ID", help="The claim's record, as `put claim` printed it.")]
LeaseSeconds = Annotated[float, typer.Option(min=1, max=86_400, metavar="S", help="How long the lease is.")]


@app.command(
    cls=Recording, context_settings={"allow_interspersed_args": False}, options_metavar="--application NAME [OPTIONS] --"
)
def run(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND [ARGUMENTS]...", help="The program to run.")],
    application: StepName,
    item: Chosen = NEXT,
    lease: LeaseSeconds = 60,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A variable that the program gets beside those that are safe; AWS_* for all such."),
    ] = None,
) -> int:
    """Runs a program on an item that it claims, and ends the claim.

    While it runs, the lease is extended; where it is lost, the program is ended. Exit code 0 completes the item, with the JSON
    that the program wrote to $MANIFEST_PLATFORM_OUTPUT; 75 fails it as a passing fault, any other for good. An item may be met
    twice. Of the environment the program gets PATH, HOME, the language, the time zone, and what --env and the step's
    configuration name.
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
    item: Annotated[str, typer.Option(metavar="URI", help="Its id: https://…, file:///…, span:…/…, or any other URI.")],
    sort: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Its place in the order; else --stop, --start or now.")
    ] = None,
    start: Annotated[str | None, typer.Option(metavar="TIME", help="Where its span starts.")] = None,
    stop: Annotated[str | None, typer.Option(metavar="TIME", help="Where its span stops.")] = None,
    checksum: Annotated[str, typer.Option(metavar="TEXT", help="Of its content; another one later is refused.")] = "",
    size: Annotated[int, typer.Option(min=0, metavar="BYTES", help="Of its content.")] = 0,
) -> int:
    """Registers an item that is no directory, in a dataset of `source: items`.

    May be repeated: a known item stays as it is. Prints JSON.
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
    """Claims an item for a script, which ends the claim by `put complete` or `put fail`.

    Nothing extends the lease meanwhile: once it has run out, another worker may take the item over. Prints JSON.
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
    payload: Annotated[str | None, typer.Option(metavar="FILE", help="JSON on what was made of it; - for stdin.")] = None,
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
    message: Annotated[str, typer.Option(metavar="TEXT", help="What went wrong.")],
    transient: Annotated[bool, typer.Option("--transient", help="A passing fault: tried again, as the policy allows.")] = False,
) -> int:
    """Fails an item that `put claim` claimed."""
    from manifest_platform.pipeline import program

    failure = Failure(FailureKind.TRANSIENT if transient else FailureKind.PERMANENT, message)
    with open_pipeline(context) as pipeline:
        key = item_key(pipeline, item)
        return _said(context, key, program.fail(pipeline, key, application, record, failure))


def _variables(names: Sequence[str]) -> Sequence[str]:
    """Names of variables, as they are given. Raises WrongUse for one that is not set, or that is no name."""
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise WrongUse(
                f"--env {name.partition('=')[0]}: the name of a variable that is set here, or its beginning as AWS_*"
            )
        if not name.endswith("*") and name not in os.environ:
            raise WrongUse(f"--env {name}: it is not set; set it, or leave the option out")
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
    """Passes signals on to the program that runs; one that comes while it is being started waits until it is."""

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
    """Passes signals on to the program that runs, so that it ends and its claim is ended; without one they do as ever."""
    passing = _Passing()
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.signal(number, passing.take) for number in numbers]
    try:
        yield passing
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
