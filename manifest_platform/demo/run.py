"""Runs the demo: the story of a source, with the operator's own commands, in the current folder.

The manifest is in SQLite, or in DynamoDB Local, which runs only during the demo. The warehouse is a DuckDB file, or a
PostgreSQL server in the demo's directory, which keeps running. On a cluster, all data are in servers that run only during the
demo.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from manifest_platform import config, extras, storage
from manifest_platform.demo import cluster, shop, vault
from manifest_platform.demo.dynamodb import dynamodb_local
from manifest_platform.demo.postgresql import PostgreSQLServer
from manifest_platform.demo.server import ServerFailed
from manifest_platform.demo.stage import (
    DAGSTER_HOME,
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
CLUSTER_FOLDER = f"{shop.FOLDER}-cluster"
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


def tell_on_cluster(day: date | None = None, serve: bool = False) -> Path:
    """Removes an earlier demo on a cluster, then runs the web shop's story on one; returns its directory.

    `serve`: then shows it in Dagster, and keeps the servers until Dagster ends. Raises as `tell`.
    """
    home = begin(shop, CLUSTER_FOLDER)
    day = day or shop.day_before(datetime.now(UTC))
    then = "The servers run until Dagster ends." if serve else "The servers have ended, and their data go with the next demo."
    with stage(home, then):
        typer.echo("Starting S3, DynamoDB Local, PostgreSQL, and Spark's master, two workers and Connect server.")
        typer.echo("The first time, the S3 server is built and DynamoDB Local is downloaded, which takes some minutes.")
        with cluster.deployment(home) as servers:
            typer.echo(f"S3 is {servers.s3.endpoint}, the store {servers.store}, Spark {servers.remote}.")
            own = configure(shop, home, **servers.configuration(shop.DATASET))
            say("The manifest will be in a DynamoDB table. Create it once:")
            type_("manifest-platform store create")
            shop.tell(home, day)
            if serve:
                _show(home, {**servers.s3.environment, config.VARIABLE: str(own)})
    again = f"{program('manifest-platform')} demo --cluster"
    typer.echo(f"  {again} --serve   tells the same again, then shows it in Dagster, with the servers running")
    typer.echo(f"  {os.path.relpath(own)}   is an example of a configuration for such a deployment")
    return home


def refuse_on_cluster(pipeline: str, store: str, warehouse: str) -> None:
    """Raises DemoFailed if a demo on a cluster is asked for another story, store or warehouse than it has."""
    if (pipeline, store, warehouse) != ("snowplow", STORES[0], WAREHOUSES[0]):
        raise DemoFailed(
            "the demo on a cluster has its own store and warehouse, and tells the web shop's story only: leave out"
            " --pipeline, --store and --warehouse"
        )


def _show(home: Path, variables: dict[str, str]) -> None:
    """Lands some more runs and runs Dagster until it ends or is interrupted."""
    for number in range(shop.MORE):
        shop.land(home, datetime.now(UTC) - number * shop.STEP)
    file = os.path.relpath(cluster.write_environment(home, variables))
    say(f"Dagster starts, and loads {shop.MORE} runs that have just landed. In another terminal:")
    typed = program("manifest-platform")
    typer.echo(f"  . {file}   then the commands below work there, while Dagster runs")
    typer.echo(f"  {typed} demo --land --cluster   lands one more run; watch Dagster load it")
    typer.echo(f"  {typed} status")
    environment = {**os.environ, **variables, "DAGSTER_HOME": str(DAGSTER_HOME.absolute())}
    command = [sys.executable, "-m", "dagster", "dev", "-m", "manifest_platform.definitions"]
    dagster = subprocess.Popen(command, env=environment)
    try:
        dagster.wait()
    except KeyboardInterrupt:
        dagster.wait()  # the terminal has interrupted it too


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
    folders = [_folder(story, store, warehouse) for store, warehouse in _TOGETHER]
    for folder in [*folders, *([CLUSTER_FOLDER] if story is shop else [])]:
        os.environ[HOME_VARIABLE] = there or ""
        home = home_of(story.CONFIGURATION, folder, story.DATASET)
        if home not in homes:
            clean(home, story.CONFIGURATION)
            homes.append(home)
    return homes


def land_on_cluster() -> str:
    """Writes one more run into the landing root of a demo on a cluster that runs now. Raises an error of EXPECTED."""
    home = home_of(shop.CONFIGURATION, CLUSTER_FOLDER, shop.DATASET)
    if not (home / cluster.ENVIRONMENT).exists():
        raise DemoFailed(f"{home} runs no servers: run {program('manifest-platform')} demo --cluster --serve first")
    os.environ[config.VARIABLE] = str(home / shop.CONFIGURATION)
    return shop.land(home, datetime.now(UTC))


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
