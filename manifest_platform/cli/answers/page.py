"""The reference page of all answers (docs/reference/json.md), made from their JSON Schemas."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from manifest_platform.cli.answers import ANSWERS, Lines, schema

_HEAD = """\
# Answers in JSON

`manifest-platform schema` makes this page; `manifest-platform schema COMMAND` prints the JSON Schema of one command's answer.

With `--json`, stdout has the answer and nothing else: one JSON document, on one line. Commands that report events print a line
for each event, and the summary last; a program that needs only the summary reads the last line. Warnings and errors for people
always go to stderr. Any command that fails prints `{"error": {"type": …, "message": …}}`. The exit codes are the same as
without `--json`: see [command-line.md](command-line.md).

Within a major release, no field is removed, and each keeps its name, its type and its meaning. Any release may add fields and
kinds of events: ignore those that you do not know. Texts such as `message`, `reason`, `cause` and `text` are for people and may
change. Programs should read `type`, `kind`, `answer`, `stop`, `status` and the exit code. Times are ISO 8601 in UTC; sizes are
in bytes.
"""


def page() -> str:
    """Returns the page, in Markdown."""
    kinds: dict[str, Any] = {}
    rows = []
    for command, answer in ANSWERS.items():
        told = schema(command)
        kinds |= told.get("$defs", {})
        refs = [_type(one) for one in _alternatives(told) if one.get("$ref") != "#/$defs/Failed"]
        how = "a line for each: " if isinstance(answer, Lines) else ""
        rows.append(f"| `{command}` | {how}{', '.join(refs) or 'no JSON, except for errors'} |")
    parts = [_HEAD, "| command | answer |\n|---|---|\n" + "\n".join(rows), "## Documents"]
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
    """Returns a type in words, with a link to its section."""
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
