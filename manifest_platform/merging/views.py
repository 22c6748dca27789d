"""The inventory as tables in the layout of Prism's metadata, for people who know it.

Belongs here: rows for display, each a dict by column name. No decision depends on them. Prism's numeric ids are replaced by
stable texts: a table's name, `table/date` for a partition, `table/date/upper` for a range, and a job's own id.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

from manifest_platform.manifest.dataset import LeaseState
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.state import Partition, Range, RunningJob


def prism_tables(inventory: Inventory) -> Iterator[dict[str, Any]]:
    """The tables. `create_time` is the time of the first synchronization; `merge_interval` is in seconds."""
    for table in inventory.tables():
        yield {
            "prism_table_id": table.key,
            "schema_name": table.schema,
            "table_name": table.name,
            "create_time": table.create_time,
            "merge_interval": table.interval,
            "physical_schema_name": table.physical_schema,
            "physical_table_name": table.physical_name,
        }


def prism_small_objects(inventory: Inventory, table: str, day: date) -> Iterator[dict[str, Any]]:
    """The small objects of a partition. The staging object is the item; `upload_start_time` is the time of registration."""
    for batch in inventory.batches(table, day):
        for small in batch.objects:
            yield {
                "prism_small_object_id": small.id,
                "prism_staging_object_id": batch.item,
                "prism_partition_id": _partition_id(table, day),
                "delayed": small.delayed,
                "content_length": small.bytes,
                "upload_start_time": batch.registered,
            }


def prism_partitions(inventory: Inventory, table: str | None = None) -> Iterator[dict[str, Any]]:
    """The partitions. `ongoing_manifest_version` is unused in Prism and not stored here: always -1."""
    for partition in inventory.partitions(table):
        yield {
            "prism_partition_id": _partition_id(partition.table, partition.date),
            "prism_table_id": partition.table,
            "partition_date": partition.date,
            "current_manifest_version": partition.current,
            "ongoing_manifest_version": -1,
            "desired_manifest_version": partition.desired,
            "last_live_object_id": partition.last_live,
            "switched": partition.switched,
        }


def prism_merge_jobs(inventory: Inventory, lease: timedelta) -> Iterator[dict[str, Any]]:
    """The pending jobs, with `ongoing_mark` 0, then the running jobs, with the job's id as `ongoing_mark`.

    `lease`: the duration of a worker's lease, to compute the last heartbeat from the end of the lease. The heartbeat is None if
    the worker lost its lease.
    """
    for partition in inventory.open_partitions():
        if partition.job:
            yield _job(partition, partition.job.id, partition.job.schedule_time, 0, None)
    leases: dict[str, LeaseState | None] = {}
    for job in inventory.running():
        if job.slot not in leases:
            leases[job.slot] = inventory.lease(job.slot)
        held = leases[job.slot]
        works = held and held.token == job.token and not held.given_back
        heartbeat = held.expires_at - lease if held and works else None
        yield _job(job, job.id, job.schedule_time, job.id, heartbeat)


def prism_merge_ranges(inventory: Inventory, table: str, day: date) -> Iterator[dict[str, Any]]:
    """The ranges of a partition, preceded by Prism's sentinel range (null, 0] if there are any."""
    ranges = inventory.ranges(table, day)
    if ranges:
        first = ranges[0]
        yield _range(first, None, 0, 0) | {"update_time": first.create_time}
    for one in ranges:
        yield _range(one, one.lower, one.upper, one.bytes)


def _partition_id(table: str, day: date) -> str:
    return f"{table}/{day}"


def _job(
    of: Partition | RunningJob, id_: str, schedule_time: datetime, mark: int | str, heartbeat: datetime | None
) -> dict[str, Any]:
    return {
        "prism_merge_job_id": id_,
        "prism_partition_id": _partition_id(of.table, of.date),
        "schedule_time": schedule_time,
        "ongoing_mark": mark,
        "heartbeat_time": heartbeat,
    }


def _range(one: Range, lower: int | None, upper: int, size: int) -> dict[str, Any]:
    return {
        "prism_merge_range_id": f"{_partition_id(one.table, one.date)}/{upper}",
        "prism_partition_id": _partition_id(one.table, one.date),
        "lower_bound": lower,
        "upper_bound": upper,
        "content_length": size,
        "create_time": one.create_time,
        "update_time": one.update_time,
    }
