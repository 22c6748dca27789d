"""Nothing that others wrote moves the cursor, clears a line or turns the reading direction: of no command, and in no log."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click
import dagster as dg
import pytest

from manifest_platform import config, outward, plugins
from manifest_platform.cli import main
from manifest_platform.cli.app import load
from manifest_platform.cli.commands import COMMANDS
from manifest_platform.manifest import OUTPUT, Failure, FailureKind, Payload, Ready
from manifest_platform.orchestration.events import check_result, failure, materialization
from manifest_platform.pipeline import SHRED
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.cli.test_commands import RUNS, Shop

LINE = "\x1b[2K\rall is well\x9b2K\x7f\u202eend\u2028\u2066"
"""Clears a line and forges another, by C0 and C1 controls, DEL, overrides of the reading direction and a line separator."""
HOSTILE = f"{LINE}\nall is well\n"
"""The same, with a line of its own."""
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
STEP = "count"
ITEM = RUNS[0]

LINES: dict[str, list[list[str]]] = {
    "status": [[]],
    "next": [[]],
    "explain": [[ITEM], [HOSTILE]],
    "history": [[ITEM], [HOSTILE]],
    "query": [[], ["--state", "Failed"], ["--feed", HOSTILE], ["--since", HOSTILE]],
    "queue": [[]],
    "types": [[], ["--since", HOSTILE], ["--feed", HOSTILE]],
    "bad list": [[], [ITEM], ["--reason", HOSTILE], ["--since", HOSTILE], ["--feed", HOSTILE]],
    "bad count": [[], ["--schema", HOSTILE]],
    "bad show": [[ITEM, "1", "--raw"], [HOSTILE, "1"], [ITEM, "1", "--file", HOSTILE]],
    "tables": [[], ["--no-warehouse"]],
    "cost": [[], [HOSTILE]],
    "sql": [[f"SELECT '{HOSTILE}' AS \"{HOSTILE}\""], [f"SELECT {HOSTILE}"]],
    "capture": [[], [HOSTILE]],
    "discover": [[], ["--all"]],
    "landing check": [[], ["--since", HOSTILE]],
    "drain": [["--feed", HOSTILE], ["--items", "1"]],
    "full begin": [["latest", "--reason", HOSTILE]],
    "full status": [[]],
    "full cancel": [["--reason", HOSTILE]],
    "merge publish": [[]],
    "merge external-schema": [[]],
    "merge files": [[HOSTILE, "2024-05-14"], ["events", HOSTILE]],
    "merge query": [[f"SELECT '{HOSTILE}' AS \"{HOSTILE}\""], [HOSTILE]],
    "merge status": [[]],
    "merge explain": [[HOSTILE, "2024-05-14"]],
    "merge rebuild": [[HOSTILE, "2024-05-14"]],
    "merge retry": [[HOSTILE, "2024-05-14"]],
    "merge gc": [["--grace", HOSTILE], ["--dry-run"]],
    "merge drop": [[HOSTILE, "--yes"]],
    "merge run": [["--table", HOSTILE]],
    "merge log": [["--table", HOSTILE], []],
    "merge show": [["tables"], [HOSTILE]],
    "resolve": [[HOSTILE], [RUNS[1], "--reason", HOSTILE]],
    "reshred": [[HOSTILE], [ITEM, "--reason", HOSTILE]],
    "bad replay": [[HOSTILE], ["--about", HOSTILE], ["--since", HOSTILE]],
    "reload": [[HOSTILE], [ITEM, "--dry-run", "--reason", HOSTILE]],
    "accept": [[HOSTILE, "--reason", HOSTILE], [ITEM, "--reason", HOSTILE]],
    "skip items": [[RUNS[2], "--reason", HOSTILE]],
    "skip add": [[HOSTILE, "--reason", HOSTILE], [RUNS[2], "--reason", HOSTILE]],
    "skip list": [[], ["--changes"]],
    "skip remove": [[HOSTILE]],
    "unskip": [[RUNS[2], "--reason", HOSTILE]],
    "run": [
        ["--application", STEP, "--", "sh", "-c", "echo $0 >&2; exit 3", LINE],
        ["--application", HOSTILE, "--", "true"],
        ["--application", STEP, "--env", HOSTILE, "--", "true"],
    ],
    "put new": [["--item", HOSTILE], ["--item", "https://example.org/a", "--sort", HOSTILE]],
    "put claim": [["--application", HOSTILE]],
    "put complete": [["--application", STEP, "--item", ITEM, "--record", HOSTILE, "--payload", HOSTILE]],
    "put fail": [["--application", STEP, "--item", ITEM, "--record", HOSTILE, "--message", HOSTILE]],
    "doctor": [[]],
    "housekeeping": [[]],
    "gc": [["--dry-run"], ["--yes"]],
    "archive": [["--older-than", "1d"], ["--older-than", HOSTILE]],
    "config show": [[]],
    "config check": [[]],
    "config schema": [[]],
    "config reference": [[]],
    "schema": [[HOSTILE], ["status"]],
    "completion": [[HOSTILE], ["bash"]],
    "preview": [[HOSTILE], ["landing"]],
    "init": [[HOSTILE, "--yes", "--landing", HOSTILE], ["--yes", "--landing", "landing", "--dataset", HOSTILE]],
    "schemas list": [[]],
    "schemas show": [[HOSTILE]],
    "schemas diff": [[HOSTILE], [HOSTILE, HOSTILE]],
    "schemas ddl": [[HOSTILE], [HOSTILE, "--engine", HOSTILE]],
    "schemas fetch": [[HOSTILE, HOSTILE]],
    "warehouse reconcile": [["--dry-run"]],
    "warehouse accept": [["--reason", HOSTILE]],
    "cutover check": [[], ["--schema", HOSTILE]],
    "cutover adopt": [["--dry-run"], ["--source-root", HOSTILE]],
    "cutover compare": [[], ["--schema", HOSTILE]],
    "warehouse check": [[], ["--target", HOSTILE]],
    "warehouse grants": [["--role", HOSTILE]],
    "warehouse upkeep": [["--dry-run"], ["--target", HOSTILE]],
    "spark package": [[f"/dev/null/{HOSTILE}"]],
    "store create": [[]],
    "store check": [[]],
    "store upgrade": [["--dry-run"]],
    "demo": [["--store", HOSTILE], ["--pipeline", HOSTILE]],
    "dump": [[]],
    "import": [[HOSTILE]],
    "import-snowplow": [[HOSTILE, "--endpoint", HOSTILE, "--region", "eu-west-1"]],
    "import-snowflake": [[HOSTILE, "--endpoint", HOSTILE, "--region", "eu-west-1"]],
    "import-moved": [[HOSTILE, HOSTILE, "--dry-run"]],
    "view": [["--as", HOSTILE], ["--as", "snowplow"]],
    "fake-vault": [["--port", HOSTILE]],
}
"""Every command, and command lines that have it say what others wrote."""


def commands() -> Iterator[str]:
    """Every command by its name, within its group."""

    def within(command: click.Command, name: str) -> Iterator[str]:
        if isinstance(command, click.Group):
            for sub, one in command.commands.items():
                yield from within(one, f"{name} {sub}")
        else:
            yield name

    own = [name for name in plugins.names(plugins.COMMANDS) if name == "fake-vault"]  # others' are installed for tests alone
    for name in (*COMMANDS, *own):
        yield from within(load(name), name)


def test_every_command_is_walked() -> None:
    assert sorted(commands()) == sorted(LINES)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop whose every name and text is hostile: its folders, files, configuration, records and warehouse."""
    home = tmp_path_factory.mktemp("terminal") / f"home{LINE}"  # who configures is trusted not to write line ends
    home.mkdir()
    shop = Shop(home)
    more = f"\n    merge: {{output: merged}}\n    steps: [{{name: {STEP}, upstream: [shred]}}]\n"
    shop.file.write_text(f"{shop.file.read_text().rstrip()}{more}manifest: {{archive: archived}}\n")
    shop.land(*RUNS, f"run={HOSTILE}", f"{RUNS[0]}{HOSTILE}")
    (shop.landing / HOSTILE).mkdir()
    (shop.landing / RUNS[0] / HOSTILE).write_text(HOSTILE)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(config.VARIABLE, str(shop.file))
        assert main(["discover"]) == 0
    with shop.pipeline() as pipeline:
        for name in RUNS:
            with pipeline.lease(FEED, SHRED) as lease:
                verdict = pipeline.manifest.next(FEED, SHRED, holding=True)
                assert isinstance(verdict, Ready) and verdict.item.key.name == name
                [claim] = pipeline.manifest.claim(lease, [verdict.item], verdict.state)
                if name == ITEM:
                    made = {
                        "prefix": HOSTILE,
                        "listing": f"file:///nowhere/{HOSTILE}",
                        "lines": 7,
                        "good": 7,
                        "bad": 0,
                        "bytes": 7,
                        "types": {HOSTILE: {HOSTILE: 7}},
                    }
                    pipeline.manifest.complete(claim, Payload(OUTPUT, made))
                    continue
                pipeline.manifest.fail(claim, Failure(FailureKind.PERMANENT, HOSTILE, HOSTILE, HOSTILE))
        key = pipeline.key(RUNS[2])
        for decide in (pipeline.manifest.resolve, pipeline.manifest.skip, pipeline.manifest.unskip):
            decide(key, HOSTILE)
    return home


@pytest.fixture(scope="module", params=["text", "json"])
def said(request: pytest.FixtureRequest, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The output of each command on stdout and stderr, as text or as JSON."""
    home = tmp_path_factory.mktemp("walked") / f"home{LINE}"
    shutil.copytree(prepared, home)
    told: dict[str, str] = {}
    file = home.with_name("said")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(config.VARIABLE, str(home / "platform.yaml"))
        environment.chdir(home)  # init writes there
        environment.setenv("AWS_ACCESS_KEY_ID", "invented")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "invented")
        environment.setattr("manifest_platform.spark.session", _no_spark)
        for name, lines in LINES.items():
            for number, line in enumerate(lines):
                options = ["--json"] if request.param == "json" else []
                with file.open("w") as out, redirect_stdout(out), redirect_stderr(out):
                    main([*options, *name.split(), *line])
                told[f"{name} {number}"] = file.read_text()
    return told


def _no_spark(*_arguments: Any) -> None:
    from manifest_platform.spark import SparkUnavailable

    raise SparkUnavailable(f"no Spark here: {HOSTILE}")


def test_no_command_says_what_a_terminal_obeys(said: dict[str, str]) -> None:
    found = {name: (mark[0], text) for name, text in said.items() if (mark := RAW.search(text))}
    assert found == {}
    silent = {name for name, text in said.items() if "all is well" not in text}
    assert len(silent) < len(said) / 2, "most command lines do repeat what others wrote"


def test_no_line_of_an_answer_is_forged(said: dict[str, str]) -> None:
    forged = {name: text for name, text in said.items() if re.search(r"^all is well", text, re.MULTILINE)}
    assert forged == {}


@pytest.mark.parametrize("text", [HOSTILE, "a\x00b", "\x85", "\u200e\u200f", "\udc80", "\U000e0041"])
def test_what_a_terminal_obeys_is_escaped(text: str) -> None:
    assert outward.line(text).isprintable()
    assert outward.clean(f"täxt\tand\n✓ {text}").startswith("täxt\tand\n✓ ")
    assert outward.line("a\n\tb") == "a\\n\\tb"


def test_json_is_escaped_as_json_and_means_the_same() -> None:
    document = {HOSTILE: ["\U000e0041", "ä✓"]}
    text = outward.in_json(json.dumps(document, ensure_ascii=False))
    assert text.isprintable() and "ä✓" in text
    assert json.loads(text) == document


def test_no_log_line_says_what_a_terminal_obeys(capfd: pytest.CaptureFixture[str]) -> None:
    outward.guard()
    handler = logging.StreamHandler()
    log = logging.getLogger("manifest_platform.test_terminal")
    log.addHandler(handler)
    try:
        log.error("landed %s", HOSTILE, exc_info=ValueError(HOSTILE))
    finally:
        log.removeHandler(handler)
    told = capfd.readouterr().err
    assert "all is well" in told and not RAW.search(told)


def test_an_error_of_several_lines_is_set_in(capfd: pytest.CaptureFixture[str]) -> None:
    from manifest_platform.cli.app import Exit, fail

    fail("Vault says\nall is well\n  more", ValueError(), Exit.FAILED, as_json=False)
    assert capfd.readouterr().err == "error: Vault says\n  all is well\n  more\n"


def test_no_event_of_dagster_says_what_a_terminal_obeys() -> None:
    shown = {"why": HOSTILE, "list": dg.MetadataValue.md(HOSTILE), HOSTILE: 1}
    for event in (
        failure(HOSTILE, shown),
        check_result(passed=False, description=HOSTILE, metadata=shown),
        materialization(dg.AssetKey("a"), metadata=shown),
    ):
        texts = [
            getattr(event, "description", None) or "",
            *event.metadata,
            *(str(one.value) for one in event.metadata.values()),
        ]
        assert any("all is well" in text for text in texts)
        assert [text for text in texts if RAW.search(text)] == []
