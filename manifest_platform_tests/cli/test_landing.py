"""What has landed and is no item is told where people look, with what would make it one: status, discover, drain, explain."""

# ruff: noqa: F811 - fixtures are named by parameters

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from manifest_platform.pipeline import DrainReport
from manifest_platform_tests.cli.test_commands import RUNS, Shop, ask, run, shop  # noqa: F401

NEARLY = "Run=2024-05-14-12-30-00"


@pytest.fixture
def strays(shop: Shop) -> Shop:
    """A registered run, a new run, a run without its marker, and a name that resembles a run's."""
    shop.land(*RUNS[:2], NEARLY)
    (shop.landing / RUNS[2]).mkdir()
    (shop.landing / RUNS[2] / "part-0").write_text("event")
    return shop


def test_status_reports_unregistered_directories_with_the_reason(strays: Shop, run, ask) -> None:
    code, out, _ = run("status")
    told = " ".join(out.split())
    assert code == 0
    assert f"2 complete, not registered yet: {RUNS[0]}, {RUNS[1]}" in told
    assert "command manifest-platform drain" in told
    assert re.search(
        rf"1 not complete yet: {RUNS[2]} \(unchanged since 20.* UTC\); complete once it contains the file _SUCCESS", told
    )
    assert "set datasets.acme.landing.complete: settle" in told
    assert f"left alone: {NEARLY}: not a run name" in told
    assert f"{NEARLY} is almost correct: rename it to run=2024-05-14-12-30-00" in told
    [landing] = ask("status")[1]["landing"]
    assert (landing["not_registered"], landing["unparseable"]) == (RUNS[:2], [NEARLY])
    assert [one["name"] for one in landing["incomplete"]] == [RUNS[2]]
    assert run("status", "--no-landing")[1].splitlines()[1].startswith("shred")


def test_a_run_that_its_seal_alone_completes_is_not_to_be_settled(strays: Shop, run) -> None:
    strays.file.write_text(strays.file.read_text().replace("acme:", "acme:\n    source: snowplow_transformed"))
    told = " ".join(run("status")[1].split())
    assert "complete once it contains the file shredding_complete.json, which its writer writes last; if it never comes" in told
    assert "settle" not in told


def test_landing_check_answers_once_and_fails_if_anything_needs_a_look(strays: Shop, run, ask) -> None:
    code, out, _ = run("landing", "check", "--age", "0")
    assert code == 1
    told = " ".join(out.split())
    assert told.startswith(
        f"2 landed and never loaded: {RUNS[0]}, {RUNS[1]}; 1 incomplete: {RUNS[2]} (complete once it contains"
    )
    assert told.endswith("manifest-platform discover --all")
    code, found = ask("landing", "check", "--since", "7", "--age", "0")
    assert (code, found["not_loaded"], found["deleted"], found["incomplete"]) == (1, RUNS[:2], [], [RUNS[2]])
    assert (found["commands"], found["lost"]) == (["manifest-platform discover --all"], [])
    assert ask("landing", "check")[1]["summary"].endswith(" has waited too long, and everything loaded is there")
    for name in RUNS:
        shutil.rmtree(strays.landing / name)
    assert run("landing", "check")[0] == 0


def test_status_says_nothing_of_a_landing_root_where_all_is_registered(shop: Shop, run) -> None:
    shop.land(*RUNS)
    run("discover")
    assert run("status")[1].splitlines()[1].startswith("shred")


@pytest.mark.parametrize("command", ["status", "discover", "drain"])
def test_an_absent_landing_root_is_an_error_with_its_key(
    shop: Shop,
    run,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.setattr("manifest_platform.cli.drain.draining", lambda *_: (report for report in [DrainReport()]))
    shop.landing.rmdir()
    code, out, err = run(command)
    told = " ".join(f"{out} {err}".split())
    assert code == 1
    assert re.search(
        r"datasets.acme.landing.root: landing root .* does not exist; create the folder, mount its disk, or correct", told
    )


@pytest.mark.parametrize("command", ["status", "discover"])
def test_a_landing_root_in_which_nothing_was_yet_says_what_is_expected(shop: Shop, run, command: str) -> None:
    code, out, _ = run(command)
    told = " ".join(out.split())
    assert code in (0, 4)
    assert re.search(
        r"nothing has landed in .* yet[.;] [Ee]xpected: a run name \(run=YYYY-MM-DD-HH-MM-SS\), complete once", told
    )


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (RUNS[0], f"{RUNS[0]} is complete and not registered yet: the next drain registers it"),
        (RUNS[2], f"{RUNS[2]} is not registered: 1 not complete yet"),
        (NEARLY, "rename it to run=2024-05-14-12-30-00"),
    ],
)
def test_explain_tells_of_what_is_no_item(strays: Shop, run, ask, name: str, told: str) -> None:
    code, out, _ = run("explain", name)
    assert (code, told in " ".join(out.split())) == (0, True)
    assert ask("explain", name)[1]["item"] is None


def test_what_the_configuration_names_and_is_absent_is_told_before_a_drain_begins(shop: Shop, run, tmp_path: Path) -> None:
    shop.file.write_text(shop.file.read_text() + "spark: {conf: nowhere.conf}\n")
    (tmp_path / "schemas").rmdir()
    shop.land(RUNS[0])
    code, out, err = run("drain", "--json")
    assert code == 2
    for text in (err, json.loads(out)["error"]["message"]):
        assert re.search(r"spark.conf: .*/nowhere.conf: there is no such file", text)
        assert re.search(r"datasets.acme.shred.schemas.0: .*/schemas: there is no such folder", text)
    assert run("discover")[0] == 0, "nothing was begun"
