"""What the tests of the inventory start from: an inventory, its clock, commits by hand, merges that only say what they made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

from manifest_platform.listing import Column
from manifest_platform.manifest import Lease, Manifest, Store
from manifest_platform.merging import transitions
from manifest_platform.merging.inventory import Claimed, Inventory
from manifest_platform.merging.plan import STRICT, PlannedRange, Profile, plan
from manifest_platform.merging.registration import CommittedObjects, Registration, Rules
from manifest_platform.merging.state import (
    CURSOR,
    DUE,
    OPEN,
    FinishedJob,
    Partition,
    Range,
    RunningJob,
    SmallObject,
    TableSettings,
    Totals,
    due_key,
    open_key,
    running_key,
)
from manifest_platform.merging.transitions import MERGE, Leftover
from manifest_platform.releases import unmarked
from manifest_platform_tests.manifest.given import Clock

DATASET = "shop"
TABLE = "log"
DAY = date(2026, 3, 2)
MORNING = datetime(2026, 3, 2, 10, tzinfo=UTC)
NEXT_DAY = datetime(2026, 3, 3, 0, 30, tzinfo=UTC)
INTERVAL = 43_200
LEASE = timedelta(seconds=600)
COLUMNS = (Column("id", "bigint"), Column("at", "timestamp"))
RIDE_ALONG = Rules(by_volume=False)
"""Every date is taken and merged, and nothing is due before its time."""


def settings(name: str = TABLE, **options: Any) -> TableSettings:
    return dataclasses.replace(TableSettings(name, "app", INTERVAL, target_bytes=100), **options)


def inventory(store: Store, clock: Callable[[], datetime] | None = None, owner: str = "test", **options: Any) -> Inventory:
    """An inventory, of one table if the store had none."""
    made = Inventory(store, DATASET, owner, clock or clock_at(MORNING), **options)
    if made.table(TABLE) is None:
        made.sync_table(settings())
    return made


def clock_at(now: datetime) -> Clock:
    clock = Clock()
    clock.now = now
    return clock


def slot(of: Inventory, name: str = "0", duration: timedelta = LEASE) -> Lease:
    """The lease of a worker, with the inventory's clock."""
    return Manifest(of.store, DATASET, {}, "test", clock=of.clock).hold(MERGE, name, of.owner, duration)


def kill(held: Lease) -> None:
    """The worker's process is gone: no heartbeat, nothing given back."""
    held._stopped.set()


def small(id_: int, size: int = 30, rows: int = 1) -> SmallObject:
    return SmallObject(id_, f"file:///small/{id_}.parquet", rows, size)


def arrive(
    of: Inventory, *ids: int, day: date = DAY, table: str = TABLE, size: int = 30, rules: Rules = RIDE_ALONG
) -> Registration:
    """Registers the next commit, which adds these objects to a partition. An object has `1 + id % 10` rows."""
    objects = tuple(small(id_, size, rows=1 + id_ % 10) for id_ in ids)
    return deliver(of, {(table, day): objects}, rules=rules)


def deliver(
    of: Inventory, objects: dict[tuple[str, date], tuple[SmallObject, ...]], rules: Rules = RIDE_ALONG, number: int = 0
) -> Registration:
    """Registers a commit, by default with the next number."""
    number = number or of.cursor() + 1
    columns = {table: COLUMNS for table, _ in objects}
    return of.register(CommittedObjects(number, f"s3://bucket/run={number:03d}/", objects, columns), rules)


def partition(of: Inventory, day: date = DAY, table: str = TABLE) -> Partition:
    found = of.partition(table, day)
    assert found is not None
    return found


def version_of(of: Inventory, day: date = DAY, table: str = TABLE) -> tuple[int, int, int | None, bool]:
    """P(current, desired, last_live, switched)."""
    found = partition(of, day, table)
    return found.current, found.desired, found.last_live, found.switched


def bounds(of: Inventory, day: date = DAY, table: str = TABLE) -> list[tuple[int, int]]:
    return [(one.lower, one.upper) for one in of.ranges(table, day)]


def claim(of: Inventory, held: Lease, limit: int = 1) -> list[Claimed]:
    return of.claim(held, of.clock(), limit)


def claim_one(of: Inventory, held: Lease) -> Claimed:
    [claimed] = claim(of, held)
    return claimed


def made(of: Inventory, job: RunningJob, planned: PlannedRange, ratio: float = 1.0) -> Range:
    """The facts of the merged object that a merge of a planned range would write."""
    old = planned.extends
    total = Totals.of(planned.objects)
    size = round(total.bytes * ratio)
    return Range(
        job.table,
        job.date,
        planned.lower,
        planned.upper,
        f"file:///merged/{job.id}/part-{planned.lower}-{planned.upper}.parquet",
        total.rows + (old.rows if old else 0),
        size + (old.bytes if old else 0),
        total.objects + (old.objects if old else 0),
        job.id,
        of.clock(),
        of.clock(),
    )


@dataclasses.dataclass(frozen=True)
class Made:
    """The results of a job that its worker has not committed yet."""

    job: RunningJob
    ranges: tuple[Range, ...]
    leftover: Leftover | None
    bytes_in: int

    def commit(self, of: Inventory) -> FinishedJob:
        if not self.ranges:
            return of.finish(self.job, leftover=self.leftover)
        return of.commit(self.job, self.ranges, self.leftover, bytes_in=self.bytes_in)


def make(of: Inventory, claimed: Claimed, profile: Profile = STRICT, ratio: float = 1.0) -> Made:
    """All of a merge before its commit, by the plan."""
    job, table = claimed.job, of.table(claimed.job.table)
    assert table is not None
    tail = of.tail(claimed.partition)
    objects = of.small_objects(job.table, job.date, claimed.partition.upper, profile.max_objects + 1)
    planned = plan(claimed.partition, table, tail, objects, profile)
    due = job.schedule_time if profile.keeps_schedule else of.clock()
    bytes_in = sum(Totals.of(one.objects).bytes for one in planned.ranges)
    ranges = tuple(made(of, job, one, ratio) for one in planned.ranges)
    return Made(job, ranges, Leftover(due) if planned.leftover else None, bytes_in)


def merge(of: Inventory, held: Lease, profile: Profile = STRICT) -> FinishedJob:
    """Claims the next due job, and does it."""
    return make(of, claim_one(of, held), profile).commit(of)


def merge_all(of: Inventory, held: Lease, profile: Profile = STRICT) -> None:
    """Does whatever is due, until nothing is."""
    while claimed := claim(of, held):
        for one in claimed:
            make(of, one, profile).commit(of)


def stale(job: RunningJob, lower: int, upper: int, **facts: Any) -> Range:
    """A range by hand, as a plan for another state of the chain would have it."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    plain = Range(job.table, job.date, lower, upper, f"file:///stale/{upper}", 1, 30, 1, "stale", now, now)
    return dataclasses.replace(plain, **facts)


def try_commit(of: Inventory, work: Made) -> bool:
    """True if the commit was accepted."""
    with suppress(transitions.JobLost, transitions.ChainChanged):
        work.commit(of)
        return True
    return False


def dump(of: Inventory) -> dict[str, tuple[int, dict]]:
    """All rows of merging, but those of leases."""
    return {row.sort: (row.version, row.data) for row in of.store.query(of.dataset, "M")}


def assert_consistent(of: Inventory) -> None:
    """Checks the invariants: the chain, the totals, the jobs and the index rows agree with the other rows."""
    rows = {row.sort: row.data for row in of.store.query(of.dataset, "M")}
    found = list(of.partitions())
    due, open_, running = set(), set(), set()
    for one in found:
        small_ones = of.small_objects(one.table, one.date)
        _assert_objects(one, small_ones)
        _assert_chain(one, of.ranges(one.table, one.date), small_ones)
        _assert_published(one)
        due |= {due_key(one.due)} if one.due else set()
        open_ |= set() if one.at_rest else {open_key(one)}
        running |= {running_key(one.table, one.date, one.running)} if one.running else set()
        waits = one.upper < one.newest
        assert not (one.closed and waits) or one.job or one.running, f"{one.table} of {one.date} waits for nothing"
    assert {sort for sort in rows if sort.startswith(DUE)} == due
    assert {sort for sort in rows if sort.startswith(OPEN)} == open_
    assert {sort for sort in rows if sort.startswith("MRUN#")} == running
    assert unmarked(rows.get(CURSOR, {"commit": 0})["commit"]) == of.cursor()


def _assert_objects(of: Partition, objects: Sequence[SmallObject]) -> None:
    ids = [one.id for one in objects]
    assert ids == sorted(set(ids))
    assert of.newest == max(ids, default=0)
    live = [one for one in objects if not one.delayed]
    assert of.newest_live == max((one.id for one in live), default=0)
    assert (of.live, of.delayed) == (Totals.of(live), Totals.of([one for one in objects if one.delayed]))
    if of.last_live is None:
        assert not of.delayed.objects
    else:
        assert all(one.delayed == (one.id > of.last_live) for one in objects)


def _assert_chain(of: Partition, ranges: Sequence[Range], objects: Sequence[SmallObject]) -> None:  # C16
    upper = 0
    for one in ranges:
        assert one.lower == upper < one.upper
        held = [small for small in objects if one.lower < small.id <= one.upper]
        assert held, f"({one.lower}, {one.upper}] holds nothing"
        assert (one.objects, one.rows) == (len(held), sum(small.rows for small in held))
        upper = one.upper
    assert (of.upper, of.tail) == (upper, ranges[-1].lower if ranges else None)
    assert of.desired == upper
    assert of.merged == Totals(len(ranges), sum(one.rows for one in ranges), sum(one.bytes for one in ranges))
    assert of.covered == Totals.of([small for small in objects if small.id <= upper])


def _assert_published(of: Partition) -> None:
    assert of.current <= of.desired
    assert of.published <= of.generation
    assert of.published_newest <= of.newest
    if of.switched:
        assert of.last_live is not None and of.upper >= of.last_live
    else:
        assert of.current <= 0
