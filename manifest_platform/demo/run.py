"""The demo: a story of one of the sources, told by the operator's own commands in the folder where it is started.

The manifest is kept in SQLite, or in DynamoDB Local, which runs as long as the demo does.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import typer

from manifest_platform import config, extras, storage
from manifest_platform.demo import shop, vault
from manifest_platform.demo.dynamodb import dynamodb_local
from manifest_platform.demo.server import ServerFailed
from manifest_platform.demo.stage import DemoFailed, clean, configuration_with, home_of, lay_out, program, say, stage, type_

STORIES: dict[str, ModuleType] = {"snowplow": shop, "veeva": vault}
TABLE = "manifest-platform-demo"
EXPECTED = (DemoFailed, ServerFailed, config.ConfigError)
"""What may keep a story from being told."""


def tell(pipeline: str, store: str) -> Path:
    """Tells a story from a fresh start; its directory. Raises MissingExtra, and what EXPECTED has."""
    extras.need("pyspark", "pyarrow", "duckdb")
    storage.withhold(0o077)
    story = STORIES[pipeline]
    home = home_of(story.CONFIGURATION, story.FOLDER, story.DATASET)
    clean(home)
    lay_out(story.CONFIGURATION)
    if store == "dynamodb":
        _tell_on_dynamodb(story, home)
    else:
        with stage(home):
            story.tell(home)
        story.tell_what_next()
    return home


def remove(pipeline: str) -> Path:
    """Removes what a story left, and says where that was. Raises what EXPECTED has."""
    story = STORIES[pipeline]
    home = home_of(story.CONFIGURATION, story.FOLDER, story.DATASET)
    clean(home, story.CONFIGURATION)
    return home


def _tell_on_dynamodb(story: ModuleType, home: Path) -> None:
    with stage(home):
        typer.echo("Starting DynamoDB Local; the first time, it is fetched from Maven Central.")
        with dynamodb_local(home / "dynamodb.log") as server:
            os.environ.update(server.environment)
            os.environ[config.VARIABLE] = str(configuration_with(story.CONFIGURATION, server.store(TABLE), home))
            say("The manifest is to be in a DynamoDB table, so that has to be made, once.")
            type_("manifest-platform store create")
            story.tell(home)
    again = f"{program('manifest-platform')} demo"
    typer.echo(f"  {again:<32} the same on SQLite, to look around in (this table, {TABLE}, is gone)")
    typer.echo("  manifest.store: dynamodb://TABLE?region=eu-west-1     in your configuration, for a table of your account")
