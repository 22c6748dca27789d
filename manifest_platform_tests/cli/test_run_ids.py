"""Every record names the run that wrote it, and `history` finds what a run did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import click
import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.cli.app import RUN_VARIABLE, load
from manifest_platform.cli.commands import COMMANDS
from manifest_platform.manifest import Manifest
from manifest_platform.manifest.records import InvalidRunId
from manifest_platform.manifest.store import Put, Row
from manifest_platform.operations.search import short_run
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.cli.test_commands import RUNS, Shop

STEP = "count"
SILENT = {
    *(
        "status",
        "next",
        "explain",
        "query",
        "queue",
        "types",
        "tables",
        "landing check",
        "cost",
        "sql",
        "view",
        "dump",
        "full status",
        "skip list",
    ),
    *("merge files", "merge query", "merge status", "merge explain", "merge log", "merge show", "merge external-schema"),
    *("config show", "config check", "config schema", "config reference", "store create", "store check", "store upgrade"),
    *("bad list", "bad count", "bad show"),
    *("schemas list", "schemas show", "schemas diff", "schemas ddl", "schemas fetch"),
    *("import", "import-snowplow", "import-snowflake", "cutover check", "cutover adopt", "cutover compare"),
    *("completion", "schema", "preview", "init", "demo", "warehouse check", "warehouse grants", "spark package"),
}
"""Commands that record nothing, or what others recorded."""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path)
    shop.file.write_text(f"{shop.file.read_text().rstrip()}\n    steps: [{{name: {STEP}}}]\n")
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    shop.land(*RUNS[:2])
    return shop


def runs_of(shop: Shop, name: str = RUNS[0]) -> list[str | None]:
    with shop.pipeline() as pipeline:
        return [record.run_id for record in pipeline.manifest.history(pipeline.key(name))]


def test_a_command_line_is_a_run_and_the_next_one_is_another(shop: Shop) -> None:
    assert main(["discover"]) == 0
    [first] = runs_of(shop)
    assert first and str(UUID(first)) == first
    assert runs_of(shop, RUNS[1]) == [first]
    assert main(["skip", RUNS[0], "--reason", "test data"]) == 0
    assert len({first, *runs_of(shop)}) == 2 and None not in runs_of(shop)


def test_a_run_is_named_by_the_option_before_the_environment(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "airflow/nightly-1")
    assert main(["discover"]) == 0
    assert main(["skip", "--run-id", "by-hand", RUNS[0], "--reason", "x"]) == 0
    monkeypatch.setenv(RUN_VARIABLE, "")
    assert main(["unskip", RUNS[0], "--reason", "x"]) == 0
    first, second, third = runs_of(shop)
    assert (first, second) == ("airflow/nightly-1", "by-hand")
    assert third and UUID(third)


@pytest.mark.parametrize("wrong", ["", "imported from x", "-x", "x" * 129, "ä", "a\nb"])
def test_an_invalid_run_id_is_refused_before_any_work(
    wrong: str, shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["discover", f"--run-id={wrong}"]) == 2
    assert "is not a run id. A run id has 1 to 128 letters, digits" in capsys.readouterr().err
    with pytest.raises(InvalidRunId):
        Pipeline(config.load(shop.file), "acme", wrong)
    if wrong:
        monkeypatch.setenv(RUN_VARIABLE, wrong)
        assert main(["discover"]) == 2
        assert f"${RUN_VARIABLE}: " in capsys.readouterr().err


def test_every_command_that_records_takes_a_run_id() -> None:
    def within(command: click.Command, name: str) -> dict[str, click.Command]:
        if isinstance(command, click.Group):
            return {key: one for sub, part in command.commands.items() for key, one in within(part, f"{name} {sub}").items()}
        return {name: command}

    found = {key: one for name in COMMANDS for key, one in within(load(name), name).items()}
    takes = {name for name, one in found.items() if any("--run-id" in option.opts for option in one.params)}
    assert found.keys() - takes == SILENT


def test_history_shows_what_a_run_did(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*options: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(["history", *options, "--json"])
        return code, json.loads(capsys.readouterr().out)

    assert main(["discover"]) == 0
    assert main(["skip", RUNS[1], "--reason", "x", "--run-id", "by-hand"]) == 0
    [discovered] = runs_of(shop)
    assert discovered
    code, document = told(RUNS[1], "--run-id", "by-hand")
    assert (code, [one["state"] for one in document["records"]]) == (0, ["Skipped"])
    assert told(RUNS[0], "--run-id", "by-hand") == (4, {**document, "item": told(RUNS[0])[1]["item"], "records": []})
    code, document = told("--run-id", discovered[:8])
    names = [(one["item"]["name"], len(one["records"])) for one in document["items"]]
    assert names == [(RUNS[1], 1), (RUNS[0], 1)]
    assert (code, document["looked_at"], document["cut"]) == (0, 2, False)
    code, document = told("--run-id", discovered, "--look", "1")
    assert (len(document["items"]), document["looked_at"], document["cut"]) == (1, 1, True)
    assert told("--run-id", "by")[0] == 4
    assert main(["history", "--run-id", "by-hand"]) == 0
    said = capsys.readouterr().out
    assert "Skipped  *" in said and "by-hand" in said and "1 items; searched 2, these are all" in said
    assert main(["history"]) == 2


@pytest.mark.parametrize(
    ("run", "shown"),
    [
        (None, "-"),
        ("506b5c94-048b-46cd-9b3d-a7a529db10df", "506b5c94"),
        ("airflow/nightly-1", "airflow/nightly-1"),
        ("imported from dynamodb://manifest-of-the-old-days", "imported from dynamodb:…"),
    ],
)
def test_a_run_is_shown_shortly(run: str | None, shown: str) -> None:
    assert short_run(run) == shown


def test_a_record_of_a_release_before_has_no_run(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["discover"]) == 0
    with shop.pipeline() as pipeline:
        store = pipeline.manifest.store
        [row] = [one for one in store.query("acme", f"RECORD#{FEED}#") if RUNS[0][4:] in one.sort]
        store.transact("acme", [_without_run(row)], "a release before")
    capsys.readouterr()
    assert main(["history", RUNS[0]]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[-3:] == ["-", "-", "-"]
    assert runs_of(shop) == [None]


def _without_run(row: Row) -> Put:
    return Put(row.sort, {**row.data, "run_id": None}, row.version)


def test_a_claim_tells_its_run_and_its_end_is_another_unless_it_is_named(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def claim() -> dict[str, Any]:
        capsys.readouterr()
        assert main(["put", "claim", "--application", STEP]) == 0
        return json.loads(capsys.readouterr().out)

    assert main(["discover"]) == 0
    claimed = claim()
    end = ["put", "complete", "--application", STEP, "--item", claimed["item"], "--record", claimed["record"]]
    assert main([*end, "--run-id", claimed["run_id"]]) == 0
    assert runs_of(shop)[1:] == [claimed["run_id"]] * 2
    claimed = claim()
    end = ["put", "complete", "--application", STEP, "--item", claimed["item"], "--record", claimed["record"]]
    assert main(end) == 0
    assert len(set(runs_of(shop, RUNS[1]))) == 3


def test_a_program_that_is_run_records_in_the_same_run(shop: Shop) -> None:
    assert main(["discover"]) == 0
    told = shop.file.with_name("told")
    line = ["run", "--application", STEP, "--run-id", "nightly", "--", "sh", "-c", f'echo ${RUN_VARIABLE} > "{told}"']
    assert main(line) == 0
    assert told.read_text() == "nightly\n"
    assert runs_of(shop)[1:] == ["nightly"] * 2


def test_leases_and_merges_name_the_run(shop: Shop) -> None:
    with Pipeline(config.load(shop.file), "acme", "nightly") as pipeline, pipeline.lease(FEED, SHRED):
        lease = pipeline.manifest.lease(pipeline.manifest.step(FEED, SHRED).application, FEED)
        assert lease and lease.run_id == pipeline.run_id == "nightly"
        alone = Manifest(pipeline.manifest.store, "acme", {}, "a program of one's own")
        assert UUID(alone.run_id)
