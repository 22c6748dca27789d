"""Upkeep of tables: what is due, what was removed, and what everybody who counts must know."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.listing import Column, Table
from manifest_platform.testing.loads import EVENTS, FEED, PRODUCT, events, load, products, rows_of, window, written
from manifest_platform.warehouse import upkeep
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import LoadFailed
from manifest_platform.warehouse.upkeep_settings import RetentionSettings, UpkeepSettings
from manifest_platform_tests.warehouse.shop import Recording

pytestmark = [pytest.mark.engines("duckdb"), pytest.mark.everyday("duckdb")]  # the contract has the others

NOW = datetime(2024, 6, 1, 12, tzinfo=UTC)
ALL = UpkeepSettings(actions=("analyze", "vacuum"), changed_share=0.5)


def aged(engine: DuckDB, ages: dict[str, timedelta]) -> None:
    """Sets the load time of events, by the beginning of their id."""
    for beginning, age in ages.items():
        engine.write(
            f"UPDATE {engine.qualified('shop', 'events')} SET load_tstamp = ? WHERE starts_with(event_id, ?)",
            ((NOW - age).replace(tzinfo=None), beginning),
        )


def test_only_tables_that_changed_by_a_share_are_due(shop: Warehouse, engine: Recording, tmp_path: Path) -> None:
    assert shop.upkeep.due(ALL) == []
    shop.apply(load(events(tmp_path, "1", 10)))
    assert [(one.table, one.action, one.changed) for one in shop.upkeep.due(ALL)] == [
        ("events", "analyze", 10),
        ("events", "vacuum", 10),
    ]
    for due in shop.upkeep.due(ALL):
        shop.upkeep.tidy(due)
    assert any(statement.startswith("ANALYZE") for statement in engine.statements)
    assert shop.upkeep.due(ALL) == []
    shop.apply(load(events(tmp_path, "2", 4)))
    assert shop.upkeep.due(ALL) == [], "4 of 10 rows are less than half"
    shop.apply(load(events(tmp_path, "3", 1)))
    assert [one.changed for one in shop.upkeep.due(ALL)] == [5, 5]
    assert shop.upkeep.due(UpkeepSettings()) == []


def test_a_failed_action_is_still_due(shop: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.apply(load(events(tmp_path, "1")))
    due = shop.upkeep.due(ALL)
    with monkeypatch.context() as patch, pytest.raises(LoadFailed):
        patch.setattr(DuckDB, "tidy", lambda self, _table, _action: self.execute("SELECT nothing"))
        shop.upkeep.tidy(due[0])
    assert shop.upkeep.due(ALL) == due


@pytest.mark.parametrize("at_once", [1_000_000, 2])
def test_old_rows_are_removed_and_counted_and_newer_ones_never(
    shop: Warehouse, engine: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(upkeep, "_AT_ONCE", at_once)
    for item in ("a", "b", "c", "d"):
        shop.apply(load(events(tmp_path, item, 5)))
    edge = timedelta(days=30)
    aged(engine, {"a": timedelta(days=400), "b": edge + timedelta(microseconds=1), "c": edge, "d": timedelta(0)})
    retention = [RetentionSettings(table="event*", days=30), RetentionSettings(table="*", days=1)]
    before = engine.execute(f"SELECT count(*) FROM {engine.qualified('shop', 'events')}")
    [old] = shop.upkeep.old_rows(retention, NOW)
    assert (old.table, old.rows, [rows for _, rows in old.days]) == ("events", 10, [5, 5])
    assert engine.execute(f"SELECT count(*) FROM {engine.qualified('shop', 'events')}") == before, "finding removes nothing"
    assert shop.removed_rows() == {}
    assert shop.remove_old(old) == 10
    assert {id_[0] for id_, *_ in rows_of(engine, EVENTS)} == {"c", "d"}
    assert shop.removed_rows() == {"events": 10}
    assert shop.row_counts()["events"] + shop.removed_rows()["events"] == shop.applied_rows(FEED, 1)["events"]
    [none] = shop.upkeep.old_rows(retention, NOW)
    assert (none.rows, shop.remove_old(none), shop.removed_rows()) == (0, 0, {"events": 10})
    assert [one.changed for one in shop.upkeep.due(ALL)] == [30, 30], "removed rows are changes, too"


def test_rows_and_their_number_are_removed_together(
    shop: Warehouse, engine: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.apply(load(events(tmp_path, "a", 5)))
    aged(engine, {"a": timedelta(days=2)})
    [old] = shop.upkeep.old_rows([RetentionSettings(table="events", days=1)], NOW)
    with monkeypatch.context() as patch, pytest.raises(LoadFailed):
        patch.setattr(shop.upkeep, "_entry", lambda *_: ("INSERT INTO nowhere VALUES (1)", []))
        shop.remove_old(old)
    assert (shop.row_counts(), shop.removed_rows()) == ({"events": 5}, {})


def test_tables_that_are_changed_by_key_or_lack_the_time_are_kept(shop: Warehouse, tmp_path: Path) -> None:
    days = Table("days", (Column("day", "date"), Column("name", "string")))
    shop.apply(window(tmp_path, "0015", products(a="1")))
    rows: list[dict[str, Any]] = [{"day": date(2024, 5, 30)}, {"day": date(2024, 5, 31)}, {"day": None}]
    shop.apply(load(written(tmp_path, "1", [(days, rows)])))
    by_name = RetentionSettings(table="days", column="name", days=1)
    kept = {one.table: one.why_not for one in shop.upkeep.old_rows([by_name, RetentionSettings(table="*", days=1)], NOW)}
    assert kept == {
        "days": "it has no column name with times",
        PRODUCT.name: "its rows are changed by key, so old rows are not removed",
    }
    [old] = shop.upkeep.old_rows([RetentionSettings(table="days", column="DAY", days=1)], NOW)
    assert shop.remove_old(old) == 1, "a row of the day that begins the time to keep stays, and one without a time"
    assert shop.row_counts()["days"] == 2
