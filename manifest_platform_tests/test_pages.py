"""Code in the pages is right: commands parse with their options, YAML fits the configuration, Python compiles."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import click
import jsonschema
import pytest
import yaml

from manifest_platform import plugins
from manifest_platform.cli.app import load
from manifest_platform.cli.commands import COMMANDS
from manifest_platform.config.config import Config
from manifest_platform_tests.source_names import ROOT

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\S*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SHELL = ("bash", "console", "sh")
CHECKED = {*SHELL, "yaml", "python", "mermaid"}
"""Kinds of blocks that are checked: `make docs` parses the pictures."""
SHOWN = {"", "text", "sql", "toml"}
"""Kinds of blocks that only show something: outputs, sketches, files and queries of a reader's own."""
OTHERS = ("sources",)
"""First keys of YAML that is not ours: dbt's."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its kind, its text, and the page with the line where it begins."""

    kind: str
    text: str
    where: str


@cache
def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for fence in FENCE.finditer(text):
            line = text.count("\n", 0, fence.start()) + 1
            found.append(Block(fence[2], textwrap.dedent(fence[3]), f"{page.relative_to(ROOT)}:{line}"))
    return found


def commands(block: Block) -> Iterator[list[str]]:
    """The arguments of each `manifest-platform …` of a block; of `console` blocks only lines after a prompt are typed."""
    joined = block.text.replace("\\\n", " ")
    lines = joined.splitlines()
    if block.kind == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    typed = ""
    for line in lines:
        typed += f"{line}\n"
        reader = shlex.shlex(typed, posix=True, punctuation_chars=True)
        reader.commenters, reader.whitespace_split = "#", True
        try:
            found = [*reader, ";"]
        except ValueError:
            continue  # a quotation continues in the next line
        typed, words = "", list[str]()
        for word in found:
            if not set(word) <= set("();<>|&"):
                words.append(word)
                continue
            at = next((n for n, name in enumerate(words) if name.endswith("manifest-platform")), None)
            if at is not None and all("=" in name or name in ("time", "sudo", "$") for name in words[:at]):
                yield words[at + 1 :]
            words = []


def problem(words: list[str]) -> str | None:
    """The reason why a command line is refused before it runs; None if it parses."""
    while len(words) > 1 and words[0] in ("--config", "--dataset"):
        words = words[2:]
    if not words or words[0].startswith("-"):
        return None if words in (["--version"], ["--help"]) else "no such option of the program"
    name, *rest = words
    if name not in {*COMMANDS, *plugins.names(plugins.COMMANDS)}:
        return "no such command"
    command: click.Command = load(name)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        context = click.Context(command)
        found, default = command.get_command(context, rest[0]), command.get_command(context, "items")
        if found is None and default is None:
            return f"no such command: {rest[0]}"
        if found:
            command, rest = found, rest[1:]
        elif default:
            command = default
    try:
        command.make_context(name, [word for word in rest if word != "--help"])
    except click.MissingParameter as error:
        return None if "--help" in rest else error.format_message()
    except click.BadParameter:
        return None  # a file of the reader's, or a word to replace
    except click.UsageError as error:
        return error.format_message()
    except click.exceptions.Exit:
        return None
    return None


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of the configuration, for fragments: nothing is required."""

    def relaxed(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: relaxed(value) for key, value in node.items() if not (key == "required" and isinstance(value, list))}
        return [relaxed(value) for value in node] if isinstance(node, list) else node

    return relaxed(Config.model_json_schema())


def fits(part: Any) -> bool:
    """True if YAML is a configuration, or a fragment of one: of a dataset, or of its merging."""
    wholes = [part, {"datasets": {"name": part}}, {"datasets": {"name": {"merge": part}}}]
    checker = jsonschema.Draft202012Validator(schema())
    return any(checker.is_valid(json.loads(json.dumps(whole, default=str))) for whole in wholes)


def of_kind(*kinds: str) -> list[Any]:
    return [pytest.param(block, id=block.where) for block in blocks() if block.kind in kinds]


def test_every_block_says_what_it_is() -> None:
    assert [block.where for block in blocks() if block.kind not in CHECKED | SHOWN] == []


@pytest.mark.parametrize("block", of_kind(*SHELL))
def test_commands_parse_with_their_options(block: Block) -> None:
    assert {shlex.join(words): why for words in commands(block) if (why := problem(words))} == {}


@pytest.mark.parametrize("block", of_kind("yaml"))
def test_yaml_fits_the_configuration(block: Block) -> None:
    part = yaml.safe_load(re.sub(r"\$\{\w+(?::-(\w*))?\}", lambda found: found[1] or "value", block.text))
    if "attributes" in part:
        assert part["type"] == "manifest_platform.Dataset"
        part = {key: value for key, value in part["attributes"].items() if key not in ("config", "translation")}
        if isinstance(part.get("datasets"), list):
            return
    assert fits(part) or next(iter(part)) in OTHERS


@pytest.mark.parametrize("block", of_kind("python"))
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.where, "exec")


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("drain --no-discover", None),
        ("drain --no-discovery", "No such option"),
        ("merge explain events 2026-11-01", None),
        ("merge explode", "no such command"),
        ("sqll 'SELECT 1'", "no such command"),
    ],
)
def test_a_wrong_command_is_found(line: str, wrong: str | None) -> None:
    found = problem(shlex.split(line))
    assert found is None if wrong is None else found and re.search(wrong, found, re.IGNORECASE)


def test_a_wrong_key_is_found() -> None:
    assert fits({"datasets": {"shop": {"source": "snowplow_enriched", "landing": {"root": "x"}}}})
    assert not fits({"datasets": {"shop": {"source": "snowplow_enriched", "landing": {"roots": "x"}}}})
    assert not fits({"merge": {"outputs": "x"}})
