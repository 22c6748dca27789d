"""The JSON Schema of a component's attributes, made from the configuration's models, for `dg check yaml` and Dagster's docs.

A template may replace any value that is not free text. The plug-in that a part names determines what is allowed in that part.
"""

from __future__ import annotations

from typing import Any

from manifest_platform.config import Config

_TEMPLATE = {"type": "string", "pattern": r"\{\{|\$\{"}
_NAMING = ("source", "kind")
"""The keys by which a part of the configuration names its plug-in."""


def of_attributes(own: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of the component: its own attributes (`config`, `translation`) and the configuration's keys."""
    whole = Config.model_json_schema()
    parts = {name: _loosened(schema) for name, schema in whole["properties"].items()}
    names = {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "some datasets of the file"}
    described = parts["datasets"].pop("description", "")
    parts["datasets"] = {"description": described, "if": {"type": "array"}, "then": names, "else": parts["datasets"]}
    return {
        **own,
        "$defs": {**own.get("$defs", {}), **{name: _loosened(schema) for name, schema in whole["$defs"].items()}},
        "properties": {**own["properties"], **parts, "translation": own["properties"]["translation"]},
        "examples": [example],
    }


def _loosened(schema: Any) -> Any:
    """Returns a schema in which a template may replace a number, a choice or a text with a pattern."""
    if isinstance(schema, list):
        return [_loosened(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if variants := _variants(schema):
        return variants
    inner = {key: value if key in ("default", "examples") else _loosened(value) for key, value in schema.items()}
    if "const" in schema or "enum" in schema or "pattern" in schema or schema.get("type") in ("integer", "number", "boolean"):
        told = {key: inner.pop(key) for key in ("default", "description", "title") if key in inner}
        return {**told, **_or_template(inner)}
    return inner


def _or_template(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a schema that templates bypass. `if`/`else` keeps the schema's own error message, which `anyOf` would hide."""
    return {"if": _TEMPLATE, "else": schema}


def _variants(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Returns a schema that picks the model which the value's `source` or `kind` names, None if the schema is no such choice.

    With `anyOf`, an error would list the faults of every model; here only the named model reports faults.
    """
    models = [one for one in schema.get("anyOf", ()) if isinstance(one, dict) and one.get("type") == "object"]
    key = next(
        (name for name in _NAMING if models and all("const" in one.get("properties", {}).get(name, {}) for one in models)), None
    )
    if key is None or any(one not in models and one != {"type": "null"} for one in schema["anyOf"]):
        return None
    allowed = [one["properties"][key]["const"] for one in models]
    told = {name: value for name, value in schema.items() if name != "anyOf"}
    return {
        **told,
        "properties": {key: _or_template({"enum": allowed})},
        "allOf": [
            {"if": {"required": [key], "properties": {key: {"const": name}}}, "then": _loosened(model)}
            for name, model in zip(allowed, models, strict=True)
        ],
    }
