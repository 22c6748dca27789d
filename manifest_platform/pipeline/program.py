"""A step's work done by a program in any language: the item is claimed, the program runs, and its exit code ends the claim.

Belongs here: the steps that a dataset's configuration declares besides shred and load. Such a step has no ledger that could
tell whether a dead worker had finished. Its claim is failed as `lease_expired` and tried again, so a program may receive an
item twice and must be idempotent (at least once). The program receives the claim's record id and token, which identify the
attempt.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from manifest_platform import spool
from manifest_platform.manifest import (
    OUTPUT,
    Abandoned,
    Application,
    Blocked,
    Claim,
    ClaimLost,
    Discovered,
    Failure,
    FailureKind,
    Idle,
    Item,
    ItemKey,
    Landed,
    Lease,
    LeaseLost,
    Manifest,
    Payload,
    Ready,
    Record,
    Refused,
    Standing,
    State,
    Step,
    StepState,
    StoreError,
)
from manifest_platform.manifest.beside import is_waiting
from manifest_platform.manifest.dataset import blocked, judge
from manifest_platform.manifest.keys import pending_key
from manifest_platform.manifest.lease import write_lease
from manifest_platform.manifest.payloads import InvalidPayload, InvalidSchema
from manifest_platform.manifest.records import format_time
from manifest_platform.manifest.store import StoreRejected
from manifest_platform.manifest.transitions import expire
from manifest_platform.masking import masked
from manifest_platform.outward import clean
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.settings import StepSettings
from manifest_platform.sources.source import LOAD, SHRED

log = logging.getLogger(__name__)

TEMPORARY_FAILURE = 75
"""The exit code (EX_TEMPFAIL) by which a program reports a transient error: it is retried as often as the policy allows."""
KILL_AFTER_SECONDS = 10.0
"""The time that a program has to end after SIGTERM."""
QUIET_SECONDS, REST_SECONDS = 1.0, 30.0
"""Reading an ended program's stderr stops after QUIET_SECONDS without output, and after REST_SECONDS in any case."""
ERROR_LINES, LINE_CHARACTERS, MESSAGE_CHARACTERS = 40, 65_536, 1500
LONGEST_ID, LONGEST_SORT = 700, 100
"""The maximum characters of an item's id and sort key, so that they fit into every store's keys."""
_URI = re.compile(r"[a-z][a-z0-9+.-]*:[^\s]+")
_PREFIX = "MANIFEST_PLATFORM_"
SAFE = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR"),
    *("MANIFEST_PLATFORM_CONFIG", spool.VARIABLE),
)
"""The environment variables that every program receives. None of them holds a secret. `*` stands for any ending."""


@dataclass(frozen=True)
class Ran:
    """The result of a program: the record that ended its claim, and its exit code (None: it could not be started)."""

    key: ItemKey
    record: Record
    exit_code: int | None


class Program:
    """A program in its own process group, with exactly this environment. Its stderr is cleaned and passed on, and its end kept.

    `pass_on` and `end` may be called from other threads and from signal handlers. `interrupted`: true if it was told to end.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str], output: int | IO[Any] | None = None):
        self._errors: deque[str] = deque(maxlen=ERROR_LINES)
        self._pieces = 0
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._timer: threading.Timer | None = None
        self.interrupted = False

    def _read(self) -> None:
        stderr, held = self._process.stderr, ""
        while stderr and ((piece := stderr.readline(LINE_CHARACTERS)) or held):
            said = masked(held + piece)
            # A line without end comes in pieces. Half of a piece is held back, because a secret may extend into the next piece.
            keep = LINE_CHARACTERS // 2 if piece and not piece.endswith("\n") else 0
            said, held = said[: max(0, len(said) - keep)], said[max(0, len(said) - keep) :]
            self._errors.append(said)
            self._pieces += 1
            with suppress(OSError, ValueError):  # even if our own stderr is closed, the program's must be read
                sys.stderr.write(clean(said))
                sys.stderr.flush()

    @property
    def errors(self) -> str:
        """The end of its stderr."""
        return "".join(self._errors).strip()

    def pass_on(self, number: int) -> None:
        """Sends a signal to the program and to all processes that it started."""
        self.interrupted = True
        self._signal(number)

    def _signal(self, number: int) -> bool:
        """Sends a signal to the rest of the group. Returns False if no process is left."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # PermissionError: some systems, if only dead processes are left
            return False
        return True

    def end(self) -> None:
        """Tells the program to end, and kills it if it does not."""
        self.pass_on(signal.SIGTERM)
        if self._timer:
            return
        self._timer = threading.Timer(KILL_AFTER_SECONDS, self.pass_on, [signal.SIGKILL])
        self._timer.daemon = True
        self._timer.start()

    def wait(self) -> int:
        """Waits for its end. Returns the exit code, which is negative if a signal ended it.

        If it was told to end, the processes that it started end too, and are killed after a while.
        """
        code = self._process.wait()
        if self.interrupted:
            deadline = time.monotonic() + KILL_AFTER_SECONDS
            while self._signal(0) and time.monotonic() < deadline:
                time.sleep(0.05)
            self._signal(signal.SIGKILL)
        if self._timer:
            self._timer.cancel()
        self._read_the_rest()
        return code

    def _read_the_rest(self) -> None:
        """Reads the rest of its stderr: to the end, or until no output comes because a background process holds it open.

        One second was too short: on a busy machine, the end of a long message with the cause of the failure was lost.
        """
        deadline, before = time.monotonic() + REST_SECONDS, -1
        while self._reader.is_alive() and before != self._pieces and time.monotonic() < deadline:
            before = self._pieces
            self._reader.join(timeout=QUIET_SECONDS)


def run(
    pipeline: Pipeline,
    application: str,
    wanted: ItemKey | None,
    duration: timedelta,
    start: Callable[[dict[str, str]], Program],
    variables: Sequence[str] = (),
) -> Ran | Blocked | Idle:
    """Claims an item (`wanted`, or the next item), runs a program on it and ends the claim.

    `start`: starts the program with an environment: the safe variables, those named by the step's configuration and by
    `variables`, and those that describe the claim.

    Exit code 0 completes the claim, with the JSON in the file $MANIFEST_PLATFORM_OUTPUT; any other code fails it. Raises
    Refused for an item that is not next; LeaseBusy; LeaseLost, after ending the program: the next holder settles the claim.
    """
    feed = own_feed(pipeline, application)
    with pipeline.manifest.acquire(feed, application, pipeline.holder, duration) as lease:
        chosen = choose(pipeline, lease, wanted)
        if not isinstance(chosen, Ready):
            return chosen
        [claim] = pipeline.manifest.claim(lease, [chosen.item], chosen.state)
        with spool.folder("program") as folder:
            named = (*_declared(pipeline, application).environment, *variables)
            environment = {**passed_on(named), **_environment(pipeline, claim, folder)}
            try:
                program = start(environment)
            except OSError as error:
                failure = Failure(FailureKind.PERMANENT, f"the program cannot be started: {error}", type(error).__name__)
                return Ran(chosen.item.key, pipeline.manifest.fail(claim, failure), None)
            try:
                with (
                    lease.within(pipeline.config.limits.of("program"), f"{application} on {chosen.item.key.name}"),
                    lease.canceling(program.end),
                ):
                    code = program.wait()
                lease.check()
            except LeaseLost:
                program.end()
                program.wait()
                raise
            record = _ended(pipeline, claim, program, code, Path(folder, "output.json"))
        return Ran(chosen.item.key, record, code)


def new(
    pipeline: Pipeline,
    id_: str,
    sort: str | None = None,
    start: str | None = None,
    stop: str | None = None,
    checksum: str = "",
    size: int = 0,
) -> Discovered:
    """Registers an item that is not a directory, by its id, which may be any URI. Idempotent.

    `sort`: its sort key; by default the end or the start of its span, else the present time. `start`, `stop`: of its span, in
    ISO 8601. `checksum`, and `size` in bytes: of its content. Raises Refused if the dataset's items are directories, if the id
    is not a URI, if a time is invalid, and for a known id with another checksum; InvalidKey.
    """
    if not pipeline.source.registered:
        raise Refused(
            f"the items of dataset {pipeline.name} are directories that land, and `discover` registers them. Register items of"
            " programs in a dataset with `source: items`"
        )
    if not _URI.fullmatch(id_) or len(id_) > LONGEST_ID:
        raise Refused(
            f"item {id_[:80]!r}: an id must be a URI of at most {LONGEST_ID} characters, such as https://…, file:///…, span:…/…"
        )
    began, ended = _moment(pipeline, "start", start), _moment(pipeline, "stop", stop)
    if began and ended and began > ended:
        raise Refused(f"{id_}: it stops at {stop}, before it starts at {start}")
    # In one form, so that the texts sort as the times do.
    start, stop = format_time(began) if began else None, format_time(ended) if ended else None
    sort = sort or stop or start or format_time(pipeline.clock())
    if len(sort) > LONGEST_SORT:
        raise Refused(f"sort key {sort[:80]!r} is too long: at most {LONGEST_SORT} characters")
    key = ItemKey(pipeline.source.registered[0], sort, id_)
    found = pipeline.manifest.register(Landed(key, 0, size, checksum, start, stop))
    if found.outcome == "changed":
        raise Refused(f"{id_} is registered with another checksum, and stays so. Register other content under another id")
    return found


def _moment(pipeline: Pipeline, which: str, text: str | None) -> datetime | None:
    time_ = pipeline.source.time(text) if text else None
    if text and time_ is None:
        raise Refused(f"{which} {text[:80]!r} is not a time: write it as 2026-01-31T12:00Z, in UTC if it names no zone")
    return time_


def claim(pipeline: Pipeline, application: str, wanted: ItemKey | None, duration: timedelta) -> Claim | Blocked | Idle:
    """Claims an item for a program that ends the claim itself, within the lease's duration. Nothing extends the lease.

    Raises Refused for an item that is not next, LeaseBusy.
    """
    lease = pipeline.manifest.acquire(own_feed(pipeline, application), application, pipeline.holder, duration)
    try:
        chosen = choose(pipeline, lease, wanted)
        if not isinstance(chosen, Ready):
            lease.release()
            return chosen
        [claimed] = pipeline.manifest.claim(lease, [chosen.item], chosen.state)
    except BaseException:
        lease.release()
        raise
    lease.leave()
    return claimed


def complete(pipeline: Pipeline, key: ItemKey, application: str, record_id: str, payload: Payload) -> Record:
    """Completes a claim made by `claim`, and gives its lease back. Raises ClaimLost, InvalidPayload."""
    held = _held(pipeline, key, application, record_id)
    record = pipeline.manifest.complete(held, payload)
    _give_back(pipeline, held)
    return record


def fail(pipeline: Pipeline, key: ItemKey, application: str, record_id: str, failure: Failure) -> Record:
    """Fails a claim made by `claim`, and gives its lease back. Raises ClaimLost."""
    held = _held(pipeline, key, application, record_id)
    record = pipeline.manifest.fail(held, failure)
    _give_back(pipeline, held)
    return record


def payload_of(text: str) -> Payload:
    """Returns the payload in a program's output: a JSON object, or `{schema, data}`. Raises InvalidPayload."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(f"the program's output is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise InvalidPayload("the program's output is not a JSON object")
    if data.keys() == {"schema", "data"} and isinstance(data["schema"], str) and isinstance(data["data"], dict):
        return Payload(data["schema"], data["data"])
    return Payload(OUTPUT, data)


def own_feed(pipeline: Pipeline, application: str) -> str:
    """Returns the feed of a step that programs may work for. Raises Refused for any other step."""
    if Application.parse(application).name in (SHRED, LOAD):
        raise Refused(f"{application} is a step of the platform: a drain does its work, not a program")
    return _declared(pipeline, application).feed or pipeline.source.main


def passed_on(variables: Sequence[str]) -> dict[str, str]:
    """Returns the variables that a program receives: the safe ones, and those that match a pattern, such as `AWS_*`."""
    patterns = (*SAFE, *variables)
    return {name: value for name, value in os.environ.items() if any(fnmatchcase(name, pattern) for pattern in patterns)}


def _declared(pipeline: Pipeline, application: str) -> StepSettings:
    """Returns a user's own step from the configuration. Raises Refused if it is not declared."""
    declared = {step.name: step for step in pipeline.dataset.steps}
    if application not in declared:
        raise Refused(
            f"dataset {pipeline.name} declares no step {application!r} (its own: {', '.join(declared) or 'none yet'}). Declare"
            f" it in the configuration, under datasets.{pipeline.name}.steps"
        )
    return declared[application]


def choose(pipeline: Pipeline, lease: Lease, wanted: ItemKey | None) -> Ready | Blocked | Idle:
    """Returns the work to do next, after ending the claims of dead workers. Raises Refused if the wanted item is not next."""
    manifest = pipeline.manifest
    manifest.follow(lease)
    unsettled = manifest.unsettled(lease)
    while True:
        if wanted and not unsettled and not _step(pipeline, lease).ordered:
            verdict: Ready | Blocked | Abandoned | Idle = _chosen(pipeline, lease, manifest.item(wanted))
        else:
            verdict = unsettled or manifest.next(lease.feed, lease.application.key, holding=True)
        unsettled = None
        if isinstance(verdict, Abandoned):
            manifest.abandon(lease, verdict)
        elif isinstance(verdict, Ready) and wanted and verdict.item.key != wanted:
            raise Refused(f"{wanted.name} is not next for {lease.application.key}: {verdict.item.key.name} is")
        else:
            return verdict


def _step(pipeline: Pipeline, lease: Lease) -> Step:
    return pipeline.manifest.step(lease.feed, lease.application.key)


def _chosen(pipeline: Pipeline, lease: Lease, item: Item) -> Ready | Blocked | Abandoned:
    """Returns what may be done with an item of an unordered step. Raises Refused if it is done or skipped."""
    step = _step(pipeline, lease)
    judged = judge(item, step, StepState().feed(item.key.feed))
    if judged.standing is Standing.READY:
        _check_waits(pipeline.manifest, item, step)
        return Ready(item, StepState())
    if judged.standing is Standing.PROCESSING and judged.record and judged.record.application.key == step.application.key:
        return Abandoned(item, judged.record)
    if judged.standing in (Standing.DONE, Standing.SKIPPED):
        raise Refused(f"{item.key.name} is {judged.standing} for {step.application.key}")
    return blocked(item, judged)


def _check_waits(manifest: Manifest, item: Item, step: Step) -> None:
    """Raises Refused for an item without its waiting row, because its claim could not be completed in the end."""
    if is_waiting(item, step) and manifest.store.get(manifest.dataset, pending_key(step.application, item.key)) is None:
        raise Refused(
            f"{item.key.name} does not wait for {step.application.key} yet, because the step is newer than the item. Repair"
            " once to make all existing items wait for it",
            Remedy(Action.REPAIR),
        )


def _environment(pipeline: Pipeline, claim: Claim, folder: Path) -> dict[str, str]:
    """Returns the variables that describe a claim. A file has the payloads of the upstream steps, by application."""
    upstream = folder / "upstream.json"
    made = {name: claim.item.processed_by(Application(name)) for name in claim.step.upstream}
    upstream.write_text(json.dumps({name: record.data for name, record in made.items() if record}))
    told = {
        "DATASET": pipeline.name,
        "FEED": claim.item.key.feed,
        "APPLICATION": claim.step.application.key,
        "ITEM": claim.item.key.id,
        "RUN": claim.item.key.name,
        "RECORD": claim.processing.record_id,
        "TOKEN": str(claim.processing.token),
        "RUN_ID": pipeline.run_id,
        "UPSTREAM": str(upstream),
        "OUTPUT": str(folder / "output.json"),
    }
    return {f"{_PREFIX}{name}": value for name, value in told.items()}


def _ended(pipeline: Pipeline, claim: Claim, program: Program, code: int, output: Path) -> Record:
    """Ends a claim by its program's exit code and output."""
    if code == 0:
        try:
            return pipeline.manifest.complete(claim, _written(output))
        except (InvalidPayload, InvalidSchema, StoreRejected) as error:
            return pipeline.manifest.fail(claim, Failure.of(error))
    how = f"exit code {code}" if code > 0 else f"ended by {_signal_name(-code)}"
    passing = code == TEMPORARY_FAILURE or program.interrupted
    message = f"{how}: {program.errors[-MESSAGE_CHARACTERS:]}" if program.errors else how
    return pipeline.manifest.fail(claim, Failure(FailureKind.TRANSIENT if passing else FailureKind.PERMANENT, message))


def _written(output: Path) -> Payload:
    """Returns the payload that a program wrote to its file, if any. Raises InvalidPayload."""
    try:
        return payload_of(output.read_text()) if output.exists() else Payload(OUTPUT, {})
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPayload(f"the program's output cannot be read: {error}") from error


def _signal_name(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def _held(pipeline: Pipeline, key: ItemKey, application: str, record_id: str) -> Claim:
    """Returns a claim by its record's id. Raises ClaimLost if there is no such claim, or if it has ended."""
    step = pipeline.manifest.step(own_feed(pipeline, application), application)
    item = pipeline.manifest.item(key)
    for record in item.records:
        if record.record_id == record_id and record.state is State.PROCESSING and record.application.key == application:
            return Claim(item, record, step, pipeline.manifest.state(step.application), pipeline.manifest.dataset)
    raise ClaimLost(f"{key.name} has no claim {record_id!r} of {application}: claim it first")


def _give_back(pipeline: Pipeline, held: Claim) -> None:
    """Gives back the lease of a claim, if it is still the same. On an error it expires: the claim itself has ended."""
    manifest, application, feed = pipeline.manifest, held.step.application, held.item.key.feed
    try:
        lease = manifest.lease(application, feed)
        if lease and lease.token == held.processing.token and not lease.given_back:
            write_lease(manifest.store, manifest.dataset, application, feed, expire(lease))
    except StoreError as error:
        log.warning("the lease of %s was not given back, and expires by itself: %s", application.key, error)
