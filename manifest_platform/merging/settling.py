"""Settling: rows of small objects that merged objects hold, and of jobs that ended, leave the manifest once they are old.

Belongs here: which of them nothing asks for any more, and removing them. A batch is settled when all its objects are merged,
readers get the merged ones, and it was registered long enough ago. Of settled batches there stays a digest of the directory
each: an item that is shredded again is known by it, and its rows are not merged twice.

What is lost with the rows: a partition's merged objects can no longer be built anew from its small objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import islice
from uuid import uuid4

from manifest_platform import failpoints
from manifest_platform.manifest import Lease, Refused
from manifest_platform.manifest.store import (
    MAX_WRITES,
    Check,
    ConditionFailed,
    Delete,
    Put,
    Row,
    optimistically,
    stored_rows,
)
from manifest_platform.merging.garbage import upkeep
from manifest_platform.merging.inventory import MARK, Inventory
from manifest_platform.merging.state import (
    LIVE,
    LOG,
    SMALL,
    Batch,
    FinishedJob,
    Partition,
    Settled,
    digest_of,
    from_row,
    partition_key,
    rows_prefix,
    settled_key,
    to_data,
)

ITEMS = 1_000
"""Digests in one row, at most: some 20 kB."""
BATCHES_AT_ONCE = MAX_WRITES - 4
"""Batches that one transaction settles, at most: what is kept of them, a check of the partition and the lease go with them."""


@dataclass(frozen=True)
class SettledRows:
    """Rows that left the manifest, or would: batches of small objects, so many objects in them, and jobs that ended."""

    batches: int = 0
    objects: int = 0
    jobs: int = 0

    def __add__(self, other: SettledRows) -> SettledRows:
        return SettledRows(self.batches + other.batches, self.objects + other.objects, self.jobs + other.jobs)

    def __bool__(self) -> bool:
        return bool(self.batches or self.jobs)


def settle_rows(inventory: Inventory, before: datetime, dry_run: bool = False) -> SettledRows:
    """Removes the rows of batches that were registered before a time and are settled, and of jobs that ended before it.

    A query for each partition that has rows of batches, at most a hundred writes a transaction. Ended early, it is repeated;
    where there is nothing, it writes nothing. Raises LeaseBusy while another removes or rebuilds, LeaseLost, StoreError.
    """
    found = SettledRows(jobs=sum(1 for _ in _old_jobs(inventory, before)))
    for table, day in _places(inventory):
        for _, batch in _settled(inventory, inventory.partition(table, day), before):
            found += SettledRows(1, len(batch.objects))
            if not dry_run:
                break
    if dry_run or not found:
        return found
    done = SettledRows()
    with upkeep(inventory) as lease:
        for table, day in _places(inventory):
            while moved := _move(inventory, table, day, before, lease):
                done += moved
        while jobs := list(islice(_old_jobs(inventory, before), MAX_WRITES)):
            lease.check()
            done += SettledRows(jobs=_forget(inventory, jobs))
    return done


def held(partition: Partition) -> int:
    """The id up to which merged objects stand for the small ones: no reader, plan or publication asks for these any more."""
    if not partition.switched or partition.current <= LIVE:
        return 0
    return min(partition.upper, partition.desired, partition.current)


def _places(inventory: Inventory) -> Iterator[tuple[str, date]]:
    """The partitions that have rows of batches: one query each."""
    after = None
    while found := inventory.store.query(inventory.dataset, f"{SMALL}#", after=after, limit=1):
        batch = from_row(Batch, found[0])
        yield batch.table, batch.date
        after = f"{rows_prefix(SMALL, batch.table, batch.date)}~"  # beyond every id


def _settled(inventory: Inventory, partition: Partition | None, before: datetime) -> Iterator[tuple[Row, Batch]]:
    """The batches of a partition that nothing asks for, the oldest first."""
    upto = held(partition) if partition else 0
    if partition is None or not upto:
        return
    for row in stored_rows(inventory.store, inventory.dataset, rows_prefix(SMALL, partition.table, partition.date), None, 100):
        batch = from_row(Batch, row)
        if batch.objects[-1].id > upto or batch.registered >= before:
            return  # a later batch is of later objects
        yield row, batch


def _move(inventory: Inventory, table: str, day: date, before: datetime, lease: Lease) -> SettledRows:
    """Settles some batches of a partition in one transaction; nothing where there are none."""

    def move() -> SettledRows:
        lease.check()
        partition = inventory.partition(table, day)
        found = list(islice(_settled(inventory, partition, before), BATCHES_AT_ONCE))
        if partition is None or not found:
            return SettledRows()
        last = next(iter(reversed(inventory.settled(table, day))), Settled(table, day, 0))
        if last.number == 0 or len(last.items) + len(found) > ITEMS:
            last = Settled(table, day, last.number + 1)
        kept = _with(last, [batch for _, batch in found])
        put = Put(settled_key(kept), {**to_data(kept), MARK: str(uuid4())}, last.version)
        check = Check(partition_key(table, day), partition.version)
        lease.transact([put, check, *(Delete(row.sort, row.version) for row, _ in found)])
        failpoints.reach("settling.moved")
        return SettledRows(len(found), sum(len(batch.objects) for _, batch in found))

    return optimistically(move, lambda: Refused(f"{table} of {day}: it changed all the time; try again"), longest_pause_s=0.2)


def _with(settled: Settled, batches: Sequence[Batch]) -> Settled:
    objects = [one for batch in batches for one in batch.objects]
    return replace(
        settled,
        last=objects[-1].id,
        objects=settled.objects + len(objects),
        rows=settled.rows + sum(one.rows for one in objects),
        items=tuple(dict.fromkeys([*settled.items, *(digest_of(batch.item) for batch in batches)])),
    )


def _old_jobs(inventory: Inventory, before: datetime) -> Iterator[Row]:
    """The rows of jobs that ended before a time, the oldest first."""
    for row in stored_rows(inventory.store, inventory.dataset, LOG, None, 100):
        if from_row(FinishedJob, row).finished >= before:
            return
        yield row


def _forget(inventory: Inventory, rows: Sequence[Row]) -> int:
    """Deletes rows that were written once; those that another deleted meanwhile are found gone by the next look."""
    with suppress(ConditionFailed):
        inventory.store.transact(inventory.dataset, [Delete(row.sort, row.version) for row in rows], str(uuid4()))
        return len(rows)
    return 0
