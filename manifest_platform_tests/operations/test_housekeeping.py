"""The chores of a dataset: what each removes by age, what it reports, and that a failing chore does not stop the others."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.cli import main
from manifest_platform.config import VARIABLE
from manifest_platform.manifest import Refused
from manifest_platform.merging.settling import SettledRows
from manifest_platform.operations import housekeeping
from manifest_platform.operations.archive import Archived
from manifest_platform.operations.housekeeping import Chore, keep_house
from manifest_platform.pipeline import Pipeline
from manifest_platform_tests.pipeline.shop import NAME, Shop, run_name

CHORES = ["attempts", "superseded merged objects", "rows of merging", "archive", "old rows", "upkeep"]
Made = Callable[..., Shop]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A shop with a landed run, an attempt two days old that no record names, and settings of housekeeping."""

    def _made(**settings: Any) -> Shop:
        shop = Shop(tmp_path / "shop", merge={}, manifest={"store": "sqlite:///manifest.db", "archive": "archive"}, **settings)
        with shop.open() as pipeline:
            shop.land(pipeline, 0)
        _attempt(shop, "dead")
        monkeypatch.setenv(VARIABLE, str(shop.config_file))
        return shop

    return _made


def _attempt(shop: Shop, name: str, age_s: float = 2 * 86_400) -> Path:
    attempt = shop.home / "shredded" / NAME / run_name(0) / name
    attempt.mkdir(parents=True)
    (attempt / "part.parquet").write_text("rows")
    written = time.time() - age_s
    os.utime(attempt / "part.parquet", (written, written))
    return attempt


def _kept(pipeline: Pipeline, **options: Any) -> dict[str, Chore]:
    return {chore.name: chore for chore in keep_house(pipeline, **options)}


def test_data_that_is_old_enough_is_removed_once(made: Made) -> None:
    shop = made()
    young = _attempt(shop, "young", 3600)
    with shop.open() as pipeline:
        told = _kept(pipeline, dry_run=True)
        assert list(told) == CHORES
        assert (told["attempts"].removed, young.parent.joinpath("dead").exists()) == ({"places": 1}, True)
        done = _kept(pipeline)
        assert done["attempts"].removed == {"places": 1}
        assert [path.name for path in young.parent.iterdir()] == ["young"]
        before = pipeline.manifest.store.query(NAME, "")
        assert not any(_kept(pipeline).values())
        assert pipeline.manifest.store.query(NAME, "") == before, "a second time nothing is written"


def test_each_chore_can_be_disabled(made: Made) -> None:
    off = {"attempts_hours": None, "merged_hours": None, "merge_rows_days": None, "archive_days": None}
    shop = made(housekeeping=off)
    with shop.open() as pipeline:
        chores = _kept(pipeline)
    of_warehouse = ["load.retention has no table", "no warehouse has upkeep.actions"]
    assert [chore.off for chore in chores.values()] == [*(f"housekeeping.{key} is null" for key in off), *of_warehouse]
    assert (shop.home / "shredded" / NAME / run_name(0) / "dead").exists()


def test_ages_come_from_the_configuration(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, ages = made(housekeeping={"merge_rows_days": 7, "archive_days": 11, "merged_hours": 5}), {}

    def settle(inventory: Any, before: Any, dry_run: bool) -> SettledRows:
        ages["rows"] = (inventory.clock() - before).days
        return SettledRows(batches=3)

    def archive(pipeline: Pipeline, age: Any, dry_run: bool) -> Archived:
        ages["archive"] = age.days
        return Archived(items=2, records=4)

    def garbage(inventory: Any, output: str, now: Any, grace: Any) -> list[Any]:
        ages["merged"] = grace.total_seconds() / 3600
        return []

    monkeypatch.setattr(housekeeping, "settle_rows", settle)
    monkeypatch.setattr(housekeeping, "archive_dataset", archive)
    monkeypatch.setattr(housekeeping.garbage, "find", garbage)
    with shop.open() as pipeline:
        chores = _kept(pipeline)
    assert ages == {"rows": 7, "archive": 11, "merged": 5}
    assert chores["rows of merging"].removed == {"rows of small objects": 3, "rows of jobs": 0}
    assert chores["archive"].removed == {"items": 2, "records": 4}


def test_a_chore_that_cannot_run_does_not_stop_the_others(made: Made, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    made()

    def busy(*_: Any) -> None:
        raise Refused("another removes just now")

    monkeypatch.setattr(housekeeping, "settle_rows", busy)
    assert main(["housekeeping", "--json"]) == 1
    chores = {one["name"]: one for one in json.loads(capsys.readouterr().out)["chores"]}
    assert chores["rows of merging"]["hindered"] == "another removes just now"
    assert chores["attempts"]["removed"] == {"places": 1}


def test_objects_that_missing_records_may_name_are_not_removed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = made()
    with shop.open() as pipeline:  # an unreachable warehouse may have loads that the manifest lacks
        (shop.home / "warehouse.duckdb").write_text("no database")
        monkeypatch.setattr(housekeeping, "PATIENCE_S", 0.0)
        chore = _kept(pipeline)["attempts"]
    assert "records that name objects may be missing" in chore.hindered
    assert (shop.home / "shredded" / NAME / run_name(0) / "dead").exists()


def test_the_housekeeping_command_reports_each_chore(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    shop = made()
    assert main(["housekeeping", "--dry-run"]) == 0
    assert "attempts: to remove: 1 places" in capsys.readouterr().out
    assert main(["housekeeping"]) == 0
    assert "attempts: removed: 1 places" in capsys.readouterr().out
    assert main(["housekeeping"]) == 4
    assert "archive: nothing to remove" in capsys.readouterr().out
    assert not (shop.home / "shredded" / NAME / run_name(0) / "dead").exists()
