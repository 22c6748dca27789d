"""Every change of merging's rows as a pure function: state in, writes out.

Belongs here: which writes an operation consists of, and on which conditions they rest. No store is called and no clock read.
`inventory` reads what these functions need, and transacts what they return.

A change of a partition is the partition as it is to be; `writes` makes of it the rows' writes, with the index rows that follow
from it. So an index row cannot differ from its partition.
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
"""The writes that a change of a partition makes, at most: its row, and three of index rows."""

MAX_RANGES = MAX_WRITES - PARTITION_WRITES - 3
"""Ranges that one commit adds, at most; a job that has more to do leaves them over."""

FIRST_PAUSE = timedelta(minutes=1)
"""How long a merge that failed for the time being waits for its next attempt; twice as long after each further one."""

NEWEST_WEIGHT = 0.2
"""The weight of the newest merge in a table's learnt ratio."""


class JobLost(Refused):
    """The job is no longer this worker's: taken back as dead, ended, or dropped with its table. Stop, and claim another."""


class ChainChanged(Refused, Transient):
    """The plan does not continue the chain as it is now: end the job as failed, and it is planned anew."""


class CountsDiffer(Refused, Permanent):
    """Merged objects do not hold what the small objects hold that they stand for: a person must look at it."""


class EarlierCommitMissing(Refused, Transient):
    """A commit before this one is not registered yet: register in order."""


class Overtaken(Refused, Transient):
    """Another publication of the partition, `partition`, was recorded meanwhile: show readers the newer one."""

    def __init__(self, partition: Partition):
        self.partition = partition
        super().__init__(
            f"{name(partition)} was published by another meanwhile, as version {partition.current}, generation"
            f" {partition.published}: point the catalog at that one"
        )


@dataclass(frozen=True)
class Leftover:
    """That a job leaves objects over, and when they are due: now, to be fair to what is due already, or when it itself was.

    `attempts`: those that died or failed before, where the job is given back untried.
    """

    schedule_time: datetime
    attempts: int = 0


def name(of: Partition | RunningJob | Range) -> str:
    """What a message calls a partition."""
    return f"{of.table} of {of.date}"


# Rows


def indexed(partition: Partition | None) -> dict[str, dict[str, Any]]:
    """The index rows that a partition has, by sort key: by them due jobs and partitions with work are found."""
    if partition is None:
        return {}
    rows: dict[str, dict[str, Any]] = {}
    if not partition.at_rest:
        rows[open_key(partition)] = {"table": partition.table, "date": str(partition.date)}
    if partition.due:
        rows[due_key(partition.due)] = to_data(partition.due)
    return rows


def writes(before: Partition | None, after: Partition | None) -> list[Write]:
    """The writes of a partition over the version that was read, its index rows among them; after None it is gone."""
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
    """A table as it is configured, with what is known of it."""
    configured = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    if table is None or table.dropped:
        return MergedTable(**configured, create_time=now, version=table.version if table else ABSENT)
    return dataclasses.replace(table, **configured)


def put_table(table: MergedTable) -> Put:
    """The write of a table over the version that was read."""
    return Put(table_key(table.key), to_data(table), table.version, lasting=True)


def learnt(table: MergedTable, bytes_in: int, bytes_out: int) -> MergedTable:
    """A table that has seen one more merge."""
    ratio = table.ratio + NEWEST_WEIGHT * (bytes_out / bytes_in - table.ratio)
    return dataclasses.replace(table, ratio=round(ratio, 4))


# Registration


def register(
    before: Partition, table: MergedTable, commit: CommittedObjects, objects: Sequence[SmallObject], rules: Rules, now: datetime
) -> tuple[Partition, list[Batch]]:
    """A partition with objects of a commit that it does not have yet: delayed if it is closed, else live."""
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
    """The write of a batch, once."""
    return Put(small_key(batch.table, batch.date, batch.objects[-1].id), to_data(batch), ABSENT)


def _scheduled(partition: Partition, table: MergedTable, rules: Rules, now: datetime) -> PendingJob | None:
    """The pending job of a partition that got objects: they ride along with one that there is."""
    job = partition.job
    if rules.merged and not rules.merged.holds(partition.date, now):
        return job
    fills = rules.by_volume and partition.waiting.bytes * table.ratio >= table.target_bytes
    if job is None:
        return PendingJob(str(uuid4()), now if fills else now + timedelta(seconds=table.interval))
    if fills and not job.attempts:  # what failed before keeps its pause
        return dataclasses.replace(job, schedule_time=min(job.schedule_time, now))
    return job


def put_cursor(commit: int, version: int) -> Put:
    """The write that says that a commit is registered whole."""
    return Put(CURSOR, {"commit": marked(commit)}, version, lasting=True)


# The queue


def claimed(
    partition: Partition, owner: str, run_id: str, slot: str, token: int, now: datetime
) -> tuple[RunningJob, Partition]:
    """The pending job as it is being done, and its partition then."""
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
    """The write of a job that begins."""
    return Put(running_key(job.table, job.date, job.id), to_data(job), ABSENT)


def ended(job: RunningJob, log: FinishedJob, before: Partition, after: Partition) -> list[Write]:
    """The end of a job: it is running no more, and the log says what became of it. The log's row is new, and the first."""
    running = running_key(job.table, job.date, job.id)
    after = dataclasses.replace(after, running=None)
    return [Put(log_key(log), to_data(log), ABSENT), Delete(running, job.version), *writes(before, after)]


def finished(job: RunningJob, outcome: Outcome, now: datetime, **told: Any) -> FinishedJob:
    """What the log says of a job."""
    return FinishedJob(
        *(job.id, job.table, job.date, job.schedule_time, job.started, now, job.owner, job.attempts, outcome),
        run_id=job.run_id,
        **told,
    )


def pending_by(partition: Partition, schedule_time: datetime, attempts: int = 0) -> Partition:
    """A partition whose pending job is due then, or earlier if it was; a new one if it has none."""
    job = partition.job
    if job is None:
        job = PendingJob(str(uuid4()), schedule_time, attempts)
    else:
        job = PendingJob(job.id, min(job.schedule_time, schedule_time), max(job.attempts, attempts))
    return dataclasses.replace(partition, job=job)


def died(partition: Partition, job: RunningJob, error: str, max_attempts: int, now: datetime) -> Partition:
    """A partition whose job's worker is dead: the job is to be done when it was, or set aside."""
    attempts = job.attempts + 1
    again = pending_by(partition, job.schedule_time, attempts)
    return _set_aside(again, error, attempts, now) if attempts >= max_attempts else again


def failed(partition: Partition, job: RunningJob, error: str, permanent: bool, max_attempts: int, now: datetime) -> Partition:
    """A partition whose job failed: to be tried again after a pause, or set aside."""
    attempts = job.attempts + 1
    later = now + FIRST_PAUSE * 2 ** min(job.attempts, 10)
    pending = PendingJob(partition.job.id if partition.job else str(uuid4()), later, attempts)
    again = dataclasses.replace(partition, job=pending)
    return _set_aside(again, error, attempts, now) if permanent or attempts >= max_attempts else again


def _set_aside(partition: Partition, error: str, attempts: int, now: datetime) -> Partition:
    return dataclasses.replace(partition, set_aside=SetAside(error, attempts, now))


def retried(partition: Partition, now: datetime) -> Partition:
    """A partition that is merged again after it was set aside."""
    job = PendingJob(partition.job.id if partition.job else str(uuid4()), now)
    return dataclasses.replace(partition, set_aside=None, job=job)


# Ranges


def extends(partition: Partition, merged: Sequence[Range]) -> bool:
    """Whether the first of the ranges takes the place of the chain's last one."""
    return bool(merged) and merged[0].lower == partition.tail


def merged(partition: Partition, tail: Range | None, ranges: Sequence[Range], bytes_in: int) -> Partition:
    """A partition whose chain goes on with these ranges; `tail` is the chain's last one, if the first takes its place.

    Raises ChainChanged and CountsDiffer.
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
                f"{name(partition)}: ({one.lower}, {one.upper}] does not go on from ({partition.tail}, {partition.upper}] to at"
                f" most {partition.newest}: it was planned for another state; plan anew"
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
    """The writes of new ranges; one that takes the tail's place keeps the time of its creation."""
    for one in ranges:
        old = tail if tail and tail.lower == one.lower else None
        stored = dataclasses.replace(one, create_time=old.create_time if old else now, update_time=now)
        yield Put(range_key(one.table, one.date, one.lower), to_data(stored), old.version if old else ABSENT)


def rebuilt(partition: Partition, old: Sequence[Range], new: Sequence[Range]) -> Partition:
    """A partition of which merged objects were written anew: the same bounds and rows. Raises ChainChanged, CountsDiffer."""
    by_bounds = {(one.lower, one.upper): one for one in old}
    for one in new:
        known = by_bounds.get((one.lower, one.upper))
        if known is None:
            raise ChainChanged(f"{name(partition)} has no range ({one.lower}, {one.upper}]: read its ranges, rebuild those")
        if (known.objects, known.rows) != (one.objects, one.rows):
            raise CountsDiffer(
                f"{name(partition)}: ({one.lower}, {one.upper}] has {known.objects} objects, {known.rows} rows, and would have"
                f" {one.objects} and {one.rows}: compare it with its small objects"
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
    """Whether a date has ended in a time zone, and the grace after it too."""
    end = over_at(day, zone, grace)
    return end is not None and now >= end


def over_at(day: date, zone: str, grace: timedelta) -> datetime | None:
    """When a date has ended in a time zone, and the grace after it too; None where the calendar ends before that."""
    try:
        return datetime.combine(day + timedelta(days=1), time(), ZoneInfo(zone)).astimezone(UTC) + grace
    except OverflowError:  # people write 9999-12-31 for never
        return None


def closed(partition: Partition, table: MergedTable, now: datetime, grace: timedelta, hasten: bool) -> Partition:
    """A partition whose day is over, with the last object that came in time; as it is, if it is not over or has no object.

    `hasten`: what is not merged of it is due now.
    """
    may_close = table.enabled and partition.newest_live and not partition.closed
    if not may_close or not is_over(partition.date, table.zone, grace, now):
        return partition
    after = dataclasses.replace(partition, last_live=partition.newest_live)
    return pending_by(after, now) if hasten and after.upper < after.newest else after


def switched(partition: Partition) -> Partition:
    """A partition that is served from merged objects from now on, if it is closed and all that came in time is merged."""
    if partition.last_live is None or partition.upper < partition.last_live:
        return partition
    return dataclasses.replace(partition, switched=True)


def published(found: Partition, read: Partition, generation: int, newest: int, version: Version | None) -> Partition:
    """A partition that readers see so; `read` is what it was when that was made out.

    Raises Overtaken if something else is recorded by now, Refused for what is not there.
    """
    if _seen(found) != _seen(read):
        raise Overtaken(found)
    merged = [one.upper for one in version.files if one.lower is not None] if version else []
    current = max(merged, default=LIVE)
    there = newest <= found.newest and (found.switched and generation <= found.generation if merged else generation == 0)
    back = any(new < old for new, old in zip((current, generation, newest), _seen(found), strict=True))
    if not there or current > found.desired or back:
        raise Refused(
            f"{name(found)}: version {current}, generation {generation}, newest {newest} is not there to publish, or is behind"
            f" what is published: {_seen(found)}"
        )
    return dataclasses.replace(found, current=current, published=generation, published_newest=newest)


def _seen(partition: Partition) -> tuple[int, int, int]:
    return partition.current, partition.published, partition.published_newest


def put_version(version: Version) -> Put:
    """The write of a published version, once."""
    return Put(version_key(version), to_data(version), ABSENT)


def check_table(table: MergedTable) -> Check:
    """Holds while a table is what was read: nobody dropped or configured it since."""
    return Check(table_key(table.key), table.version)
