"""`merge log` and `merge show`: the finished merges, and the inventory in the layout of Prism's tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Command, as_json, examples
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.merge.group import DateOption, TableOption, date_of, merge, open_merging
from manifest_platform.cli.output import print_json, print_table, say, wrapped
from manifest_platform.merging import views
from manifest_platform.merging.state import FinishedJob
from manifest_platform.operations.merge_asked import table_named
from manifest_platform.pipeline.merge import Merging
from manifest_platform.quantities import duration, size_of


@merge.command(cls=Command)
def log(
    context: typer.Context,
    table: TableOption = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Most merges to show.")] = 20,
) -> int:
    """Shows the last finished merges, newest first. Exit code 4 if there are none."""
    with open_merging(context) as merging:
        key = table_named(merging, table).key if table else None
        jobs = [job for job in merging.inventory.log(limit if key is None else 50 * limit) if key in (None, job.table)][:limit]
    if as_json(context):
        print_json({"jobs": [dataclasses.asdict(job) for job in jobs]})
    elif jobs:
        heads = ("finished (UTC)", "partition", "outcome", "rows", "in", "out", "took")
        print_table(heads, [_log_row(job) for job in jobs])
        for job in jobs:
            if job.error:
                say(wrapped(f"{job.table} {job.date}, {job.finished:%H:%M:%S}: {job.error}", "✗ ", "    "))
    else:
        say("no merge has ended yet")
    return Exit.DONE if jobs else Exit.NOTHING


def _log_row(job: FinishedJob) -> tuple[str, ...]:
    ranges = f" ({len(job.ranges)})" if len(job.ranges) > 1 else ""
    outcome = f"{job.outcome}{ranges}{f', try {job.attempts + 1}' if job.attempts else ''}"
    sizes = (size_of(job.bytes_in), size_of(job.bytes_out)) if job.ranges else ("-", "-")
    took = duration((job.finished - job.started).total_seconds())
    return (f"{job.finished:%m-%d %H:%M:%S}", f"{job.table} {job.date}", outcome, f"{job.rows:,}", *sizes, took)


class View(StrEnum):
    """The tables of Prism's metadata. Prism is the system whose model of merging this platform uses."""

    TABLES = "tables"
    PARTITIONS = "partitions"
    OBJECTS = "objects"
    RANGES = "ranges"
    JOBS = "jobs"


_SHORT = {
    View.TABLES: {
        "table_name": "table_name",
        "schema_name": "schema_name",
        "create_time": "create_time",
        "merge_interval": "merge_interval",
        "physical_table_name": "physical_table_name",
    },
    View.PARTITIONS: {
        "prism_table_id": "table",
        "partition_date": "partition_date",
        "current_manifest_version": "current",
        "desired_manifest_version": "desired",
        "last_live_object_id": "last_live_object_id",
        "switched": "switched",
    },
    View.OBJECTS: {
        "prism_small_object_id": "id",
        "prism_staging_object_id": "staging_object",
        "delayed": "delayed",
        "content_length": "content_length",
        "upload_start_time": "upload_start_time",
    },
    View.RANGES: {
        "lower_bound": "lower_bound",
        "upper_bound": "upper_bound",
        "content_length": "content_length",
        "create_time": "create_time",
        "update_time": "update_time",
    },
    View.JOBS: {
        "prism_partition_id": "partition",
        "schedule_time": "schedule_time",
        "ongoing_mark": "ongoing_mark",
        "heartbeat_time": "heartbeat_time",
    },
}
"""The columns that fit on a screen, and their heads. JSON has all columns under their full names."""


@merge.command(cls=Command, epilog=examples("merge show partitions", "merge show objects --table events --date 2026-01-31"))
def show(
    context: typer.Context,
    view: Annotated[View, typer.Argument(metavar="|".join(View), help="Table of Prism's metadata to show.")],
    table: TableOption = None,
    day: DateOption = None,
) -> int:
    """Shows the inventory of merging in the layout of Prism's metadata tables.

    With --json, it shows all of their columns. Exit code 4 if there is nothing to show.
    """
    when = date_of(day) if day else None
    with open_merging(context) as merging:
        key = table_named(merging, table).key if table else None
        groups = [(name, rows) for name, found in _view(merging, view, key, when) if (rows := list(found))]
    if as_json(context):
        print_json({view.value: [row for _, rows in groups for row in rows]})
        return Exit.DONE if groups else Exit.NOTHING
    for name, rows in groups:
        if name:
            say(name)
        heads = _SHORT[view]
        print_table(tuple(heads.values()), [tuple(_cell(row[column]) for column in heads) for row in rows])
    if not groups:
        say("nothing to show")
    return Exit.DONE if groups else Exit.NOTHING


Rows = Iterable[dict[str, Any]]


def _view(merging: Merging, view: View, table: str | None, day: date | None) -> Iterator[tuple[str, Rows]]:
    """Yields groups of a view's rows: the heading of the group (a partition, or empty), and the rows."""
    inventory = merging.inventory
    if view is View.TABLES:
        yield "", (row for row in views.prism_tables(inventory) if table in (None, row["prism_table_id"]))
    elif view is View.JOBS:
        lease = timedelta(seconds=merging.pipeline.config.lease.seconds)
        wanted = (table, str(day) if day else None)
        yield "", (row for row in views.prism_merge_jobs(inventory, lease) if _is_of(row["prism_partition_id"], *wanted))
    elif view is View.PARTITIONS:
        yield "", (row for row in views.prism_partitions(inventory, table) if day in (None, row["partition_date"]))
    else:
        of = views.prism_small_objects if view is View.OBJECTS else views.prism_merge_ranges
        places = [(table, day)] if table and day else [(one.table, one.date) for one in inventory.partitions(table)]
        for key, date_ in places:
            if day in (None, date_):
                yield f"{key} {date_}", of(inventory, key, date_)


def _is_of(partition: str, table: str | None, day: str | None) -> bool:
    of_table, _, of_day = partition.rpartition("/")
    return table in (None, of_table) and day in (None, of_day)


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    text = str(value).rstrip("/")
    return text.rpartition("/")[2] if "://" in text else text
