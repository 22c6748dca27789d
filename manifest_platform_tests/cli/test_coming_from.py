"""The page for those who come from another system: each of its rows has a place here, and its commands run."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.fake_vault import FakeVault
from manifest_platform_tests.pipeline.shop import NAME, REPOSITORY, Shop, run_name
from manifest_platform_tests.sources.veeva.ward.ward import Ward

PAGE = REPOSITORY / "docs" / "how-to" / "coming-from.md"
RUNS = 3
DAY = "2024-05-14"
ENDED = {0, 3, 4}
"""Exit codes of a command that did what it was asked for: done, blocked, or nothing to do."""
NOT_THERE = "not there yet"


def rows(heading: str) -> list[list[str]]:
    """The cells of the rows of a section's table, its head aside."""
    _, _, section = PAGE.read_text().partition(f"\n## {heading}\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


SNOWPLOW = ("The Snowplow Processing Manifest", "The Snowflake Loader", "Snowplow's RDB Loader", "Prism")
VEEVA = "A queue for Veeva Direct Data"


def commands(heading: str) -> list[str]:
    """The commands of a section."""
    found = [re.findall(r"`manifest-platform ([^`]*)`", row[1]) for row in rows(heading)]
    return list(dict.fromkeys(command for commands in found for command in commands))


@pytest.mark.parametrize("heading", [*SNOWPLOW, VEEVA])
def test_every_row_has_a_place_here(heading: str) -> None:
    found = rows(heading)
    assert len(found) >= 8
    for there, here, why in found:
        assert there and why
        assert re.search(r"\]\(|`manifest-platform ", here) or here == NOT_THERE, f"{heading}: {there}: {here}"


@pytest.fixture(scope="module")
def prepared(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A shop of runs that are loaded and merged, and the last of which failed; a step of its own waits."""
    shop = Shop(tmp_path_factory.mktemp("coming") / "shop", merge={})
    whole = yaml.safe_load(shop.config_file.read_text())
    whole["datasets"][NAME]["steps"] = [{"name": "report", "upstream": ["shred"]}]
    shop.config_file.write_text(yaml.safe_dump(whole))
    shop.shredded(spark, RUNS)
    shop.write(RUNS, corrupt=True)
    at = ["--config", str(shop.config_file)]
    assert main(["doctor", "--repair", *at]) == 0  # the step is newer than the runs
    assert main(["discover", "--all", *at]) == 0
    assert main(["drain", *at]) == 3
    assert main(["merge", "run", *at]) == 0
    shutil.copytree(shop.home, shop.home.with_name("aside"))
    return shop


@pytest.fixture
def shop(prepared: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """The same for each test: files are known by their URIs, so it stays where it is."""
    monkeypatch.setenv(config.VARIABLE, str(prepared.config_file))
    yield prepared
    shutil.rmtree(prepared.home)
    shutil.copytree(prepared.home.with_name("aside"), prepared.home)


@pytest.mark.parametrize("command", [one for heading in SNOWPLOW for one in commands(heading)])
def test_every_command_runs(shop: Shop, command: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = {"ITEM": run_name(0), "FAILED": run_name(RUNS), "DATE": DAY}
    code = main([words.get(word, word) for word in shlex.split(command)])
    captured = capfd.readouterr()
    assert code in ENDED, captured.err
    assert captured.out


@pytest.fixture
def ward(tmp_path: Path, vault: FakeVault, monkeypatch: pytest.MonkeyPatch) -> Ward:
    ward = Ward(tmp_path, vault=vault)
    monkeypatch.setenv(config.VARIABLE, str(ward.config_file))
    for name, value in ward.environment.items():
        monkeypatch.setenv(name, value)
    return ward


def test_every_command_of_a_vault_runs(ward: Ward, spark: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert "capture" in commands(VEEVA)
    for command in sorted(commands(VEEVA)):
        code = main(shlex.split(command))
        captured = capfd.readouterr()
        assert code in ENDED, f"{command}: {captured.err}"
        assert captured.out
