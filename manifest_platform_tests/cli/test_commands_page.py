"""The page of commands in the docs: made from the command line's own help."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from manifest_platform_tests.cli.every_command import every_command

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "commands_page.py"))


def test_the_page_in_the_docs_is_current(script: dict[str, Any]) -> None:
    assert (ROOT / "docs" / "reference" / "commands.md").read_text() == script["page"](), "run: make reference"


def test_the_page_has_every_command(script: dict[str, Any]) -> None:
    headings = {line.lstrip("# ") for line in script["page"]().splitlines() if line.startswith("#")}
    assert {typed for typed in every_command() if typed} <= headings


def test_text_keeps_its_signs_in_markdown(script: dict[str, Any]) -> None:
    assert script["_text"]("a | b, `c | *`, * and <d>") == r"a \| b, `c \| *`, \* and \<d>"
