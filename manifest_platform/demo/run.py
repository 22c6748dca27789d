"""Runs the demo: the story of a source, with the operator's own commands, in the current folder.

The manifest is in SQLite, or in DynamoDB Local, which runs only during the demo. The warehouse is a DuckDB file, or a
PostgreSQL server in the demo's directory, which keeps running.
"""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from manifest_platform import config, extras, storage
from manifest_platform.demo import shop, vault
from manifest_platform.demo.dynamodb import dynamodb_local
from manifest_platform.demo.postgresql import PostgreSQLServer
from manifest_platform.demo.server import ServerFailed
from manifest_platform.demo.stage import (
    HOME_VARIABLE,
    SERVER_FOLDER,
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
WAREHOUSES = ("duckdb", "postgresql")
_TOGETHER = (*((store, WAREHOUSES[0]) for store in STORES), (STORES[0], WAREHOUSES[1]))
"""The stores and warehouses that the demo combines."""
TABLE = "manifest-platform-demo"
LAB = "lab"
"""The second target of the demo on PostgreSQL."""
EXPECTED = (DemoFailed, ServerFailed, config.ConfigError)
"""The expected errors of the demo, whose message is enough."""


def tell(pipeline: str, store: str, day: date | None = None, warehouse: str = WAREHOUSES[0]) -> Path:
    """Removes an earlier demo, then runs a story; returns its directory.

    `day`: the day of the story's data, by default two days ago.
    Raises MissingExtra if an extra is not installed, or an error of EXPECTED.
    """
    if (store, warehouse) not in _TOGETHER:
        raise DemoFailed("the demo takes another store or another warehouse, not both")
    story = STORIES[pipeline]
    home = begin(story, _folder(story, store, warehouse))
    day = day or story.day_before(datetime.now(UTC))
    if store == "dynamodb":
        _tell_on_dynamodb(story, home, day)
    elif warehouse == "postgresql":
        _tell_on_postgresql(story, home, day)
    else:
        with stage(home):
            story.tell(home, day)
        story.tell_what_next(home, day)
    return home


def begin(story: ModuleType, folder: str) -> Path:
    """Removes an earlier demo, and lays out the files of a story; returns its directory, which `stage` creates."""
    extras.need("pyspark", "pyarrow", "duckdb")
    storage.withhold(0o077)
    home = home_of(story.CONFIGURATION, folder, story.DATASET)
    clean(home)
    lay_out(story.CONFIGURATION)
    return home


def configure(story: ModuleType, home: Path, **changed: Any) -> Path:
    """Makes a story's configuration, with other values for some keys, that of this process; returns its file."""
    own = configuration_with(story.CONFIGURATION, home, **changed)
    os.environ[config.VARIABLE] = str(own)
    return own


def remove(pipeline: str) -> list[Path]:
    """Removes the files of a story, for every store and warehouse; returns their directories. Raises an error of EXPECTED."""
    story = STORIES[pipeline]
    there = os.environ.get(HOME_VARIABLE)
    homes: list[Path] = []
    for store, warehouse in _TOGETHER:
        os.environ[HOME_VARIABLE] = there or ""
        home = home_of(story.CONFIGURATION, _folder(story, store, warehouse), story.DATASET)
        if home not in homes:
            clean(home, story.CONFIGURATION)
            homes.append(home)
    return homes


def land(warehouse: str = WAREHOUSES[0]) -> str:
    """Writes one more run of the web shop into the demo's landing root, and returns its name. Raises an error of EXPECTED."""
    storage.withhold(0o077)
    home = home_of(shop.CONFIGURATION, _folder(shop, STORES[0], warehouse), shop.DATASET)
    return shop.land(home, datetime.now(UTC))


def serve(pipeline: str, warehouse: str) -> str:
    """Starts the server of an earlier demo if it does not run, and returns its URL. Raises an error of EXPECTED."""
    story = STORIES[pipeline]
    home = home_of(story.CONFIGURATION, _folder(story, STORES[0], warehouse), story.DATASET)
    if not (home / SERVER_FOLDER).exists():
        raise DemoFailed(f"{home} has no server: run {program('manifest-platform')} demo --warehouse {WAREHOUSES[1]} first")
    return PostgreSQLServer(home / SERVER_FOLDER).start()


def _folder(story: ModuleType, store: str, warehouse: str = WAREHOUSES[0]) -> str:
    """Returns the default folder of a story: a folder of its own for each store and warehouse."""
    beside = [name for name, usual in ((store, STORES[0]), (warehouse, WAREHOUSES[0])) if name != usual]
    return "-".join((story.FOLDER, *beside))


def _tell_on_postgresql(story: ModuleType, home: Path, day: date) -> None:
    with stage(home):
        server = PostgreSQLServer(home / SERVER_FOLDER)
        warehouse = {"kind": "postgresql", "url": server.start()}
        lab = {"kind": "duckdb", "path": f"{LAB}.duckdb"}
        typer.echo(f"A PostgreSQL server runs in {server.folder}. A second target, {LAB}, is a DuckDB file.")
        own = configure(story, home, warehouse=warehouse, targets={LAB: lab})
        story.tell(home, day)
        if story is shop:
            shop.tell_of_an_outage(home, day, server)
    typer.echo(f"  export {config.VARIABLE}={os.path.relpath(own)}")
    story.tell_what_next(home, day, WAREHOUSES[1])
    again = f"{program('manifest-platform')} demo"
    of_story = " --pipeline veeva" if story is vault else ""
    typer.echo(f"  {again}{of_story} --clean  stops the PostgreSQL server and removes the demo's files")


def _tell_on_dynamodb(story: ModuleType, home: Path, day: date) -> None:
    with stage(home):
        typer.echo("Starting DynamoDB Local. The first time, it is downloaded from Maven Central.")
        with dynamodb_local(home / "dynamodb.log") as server:
            os.environ.update(server.environment)
            configure(story, home, manifest={"store": server.store(TABLE)})
            say("The manifest will be in a DynamoDB table. Create it once:")
            type_("manifest-platform store create")
            story.tell(home, day)
    again = f"{program('manifest-platform')} demo"
    typer.echo(f"  {again:<32} the same on SQLite, to explore afterward (this table, {TABLE}, is gone)")
    typer.echo("  manifest.store: dynamodb://TABLE?region=eu-west-1     in your configuration, for a table of your account")
