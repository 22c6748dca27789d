"""The demo: a story of one of the sources, told by the operator's own commands.

The manifest is kept in SQLite, or in DynamoDB Local, which runs as long as the demo does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import typer

from manifest_platform import config, storage
from manifest_platform.cli import Exit
from manifest_platform.cli.output import warn
from manifest_platform.demo import shop, vault
from manifest_platform.demo.dynamodb import dynamodb_local
from manifest_platform.demo.server import ServerFailed
from manifest_platform.demo.stage import DemoFailed, clean, configuration_with, home_of, say, stage, type_

TABLE = "manifest-platform-demo"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo from a fresh start, or removes what it left (`--clean`). Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m manifest_platform.demo")
    parser.add_argument("--pipeline", choices=["snowplow", "veeva"], default="snowplow")
    parser.add_argument("--store", choices=["sqlite", "dynamodb"], default="sqlite")
    parser.add_argument("--clean", action="store_true", help="remove what the demo left")
    try:
        chosen = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    except SystemExit as wrong:
        return Exit.WRONG_USE if wrong.code else Exit.DONE
    storage.withhold(0o077)
    story = vault if chosen.pipeline == "veeva" else shop
    try:
        home = home_of(story.CONFIGURATION, story.FOLDER, story.DATASET)
        clean(home)
        if chosen.clean:
            typer.echo(f"{home} is removed")
        elif chosen.store == "dynamodb":
            _tell_on_dynamodb(story, home)
        else:
            with stage(home):
                story.tell(home)
            story.tell_what_next()
    except (DemoFailed, ServerFailed, config.ConfigError) as error:
        warn(f"error: {error}")
        return Exit.FAILED
    except KeyboardInterrupt:
        typer.echo("interrupted; `make demo` starts afresh", err=True)
        return Exit.FAILED
    return Exit.DONE


def _tell_on_dynamodb(story: ModuleType, home: Path) -> None:
    with stage(home):
        typer.echo("Starting DynamoDB Local; the first time, it is fetched from Maven Central.")
        with dynamodb_local(home / "dynamodb.log") as server:
            os.environ.update(server.environment)
            os.environ[config.VARIABLE] = str(configuration_with(story.CONFIGURATION, server.store(TABLE), home))
            say("The manifest is to be in a DynamoDB table, so that has to be made, once.")
            type_("manifest-platform store create")
            story.tell(home)
    typer.echo(f"  make demo                        the same on SQLite, to look around in (this table, {TABLE}, is gone)")
    typer.echo("  manifest.store: dynamodb://TABLE?region=eu-west-1     in your configuration, for a table of your account")
