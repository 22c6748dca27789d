"""Row counts of tables: made after loads reached a table, without failing any load."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from manifest_platform.listing import Column, Table
from manifest_platform.manifest import ItemKey
from manifest_platform.orchestration import feed_checks
from manifest_platform.orchestration.feed_checks import rows_held
from manifest_platform.orchestration.metadata import table_events
from manifest_platform.pipeline import Loaded

TABLES = tuple(Table(name, (Column("id", "string"),)) for name in ("click", "events"))
KEY = ItemKey("enriched", "1", "s3://shop/run=1")
LOADED = Loaded(KEY, {"click": 1, "events": 2}, 1, 1.0, 1.0, 1, tables=TABLES)
NAMES: Any = SimpleNamespace(
    dataset="shop",
    schema="shop",
    table=lambda name: dg.AssetKey(["shop", name]),
    stage=lambda _feed, _stage: dg.AssetKey(["shop", "warehouse"]),
)


class Counting:
    """A warehouse that records which tables it was asked to count."""

    def __init__(self, problem: Exception | None = None):
        self.problem, self.asked = problem, []

    def row_counts(self, only: Collection[str]) -> dict[str, int]:
        self.asked.append(set(only))
        if self.problem:
            raise self.problem
        return {"events": 1000}


def pipeline(warehouse: Counting, at_once: bool = True) -> Any:
    settings = SimpleNamespace(counts_at_once=at_once)
    return SimpleNamespace(
        engine_settings=settings, warehouse=warehouse, source=None, target="warehouse", targets=("warehouse",)
    )


def test_loaded_tables_are_counted_with_dagsters_row_count_key() -> None:
    warehouse = Counting()
    held = rows_held(pipeline(warehouse), NAMES, [LOADED], None)  # ty: ignore
    assert warehouse.asked == [{"click", "events"}]
    told = {event.asset_key.path[-1]: event.metadata for event in table_events(NAMES, [LOADED], held)}
    assert told["events"]["dagster/row_count"].value == 1000
    assert "dagster/row_count" not in told["click"]


def test_nothing_is_counted_where_nothing_was_loaded() -> None:
    warehouse = Counting()
    assert rows_held(pipeline(warehouse), NAMES, [], None) == {}  # ty: ignore
    assert warehouse.asked == []


def test_a_count_that_fails_fails_no_load() -> None:
    assert rows_held(pipeline(Counting(RuntimeError("away"))), NAMES, [LOADED], None) == {}  # ty: ignore


@pytest.mark.parametrize(("recent", "counted"), [(True, False), (False, True)])
def test_slow_counts_are_made_as_rarely_as_the_check(monkeypatch: pytest.MonkeyPatch, recent: bool, counted: bool) -> None:
    slow = feed_checks.FeedCheck("counts", feed_checks.Stage.WAREHOUSE, "", lambda *_: None, reads_warehouse=True)  # ty: ignore
    monkeypatch.setattr(feed_checks, "checks_of", lambda _source, _feed: [slow])
    monkeypatch.setattr(feed_checks, "_evaluated_last", lambda *_: None)
    monkeypatch.setattr(feed_checks, "_is_recent", lambda _last: recent)
    warehouse = Counting()
    rows_held(pipeline(warehouse, at_once=False), NAMES, [LOADED], None)  # ty: ignore
    assert bool(warehouse.asked) is counted
