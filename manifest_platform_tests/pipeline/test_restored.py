"""A manifest restored from a backup knows less than the warehouse: nothing is doubled, and late items are reported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

import pytest

from manifest_platform.pipeline import LOAD, ItemFailed, Stop
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import Shop, drained, history, keys, run_name, run_names


def back_up(shop: Shop, to: str) -> Path:
    """Copies the manifest, which no process has open."""
    return Path(shutil.copy(shop.home / "manifest.db", shop.home / to))


@pytest.mark.parametrize("late", ["quarantine", "append"])
def test_an_item_that_a_restored_manifest_lets_in_behind_the_warehouse_is_late(
    tmp_path: Path, spark: Any, late: Literal["quarantine", "append"]
) -> None:
    shop = Shop(tmp_path, load={"late": late})
    shop.shredded(spark, 3)
    backup = back_up(shop, "backup.db")
    with shop.open() as pipeline:
        pipeline.manifest.skip(keys(pipeline, 1)[0], "not needed", LOAD)
        drained(pipeline)
    assert shop.seen.runs == run_names(0, 2)

    for file in shop.home.glob("manifest.db*"):
        file.unlink()
    shutil.copy(backup, shop.home / "manifest.db")
    with shop.open() as pipeline:
        events, report = drained(pipeline)
        assert report.stop is Stop.IDLE
        [behind] = [event for event in events if isinstance(event, ItemFailed)]
        assert (behind.key.name, behind.failure.kind) == (run_name(1), "behind")
        assert history(pipeline, 1)[-1] == ("load New" if late == "quarantine" else "load Processed")
        feed = pipeline.manifest.state(pipeline.manifest.step(FEED, LOAD).application).feed(FEED)
        assert (feed.quarantined, feed.late) == ((1, 0) if late == "quarantine" else (0, 0))
    assert shop.seen.ledger == [
        (run_name(0), False),
        (run_name(2), False),
        *([(run_name(1), True)] if late == "append" else []),
    ]
    assert shop.doubled_events == []
