"""Only `cli` and `orchestration` know command lines: below, what a person can do is a Remedy."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifest_platform_tests.plugin_names import PACKAGE

COMMAND = "manifest-platform "
TELLS = ("cli/", "orchestration/", "demo/", "fake_vault/", "__main__.py")
"""Modules that run commands or name them to people; `fake_vault` names the command that runs it."""
ALLOWED = {
    "operations/project/plan.py": "the line by which a file that init made is known",
    "pipeline/pipeline.py": "the author of records: the program and its version",
    "releases.py": "the name of the program whose release a store needs",
    "testing/engine.py": "the same name, in what an engine is to say",
    "config/reference.py": "the head of the page on the configuration, for people",
}
"""Modules below that hold the text, and why."""


def strings(source: str) -> Iterator[tuple[int, str]]:
    """The strings of a module by line, without the texts for readers of code."""
    tree = ast.parse(source)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


def found(path: Path) -> list[str]:
    """The places where a module names a command line."""
    return [f"{path.relative_to(PACKAGE)}:{line}: {text}" for line, text in strings(path.read_text()) if COMMAND in text]


def test_no_module_below_names_a_command_line() -> None:
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    below = [path for module, path in modules.items() if not module.startswith(TELLS) and module not in ALLOWED]
    assert "manifest/manifest.py" in modules
    assert [where for path in below for where in found(path)] == []


@pytest.mark.parametrize("module", ALLOWED)
def test_what_is_allowed_is_needed(module: str) -> None:
    assert found(PACKAGE / module)


@pytest.mark.parametrize("source", ['a = "do: manifest-platform drain"', 'a = f"do: manifest-platform resolve {item}"'])
def test_a_command_line_is_found_wherever_code_has_it(source: str) -> None:
    assert any(COMMAND in text for _, text in strings(source))


def test_words_for_readers_are_none_of_the_code() -> None:
    assert list(strings('"""manifest-platform drain"""\n\na = 1\n"""manifest-platform drain"""\n')) == []
