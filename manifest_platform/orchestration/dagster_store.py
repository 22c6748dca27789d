"""Pruning of Dagster's own store: removes old runs and events that no page of Dagster needs.

Dagster shows a partition as materialized as long as an event says so, and deletes a run's events with the run. A run therefore
stays while it made the newest state of an asset, or of a partition that Dagster still has. It may be removed once its
partitions have left Dagster (`dagster.partitions` in the configuration). A run that failed on a partition stays until another
run materializes that partition.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import dagster as dg
import sqlalchemy as db
from dagster._core.instance import RUNLESS_RUN_ID
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, AssetEventTagsTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG, RUN_KEY_TAG

from manifest_platform.orchestration.wiring import Wiring, is_about

FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
MATERIALIZED = dg.DagsterEventType.ASSET_MATERIALIZATION
RUNLESS = RUNLESS_RUN_ID
"""The pseudo run id of events that sensors report. Deleting a run never deletes these events."""
AT_ONCE = 500


@dataclass(frozen=True)
class Pruned:
    """The rows that were removed from Dagster's store, or would be in a dry run.

    `runs`: runs with their events. `events`: events without a run. `evaluations`: evaluations of checks. `kept`: runs that are
    old enough, but that Dagster's pages still need.
    """

    runs: int = 0
    events: int = 0
    evaluations: int = 0
    kept: int = 0


def prune(
    instance: dg.DagsterInstance,
    before: datetime,
    partition_sets: Mapping[dg.AssetKey, str],
    label: str | None = None,
    dry_run: bool = False,
    wirings: Mapping[str, Wiring] | None = None,
) -> Pruned:
    """Removes rows that are older than a time and that Dagster's pages do not need. Idempotent, and safe to interrupt.

    `partition_sets`: the dynamic partition set of each asset, by its key; every partition of other assets counts as shown.
    `label`: limits the removal to runs of this code location's repository. Runs with a run key stay, because a sensor must
    never request them again. `wirings`: the datasets whose runs and events may be removed, if the code location has other
    datasets too; None for all.
    """
    shown = _Shown(instance, partition_sets)
    needed = shown.runs(before)
    old = list(_old_runs(instance, before, label, wirings))
    if wirings is not None:
        shown.keys = [key for key in shown.keys if key in partition_sets]
    for run_id in () if dry_run else (run_id for run_id in old if run_id not in needed):
        _remove_run(instance, run_id)
    events, evaluations = _prune_rows(instance, before, shown, dry_run, wirings is None)
    gone = sum(run_id not in needed for run_id in old)
    return Pruned(gone, events, evaluations, len(old) - gone)


class _Shown:
    """The assets and partitions that Dagster shows, and the events and runs that they need."""

    def __init__(self, instance: dg.DagsterInstance, partition_sets: Mapping[dg.AssetKey, str]):
        self.instance, self.keys = instance, instance.all_asset_keys()
        there = {name: set(instance.get_dynamic_partitions(name)) for name in set(partition_sets.values())}
        self._there = {key: there[name] for key, name in partition_sets.items()}

    def has(self, key: dg.AssetKey, partition: str | None) -> bool:
        """True if Dagster has a partition of an asset."""
        return key not in self._there or partition is None or partition in self._there[key]

    def newest(self, key: dg.AssetKey) -> dict[str, int]:
        """Returns the id of the newest materialization event of each partition of an asset."""
        found = self.instance.get_latest_storage_id_by_partition(key, MATERIALIZED)
        return {partition: id_ for partition, id_ in found.items() if self.has(key, partition)}

    def runs(self, before: datetime) -> set[str]:
        """Returns the ids of the runs older than a time that must stay."""
        needed: set[str] = set()
        storage = self.instance.event_log_storage
        for key in self.keys:
            if last := self.instance.get_latest_materialization_event(key):
                needed.add(last.run_id)
            for ids in _pieces(self.newest(key).values()):
                wanted = dg.AssetRecordsFilter(key, before_timestamp=before.timestamp(), storage_ids=ids)
                needed |= {found.run_id for found in self.instance.fetch_materializations(wanted, limit=AT_ONCE).records}
            failed = storage.get_latest_asset_partition_materialization_attempts_without_materializations(key)
            needed |= {run_id for partition, (run_id, _) in failed.items() if self.has(key, partition)}
        return needed


# Runs


def _old_runs(
    instance: dg.DagsterInstance, before: datetime, label: str | None, wirings: Mapping[str, Wiring] | None
) -> Iterator[str]:
    """Yields the ids of finished runs that were not updated since a time, newest first."""
    tags = {REPOSITORY_LABEL_TAG: label} if label else {}
    wanted = dg.RunsFilter(statuses=FINISHED, updated_before=before, tags=tags)
    cursor = None
    while found := instance.get_runs(wanted, cursor=cursor, limit=AT_ONCE):
        ours = (run for run in found if wirings is None or is_about(run, wirings))
        yield from (run.run_id for run in ours if RUN_KEY_TAG not in run.tags)
        cursor = found[-1].run_id


def _remove_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """Removes a run. Its row is removed last, so that an interrupted removal is found and repeated."""
    logs = instance.compute_log_manager
    prefix = logs.build_log_key_for_run(run_id, "")[:-1]
    logs.delete_logs(prefix=prefix)
    storage = instance.event_log_storage
    storage.delete_events(run_id)
    instance.delete_run(run_id)
    if storage.is_run_sharded:  # a file for each run
        shard = storage.path_for_shard(run_id)  # ty: ignore[missing-attribute]
        for file in (f"{shard}-wal", f"{shard}-shm", shard):
            Path(file).unlink(missing_ok=True)
        with suppress(OSError):
            os.rmdir(os.path.join(instance.storage_directory(), run_id))


# Events of no run, and evaluations of checks


def _prune_rows(
    instance: dg.DagsterInstance, before: datetime, shown: _Shown, dry_run: bool, everything: bool
) -> tuple[int, int]:
    """Removes old events without a run and old check evaluations, but never the newest. Needs a store that is SQL."""
    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        return 0, 0
    events = [id_ for key in shown.keys for id_ in _old_events(storage, key, before, shown)]
    events += _old_events_of_no_asset(storage, before) if everything else []
    evaluations = list(_old_evaluations(storage, before, None if everything else shown.keys))
    if not dry_run:
        _delete(storage, AssetEventTagsTable, AssetEventTagsTable.c.event_id, events)
        _delete(storage, SqlEventLogStorageTable, SqlEventLogStorageTable.c.id, events)
        _delete(storage, AssetCheckExecutionsTable, AssetCheckExecutionsTable.c.id, evaluations)
        if everything and storage.is_run_sharded:  # a copy of the events without a run is in a file that nothing reads
            old = SqlEventLogStorageTable.c.timestamp < _stored(before)
            with storage.run_connection(RUNLESS) as connection:
                connection.execute(SqlEventLogStorageTable.delete().where(old))
    return len(events), len(evaluations)


def _stored(time: datetime) -> datetime:
    """Returns a time as the store's columns hold it: UTC without a time zone."""
    return time.astimezone(UTC).replace(tzinfo=None)


def _old_events(storage: SqlEventLogStorage, key: dg.AssetKey, before: datetime, shown: _Shown) -> Iterator[int]:
    table = SqlEventLogStorageTable.c
    newest = (
        db.select(db.func.max(table.id))
        .where(table.asset_key == key.to_string())
        .group_by(table.partition, table.dagster_event_type)
    )
    old = db.select(table.id, table.partition).where(
        table.asset_key == key.to_string(), table.run_id == RUNLESS, table.timestamp < _stored(before)
    )
    with storage.index_connection() as connection:
        kept = {id_ for (id_,) in connection.execute(newest)}
        for id_, partition in connection.execute(old).fetchall():
            if id_ not in kept or not shown.has(key, partition):
                yield id_


def _old_events_of_no_asset(storage: SqlEventLogStorage, before: datetime) -> list[int]:
    """Returns the ids of old events without an asset or a run. Evaluations of checks are in a table of their own."""
    table = SqlEventLogStorageTable.c
    old = db.select(table.id).where(table.asset_key.is_(None), table.run_id == RUNLESS, table.timestamp < _stored(before))
    with storage.index_connection() as connection:
        return [id_ for (id_,) in connection.execute(old).fetchall()]


def _old_evaluations(storage: SqlEventLogStorage, before: datetime, assets: Sequence[dg.AssetKey] | None) -> Iterator[int]:
    table = AssetCheckExecutionsTable.c
    newest = db.select(db.func.max(table.id)).group_by(table.asset_key, table.check_name, table.partition)
    old = db.select(table.id).where(table.create_timestamp < _stored(before), table.id.not_in(newest))
    if assets is not None:
        old = old.where(table.asset_key.in_([key.to_string() for key in assets]))
    with storage.index_connection() as connection:
        yield from (id_ for (id_,) in connection.execute(old).fetchall())


def _delete(storage: SqlEventLogStorage, table: db.Table, column: db.Column, ids: Iterable[int]) -> None:
    """Deletes rows in short transactions, so that concurrent writers do not wait."""
    for some in _pieces(ids):
        with storage.index_connection() as connection:
            connection.execute(table.delete().where(column.in_(some)))


def _pieces(ids: Iterable[int]) -> Iterator[list[int]]:
    left = iter(ids)
    while piece := list(islice(left, AT_ONCE)):
        yield piece
