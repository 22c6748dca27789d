"""Runs the demo: the story of a source, with the operator's own commands, in the current folder.

The manifest is in SQLite, or in DynamoDB Local, which runs only during the demo.
"""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from pathlib import Path
from types import ModuleType

import typer

from manifest_platform import config, extras, storage
from manifest_platform.demo import shop, vault
from manifest_platform.demo.dynamodb import dynamodb_local
from manifest_platform.demo.server import ServerFailed
from manifest_platform.demo.stage import (
    HOME_VARIABLE,
    DemoFailed,
    clean,
    configuration_with,
    home_of,
    lay_out,
    program,
    say,
    stage,
    type_,
)

STORIES: dict[str, ModuleType] = {"snowplow": shop, "veeva": vault}
STORES = ("sqlite", "dynamodb")
TABLE = "manifest-platform-demo"
EXPECTED = (DemoFailed, ServerFailed, config.ConfigError)
"""The expected errors of the demo, whose message is enough."""


def tell(pipeline: str, store: str, day: date | None = None) -> Path:
    """Removes an earlier demo, then runs a story; returns its directory.

    `day`: the day of the story's data, by default two days ago.
    Raises MissingExtra if an extra is not installed, or an error of EXPECTED.
    """
    extras.need("pyspark", "pyarrow", "duckdb")
    storage.withhold(0o077)
    story = STORIES[pipeline]
    home = home_of(story.CONFIGURATION, _folder(story, store), story.DATASET)
    clean(home)
    lay_out(story.CONFIGURATION)
    day = day or story.day_before(datetime.now(UTC))
    if store == "dynamodb":
        _tell_on_dynamodb(story, home, day)
    else:
        with stage(home):
            story.tell(home, day)
        story.tell_what_next(home, day)
    return home


def remove(pipeline: str) -> list[Path]:
    """Removes the files of a story, for every store, and returns their directories. Raises an error of EXPECTED."""
    story = STORIES[pipeline]
    there = os.environ.get(HOME_VARIABLE)
    homes: list[Path] = []
    for store in STORES:
        os.environ[HOME_VARIABLE] = there or ""
        home = home_of(story.CONFIGURATION, _folder(story, store), story.DATASET)
        if home not in homes:
            clean(home, story.CONFIGURATION)
            homes.append(home)
    return homes


def land() -> str:
    """Writes one more run of the web shop into the demo's landing root, and returns its name. Raises an error of EXPECTED."""
    storage.withhold(0o077)
    return shop.land(home_of(shop.CONFIGURATION, shop.FOLDER, shop.DATASET), datetime.now(UTC))


def _folder(story: ModuleType, store: str) -> str:
    """Returns the default folder of a story: a folder of its own for each store."""
    return story.FOLDER if store == STORES[0] else f"{story.FOLDER}-{store}"


def _tell_on_dynamodb(story: ModuleType, home: Path, day: date) -> None:
    with stage(home):
        typer.echo("Starting DynamoDB Local. The first time, it is downloaded from Maven Central.")
        with dynamodb_local(home / "dynamodb.log") as server:
            os.environ.update(server.environment)
            os.environ[config.VARIABLE] = str(configuration_with(story.CONFIGURATION, server.store(TABLE), home))
            say("The manifest will be in a DynamoDB table. Create it once:")
            type_("manifest-platform store create")
            story.tell(home, day)
    again = f"{program('manifest-platform')} demo"
    typer.echo(f"  {again:<32} the same on SQLite, to explore afterward (this table, {TABLE}, is gone)")
    typer.echo("  manifest.store: dynamodb://TABLE?region=eu-west-1     in your configuration, for a table of your account")
