"""What the configuration may say: a JSON Schema for editors, and the reference page, both made from the models.

Belongs here: how fields are described. Each field's meaning, unit and default stand once, with the field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from manifest_platform.config.config import Config

_SCALARS = ("number", "integer", "boolean")
_HEADS = ("| key | allowed | default | meaning |", "|---|---|---|---|")
_OPENING = """\
# Configuration

Every key of the configuration file. `manifest-platform config check` validates a file, `config show` prints it with its
defaults, and `config schema` prints a JSON Schema, by which editors complete and check the YAML: write it to a file, and name
that file in the first line of yours, as `# yaml-language-server: $schema=./manifest_platform.schema.json`. This page is made by
`manifest-platform config reference`.

`${NAME}` takes a value from the environment, and `${NAME:-default}` has a default; a secret is written in no other way.
Relative paths are relative to the file. A wrong key or value is refused. All of them are told at once, each with what is
allowed."""
_REFERENCE = {"type": "string", "pattern": r"\$\{"}


@dataclass(frozen=True)
class Key:
    """A key of a part: its name, what it may be, its default as YAML has it (None: required), and its meaning."""

    name: str
    allowed: str
    default: str | None
    meaning: str


@dataclass(frozen=True)
class Section:
    """The keys of a part of the configuration, and the sentence that says what the part is."""

    name: str
    meaning: str
    keys: Sequence[Key]


def schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file, with the settings of every installed plug-in.

    A number, a truth value or a text of a certain form may be one with `${NAME}` too: what that stands for is known only when
    the file is read.
    """
    found = Config.model_json_schema()
    _allow_references(found)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def _allow_references(node: Any) -> None:
    if isinstance(node, list):
        for one in node:
            _allow_references(one)
    if not isinstance(node, dict):
        return
    for key in (one for one in list(node) if one != "propertyNames"):  # keys are taken as they are
        _allow_references(node[key])
    if node.get("type") in _SCALARS or (node.get("type") == "string" and "pattern" in node):
        told = {key: node.pop(key) for key in list(node) if key not in ("title", "description", "default")}
        node["anyOf"] = [told, _REFERENCE]


def reference() -> str:
    """The reference page, as Markdown: a section for each part, with the settings of the platform's own plug-ins."""
    lines: list[str] = [*_OPENING.splitlines()]
    for section in sections():
        lines += [
            "",
            f"## {section.name}",
            "",
            section.meaning,
            "",
            "| key | allowed | default | meaning |",
            "|---|---|---|---|",
        ]
        for key in section.keys:
            default = "required" if key.default is None else f"`{key.default}`"
            lines.append(f"| `{key.name}` | {_escaped(key.allowed)} | {default} | {_escaped(key.meaning)} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


def sections() -> list[Section]:
    """The parts of the configuration, datasets first, in the order of the models."""
    found = Config.model_json_schema()
    return list(_sections("", found, found["$defs"]))


def _sections(name: str, node: dict[str, Any], definitions: dict[str, Any]) -> Iterator[Section]:
    """The section of a part, and those of the parts below it."""
    keys: list[Key] = []
    below: list[tuple[str, dict[str, Any]]] = []
    for key, field in node["properties"].items():
        parts = list(_parts(f"{name}.{key}".lstrip("."), field, definitions))
        below += parts
        allowed = "keys of its own" if parts else _allowed(field, definitions)
        keys.append(Key(key, allowed, _default(key, node, is_part=bool(parts)), field.get("description", "")))
    yield Section(name or "The file", " ".join(node.get("description", "").split()), keys)
    for whole, part in below:
        yield from _sections(whole, part, definitions)


def _default(key: str, node: dict[str, Any], is_part: bool) -> str | None:
    """The default of a key as YAML has it; None where it is required."""
    if key in node.get("required", ()):
        return None
    default = node["properties"][key].get("default", {})
    return "its own" if is_part and default is not None else json.dumps(default)


def _parts(name: str, field: dict[str, Any], definitions: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts that a field holds, each with its name: several where a plug-in is chosen, a name in capitals for any name."""
    field = {**field, **definitions[field["$ref"].rpartition("/")[2]]} if "$ref" in field else field
    if "properties" in field:
        yield name, field
    for one in field.get("anyOf", ()):
        yield from ((_of_plugin(whole, part), part) for whole, part in _parts(name, one, definitions))
    for more in (field.get("additionalProperties"), *field.get("patternProperties", {}).values()):
        if isinstance(more, dict):
            yield from _parts(f"{name}.NAME", more, definitions)
    if isinstance(items := field.get("items"), dict):
        yield from _parts(f"{name}[]", items, definitions)


def _of_plugin(name: str, part: dict[str, Any]) -> str:
    """The name of a part, with that of the plug-in which it is for."""
    plugin = next((value["const"] for value in part["properties"].values() if "const" in value), None)
    return f"{name} ({plugin})" if plugin else name


def _resolved(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {**definitions[field["$ref"].rpartition("/")[2]], **field} if "$ref" in field else field


def _allowed(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """What a field may be, in words."""
    field = _resolved(field, definitions)
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{one}`" for one in field["enum"])
    if "anyOf" in field:
        words = [_allowed(one, definitions) for one in field["anyOf"]]
        return ", or ".join(dict.fromkeys(words))
    kind = field.get("type", "a value")
    if kind in ("number", "integer"):
        low, high = field.get("minimum"), field.get("maximum")
        above = field.get("exclusiveMinimum")
        bounds = [f"at least {low:,}" if low is not None else "", f"more than {above:,}" if above is not None else ""]
        bounds += [f"at most {high:,}" if high is not None else ""]
        return ", ".join(["a whole number" if kind == "integer" else "a number", *(bound for bound in bounds if bound)])
    if kind == "array":
        return f"a list of: {_allowed(field['items'], definitions)}" if "items" in field else "a list"
    if kind == "object":
        return "a part of its own" if "properties" in field else "keys and values"
    words = {"string": "a text", "boolean": "`true`, `false`", "null": "`null`"}
    return words.get(kind, kind) + (f" like `{field['pattern']}`" if "pattern" in field else "")
