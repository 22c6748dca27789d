"""`cutover` at the command line: loads beside another loader, and commands on them."""
# ruff: noqa: F811 - fixtures are parameters

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from manifest_platform import config
from manifest_platform_tests.cli.test_commands import ask, run  # noqa: F401 - fixtures
from manifest_platform_tests.operations.cutover.test_cutover import former
from manifest_platform_tests.pipeline.shop import EVENTS, Shop, run_name, run_names


@pytest.fixture
def shop(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop whose first two runs another loader has loaded."""
    shop = former(tmp_path, spark, 0, 1)
    monkeypatch.setenv(config.VARIABLE, str(shop.config_file))
    return shop


def loaded(shop: Shop, schema: str) -> int:
    with closing(shop.place.open(read_only=True)) as warehouse:
        return warehouse.execute(f"SELECT count(*) FROM {schema}.events")[0][0]


def test_each_schema_beside_is_loaded_and_one_that_was_dropped_is_loaded_again(shop: Shop, run, ask):
    code, out, err = run("cutover", "adopt", "--beside", "trial", "--newest", "1")
    assert (code, err) == (0, ""), out
    assert "1 run of the other loader, for schema trial, as dataset shop_beside_trial" in out
    assert run("cutover", "adopt", "--beside", "trial2")[0] == 0
    assert (loaded(shop, "trial"), loaded(shop, "trial2")) == (EVENTS, 2 * EVENTS)
    assert run("cutover", "adopt", "--beside", "trial")[0] == 0  # now with an older run
    assert run("cutover", "adopt", "--beside", "trial")[0] == 4
    assert loaded(shop, "trial") == 2 * EVENTS
    with closing(shop.place.open()) as warehouse:
        warehouse.execute("DROP SCHEMA trial CASCADE")
    assert run("cutover", "adopt", "--beside", "trial")[0] == 0
    assert loaded(shop, "trial") == 2 * EVENTS
    code, found = ask("cutover", "compare", "--beside", "trial")
    assert (code, {one["item"] for one in found["tables"]}) == (0, {*run_names(0, 1)})


def test_a_dataset_beside_is_named_at_the_command_line(shop: Shop, run, ask):
    [part] = [one for one in shop.directory(1).iterdir() if one.name != "_SUCCESS"]
    part.write_text("no event\n" * EVENTS)
    code, out, _ = run("cutover", "adopt", "--beside", "trial")
    [told] = re.findall(r"manifest-platform (explain|resolve|accept) (.*)", out)[-1:]
    assert (code, "--dataset shop_beside_trial" in told[1]) == (3, True), out
    assert run("resolve", run_name(1), "--dataset", "shop_beside_trial", "--reason", "mended")[0] == 0
    [load] = [one for one in ask("status", "--dataset", "shop_beside_trial")[1]["steps"] if one["outlook"]["step"] == "load"]
    assert load["counts"] == {"APPLIED": 1, "NEW": 1}
    _, out, _ = run("drain", "--dataset", "shop_beside_trial")
    for words in (["discover"], ["drain", "--follow"]):  # these would load all of landing into the schema
        code, _, err = run(*words, "--dataset", "shop_beside_trial")
        assert (code, "takes no dataset beside another loader" in " ".join(err.split())) == (2, True), err
    assert run_name(2) not in out  # the other runs of the landing are not to be compared
    for name in ("shop_trial", "shop_beside_"):
        assert "is not configured" in run("status", "--dataset", name)[2]
    code, _, err = run("cutover", "adopt", "--beside", "Trial-2")
    assert (code, "'Trial-2' is no name of a schema" in err) == (1, True)
