"""A drain into Snowflake's stand-in: what shredding makes of enriched events arrives as it does on DuckDB."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.pipeline import Stop
from manifest_platform_tests.pipeline.shop import NAME, Shop, drained
from manifest_platform_tests.servers.snowflake import PASSWORD, URL, Sessions, settings_of

RUNS = 3


@pytest.mark.long
@pytest.mark.parametrize("items", [1, 100])
def test_the_rows_of_runs_arrive_as_on_the_embedded_warehouse(
    tmp_path: Path, spark: Any, snowflake_sessions: Sessions, items: int
) -> None:
    warehouse = {"kind": "snowflake", "url": URL, "password_variable": PASSWORD, "stage": "PUBLIC.SHREDDED"}
    batch = {"batch": {"items": items}}
    embedded = Shop(tmp_path / "embedded", load=batch)
    shop = Shop(tmp_path / "snowflake", load=batch, warehouse={**warehouse, "json_columns": "variant"})
    for one in (embedded, shop):
        one.shredded(spark, RUNS)
        with one.open() as pipeline:
            _, report = drained(pipeline)
            assert (report.stop, report.loaded) == (Stop.IDLE, RUNS)
    expected = embedded.seen
    with closing(settings_of().open()) as engine:
        found = {
            table: engine.execute(f"SELECT count(*) FROM {engine.qualified(NAME, table)}")[0][0]
            for table in engine.columns(NAME)
        }
        assert found == expected.rows
        sums = "SELECT count(DISTINCT event_id), count(load_tstamp), min(collector_tstamp) FROM "
        with closing(embedded.place.open()) as other:
            assert engine.execute(sums + engine.qualified(NAME, "events")) == other.execute(
                sums + other.qualified(NAME, "events")
            )
        staged = engine.columns("manifest_platform_staging")
        assert staged == {}, "staging tables are left over"
    tags = {tag for tag in snowflake_sessions.tags if tag.startswith("{")}
    assert len(tags) == (RUNS if items == 1 else 1)
