"""Settling: deletes the manifest's old rows about small objects that were merged, and about jobs that ended.

Belongs here: the choice of the rows that nothing reads any more, and their deletion. Files are not touched. A batch can be
settled if all its objects are merged, readers get the merged objects, and it was registered long enough ago. A digest of the
URI of each batch's directory is kept. It identifies an item that is shredded again, so that its rows are not merged twice.

After settling, the merged objects of the partition can no longer be rebuilt from its small objects.
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
"""Largest number of digests in one row (about 20 kB)."""
BATCHES_AT_ONCE = MAX_WRITES - 4
"""Largest number of batches that one transaction settles. The summary, the partition check and the lease need the rest."""


@dataclass(frozen=True)
class SettledRows:
    """Rows that were deleted, or would be: batches, the small objects in them, and jobs that ended."""

    batches: int = 0
    objects: int = 0
    jobs: int = 0

    def __add__(self, other: SettledRows) -> SettledRows:
        return SettledRows(self.batches + other.batches, self.objects + other.objects, self.jobs + other.jobs)

    def __bool__(self) -> bool:
        return bool(self.batches or self.jobs)


def settle_rows(inventory: Inventory, before: datetime, dry_run: bool = False) -> SettledRows:
    """Deletes the rows of settled batches that were registered before a time, and of jobs that ended before it.

    Costs a query for each partition that has batches; each transaction has at most MAX_WRITES writes. It may be repeated after
    an interruption, and writes nothing if there is nothing to delete. With `dry_run`, only counts.
    Raises LeaseBusy while another process removes objects or rebuilds, LeaseLost or StoreError.
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


def settled_upto(partition: Partition) -> int:
    """The id up to which merged objects replace the small objects: no reader, plan or publication needs those any more."""
    if not partition.switched or partition.current <= LIVE:
        return 0
    return min(partition.upper, partition.desired, partition.current)


def _places(inventory: Inventory) -> Iterator[tuple[str, date]]:
    """Yields the partitions that have batches, with one query each."""
    after = None
    while found := inventory.store.query(inventory.dataset, f"{SMALL}#", after=after, limit=1):
        batch = from_row(Batch, found[0])
        yield batch.table, batch.date
        after = f"{rows_prefix(SMALL, batch.table, batch.date)}~"  # sorts after every id


def _settled(inventory: Inventory, partition: Partition | None, before: datetime) -> Iterator[tuple[Row, Batch]]:
    """Yields the batches of a partition that nothing needs any more, the oldest first."""
    upto = settled_upto(partition) if partition else 0
    if partition is None or not upto:
        return
    for row in stored_rows(inventory.store, inventory.dataset, rows_prefix(SMALL, partition.table, partition.date), None, 100):
        batch = from_row(Batch, row)
        if batch.objects[-1].id > upto or batch.registered >= before:
            return  # later batches have later objects
        yield row, batch


def _move(inventory: Inventory, table: str, day: date, before: datetime, lease: Lease) -> SettledRows:
    """Settles batches of a partition in one transaction; returns empty counts if there are none."""

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

    return optimistically(
        move, lambda: Refused(f"{table} of {day}: other processes kept changing it; try again"), longest_pause_s=0.2
    )


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
    """Yields the rows of jobs that ended before a time, the oldest first."""
    for row in stored_rows(inventory.store, inventory.dataset, LOG, None, 100):
        if from_row(FinishedJob, row).finished >= before:
            return
        yield row


def _forget(inventory: Inventory, rows: Sequence[Row]) -> int:
    """Deletes job rows in one transaction. Returns their number, or 0 if another process deleted one: the caller retries."""
    with suppress(ConditionFailed):
        inventory.store.transact(inventory.dataset, [Delete(row.sort, row.version) for row in rows], str(uuid4()))
        return len(rows)
    return 0
