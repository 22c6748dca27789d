"""Rebuilding and dropping: what only an operator does to a merged partition or a table, never a worker.

Belongs here: both operations, from the request to the catalog. Small objects are only read. A partition can be rebuilt while
they exist, and a dropped table is created again by the next objects that shredding writes for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from manifest_platform import failpoints
from manifest_platform.manifest import Lease, Manifest, Refused
from manifest_platform.merging import names
from manifest_platform.merging.catalogs.catalog import CatalogTable, NotOurs
from manifest_platform.merging.errors import PermanentMergeError, TransientMergeError
from manifest_platform.merging.garbage import unnamed, upkeep
from manifest_platform.merging.plan import PlannedRange
from manifest_platform.merging.publish import PLACE, PUBLISH, PublishReport
from manifest_platform.merging.state import MergedTable, Partition, Range, SmallObject, from_row, table_key
from manifest_platform.merging.stored import StoredFile, delete, stored_files
from manifest_platform.merging.transitions import MAX_RANGES
from manifest_platform.pipeline.merge import Merging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.merging.kernel import Merged


@dataclass(frozen=True)
class Rebuilt:
    """The result of a rebuild: the partition with its new generation, the totals read and written, and the publication."""

    partition: Partition
    ranges: int
    objects: int
    rows: int
    bytes_in: int
    bytes_out: int
    published: PublishReport


def rebuild(merging: Merging, spark: Callable[[], SparkSession], table: str, day: date) -> Rebuilt:
    """Writes all merged objects of a partition again from its small objects, and publishes the result.

    A range whose small objects the manifest no longer knows is written from its merged object, while that exists.

    New files with the same bounds replace the old files in one step, or in one step for each MAX_RANGES of them. A partition
    that is not switched is rebuilt as well but not published, because nobody reads its merged objects yet. A failure leaves
    everything as it was. Raises Refused, LeaseBusy, LeaseLost, PermanentMergeError and TransientMergeError.
    """
    inventory = merging.inventory
    settings = inventory.table(table)
    if settings is None:
        raise Refused(f"dataset {inventory.dataset} has no table {table!r}")
    duration = timedelta(seconds=merging.pipeline.config.lease.seconds)
    with upkeep(inventory, duration) as lease:
        partition, ranges = inventory.chain(table, day)
        if partition is None or not ranges:
            raise Refused(f"{table} of {day} has no merged object that could be rebuilt: merge it first")
        objects = inventory.small_objects(table, day)
        settled = max((one.last for one in inventory.settled(table, day)), default=0)
        planned = [_planned(one, objects, settled) for one in ranges]
        results = _written(merging, lease, spark, settings, day, planned)
        failpoints.reach("rebuild.written")
        lease.check()
        made = [_anew(old, result) for old, result in zip(ranges, results, strict=True)]
        for start in range(0, len(made), MAX_RANGES):
            partition = inventory.rebuild(partition, made[start : start + MAX_RANGES], lease)
        failpoints.reach("rebuild.committed")
    return Rebuilt(
        partition,
        len(made),
        sum(len(one.objects) for one in planned),
        sum(one.rows for one in made),
        sum(small.bytes for one in planned for small in one.objects),
        sum(one.bytes for one in made),
        merging.publish(),
    )


def _planned(of: Range, objects: Sequence[SmallObject], settled: int) -> PlannedRange:
    """Plans a range again: from all its small objects; or from its merged object, if some small objects are `settled`."""
    if of.lower < settled:
        return PlannedRange(of.lower, of.upper, (), of, of.bytes)
    mine = tuple(one for one in objects if of.lower < one.id <= of.upper)
    return PlannedRange(of.lower, of.upper, mine, None, of.bytes)


def _written(
    merging: Merging,
    lease: Lease,
    spark: Callable[[], SparkSession],
    table: MergedTable,
    day: date,
    planned: Sequence[PlannedRange],
) -> list[Merged]:
    """Writes the ranges under a new attempt. Raises the first failure."""
    from manifest_platform.merging.kernel import Merged, MergeTask
    from manifest_platform.merging.spark_job import merge_all
    from manifest_platform.spark import cancellable

    attempt, session = str(uuid4()), spark()
    tasks = [MergeTask.of(one, table, day, merging.output, attempt) for one in planned]
    limit = merging.pipeline.config.limits.of("merge")
    with (
        lease.within(limit, f"rebuilding {table.key} of {day}"),
        cancellable(session) as cancel,
        lease.canceling(cancel),
    ):
        results = merge_all(session, tasks)
    written: list[Merged] = []
    for result in results:
        if not isinstance(result, Merged):
            kind = PermanentMergeError if result.permanent else TransientMergeError
            raise kind(f"nothing was changed: {result.message}")
        written.append(result)
    return written


def _anew(old: Range, made: Merged) -> Range:
    attempt = names.attempt_of(made.uri.rsplit("/", 2)[1])
    return dataclasses.replace(
        old, uri=made.uri, rows=made.rows, bytes=made.bytes, attempt=attempt, min_time=made.min_time, max_time=made.max_time
    )


# Dropping


@dataclass(frozen=True)
class Stock:
    """The content of a table. `stored`: the files at its location, needed or not."""

    table: MergedTable
    location: str
    partitions: int
    small_objects: int
    rows: int
    stored: tuple[StoredFile, ...]

    @property
    def files(self) -> int:
        """The number of files."""
        return len(self.stored)

    @property
    def bytes(self) -> int:
        """The bytes of the files."""
        return sum(file.bytes for file in self.stored)


def was_known(merging: Merging, table: str) -> bool:
    """True if shredding has or had a table of this name, dropped ones included."""
    inventory = merging.inventory
    return inventory.store.get(inventory.dataset, table_key(table)) is not None


def stock(merging: Merging, table: str) -> Stock:
    """Returns what a drop of a table would remove. Changes nothing. Works after an interrupted drop too. Raises Refused."""
    inventory = merging.inventory
    row = inventory.store.get(inventory.dataset, table_key(table))
    if row is None:
        raise Refused(f"dataset {inventory.dataset} has no table {table!r}")
    found = from_row(MergedTable, row)
    location = names.table_uri(merging.output, found)
    partitions = list(inventory.partitions(table))
    files = tuple(stored_files(location))
    if found.dropped and not files and not partitions:
        raise Refused(f"table {table} was dropped already, and nothing is left of it")
    registered = [one.live + one.delayed for one in partitions]
    small, rows = sum(one.objects for one in registered), sum(one.rows for one in registered)
    return Stock(found, location, len(partitions), small, rows, files)


def drop(merging: Merging, table: str) -> Stock:
    """Removes a table completely: its catalog entry, its rows and its merged objects, but not its small objects.

    Readers lose it first, and its files are removed last. Only files that existed before are removed: once the rows are gone,
    the table may be created again and have new files. Files of a concurrent merge stay until the drop is repeated. Repeat it
    after a crash. Raises Refused, LeaseBusy while somebody publishes or rebuilds, CatalogError, TransientMergeError.
    """
    inventory = merging.inventory
    duration = timedelta(seconds=merging.pipeline.config.lease.seconds)
    manifest = Manifest(inventory.store, inventory.dataset, {}, inventory.owner, inventory.run_id)
    with upkeep(inventory, duration), manifest.hold(PUBLISH, PLACE, inventory.owner, duration) as publisher:
        before = stock(merging, table)
        inventory.drop(table)
        failpoints.reach("drop.dropped")
        publisher.check()
        _uncatalogue(merging, before)
        failpoints.reach("drop.uncatalogued")
        delete(before.location, [file.name for file in unnamed(inventory, before.location, before.table, before.stored)])
    return before


def _uncatalogue(merging: Merging, of: Stock) -> None:
    """Removes a table's catalog entry, even if its name is not noted, because an interrupted publication does not note it."""
    catalog, noted = merging.catalog(), of.table.catalog_name
    if noted:
        catalog.remove_table(noted, of.location)
    name = catalog.known_as(CatalogTable(of.table, merging.output, ()))
    if name not in (None, noted):
        with suppress(NotOurs):
            catalog.remove_table(name, of.location)
