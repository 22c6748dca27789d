"""Merging: registers newly shredded objects, merges small objects, and closes, switches and publishes partitions, in one run.

Belongs here: a run of a merge worker, from the commits that are not registered yet to the catalog. The rules on what may be
merged, and the effect of a merge, are in `merging`.

A run is one process with at most one Spark session, and one Spark job for all partitions that are due, up to a limit.
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
from manifest_platform.merging.errors import MergeMisconfigured
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
from manifest_platform.pipeline.isolation import Isolation, NotCharged
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.shredding import OutputGone, files_of, object_problem, shred_again
from manifest_platform.sources.source import SHRED
from manifest_platform.spark import SparkUnavailable
from manifest_platform.warehouse.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.merging.kernel import Merged, MergeTask
    from manifest_platform.merging.spark_job import MergeFailure
    from manifest_platform.pipeline.range_merging import Results

log = logging.getLogger(__name__)

JOBS_AT_ONCE = 64
"""The maximum number of partitions that one Spark job merges."""


@dataclass(frozen=True)
class MergeBudget:
    """The limits of a run: partitions merged; and seconds, after which no new Spark job begins."""

    partitions: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class MergeStarted:
    """A Spark job begins. It merges this number of ranges, partitions, small objects and bytes."""

    ranges: int
    partitions: int
    objects: int
    bytes: int


MergeEvent = Registration | MergeStarted | FinishedJob


@dataclass
class MergeReport:
    """The totals of a run, and the reason why it stopped.

    `commits`, `objects`: registered. `closed`: partitions closed before the merge. `bytes_in`, `bytes_out`: read and written.
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
        """Adds an event to the totals."""
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
    """The configured merging of one dataset: its inventory, profile and catalog. Raises Refused if it is not merged."""

    def __init__(self, pipeline: Pipeline, clock: Callable[[], datetime] = lambda: datetime.now(UTC)):
        config = pipeline.dataset.merge
        if config is None:
            raise Refused(f"dataset {pipeline.name} is not merged: add `merge` with an `output` to it in the configuration")
        self.pipeline, self.config, self.clock = pipeline, config, clock
        self.inventory = Inventory(
            pipeline.manifest.store, pipeline.name, pipeline.holder, clock, config.max_attempts, pipeline.run_id
        )
        self.output = storage.as_uri(config.output)

    @property
    def profile(self) -> Profile:
        """The configured profile, with the settings that override it."""
        profile, config = PROFILES[self.config.profile], self.config
        changes = {
            "interval": config.interval_seconds,
            "target_bytes": None if config.target_mib is None else config.target_mib << 20,
            "close_grace": config.close_after_seconds,
        }
        return dataclasses.replace(profile, **{name: value for name, value in changes.items() if value is not None})

    @property
    def rules(self) -> Rules:
        """The rules by which objects are registered."""
        return STRICT_RULES if self.config.profile == "strict" else Rules()

    def table(self, key: str) -> TableSettings:
        """Returns the configured settings of a table, by the name that shredding gives it."""
        return table_settings(key, self.pipeline.name, self.config, self.profile, self.pipeline.source.time_column(key))

    def sync(self) -> None:
        """Updates the tables in the inventory to match the configuration. Writes nothing if they match already."""
        for table in self.inventory.tables():
            settings = self.table(table.key)
            if not table.dropped and synced(table, settings, self.clock()) != table:
                self.inventory.sync_table(settings)

    def catalog(self) -> Catalog:
        """Opens the configured catalog."""
        return open_catalog(self.config.catalog, self.inventory)

    @property
    def reader(self) -> Reader:
        """A reader of what is published."""
        return Reader(self.inventory, listed=self.config.delayed == "at_once")

    @property
    def grace(self) -> timedelta:
        """The time after the end of its day for which a partition stays open."""
        return timedelta(seconds=self.profile.close_grace)

    def is_over(self, table: MergedTable, partition: Partition) -> bool:
        """True if a partition's day ended in its table's zone at least `grace` ago, so that it may be closed."""
        return is_over(partition.date, table.zone, self.grace, self.clock())

    def invisible_since(self, partition: Partition) -> datetime | None:
        """The time at which the oldest object arrived that readers do not see yet; None if they see all objects."""
        if partition.current == NEW:
            return partition.create_time if partition.live.objects else None
        if partition.last_live is None or (partition.switched and self.config.delayed == "at_once"):
            return None
        seen = partition.published_newest if partition.current > LIVE else partition.last_live
        unseen = next(self.inventory.batches(partition.table, partition.date, after=seen, limit=1), None)
        return unseen.registered if unseen else None

    def longest_invisible(self, table: str) -> timedelta:
        """The time for which readers may not see an object: as configured, else twice the table's interval and 5 minutes."""
        if self.config.invisible_seconds is not None:
            return timedelta(seconds=self.config.invisible_seconds)
        return timedelta(seconds=2 * self.table(table).interval, minutes=5)

    def publish(self, verify: bool = False) -> PublishReport:
        """Closes, switches and publishes the partitions that are due, after updating tables to match the configuration."""
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
    """Returns a table's settings: its own, else the dataset's, else the profile's. `time_column`: as its source declares."""
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
    """Registers shredded objects, merges partitions that are due, and closes, switches and publishes, until nothing is due.

    `asked`: only these partitions are merged, immediately and completely, closed or not. Yields events as they happen, and
    finally a MergeReport with the totals and the reason for stopping. `spark` is called only if something must be merged.
    Raises errors that neither the manifest nor the storage foresees.
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
    except (SparkUnavailable, MergeMisconfigured, StoreUnavailable, OutcomeUnknown, Unavailable) as error:
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
    except OutputGone as error:  # registered objects are merged and published nevertheless
        report.stop, report.reason = Stop.BLOCKED, f"no further objects are registered: {error}"
        if error.remedy and shred_again(merging.pipeline, merging.pipeline.key(error.remedy.item), error.what):
            report.reason = f"no further objects are registered now: {error.what}. {error.remedy.item} is shredded again"
    yield from merging.inventory.requeue(datetime.now(UTC))  # leases of workers are judged by the real time
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
    """Registers the objects of commits that are not registered yet, in order. Raises Unavailable, Refused."""
    inventory, pipeline = merging.inventory, merging.pipeline
    known: set[str] | None = None
    for commit in pipeline.manifest.commits(after=inventory.cursor()):
        item = pipeline.manifest.item(commit.key)
        made = item.processed_by(Application(SHRED))
        if made is None or made.record_id != commit.record_id:  # it was shredded again: a later commit has its objects
            yield inventory.register(CommittedObjects(commit.number, commit.key.id, {}, {}), merging.rules)
            continue
        listing = files_of(item)
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
    """Closes partitions whose day is over before the merge, so that this run merges their last objects. Returns the number."""
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
    """Yields the lease of a worker, in the first free slot. Raises LeaseBusy if there is none."""
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


# The merge jobs of a Spark job


@dataclass(frozen=True)
class _Work:
    """A claimed job with its table and its plan."""

    claimed: Claimed
    table: MergedTable
    plan: Plan

    @property
    def ranges(self) -> tuple[PlannedRange, ...]:
        return self.plan.ranges[:MAX_RANGES]

    def tasks(self, merging: Merging) -> list[MergeTask]:
        """Returns a task for each range."""
        from manifest_platform.merging.kernel import MergeTask

        job = self.claimed.job
        return [MergeTask.of(planned, self.table, job.date, merging.output, job.id) for planned in self.ranges]


def plan_of(merging: Merging, partition: Partition, table: MergedTable, early: bool = False) -> Plan:
    """Returns the plan of a merge of a partition now. `early`: completely, closed or not."""
    profile = merging.profile
    tail = merging.inventory.tail(partition)
    objects = merging.inventory.small_objects(table.key, partition.date, after=partition.upper, limit=profile.max_objects + 1)
    return plan(partition, table, tail, objects, dataclasses.replace(profile, early=True) if early else profile)


def _do_each(
    merging: Merging, lease: Lease, spark: Callable[[], SparkSession], claimed: Sequence[Claimed], early: bool
) -> Iterator[MergeEvent]:
    """Does claimed jobs in one Spark job, except those that died or failed before: each has its own, to protect the others."""
    fresh = [one for one in claimed if not one.job.attempts]
    groups = [fresh, *([one] for one in claimed if one.job.attempts)]
    left = {one.job.id: one for one in claimed}
    try:
        for group in filter(None, groups):
            yield from _do(merging, lease, spark, group, early, left)
    except BaseException as end:  # an interrupt, or a Spark that does not start, is not the fault of the jobs
        places = ", ".join(f"{one.job.table} {one.job.date}" for one in left.values())
        for one in left.values():
            with contextlib.suppress(Refused, StoreError):
                merging.inventory.give_back(one.job)
        if left and not isinstance(end, Exception):
            end.add_note(f"the merge of {places} was put back, and no attempt is counted")
        raise


def _do(
    merging: Merging,
    lease: Lease,
    spark: Callable[[], SparkSession],
    claimed: Sequence[Claimed],
    early: bool,
    left: dict[str, Claimed],
) -> Iterator[MergeEvent]:
    """Does claimed jobs in one Spark job, and ends each separately. `left`: the jobs that are not ended yet.

    If the Spark job dies, the job that kills it is isolated. Raises SparkUnavailable if Spark or its cluster fails, which is
    charged to none.
    """
    from manifest_platform.pipeline.range_merging import PartitionTasks, RangeMerging
    from manifest_platform.spark import cancellable, watched

    work: list[_Work] = []
    for one in claimed:
        table = merging.inventory.table(one.job.table)
        if table is None or table.dropped:
            del left[one.job.id]  # the job was dropped with its table
            continue
        planned = plan_of(merging, one.partition, table, early) if table.enabled else Plan((), False, "it is disabled")
        work.append(_Work(one, table, planned))
    parts = [PartitionTasks(one.claimed.job.id, one.tasks(merging)) for one in work if one.ranges]
    results: dict[str, Results | NotCharged] = {}
    if parts:
        objects = [found for one in work for planned in one.ranges for found in planned.objects]
        ranges = sum(len(one.ranges) for one in work)
        yield MergeStarted(ranges, len(work), len(objects), sum(found.bytes for found in objects))
        session = spark()
        limit = merging.pipeline.config.limits.of("merge")
        with (
            lease.within(limit, f"merging {len(work)} partitions"),
            cancellable(session) as cancel,
            lease.canceling(cancel),
            progress.work(f"merging {len(work)} partitions", sum(found.bytes for found in objects), progress.BYTES) as told,
            watched(session, told),
        ):
            isolation = Isolation(RangeMerging(merging.inventory, merging.output, lease, session))
            results = {part.job: result for part, result in isolation.results(parts)}
        failpoints.reach("merge.job_done")
    lease.check()
    put_back = ""
    for one in work:
        mine = results.get(one.claimed.job.id, ())
        if isinstance(mine, NotCharged):
            put_back = mine.reason
            continue
        del left[one.claimed.job.id]
        try:
            yield _end(merging, one, mine)
            failpoints.reach("merge.committed")
        except JobLost as lost:
            log.warning("%s", lost)
    if put_back:
        raise SparkUnavailable(put_back)


def _end(merging: Merging, work: _Work, results: Sequence[Merged | MergeFailure]) -> FinishedJob:
    """Ends a job: commits the merged ranges up to the first failure, and leaves the others over.

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
    """Sends items whose objects are lost to be shredded again. Yields a sentence for each."""
    pipeline = merging.pipeline
    for found in (one for planned in work.ranges for one in planned.objects):
        problem = object_problem(found.uri, found.file_bytes)
        key = pipeline.item_of(found.uri) if problem else None
        if key and shred_again(pipeline, key, problem):
            yield f"{key.name} is shredded again automatically"


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
