"""Commands on a dataset with two targets."""
# ruff: noqa: F811 - fixtures are parameters

from __future__ import annotations

import pytest
import yaml

from manifest_platform_tests.cli.test_commands import RUNS, ask, run, shop  # noqa: F401 - fixtures


@pytest.fixture
def two(shop, run):
    """A shop with a second target, whose directory is registered."""
    whole = yaml.safe_load(shop.file.read_text())
    whole["targets"] = {"lab": {"path": "lab.duckdb"}}
    shop.file.write_text(yaml.safe_dump(whole))
    shop.land(RUNS[0])
    run("discover")
    return shop


def test_status_and_next_show_every_target_or_the_named_one(two, ask):
    def steps(*arguments: str) -> list[str]:
        return [one["outlook"]["step"] for one in ask("status", "--no-landing", *arguments)[1]["steps"]]

    assert steps() == ["shred", "load", "load:lab"]
    assert steps("--target", "lab") == ["shred", "load:lab"]
    assert [one["step"] for one in ask("next", "--target", "warehouse")[1]["next"]] == ["shred", "load"]


@pytest.mark.parametrize("command", [["sql", "SELECT 1"], ["warehouse", "reconcile", "--dry-run"], ["full", "cancel"]])
def test_a_command_for_one_target_asks_for_its_name(two, run, command):
    code, _, error = run(*command)
    assert (code, "name one with --target: warehouse, lab" in error) == (2, True)


def test_an_unknown_target_is_refused_with_those_that_there_are(two, run):
    code, _, error = run("drain", "--target", "elsewhere")
    assert code == 2
    assert "dataset acme has no target 'elsewhere'; its targets are: warehouse, lab" in error


def test_a_skip_may_name_a_target(two, run, ask):
    assert run("skip", RUNS[0], "--target", "lab", "--reason", "not there")[0] == 0
    skipped = ask("history", RUNS[0])[1]["records"][-1]
    assert (skipped["state"], skipped["application"]["instance"]) == ("Skipped", "lab")
    standings = {one["step"]: one["standing"] for one in ask("explain", RUNS[0])[1]["steps"]}
    assert (standings["load"], standings["load:lab"]) == ("waiting", "skipped")


def test_explain_tells_of_every_target_or_of_the_named_one(two, ask):
    def steps(*arguments: str) -> list[str]:
        return [one["step"] for one in ask("explain", RUNS[0], *arguments)[1]["steps"]]

    assert steps() == ["shred", "load", "load:lab"]
    assert steps("--target", "lab") == ["shred", "load:lab"]
    assert "load:lab" not in ask("explain", RUNS[0], "--target", "warehouse")[1]["text"]


def test_tables_are_compared_for_each_target_or_the_named_one(two, ask, run):
    assert [*ask("tables", "--no-warehouse")[1]["targets"]] == ["warehouse", "lab"]
    assert ask("tables", "--no-warehouse", "--target", "lab")[1]["tables"] == []
    assert "target lab" in run("tables", "--no-warehouse")[1]


def test_the_queue_is_that_of_the_first_target_or_the_named_one(two, ask, run):
    assert run("skip", RUNS[0], "--target", "lab", "--reason", "not there")[0] == 0
    status = {target: ask("queue", "--target", target)[1]["queue"][0]["status"] for target in ("warehouse", "lab")}
    assert status == {"warehouse": "NEW", "lab": "SKIPPED"}
    assert "target warehouse" in run("queue")[1]


def test_unskip_says_that_it_lifts_the_skips_for_all_targets(two, run):
    assert run("skip", RUNS[0], "--target", "lab", "--reason", "not there")[0] == 0
    assert "skips are lifted for all targets: warehouse, lab" in run("unskip", RUNS[0])[1]


@pytest.mark.parametrize("command", [["check"], ["grants", "--role", "loader"]], ids=["check", "grants"])
def test_a_warehouse_is_checked_and_granted_by_its_target(two, run, ask, command):
    code, _, error = run("warehouse", *command)
    assert (code, "name one with --target: warehouse, lab" in error) == (2, True)
    assert "lab" in str(ask("warehouse", *command, "--target", "lab")[1])
