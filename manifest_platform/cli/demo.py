"""`demo`: runs a demo in this folder, or removes its files."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, app, as_json, fail
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import say
from manifest_platform.cli.signals import Interrupted


class Story(StrEnum):
    """The kind of data that the demo loads."""

    SNOWPLOW = "snowplow"
    VEEVA = "veeva"


class Kept(StrEnum):
    """The store that the demo keeps its manifest in."""

    SQLITE = "sqlite"
    DYNAMODB = "dynamodb"


class Loaded(StrEnum):
    """The warehouse that the demo loads."""

    DUCKDB = "duckdb"
    POSTGRESQL = "postgresql"


@app.command(cls=Command)
def demo(
    context: typer.Context,
    pipeline: Annotated[
        Story, typer.Option(help="Data to load: the events of a web shop (Snowplow), or a day of a vault (Veeva).")
    ] = Story.SNOWPLOW,
    store: Annotated[Kept, typer.Option(help="Store for the manifest: a SQLite file, or DynamoDB Local.")] = Kept.SQLITE,
    warehouse: Annotated[
        Loaded, typer.Option(help="Warehouse: a DuckDB file, or a PostgreSQL server in the demo's folder, which keeps running.")
    ] = Loaded.DUCKDB,
    day: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Day of the data. Default: 2 days ago.")] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Remove the files of the demo, and do nothing else.")] = False,
    land: Annotated[
        bool, typer.Option("--land", help="Write one more run of the web shop, with the current time, and do nothing else.")
    ] = False,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Run the web shop on S3, DynamoDB Local, PostgreSQL and a Spark cluster, here.")
    ] = False,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Start the PostgreSQL server of an earlier demo again; with --cluster, end with Dagster."),
    ] = False,
) -> int:
    """Runs a demo in this folder: loads invented data, with a broken and a late directory.

    Takes about a minute. Writes a configuration file into this folder and everything else below .demo (for a vault
    .demo-veeva, on DynamoDB .demo-dynamodb, on PostgreSQL .demo-postgresql, on a cluster .demo-cluster). Removes the files of
    an earlier demo first.
    """
    from manifest_platform.demo import run

    try:
        if clean:
            say("\n".join(f"removed {home}" for home in run.remove(pipeline.value)))
        elif land:
            say(f"{run.land_on_cluster() if cluster else run.land(warehouse.value)} has landed")
        elif cluster:
            run.refuse_on_cluster(pipeline.value, store.value, warehouse.value)
            run.tell_on_cluster(day.date() if day else None, serve)
        elif serve:
            say(f"{run.serve(pipeline.value, warehouse.value)} answers")
        else:
            run.tell(pipeline.value, store.value, day.date() if day else None, warehouse.value)
    except run.EXPECTED as error:
        return fail(str(error), error, Exit.FAILED, as_json(context))
    except KeyboardInterrupt as error:
        raise Interrupted.of(error, "interrupted; `manifest-platform demo` starts again from the beginning") from error
    return Exit.DONE
