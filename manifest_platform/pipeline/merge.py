"""Merging: what was shredded since, small objects to merged ones, closed, switched and published, in one run.

Belongs here: one run of a merge worker, from the commits that are not registered yet to the catalog. What may be merged, and
what a merge changes, is in `merging`.

A run is one process with at most one Spark session, and one Spark job for all partitions that are due.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from manifest_platform import failpoints, progress, storage
from manifest_platform.faults import Permanent
from manifest_platform.listing import BAD_TABLE
from manifest_platform.manifest import (
    Application,
    ClaimLost,
    Lease,
    LeaseBusy,
    OutcomeUnknown,
    Refused,
    State,
    StoreError,
    StoreUnavailable,
)
from manifest_platform.merging.catalogs.catalog import Catalog, open_catalog
from manifest_platform.merging.inventory import Claimed, Inventory
from manifest_platform.merging.plan import PROFILES, Plan, PlannedRange, Profile, plan
from manifest_platform.merging.publish import PublishReport, PublishSettings, publish
from manifest_platform.merging.readers import Reader
from manifest_platform.merging.registration import STRICT_RULES, CommittedObjects, Registration, Rules
from manifest_platform.merging.settings import MergeSettings, MergeTableSettings
from manifest_platform.merging.state import (
    LIVE,
    NEW,
    FinishedJob,
    MergedTable,
    Outcome,
    Partition,
    PartitionName,
    Range,
    RunningJob,
    TableSettings,
)
from manifest_platform.merging.transitions import (
    MAX_RANGES,
    MERGE,
    ChainChanged,
    CountsDiffer,
    JobLost,
    Leftover,
    is_over,
    synced,
)
from manifest_platform.pipeline.events import Stop
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.shredding import OutputGone, listing_of, object_problem, shred_again
from manifest_platform.sources.source import SHRED
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.merging.kernel import Merged
    from manifest_platform.merging.spark_job import MergeFailure

log = logging.getLogger(__name__)

JOBS_AT_ONCE = 64
"""Partitions that one Spark job merges, at most."""


@dataclass(frozen=True)
class MergeBudget:
    """How much one run may do: so many partitions merged; and seconds, after which no new Spark job is begun."""

    partitions: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class MergeStarted:
    """A Spark job begins: so many ranges of so many partitions, from so many objects of so many bytes."""

    ranges: int
    partitions: int
    objects: int
    bytes: int


MergeEvent = Registration | MergeStarted | FinishedJob


@dataclass
class MergeReport:
    """What a run did and why it stopped.

    `commits`, `objects`: registered. `closed`: partitions, before the merge. `bytes_in`, `bytes_out`: read and written.
    """

    commits: int = 0
    objects: int = 0
    closed: int = 0
    merged: int = 0
    failed: int = 0
    rows: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    requests: int = 0
    stop: Stop = Stop.IDLE
    reason: str = ""
    published: PublishReport | None = None

    def count(self, event: MergeEvent) -> None:
        """Adds what happened."""
        if isinstance(event, Registration):
            self.commits += not event.known
            self.objects += event.objects
        elif isinstance(event, FinishedJob):
            self.merged += event.outcome is Outcome.MERGED
            self.failed += event.outcome.is_failure
            self.rows += event.rows
            self.bytes_in += event.bytes_in
            self.bytes_out += event.bytes_out


class Merging:
    """Merging of one dataset, as it is configured: its inventory, its profile, its catalog. Raises Refused if it is not."""

    def __init__(self, pipeline: Pipeline, clock: Callable[[], datetime] = lambda: datetime.now(UTC)):
        config = pipeline.dataset.merge
        if config is None:
            raise Refused(
                f"dataset {pipeline.name} is not merged: give it a part `merge` with an `output` in the configuration"
            )
        self.pipeline, self.config, self.clock = pipeline, config, clock
        self.inventory = Inventory(
            pipeline.manifest.store, pipeline.name, pipeline.holder, clock, config.max_attempts, pipeline.run_id
        )
        self.output = storage.as_uri(config.output)

    @property
    def profile(self) -> Profile:
        """The habits of the configured profile, with what is configured beside it."""
        profile, config = PROFILES[self.config.profile], self.config
        changes = {
            "interval": config.interval_seconds,
            "target_bytes": None if config.target_mib is None else config.target_mib << 20,
            "close_grace": config.close_after_seconds,
        }
        return dataclasses.replace(profile, **{name: value for name, value in changes.items() if value is not None})

    @property
    def rules(self) -> Rules:
        """How objects are taken in."""
        return STRICT_RULES if self.config.profile == "strict" else Rules()

    def table(self, key: str) -> TableSettings:
        """What is configured of a table, by the name that shredding gives it."""
        return table_settings(key, self.pipeline.name, self.config, self.profile, self.pipeline.source.time_column(key))

    def sync(self) -> None:
        """Brings the tables that the inventory knows up to their configuration; writes nothing if they are so already."""
        for table in self.inventory.tables():
            settings = self.table(table.key)
            if not table.dropped and synced(table, settings, self.clock()) != table:
                self.inventory.sync_table(settings)

    def catalog(self) -> Catalog:
        """The configured catalog."""
        return open_catalog(self.config.catalog, self.inventory)

    @property
    def reader(self) -> Reader:
        """Reads what is published."""
        return Reader(self.inventory, listed=self.config.delayed == "at_once")

    @property
    def grace(self) -> timedelta:
        """How long after its day ends a partition is still open."""
        return timedelta(seconds=self.profile.close_grace)

    def is_over(self, table: MergedTable, partition: Partition) -> bool:
        """Whether a partition's day has ended in its table's zone, so long ago that it may be closed."""
        return is_over(partition.date, table.zone, self.grace, self.clock())

    def invisible_since(self, partition: Partition) -> datetime | None:
        """When the oldest object came that readers do not see yet; None if they see all that there is."""
        if partition.current == NEW:
            return partition.create_time if partition.live.objects else None
        if partition.last_live is None or (partition.switched and self.config.delayed == "at_once"):
            return None
        seen = partition.published_newest if partition.current > LIVE else partition.last_live
        unseen = next(self.inventory.batches(partition.table, partition.date, after=seen, limit=1), None)
        return unseen.registered if unseen else None

    def longest_invisible(self, table: str) -> timedelta:
        """How long readers may not see an object: as configured, else twice the table's interval and some minutes."""
        if self.config.invisible_seconds is not None:
            return timedelta(seconds=self.config.invisible_seconds)
        return timedelta(seconds=2 * self.table(table).interval, minutes=5)

    def publish(self, verify: bool = False) -> PublishReport:
        """Closes, switches and publishes what is due, of tables as they are configured now."""
        self.sync()
        settings = PublishSettings(
            output=self.output,
            grace=self.grace,
            two_runs=self.profile.two_runs,
            listed=self.config.delayed == "at_once",
            comments={key: table.comments for key, table in self.config.tables.items()},
            verify=verify,
            lease=timedelta(seconds=self.pipeline.config.lease.seconds),
        )
        return publish(self.inventory, self.catalog(), settings, self.clock())


def table_settings(key: str, dataset: str, config: MergeSettings, profile: Profile, time_column: str | None) -> TableSettings:
    """What is configured of a table: its own, else the dataset's, else the profile's. `time_column`: what its source says."""
    own = config.tables.get(key, MergeTableSettings())
    name, schema = own.name or key, own.schema_name or dataset
    return TableSettings(
        name=name,
        schema=schema,
        interval=profile.interval if own.interval_seconds is None else own.interval_seconds,
        target_bytes=profile.target_bytes if own.target_mib is None else own.target_mib << 20,
        zone=own.zone or config.zone,
        time_column=time_column,
        physical_schema=None if schema == dataset else dataset,
        physical_name=None if name == key else key,
        enabled=own.enabled,
    )


def merge(
    merging: Merging,
    spark: Callable[[], SparkSession],
    budget: MergeBudget = MergeBudget(),
    asked: Collection[PartitionName] = (),
) -> Generator[MergeEvent | MergeReport]:
    """Registers what was shredded, merges what is due, and closes, switches and publishes, until nothing is due.

    `asked`: partitions that are merged now, to their last object, closed or not, and no others. Yields what happens as it
    happens, and last a MergeReport with the totals and why it stopped. `spark` is called only if something is to be merged.
    Raises what neither the manifest nor the storage foresees.
    """
    report = MergeReport()
    store = merging.pipeline.manifest.store
    begun, requests = time.monotonic(), store.requests
    try:
        for event in _merge(merging, spark, budget, report, asked):
            report.count(event)
            yield event
    except LeaseBusy as busy:
        report.stop, report.reason = Stop.BUSY, str(busy)
    except ClaimLost as error:
        report.stop, report.reason = Stop.FENCED, str(error)
    except (SparkUnavailable, StoreUnavailable, OutcomeUnknown, Unavailable) as error:
        report.stop, report.reason = Stop.UNAVAILABLE, str(error)
    try:
        report.published = merging.publish()
    except (StoreUnavailable, OutcomeUnknown) as error:
        report.stop, report.reason = Stop.UNAVAILABLE, str(error)
    if report.published and not report.published.succeeded and report.stop is Stop.IDLE:
        report.stop, report.reason = Stop.UNAVAILABLE, report.published.failed[0].error
    report.seconds = time.monotonic() - begun
    report.requests = store.requests - requests
    yield report


def _merge(
    merging: Merging,
    spark: Callable[[], SparkSession],
    budget: MergeBudget,
    report: MergeReport,
    asked: Collection[PartitionName],
) -> Iterator[MergeEvent]:
    begun = time.monotonic()
    merging.sync()
    try:
        yield from register(merging)
    except OutputGone as error:  # what is registered is merged and shown all the same
        report.stop, report.reason = Stop.BLOCKED, f"nothing more is registered: {error}"
        if error.remedy and shred_again(merging.pipeline, merging.pipeline.key(error.remedy.item), error.what):
            report.reason = f"nothing more is registered now: {error.what}; {error.remedy.item} is shredded again, by itself"
    yield from merging.inventory.requeue(datetime.now(UTC))  # whether a worker is alive is no matter of a pretended time
    if not merging.profile.two_runs:
        report.closed = _close(merging)
    for table, day in asked:
        merging.inventory.hasten(table, day, merging.clock())
    if not any(True for _ in merging.inventory.due(merging.clock())):
        return
    done: set[str] = set()
    with worker(merging) as lease:
        while True:
            if budget.seconds is not None and time.monotonic() - begun >= budget.seconds:
                report.stop = Stop.BUDGET_SECONDS
                return
            left = JOBS_AT_ONCE if budget.partitions is None else min(JOBS_AT_ONCE, budget.partitions - len(done))
            if left <= 0:
                report.stop = Stop.BUDGET_ITEMS
                return
            claimed = merging.inventory.claim(lease, merging.clock(), left, places=asked or None)
            if not claimed:
                return
            failpoints.reach("merge.claimed")
            done.update(f"{one.job.table} {one.job.date}" for one in claimed)
            yield from _do_each(merging, lease, spark, claimed, early=bool(asked))


def register(merging: Merging) -> Iterator[Registration]:
    """Registers the objects of the commits that are not registered yet, in their order. Raises Unavailable, Refused."""
    inventory, pipeline = merging.inventory, merging.pipeline
    known: set[str] | None = None
    for commit in pipeline.manifest.commits(after=inventory.cursor()):
        item = pipeline.manifest.item(commit.key)
        made = item.processed_by(Application(SHRED))
        if made is None or made.record_id != commit.record_id:  # it is shredded again: another commit brings its objects
            yield inventory.register(CommittedObjects(commit.number, commit.key.id, {}, {}), merging.rules)
            continue
        listing = listing_of(item)
        if known is None:
            known = {table.key for table in inventory.tables()}
        for table in listing.tables:
            if table.name != BAD_TABLE and table.mode == "append" and table.name not in known:
                inventory.sync_table(merging.table(table.name))
                known.add(table.name)
        objects = CommittedObjects.of(commit.number, listing)
        if sum(one.state is State.PROCESSED and one.application.name == SHRED for one in item.records) > 1:
            objects = inventory.take_over(objects)
        yield inventory.register(objects, merging.rules)
        failpoints.reach("merge.registered")


def _close(merging: Merging) -> int:
    """Closes what is over before anything is merged, so that its last objects are merged by this run; says how many."""
    count = 0
    tables = {table.key: table for table in merging.inventory.tables() if table.enabled and not table.dropped}
    for partition in merging.inventory.open_partitions():
        table = tables.get(partition.table)
        if table and not partition.closed and merging.is_over(table, partition):
            count += merging.inventory.close(partition, merging.clock(), merging.grace).closed
            failpoints.reach("merge.closed")
    return count


@contextmanager
def worker(merging: Merging) -> Generator[Lease]:
    """The lease of a worker, in the first slot that is free. Raises LeaseBusy if none is."""
    manifest, duration = merging.pipeline.manifest, timedelta(seconds=merging.pipeline.config.lease.seconds)
    busy: LeaseBusy | None = None
    for slot in range(merging.config.workers):
        try:
            lease = manifest.hold(MERGE, str(slot), merging.pipeline.holder, duration)
        except LeaseBusy as error:
            busy = error
            continue
        with lease:
            yield lease
        return
    if busy:
        raise busy


# The jobs of one Spark job


@dataclass(frozen=True)
class _Work:
    """A claimed job, and what is to become of its partition."""

    claimed: Claimed
    table: MergedTable
    plan: Plan

    @property
    def ranges(self) -> tuple[PlannedRange, ...]:
        return self.plan.ranges[:MAX_RANGES]


def plan_of(merging: Merging, partition: Partition, table: MergedTable, early: bool = False) -> Plan:
    """What a merge of a partition would do now. `early`: to its last object, closed or not."""
    profile = merging.profile
    tail = merging.inventory.tail(partition)
    objects = merging.inventory.small_objects(table.key, partition.date, after=partition.upper, limit=profile.max_objects + 1)
    return plan(partition, table, tail, objects, dataclasses.replace(profile, early=True) if early else profile)


def _do_each(
    merging: Merging, lease: Lease, spark: Callable[[], SparkSession], claimed: Sequence[Claimed], early: bool
) -> Iterator[MergeEvent]:
    """Does claimed jobs in one Spark job; each that died or failed before in its own, so that it takes no other along."""
    fresh = [one for one in claimed if not one.job.attempts]
    groups = [fresh, *([one] for one in claimed if one.job.attempts)]
    left = {one.job.id: one for one in claimed}
    try:
        for group in filter(None, groups):
            yield from _do(merging, lease, spark, group, early, left)
    except BaseException as end:  # whoever interrupts, and a Spark that does not start, is no fault of the jobs
        places = ", ".join(f"{one.job.table} {one.job.date}" for one in left.values())
        for one in left.values():
            with contextlib.suppress(Refused, StoreError):
                merging.inventory.give_back(one.job)
        if left and not isinstance(end, Exception):
            end.add_note(f"the merge of {places} was put back, no attempt is counted")
        raise


def _do(
    merging: Merging,
    lease: Lease,
    spark: Callable[[], SparkSession],
    claimed: Sequence[Claimed],
    early: bool,
    left: dict[str, Claimed],
) -> Iterator[MergeEvent]:
    """Does claimed jobs in one Spark job, and ends each of them by itself; `left` are those that are not ended."""
    from manifest_platform.merging.kernel import MergeTask
    from manifest_platform.merging.spark_job import MergeFailure, merge_all
    from manifest_platform.shred.batch import works
    from manifest_platform.spark import cancellable, watched

    work: list[_Work] = []
    for one in claimed:
        table = merging.inventory.table(one.job.table)
        if table is None or table.dropped:
            del left[one.job.id]  # its job went with it
            continue
        planned = plan_of(merging, one.partition, table, early) if table.enabled else Plan((), False, "it is disabled")
        work.append(_Work(one, table, planned))
    tasks = [
        MergeTask.of(planned, one.table, one.claimed.job.date, merging.output, one.claimed.job.id)
        for one in work
        for planned in one.ranges
    ]
    results: list[Merged | MergeFailure] = []
    if tasks:
        objects = [found for one in work for planned in one.ranges for found in planned.objects]
        yield MergeStarted(len(tasks), len(work), len(objects), sum(found.bytes for found in objects))
        session = spark()
        limit = merging.pipeline.config.limits.of("merge")
        with (
            lease.within(limit, f"merging {len(work)} partitions"),
            cancellable(session) as cancel,
            lease.canceling(cancel),
            progress.work(f"merging {len(work)} partitions", sum(found.bytes for found in objects), progress.BYTES) as told,
            watched(session, told),
        ):
            results = merge_all(session, tasks)
            passing = [one for one in results if isinstance(one, MergeFailure) and not one.permanent]
            if len(passing) == len(results) and not works(session):
                lease.check()
                raise SparkUnavailable(passing[0].message)  # an outage is charged to no partition
        failpoints.reach("merge.job_done")
    lease.check()
    for one in work:
        mine, results = results[: len(one.ranges)], results[len(one.ranges) :]
        del left[one.claimed.job.id]
        try:
            yield _end(merging, one, mine)
            failpoints.reach("merge.committed")
        except JobLost as lost:
            log.warning("%s", lost)


def _end(merging: Merging, work: _Work, results: Sequence[Merged | MergeFailure]) -> FinishedJob:
    """Ends a job: what was merged, up to the first range that failed, is committed; the others are left over.

    Raises JobLost.
    """
    from manifest_platform.merging.spark_job import MergeFailure

    inventory, job = merging.inventory, work.claimed.job
    good: list[Merged] = []
    for result in results:
        if isinstance(result, MergeFailure):
            if not good:
                message = "; ".join([result.message, *_shred_again(merging, work)])
                return inventory.fail(job, message, permanent=result.permanent)
            break
        good.append(result)
    if not good:
        return inventory.finish(job)
    done = work.ranges[: len(good)]
    more = work.plan.leftover or len(done) < len(work.plan.ranges)
    due = job.schedule_time if merging.profile.keeps_schedule else merging.clock()
    ranges = [_range(job, planned, result) for planned, result in zip(done, good, strict=True)]
    bytes_in = sum(found.bytes for planned in done for found in planned.objects)
    try:
        return inventory.commit(job, ranges, Leftover(due) if more else None, bytes_in=bytes_in)
    except (ChainChanged, CountsDiffer) as error:
        return inventory.fail(job, str(error), permanent=isinstance(error, Permanent))


def _shred_again(merging: Merging, work: _Work) -> Iterator[str]:
    """Has the items shredded again whose objects are lost, by themselves; says which."""
    pipeline = merging.pipeline
    for found in (one for planned in work.ranges for one in planned.objects):
        problem = object_problem(found.uri, found.bytes)
        key = pipeline.item_of(found.uri) if problem else None
        if key and shred_again(pipeline, key, problem):
            yield f"{key.name} is shredded again, by itself"


def _range(job: RunningJob, planned: PlannedRange, merged: Merged) -> Range:
    extended = planned.extends.objects if planned.extends else 0
    return Range(
        table=job.table,
        date=job.date,
        lower=planned.lower,
        upper=planned.upper,
        uri=merged.uri,
        rows=merged.rows,
        bytes=merged.bytes,
        objects=extended + len(planned.objects),
        attempt=job.id,
        create_time=job.started,
        update_time=job.started,
        min_time=merged.min_time,
        max_time=merged.max_time,
    )
