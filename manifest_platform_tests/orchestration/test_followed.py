"""What a follower does beside Dagster is shown in Dagster, which leaves it the work."""

from __future__ import annotations

import signal
from pathlib import Path

import dagster as dg
import pytest

from manifest_platform.orchestration.listing import Remembered
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop
from manifest_platform_tests.pipeline.following import Following
from manifest_platform_tests.pipeline.shop import run_name, run_names
from manifest_platform_tests.pipeline.test_follow import shop

pytestmark = pytest.mark.long


def _partitions(result: dg.SensorResult, asset: str) -> set[str | None]:
    """The partitions of an asset whose materializations a tick reports."""
    found = [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]
    return {event.partition for event in found if event.asset_key.path[1:] == [asset]}


@pytest.mark.every_store
def test_what_a_follower_did_is_shown_in_dagster(tmp_path: Path, instance: dg.DagsterInstance, store_url: str) -> None:
    followed = DagsterShop(shop(tmp_path, manifest={"store": store_url}), instance)
    followed.shop.write(0, 1)
    with Following(followed.shop.config_file) as follower:
        follower.told("loaded", item=run_name(1))
        follower.told("ended", loaded=2)
        followed.shop.write(2)
        follower.told("loaded", item=run_name(2))
        follower.told("ended", loaded=1)
        first = followed.tick()
        assert follower.end(signal.SIGTERM) == 143
    assert followed.partitions() == run_names(0, 1, 2)
    for asset in ("enriched_runs", "shredded", "warehouse"):
        assert _partitions(first, asset) == followed.materialized(asset) == set(run_names(0, 1, 2)), asset
    assert followed.metadata("warehouse", 2)["events"] == followed.metadata("shredded", 2)["good"] == 20
    asked = [one.work for one in Remembered.from_json(first.cursor).asked.values()]
    assert all(work.startswith("check ") for work in asked), "the loads are checked, and the work is the follower's"
    again = followed.tick(first.cursor)
    assert not _partitions(again, "warehouse") and not _partitions(again, "shredded"), "each is shown once"
