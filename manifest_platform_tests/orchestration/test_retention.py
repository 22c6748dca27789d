"""Retention in Dagster: a job and its schedule, only where a dataset deletes anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from manifest_platform.config import ConfigError
from manifest_platform.operations.retention.removal import Measured
from manifest_platform.operations.retention.run import Collected, Tally
from manifest_platform.orchestration import retention
from manifest_platform.orchestration.build import build_defs
from manifest_platform_tests.orchestration.dagster_shop import DagsterShop
from manifest_platform_tests.pipeline.shop import NAME, Shop


def _shop(home: Path, days: int | None = 7, **settings: Any) -> Shop:
    shop = Shop(home / "shop", **settings)
    whole = yaml.safe_load(shop.config_file.read_text())
    whole["datasets"][NAME]["retention"] = {"landing_days": days}
    shop.config_file.write_text(yaml.safe_dump(whole))
    return shop


def test_a_job_exists_where_a_dataset_deletes_anything(tmp_path: Path) -> None:
    defs = build_defs(_shop(tmp_path).config_file)
    assert defs.resolve_job_def("retention").tags["manifest_platform/duty"] == "housekeeping"
    [schedule] = [one for one in defs.schedules or () if one.name == "retention_schedule"]
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert (schedule.cron_schedule, schedule.default_status) == ("0 5 * * *", dg.DefaultScheduleStatus.RUNNING)


def test_without_retention_there_is_no_job(tmp_path: Path) -> None:
    defs = build_defs(_shop(tmp_path, None).config_file)
    assert "retention" not in {job.name for job in defs.jobs or ()}


def test_the_schedule_can_be_left_out_and_must_be_cron(tmp_path: Path) -> None:
    defs = build_defs(_shop(tmp_path / "off", housekeeping={"retention_schedule": None}).config_file)
    assert "retention_schedule" not in {one.name for one in defs.schedules or ()}
    with pytest.raises(ConfigError, match=r"housekeeping\.retention_schedule: '99 5"):
        build_defs(_shop(tmp_path / "wrong", housekeeping={"retention_schedule": "99 5 * * *"}).config_file)


def test_a_run_tells_what_it_deleted_and_fails_if_something_stays(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, failed = DagsterShop(_shop(tmp_path), instance), list[str]()

    def done(_pipeline: object) -> Collected:
        return Collected(NAME, {"landing": Tally("landing", 3, Measured(6, 100))}, failed=failed)

    monkeypatch.setattr(retention, "collect", done)
    result = shop.run_job("retention", {})
    [output] = [event for event in result.all_events if event.event_type_value == "STEP_OUTPUT"]
    told = {name: value.value for name, value in output.step_output_data.metadata.items()}
    assert told == {"dry_run": False, "shop: landing: items": 3, "shop: landing: bytes": 100}
    failed.append("run=1: no permission")
    result = shop.run_job("retention", {})
    assert "shop: run=1: no permission" in str(result.failure_data_for_node("retention_op"))
    monkeypatch.undo()
    assert shop.run_job("retention", {"dry_run": True}).success
