"""Settings as YAML for people: each key follows a comment with its model's description."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from manifest_platform.settings import PluginSettings

_WIDTH = 120


def commented(values: Mapping[str, Any], model: type[BaseModel], models: Mapping[str, type[BaseModel]], depth: int = 0) -> str:
    """Returns the values as YAML, indented by `depth` steps of two spaces. `models`: those of keys with plug-in settings."""
    return "\n".join(_lines(values, model, models, depth)) + "\n"


def _lines(
    values: Mapping[str, Any], model: type[BaseModel] | None, models: Mapping[str, type[BaseModel]], depth: int
) -> Iterator[str]:
    margin = "  " * depth
    for key, value in values.items():
        field = model.model_fields.get(key) if model else None
        if field and field.description:
            yield from textwrap.wrap(
                field.description,
                _WIDTH,
                initial_indent=f"{margin}# ",
                subsequent_indent=f"{margin}# ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        if isinstance(value, Mapping) and value:
            yield f"{margin}{key}:"
            yield from _lines(value, models.get(key) or _model_of(field, value), models, depth + 1)
        elif isinstance(value, list | tuple) and value:
            yield f"{margin}{key}:"
            yield from (f"{margin}  - {_scalar(one)}" for one in value)
        else:
            yield f"{margin}{key}: {_scalar(value)}"


def _model_of(field: FieldInfo | None, value: Any) -> type[BaseModel] | None:
    """Returns the model of a field's value; None if it has none."""
    if plugin := PluginSettings.of(field) if field else None:
        return plugin.settings_of(value)
    return _model_in(field.annotation) if field else None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Returns the model in a field's type, also if the field is optional."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def _scalar(value: Any) -> str:
    """Returns a value on one line such that YAML reads it back: an ambiguous text is quoted."""
    if isinstance(value, str):
        try:
            plain = yaml.safe_load(value) == value and value == value.strip() and "\n" not in value
        except yaml.YAMLError:
            plain = False
        return value if plain and ": " not in value and " #" not in value else json.dumps(value, ensure_ascii=False)
    return yaml.safe_dump(value, default_flow_style=True).partition("\n...")[0].strip()
