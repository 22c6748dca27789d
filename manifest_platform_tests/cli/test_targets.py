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
