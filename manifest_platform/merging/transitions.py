"""Transitions: every change of merging's rows, as a pure function from the rows read to the writes.

Belongs here: the writes of each operation and their conditions. Nothing here calls a store or reads a clock: `inventory` reads
what these functions need and commits what they return.

A transition returns the changed partition. `writes` compares it with the partition before, and returns the writes of its row
and of the index rows derived from it, so that an index row always matches its partition.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from manifest_platform.faults import Permanent, Transient
from manifest_platform.manifest.errors import Refused
from manifest_platform.manifest.records import Application
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, Check, Delete, Put, Write
from manifest_platform.merging.registration import CommittedObjects, Rules
from manifest_platform.merging.state import (
    BATCH,
    CURSOR,
    LIVE,
    Batch,
    FinishedJob,
    MergedTable,
    Outcome,
    Partition,
    PendingJob,
    Range,
    RunningJob,
    SetAside,
    SmallObject,
    TableSettings,
    Totals,
    Version,
    due_key,
    log_key,
    open_key,
    partition_key,
    range_key,
    running_key,
    small_key,
    table_key,
    to_data,
    version_key,
)
from manifest_platform.releases import marked

MERGE = Application("merge")
"""The application whose lease a merge worker holds."""

PARTITION_WRITES = 4
"""Largest number of writes for a change of a partition: its row and three index rows."""

MAX_RANGES = MAX_WRITES - PARTITION_WRITES - 3
"""Largest number of ranges that one commit adds. A job leaves further ranges to the next job."""

FIRST_PAUSE = timedelta(minutes=1)
"""Pause after the first transient failure of a merge. It doubles with each further failure."""

NEWEST_WEIGHT = 0.2
"""The weight of the newest merge in a table's learned ratio."""


class JobLost(Refused):
    """The worker no longer owns the job: it was requeued, ended, or its table was dropped. Stop, and claim another job."""


class ChainChanged(Refused, Transient):
    """The plan does not continue the current chain. End the job as failed; it is then planned again."""


class CountsDiffer(Refused, Permanent):
    """Merged objects do not contain the rows of the small objects that they replace. A person must investigate."""


class EarlierCommitMissing(Refused, Transient):
    """An earlier commit is not registered yet. Register commits in order."""


class Overtaken(Refused, Transient):
    """Another publisher published the partition in the meantime. `partition` is the newer state to show to readers."""

    def __init__(self, partition: Partition):
        self.partition = partition
        super().__init__(
            f"{name(partition)} was published by another process in the meantime, as version {partition.current}, generation"
            f" {partition.published}: point the catalog at that version"
        )


@dataclass(frozen=True)
class Leftover:
    """The schedule of the work that a job leaves: now (behind jobs that are already due), or the job's own time.

    `attempts`: the number of earlier failed attempts, which the next job keeps if this job is given back.
    """

    schedule_time: datetime
    attempts: int = 0


def name(of: Partition | RunningJob | Range) -> str:
    """The name of a partition in messages."""
    return f"{of.table} of {of.date}"


# Rows


def indexed(partition: Partition | None) -> dict[str, dict[str, Any]]:
    """The index rows of a partition, by sort key. Queries of them find due jobs, and partitions with work."""
    if partition is None:
        return {}
    rows: dict[str, dict[str, Any]] = {}
    if not partition.at_rest:
        rows[open_key(partition)] = {"table": partition.table, "date": str(partition.date)}
    if partition.due:
        rows[due_key(partition.due)] = to_data(partition.due)
    return rows


def writes(before: Partition | None, after: Partition | None) -> list[Write]:
    """The conditional writes that change a partition and its index rows. If `after` is None, they delete it."""
    some = before or after
    if some is None:
        return []
    key, version = partition_key(some.table, some.date), before.version if before else ABSENT
    had, has = indexed(before), indexed(after)
    return [
        Put(key, to_data(after), version) if after else Delete(key, version),
        *(Delete(sort, 1) for sort in had if sort not in has),
        *(Put(sort, data, ABSENT) for sort, data in has.items() if sort not in had),
    ]


# Tables


def synced(table: MergedTable | None, settings: TableSettings, now: datetime) -> MergedTable:
    """Applies the configuration to a table, and keeps what was learned about it."""
    configured = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    if table is None or table.dropped:
        return MergedTable(**configured, create_time=now, version=table.version if table else ABSENT)
    return dataclasses.replace(table, **configured)


def put_table(table: MergedTable) -> Put:
    """The write of a table, on condition of the version that was read."""
    return Put(table_key(table.key), to_data(table), table.version, lasting=True)


def learnt(table: MergedTable, bytes_in: int, bytes_out: int) -> MergedTable:
    """Updates a table's ratio with one more merge."""
    ratio = table.ratio + NEWEST_WEIGHT * (bytes_out / bytes_in - table.ratio)
    return dataclasses.replace(table, ratio=round(ratio, 4))


# Registration


def register(
    before: Partition, table: MergedTable, commit: CommittedObjects, objects: Sequence[SmallObject], rules: Rules, now: datetime
) -> tuple[Partition, list[Batch]]:
    """Adds new objects of a commit to a partition: as delayed objects if it is closed, else as live objects."""
    added = Totals.of(objects)
    newest = objects[-1].id
    if before.closed:
        after = dataclasses.replace(before, newest=newest, delayed=before.delayed + added)
    else:
        after = dataclasses.replace(before, newest=newest, newest_live=newest, live=before.live + added)
    marked = [dataclasses.replace(one, delayed=before.closed) for one in objects]
    batches = [
        Batch(before.table, before.date, commit.number, commit.item, before.closed, now, tuple(marked[at : at + BATCH]))
        for at in range(0, len(marked), BATCH)
    ]
    return dataclasses.replace(after, job=_scheduled(after, table, rules, now)), batches


def put_batch(batch: Batch) -> Put:
    """The write of a new batch."""
    return Put(small_key(batch.table, batch.date, batch.objects[-1].id), to_data(batch), ABSENT)


def _scheduled(partition: Partition, table: MergedTable, rules: Rules, now: datetime) -> PendingJob | None:
    """The pending job after objects were added: a new job, or the existing job, due earlier if the objects fill a range."""
    job = partition.job
    if rules.merged and not rules.merged.holds(partition.date, now):
        return job
    fills = rules.by_volume and partition.waiting.bytes * table.ratio >= table.target_bytes
    if job is None:
        return PendingJob(str(uuid4()), now if fills else now + timedelta(seconds=table.interval))
    if fills and not job.attempts:  # a job that failed keeps its pause
        return dataclasses.replace(job, schedule_time=min(job.schedule_time, now))
    return job


def put_cursor(commit: int, version: int) -> Put:
    """The write that marks a commit as completely registered."""
    return Put(CURSOR, {"commit": marked(commit)}, version, lasting=True)


# The queue


def claimed(
    partition: Partition, owner: str, run_id: str, slot: str, token: int, now: datetime
) -> tuple[RunningJob, Partition]:
    """Turns the pending job of a partition into a running job; returns the job and the changed partition."""
    job = partition.job
    if job is None or partition.due is None:
        raise Refused(f"{name(partition)} has no job that may be claimed")
    running = RunningJob(
        partition.table,
        partition.date,
        job.id,
        job.schedule_time,
        job.attempts,
        owner,
        slot,
        token,
        now,
        partition.generation,
        run_id=run_id,
        version=1,
    )
    return running, dataclasses.replace(partition, job=None, running=job.id)


def put_running(job: RunningJob) -> Put:
    """The write of a new running job."""
    return Put(running_key(job.table, job.date, job.id), to_data(job), ABSENT)


def ended(job: RunningJob, log: FinishedJob, before: Partition, after: Partition) -> list[Write]:
    """The writes at the end of a job. The first write is the new log row."""
    running = running_key(job.table, job.date, job.id)
    after = dataclasses.replace(after, running=None)
    return [Put(log_key(log), to_data(log), ABSENT), Delete(running, job.version), *writes(before, after)]


def finished(job: RunningJob, outcome: Outcome, now: datetime, **details: Any) -> FinishedJob:
    """The log entry of a job."""
    return FinishedJob(
        *(job.id, job.table, job.date, job.schedule_time, job.started, now, job.owner, job.attempts, outcome),
        run_id=job.run_id,
        **details,
    )


def pending_by(partition: Partition, schedule_time: datetime, attempts: int = 0) -> Partition:
    """Sets a partition's pending job to this time, or keeps it if it is earlier; creates the job if there is none."""
    job = partition.job
    if job is None:
        job = PendingJob(str(uuid4()), schedule_time, attempts)
    else:
        job = PendingJob(job.id, min(job.schedule_time, schedule_time), max(job.attempts, attempts))
    return dataclasses.replace(partition, job=job)


def died(partition: Partition, job: RunningJob, error: str, max_attempts: int, now: datetime) -> Partition:
    """The partition after a worker died: its job is due at the original time, or set aside after `max_attempts`."""
    attempts = job.attempts + 1
    again = pending_by(partition, job.schedule_time, attempts)
    return _set_aside(again, error, attempts, now) if attempts >= max_attempts else again


def failed(partition: Partition, job: RunningJob, error: str, permanent: bool, max_attempts: int, now: datetime) -> Partition:
    """The partition after a job failed: to be retried after a pause, or set aside."""
    attempts = job.attempts + 1
    later = now + FIRST_PAUSE * 2 ** min(job.attempts, 10)
    pending = PendingJob(partition.job.id if partition.job else str(uuid4()), later, attempts)
    again = dataclasses.replace(partition, job=pending)
    return _set_aside(again, error, attempts, now) if permanent or attempts >= max_attempts else again


def _set_aside(partition: Partition, error: str, attempts: int, now: datetime) -> Partition:
    return dataclasses.replace(partition, set_aside=SetAside(error, attempts, now))


def retried(partition: Partition, now: datetime) -> Partition:
    """The partition after a retry of a set-aside merge: due now, with no attempts."""
    job = PendingJob(partition.job.id if partition.job else str(uuid4()), now)
    return dataclasses.replace(partition, set_aside=None, job=job)


# Ranges


def extends(partition: Partition, merged: Sequence[Range]) -> bool:
    """True if the first range replaces the last range of the chain."""
    return bool(merged) and merged[0].lower == partition.tail


def merged(partition: Partition, tail: Range | None, ranges: Sequence[Range], bytes_in: int) -> Partition:
    """The partition with these ranges added to its chain. `tail`: the last range, if the first new range replaces it.

    Raises ChainChanged or CountsDiffer.
    """
    _require_chain(partition, ranges)
    small = Totals(sum(one.objects for one in ranges), sum(one.rows for one in ranges), bytes_in)
    objects = Totals(len(ranges), small.rows, sum(one.bytes for one in ranges))
    if tail:
        small -= Totals(tail.objects, tail.rows, 0)
        objects -= Totals(1, tail.rows, tail.bytes)
    after = dataclasses.replace(
        partition,
        tail=ranges[-1].lower,
        upper=ranges[-1].upper,
        desired=max(partition.desired, ranges[-1].upper),
        merged=partition.merged + objects,
        covered=partition.covered + small,
        written=partition.written + sum(one.bytes for one in ranges),
        generation=partition.generation + 1,
    )
    _require_counts(after)
    return after


def _require_chain(partition: Partition, ranges: Sequence[Range]) -> None:
    upper = partition.upper
    for at, one in enumerate(ranges):
        continues = one.lower == upper or (at == 0 and one.lower == partition.tail)
        if not continues or not upper < one.upper <= partition.newest:
            raise ChainChanged(
                f"{name(partition)}: ({one.lower}, {one.upper}] does not continue ({partition.tail}, {partition.upper}], or"
                f" exceeds {partition.newest}: it was planned for another state; plan again"
            )
        upper = one.upper


def _require_counts(partition: Partition) -> None:
    waiting, whole = partition.waiting, partition.upper == partition.newest
    fits = waiting == Totals() if whole else waiting.objects > 0 and waiting.rows >= 0 and waiting.bytes >= 0
    if not fits:
        raise CountsDiffer(
            f"{name(partition)}: up to {partition.upper} of {partition.newest}, merged objects would hold {partition.covered}"
            f" of {partition.live + partition.delayed}: compare the rows of the merged objects with those of the small ones"
        )


def put_ranges(ranges: Sequence[Range], tail: Range | None, now: datetime) -> Iterator[Put]:
    """The writes of new ranges. A range that replaces the tail keeps its creation time."""
    for one in ranges:
        old = tail if tail and tail.lower == one.lower else None
        stored = dataclasses.replace(one, create_time=old.create_time if old else now, update_time=now)
        yield Put(range_key(one.table, one.date, one.lower), to_data(stored), old.version if old else ABSENT)


def rebuilt(partition: Partition, old: Sequence[Range], new: Sequence[Range]) -> Partition:
    """The partition after merged objects were rewritten with the same bounds and rows. Raises ChainChanged or CountsDiffer."""
    by_bounds = {(one.lower, one.upper): one for one in old}
    for one in new:
        known = by_bounds.get((one.lower, one.upper))
        if known is None:
            raise ChainChanged(f"{name(partition)} has no range ({one.lower}, {one.upper}]: read its ranges, rebuild those")
        if (known.objects, known.rows) != (one.objects, one.rows):
            raise CountsDiffer(
                f"{name(partition)}: ({one.lower}, {one.upper}] has {known.objects} objects, {known.rows} rows, and would have"
                f" {one.objects} and {one.rows}: compare the range with its small objects"
            )
    growth = sum(one.bytes - by_bounds[one.lower, one.upper].bytes for one in new)
    return dataclasses.replace(
        partition,
        generation=partition.generation + 1,
        merged=partition.merged + Totals(0, 0, growth),
        written=partition.written + sum(one.bytes for one in new),
    )


# The close, the switch, publication


def is_over(day: date, zone: str, grace: timedelta, now: datetime) -> bool:
    """True if a date, including the grace time after it, is over in a time zone."""
    end = over_at(day, zone, grace)
    return end is not None and now >= end


def over_at(day: date, zone: str, grace: timedelta) -> datetime | None:
    """The time when a date and the grace time after it end in a time zone; None if that is beyond the calendar."""
    try:
        return datetime.combine(day + timedelta(days=1), time(), ZoneInfo(zone)).astimezone(UTC) + grace
    except OverflowError:  # people write 9999-12-31 for never
        return None


def closed(partition: Partition, table: MergedTable, now: datetime, grace: timedelta, hasten: bool) -> Partition:
    """Closes a partition if its day is over; returns it unchanged if the day is not over or the partition has no object.

    `hasten`: True to make its unmerged objects due now.
    """
    may_close = table.enabled and partition.newest_live and not partition.closed
    if not may_close or not is_over(partition.date, table.zone, grace, now):
        return partition
    after = dataclasses.replace(partition, last_live=partition.newest_live)
    return pending_by(after, now) if hasten and after.upper < after.newest else after


def switched(partition: Partition) -> Partition:
    """Switches a partition to merged objects if it is closed and all its live objects are merged."""
    if partition.last_live is None or partition.upper < partition.last_live:
        return partition
    return dataclasses.replace(partition, switched=True)


def published(found: Partition, read: Partition, generation: int, newest: int, version: Version | None) -> Partition:
    """The partition after a publication. `read` is the partition as it was read before the publication.

    Raises Overtaken if another publication was recorded since, and Refused if the version does not exist or is older.
    """
    if _seen(found) != _seen(read):
        raise Overtaken(found)
    merged = [one.upper for one in version.files if one.lower is not None] if version else []
    current = max(merged, default=LIVE)
    there = newest <= found.newest and (found.switched and generation <= found.generation if merged else generation == 0)
    back = any(new < old for new, old in zip((current, generation, newest), _seen(found), strict=True))
    if not there or current > found.desired or back:
        raise Refused(
            f"{name(found)}: version {current}, generation {generation}, newest {newest} does not exist, or is older than"
            f" the published version: {_seen(found)}"
        )
    return dataclasses.replace(found, current=current, published=generation, published_newest=newest)


def _seen(partition: Partition) -> tuple[int, int, int]:
    return partition.current, partition.published, partition.published_newest


def put_version(version: Version) -> Put:
    """The write of a new published version."""
    return Put(version_key(version), to_data(version), ABSENT)


def check_table(table: MergedTable) -> Check:
    """A condition that the table was not dropped or configured since it was read."""
    return Check(table_key(table.key), table.version)
