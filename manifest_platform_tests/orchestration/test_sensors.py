"""The listing sensor requests a drain when there is work, with growing pauses if drains change nothing."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from manifest_platform.manifest import Failure, FailureKind
from manifest_platform.operations.reconcile import reconcile
from manifest_platform.orchestration import listing
from manifest_platform.orchestration.asking import AFTER_A_DEATH, LONGEST_PAUSE, Asked, asked
from manifest_platform.orchestration.feed_checks import evaluations
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.listing import Remembered, StillAtWork, Turn
from manifest_platform.orchestration.shown import MIRRORED_A_TICK, Shown
from manifest_platform.pipeline import LOAD, SHRED, Stop
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.drain import drain
from manifest_platform.pipeline.work import FOLLOW, Scope, work_waiting
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.manifest.many import grow
from manifest_platform_tests.orchestration.dagster_shop import (
    PARTITIONS,
    DagsterShop,
    break_listing,
    key,
    lose_listing,
    next_ready,
    resolve,
)
from manifest_platform_tests.pipeline.shop import NAME, Shop, drained, keys, run_name, run_names

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _events(result: dg.SensorResult, asset: str) -> list[str | None]:
    """Returns the partitions of an asset that a tick reports."""
    found = [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]
    return [event.partition for event in found if event.asset_key.path == [NAME, asset]]


def _evaluations(result: dg.SensorResult) -> list[dg.AssetCheckEvaluation]:
    return [event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]


def _asked(result: dg.SensorResult) -> Asked:
    """Returns the drain request that a tick's cursor remembers."""
    return Remembered.from_json(result.cursor).asked[f"{NAME}_drain"]


def _run_in(shop: DagsterShop, status: dg.DagsterRunStatus) -> None:
    """Adds a run of the drain job with a status."""
    job = shop.defs.resolve_job_def(f"{NAME}_drain")
    location = GrpcServerCodeLocationOrigin(host="localhost", port=1)  # ty: ignore[abstract-class-instantiation]
    repository = RemoteRepositoryOrigin(location, "__repository__")
    shop.instance.create_run_for_job(job, status=status, remote_job_origin=RemoteJobOrigin(repository, job.name))
    assert [stored.status for stored in shop.instance.get_runs()] == [status]


# Back-off, without Dagster


def test_new_work_is_requested_immediately() -> None:
    asked = Asked().after("load 1", NOW)
    assert Asked().wants("load 1", NOW)
    assert asked.wants("load 2", NOW)
    assert asked.after("load 2", NOW) == Asked(work="load 2", times=1, at=NOW.isoformat())


def test_the_same_work_is_requested_with_growing_pauses() -> None:
    asked, at, pauses = Asked().after("load 1", NOW), NOW, []
    for _ in range(10):
        wait = timedelta()
        while not asked.wants("load 1", at + wait):
            wait += timedelta(seconds=30)
        at += wait
        pauses.append(wait.total_seconds())
        asked = asked.after("load 1", at)
    assert pauses[:6] == [60, 120, 240, 480, 960, 1920]
    assert set(pauses[6:]) == {LONGEST_PAUSE.total_seconds()}


def test_a_long_outage_breaks_no_tick() -> None:
    asked = Asked("shred run=1 again", times=10_000, at=NOW.isoformat())
    assert not asked.wants("shred run=1 again", NOW + LONGEST_PAUSE - timedelta(seconds=1))
    assert asked.wants("shred run=1 again", NOW + LONGEST_PAUSE)


@dg.op
def failing() -> None:
    raise ValueError("no")


@dg.job(executor_def=dg.in_process_executor)
def in_vain() -> None:
    failing()


def test_work_is_requested_soon_after_a_killed_run(instance: dg.DagsterInstance) -> None:
    """Unchanged work says nothing about a run that did not get to do it."""
    cursor = Asked("load 1", times=5, at=NOW.isoformat())
    soon = NOW + AFTER_A_DEATH

    def reason(at: datetime) -> str | None:
        return asked(instance, "in_vain", "load 1", cursor, at)[0]

    in_vain.execute_in_process(instance=instance, raise_on_error=False)
    assert "requested 5 times" in str(reason(soon)), "it said itself why it failed"
    instance.create_run_for_job(in_vain, status=dg.DagsterRunStatus.FAILURE)
    assert "requested 5 times" in str(reason(soon - timedelta(seconds=1))), "not at once: it may be killed each time"
    assert reason(soon) is None


def test_a_cursor_is_read_as_it_was_written() -> None:
    told: dict[str, str | None] = {f"{NAME}/warehouse feed_not_blocked": "The feed is not blocked."}
    shown = {FEED: Shown("2026-01-01T00:15Z#uri", "7", "", 3, "6", "run=1", 9)}
    cursor = Remembered(
        {f"{NAME}_drain": Asked("load 1", 2, NOW.isoformat())},
        told,
        shown,
    )
    assert Remembered.from_json(cursor.to_json()) == cursor
    assert Remembered.from_json(None) == Remembered()


def test_a_cursor_of_an_older_form_is_ignored() -> None:
    old = {"work": "load 1", "times": 3, "at": NOW.isoformat(), "blocked": ""}
    assert Remembered.from_json(json.dumps(old)) == Remembered()


# Discovery and drains


@pytest.mark.stores("sqlite", "dynamodb")
def test_runs_that_land_become_partitions_and_work(fresh: DagsterShop) -> None:
    fresh.shop.write(2, 0, 1)
    result = fresh.tick()
    assert fresh.partitions() == run_names(0, 1, 2), "in the order of their names"
    assert _events(result, "enriched_runs") == run_names(0, 1, 2)
    assert fresh.metadata("enriched_runs", 1)["files"] == 1
    assert len(result.run_requests or []) == 1
    assert _asked(result).work == f"{SHRED} {run_name(0)} 1"


def test_a_run_is_reported_once(fresh: DagsterShop) -> None:
    fresh.shop.write(0)
    first = fresh.tick()
    second = fresh.tick(first.cursor)
    assert _events(second, "enriched_runs") == []
    assert _evaluations(first) and not _evaluations(second)


def test_a_tick_with_nothing_to_do_requests_nothing(fresh: DagsterShop) -> None:
    result = fresh.tick()
    assert not result.run_requests
    assert "nothing to do" in str(result.skip_reason)


def test_a_shredded_run_that_is_ready_is_work(shredded: DagsterShop) -> None:
    result = shredded.tick()
    assert len(result.run_requests or []) == 1
    assert _asked(result).work.startswith(f"{LOAD} {run_name(0)} ")


def test_the_work_of_a_followed_dataset_is_left_to_its_follower(shredded: DagsterShop) -> None:
    with shredded.shop.open() as pipeline:
        with pipeline.manifest.hold(FOLLOW, Scope().place, "follower", timedelta(minutes=1)):
            assert not shredded.tick().run_requests
        assert len(shredded.tick().run_requests or []) == 1


@pytest.mark.parametrize("status", ["QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING"])
def test_no_second_drain_is_requested_while_one_is_unfinished(shredded: DagsterShop, status: str) -> None:
    _run_in(shredded, dg.DagsterRunStatus(status))
    result = shredded.tick()
    assert not result.run_requests
    assert "queued or in progress" in str(result.skip_reason)


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED])
def test_a_finished_drain_does_not_prevent_another(shredded: DagsterShop, status: dg.DagsterRunStatus) -> None:
    _run_in(shredded, status)
    assert len(shredded.tick().run_requests or []) == 1


def test_a_drain_that_changes_nothing_is_not_requested_at_every_tick(shredded: DagsterShop) -> None:
    first = shredded.tick()
    second = shredded.tick(first.cursor)
    assert not second.run_requests
    assert "requested 1 times for the same work" in str(second.skip_reason)
    old = dataclasses.replace(_asked(second), at=(datetime.now(UTC) - timedelta(seconds=61)).isoformat())
    third = shredded.tick(Remembered({f"{NAME}_drain": old}).to_json())
    assert len(third.run_requests or []) == 1
    assert _asked(third).times == 2


def test_a_blocked_feed_is_no_work_until_it_is_resolved(shredded: DagsterShop) -> None:
    first = shredded.tick()
    assert first.run_requests
    break_listing(shredded.shop, 0)
    shredded.drain()
    blocked = shredded.tick(first.cursor)
    assert not blocked.run_requests
    [evaluation] = _evaluations(blocked)
    assert not evaluation.passed
    assert not _evaluations(shredded.tick(blocked.cursor)), "the same block is told of once"
    resolve(shredded.shop, 0)
    after = shredded.tick(blocked.cursor)
    assert len(after.run_requests or []) == 1
    assert [evaluation.passed for evaluation in _evaluations(after)] == [True]


def test_loads_of_the_command_line_are_checked_by_one_run(shredded: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform.orchestration.feed_checks.COUNTED_EVERY", timedelta())
    with shredded.shop.open() as pipeline:
        drained(pipeline)
    asked_for = shredded.tick()
    assert len(asked_for.run_requests or []) == 1
    assert _asked(asked_for).work == f"check {FEED}: 5 as of {pipeline.key(run_name(4)).sort}"
    assert shredded.drain().success
    assert not shredded.tick(asked_for.cursor).run_requests


def test_an_item_that_waits_too_long_is_reported(fresh: DagsterShop) -> None:
    fresh.shop.write(0)
    first = fresh.tick()
    assert "lag" not in [one.check_name for one in _evaluations(first)]
    with fresh.shop.open() as pipeline:
        verdict = pipeline.manifest.next(FEED, LOAD)
        later = datetime.now(UTC) + timedelta(hours=2)
        names = Names(pipeline.config, pipeline.source)
        told = {check.split()[-1]: words for check, words, _ in evaluations(pipeline, names, later, lambda _: verdict, {})}
    assert told["lag"] == "too long"


def test_a_block_met_by_the_command_line_is_reported_by_one_run(shredded: DagsterShop, spark: Any) -> None:
    break_listing(shredded.shop, 0)
    with shredded.shop.open() as pipeline:
        for _ in drain(pipeline, lambda: spark):
            pass
    told = shredded.tick()
    assert len(told.run_requests or []) == 1
    assert _asked(told).work.startswith(f"report the block of {FEED}: {run_name(0)} since ")
    assert not shredded.tick(told.cursor).run_requests, "asked for just now"
    assert not shredded.drain().success
    assert not shredded.tick().run_requests, "whatever the cursor says"
    resolve(shredded.shop, 0)
    assert _asked(shredded.tick()).work.startswith(f"{LOAD} {run_name(0)} ")


def test_an_emptied_warehouse_is_reported_even_without_new_items(shredded: DagsterShop) -> None:
    shredded.drain(max_items=1)
    first = shredded.tick()
    assert first.run_requests, "the next run may be loaded"
    (shredded.shop.home / "warehouse.duckdb").unlink()
    noticed = shredded.tick(first.cursor)
    assert _asked(noticed).work.startswith(f"report the block of {FEED}: "), "one run, which fails"
    [evaluation] = _evaluations(noticed)
    assert not evaluation.passed
    assert "it was emptied or is a different warehouse" in str(evaluation.description)
    assert "manifest-platform warehouse reconcile" in str(evaluation.description)
    assert not shredded.drain().success
    told = shredded.tick(noticed.cursor)
    assert not told.run_requests
    assert "has no load of feed" in str(told.skip_reason), "a tick that said nothing to do looked like a good one"
    with shredded.shop.open() as pipeline:
        list(reconcile(pipeline, "emptied"))
    after = shredded.tick(noticed.cursor)
    assert after.run_requests
    assert [evaluation.passed for evaluation in _evaluations(after)] == [True]


def test_an_outage_stays_the_same_work_after_any_number_of_attempts(fresh: DagsterShop) -> None:
    fresh.shop.write(0)
    with fresh.shop.open() as pipeline:
        discover(pipeline)
        asked = []
        for _ in range(3):
            asked.append(work_waiting(pipeline, datetime.now(UTC)))
            with pipeline.lease(FEED, SHRED) as lease:
                [ready], _ = pipeline.manifest.waiting(FEED, SHRED, 1)
                [claim] = pipeline.manifest.claim(lease, [ready])
                pipeline.manifest.fail(claim, Failure(FailureKind.TRANSIENT, "the cluster is gone"))
        assert asked[0] != asked[1], "the first retry is asked for at once"
        assert asked[1] == asked[2], "and further ones ever more rarely"


def test_items_of_a_live_worker_are_no_work(fresh: DagsterShop) -> None:
    fresh.shop.write(0)
    with fresh.shop.open() as pipeline:
        discover(pipeline)
        with pipeline.lease(FEED, SHRED) as lease:
            [ready], _ = pipeline.manifest.waiting(FEED, SHRED, 1)
            pipeline.manifest.claim(lease, [ready])
            assert work_waiting(pipeline, datetime.now(UTC)) is None
        assert "settle" in str(work_waiting(pipeline, datetime.now(UTC))), "it gave its lease back, and left the item"


def test_items_after_a_failed_shred_are_still_shredded(fresh: DagsterShop) -> None:
    fresh.shop.write(0, corrupt=True)
    first = fresh.tick()
    fresh.drain()
    assert not fresh.tick(first.cursor).run_requests
    fresh.shop.write(1)
    assert len(fresh.tick(first.cursor).run_requests or []) == 1


@pytest.mark.stores("sqlite", "dynamodb")
def test_an_item_of_a_dead_worker_is_work_once_its_lease_expired(shredded: DagsterShop) -> None:
    with shredded.shop.open() as pipeline:
        lease = pipeline.manifest.acquire(FEED, LOAD, "a worker", timedelta(seconds=60))
        ready = next_ready(pipeline)
        pipeline.manifest.claim(lease, [ready.item], ready.state)
        assert not shredded.tick().run_requests
        lease.release()
        result = shredded.tick()
    assert len(result.run_requests or []) == 1
    assert _asked(result).work.startswith(f"settle {run_name(0)}")


# What happens outside Dagster


def test_work_of_the_command_line_is_shown(shredded: DagsterShop) -> None:
    with shredded.shop.open() as pipeline:
        assert drained(pipeline)[1].stop is Stop.IDLE
    result = shredded.tick()
    assert _events(result, "warehouse") == run_names(0, 1, 2, 3, 4)
    assert shredded.materialized("shredded") == shredded.materialized("warehouse") == set(run_names(0, 1, 2, 3, 4))
    assert shredded.metadata("warehouse", 0)["already"] is True
    assert shredded.metadata("warehouse", 0)["events"] == shredded.metadata("shredded", 0)["good"] == 20
    again = shredded.tick(result.cursor)
    assert _events(again, "warehouse") == _events(again, "shredded") == []


def test_tables_created_by_the_command_line_are_shown_with_columns(shredded: DagsterShop) -> None:
    with shredded.shop.open() as pipeline:
        drained(pipeline)
    lose_listing(shredded.shop, 4)
    result = shredded.tick()
    tables = {event.asset_key.path[-1] for event in _materialized(result) if _is_table(event.asset_key)}
    assert tables == {name for name, rows in shredded.shop.seen.rows.items() if rows}
    [event] = [event for event in _materialized(result) if event.asset_key == key("warehouse/events")]
    assert event.metadata["rows_loaded"].value == 100
    schema = event.metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchemaMetadataValue)
    assert "event_id" in [column.name for column in schema.schema.columns]
    again = shredded.tick(result.cursor)
    assert not [event for event in _materialized(again) if _is_table(event.asset_key)]


def _is_table(asset: dg.AssetKey) -> bool:
    return asset.path[:-1] == [NAME, "warehouse"]


def _materialized(result: dg.SensorResult) -> list[dg.AssetMaterialization]:
    return [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]


def test_work_of_dagster_is_not_shown_twice(shredded: DagsterShop) -> None:
    shredded.tick()
    shredded.drain()
    result = shredded.tick()
    assert _events(result, "warehouse") == []


def test_missing_shredded_output_stops_no_tick(shredded: DagsterShop) -> None:
    with shredded.shop.open() as pipeline:
        drained(pipeline)
    lose_listing(shredded.shop, 0)
    shredded.tick()
    assert shredded.materialized("shredded") == set(run_names(0, 1, 2, 3, 4))


@pytest.mark.stores("sqlite")
def test_partitions_unknown_to_the_manifest_are_removed(shredded: DagsterShop) -> None:
    shredded.instance.add_dynamic_partitions(PARTITIONS, [run_name(2), "run=2020-01-01-00-00-00"])
    first = shredded.tick()
    assert set(shredded.partitions()) == set(run_names(0, 1, 2, 3, 4))
    assert Remembered.from_json(first.cursor).shown[FEED].partitions == 5
    shredded.instance.add_dynamic_partitions(PARTITIONS, ["run=2020-01-01-00-00-00"])
    assert not shredded.tick(first.cursor).dynamic_partitions_requests, "that costs a list of them: once"


def test_a_replaced_manifest_is_read_again(shredded: DagsterShop) -> None:
    """This happens after a restored backup, or when the next demo starts while Dagster runs."""
    assert shredded.tick().run_requests
    for path in shredded.shop.home.glob("manifest.db*"):
        path.unlink()
    shredded.tick()
    with shredded.shop.open() as pipeline:
        assert [item.key.name for item in pipeline.manifest.items(FEED)], "registered in the new one"


def test_many_runs_are_added_in_portions(fresh: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform.orchestration.shown.ADDED_A_TICK", 2)
    fresh.shop.write(0, 1, 2)
    first = fresh.tick()
    assert _events(first, "enriched_runs") == run_names(0, 1)
    assert _events(fresh.tick(first.cursor), "enriched_runs") == run_names(2)


def test_a_long_history_is_shown_in_portions(shredded: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MIRRORED_A_TICK >= 100
    monkeypatch.setattr("manifest_platform.orchestration.shown.MIRRORED_A_TICK", 4)
    with shredded.shop.open() as pipeline:
        pipeline.manifest.skip(keys(pipeline, 0)[0], "is of no use", LOAD)
        drained(pipeline)
    cursor = None
    for _ in range(3):
        cursor = shredded.tick(cursor).cursor
    assert shredded.materialized("shredded") == set(run_names(0, 1, 2, 3, 4))
    assert shredded.materialized("warehouse") == set(run_names(1, 2, 3, 4)), "a skipped run is in nobody's way"


def test_findings_of_a_listing_are_logged(fresh: DagsterShop, caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    fresh.shop.write(0)
    (fresh.shop.home / "landing" / "run=yesterday").mkdir()
    first = fresh.tick()
    fresh.shop.write(0, events=3)
    second = fresh.tick(first.cursor)
    logged = caplog.text + capfd.readouterr().err
    assert "left alone: run=yesterday: not a run name (run=YYYY-MM-DD-HH-MM-SS)" in logged
    assert f"rewritten after discovery, left alone: {run_name(0)}" in logged
    assert _events(second, "enriched_runs") == []


def test_hundreds_of_runs_cost_few_requests_a_tick(fresh: DagsterShop) -> None:
    fresh.shop.write(*range(300), events=1)
    began = time.monotonic()
    first = fresh.tick()
    assert len(fresh.partitions()) == 300
    store = fresh.sensor_pipeline.manifest.store
    before = store.requests
    fresh.tick(first.cursor)
    assert store.requests - before < 25
    assert time.monotonic() - began < 30, "a tick is cut off after 60 seconds"


@pytest.mark.stores("sqlite", "dynamodb")
def test_at_rest_a_tick_costs_three_requests(shredded: DagsterShop) -> None:
    """The requests read states and leases, the next item to load, and items that wait to be shredded."""
    with shredded.shop.open() as pipeline:
        drained(pipeline)
    cursor, costs = None, []
    for _ in range(5):
        before = shredded.sensor_pipeline.manifest.store.requests if cursor else 0
        cursor = shredded.tick(cursor).cursor
        costs.append(shredded.sensor_pipeline.manifest.store.requests - before)
    assert costs[-2:] == [3, 3], costs


def test_an_idle_tick_costs_few_requests_with_any_backlog(fresh: DagsterShop) -> None:
    """Five thousand failed shreds once cost 5,013 requests a tick."""
    costs = []
    cursor = None
    for begin, end in ((0, 0), (0, 100), (100, 2000)):
        with fresh.shop.open() as pipeline:
            grow(pipeline.manifest, FEED, begin, end, "failed")
        for _ in range(8):  # until everything is shown
            cursor = fresh.tick(cursor).cursor
        store = fresh.sensor_pipeline.manifest.store
        before = store.requests
        cursor = fresh.tick(cursor).cursor
        costs.append(store.requests - before)
    assert max(costs) <= 12, costs
    assert costs[-1] <= costs[1] + 2


def test_old_partitions_leave_dagster_and_never_return(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    shop = DagsterShop(Shop(tmp_path, dagster={"partitions": 4}), instance)
    shop.shop.write(*range(6), events=1)
    cursor = None
    for _ in range(3):
        cursor = shop.tick(cursor).cursor
    assert shop.partitions() == run_names(2, 3, 4, 5)
    shop.shop.write(6)
    for _ in range(3):
        cursor = shop.tick(cursor).cursor
    assert shop.partitions() == run_names(3, 4, 5, 6)
    with shop.shop.open() as pipeline:
        assert len(list(pipeline.manifest.items(FEED))) == 7, "the manifest has the others still"
    assert shop.tick().asset_events is not None
    assert shop.partitions() == run_names(3, 4, 5, 6), "nor by a sensor that forgot all"


def test_an_unreachable_warehouse_fails_no_tick(shredded: DagsterShop) -> None:
    assert shredded.drain(max_items=3).success
    (shredded.shop.home / "warehouse.duckdb").write_text("this is no database")
    assert shredded.tick().run_requests


def test_a_look_that_cost_much_is_followed_by_a_pause(fresh: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.tick()
    fresh.tick()
    monkeypatch.setattr(listing, "SMALL_LOOK_S", 0.0)
    fresh.tick()
    turn = listing._turns[str(fresh.config_file), NAME]
    assert turn.cost > 0
    turn.until = time.monotonic() + 60
    assert "the next is in 60 s" in skipped(fresh)
    turn.until = 0.0
    fresh.tick()
    assert turn.until > time.monotonic()


def skipped(shop: DagsterShop) -> str:
    """Ticks the listing sensor, and returns why it skipped the tick."""
    with dg.build_sensor_context(instance=shop.instance, cursor="kept", resources=shop.resources) as context:
        told = shop.defs.resolve_sensor_def(f"{NAME}_listing_sensor")(context)
    assert isinstance(told, dg.SkipReason)
    return str(told.skip_message)


def test_a_pause_is_short_and_there_is_none_while_a_look_goes_on() -> None:
    turn = Turn()
    for cost, goes_on, pause in ((1.9, False, 0.0), (100.0, False, 10.0), (100.0, True, 0.0)):
        turn.until = 0.0
        assert turn.waits() is None
        turn.end(cost, goes_on)
        assert max(0.0, turn.until - time.monotonic()) == pytest.approx(pause, abs=1)


def test_a_backlog_is_looked_at_without_pauses(fresh: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.shop.write(*range(4), events=1)
    fresh.tick()
    monkeypatch.setattr(listing, "SMALL_LOOK_S", 0.0)
    real = listing._tick

    def ticked(context: Any, pipeline: Any, *more: Any) -> Any:
        result = real(context, pipeline, *more)
        pipeline.sights[FEED].goes_on = True
        return result

    monkeypatch.setattr(listing, "_tick", ticked)
    fresh.tick()
    assert listing._turns[str(fresh.config_file), NAME].until == 0.0


def test_a_tick_does_not_share_the_pipeline_of_one_that_has_not_ended(
    fresh: DagsterShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster gives a tick up after a minute. Its thread still works, and the next tick begins in another."""
    fresh.tick()
    turn, pipeline = listing._turns[str(fresh.config_file), NAME], listing._pipeline(str(fresh.config_file), NAME)
    assert turn.waits() is None, "a tick begins"
    assert re.search(r"the tick before, which began 0 s ago, has not ended", skipped(fresh))
    turn.began -= 400
    with pytest.raises(StillAtWork, match="began 400 s ago has not ended; restart the code location"):
        skipped(fresh)
    assert listing._pipeline(str(fresh.config_file), NAME) is pipeline
    turn.end(0.0, goes_on=False)
    assert fresh.tick().cursor


def test_the_listing_sensor_looks_as_often_as_dagster_can_and_others_rarely(fresh: DagsterShop) -> None:
    seconds = {
        one.name: one.minimum_interval_seconds for one in fresh.defs.sensors or () if isinstance(one, dg.SensorDefinition)
    }
    assert seconds.pop(f"{NAME}_listing_sensor") == 5
    assert set(seconds.values()) == {30}
