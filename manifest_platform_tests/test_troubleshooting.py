"""The page of troubleshooting quotes messages that the product prints: each is still a text of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from manifest_platform_tests.source_names import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
TABLE = re.compile(r"^\| message \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE)
QUOTED = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
PLACEHOLDER = "…"


def quoted() -> list[str]:
    """Returns the messages of the page, as they are quoted."""
    return [message for rows in TABLE.findall(PAGE.read_text()) for message in QUOTED.findall(rows)]


def texts_of(tree: ast.AST) -> Iterator[str]:
    """Yields the texts of a module, with a placeholder for each value in them."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


@cache
def code() -> str:
    """Returns all texts of the product, but docstrings of modules, a text a line."""
    trees = [ast.parse(path.read_text()) for path in sorted((ROOT / "manifest_platform").rglob("*.py"))]
    for tree in trees:
        if tree.body and isinstance(tree.body[0], ast.Expr):
            del tree.body[0]
    return "\n".join(text.replace("\n", " ") for tree in trees for text in texts_of(tree))


def is_printed(message: str) -> bool:
    """True if a text of the code has the message; its placeholders stand for anything in between."""
    pattern = r"[^\n]*".join(re.escape(part.strip()) for part in message.split(PLACEHOLDER))
    return re.search(pattern, code()) is not None


def test_the_page_quotes_messages_in_each_of_its_tables() -> None:
    rows = [row for rows in TABLE.findall(PAGE.read_text()) for row in rows.splitlines()]
    assert len(rows) == len(quoted()) > 60


@pytest.mark.parametrize("message", quoted())
def test_a_quoted_message_is_a_text_of_the_code(message: str) -> None:
    assert is_printed(message), f"docs/troubleshooting.md quotes `{message}`, which no text of the code has"


@pytest.mark.parametrize(("message", "printed"), [("no configuration at …; pass", True), ("no configuration for …", False)])
def test_a_placeholder_stands_for_any_value(message: str, printed: bool) -> None:
    assert is_printed(message) == printed
