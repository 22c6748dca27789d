"""Runs that failed, died or were canceled: the sensors report the cause and the items, and end the run's leases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import JobFailureData, RunFailureReason

from manifest_platform.manifest import Application
from manifest_platform.pipeline import LOAD, SHRED
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.orchestration.code_location import CodeLocation, output
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, next_ready, records
from manifest_platform_tests.orchestration.dagster_ward import DagsterWard
from manifest_platform_tests.pipeline.shop import NAME, run_name, run_names
from manifest_platform_tests.sources.veeva.ward.ward import Ward, full, land

FAILED = dg.DagsterEventType.RUN_FAILURE
CANCELED = dg.DagsterEventType.RUN_CANCELED


def dead_run(location: CodeLocation, job: str, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED) -> dg.DagsterRun:
    """Returns a run of a job whose process is gone."""
    definition = location.defs.resolve_job_def(f"{location.dataset}_{job}")
    config = {"ops": {f"{definition.name}_op": {"config": {"reason": "a test"}}}} if "full" in job else {}
    return location.instance.create_run_for_job(definition, run_config=config, status=status, tags=definition.tags)


def tell(
    location: CodeLocation,
    run: dg.DagsterRun,
    kind: dg.DagsterEventType = FAILED,
    message: str = "Run worker process unexpectedly exited",
    reason: RunFailureReason | None = None,
) -> None:
    """Runs the sensor as Dagster does after its monitoring found the failure."""
    sensor = "manifest_failure_sensor" if kind is FAILED else "manifest_cancel_sensor"
    data = JobFailureData(error=None, failure_reason=reason) if reason else None
    event = dg.DagsterEvent(kind.value, run.job_name, message=message, event_specific_data=data)
    context = dg.build_run_status_sensor_context(sensor, event, location.instance, run, resources=location.resources)
    location.defs.resolve_sensor_def(sensor)(context.for_run_failure() if kind is FAILED else context)


def observed(location: CodeLocation, asset: str, partition: str | None = None) -> dict[str, object]:
    """Returns the metadata of the newest observation of an asset or its partition; empty if there is none."""
    partitions = [partition] if partition else None
    records_filter = dg.AssetRecordsFilter(asset_key=location.key(asset), asset_partitions=partitions)
    found = location.instance.fetch_observations(records_filter, limit=1).records
    if not found:
        return {}
    seen = found[0].event_log_entry.asset_observation
    assert seen is not None
    return {name: value.value for name, value in seen.metadata.items()}


def claimed(shop: DagsterShop, run_id: str, application: str, *, expired: bool = False, together: int = 1) -> None:
    """Claims the next items for a run that is then killed. `together`: the number of items that are loaded together."""
    with shop.resources["manifest"].pipeline(NAME, run_id) as pipeline:
        lease = pipeline.manifest.acquire(FEED, application, "a dead worker", timedelta(seconds=0 if expired else 3600))
        if application == LOAD:
            ready = next_ready(pipeline)
            following = pipeline.manifest.following(ready, LOAD, together - 1)
            pipeline.manifest.claim(lease, [ready.item, *following], ready.state)
        else:
            pipeline.manifest.claim(lease, pipeline.manifest.waiting(FEED, SHRED, 10)[0])
        lease._stopped.set()


def test_a_worker_killed_during_a_load_is_reported_with_item_and_attempt(shredded: DagsterShop) -> None:
    run = dead_run(shredded, "drain")
    claimed(shredded, run.run_id, LOAD)
    tell(shredded, run, reason=RunFailureReason.UNEXPECTED_TERMINATION)
    seen = observed(shredded, "warehouse", run_name(0))
    assert (seen["item"], seen["application"], seen["attempt"], seen["run"]) == (run_name(0), LOAD, 1, run.run_id)
    assert seen["cause"] == (
        "its process died without a message (it may have been killed, or out of memory): Run worker process unexpectedly exited"
    )
    assert seen["command"] == f"manifest-platform history {run_name(0)}"
    assert output(shredded.drain())["stop"] == "idle", "its lease need not run out"
    assert shredded.shop.seen.runs == run_names(0, 1, 2, 3, 4)


def test_a_worker_killed_during_a_shred_is_reported_with_every_item_of_its_batch(fresh: DagsterShop) -> None:
    fresh.shop.write(0, 1, 2)
    with fresh.shop.open() as pipeline:
        discover(pipeline)
    run = dead_run(fresh, "drain")
    claimed(fresh, run.run_id, SHRED)
    tell(fresh, run)
    assert [observed(fresh, "shredded", name)["attempt"] for name in run_names(0, 1, 2)] == [1, 1, 1]
    assert observed(fresh, "warehouse", run_name(0)) == {}


def test_a_worker_killed_while_it_loaded_items_together_is_reported_with_each(shredded: DagsterShop) -> None:
    run = dead_run(shredded, "drain")
    claimed(shredded, run.run_id, LOAD, together=3)
    tell(shredded, run)
    assert [observed(shredded, "warehouse", name)["attempt"] for name in run_names(0, 1, 2)] == [1, 1, 1]
    assert observed(shredded, "warehouse", run_name(3)) == {}


def test_each_kind_of_failure_of_a_run_is_reported_with_its_cause(shredded: DagsterShop) -> None:
    run = dead_run(shredded, "drain")
    claimed(shredded, run.run_id, LOAD)
    for kind, reason, words in (
        (FAILED, RunFailureReason.START_TIMEOUT, "its process did not start in time: "),
        (FAILED, RunFailureReason.JOB_INITIALIZATION_FAILURE, "it failed before any step: "),
        (FAILED, RunFailureReason.UNKNOWN, "its process died without a message"),
        (CANCELED, None, "it was canceled"),
    ):
        tell(shredded, run, kind, reason=reason)
        assert str(observed(shredded, "warehouse", run_name(0))["cause"]).startswith(words)


def test_a_failed_step_is_reported_with_its_own_message(shredded: DagsterShop) -> None:
    (shredded.shop.home / "warehouse.duckdb").mkdir()
    failed = shredded.drain()
    assert not failed.success
    (shredded.shop.home / "warehouse.duckdb").rmdir()
    claimed(shredded, failed.run_id, LOAD)
    run = shredded.instance.get_run_by_id(failed.run_id)
    assert run
    tell(shredded, run)
    cause = str(observed(shredded, "warehouse", run_name(0))["cause"])
    assert cause.startswith("its step failed: Nothing was begun. Fix the configuration first")


def test_a_dead_run_of_a_full_load_is_reported_with_snapshot_and_remedy(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    ward = Ward(tmp_path)
    with ward.open() as pipeline:
        land(pipeline, full("0000", {"product__v": {"1": "a"}}))
    dagster = DagsterWard(ward, instance)
    tell(dagster, dead_run(dagster, "full_begin"))
    seen = observed(dagster, f"{pipeline.source.main}/warehouse")
    assert "none is in progress" in str(seen["full_load"])
    assert dagster.begin(item="latest").success
    tell(dagster, dead_run(dagster, "full_begin"))
    seen = observed(dagster, f"{pipeline.source.main}/warehouse")
    assert str(seen["snapshot"]).startswith("full/date=")
    assert "The next drain continues it" in str(seen["full_load"])
    assert seen["command"] == "manifest-platform full cancel"


@pytest.mark.parametrize("kind", [FAILED, CANCELED])
def test_the_leases_of_a_dead_run_end(shredded: DagsterShop, kind: dg.DagsterEventType) -> None:
    run = dead_run(shredded, "drain")
    claimed(shredded, run.run_id, LOAD)
    assert output(shredded.drain())["stop"] == "busy"
    tell(shredded, run, kind)
    assert output(shredded.drain())["stop"] == "idle"
    assert shredded.shop.seen.runs == run_names(0, 1, 2, 3, 4)


def test_leases_and_items_of_other_runs_are_left_alone(shredded: DagsterShop) -> None:
    run = dead_run(shredded, "drain", dg.DagsterRunStatus.FAILURE)
    claimed(shredded, "another-run", LOAD)
    before = records(shredded.shop)
    tell(shredded, run)
    with shredded.shop.open() as pipeline:
        lease = pipeline.manifest.lease(Application(LOAD), FEED)
    assert lease is not None and lease.is_live(datetime.now(UTC))
    assert records(shredded.shop) == before
    assert observed(shredded, "warehouse", run_name(0)) == {}
