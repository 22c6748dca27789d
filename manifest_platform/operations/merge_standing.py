"""How merging stands, in the operators' words, as values: at a glance, and a partition in a paragraph.

Belongs here: what the inventory of merging means to a person. Nothing is decided and nothing printed.
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
"""Finished jobs that the status looks at, at most."""
BUSY_JOBS = 5
"""Jobs of one partition within a day from which on it looks as if it were always in work."""
DAY = timedelta(days=1)


@dataclass(frozen=True)
class PartitionStanding:
    """A partition that is not at rest: what it waits for, and what helps, where anything does.

    `state`: open, closed or switched. `current`: the version that readers see, `desired`: the one that is merged. `waiting`:
    what is not merged, the oldest of it registered at `oldest`. `due`: when its merge may begin.
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
    """A partition that many jobs worked on within the last day, one after another; `bytes` of small objects."""

    table: str
    date: date
    jobs: int
    bytes: int
    failed: int


@dataclass(frozen=True)
class TableStanding:
    """A table's partitions with something to do, by date."""

    table: str
    enabled: bool
    partitions: tuple[PartitionStanding, ...]

    def count(self, state: str) -> int:
        """How many of them are open, closed or switched."""
        return sum(1 for one in self.partitions if one.state == state)

    @property
    def backlog(self) -> Totals:
        """What is not merged."""
        return sum((one.waiting for one in self.partitions), Totals())

    @property
    def oldest(self) -> datetime | None:
        """When the oldest of it was registered."""
        return min((one.oldest for one in self.partitions if one.oldest), default=None)


@dataclass(frozen=True)
class MergeStatus:
    """How a dataset's merging stands. `commits`: registered, and completed; `requests`: what asking cost the store."""

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
    """How merging stands: some queries, and for each partition that is not at rest one or two reads; for others none."""
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
    """Open, closed or switched."""
    return "switched" if partition.switched else "closed" if partition.closed else "open"


def closes_at(merging: Merging, partition: Partition, table: MergedTable) -> datetime | None:
    """From when on a partition may be closed; None for one that never is, for the calendar ends with its day."""
    return over_at(partition.date, table.zone, merging.grace)


class _Words:
    """What partitions wait for. What is asked once is asked for all of them."""

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
        """What a partition waits for, and what helps; nothing where time alone does."""
        if partition.at_rest:
            return "nothing is left to do until another object comes", None
        run = Remedy(Action.MERGE)
        if partition.set_aside:
            aside = partition.set_aside
            tries = "1 attempt" if aside.attempts == 1 else f"{aside.attempts} attempts"
            text = f"set aside at {moment(aside.at)} after {tries}: {aside.error}"
            return text, Remedy(Action.RETRY_MERGE, table=partition.table, day=partition.date)
        if partition.running:
            return self._running_words(partition.running), None
        if not table.enabled:
            return "its table is not enabled: it is neither closed nor published", None
        if partition.job:
            due, tried = partition.job.schedule_time, partition.job.attempts
            again = f", attempt {tried + 1}" if tried else ""
            if due <= self.now:
                return f"its merge is due since {moment(due)}{again}", run
            return f"its merge is due at {moment(due)}{again}", None
        if not partition.closed:
            return self._open_words(partition, table)
        if partition.waiting.objects:
            remedy = Remedy(Action.MERGE_PARTITION, table=partition.table, day=partition.date)
            return "no merge is scheduled for what waits", remedy
        if not partition.switched:
            return "all is merged; the next run switches and publishes it", run
        return "merged and switched; the next run publishes it", Remedy(Action.PUBLISH)

    def _open_words(self, partition: Partition, table: MergedTable) -> tuple[str, Remedy | None]:
        closes = closes_at(self._merging, partition, table)
        if closes is None:
            return "its day is the calendar's last: it is never closed, and readers get its small objects", None
        if closes <= self.now:
            return f"its day is over since {moment(closes)}; the next run closes it", Remedy(Action.MERGE)
        return f"its day is not over; it may be closed from {moment(closes)} on", None

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
    """When the oldest object that is not merged was registered: a query, if there is any."""
    if not partition.waiting.objects:
        return None
    return next((batch.registered for batch in inventory.batches(partition.table, partition.date, partition.upper, 1)), None)


# One partition in a paragraph


@dataclass(frozen=True)
class MergeExplanation:
    """A paragraph on a partition, what it was made of, and what helps; nothing where time alone does."""

    text: str
    partition: Partition
    plan: Plan
    remedy: Remedy | None


def explain_partition(merging: Merging, partition: Partition, table: MergedTable) -> MergeExplanation:
    """What a partition consists of, what a merge would do now, and what it waits for until readers see all of it."""
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
        f"Objects of {behind:,} {_plural(behind, 'commit')} are not registered yet, and may be of it: the next run does that."
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
        return f"It is closed: what came up to id {of.last_live} came in time. It is switched: readers get merged objects."
    if of.closed:
        left = (
            "all of that is merged, so it is switched next" if of.upper >= (of.last_live or 0) else "not all of that is merged"
        )
        return f"It is closed: what came up to id {of.last_live} came in time; {left}."
    closes = closes_at(merging, of, table)
    if not table.enabled:
        return "It is open, and stays so: its table is not enabled."
    if closes is None:
        return "It is open, and stays so: its day is the calendar's last."
    if closes <= now:
        return f"It is open, though its day in {table.zone} is over; it may be closed since {moment(closes)}."
    return f"It is open: its day ends in {table.zone}, and it is closed by the first run after {moment(closes)}."


def _merge_now(of: Partition, plan: Plan) -> str:
    if of.at_rest:
        return ""
    count = len(plan.ranges)
    would = f"A merge now would write {count:,} {_plural(count, 'range')}: " if count else "A merge now would write nothing: "
    extends = ", the first in the place of the last one" if count and plan.ranges[0].extends else ""
    return f"{would}{plan.reason}{extends}."


def _seen(merging: Merging, of: Partition) -> str:
    if of.current == NEW:
        return "Readers see nothing of it yet: the next publication shows it."
    if of.current == LIVE:
        return "Readers see its small objects as they came."
    version = f"Readers see version {of.current}, generation {of.published}"
    if of.published < of.generation or of.current < of.desired:
        return f"{version}; version {of.desired}, generation {of.generation}, is merged and not published yet."
    later = of.newest > of.published_newest and merging.config.delayed != "at_once"
    return f"{version}{', without what waits' if later else ''}."


def _objects(total: Totals) -> str:
    return f"{total.objects:,} small {_plural(total.objects, 'object')} ({total.rows:,} rows, {size_of(total.bytes)})"


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"
