"""Runs the commands of docs/start/own-data.md on the demo's shop; the tests of the wheel run its drain and Dagster's."""

from __future__ import annotations

import re
import shlex
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform_tests.source_names import ROOT

PAGE = ROOT / "docs" / "start" / "own-data.md"
ELSEWHERE = (
    "pip install ",
    "manifest-platform drain",
    "dagster dev",
    "dg check defs",
    "dg dev",
    "manifest-platform sql",
    "pytest",
)
"""Prefixes of commands that manifest_platform_tests/installed runs."""


def commands() -> list[str]:
    """The lines of the page's blocks of commands."""
    return [line for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize("typed", [one for one in dict.fromkeys(commands()) if not one.startswith(ELSEWHERE)])
def test_a_command_of_the_page_works(typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(config.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    write_run("landing/enriched", datetime(2026, 1, 1, tzinfo=UTC), 5, seed=1)
    shutil.copytree(SCHEMAS, "schemas")
    program, *arguments = shlex.split(typed, comments=True)
    assert program == "manifest-platform"
    if arguments in (["config", "check"], ["status"]):
        assert main(["init", "--landing", "landing/enriched", "--yes"]) == 0
    assert main(arguments) == 0
