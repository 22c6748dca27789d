"""`config`: shows the effective configuration, checks a file, and documents its keys."""

from __future__ import annotations

import json

import typer
import yaml

from manifest_platform.cli.app import Command, as_json, given, group
from manifest_platform.cli.context import configuration
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say
from manifest_platform.config.config import ConfigError
from manifest_platform.config.present import problems
from manifest_platform.config.reading import file_of, without_secrets

config = group("config", "Shows, checks and documents the configuration.")


@config.command(cls=Command)
def show(context: typer.Context) -> int:
    """Prints the effective configuration: with defaults and absolute paths, without passwords."""
    told = _masked(configuration(context).model_dump(mode="json"))
    if as_json(context):
        print_json(told)
    else:
        say(yaml.safe_dump(told, sort_keys=False, allow_unicode=True).rstrip())
    return Exit.DONE


@config.command(cls=Command)
def check(context: typer.Context) -> int:
    """Checks that the configuration is valid, and that the files and folders that it names exist on this machine.

    Exit code 2 if not, with all problems of the file and the allowed values.
    """
    found, file = configuration(context), file_of(given(context, "config"))
    if wrong := problems(found):
        raise ConfigError("\n".join([f"{file}:", *(f"  {one}" for one in wrong)]))
    if as_json(context):
        print_json({"file": str(file), "valid": True, "datasets": list(found.datasets)})
    else:
        say(f"{file}: valid; datasets: {', '.join(found.datasets)}")
    return Exit.DONE


@config.command(cls=Command)
def schema(context: typer.Context) -> int:
    """Prints the JSON Schema of a configuration file, for editors that complete and check it."""
    from manifest_platform.config.reference import schema as json_schema

    say(json.dumps(json_schema(), indent=None if as_json(context) else 2))
    return Exit.DONE


@config.command(cls=Command)
def reference(context: typer.Context) -> int:
    """Prints the reference page of the configuration: every key with its type, default and meaning."""
    from manifest_platform.config.reference import reference as page

    if as_json(context):
        print_json({"markdown": page()})
    else:
        say(page().rstrip())
    return Exit.DONE


def _masked(value: object) -> object:
    """Returns the values with the passwords of URLs removed."""
    if isinstance(value, dict):
        return {key: _masked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_masked(one) for one in value]
    return without_secrets(value) if isinstance(value, str) else value
