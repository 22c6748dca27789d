"""Programs of any language as steps: real shell scripts, killed and racing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.manifest import OUTPUT, Application, Failure, FailureKind, Payload, Record, Refused
from manifest_platform.manifest.payloads import InvalidPayload
from manifest_platform.pipeline import SHRED, Pipeline, program
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.cli.test_commands import RUNS, Shop

COUNT, PUBLISH = "count", "publish"
SCRIPT = """#!/bin/sh
set -e
echo "counting $MANIFEST_PLATFORM_RUN" >&2
test "$MANIFEST_PLATFORM_DATASET $MANIFEST_PLATFORM_FEED $MANIFEST_PLATFORM_APPLICATION" = "acme enriched $1"
test "${MANIFEST_PLATFORM_ITEM##*/}" = "$MANIFEST_PLATFORM_RUN"
test "$MANIFEST_PLATFORM_TOKEN" -gt 0
cat "$MANIFEST_PLATFORM_UPSTREAM" > "$2"
files=$(ls "${MANIFEST_PLATFORM_ITEM#file://}" | wc -l)
echo "{\\"rows\\": $files, \\"attempt\\": \\"$MANIFEST_PLATFORM_RECORD\\"}" > "$MANIFEST_PLATFORM_OUTPUT"
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop with two steps of its own, behind shred; three runs are shredded."""
    shop = Shop(tmp_path)
    steps = f"""
    steps:
      - {{name: {COUNT}, upstream: [shred]}}
      - {{name: {PUBLISH}, upstream: [shred, {COUNT}], order: strict}}
"""
    shop.file.write_text(f"{shop.file.read_text().rstrip()}{steps}\nlease: {{seconds: 2, max_attempts: 3}}\n")
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    shop.land(*RUNS)
    assert main(["discover"]) == 0
    for name in RUNS:
        shop.work(SHRED, name)
    return shop


@pytest.fixture
def run(shop: Shop, capfd: pytest.CaptureFixture[str]):
    capfd.readouterr()

    def _run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return _run


def records(shop: Shop, name: str, application: str) -> list[Record]:
    with shop.pipeline() as pipeline:
        return [one for one in pipeline.manifest.history(pipeline.key(name)) if one.application.key == application]


def states(shop: Shop, name: str, application: str) -> list[str]:
    return [str(record.state) for record in records(shop, name, application)]


def lease_is_free(shop: Shop, application: str) -> bool:
    with shop.pipeline() as pipeline:
        lease = pipeline.manifest.lease(Application(application), FEED)
        return lease is None or lease.expires_at.timestamp() <= time.time()


def script(shop: Shop, text: str) -> str:
    file = shop.file.with_name("program.sh")
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


def test_a_shell_script_does_a_step(shop: Shop, run: Any, tmp_path: Path) -> None:
    program, upstream = script(shop, SCRIPT), tmp_path / "upstream.json"
    code, out, err = run("run", "--application", COUNT, "--", program, COUNT, str(upstream))
    assert (code, out) == (0, f"{RUNS[0]}: Processed by count\n")
    assert err == f"counting {RUNS[0]}\n"
    claimed, done = records(shop, RUNS[0], COUNT)
    assert done.data == {"rows": 2, "attempt": claimed.record_id}
    assert done.token == claimed.token == 1
    assert json.loads(upstream.read_text())["shred"]["bytes"] == 2_500_000
    assert lease_is_free(shop, COUNT)
    code, out, _ = run("run", "--application", COUNT, "--item", RUNS[2], "--json", "--", program, COUNT, str(upstream))
    assert (code, json.loads(out)["item"]["name"], json.loads(out)["exit_code"]) == (0, RUNS[2], 0)
    assert run("run", "--application", COUNT, "--", "true")[0] == 0
    assert run("run", "--application", COUNT, "--", "true")[:2] == (4, "nothing to do\n")
    assert json.loads(run("run", "--application", COUNT, "--json", "--", "true")[1]) == {"item": None}


def test_what_a_program_prints_is_no_part_of_json(run: Any) -> None:
    code, out, err = run("run", "--application", COUNT, "--json", "--", "echo", "hello")
    assert (code, err) == (0, "hello\n")
    assert json.loads(out)["record"]["state"] == "Processed"


@pytest.mark.parametrize(
    ("command", "kind", "message"),
    [
        ("echo one >&2; echo two >&2; exit 3", "permanent", "exit code 3: one\ntwo"),
        ("exit 3", "permanent", "exit code 3"),
        ("exit 75", "transient", "exit code 75"),
        ("kill -9 $$", "permanent", "ended by signal SIGKILL"),
        ('echo "{" > $MANIFEST_PLATFORM_OUTPUT', "permanent", "the program's output is not JSON: "),
        ('echo "[]" > $MANIFEST_PLATFORM_OUTPUT', "permanent", "the program's output is not a JSON object"),
        ("mkdir $MANIFEST_PLATFORM_OUTPUT", "permanent", "the program's output cannot be read: "),
        (
            "yes [ | head -n 99999 > $MANIFEST_PLATFORM_OUTPUT",
            "permanent",
            "the program's output is not JSON: maximum recursion",
        ),
        ('echo \'{"half": "\\ud800"}\' > $MANIFEST_PLATFORM_OUTPUT', "permanent", "the payload of a Processed of "),
        ("kill -40 $$", "permanent", "ended by signal 40"),
        ('echo "{\\"rows\\": \\"many\\"}" > $MANIFEST_PLATFORM_OUTPUT', "permanent", "the payload of a Processed of "),
    ],
)
def test_a_program_that_fails_fails_the_item(shop: Shop, run: Any, command: str, kind: str, message: str) -> None:
    code, out, err = run("run", "--application", COUNT, "--", "sh", "-c", command)
    assert (code, out) == (1, "")
    assert f"{RUNS[0]}: count failed ({kind}): " in err
    failed = next(record for record in records(shop, RUNS[0], COUNT) if record.state == "Failed")
    assert failed.data["kind"] == kind
    assert failed.data["message"].startswith(message)
    assert ("Resolved" in states(shop, RUNS[0], COUNT)) == (kind == "transient")
    assert lease_is_free(shop, COUNT)


def test_only_the_end_of_a_long_message_is_kept(shop: Shop, run: Any) -> None:
    run("run", "--application", COUNT, "--", "sh", "-c", "seq 100000 >&2; exit 1")
    message = records(shop, RUNS[0], COUNT)[-1].data["message"]
    assert message.startswith("exit code 1: 99961\n")
    assert message.endswith("\n100000")


@pytest.mark.parametrize("background", ["", "sleep 60 & "])
def test_the_end_of_a_message_that_is_read_slowly_is_kept(background: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a loaded machine, also while a background process holds stderr open."""
    monkeypatch.setattr(program, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(program, "masked", lambda text: time.sleep(0.01) or text)
    running = program.Program(["sh", "-c", f"{background}seq 60 >&2"], {"PATH": os.environ["PATH"]})
    assert running.wait() == 0
    assert running.errors.endswith("\n60")
    running.pass_on(signal.SIGKILL)


def test_a_program_that_leaves_something_chattering_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "REST_SECONDS", 0.3)
    running = program.Program(["sh", "-c", "yes >&2 & exit 3"], {"PATH": os.environ["PATH"]})
    assert running.wait() == 3
    running.pass_on(signal.SIGKILL)
    running._reader.join()


def test_a_program_that_cannot_be_started_fails_the_item(shop: Shop, run: Any) -> None:
    assert run("run", "--application", COUNT, "--", "/nowhere/program")[0] == 1
    assert "cannot be started" in records(shop, RUNS[0], COUNT)[-1].data["message"]


def test_a_strict_step_takes_items_in_order_and_waits_for_what_it_needs(shop: Shop, run: Any) -> None:
    code, _, err = run("run", "--application", PUBLISH, "--", "true")
    assert code == 3
    helps = "next: manifest-platform run --application count -- COMMAND"
    assert err == f"blocked by {RUNS[0]}: count has not processed it yet\n{helps}\n"
    for _ in RUNS:
        run("run", "--application", COUNT, "--", "true")
    code, _, err = run("run", "--application", PUBLISH, "--item", RUNS[1], "--", "true")
    assert (code, err) == (1, f"error: {RUNS[1]} is not next for publish: {RUNS[0]} is\n")
    assert run("run", "--application", PUBLISH, "--item", RUNS[0], "--", "true")[0] == 0
    assert run("run", "--application", PUBLISH, "--", "false")[0] == 1
    code, out, _ = run("run", "--application", PUBLISH, "--json", "--", "true")
    told = json.loads(out)
    assert (code, told["blocked_by"]["name"], told["standing"]) == (3, RUNS[1], "failed")
    assert told["command"] == f"manifest-platform resolve {RUNS[1]}"
    with shop.pipeline() as pipeline:
        assert pipeline.manifest.state(Application(PUBLISH)).feed(FEED).watermark == pipeline.key(RUNS[0]).position


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "--application", "shred", "--", "true"], 1, "shred is a step of the platform"),
        (["run", "--application", "load", "--", "true"], 1, "load is a step of the platform"),
        (["run", "--application", "merge", "--", "true"], 1, "declares no step 'merge' (its own: count, publish)"),
        (["run", "--application", COUNT, "--item", "run=2020-01-01-00-00-00", "--", "true"], 1, "was it discovered?"),
        (["run", "--application", COUNT], 2, "Missing argument 'COMMAND"),
        (["run", "--application", COUNT, "--lease", "0", "--", "true"], 2, "--lease"),
        (["put", "complete", "--application", COUNT, "--item", RUNS[0], "--record", "x"], 1, "has no claim 'x' of count"),
        (
            ["put", "complete", "--application", COUNT, "--item", RUNS[0], "--record", "x", "--payload", "/no"],
            2,
            "cannot read /no",
        ),
    ],
)
def test_misuse_is_refused(shop: Shop, run: Any, arguments: list[str], code: int, message: str) -> None:
    got, _, err = run(*arguments)
    assert (got, message in err) == (code, True)
    assert states(shop, RUNS[0], COUNT) == []


def test_an_item_that_is_older_than_the_step_is_refused_until_the_doctor_made_it_wait(shop: Shop, run: Any) -> None:
    shop.file.write_text(shop.file.read_text().replace("steps:\n", "steps:\n      - {name: report, upstream: [shred]}\n"))
    marker = shop.file.with_name("ran")
    for command in (
        ["run", "--application", "report", "--item", RUNS[1], "--", "touch", str(marker)],
        ["put", "claim", "--application", "report", "--item", RUNS[1]],
    ):
        code, _, err = run(*command)
        assert (code, "Do this first: manifest-platform doctor --repair" in " ".join(err.split())) == (1, True)
    assert not marker.exists()
    assert states(shop, RUNS[1], "report") == []
    with shop.pipeline() as pipeline, pipeline.manifest.acquire(FEED, "report", "other", timedelta(seconds=60)) as lease:
        manifest = pipeline.manifest
        [claim] = manifest.claim(lease, [manifest.item(pipeline.key(RUNS[2]))], manifest.state(lease.application))
        with pytest.raises(Refused, match="or its waiting rows are wrong") as refused:
            manifest.complete(claim, Payload(OUTPUT, {}))
        assert refused.value.remedy == Remedy(Action.REPAIR)
        manifest.fail(claim, Failure(FailureKind.TRANSIENT, "cannot end"))
    run("doctor", "--repair", "--no-warehouse", "--no-objects")
    assert run("run", "--application", "report", "--item", RUNS[1], "--", "true")[0] == 0


def test_an_item_that_is_done_is_not_done_again(shop: Shop, run: Any) -> None:
    run("run", "--application", COUNT, "--", "true")
    code, _, err = run("run", "--application", COUNT, "--item", RUNS[0], "--", "true")
    assert (code, err) == (1, f"error: {RUNS[0]} is done for count\n")


def background(shop: Shop, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "manifest_platform", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def says(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr
    assert word in process.stderr.readline()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_program_and_the_item_is_tried_again(shop: Shop, run: Any, how: signal.Signals) -> None:
    process = background(shop, "run", "--application", COUNT, "--", "python3", "-c", STOPPABLE)
    says(process, "working")
    process.send_signal(how)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert f"got {how.value}" in err
    assert states(shop, RUNS[0], COUNT) == ["Processing", "Failed", "Resolved"]
    assert records(shop, RUNS[0], COUNT)[1].data["kind"] == "transient"
    assert run("run", "--application", COUNT, "--item", RUNS[0], "--", "true")[0] == 0


STOPPABLE = """
import os, signal, sys, time
def stop(number, frame):
    os.write(2, b"got %d\\n" % number)  # the signal may come in the midst of the other line
    sys.exit(9)
for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(one, stop)
print("working", file=sys.stderr, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("tell", [program.Program.end, lambda running: running.pass_on(signal.SIGTERM)])
def test_the_children_of_a_program_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Callable[[program.Program], None]
) -> None:
    monkeypatch.setattr(program, "KILL_AFTER_SECONDS", 0.3)
    marker = tmp_path / "pid"
    stubborn = f"trap '' TERM; echo $$ > {marker}; while :; do sleep 0.1; done"
    running = program.Program(["sh", "-c", 'sh -c "$0" & wait', stubborn], {})
    while not marker.exists() or not marker.read_text():
        time.sleep(0.01)
    tell(running)
    assert running.wait() == -signal.SIGTERM
    child = int(marker.read_text())
    deadline = time.monotonic() + 5
    while not gone(child) and "\nState:\tZ" not in Path(f"/proc/{child}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_signal_that_comes_while_the_program_is_started_reaches_it(
    shop: Shop, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = subprocess.Popen

    def started(*arguments: Any, **options: Any) -> Any:
        process = popen(*arguments, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr(program.subprocess, "Popen", started)
    code, _, err = run("run", "--application", COUNT, "--", "sleep", "5")
    assert (code, "count failed (transient): ended by signal SIGTERM" in " ".join(err.split())) == (1, True)


@pytest.mark.parametrize("application", [COUNT, PUBLISH])
def test_a_killed_run_leaves_an_item_that_the_next_run_frees(shop: Shop, run: Any, application: str) -> None:
    if application == PUBLISH:
        for _ in RUNS:
            run("run", "--application", COUNT, "--", "true")
    record = "echo $$ > group; exec sleep 60"
    process = background(
        shop,
        "run",
        "--application",
        application,
        "--lease",
        "1",
        "--",
        "sh",
        "-c",
        f"echo working >&2; cd {shop.landing}; {record}",
    )
    says(process, "working")
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while (code := run("run", "--application", application, "--", "true")[0]) != 0:
        assert code == 1, "busy: the lease of the dead one has to run out first"
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert states(shop, RUNS[0], application) == ["Processing", "Failed", "Resolved", "Processing", "Processed"]
    assert records(shop, RUNS[0], application)[1].data["kind"] == "lease_expired"
    os.killpg(int((shop.landing / "group").read_text()), signal.SIGKILL)


def test_of_two_runs_that_race_one_gets_the_item(shop: Shop) -> None:
    log = shop.file.with_name("log")
    command = ["run", "--application", COUNT, "--", "sh", "-c", f"echo $MANIFEST_PLATFORM_RUN >> {log}; sleep 0.5"]
    racers = [background(shop, *command) for _ in range(4)]
    ended = [racer.communicate(timeout=60)[1] for racer in racers]
    codes = [racer.returncode for racer in racers]
    winners = codes.count(0)
    assert 1 <= winners <= 3
    assert all(code == 0 or "is held by" in said for code, said in zip(codes, ended, strict=True)), ended
    worked_on = log.read_text().split()
    assert sorted(worked_on) == RUNS[:winners], "each item once"


@pytest.mark.parametrize("learnt_after", [0.0, 0.7])
def test_a_program_is_ended_when_the_lease_is_lost(
    shop: Shop, run: Any, monkeypatch: pytest.MonkeyPatch, learnt_after: float
) -> None:
    monkeypatch.setattr(program, "KILL_AFTER_SECONDS", 0.3)
    marker = shop.file.with_name("pid")
    stubborn = f"trap '' TERM; echo $$ > {marker}; while :; do sleep 0.1; done"
    with shop.pipeline() as pipeline:

        def start(environment: dict[str, str]) -> program.Program:
            running = program.Program(["sh", "-c", stubborn], environment)
            while not marker.exists():
                time.sleep(0.01)
            steal(shop)
            time.sleep(learnt_after)
            return running

        began = time.monotonic()
        with pytest.raises(program.LeaseLost):
            program.run(pipeline, COUNT, None, timedelta(seconds=1), start)
    assert time.monotonic() - began < 20, "one that does not end is killed"
    assert gone(int(marker.read_text()))
    assert states(shop, RUNS[0], COUNT) == ["Processing"], "who has the lease settles it"
    time.sleep(1.1)
    assert run("run", "--application", COUNT, "--", "true")[0] == 0
    assert states(shop, RUNS[0], COUNT)[1:3] == ["Failed", "Resolved"]


def test_a_program_that_hangs_is_ended_at_its_limit(shop: Shop, run: Any) -> None:
    shop.file.write_text(f"{shop.file.read_text()}limits: {{program_hours: {1 / 3600}}}\n")
    began = time.monotonic()
    code, _, err = run("run", "--application", COUNT, "--lease", "2", "--", "sleep", "120")
    assert time.monotonic() - began < 60
    assert (code, f"{COUNT} on {RUNS[0]} took longer than its limit of 0:00:01" in " ".join(err.split())) == (1, True)
    assert states(shop, RUNS[0], COUNT) == ["Processing"], "the lease's next holder settles it"
    time.sleep(2.1)
    assert run("run", "--application", COUNT, "--", "true")[0] == 0
    assert states(shop, RUNS[0], COUNT)[1:3] == ["Failed", "Resolved"]


def steal(shop: Shop) -> None:
    """Another machine, whose clock is an hour ahead, takes the lease."""
    with shop.pipeline() as pipeline:
        manifest = pipeline.manifest
        manifest._clock = lambda: datetime.now(UTC) + timedelta(hours=1)
        taken = manifest.acquire(FEED, COUNT, "thief", timedelta(seconds=1))
        manifest._clock = lambda: datetime.now(UTC)
        taken._clock = manifest._clock
        taken.heartbeat()
        taken.leave()


def test_a_script_claims_completes_and_fails_by_itself(shop: Shop, run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    code, out, _ = run("put", "claim", "--application", COUNT)
    claimed = json.loads(out)
    assert (code, claimed["item"], claimed["token"]) == (0, f"file://{shop.landing / RUNS[0]}", 1)
    assert run("put", "claim", "--application", COUNT)[0] == 1, "busy"
    assert not lease_is_free(shop, COUNT)
    claim = ["--application", COUNT, "--item", claimed["item"], "--record", claimed["record"]]
    payload = tmp_path / "payload.json"
    payload.write_text('{"rows": "many"}')
    assert run("put", "complete", *claim, "--payload", str(payload))[0] == 2
    payload.write_text('{"rows": 7}')
    code, out, _ = run("put", "complete", *claim, "--payload", str(payload))
    assert (code, out) == (0, f"{RUNS[0]}: Processed by count\n")
    assert records(shop, RUNS[0], COUNT)[-1].data == {"rows": 7}
    assert lease_is_free(shop, COUNT)
    code, _, err = run("put", "complete", *claim)
    assert (code, "the claim was ended" in err) == (1, True)

    claimed = json.loads(run("put", "claim", "--application", COUNT, "--item", RUNS[1])[1])
    claim = ["--application", COUNT, "--item", RUNS[1], "--record", claimed["record"]]
    code, out, _ = run("put", "fail", *claim, "--message", "no disk", "--transient", "--json")
    assert (code, json.loads(out)["record"]["payload"]["data"]) == (0, {"kind": "transient", "message": "no disk"})
    assert states(shop, RUNS[1], COUNT) == ["Processing", "Failed", "Resolved"]
    claimed = json.loads(run("put", "claim", "--application", COUNT, "--item", RUNS[1])[1])
    claim[-1] = claimed["record"]
    assert run("put", "fail", *claim, "--message", "no disk")[0] == 0
    assert run("put", "claim", "--application", COUNT, "--item", RUNS[1])[0] == 3
    assert lease_is_free(shop, COUNT), "nothing is held for nothing"


def test_a_claim_whose_lease_ran_out_is_lost_once_another_worker_took_over(shop: Shop, run: Any) -> None:
    claimed = json.loads(run("put", "claim", "--application", COUNT, "--lease", "1")[1])
    time.sleep(1.1)
    assert run("run", "--application", COUNT, "--", "true")[0] == 0
    code, _, err = run("put", "complete", "--application", COUNT, "--item", RUNS[0], "--record", claimed["record"])
    assert (code, "the claim was ended" in err) == (1, True)
    assert states(shop, RUNS[0], COUNT) == ["Processing", "Failed", "Resolved", "Processing", "Processed"]


def test_a_late_completion_does_not_end_the_lease_of_another(shop: Shop, run: Any) -> None:
    claimed = json.loads(run("put", "claim", "--application", COUNT, "--lease", "1")[1])
    time.sleep(1.1)
    with shop.pipeline() as pipeline, pipeline.manifest.acquire(FEED, COUNT, "other", timedelta(seconds=60)):
        assert run("put", "complete", "--application", COUNT, "--item", RUNS[0], "--record", claimed["record"])[0] == 0
        assert not lease_is_free(shop, COUNT)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("[{name: load}]", "the name 'load' of a step is taken"),
        ("[{name: a}, {name: a}]", "the name 'a' of a step is taken"),
        ("[{name: operator}]", "the name 'operator' of a step is taken"),
        ("[{name: a, upstream: [b]}, {name: b}]", "step 'a' waits for b; allowed: steps declared before it: shred, load"),
        ("[{name: A b}]", "datasets.acme.steps.0.name"),
        ("[{name: a, order: full}]", "datasets.acme.steps.0.order"),
    ],
)
def test_steps_that_do_not_fit_together_are_refused(tmp_path: Path, steps: str, message: str) -> None:
    shop = Shop(tmp_path)
    shop.file.write_text(f"{shop.file.read_text().rstrip()}\n    steps: {steps}\n")
    with pytest.raises(config.ConfigError, match=message):
        config.load(shop.file)


def test_a_payload_may_name_its_schema() -> None:
    uri = "iglu:com.snowplowanalytics.manifest/locked_payload/jsonschema/1-0-0"
    named = program.payload_of(json.dumps({"schema": uri, "data": {"recordId": "x"}}))
    assert (named.schema, named.data) == (uri, {"recordId": "x"})
    assert program.payload_of('{"schema": 1, "data": {}}').data == {"schema": 1, "data": {}}
    with pytest.raises(InvalidPayload):
        program.payload_of("")


def test_the_pipeline_declares_the_steps(shop: Shop) -> None:
    with shop.pipeline() as pipeline:
        assert isinstance(pipeline, Pipeline)
        publish = pipeline.manifest.step(FEED, PUBLISH)
        assert (publish.order, publish.upstream, publish.late, publish.max_attempts) == (
            "strict",
            (SHRED, COUNT),
            "quarantine",
            3,
        )


def test_a_program_is_read_on_where_our_own_stderr_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would hang once the pipe is full, while its lease is kept alive."""

    class Closed:
        def write(self, _: str) -> None:
            raise BrokenPipeError

    monkeypatch.setattr("manifest_platform.pipeline.program.sys.stderr", Closed())
    started = program.Program(["sh", "-c", "seq 1 60000 >&2"], {})
    assert started.wait() == 0
