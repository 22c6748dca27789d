"""The inventory of merging: objects to merge, jobs, merged ranges, and published versions.

Belongs here: the operations. Each reads what it needs, applies a pure transition, and commits one transaction. The rules are
in `transitions`, the rows in `state`.

Any number of workers may call every operation at any time, and repeat it after a crash. Each transaction is conditional on the
versions of the rows that were read; the operation is repeated when they changed, and recognizes its own write if a response
was lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar
from uuid import uuid4
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from manifest_platform.manifest.dataset import LeaseState
from manifest_platform.manifest.errors import Refused
from manifest_platform.manifest.item import check_key_text
from manifest_platform.manifest.keys import lease_key
from manifest_platform.manifest.lease import Lease
from manifest_platform.manifest.store import (
    ABSENT,
    MAX_WRITES,
    PAGE,
    Changed,
    Check,
    ConditionFailed,
    Delete,
    OutcomeUnknown,
    Put,
    Row,
    Store,
    Write,
    optimistically,
    stored_rows,
    transact_once,
)
from manifest_platform.merging import transitions
from manifest_platform.merging.registration import CommittedObjects, Registration, Rules, widened_columns
from manifest_platform.merging.state import (
    BATCH,
    CURSOR,
    DUE,
    LIVE,
    LOG,
    OPEN,
    PARTITIONS,
    RANGES,
    RUNNING,
    SETTLED,
    SMALL,
    TABLES,
    VERSIONS,
    Batch,
    Due,
    FinishedJob,
    MergedTable,
    Outcome,
    Partition,
    PartitionName,
    Range,
    RunningJob,
    Settled,
    SmallObject,
    TableSettings,
    Version,
    digest_of,
    from_row,
    log_key,
    partition_key,
    range_key,
    rows_prefix,
    running_key,
    small_key,
    table_key,
    version_key,
)
from manifest_platform.merging.transitions import (
    MAX_RANGES,
    MERGE,
    PARTITION_WRITES,
    ChainChanged,
    EarlierCommitMissing,
    JobLost,
    Leftover,
    name,
)
from manifest_platform.releases import unmarked

FIRST_PAGE = 50
TRIES = 30
LONGEST_PAUSE_S = 0.2
OBJECTS_AT_ONCE = 5_000
"""Largest number of small objects in one transaction, about 2 MB."""
MARK = "write"
"""A field of every row: the id of the transaction that wrote it. It shows if a write succeeded whose response was lost."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Claimed:
    """A job claimed by this worker, and its partition as of the claim."""

    job: RunningJob
    partition: Partition


@dataclass(frozen=True)
class _Piece:
    """Small objects that a commit adds to a partition, up to the limit of a transaction."""

    table: str
    date: date
    objects: tuple[SmallObject, ...]

    @property
    def writes(self) -> int:
        """The largest number of writes that registering it needs."""
        return PARTITION_WRITES + 1 + -(-len(self.objects) // BATCH)


class Inventory:
    """The inventory of one dataset in a store. It may be shared between threads.

    `owner`: the program's name in the jobs that it claims. `run_id`: its run (by default a new id). `max_attempts`: a job that
    died or failed this often is set aside.
    """

    def __init__(
        self,
        store: Store,
        dataset: str,
        owner: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        max_attempts: int = 5,
        run_id: str | None = None,
    ):
        self.store, self.dataset, self.owner, self.max_attempts = store, dataset, owner, max_attempts
        self.run_id = run_id or str(uuid4())
        self.clock = clock

    # Queries

    def cursor(self) -> int:
        """The last commit that is completely registered; 0 if there is none."""
        row = self.store.get(self.dataset, CURSOR)
        return unmarked(row.data["commit"]) if row else 0

    def table(self, key: str) -> MergedTable | None:
        """A table by its name in shredding; None if it is unknown or dropped."""
        table = self._table(key)
        return None if table is None or table.dropped else table

    def tables(self) -> list[MergedTable]:
        """All tables, including disabled tables, without dropped tables."""
        found = (from_row(MergedTable, row) for row in self._pages(TABLES))
        return [table for table in found if not table.dropped]

    def partition(self, table: str, day: date) -> Partition | None:
        """A table's partition of a date; None if it has no object yet."""
        row = self.store.get(self.dataset, partition_key(table, day))
        return from_row(Partition, row) if row else None

    def partitions(self, table: str | None = None) -> Iterator[Partition]:
        """The partitions of a table by date, or of all tables; read in pages."""
        for row in self._pages(f"{PARTITIONS}{table}#" if table else PARTITIONS):
            yield from_row(Partition, row)

    def open_partitions(self) -> Iterator[Partition]:
        """The partitions that are not `at_rest`, by table and date. Costs a query, and a read for each partition."""
        for row in self._pages(OPEN):
            found = self.partition(row.data["table"], date.fromisoformat(row.data["date"]))
            if found:
                yield found

    def ranges(self, table: str, day: date | None = None) -> list[Range]:
        """The merged objects of a partition: its chain from 0. Without a date, those of all partitions of the table."""
        return [from_row(Range, row) for row in self._pages(rows_prefix(RANGES, table, day))]

    def chain(self, table: str, day: date) -> tuple[Partition | None, list[Range]]:
        """A partition and its merged objects, both of the same generation. Raises Refused if they change too often."""

        def read() -> tuple[Partition | None, list[Range]]:
            before = self.partition(table, day)
            found = self.ranges(table, day)
            after = self.partition(table, day)
            if (before and before.generation) != (after and after.generation):
                raise Changed
            return after, found

        return optimistically(
            read,
            lambda: Refused(f"{table} of {day}: its merged objects changed {TRIES} times while they were read; try again"),
            tries=TRIES,
        )

    def tail(self, partition: Partition) -> Range | None:
        """The last range of a partition's chain; None if there is none."""
        if partition.tail is None:
            return None
        row = self.store.get(self.dataset, range_key(partition.table, partition.date, partition.tail))
        return from_row(Range, row) if row else None

    def small_objects(self, table: str, day: date, after: int = 0, limit: int | None = None) -> list[SmallObject]:
        """The small objects of a partition with ids above `after`, ascending, at most `limit`. Earlier rows are not read."""
        found: list[SmallObject] = []
        for batch in self.batches(table, day, after, limit):
            found += [one for one in batch.objects if one.id > after]
            if limit is not None and len(found) >= limit:
                return found[:limit]
        return found

    def batches(self, table: str, day: date, after: int = 0, limit: int | None = None) -> Iterator[Batch]:
        """The batches of a partition that have an object with an id above `after`, in order; read in pages.

        `limit`: the number of objects needed, to read smaller pages.
        """
        page = PAGE if limit is None else min(limit, FIRST_PAGE)
        for row in self._pages(rows_prefix(SMALL, table, day), small_key(table, day, after) if after else None, page):
            yield from_row(Batch, row)

    def settled(self, table: str, day: date) -> list[Settled]:
        """The summaries of a partition's settled batches. All of them are older than the batches that `batches` returns."""
        return [from_row(Settled, row) for row in self._pages(rows_prefix(SETTLED, table, day))]

    def due(self, now: datetime) -> Iterator[Due]:
        """The jobs that may be claimed now, by schedule time."""
        for row in self._pages(DUE, page=FIRST_PAGE):
            found = from_row(Due, row)
            if found.schedule_time > now:
                return
            yield found

    def running(self) -> list[RunningJob]:
        """The jobs in progress, by table and date."""
        return [from_row(RunningJob, row) for row in self._pages(RUNNING)]

    def log(self, limit: int) -> list[FinishedJob]:
        """The last jobs that ended, the latest first."""
        return [from_row(FinishedJob, row) for row in self.store.query(self.dataset, LOG, limit=limit, reverse=True)]

    def lease(self, slot: str) -> LeaseState | None:
        """The stored lease of a worker's slot."""
        row = self.store.get(self.dataset, lease_key(MERGE, slot))
        return LeaseState.from_dict(row.data, row.version) if row else None

    def versions(self, table: str, day: date | None = None) -> list[Version]:
        """The published versions of a partition, oldest first. Without a date, those of all partitions of the table."""
        return [from_row(Version, row) for row in self._pages(rows_prefix(VERSIONS, table, day))]

    def shown_version(self, partition: Partition) -> Version | None:
        """The merged version that readers of a partition see; None if there is none, or its row does not exist."""
        if partition.current <= LIVE:
            return None
        named = Version(partition.table, partition.date, partition.published_newest, partition.published, partition.create_time)
        row = self.store.get(self.dataset, version_key(named))
        return from_row(Version, row) if row else None

    def _table(self, key: str) -> MergedTable | None:
        row = self.store.get(self.dataset, table_key(key))
        return from_row(MergedTable, row) if row else None

    def _pages(self, prefix: str, after: str | None = None, page: int = PAGE) -> Iterator[Row]:
        return stored_rows(self.store, self.dataset, prefix, after, page)

    # Tables

    def sync_table(self, settings: TableSettings) -> MergedTable:
        """Creates or updates a table's row from its configuration, and keeps what was learned. Without changes, writes nothing.

        A dropped table starts again. Raises InvalidKey or ValueError for invalid settings.
        """
        _check(settings)

        def sync() -> MergedTable:
            found = self._table(settings.key)
            if found and found.dropped:
                self._remove_rows(found)
            table = transitions.synced(found, settings, self.clock())
            if table == found:
                return found
            self._transact([transitions.put_table(table)])
            return dataclasses.replace(table, version=table.version + 1)

        return self._retrying(f"table {settings.name}", sync)

    def catalogued(self, table: str, catalog_name: str) -> MergedTable:
        """Records the table's name in the catalog. Raises Refused if the table is unknown."""

        def save() -> MergedTable:
            found = self._require_table(table)
            named = dataclasses.replace(found, catalog_name=catalog_name)
            if named == found:
                return found
            self._transact([transitions.put_table(named)])
            return dataclasses.replace(named, version=named.version + 1)

        return self._retrying(f"table {table}", save)

    def drop(self, table: str) -> None:
        """Removes all rows of a table except its own row, which marks it as dropped, and the log of its jobs.

        It uses transactions of bounded size and may be repeated after an interruption. After the first transaction nothing of
        the table is registered or published; when a partition is removed, its jobs can no longer commit. Files are not touched.
        Raises Refused if the table is unknown.
        """

        def mark() -> MergedTable:
            found = self._table(table)
            if found is None:
                raise Refused(f"dataset {self.dataset} has no table {table!r}")
            if found.dropped:
                return found
            dropped = dataclasses.replace(found, dropped=True, enabled=False)
            self._transact([transitions.put_table(dropped)])
            return dataclasses.replace(dropped, version=dropped.version + 1)

        self._retrying(f"table {table}", lambda: self._remove_rows(mark()))

    def _remove_rows(self, dropped: MergedTable) -> None:
        """Removes the rows of a dropped table. Partitions go first, so that nothing can be added to them.

        Every transaction is conditional on the table still being dropped, so that a recreated table loses nothing.
        """
        check = transitions.check_table(dropped)
        for partition in self.partitions(dropped.key):
            gone = list(transitions.writes(partition, None))
            running = self._pages(f"{RUNNING}{partition.table}#{partition.date}#")
            self._forget([*gone, *(Delete(row.sort, row.version) for row in running), check])
        for kind in (SMALL, SETTLED, RANGES, VERSIONS):
            deletes: list[Write] = [Delete(row.sort, row.version) for row in self._pages(rows_prefix(kind, dropped.key))]
            for at in range(0, len(deletes), MAX_WRITES - 1):
                self._forget([*deletes[at : at + MAX_WRITES - 1], check])

    def _forget(self, writes: Sequence[Write]) -> None:
        """Deletes rows. If the response is lost, the caller repeats and finds fewer rows to delete."""
        self.store.transact(self.dataset, writes, str(uuid4()))

    def _require_table(self, key: str) -> MergedTable:
        table = self.table(key)
        if table is None:
            raise Refused(f"dataset {self.dataset} has no table {key!r}: it was dropped, or never synchronized")
        return table

    # Registration

    def take_over(self, commit: CommittedObjects) -> CommittedObjects:
        """Replaces the objects of an item that was shredded before, and returns the objects that are still to be registered.

        An item that is shredded again has the same rows in other objects; registering these as well would merge the rows twice.
        If the row counts differ, the first objects stay. They also stay if their rows were settled, because merged objects
        contain them. A partition that was set aside is retried, because its missing object now exists again.
        """
        left: dict[PartitionName, tuple[SmallObject, ...]] = {}
        for (table, day), objects in commit.objects.items():
            rows = list(self._pages(rows_prefix(SMALL, table, day)))
            found = ((row, from_row(Batch, row)) for row in rows)
            mine = [(row, batch) for row, batch in found if batch.item == commit.item and batch.commit < commit.number]
            if not mine:  # checked in this order, because a batch may be settled in between
                digest = digest_of(commit.item)
                if not any(digest in settled.items for settled in self.settled(table, day)):
                    left[table, day] = objects
            elif [one.rows for _, batch in mine for one in batch.objects] == [one.rows for one in objects]:
                self._swap(mine, objects)
                partition = self.partition(table, day)
                if partition and partition.set_aside:
                    self.retry(table, day)
        return dataclasses.replace(commit, objects=left)

    def _swap(self, batches: Sequence[tuple[Row, Batch]], objects: Sequence[SmallObject]) -> None:
        replacements = iter(objects)
        for row, batch in batches:
            swapped = tuple(dataclasses.replace(next(replacements), id=one.id) for one in batch.objects)
            changed = transitions.put_batch(dataclasses.replace(batch, objects=swapped))
            with contextlib.suppress(ConditionFailed):  # another worker has registered the commit
                self.store.transact(self.dataset, [dataclasses.replace(changed, expected=row.version)], str(uuid4()))

    def register(self, commit: CommittedObjects, rules: Rules) -> Registration:
        """Registers the objects of the next commit with their partitions, totals and jobs; the cursor moves last.

        It is idempotent and may run concurrently: every object is registered once. Raises EarlierCommitMissing if the commit is
        not the next commit.
        """
        at = self.cursor()
        if commit.number <= at:
            return Registration(commit.number, known=True)
        if commit.number != at + 1:
            raise EarlierCommitMissing(f"commit {commit.number}: the last registered commit is {at}; register {at + 1} first")
        now = self.clock()
        tables = {table: self.table(table) for table in {table for table, _ in commit.objects}}
        merged = {table for table, found in tables.items() if found and found.enabled}
        passed_over = outside = 0
        accepted: dict[PartitionName, tuple[SmallObject, ...]] = {}
        for (table, day), objects in commit.objects.items():
            if table not in merged:
                passed_over += len(objects)
            elif rules.accepted and not rules.accepted.holds(day, now):
                outside += len(objects)
            else:
                accepted[table, day] = objects
        *chunks, last = _chunks(accepted)
        for chunk in chunks:
            self._retrying(f"commit {commit.number}", lambda chunk=chunk: self._register(commit, chunk, rules, now, last=False))
        self._retrying(f"commit {commit.number}", lambda: self._register(commit, last, rules, now, last=True))
        count = sum(map(len, accepted.values()))
        return Registration(commit.number, count, len(accepted), outside, passed_over)

    def _register(self, commit: CommittedObjects, chunk: Sequence[_Piece], rules: Rules, now: datetime, last: bool) -> None:
        row = self.store.get(self.dataset, CURSOR)
        version = row.version if row else ABSENT
        if row and unmarked(row.data["commit"]) >= commit.number:
            return
        batches: list[Write] = []
        others: list[Write] = []
        for key, pieces in _by_table(chunk).items():
            table = self.table(key)
            if table is None:
                continue  # dropped in the meantime
            others.append(self._widened(table, commit))
            for piece in pieces:
                stored = self.partition(key, piece.date)
                before = stored or Partition(key, piece.date, now)
                new = [one for one in piece.objects if one.id > before.newest]
                if new:
                    after, added = transitions.register(before, table, commit, new, rules, now)
                    batches += map(transitions.put_batch, added)
                    others += transitions.writes(stored, after)
        if last:
            self._transact([transitions.put_cursor(commit.number, version), *batches, *others])
        elif batches:
            self._transact([*batches, *others, Check(CURSOR, version)])

    def _widened(self, table: MergedTable, commit: CommittedObjects) -> Write:
        columns = widened_columns(table.columns, commit.columns.get(table.key, ()))
        if columns == table.columns:
            return transitions.check_table(table)
        return transitions.put_table(dataclasses.replace(table, columns=columns))

    # The queue

    def claim(self, lease: Lease, now: datetime, limit: int, places: Collection[PartitionName] | None = None) -> list[Claimed]:
        """Claims at most `limit` due jobs under a worker's lease, earliest first. `places`: limits it to these partitions.

        A job is claimed by one worker, and a partition has at most one running job. Raises LeaseLost. Raises OutcomeUnknown if
        a response was lost and the store could not be read afterward: give the lease back, and the job becomes due again.
        """
        if lease.dataset != self.dataset or lease.application != MERGE:
            raise Refused(
                f"the lease is for {lease.application.key} of dataset {lease.dataset}: acquire a lease for {MERGE.key} of"
                f" dataset {self.dataset}"
            )
        claimed: list[Claimed] = []
        for due in self.due(now):
            if places is None or (due.table, due.date) in places:
                found = self._retrying(f"{due.table} of {due.date}", lambda due=due: self._claim(lease, due, now))
                claimed += [found] if found else []
            if len(claimed) >= limit:
                break
        return claimed

    def _claim(self, lease: Lease, due: Due, now: datetime) -> Claimed | None:
        partition = self.partition(due.table, due.date)
        if partition is None or partition.due != due:
            return None
        job, after = transitions.claimed(partition, self.owner, self.run_id, lease.feed, lease.token, now)
        own = transitions.put_running(job)
        mark = str(uuid4())
        try:
            self._transact([own, *transitions.writes(partition, after)], mark, lease)
        except (ConditionFailed, OutcomeUnknown):
            row = self.store.get(self.dataset, own.sort)
            if row is None or row.data[MARK] != mark:
                raise
        return Claimed(job, dataclasses.replace(after, version=partition.version + 1))

    def requeue(self, now: datetime) -> list[FinishedJob]:
        """Requeues the jobs whose worker is dead, that is, lost its lease or let it expire. Returns their log entries.

        Each job is pending again at its schedule time, or at that of the pending job if that is earlier. It is set aside after
        `max_attempts`.
        """
        taken: list[FinishedJob] = []
        for job in self.abandoned(now):
            log = self._retrying(name(job), lambda job=job: self._requeue(job, now))
            taken += [log] if log else []
        return taken

    def abandoned(self, now: datetime) -> list[RunningJob]:
        """The running jobs whose worker is dead."""
        running = self.running()
        leases = {slot: self.lease(slot) for slot in {job.slot for job in running}}
        return [job for job in running if _is_dead(job, leases[job.slot], now)]

    def _requeue(self, job: RunningJob, now: datetime) -> FinishedJob | None:
        partition, lease = self.partition(job.table, job.date), self.lease(job.slot)
        if partition is None or partition.running != job.id or not _is_dead(job, lease, now):
            return None
        error = f"{job.owner} did not finish: its lease of slot {job.slot} (token {job.token}) ended"
        log = transitions.finished(job, Outcome.DIED, now, error=error)
        after = transitions.died(partition, job, error, self.max_attempts, now)
        check = Check(lease_key(MERGE, job.slot), lease.version if lease else ABSENT)
        self._transact([*transitions.ended(job, log, partition, after), check])
        return log

    # The end of a job

    def commit(
        self, job: RunningJob, merged: Sequence[Range], leftover: Leftover | None = None, *, bytes_in: int
    ) -> FinishedJob:
        """Ends a job successfully in one transaction: adds its merged objects to the chain and sets the version to publish.

        `merged`: 1 to MAX_RANGES ranges, in order, that continue the chain as of the claim; the first may replace the last
        range of the chain. Their creation and update times are set here. `bytes_in`: bytes of the small objects in them.
        `leftover`: the schedule if more must be merged. Raises JobLost, ChainChanged or CountsDiffer, and writes nothing then.
        """
        if not 0 < len(merged) <= MAX_RANGES:
            raise ValueError(
                f"{name(job)}: a commit has 1 to {MAX_RANGES} ranges, not {len(merged)}: leave the others to the next job"
            )
        now = self.clock()
        bytes_out = sum(one.bytes for one in merged)
        replaced: list[Range] = []

        def extend(partition: Partition) -> tuple[Partition, list[Write]]:
            if partition.generation != job.generation:
                raise ChainChanged(f"{name(job)}: its merged objects were rewritten after the claim; plan again")
            tail = self.tail(partition) if transitions.extends(partition, merged) else None
            replaced[:] = [tail] if tail else []
            after = transitions.merged(partition, tail, merged, bytes_in)
            after = transitions.pending_by(after, leftover.schedule_time) if leftover else after
            return after, list(transitions.put_ranges(merged, tail, now))

        ranges = tuple((one.lower, one.upper) for one in merged)
        log = transitions.finished(
            job,
            Outcome.MERGED,
            now,
            ranges=ranges,
            rows=sum(one.rows for one in merged),
            bytes_in=bytes_in,
            bytes_out=bytes_out,
        )
        ended = self._end(job, log, extend)
        self._learn(job.table, bytes_in, bytes_out - sum(one.bytes for one in replaced))
        return ended

    def finish(self, job: RunningJob, outcome: Outcome = Outcome.NOTHING, leftover: Leftover | None = None) -> FinishedJob:
        """Ends a job that had nothing to merge. Ranges and versions stay unchanged. Raises JobLost."""

        def end(partition: Partition) -> tuple[Partition, list[Write]]:
            after = transitions.pending_by(partition, leftover.schedule_time, leftover.attempts) if leftover else partition
            return after, []

        return self._end(job, transitions.finished(job, outcome, self.clock()), end)

    def give_back(self, job: RunningJob) -> FinishedJob:
        """Ends a job without an attempt: it is pending again, and no attempt is counted. Raises JobLost."""
        return self.finish(job, Outcome.GIVEN_BACK, Leftover(job.schedule_time, job.attempts))

    def fail(self, job: RunningJob, error: str, permanent: bool) -> FinishedJob:
        """Ends a failed job: it is retried after a growing pause, or set aside if `permanent` or after `max_attempts`.

        Raises JobLost.
        """
        now = self.clock()

        def end(partition: Partition) -> tuple[Partition, list[Write]]:
            return transitions.failed(partition, job, error, permanent, self.max_attempts, now), []

        return self._end(job, transitions.finished(job, Outcome.FAILED, now, error=error), end)

    def _end(
        self, job: RunningJob, log: FinishedJob, change: Callable[[Partition], tuple[Partition, list[Write]]]
    ) -> FinishedJob:
        """Ends a job if the worker still owns it. Log rows are written once, so that the row identifies an own write."""
        mark = str(uuid4())

        def end() -> FinishedJob:
            partition = self.partition(job.table, job.date)
            row = self.store.get(self.dataset, running_key(job.table, job.date, job.id))
            if partition is None or row is None:
                logged = self.store.get(self.dataset, log_key(log))
                if logged and logged.data[MARK] == mark:
                    return log
                raise JobLost(
                    f"{name(job)}: {job.owner} no longer owns job {job.id}: it was requeued, or the table was dropped"
                )
            after, more = change(partition)
            held = dataclasses.replace(job, version=row.version)
            self._transact([*transitions.ended(held, log, partition, after), *more], mark)
            return log

        return self._retrying(name(job), end)

    def _learn(self, key: str, bytes_in: int, bytes_out: int) -> None:
        """Updates the table's ratio. It is only an estimate, so a concurrent write of the table wins."""
        table = self.table(key)
        if table is None or bytes_in <= 0 or bytes_out <= 0:
            return
        wiser = transitions.learnt(table, bytes_in, bytes_out)
        if abs(wiser.ratio - table.ratio) < 0.005:
            return
        try:
            self._transact([transitions.put_table(wiser)])
        except (ConditionFailed, OutcomeUnknown):
            return

    # Operators

    def retry(self, table: str, day: date) -> Partition:
        """Makes a set-aside partition due for merging now. Raises Refused if it is not set aside."""
        partition = self._require_partition(table, day)
        if partition.set_aside is None:
            raise Refused(f"{name(partition)} is not set aside: there is nothing to retry")
        now = self.clock()
        return self._change(partition, lambda found: transitions.retried(found, now) if found.set_aside else found)

    def hasten(self, table: str, day: date, now: datetime) -> Partition:
        """Makes the unmerged objects of a partition due now, if there are any. Raises Refused if there is no such partition."""

        def hasten(partition: Partition) -> Partition:
            waits = partition.job or partition.upper < partition.newest
            return transitions.pending_by(partition, now) if waits else partition

        return self._change(self._require_partition(table, day), hasten)

    def rebuild(self, partition: Partition, ranges: Sequence[Range], lease: Lease | None = None) -> Partition:
        """Replaces merged objects by rewritten objects with the same bounds. Published versions stay unchanged.

        It is conditional on the partition's generation as read, and on the `lease` if one is given. A job in progress is
        refused when it commits. Raises ChainChanged, CountsDiffer or LeaseLost, and ValueError for more than MAX_RANGES ranges.
        """
        if not 0 < len(ranges) <= MAX_RANGES:
            raise ValueError(f"{name(partition)}: 1 to {MAX_RANGES} ranges can be replaced together, not {len(ranges)}")
        now = self.clock()

        def replace() -> Partition:
            found = self._require_partition(partition.table, partition.date)
            stored = {one.lower: one for one in self.ranges(partition.table, partition.date)}
            if all(stored.get(one.lower) and stored[one.lower].uri == one.uri for one in ranges):
                return found
            if found.generation != partition.generation:
                raise ChainChanged(
                    f"{name(partition)}: its merged objects changed since they were read; read and rebuild again"
                )
            after = transitions.rebuilt(found, list(stored.values()), ranges)
            puts = [put for one in ranges for put in transitions.put_ranges([one], stored[one.lower], now)]
            check = transitions.check_table(self._require_table(found.table))
            self._transact([*transitions.writes(found, after), *puts, check], lease=lease)
            return dataclasses.replace(after, version=found.version + 1)

        return self._retrying(name(partition), replace)

    # Close, switch, publication

    def close(self, partition: Partition, now: datetime, grace: timedelta = timedelta(), hasten: bool = True) -> Partition:
        """Closes a partition if its day and `grace` are over in its table's zone, and returns it. Later objects are delayed.

        A partition without an object, or of a disabled table, stays open. `hasten`: True to make unmerged objects due now.
        """
        table = self._require_table(partition.table)
        return self._change(partition, lambda found: transitions.closed(found, table, now, grace, hasten))

    def switch(self, partition: Partition) -> Partition:
        """Switches a closed partition to merged objects if all its live objects are merged, and returns it."""
        return self._change(partition, transitions.switched)

    def published(self, partition: Partition, generation: int, newest: int, version: Version | None = None) -> Partition:
        """Records what readers of a partition see: the generation of merged objects (0 for live objects) and the newest object.

        `version`: the published merged version with its files, written in the same transaction. The write is conditional on
        what was published when the partition was read, so that what readers see never goes back. Raises Overtaken, with the
        partition, if another publisher recorded something since, and Refused if the version does not exist.
        """

        def record(found: Partition) -> Partition:
            return transitions.published(found, partition, generation, newest, version)

        more = [transitions.put_version(version)] if version else []
        return self._change(self._require_partition(partition.table, partition.date), record, more)

    def _require_partition(self, table: str, day: date) -> Partition:
        found = self.partition(table, day)
        if found is None:
            raise Refused(f"{table} of {day}: there is no such partition; its table was dropped, or no object has arrived")
        return found

    # Writing

    def _change(self, partition: Partition, change: Callable[[Partition], Partition], more: Sequence[Write] = ()) -> Partition:
        """Changes a partition, unless its table is dropped. The first try uses the given partition: it is usually current."""
        latest: list[Partition] = [partition]

        def attempt() -> Partition:
            before = latest.pop() if latest else self._require_partition(partition.table, partition.date)
            after = change(before)
            if after == before:
                return before
            check = transitions.check_table(self._require_table(partition.table))
            self._transact([*transitions.writes(before, after), *more, check])
            return dataclasses.replace(after, version=before.version + 1)

        return self._retrying(name(partition), attempt)

    def _transact(self, writes: Sequence[Write], mark: str | None = None, lease: Lease | None = None) -> None:
        """Commits writes, of which the first is a Put. If the response is lost, its row shows whether the write succeeded.

        With a lease, the lease's row shows it.
        """
        marked = _marked(writes, mark or str(uuid4()))
        if lease:
            lease.transact(marked)
        else:
            transact_once(self.store, self.dataset, marked, MARK)

    def _retrying(self, what: str, attempt: Callable[[], Result]) -> Result:
        """Repeats an attempt after concurrent writes and after unclear responses. The next attempt reads the outcome."""
        lost = (ConditionFailed, OutcomeUnknown)
        return optimistically(
            attempt,
            lambda: Refused(
                f"{what}: other processes changed it during {TRIES} attempts, or a related row is inconsistent; try again"
            ),
            tries=TRIES,
            again_on=lost,
            longest_pause_s=LONGEST_PAUSE_S,
        )


def _marked(writes: Sequence[Write], mark: str) -> list[Write]:
    return [
        dataclasses.replace(write, data={**write.data, MARK: mark}) if isinstance(write, Put) else write for write in writes
    ]


def _is_dead(job: RunningJob, lease: LeaseState | None, now: datetime) -> bool:
    """True if the worker of a job lost its lease or let it expire. Before writing, the lease's row must be checked as well."""
    return lease is None or lease.token != job.token or now > lease.expires_at


def _by_table(chunk: Iterable[_Piece]) -> dict[str, list[_Piece]]:
    found: dict[str, list[_Piece]] = {}
    for piece in chunk:
        found.setdefault(piece.table, []).append(piece)
    return found


def _chunks(objects: dict[PartitionName, tuple[SmallObject, ...]]) -> list[list[_Piece]]:
    """Divides the objects into at least one transaction, within the store's limits, each with a partition at most once."""
    chunks: list[list[_Piece]] = [[]]
    for (table, day), found in objects.items():
        for at in range(0, len(found), OBJECTS_AT_ONCE):
            piece = _Piece(table, day, found[at : at + OBJECTS_AT_ONCE])
            chunk = [*chunks[-1], piece]
            full = sum(one.writes for one in chunk) + 1 > MAX_WRITES or sum(len(one.objects) for one in chunk) > OBJECTS_AT_ONCE
            if full:
                chunks.append([piece])
            else:
                chunks[-1] = chunk
    return chunks


def _check(settings: TableSettings) -> None:
    """Raises InvalidKey or ValueError for invalid settings."""
    check_key_text("table", settings.key)
    if settings.interval < 0 or settings.target_bytes <= 0:
        raise ValueError(f"table {settings.name}: interval must be 0 s or more, target_bytes more than 0")
    try:
        ZoneInfo(settings.zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(
            f"table {settings.name}: {settings.zone!r} is not a time zone; give an IANA name such as Europe/Berlin"
        ) from error
