"""A warehouse that was set back after retention had deleted data: what can be loaded again is, the rest fails and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from manifest_platform.operations.reconcile import reconcile
from manifest_platform.operations.retention.run import collect
from manifest_platform.pipeline import Pipeline, Stop
from manifest_platform_tests.operations.retention.test_run import Made, attempts, made
from manifest_platform_tests.pipeline.shop import drained, keys, run_name, run_names

__all__ = ["made"]


def _emptied_and_reconciled(pipeline: Pipeline, home: Path) -> list[str]:
    """Empties the warehouse; returns the names of the items that are reopened."""
    pipeline.let_go()
    (home / "warehouse.duckdb").unlink()
    [found] = reconcile(pipeline, "it was emptied")
    return [key.name for key in found.freed]


def test_what_was_deleted_is_shredded_again_from_landing_and_loaded_in_order(made: Made, spark: Any) -> None:
    shop = made(shredded_days=7)
    with shop.open() as pipeline:
        collect(pipeline)
        assert not any(attempts(shop, number) for number in range(3))
    with shop.open() as pipeline:
        assert _emptied_and_reconciled(pipeline, shop.home) == run_names(0, 1, 2)
        drained(pipeline, spark)
    assert shop.seen.runs == run_names(0, 1, 2)
    assert shop.doubled_events == []


def test_an_item_without_any_copy_fails_says_so_and_stops_its_feed(made: Made, spark: Any) -> None:
    shop = made(landing_days=1, shredded_days=1, last_copy_days=7)
    with shop.open() as pipeline:
        collect(pipeline)
    with shop.open() as pipeline:
        assert _emptied_and_reconciled(pipeline, shop.home) == run_names(0, 1, 2)
        report = drained(pipeline, spark)[1]
        assert report.stop is Stop.BLOCKED and report.loaded == 0
        [record] = [one for one in pipeline.manifest.item(keys(pipeline, 0)[0]).records if one.state == "Failed"]
        said = record.data["message"]
    assert "its shredded output was deleted by retention on" in said, said
    assert "Restore one of the two from a backup" in said and run_name(0) in said
