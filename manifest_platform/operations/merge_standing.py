"""The state of merging in the operators' words, as values: an overview, and a paragraph on a partition.

Belongs here: the meaning of the merging inventory for a person. This module decides nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from manifest_platform.manifest import LeaseState
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.plan import Plan
from manifest_platform.merging.state import LIVE, NEW, FinishedJob, MergedTable, Partition, PartitionName, RunningJob, Totals
from manifest_platform.merging.transitions import over_at
from manifest_platform.pipeline.merge import Merging, plan_of
from manifest_platform.quantities import duration, moment, size_of
from manifest_platform.remedies import Action, Remedy

LOOKED_AT = 1_000
"""The maximum number of finished jobs that the status reads."""
BUSY_JOBS = 5
"""The number of jobs on one partition within a day from which the partition is reported as busy."""
DAY = timedelta(days=1)


@dataclass(frozen=True)
class PartitionStanding:
    """A partition with work left: what it waits for, and the remedy if there is one.

    `state`: open, closed or switched. `current`: the version that readers see; `desired`: the version that is merged.
    `waiting`: what is not merged; `oldest`: when the oldest of it was registered. `due`: when its merge may begin.
    """

    table: str
    date: date
    state: str
    current: int
    desired: int
    waiting: Totals
    oldest: datetime | None
    waits_for: str
    due: datetime | None
    set_aside: bool
    remedy: Remedy | None


@dataclass(frozen=True)
class Busy:
    """A partition with many jobs within the last day. `bytes`: of small objects."""

    table: str
    date: date
    jobs: int
    bytes: int
    failed: int


@dataclass(frozen=True)
class TableStanding:
    """A table's partitions with work left, by date."""

    table: str
    enabled: bool
    partitions: tuple[PartitionStanding, ...]

    def count(self, state: str) -> int:
        """Returns the number of partitions that are open, closed or switched."""
        return sum(1 for one in self.partitions if one.state == state)

    @property
    def backlog(self) -> Totals:
        """The totals of everything that is not merged."""
        return sum((one.waiting for one in self.partitions), Totals())

    @property
    def oldest(self) -> datetime | None:
        """The time at which the oldest object of the backlog was registered."""
        return min((one.oldest for one in self.partitions if one.oldest), default=None)


@dataclass(frozen=True)
class MergeStatus:
    """The state of a dataset's merging. `registered`, `completed`: commit numbers; `requests`: store requests of this query."""

    dataset: str
    output: str
    profile: str
    catalog: str
    registered: int
    completed: int
    tables: tuple[TableStanding, ...]
    busy: tuple[Busy, ...]
    requests: int


def merge_status(merging: Merging) -> MergeStatus:
    """Returns the state of merging. Costs some queries, and one or two reads for each partition with work left."""
    inventory, now = merging.inventory, merging.clock()
    store = inventory.store
    before = store.requests
    words = _Words(merging, now)
    found: dict[str, list[PartitionStanding]] = {}
    tables = {table.key: table for table in inventory.tables()}
    for partition in inventory.open_partitions():
        if partition.table in tables:
            found.setdefault(partition.table, []).append(words.standing(partition, tables[partition.table]))
    return MergeStatus(
        dataset=inventory.dataset,
        output=merging.output,
        profile=merging.profile.name,
        catalog=merging.config.catalog.kind,
        registered=inventory.cursor(),
        completed=merging.pipeline.manifest.last_commit(),
        tables=tuple(TableStanding(key, table.enabled, tuple(found.get(key, ()))) for key, table in tables.items()),
        busy=tuple(_busy(inventory.log(LOOKED_AT), now - DAY)),
        requests=store.requests - before,
    )


def _busy(log: Sequence[FinishedJob], since: datetime) -> Iterator[Busy]:
    jobs: dict[PartitionName, list[FinishedJob]] = {}
    for job in log:
        if job.finished > since:
            jobs.setdefault((job.table, job.date), []).append(job)
    for (table, day), mine in sorted(jobs.items()):
        if len(mine) >= BUSY_JOBS:
            failed = sum(1 for job in mine if job.outcome.is_failure)
            yield Busy(table, day, len(mine), sum(job.bytes_in for job in mine), failed)


def state_of(partition: Partition) -> str:
    """Returns open, closed or switched."""
    return "switched" if partition.switched else "closed" if partition.closed else "open"


def closes_at(merging: Merging, partition: Partition, table: MergedTable) -> datetime | None:
    """The time from which a partition may be closed; None for the calendar's last day, whose partition is never closed."""
    return over_at(partition.date, table.zone, merging.grace)


class _Words:
    """Describes what partitions wait for. Jobs and leases are read once for all partitions."""

    def __init__(self, merging: Merging, now: datetime):
        self._merging, self._inventory, self.now = merging, merging.inventory, now
        self._running: dict[str, RunningJob] | None = None
        self._leases: dict[str, LeaseState | None] = {}

    def standing(self, partition: Partition, table: MergedTable) -> PartitionStanding:
        waits_for, remedy = self.waits_for(partition, table)
        return PartitionStanding(
            partition.table,
            partition.date,
            state_of(partition),
            partition.current,
            partition.desired,
            partition.waiting,
            oldest_waiting(self._inventory, partition),
            waits_for,
            partition.job.schedule_time if partition.job else None,
            partition.set_aside is not None,
            remedy,
        )

    def waits_for(self, partition: Partition, table: MergedTable) -> tuple[str, Remedy | None]:
        """Returns what a partition waits for, and the remedy; None if only time helps."""
        if partition.at_rest:
            return "nothing is left to do until another object arrives", None
        run = Remedy(Action.MERGE)
        if partition.set_aside:
            aside = partition.set_aside
            tries = "1 attempt" if aside.attempts == 1 else f"{aside.attempts} attempts"
            text = f"set aside at {moment(aside.at)} after {tries}: {aside.error}"
            return text, Remedy(Action.RETRY_MERGE, table=partition.table, day=partition.date)
        if partition.running:
            return self._running_words(partition.running), None
        if not table.enabled:
            return "its table is not enabled, so it is neither closed nor published", None
        if partition.job:
            due, tried = partition.job.schedule_time, partition.job.attempts
            again = f", attempt {tried + 1}" if tried else ""
            if due <= self.now:
                return f"its merge has been due since {moment(due)}{again}", run
            return f"its merge is due at {moment(due)}{again}", None
        if not partition.closed:
            return self._open_words(partition, table)
        if partition.waiting.objects:
            remedy = Remedy(Action.MERGE_PARTITION, table=partition.table, day=partition.date)
            return "no merge is scheduled for the waiting objects", remedy
        if not partition.switched:
            return "all objects are merged; the next run switches and publishes it", run
        return "it is merged and switched; the next run publishes it", Remedy(Action.PUBLISH)

    def _open_words(self, partition: Partition, table: MergedTable) -> tuple[str, Remedy | None]:
        closes = closes_at(self._merging, partition, table)
        if closes is None:
            return "its day is the calendar's last, so it is never closed, and readers see its small objects", None
        if closes <= self.now:
            return f"its day has been over since {moment(closes)}; the next run closes it", Remedy(Action.MERGE)
        return f"its day is not over; it may be closed from {moment(closes)}", None

    def _running_words(self, id_: str) -> str:
        if self._running is None:
            self._running = {job.id: job for job in self._inventory.running()}
        job = self._running.get(id_)
        if job is None:
            return "its merge ended just now"
        if job.slot not in self._leases:
            self._leases[job.slot] = self._inventory.lease(job.slot)
        lease = self._leases[job.slot]
        since = f"since {moment(job.started)} ({duration((self.now - job.started).total_seconds())})"
        if lease and lease.token == job.token and lease.is_live(datetime.now(UTC)):
            return f"being merged by {job.owner} {since}"
        return f"{job.owner} began to merge it {since} and is gone; the next run takes the job back"


def oldest_waiting(inventory: Inventory, partition: Partition) -> datetime | None:
    """The time at which the oldest object that is not merged was registered. Costs one query if there is such an object."""
    if not partition.waiting.objects:
        return None
    return next((batch.registered for batch in inventory.batches(partition.table, partition.date, partition.upper, 1)), None)


# One partition as a paragraph


@dataclass(frozen=True)
class MergeExplanation:
    """A paragraph on a partition, its content, and the remedy; None if only time helps."""

    text: str
    partition: Partition
    plan: Plan
    remedy: Remedy | None


def explain_partition(merging: Merging, partition: Partition, table: MergedTable) -> MergeExplanation:
    """Explains a partition: its content, what a merge would do now, and what it waits for until readers see all of it."""
    words = _Words(merging, merging.clock())
    plan = plan_of(merging, partition, table)
    waits_for, remedy = words.waits_for(partition, table)
    sentences = [
        _holds(partition),
        _openness(merging, partition, table, words.now),
        _merge_now(partition, plan),
        _seen(merging, partition),
        f"{waits_for[0].upper()}{waits_for[1:].rstrip('.')}.",
        _not_registered(merging),
    ]
    return MergeExplanation(" ".join(filter(None, sentences)), partition, plan, remedy)


def _not_registered(merging: Merging) -> str:
    behind = merging.pipeline.manifest.last_commit() - merging.inventory.cursor()
    if behind <= 0:
        return ""
    return (
        f"Objects of {behind:,} {_plural(behind, 'commit')} are not registered yet and may belong to it: the next run"
        " registers them."
    )


def _holds(of: Partition) -> str:
    small = of.live + of.delayed
    delayed = f", of which {of.delayed.objects:,} delayed" if of.delayed.objects else ""
    known = f"{of.table} of {of.date} has {_objects(small)}{delayed}."
    if not of.merged.objects:
        return f"{known} None of it is merged."
    some = f"; {of.waiting.objects:,} ({size_of(of.waiting.bytes)}) wait" if of.waiting.objects else ""
    held = f"{of.covered.objects:,} of these" if of.waiting.objects else "These"
    merged = f"{of.merged.objects:,} merged {_plural(of.merged.objects, 'object')}"
    return f"{known} {held} are in {merged} of {size_of(of.merged.bytes)}{some}."


def _openness(merging: Merging, of: Partition, table: MergedTable, now: datetime) -> str:
    if of.switched:
        return f"It is closed: objects up to id {of.last_live} came in time. It is switched: readers see merged objects."
    if of.closed:
        left = (
            "all of these are merged, so it is switched next"
            if of.upper >= (of.last_live or 0)
            else "not all of these are merged"
        )
        return f"It is closed: objects up to id {of.last_live} came in time; {left}."
    closes = closes_at(merging, of, table)
    if not table.enabled:
        return "It is open and stays open: its table is not enabled."
    if closes is None:
        return "It is open and stays open: its day is the calendar's last."
    if closes <= now:
        return f"It is open, though its day in {table.zone} is over; it may be closed since {moment(closes)}."
    return f"It is open: its day ends in {table.zone}, and it is closed by the first run after {moment(closes)}."


def _merge_now(of: Partition, plan: Plan) -> str:
    if of.at_rest:
        return ""
    count = len(plan.ranges)
    would = f"A merge now would write {count:,} {_plural(count, 'range')}: " if count else "A merge now would write nothing: "
    extends = ", the first of which replaces the last range" if count and plan.ranges[0].extends else ""
    return f"{would}{plan.reason}{extends}."


def _seen(merging: Merging, of: Partition) -> str:
    if of.current == NEW:
        return "Readers see nothing of it yet: the next publication shows it."
    if of.current == LIVE:
        return "Readers see its small objects."
    version = f"Readers see version {of.current}, generation {of.published}"
    if of.published < of.generation or of.current < of.desired:
        return f"{version}; version {of.desired}, generation {of.generation}, is merged and not published yet."
    later = of.newest > of.published_newest and merging.config.delayed != "at_once"
    return f"{version}{', without the waiting objects' if later else ''}."


def _objects(total: Totals) -> str:
    return f"{total.objects:,} small {_plural(total.objects, 'object')} ({total.rows:,} rows, {size_of(total.bytes)})"


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"
