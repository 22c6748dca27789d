"""Rebuilding and dropping: what an operator does to a merged partition, or a whole table, and no worker does by itself.

Belongs here: both, from the question to the catalog. Small objects are only read: a partition can be rebuilt as long as they
are there, and a table that was dropped comes again with the next objects that shredding writes of it.
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
    """A partition that was written anew: its generation now, what was read and written, and what readers were told."""

    partition: Partition
    ranges: int
    objects: int
    rows: int
    bytes_in: int
    bytes_out: int
    published: PublishReport


def rebuild(merging: Merging, spark: Callable[[], SparkSession], table: str, day: date) -> Rebuilt:
    """Writes all merged objects of a partition anew from its small objects, and publishes what readers see of it.

    A range whose small objects the manifest knows no more is written anew from its merged object, as long as that is there.

    New files with the same bounds take the place of the old ones in one step, or in one step for every MAX_RANGES of them. A
    partition that is not switched is rebuilt as well, and not published: nobody reads its merged objects yet. What fails
    leaves all as it was. Raises Refused, LeaseBusy, LeaseLost, PermanentMergeError and TransientMergeError.
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
    """A range as if it were new: from all small objects that it stands for; where some are `settled`, from its own object."""
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
    """The ranges, written under an attempt of their own. Raises the first failure."""
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
    """What there is of a table. `stored`: the files under its location, whether needed or not."""

    table: MergedTable
    location: str
    partitions: int
    small_objects: int
    rows: int
    stored: tuple[StoredFile, ...]

    @property
    def files(self) -> int:
        """How many."""
        return len(self.stored)

    @property
    def bytes(self) -> int:
        """Of the files."""
        return sum(file.bytes for file in self.stored)


def was_known(merging: Merging, table: str) -> bool:
    """Whether shredding calls a table so, or called one so that was dropped."""
    inventory = merging.inventory
    return inventory.store.get(inventory.dataset, table_key(table)) is not None


def stock(merging: Merging, table: str) -> Stock:
    """What a drop of a table would remove; changes nothing. Also of one whose drop was ended early. Raises Refused."""
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
    """Removes a table with everything: its entry in the catalog, its rows, its merged objects; not its small objects.

    Readers lose it first and its files last: those that were there before, for once its rows are gone the table may come again,
    and write others. What a merge writes that is at work just then is left, and goes when the drop is repeated. Ended early, it
    is repeated. Raises Refused, LeaseBusy while somebody publishes or rebuilds, CatalogError, TransientMergeError.
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
    """Removes a table's entry, be its name noted or not: a publication that ended early makes an entry, and notes no name."""
    catalog, noted = merging.catalog(), of.table.catalog_name
    if noted:
        catalog.remove_table(noted, of.location)
    name = catalog.known_as(CatalogTable(of.table, merging.output, ()))
    if name not in (None, noted):
        with suppress(NotOurs):
            catalog.remove_table(name, of.location)
