"""`skip`: items, and rules for items that are still to come."""
# ruff: noqa: F811 - fixtures are parameters

from __future__ import annotations

import pytest

from manifest_platform_tests.cli.test_commands import RUNS, ask, run, shop  # noqa: F401 - fixtures

LATER = "run=2024-05-15-00-00-00"


def test_a_rule_skips_what_lands_later_and_tells_of_what_is_there(shop, run, ask):
    shop.land(RUNS[0])
    run("discover")
    code, out, _ = run("skip", "add", "run=2024-05-1*", "--until", "2099-01-01", "--reason", "wrong collector")
    assert (code, out.split(" ")[:3]) == (0, ["skip", "rule", "r1"])
    assert f"1 matching items are registered already: {RUNS[0]}" in " ".join(out.split())
    shop.land(LATER)
    _, out, _ = run("discover")
    assert f"1 skipped by a rule: {LATER} (r1)" in out
    records = ask("history", LATER)[1]["records"]
    assert [one["state"] for one in records] == ["New", "Skipped"]
    assert records[1]["payload"]["data"] == {"reason": "wrong collector (skip rule r1)", "rule": "r1"}
    assert [one["state"] for one in ask("history", RUNS[0])[1]["records"]] == ["New"]


def test_rules_are_listed_and_removed_and_every_change_is_kept(shop, run, ask):
    assert run("skip", "list")[0] == 4
    run("skip", "add", "--from", "2024-05-14", "--to", "2024-05-15T00:00+00:00", "--application", "load", "--reason", "outage")
    _, out, _ = run("skip", "list")
    assert out.startswith("r1  from 2024-05-14 00:00 UTC, to 2024-05-15 00:00 UTC: skipped by load permanently; outage")
    code, answer = ask("skip", "list")
    [rule] = answer["rules"]
    assert (code, rule["from"], rule["until"], rule["over"]) == (0, "2024-05-14T00:00:00.000000Z", None, False)
    assert run("--json", "skip", "remove", "r1", "--reason", "mended")[0] == 0
    assert run("skip", "list", "--changes")[1].count("r1 ") == 2
    changes = ask("skip", "list", "--changes")[1]["changes"]
    assert [(one["change"], one["reason"]) for one in changes] == [("added", "outage"), ("removed", "mended")]
    assert run("skip", "remove", "r1")[0] == 1


def test_what_is_registered_already_is_skipped_where_that_is_asked_for(shop, run, ask):
    shop.land(*RUNS)
    run("discover")
    run("skip", RUNS[1], "--reason", "by hand")
    _, out, _ = run("skip", "add", "*-12-[01]0-*", "--now", "--dry-run", "--reason", "tests")
    assert "would be added; nothing was written" in out and "would be Skipped" in out
    code, out, _ = run("skip", "add", "*-12-[01]0-*", "--now", "--reason", "tests")
    assert (code, out.count("Skipped by")) == (0, 1)
    assert [len(ask("history", name)[1]["records"]) for name in RUNS] == [2, 2, 1]
    assert ask("history", RUNS[0])[1]["records"][1]["payload"]["data"] == {"reason": "tests (skip rule r1)"}


@pytest.mark.parametrize("before", [[], ["--json"], ["--dataset", "acme"], ["--dataset=acme"]])
def test_an_item_may_stand_where_a_command_does(shop, run, before):
    shop.land(RUNS[0])
    run("discover")
    assert run("skip", *before, "list")[0] == 4
    assert run("skip", *before, "--reason", "list", RUNS[0])[0] == 0
    assert run("skip", *before, "items", RUNS[0], "--reason", "x")[0] == 1  # it is skipped already


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--reason", "x"], "needs a pattern for names"),
        (["--from", "soon", "--reason", "x"], "--from soon: write a time such as 2026-01-31T12:00"),
        (["--to", "9999-12-31T23:59-12:00", "--reason", "x"], "between the years 1 and 9999"),
        (["a*"], "--reason"),
        (["a\nb", "--reason", "x"], "printable ASCII"),
    ],
)
def test_a_rule_that_means_nothing_is_wrong_use(shop, run, arguments, message):
    code, _, err = run("skip", "add", *arguments)
    assert (code, message in err) == (2, True)
