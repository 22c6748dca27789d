"""The documentation of the configuration, made from its models: a JSON Schema for editors, and the reference page.

Belongs here: the format of both. Does not belong here: the meaning, unit and default of a key, which are with its field.
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

This page lists every key of the configuration file. `manifest-platform config reference` makes it.

`manifest-platform config check` checks a file, and `config show` prints it with all defaults. `config schema` prints a JSON
Schema, with which editors can complete and check the YAML. Write the schema to a file, and name that file in the first line of
your configuration: `# yaml-language-server: $schema=./manifest_platform.schema.json`.

`${NAME}` takes a value from the environment, and `${NAME:-default}` has a default. A secret itself is never written, only a
reference to it: `NAME` or `env:NAME` for an environment variable, `file:/path`, `secretsmanager:NAME` for AWS Secrets Manager,
or `ssm:NAME` for a parameter of AWS Systems Manager; `#KEY` at its end takes a key of the secret's JSON. The same forms stand
in `${…}`. How: [secrets](../how-to/secrets.md).

Relative paths are relative to the file. Unknown keys and wrong values are refused. All of them are reported together, each with
the allowed values."""
_REFERENCE = {"type": "string", "pattern": r"\$\{"}


@dataclass(frozen=True)
class Key:
    """A key of the configuration: its name, its allowed values, its default as YAML (None: required), and its meaning."""

    name: str
    allowed: str
    default: str | None
    meaning: str


@dataclass(frozen=True)
class Section:
    """A part of the configuration: its name, its meaning as a sentence, and its keys."""

    name: str
    meaning: str
    keys: Sequence[Key]


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of a configuration file, with the settings of all installed plug-ins.

    It also allows a text with `${NAME}` for numbers, booleans and texts with a pattern, because the value of the variable is
    unknown until the file is read.
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
    for key in (one for one in list(node) if one != "propertyNames"):  # names of keys cannot have variables
        _allow_references(node[key])
    if node.get("type") in _SCALARS or (node.get("type") == "string" and "pattern" in node):
        told = {key: node.pop(key) for key in list(node) if key not in ("title", "description", "default")}
        node["anyOf"] = [told, _REFERENCE]


def reference() -> str:
    """Returns the reference page in Markdown: a section for each part, with the settings of the platform's own plug-ins."""
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
    """Returns the parts of the configuration, datasets first, in the order of the models."""
    found = Config.model_json_schema()
    return list(_sections("", found, found["$defs"]))


def _sections(name: str, node: dict[str, Any], definitions: dict[str, Any]) -> Iterator[Section]:
    """Yields the section of a part, then those of the parts below it."""
    keys: list[Key] = []
    below: list[tuple[str, dict[str, Any]]] = []
    for key, field in node["properties"].items():
        parts = list(_parts(f"{name}.{key}".lstrip("."), field, definitions))
        below += parts
        allowed = "see its section" if parts else _allowed(field, definitions)
        keys.append(Key(key, allowed, _default(key, node, is_part=bool(parts)), field.get("description", "")))
    yield Section(name or "The file", " ".join(node.get("description", "").split()), keys)
    for whole, part in below:
        yield from _sections(whole, part, definitions)


def _default(key: str, node: dict[str, Any], is_part: bool) -> str | None:
    """Returns the default of a key as YAML; None if the key is required."""
    if key in node.get("required", ()):
        return None
    default = node["properties"][key].get("default", {})
    return "defaults of its keys" if is_part and default is not None else json.dumps(default)


def _parts(name: str, field: dict[str, Any], definitions: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the parts of a field with their names: a part for each plug-in; `NAME` in a name stands for any name."""
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
    """Returns the name of a part, followed by the name of the plug-in that it belongs to."""
    plugin = next((value["const"] for value in part["properties"].values() if "const" in value), None)
    return f"{name} ({plugin})" if plugin else name


def _resolved(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {**definitions[field["$ref"].rpartition("/")[2]], **field} if "$ref" in field else field


def _allowed(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Returns the allowed values of a field, in words."""
    field = _resolved(field, definitions)
    if "const" in field:
        return f"`{field['const']}`" if isinstance(field["const"], str) else f"`{json.dumps(field['const'])}`"
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
        return "see its section" if "properties" in field else "keys and values"
    if field.get("format") == "secret":
        return "a variable, or another reference to a secret"
    words = {"string": "a text", "boolean": "`true`, `false`", "null": "`null`"}
    return words.get(kind, kind) + (f" that matches `{field['pattern']}`" if "pattern" in field else "")
