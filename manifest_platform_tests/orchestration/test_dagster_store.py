"""Pruning of Dagster's own store, and the state that Dagster still shows, with real stores in memory and on disk."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from manifest_platform.orchestration import dagster_store
from manifest_platform.orchestration.dagster_store import Pruned, prune

SET = "shop_enriched"
KEY, WHOLE = dg.AssetKey(["shop", "warehouse"]), dg.AssetKey(["shop", "warehouse", "events"])
PARTITIONS = dg.DynamicPartitionsDefinition(name=SET)
SETS = {KEY: SET}
NEVER = datetime(2020, 1, 1, tzinfo=UTC)


@dg.asset(key=KEY, partitions_def=PARTITIONS)
def loaded(context: dg.AssetExecutionContext) -> None:
    if context.run.tags.get("fail"):
        raise ValueError("no")


@dg.op(out=dg.Out(dg.Nothing))
def drain_op(context: dg.OpExecutionContext) -> Iterator[Any]:
    for name in context.run.tags.get("names", "").split():
        yield dg.AssetMaterialization(KEY, partition=name)
    yield dg.AssetMaterialization(WHOLE)
    yield dg.Output(None)


@dg.job(executor_def=dg.in_process_executor)
def drain() -> None:
    drain_op()


@dg.op
def nothing() -> None: ...


@dg.job(executor_def=dg.in_process_executor)
def idle() -> None:
    nothing()


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance with a store in files, one for each run."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


def drained(instance: dg.DagsterInstance, *names: str, **tags: str) -> str:
    """A run that materialized partitions that Dagster has."""
    instance.add_dynamic_partitions(SET, list(names))
    return drain.execute_in_process(instance=instance, tags={"names": " ".join(names), **tags}).run_id


def idled(instance: dg.DagsterInstance, **tags: str) -> str:
    return idle.execute_in_process(instance=instance, tags=tags).run_id


def now() -> datetime:
    time.sleep(0.01)
    return datetime.now(UTC)


def runs(instance: dg.DagsterInstance) -> set[str]:
    return {run.run_id for run in instance.get_runs()}


def shown(instance: dg.DagsterInstance) -> tuple[set[str], set[str]]:
    """Returns the partitions that Dagster shows as materialized and as failed, without its cache."""
    instance.event_log_storage.wipe_asset_cached_status(KEY)
    status = get_and_update_asset_status_cache_value(instance, KEY, PARTITIONS, dynamic_partitions_loader=instance)
    assert status
    made = status.deserialize_materialized_partition_subsets(PARTITIONS).get_partition_keys()
    failed = status.deserialize_failed_partition_subsets(PARTITIONS).get_partition_keys()
    return set(made), set(failed)


def test_a_run_is_removed_once_no_shown_partition_needs_it(on_disk: dg.DagsterInstance, tmp_path: Path) -> None:
    instance = on_disk
    empty, first, second = idled(instance), drained(instance, "a", "b"), drained(instance, "c")
    again = drained(instance, "c")
    before = now()
    recent = idled(instance)
    assert prune(instance, before, SETS, dry_run=True) == Pruned(runs=2, kept=2)
    assert len(runs(instance)) == 5
    assert prune(instance, before, SETS) == Pruned(runs=2, kept=2)
    assert runs(instance) == {first, again, recent}
    assert shown(instance) == ({"a", "b", "c"}, set())
    assert not [path for path in tmp_path.rglob("*") if empty in path.name or second in path.name]
    assert prune(instance, before, SETS) == Pruned(kept=2), "a second time there is nothing"
    instance.delete_dynamic_partition(SET, "a")
    assert prune(instance, before, SETS).runs == 0, "b rests on it"
    instance.delete_dynamic_partition(SET, "b")
    assert prune(instance, before, SETS).runs == 1
    assert runs(instance) == {again, recent}
    assert shown(instance)[0] == {"c"}


def test_the_newest_run_of_an_asset_without_partitions_is_kept(instance: dg.DagsterInstance) -> None:
    drained(instance)
    last = drained(instance)
    prune(instance, now(), SETS)
    assert runs(instance) == {last}
    assert instance.get_latest_materialization_event(WHOLE)


def test_every_partition_of_an_asset_that_is_not_ours_counts_as_shown(instance: dg.DagsterInstance) -> None:
    kept = drained(instance, "a")
    drained(instance)
    instance.delete_dynamic_partition(SET, "a")
    prune(instance, now(), {})
    assert kept in runs(instance)


def test_a_partition_that_failed_stays_failed_until_it_is_made(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions(SET, ["a"])
    failed = dg.materialize([loaded], instance=instance, partition_key="a", tags={"fail": "1"}, raise_on_error=False)
    prune(instance, now(), SETS)
    assert failed.run_id in runs(instance)
    assert shown(instance) == (set(), {"a"})
    made = dg.materialize([loaded], instance=instance, partition_key="a")
    prune(instance, now(), SETS)
    assert runs(instance) == {made.run_id}
    assert shown(instance) == ({"a"}, set())


def test_unfinished_runs_and_runs_with_a_run_key_are_kept(instance: dg.DagsterInstance) -> None:
    queued = instance.create_run_for_job(idle)
    keyed = idled(instance, **{"dagster/run_key": "once"})
    idled(instance)
    prune(instance, now(), SETS)
    assert runs(instance) == {queued.run_id, keyed}


def test_runs_of_other_code_locations_are_kept(instance: dg.DagsterInstance) -> None:
    other = idled(instance)
    own = idled(instance, **{".dagster/repository": "__repository__@ours"})
    prune(instance, now(), SETS, label="__repository__@ours")
    assert runs(instance) == {other}
    assert own not in runs(instance)


def test_old_events_without_a_run_are_removed_except_the_newest(on_disk: dg.DagsterInstance) -> None:
    instance = on_disk
    instance.add_dynamic_partitions(SET, ["a", "b"])
    for name in ("a", "a", "b", "gone"):
        instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition=name))
    for passed in (False, False, True):
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(asset_key=KEY, check_name="whole", passed=passed, metadata={})
        )
    before = now()
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition="a"))
    told = prune(instance, before, SETS, dry_run=True)
    assert prune(instance, before, SETS) == told
    assert (told.events, told.evaluations) == (6, 2), "a twice, what has left, and what told of evaluations"
    assert shown(instance)[0] == {"a", "b"}
    assert prune(instance, before, SETS) == Pruned()
    key = dg.AssetCheckKey(KEY, "whole")
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert latest.status.value == "SUCCEEDED"


def test_an_interrupted_removal_is_completed_by_the_next(on_disk: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = on_disk
    old = drained(instance, "gone")
    kept = drained(instance, "a")
    instance.delete_dynamic_partition(SET, "gone")
    monkeypatch.setattr(type(instance), "delete_run", lambda *_: exec("raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        prune(instance, now(), SETS)
    monkeypatch.undo()
    assert runs(instance) == {old, kept}
    assert prune(instance, now(), SETS).runs == 1
    assert runs(instance) == {kept}


def test_nothing_is_removed_if_nothing_is_old(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    drained(instance, "a")
    monkeypatch.setattr(dagster_store, "_remove_run", None)
    assert prune(instance, NEVER, SETS) == Pruned()
    assert prune(instance, datetime.now(UTC) - timedelta(days=1), SETS) == Pruned()
