"""Upkeep after a drain and in housekeeping: under a lease, within its time, and never a failure of an item."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifest_platform.operations.housekeeping import keep_house
from manifest_platform.operations.tables import states_of_tables
from manifest_platform.pipeline import Loaded, Stop
from manifest_platform.pipeline.pipeline import UPKEEP
from manifest_platform.pipeline.upkeep import tidied, without_old_rows
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import LoadFailed
from manifest_platform_tests.pipeline.shop import EVENTS, Shop, drained

OPTIONS: dict[str, Any] = {
    "warehouse": {"path": "warehouse.duckdb", "upkeep": {"actions": ["analyze"]}},
    "load": {"retention": [{"table": "events", "days": 30}]},
}


@pytest.fixture
def shop(tmp_path: Path, spark: Any) -> Shop:
    """A shop with two shredded runs."""
    made = Shop(tmp_path, **OPTIONS)
    made.shredded(spark, 2)
    return made


def test_a_drain_tidies_the_tables_that_it_changed_once(shop: Shop) -> None:
    with shop.open() as pipeline:
        _, report = drained(pipeline)
        assert {(one.action, one.why_not) for one in report.upkeep} == {("analyze", "")}
        assert "events" in {one.table for one in report.upkeep}
        assert drained(pipeline)[1].upkeep == ()
        assert tidied(pipeline) == []


def test_a_drain_of_several_targets_names_the_target_of_each_upkeep(shop: Shop) -> None:
    whole = yaml.safe_load(shop.config_file.read_text())
    whole["targets"] = {"lab": {**OPTIONS["warehouse"], "path": "lab.duckdb"}}
    shop.config_file.write_text(yaml.safe_dump(whole))
    with shop.open() as pipeline:
        _, report = drained(pipeline)
    tables = {target: {one.table for one in report.upkeep if one.target == target} for target in ("warehouse", "lab")}
    assert tables["lab"] == tables["warehouse"] != set()


def test_upkeep_that_fails_fails_no_item(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise LoadFailed("permission denied")

    monkeypatch.setattr(DuckDB, "tidy", refused)
    with shop.open() as pipeline:
        events, report = drained(pipeline)
        assert len([event for event in events if isinstance(event, Loaded)]) == 2
        assert (report.stop, report.failed) == (Stop.IDLE, 0)
        assert {one.why_not for one in report.upkeep} == {"permission denied"}


def test_only_one_worker_does_the_upkeep(shop: Shop) -> None:
    shop.ahead = timedelta(days=60)  # so that the rows are old
    with (
        shop.open() as other,
        other.manifest.hold(UPKEEP, other.target, "other", timedelta(seconds=60)),
        shop.open() as pipeline,
    ):
        _, report = drained(pipeline)
        assert (report.loaded, report.upkeep) == (2, ())
        assert without_old_rows(pipeline) == []


def test_old_rows_are_removed_by_housekeeping_and_known_to_who_counts(shop: Shop) -> None:
    with shop.open() as pipeline:
        drained(pipeline)
        assert without_old_rows(pipeline, dry_run=True) == []
        shop.ahead = timedelta(days=31)
        [found] = without_old_rows(pipeline, dry_run=True)
        assert (found.table, found.rows) == ("events", 2 * EVENTS)
        pipeline.let_go()
        assert shop.seen.rows["events"] == 2 * EVENTS
        chores = {chore.name: chore for chore in keep_house(pipeline)}
        assert chores["old rows"].removed == {"rows of events": 2 * EVENTS}
        assert chores["upkeep"].removed == {"actions of events": 1}, "removed rows changed the table"
    with shop.open() as pipeline:
        states = states_of_tables(pipeline)
        assert states.differences == []
        [events] = [one for one in states.tables if one.table == "events"]
        assert (events.ledger, events.warehouse, events.removed) == (2 * EVENTS, 0, 2 * EVENTS)
