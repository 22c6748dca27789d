"""The demo: a story of one of the sources, told by the operator's own commands in the folder where it is started.

The manifest is kept in SQLite, or in DynamoDB Local, which runs as long as the demo does.
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
"""What may keep a story from being told."""


def tell(pipeline: str, store: str, day: date | None = None) -> Path:
    """Tells a story of a day (one just over), from a fresh start; its directory. Raises MissingExtra, or what EXPECTED has."""
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
    """Removes what a story left, on every store, and says where that was. Raises what EXPECTED has."""
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
    """Lands one more run of the web shop where its story was told; its name. Raises what EXPECTED has."""
    storage.withhold(0o077)
    return shop.land(home_of(shop.CONFIGURATION, shop.FOLDER, shop.DATASET), datetime.now(UTC))


def _folder(story: ModuleType, store: str) -> str:
    """Where a story is told, unless the environment says otherwise: on another store, beside the one to look around in."""
    return story.FOLDER if store == STORES[0] else f"{story.FOLDER}-{store}"


def _tell_on_dynamodb(story: ModuleType, home: Path, day: date) -> None:
    with stage(home):
        typer.echo("Starting DynamoDB Local; the first time, it is fetched from Maven Central.")
        with dynamodb_local(home / "dynamodb.log") as server:
            os.environ.update(server.environment)
            os.environ[config.VARIABLE] = str(configuration_with(story.CONFIGURATION, server.store(TABLE), home))
            say("The manifest is to be in a DynamoDB table, so that has to be made, once.")
            type_("manifest-platform store create")
            story.tell(home, day)
    again = f"{program('manifest-platform')} demo"
    typer.echo(f"  {again:<32} the same on SQLite, to look around in (this table, {TABLE}, is gone)")
    typer.echo("  manifest.store: dynamodb://TABLE?region=eu-west-1     in your configuration, for a table of your account")
