"""The prose linter refuses the words that the glossary rules out."""

from __future__ import annotations

import re

import yaml

from manifest_platform_tests.source_names import ROOT
from scripts.prose import messages


def ruled_out() -> set[str]:
    """The words of the glossary's column `not`."""
    rows = [
        line.strip("|").split("|") for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("| ")
    ]
    return {word for row in rows if len(row) == 3 and row[2].strip() != "not" for word in row[2].strip().split(", ") if word}


def patterns() -> list[re.Pattern[str]]:
    """The linter's patterns for words that the glossary rules out."""
    rule = yaml.safe_load((ROOT / ".vale/Plain/Glossary.yml").read_text())
    return [re.compile(pattern) for pattern in rule["swap"]]


def test_every_word_that_the_glossary_rules_out_is_refused() -> None:
    assert {word for word in ruled_out() if not any(pattern.fullmatch(word) for pattern in patterns())} == set()


def test_every_refused_word_is_ruled_out_by_the_glossary() -> None:
    words = ruled_out()
    assert [pattern.pattern for pattern in patterns() if not any(pattern.fullmatch(word) for word in words)] == []


def test_messages_are_checked_at_their_lines() -> None:
    source = 'class A:\n    """A docstring of some words."""\n\n\nraise ValueError(f"{1} of these many words is told of")\n'
    assert messages(source).split("\n")[4] == " X of these many words is told of"
    assert "docstring" not in messages(source)
