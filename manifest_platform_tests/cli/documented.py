"""Whether an answer in JSON is what the command is documented to answer, field by field."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import click


def require_documented(text: str) -> None:
    """Raises AssertionError if an answer breaks the schema of its command. Answers of plug-ins are not checked."""
    command = _at_work()
    if (validator := _validator(command)) is None:
        return
    from jsonschema.exceptions import best_match

    answer = json.loads(text)
    if error := best_match(validator.iter_errors(answer)):
        where = "/".join(map(str, error.path)) or "the answer"
        told = f"at {where}: {error.message}\n{text}"
        raise AssertionError(f"`{command} --json` answers what cli/answers does not tell of, {told}")


def _at_work() -> str:
    """The typed words of the running command."""
    context, names = click.get_current_context(silent=True), []
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return " ".join(names)


@cache
def _validator(command: str) -> Any:
    from jsonschema import Draft202012Validator

    from manifest_platform.cli.answers import ANSWERS, schema

    return Draft202012Validator(closed(schema(command))) if command in ANSWERS else None


def closed(schema: Any) -> Any:
    """The schema with no additional fields allowed. Readers ignore new fields, but the documentation must name them."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    told = {name: closed(one) for name, one in schema.items()}
    return told if "properties" not in told else {"additionalProperties": False, **told}
