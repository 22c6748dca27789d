"""The reference page of all answers, from their JSON Schemas."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from manifest_platform.cli.answers import ANSWERS, Lines, schema

_HEAD = """\
# Answers in JSON

This page is made by `manifest-platform schema`; `manifest-platform schema COMMAND` prints the JSON Schema of one command's
answer.

With `--json`, stdout has the answer and nothing else: one JSON document, on one line. Commands that tell what happens as it
happens answer a line for each event, and the summary last: a program that wants that alone reads the last line. What is for
people, warnings and errors, goes to stderr in any case. A command that cannot do what it was asked answers
`{"error": {"type": …, "message": …}}`, whatever it is; the exit code says the same as without `--json`: see
[command-line.md](command-line.md).

Within a major release, a field keeps its name, its type and its meaning, and none is taken away. New fields, and new kinds of
events, may come in any release: pass over what you do not know. Texts, as `message`, `reason`, `cause` and `text`, are for
people and change; go by `type`, `kind`, `answer`, `stop`, `status` and the exit code. Times are in UTC, as ISO 8601; sizes are
in bytes.
"""


def page() -> str:
    """The page, in Markdown."""
    kinds: dict[str, Any] = {}
    rows = []
    for command, answer in ANSWERS.items():
        told = schema(command)
        kinds |= told.get("$defs", {})
        refs = [_type(one) for one in _alternatives(told) if one.get("$ref") != "#/$defs/Failed"]
        how = "a line each: " if isinstance(answer, Lines) else ""
        rows.append(f"| `{command}` | {how}{', '.join(refs) or 'an error alone'} |")
    parts = [_HEAD, "| command | answer |\n|---|---|\n" + "\n".join(rows), "## What these are"]
    for name, one in sorted(kinds.items()):
        fields = _wrapped("; ".join(_fields(one)))
        parts.append(f"### {name}\n\n{one.get('description', '')}\n\n{fields}".rstrip())
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 130, break_long_words=False, break_on_hyphens=False)


def _alternatives(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    return told.get("anyOf") or ([{"$ref": told["$ref"]}] if "$ref" in told else [])


def _fields(kind: Mapping[str, Any]) -> Iterator[str]:
    required = kind.get("required", ())
    for name, one in kind.get("properties", {}).items():
        yield f"`{name}`{'' if name in required else ' (may be left out)'}: {_type(one)}"


def _type(one: Mapping[str, Any]) -> str:
    """A type in words, with a link to what it is."""
    if ref := one.get("$ref"):
        name = ref.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if kinds := one.get("anyOf"):
        return " or ".join(_type(each) for each in kinds)
    if "const" in one:
        return f"`{one['const']}`"
    if "enum" in one:
        return ", ".join(f"`{each}`" for each in one["enum"])
    if one.get("type") == "array":
        return f"list of {_type(one['items'])}" if "items" in one else "list"
    if one.get("type") == "object":
        values = one.get("additionalProperties")
        return f"names with {_type(values)}" if isinstance(values, Mapping) else "object"
    return one.get("type", "anything")
