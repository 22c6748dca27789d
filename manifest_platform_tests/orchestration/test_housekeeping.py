"""Housekeeping in Dagster: a job for every dataset and for Dagster's own store, with an optional schedule."""

from __future__ import annotations

import os
import time
from pathlib import Path

import dagster as dg
import pytest
import yaml

from manifest_platform.config import ConfigError
from manifest_platform.operations import housekeeping as chores
from manifest_platform.operations.housekeeping import Chore
from manifest_platform.orchestration import housekeeping
from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.dagster_store import Pruned
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop, key
from manifest_platform_tests.pipeline.shop import NAME, Shop, run_name


@pytest.fixture
def shop(tmp_path: Path, instance: dg.DagsterInstance) -> DagsterShop:
    """A shop with a landed run and an old attempt that no record names."""
    shop = Shop(tmp_path / "shop")
    with shop.open() as pipeline:
        shop.land(pipeline, 0)
    left = shop.home / "shredded" / NAME / run_name(0) / "dead" / "part.parquet"
    left.parent.mkdir(parents=True)
    left.write_text("rows")
    written = time.time() - 2 * 86_400
    os.utime(left, (written, written))
    return DagsterShop(shop, instance)


def _shown(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    [output] = [event for event in result.all_events if event.event_type_value == "STEP_OUTPUT"]
    return {name: value.value for name, value in output.step_output_data.metadata.items()}


def test_a_run_does_the_chores_and_prunes_dagster(shop: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def prune(
        instance: dg.DagsterInstance, before: object, sets: dict, label: str | None, dry_run: bool, ours: object
    ) -> Pruned:
        assert ours is None, "the code location is the platform's alone"
        asked.append((sets, label, dry_run))
        return Pruned(runs=7, kept=2)

    monkeypatch.setattr(housekeeping, "prune", prune)
    told = _shown(shop.run_job("housekeeping", {"dry_run": True}))
    done = _shown(shop.run_job("housekeeping", {}))
    assert told == {**done, "dry_run": True}
    assert (done["shop: places"], done["dagster: runs"], done["dagster: runs kept"]) == (1, 7, 2)
    sets = {key(name): f"{NAME}_enriched" for name in ("enriched_runs", "shredded", "warehouse")}
    assert asked == [(sets, None, True), (sets, None, False)]
    assert not (shop.shop.home / "shredded" / NAME / run_name(0) / "dead").exists()


def test_a_failed_chore_fails_the_run_at_its_end(shop: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    pruned = []
    monkeypatch.setattr(housekeeping, "prune", lambda *_: pruned.append(1) or Pruned())
    monkeypatch.setattr(housekeeping, "keep_house", lambda *_: iter([Chore("archive", hindered="the store is busy")]))
    result = shop.run_job("housekeeping", {})
    assert (result.success, pruned) == (False, [1])
    assert "shop: archive: the store is busy" in str(result.failure_data_for_node("housekeeping_op"))


def test_the_schedule_is_as_configured_and_may_be_off(tmp_path: Path) -> None:
    [schedule] = (build_defs(Shop(tmp_path / "one").config_file).resolve_schedule_def("housekeeping_schedule"),)
    assert (schedule.cron_schedule, schedule.default_status) == ("30 3 * * *", dg.DefaultScheduleStatus.RUNNING)
    off = build_defs(Shop(tmp_path / "two", housekeeping={"schedule": None}).config_file)
    assert off.schedules == []
    with pytest.raises(ConfigError, match=r"housekeeping.schedule: '61 3 \* \* \*': allowed: five fields of cron"):
        build_defs(Shop(tmp_path / "three", housekeeping={"schedule": "61 3 * * *"}).config_file)


def test_dagsters_store_is_not_pruned_if_dagster_days_is_null(shop: DagsterShop, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = yaml.safe_load(shop.shop.config_file.read_text())
    shop.shop.config_file.write_text(yaml.safe_dump({**settings, "housekeeping": {"dagster_days": None}}))
    monkeypatch.setattr(housekeeping, "prune", None)
    monkeypatch.setattr(chores, "PATIENCE_S", 0.0)
    assert DagsterShop(shop.shop, shop.instance).run_job("housekeeping", {}).success
