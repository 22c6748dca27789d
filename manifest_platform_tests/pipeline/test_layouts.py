"""Layouts of a source's rows, from the landing to the warehouse and to readers of merged tables."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from manifest_platform.pipeline.merge import Merging, merge
from manifest_platform_tests.pipeline.shop import Shop, drained

RUNS = 2


def as_json(value: Any) -> Any:
    """Returns structs as the warehouse has them: without fields that are null, times as texts."""
    if isinstance(value, dict):
        return {name: as_json(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [as_json(one) for one in value]
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date) else value


@pytest.mark.parametrize("layout", [pytest.param("events", marks=pytest.mark.long), "lake"])
def test_events_with_their_entities_are_loaded_and_merged(spark: Any, tmp_path: Path, layout: str) -> None:
    """Readers of merged tables, in DuckDB and in Spark, find the entities that the warehouse has for each event."""
    shop = Shop(tmp_path, merge={}, shred={"rows": layout})
    with shop.open() as pipeline:
        shop.land(pipeline, *range(RUNS))
        drained(pipeline, spark)
        merging = Merging(pipeline)
        list(merge(merging, lambda: spark))
        connection = duckdb.connect()
        merging.reader.views(connection, tables=["events"])
        frame = merging.reader.read(spark, "events").drop("dt").collect()
    warehouse = duckdb.connect(str(tmp_path / "warehouse.duckdb"), read_only=True)
    tables = {
        name for (name,) in warehouse.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'shop'").fetchall()
    }
    assert tables == {"events", "bad"}
    described = warehouse.execute("DESCRIBE shop.events").fetchall()
    wide = [name for name, *_ in described if name.startswith(("contexts_", "unstruct_event_"))]
    assert len(wide) > 2
    loaded = {}
    select = ", ".join(f'"{name}"' for name in ["event_id", *wide])
    for event, *values in warehouse.execute(f"SELECT {select} FROM shop.events").fetchall():
        loaded[event] = {name: json.loads(text) for name, text in zip(wide, values, strict=True) if text is not None}
    assert any(loaded.values())
    merged = connection.execute(f"SELECT {select} FROM shop.events").fetchall()
    in_spark = [[row[name] for name in ["event_id", *wide]] for row in (one.asDict(recursive=True) for one in frame)]
    for rows in (merged, in_spark):
        found = {}
        for event, *values in rows:
            parsed = (json.loads(value) if layout == "events" and value else value for value in values)
            found[event] = {name: value for name, value in zip(wide, parsed, strict=True) if value is not None}
        assert (found if layout == "events" else as_json(found)) == loaded
