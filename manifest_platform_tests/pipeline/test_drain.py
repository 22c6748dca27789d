"""A drain from end to end: order, what blocks it, what a person decides, and when it stops."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from manifest_platform import storage
from manifest_platform.demo.events import SCHEMAS
from manifest_platform.manifest import StoreUnavailable
from manifest_platform.operations.reshred import reshred
from manifest_platform.pipeline import (
    LOAD,
    SHRED,
    Budget,
    ItemFailed,
    Loaded,
    Pipeline,
    PutBack,
    Shredded,
    ShreddedAgain,
    ShredStarted,
    Stop,
    batches,
)
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.shredding import listing_of, shred_with
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import Unclear
from manifest_platform_tests.pipeline.shop import (
    EVENTS,
    Shop,
    drained,
    history,
    keys,
    loaded_record,
    run_name,
    run_names,
    watermark,
)

FEW_BAD = {"bad_rows": {"max_count": 1, "max_share": 0.01}}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_drain_shreds_in_batches_and_loads_in_order(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, shred={"batch": 2})
    shop.write(2, 0, 1)
    with shop.open() as pipeline:
        discover(pipeline)
        events, report = drained(pipeline, spark)
        assert [event.items for event in events if isinstance(event, ShredStarted)] == [2, 1]
        assert [event.key.name for event in events if isinstance(event, Shredded)] == run_names(0, 1, 2)
        loaded = [event for event in events if isinstance(event, Loaded)]
        assert [event.key.name for event in loaded] == run_names(0, 1, 2)
        assert [event.rows["events"] for event in loaded] == [EVENTS] * 3
        assert not any(event.late or event.already for event in loaded)
        assert (report.stop, report.shredded, report.loaded, report.failed) == (Stop.IDLE, 3, 3, 0)
        assert report.rows == sum(shop.seen.rows.values())
        assert watermark(pipeline) == keys(pipeline, 2)[0].sort
    assert shop.seen.runs == run_names(0, 1, 2)
    assert shop.doubled_events == []


def test_an_item_costs_few_requests(shop: Shop, spark: Any) -> None:
    """Eight requests from discovery to the warehouse, including the drain's own requests."""
    shop.write(*range(24), events=1)
    with shop.open() as pipeline:
        discover(pipeline)
        _, report = drained(pipeline, spark)
        assert report.loaded == 24
        assert pipeline.manifest.store.requests / 24 <= 8


def test_idle_drain_does_nothing_and_starts_no_spark(shop: Shop) -> None:
    with shop.open() as pipeline:
        discover(pipeline)
        events, report = drained(pipeline)
        assert (events, report.stop, report.loaded) == ([], Stop.IDLE, 0)
        lease = pipeline.manifest.lease(pipeline.manifest.step(FEED, LOAD).application, FEED)
        assert lease is None or lease.token == 0, "nobody took it"
    assert not (shop.home / "warehouse.duckdb").exists()


def test_a_second_drain_does_nothing(shop: Shop, spark: Any) -> None:
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        drained(pipeline)
    before = shop.seen
    with shop.open() as pipeline:
        assert drained(pipeline)[0] == []
    assert shop.seen == before


def test_nothing_passes_a_failed_item_until_somebody_resolves_it(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, shred=FEW_BAD)
    shop.write(0, 2)
    shop.write(1, corrupt=True)
    with shop.open() as pipeline:
        discover(pipeline)
        events, report = drained(pipeline, spark)
        [failed] = [event for event in events if isinstance(event, ItemFailed)]
        assert (failed.key.name, failed.application, failed.failure.kind) == (run_name(1), SHRED, "permanent")
        assert "are bad" in failed.failure.message
        assert (report.stop, report.item, report.failed) == (Stop.BLOCKED, run_name(1), 1)
        assert report.remedy == Remedy(Action.RESOLVE, item=run_name(1))
        assert shop_after(pipeline, shop).runs == run_names(0)

        assert drained(pipeline)[1].stop is Stop.BLOCKED
        pipeline.manifest.resolve(keys(pipeline, 1)[0], "try it again")
        assert drained(pipeline, spark)[1].stop is Stop.BLOCKED, "nothing was mended"
    assert shop.seen.runs == run_names(0)


def shop_after(pipeline: Pipeline, shop: Shop):
    pipeline.warehouse.close()
    return shop.seen


def test_an_item_is_loaded_after_its_cause_is_fixed_and_it_is_resolved(shop: Shop, spark: Any) -> None:
    registry = shop.home / "schemas"
    shop = Shop(shop.home, shred={**FEW_BAD, "schemas": [str(registry)]})
    registry.mkdir()
    shop.write(0, 1)
    with shop.open() as pipeline:
        discover(pipeline)
        assert drained(pipeline, spark)[1].stop is Stop.BLOCKED
    for schema in SCHEMAS.rglob("jsonschema/*"):
        copy = registry / schema.relative_to(SCHEMAS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(schema.read_bytes())
    with shop.open() as pipeline:
        for key in keys(pipeline, 0, 1):
            pipeline.manifest.resolve(key, "schemas published")
        assert drained(pipeline, spark)[1].stop is Stop.IDLE
    assert (shop.seen.runs, shop.seen.rows["events"]) == (run_names(0, 1), 2 * EVENTS)


def test_skipped_item_is_passed_over(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, shred=FEW_BAD)
    shop.write(0, 2)
    shop.write(1, corrupt=True)
    with shop.open() as pipeline:
        discover(pipeline)
        drained(pipeline, spark)
        pipeline.manifest.skip(keys(pipeline, 1)[0], "nobody misses it")
        assert drained(pipeline)[1].stop is Stop.IDLE
        assert pipeline.manifest.state(pipeline.manifest.step(FEED, LOAD).application).feed(FEED).skipped == 1
    assert shop.seen.runs == run_names(0, 2)


def test_late_run_is_appended_and_marked(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 2)
        drained(pipeline, spark)
        shop.write(1)
        assert discover(pipeline).late == (run_name(1),)
        shop.land(pipeline, 3)
        events, report = drained(pipeline, spark)
        assert [(event.key.name, event.late) for event in events if isinstance(event, Loaded)] == [
            (run_name(1), True),
            (run_name(3), False),
        ]
        assert report.stop is Stop.IDLE
        assert loaded_record(pipeline, 1).data["late"]
        assert not loaded_record(pipeline, 3).data["late"]
        assert watermark(pipeline) == keys(pipeline, 3)[0].sort
    assert shop.seen.ledger == [(run_name(0), False), (run_name(2), False), (run_name(1), True), (run_name(3), False)]
    assert shop.seen.applied == "2024-05-14-12-30-00"


def test_a_late_run_is_quarantined_if_the_policy_says_so(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, load={"late": "quarantine"})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 2)
        drained(pipeline, spark)
        shop.write(1)
        assert discover(pipeline).quarantined == (run_name(1),)
        shop.land(pipeline, 3)
        _, report = drained(pipeline, spark)
        assert (report.stop, report.loaded) == (Stop.IDLE, 1)
        survey = pipeline.manifest.survey(FEED, LOAD)
        assert survey.state.feed(FEED).quarantined == 1
    assert shop.seen.runs == run_names(0, 2, 3)


def test_a_drain_stops_at_its_budget_of_items(shop: Shop, spark: Any) -> None:
    shop.shredded(spark, 3)
    with shop.open() as pipeline:
        _, report = drained(pipeline, budget=Budget(items=2))
        assert (report.stop, report.loaded) == (Stop.BUDGET_ITEMS, 2)
        shop.land(pipeline, 3, 4)
        events, report = drained(pipeline, spark, Budget(items=1))
        assert [type(event) for event in events] == [ShredStarted, Shredded, Loaded]
        assert (report.stop, report.shredded, report.loaded) == (Stop.BUDGET_ITEMS, 1, 1)
    assert shop.seen.runs == run_names(0, 1, 2)


def test_a_drain_stops_at_its_budget_of_seconds(shop: Shop, spark: Any) -> None:
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        _, report = drained(pipeline, budget=Budget(seconds=0))
        assert (report.stop, report.loaded) == (Stop.BUDGET_SECONDS, 0)
        assert drained(pipeline, budget=Budget(seconds=600))[1].stop is Stop.IDLE


def test_rewritten_directory_fails_its_item(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 1)
        (shop.directory(0) / "part-00000.tsv").write_text("something else\n")
        events, report = drained(pipeline, spark)
        assert (report.stop, report.item, report.shredded) == (Stop.BLOCKED, run_name(0), 1)
        [failed] = [event for event in events if isinstance(event, ItemFailed)]
        assert failed.failure.kind == "permanent"
        assert f"{run_name(0)} was rewritten after its discovery (1 files, " in failed.failure.message
        assert "1 files, 15 bytes now). If that was on purpose, accept it; else put" in failed.failure.message
        assert report.remedy == Remedy(Action.ACCEPT, item=run_name(0))


def test_vanished_directory_fails_its_item(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline:
        shop.land(pipeline, 0)
        shop.directory(0).rename(shop.home / "elsewhere")
        _, report = drained(pipeline, spark)
        assert (report.stop, report.item) == (Stop.BLOCKED, run_name(0))
        assert "is gone; put it back, or skip it" in report.reason


def test_empty_directory_is_loaded_with_no_rows(shop: Shop, spark: Any) -> None:
    shop.directory(0).mkdir()
    (shop.directory(0) / "_SUCCESS").touch()
    with shop.open() as pipeline:
        shop.land(pipeline, 1)
        events, report = drained(pipeline, spark)
        assert report.stop is Stop.IDLE
        assert [event.row_count > 0 for event in events if isinstance(event, Loaded)] == [False, True]
    assert shop.seen.runs == run_names(0, 1)


def test_incompatible_schema_fails_the_item_before_any_data_moves(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline:
        shop.land(pipeline, 0)
        drained(pipeline, spark)
        table = pipeline.warehouse._tables.qualified("events")
        # as a dataset has it that was loaded with the other setting of shred.names
        pipeline.warehouse._engine.execute(f'ALTER TABLE {table} RENAME COLUMN br_colordepth TO "br.colordepth"')
    before = shop.seen
    with shop.open() as pipeline:
        shop.land(pipeline, 1, 2)
        events, report = drained(pipeline, spark)
        assert (report.stop, report.item, report.loaded) == (Stop.BLOCKED, run_name(1), 0)
        assert "has the column br.colordepth" in report.reason
        [failed] = [event for event in events if isinstance(event, ItemFailed)]
        assert (failed.failure.kind, failed.failure.exception) == ("permanent", "IncompatibleChange")
    assert (shop.seen.rows, shop.seen.ledger, shop.seen.applied) == (before.rows, before.ledger, before.applied)


def test_values_that_a_column_cannot_hold_go_to_a_column_beside_it_and_this_is_told(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, load={"text": "cut"})
    with shop.open() as pipeline:
        shop.land(pipeline, 0)
        drained(pipeline, spark)
        table = pipeline.warehouse._tables.qualified("events")
        pipeline.warehouse._engine.execute(f"ALTER TABLE {table} ALTER COLUMN br_colordepth SET DATA TYPE DATE USING NULL")
    apply, asked = Warehouse.apply, []
    with shop.open() as pipeline, patch.object(Warehouse, "apply", lambda self, load: asked.append(load) or apply(self, load)):
        shop.land(pipeline, 1)
        events, report = drained(pipeline, spark)
        assert (report.stop, report.loaded) == (Stop.IDLE, 1)
        [loaded] = [event for event in events if isinstance(event, Loaded)]
        why = "table events: br_colordepth has a type that the column cannot hold, so it is stored in br_colordepth__string"
        assert why in loaded.told
        assert pipeline.warehouse.columns_of("events")["br_colordepth__string"] == "string"
    assert [load.cuts_texts for load in asked] == [True]


def lose(pipeline: Pipeline, number: int, what: str) -> None:
    """Destroys the output of shredding a run: an `object`, its `content`, or the `listing`."""
    listing = listing_of(pipeline.manifest.item(keys(pipeline, number)[0]))
    file = storage.local_path(listing.uris("events")[0])
    if what == "listing":
        (storage.local_path(listing.objects[0].uri).parents[2] / "listing.json").unlink()
    elif what == "content":
        file.write_bytes(b"x" * file.stat().st_size)
    else:
        file.unlink()


@pytest.mark.parametrize("what", ["object", "content", "listing"])
def test_lost_output_is_made_again_automatically(shop: Shop, spark: Any, what: str) -> None:
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        lose(pipeline, 0, what)
        events, report = drained(pipeline, spark)
        assert (report.stop, report.loaded, report.failed) == (Stop.IDLE, 2, 0)
        [again] = [event for event in events if isinstance(event, ShreddedAgain)]
        assert again.key.name == run_name(0)
        assert f"shred {run_name(0)} again" in again.reason
        assert history(pipeline, 0)[2:] == [
            "shred Processed",
            "load Processing",
            "load Resolved automatic",
            "load New automatic",
            "shred Processing",
            "shred Processed",
            "load Processing",
            "load Processed",
        ]
    assert (shop.seen.runs, shop.seen.rows["events"], shop.doubled_events) == (run_names(0, 1), 2 * EVENTS, [])


def test_an_item_whose_output_is_lost_again_fails_and_waits_for_a_person(shop: Shop, spark: Any) -> None:
    shop.shredded(spark, 1)
    with shop.open() as pipeline:
        lose(pipeline, 0, "object")
        with patch.object(batches, "shred_with", side_effect=lambda *given: shred_and_lose(pipeline, *given)):
            _, report = drained(pipeline, spark)
        assert (report.stop, report.loaded, report.failed) == (Stop.BLOCKED, 0, 1)
        assert report.remedy == Remedy(Action.RESHRED, item=run_name(0))
        reshred(pipeline, keys(pipeline, 0)[0], "the disk is mended")
        _, report = drained(pipeline, spark)
        assert (report.stop, report.loaded) == (Stop.IDLE, 1)
    assert shop.seen.rows["events"] == EVENTS


def shred_and_lose(pipeline: Pipeline, *given: Any) -> list[Any]:
    outcomes = shred_with(*given)
    lose(pipeline, 0, "object")
    return outcomes


def test_an_item_whose_output_and_directory_are_lost_fails_and_names_what_to_restore(shop: Shop, spark: Any) -> None:
    shop.shredded(spark, 1)
    with shop.open() as pipeline:
        lose(pipeline, 0, "object")
        shop.directory(0).rename(shop.home / "elsewhere")
        events, report = drained(pipeline)
        assert (report.stop, report.item, report.loaded) == (Stop.BLOCKED, run_name(0), 0)
        assert report.remedy == Remedy(Action.RESOLVE, item=run_name(0))
        [failed] = events
        assert isinstance(failed, ItemFailed)
        assert (failed.application, failed.failure.kind) == (LOAD, "permanent")
        assert "and its input too" in failed.failure.message
        assert "Restore one of the two from a backup" in failed.failure.message
    assert shop.seen.ledger == []
    assert set(shop.seen.rows.values()) == {0}, "what was inserted before the missing object is rolled back"


class BrokenSpark:
    def range(self, *_numbers: int) -> None:
        raise RuntimeError("the cluster is gone")


def test_a_lost_spark_is_charged_to_no_item(tmp_path: Path, spark: Any) -> None:
    """Without this rule, eight drains during an outage failed a whole backlog."""
    shop = Shop(tmp_path, lease={"max_attempts": 2})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 1, 2, 3)
        for batch in ([0, 1, 2, 3], [0, 1]):
            events, report = drained(pipeline, lambda: BrokenSpark())
            assert [event.key.name for event in events if isinstance(event, PutBack)] == run_names(*batch)
            assert (report.stop, report.failed, report.put_back) == (Stop.UNAVAILABLE, 0, len(batch))
            assert "the cluster is gone" in report.reason
            assert not any(isinstance(event, ItemFailed) for event in events)
        for _ in range(3):
            _, report = drained(pipeline, lambda: BrokenSpark())
            assert (report.stop, report.put_back) == (Stop.UNAVAILABLE, 0), "alone, it is not even claimed"
        attempt = ["shred Processing", "shred Resolved automatic"]
        assert [len(history(pipeline, number)) for number in range(4)] == [5, 5, 3, 3]
        assert history(pipeline, 0) == ["New", *attempt * 2]
        assert drained(pipeline, spark)[1].stop is Stop.IDLE
    assert shop.seen.runs == run_names(0, 1, 2, 3)


def test_an_outage_behind_a_failed_item_is_met_once_in_each_drain(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, shred={"bad_rows": {"max_count": 0, "max_share": 0}})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, corrupt=True)
        assert drained(pipeline, spark)[1].stop is Stop.BLOCKED
        shop.land(pipeline, 1)
        events, report = drained(pipeline, lambda: BrokenSpark())
        assert (report.stop, report.item) == (Stop.BLOCKED, run_name(0))
        assert len([event for event in events if isinstance(event, PutBack)]) == 1


def test_an_item_that_is_skipped_while_spark_starts_is_passed_over(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline, shop.open() as operator:
        first, _ = shop.land(pipeline, 0, 1)

        def slow_start() -> Any:
            if "Skipped" not in str(history(operator, 0)):
                operator.manifest.skip(first, "not wanted")
            return spark

        events, report = drained(pipeline, slow_start)
        assert report.stop is Stop.IDLE
        assert [event.key.name for event in events if isinstance(event, Loaded)] == run_names(1)


def test_an_unreachable_manifest_ends_the_drain_with_its_reason(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_reach(*_arguments: Any, **_named: Any) -> None:
        raise StoreUnavailable("the disk is gone")

    with shop.open() as pipeline:
        monkeypatch.setattr(pipeline.manifest, "next", out_of_reach)
        report = drained(pipeline)[1]
    assert (report.stop, report.reason) == (Stop.UNAVAILABLE, "the disk is gone")


def test_an_unreachable_listing_costs_no_attempt(shop: Shop, spark: Any) -> None:
    shop.shredded(spark, 1)
    listing = next(shop.home.rglob("listing.json"))
    kept = listing.read_bytes()
    listing.unlink()
    listing.mkdir()
    with shop.open() as pipeline:
        report = drained(pipeline)[1]
        assert report.stop is Stop.UNAVAILABLE
        assert "listing" in report.reason
        assert history(pipeline, 0)[-1] == "shred Processed", "nothing was claimed"
        listing.rmdir()
        listing.write_bytes(kept)
        assert drained(pipeline)[1].loaded == 1


def test_a_spark_that_does_not_start_causes_no_claim(shop: Shop) -> None:
    def no_java() -> None:
        raise RuntimeError("no java")

    with shop.open() as pipeline:
        shop.land(pipeline, 0)
        with pytest.raises(RuntimeError, match="no java"):
            drained(pipeline, no_java)
        assert history(pipeline, 0) == ["New"]
        lease = pipeline.manifest.lease(pipeline.manifest.step(FEED, SHRED).application, FEED)
        assert lease is not None
        assert not lease.is_live(pipeline.manifest._clock())


def test_a_restored_manifest_doubles_nothing(shop: Shop, spark: Any) -> None:
    """The warehouse has a newer token than the new manifest's lease, and knows what it has applied."""
    shop.shredded(spark, 3)
    with shop.open() as pipeline:
        for _ in range(3):
            drained(pipeline, budget=Budget(items=1))
    before = shop.seen
    assert before.token == 3
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    with shop.open() as pipeline:
        shop.land(pipeline, 3)
        events, report = drained(pipeline, spark)
        assert (report.stop, report.failed) == (Stop.IDLE, 0)
        loaded = [event for event in events if isinstance(event, Loaded)]
        assert [(event.key.name, event.already) for event in loaded] == [
            *((name, True) for name in run_names(0, 1, 2)),
            (run_name(3), False),
        ]
        assert [loaded_record(pipeline, number).data["rows"]["events"] for number in range(4)] == [EVENTS] * 4
        assert watermark(pipeline) == keys(pipeline, 3)[0].sort
    seen = shop.seen
    assert seen.runs == run_names(0, 1, 2, 3)
    assert seen.rows["events"] == 4 * EVENTS
    assert seen.token > before.token
    assert shop.doubled_events == []


def test_an_item_that_a_restored_manifest_takes_for_next_is_appended_late(shop: Shop, spark: Any) -> None:
    """Only the warehouse knows that the run is late."""
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        drained(pipeline)
    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    with shop.open() as pipeline:
        shop.land(pipeline, -1)
        _, report = drained(pipeline, spark)
        assert (report.stop, report.failed, report.loaded) == (Stop.IDLE, 1, 3)
    assert shop.seen.ledger == [(run_name(0), False), (run_name(1), False), (run_name(-1), True)]


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_without_an_answer_is_settled_by_the_ledger(
    shop: Shop, spark: Any, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    shop.shredded(spark, 2)
    commit, loads = DuckDB.commit, []

    def unclear_once(self: DuckDB) -> None:
        if pending := loads.pop() if loads else None:
            if committed:
                commit(self)
            self.close()
            raise Unclear(f"no answer to {pending}")
        commit(self)

    with shop.open() as pipeline:
        pipeline.warehouse.raise_fence(FEED, 0, 0)
        loads.append("the first load")
        monkeypatch.setattr(DuckDB, "commit", unclear_once)
        events, report = drained(pipeline)
        assert report.stop is Stop.IDLE
        failed = [event for event in events if isinstance(event, ItemFailed)]
        assert [event.failure.kind for event in failed] == ([] if committed else ["lease_expired"])
        assert [event.key.name for event in events if isinstance(event, Loaded)] == run_names(0, 1)
    assert shop.seen.runs == run_names(0, 1)
    assert shop.doubled_events == []


def test_a_committed_item_is_settled_even_if_its_listing_is_gone(
    shop: Shop, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.shredded(spark, 1)
    commit = DuckDB.commit

    def commit_and_lose(self: DuckDB) -> None:
        monkeypatch.setattr(DuckDB, "commit", commit)
        commit(self)
        next(shop.home.rglob("listing.json")).unlink()
        raise Unclear("no answer")

    with shop.open() as pipeline:
        pipeline.warehouse.raise_fence(FEED, 0, 0)
        monkeypatch.setattr(DuckDB, "commit", commit_and_lose)
        events, report = drained(pipeline)
        assert report.stop is Stop.IDLE
        assert [event.key.name for event in events if isinstance(event, Loaded)] == run_names(0)


def test_a_run_that_lands_during_a_load_is_not_lost(shop: Shop, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is registered behind the item in work after its claim, and found when these positions are swept."""
    shop.shredded(spark, 1)
    with shop.open() as pipeline, shop.open() as sensor:
        shop.land(pipeline, 2)
        drained(pipeline, spark, Budget(items=1))
        apply = pipeline.warehouse.apply

        def land_meanwhile(load):
            if load.item.endswith(run_name(2)):
                shop.write(1)
                discover(sensor)
            return apply(load)

        monkeypatch.setattr(pipeline.warehouse, "apply", land_meanwhile)
        _, report = drained(pipeline, spark)
        assert report.stop is Stop.IDLE
    assert shop.seen.ledger == [(run_name(0), False), (run_name(2), False), (run_name(1), True)]


def test_the_lag_is_from_discovery_to_commit(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline:
        [key] = shop.land(pipeline, 0)
        events, _ = drained(pipeline, spark)
        [loaded] = [event for event in events if isinstance(event, Loaded)]
        record = loaded_record(pipeline, 0)
        discovered = pipeline.manifest.history(key)[0].timestamp
        assert timedelta(0) < record.timestamp - discovered
        assert 0 < loaded.lag_seconds <= (record.timestamp - discovered).total_seconds()
