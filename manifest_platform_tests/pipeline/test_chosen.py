"""Chosen items are done in the manifest's order, or refused before anything is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manifest_platform.manifest import LeaseBusy, Refused
from manifest_platform.pipeline import LOAD, SHRED, Loaded, Shredded
from manifest_platform.pipeline.chosen import OutOfOrder, PassedOver, check_order, load_chosen, shred_chosen
from manifest_platform.remedies import Action, Remedy
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import Shop, drained, history, keys, no_spark, run_name, run_names

FEW_BAD = {"bad_rows": {"max_count": 1, "max_share": 0.01}}


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Shop:
    """A shop with four shredded runs."""
    shop = Shop(tmp_path)
    shop.shredded(spark, 4)
    return shop


def loaded(events: Any) -> list[tuple[str, bool]]:
    return [(event.key.name, event.already) for event in events if isinstance(event, Loaded)]


def test_a_choice_out_of_order_is_refused_with_the_next_item(shop: Shop) -> None:
    with shop.open() as pipeline:
        with pytest.raises(OutOfOrder) as refused:
            list(load_chosen(pipeline, keys(pipeline, 1)))
        assert str(refused.value) == (
            f"{run_name(1)} is out of order: {run_name(0)} comes first and is not loaded (it is ready)"
        )
        assert refused.value.remedy is not None
        assert refused.value.remedy.action is Action.DRAIN
        assert history(pipeline, 1)[-1] == "shred Processed"
    assert not (shop.home / "warehouse.duckdb").exists()


def test_a_choice_with_a_gap_is_refused_before_anything_is_done(shop: Shop) -> None:
    with shop.open() as pipeline:
        with pytest.raises(OutOfOrder, match=f"{run_name(2)} is out of order: {run_name(1)} comes first"):
            list(load_chosen(pipeline, keys(pipeline, 0, 2)))
        assert history(pipeline, 0)[-1] == "shred Processed"
    assert not (shop.home / "warehouse.duckdb").exists()


def test_a_refused_choice_names_the_reason_and_remedy_of_the_next_item(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, shred=FEW_BAD)
    with shop.open() as pipeline:
        shop.land(pipeline, 0, corrupt=True)
        shop.land(pipeline, 1)
        drained(pipeline, spark)
        failed = rf"{run_name(0)} comes first and is not loaded \(shred failed: .* are bad .*\)$"
        with pytest.raises(OutOfOrder, match=failed) as refused:
            list(load_chosen(pipeline, keys(pipeline, 1)))
        with pytest.raises(OutOfOrder, match=f"{run_name(0)} blocks the feed: shred failed: ") as blocked:
            list(load_chosen(pipeline, keys(pipeline, 0, 1)))
        assert refused.value.remedy == blocked.value.remedy == Remedy(Action.RESOLVE, item=run_name(0))


def test_a_chosen_item_that_is_not_shredded_is_not_loaded(shop: Shop) -> None:
    with shop.open() as pipeline:
        list(load_chosen(pipeline, keys(pipeline, 0, 1, 2, 3)))
        [fresh] = shop.land(pipeline, 4)
        with pytest.raises(OutOfOrder, match=f"{run_name(4)} blocks the feed: shred has not processed it yet"):
            list(load_chosen(pipeline, [fresh]))
        assert history(pipeline, 4) == ["New"]


def test_the_order_of_the_keys_does_not_matter(shop: Shop) -> None:
    with shop.open() as pipeline:
        chosen = keys(pipeline, 2, 0, 1)
        assert check_order(pipeline, chosen) == keys(pipeline, 0, 1, 2)
        assert loaded(load_chosen(pipeline, chosen)) == [(name, False) for name in run_names(0, 1, 2)]
    assert shop.seen.runs == run_names(0, 1, 2)


def test_chosen_items_that_are_loaded_are_reported_as_already(shop: Shop) -> None:
    with shop.open() as pipeline:
        list(load_chosen(pipeline, keys(pipeline, 0)))
        before = history(pipeline, 0)
        assert loaded(load_chosen(pipeline, keys(pipeline, 1, 0))) == [(run_name(0), True), (run_name(1), False)]
        events = list(load_chosen(pipeline, keys(pipeline, 0, 1)))
        assert loaded(events) == [(run_name(0), True), (run_name(1), True)]
        assert [event.row_count > 0 for event in events if isinstance(event, Loaded)] == [True, True]
        assert history(pipeline, 0) == before
    assert shop.seen.runs == run_names(0, 1)


def test_a_late_run_is_loaded_before_the_chosen_items(shop: Shop, spark: Any) -> None:
    with shop.open() as pipeline:
        drained(pipeline)
        shop.land(pipeline, 5)
        drained(pipeline, spark)
        shop.land(pipeline, 4, 6)
        list(shred_chosen(pipeline, lambda: spark, keys(pipeline, 4, 6)))
        with pytest.raises(OutOfOrder, match=f"{run_name(6)} is out of order: {run_name(4)} comes first"):
            list(load_chosen(pipeline, keys(pipeline, 6)))
        [late, _] = load_chosen(pipeline, keys(pipeline, 6, 4))
        assert isinstance(late, Loaded)
        assert (late.key.name, late.late) == (run_name(4), True)


def test_a_quarantined_run_is_refused(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, load={"late": "quarantine"})
    with shop.open() as pipeline:
        shop.land(pipeline, 1)
        drained(pipeline, spark)
        [late] = shop.land(pipeline, 0)
        with pytest.raises(OutOfOrder, match=f"{run_name(0)} is quarantined: it arrived behind the watermark"):
            list(load_chosen(pipeline, [late]))


def test_loading_is_refused_while_another_worker_holds_the_lease(shop: Shop) -> None:
    with shop.open() as holder, shop.open() as pipeline, holder.lease(FEED, LOAD), pytest.raises(LeaseBusy):
        list(load_chosen(pipeline, keys(pipeline, 0)))


def test_a_dagster_run_of_several_waits_for_the_holder_of_the_feed(shop: Shop) -> None:
    with shop.open() as holder, shop.open() as pipeline:
        lease = holder.lease(FEED, LOAD)
        lease.__enter__()
        others = load_chosen(pipeline, keys(pipeline, 1), run_names(0, 1, 2), patience_s=60)
        assert "load on feed enriched is held by" in str(next(others))
        lease.__exit__(None, None, None)
        list(load_chosen(holder, keys(holder, 0), run_names(0, 1)))
        assert loaded(others) == [(run_name(1), True), (run_name(2), False)]
    assert shop.seen.runs == run_names(0, 1, 2)


def test_items_chosen_for_other_runs_are_done_and_refused_together(shop: Shop) -> None:
    with shop.open() as pipeline:
        with pytest.raises(OutOfOrder, match=f"{run_name(3)} is out of order: {run_name(2)} comes first"):
            list(load_chosen(pipeline, keys(pipeline, 0), run_names(0, 1, 3)))
        assert loaded(load_chosen(pipeline, keys(pipeline, 2), [*run_names(0, 1), "no name"])) == [
            (name, False) for name in run_names(0, 1, 2)
        ]


def test_chosen_items_that_are_skipped_are_reported_as_passed_over(shop: Shop) -> None:
    with shop.open() as pipeline:
        [first] = keys(pipeline, 0)
        pipeline.manifest.skip(first, "not wanted")
        assert list(load_chosen(pipeline, [first])) == [PassedOver(first, "not wanted")]


def test_shredded_items_are_reported_as_already_without_starting_spark(shop: Shop) -> None:
    with shop.open() as pipeline:
        before = history(pipeline, 2)
        events = list(shred_chosen(pipeline, no_spark, keys(pipeline, 2, 1)))
        assert [(event.key.name, event.already) for event in events if isinstance(event, Shredded)] == [
            (run_name(1), True),
            (run_name(2), True),
        ]
        assert history(pipeline, 2) == before


def test_chosen_items_are_shredded_in_any_order_and_in_batches(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, shred={"batch": 2})
    with shop.open() as pipeline:
        shop.land(pipeline, 0, 1, 2, 3)
        events = list(shred_chosen(pipeline, lambda: spark, keys(pipeline, 3, 1, 2)))
        assert [(event.key.name, event.batch) for event in events if isinstance(event, Shredded)] == [
            (run_name(1), 2),
            (run_name(2), 2),
            (run_name(3), 1),
        ]
        assert history(pipeline, 0) == ["New"]


def test_a_failed_item_and_the_items_chosen_with_it_are_not_shredded(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, shred=FEW_BAD)
    with shop.open() as pipeline:
        shop.land(pipeline, 1, corrupt=True)
        drained(pipeline, spark)
        shop.land(pipeline, 0)
        with pytest.raises(Refused, match=f"{run_name(1)} cannot be shredded: ") as refused:
            list(shred_chosen(pipeline, no_spark, keys(pipeline, 0, 1)))
        assert refused.value.remedy == Remedy(Action.RESOLVE, item=run_name(1))
        assert history(pipeline, 0) == ["New"]
        with shop.open() as holder, holder.lease(FEED, SHRED), pytest.raises(LeaseBusy):
            list(shred_chosen(pipeline, no_spark, keys(pipeline, 0)))


def test_an_item_that_is_skipped_while_spark_starts_is_refused(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path / "skipped")
    with shop.open() as pipeline, shop.open() as operator:
        chosen = shop.land(pipeline, 0)

        def slow_start() -> Any:
            operator.manifest.skip(chosen[0], "not wanted")
            return spark

        with pytest.raises(Refused, match="another process changed an item while Spark started"):
            list(shred_chosen(pipeline, slow_start, chosen))
