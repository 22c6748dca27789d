"""Schemas that change over runs, from the landing to the warehouse."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from manifest_platform.operations.doctor import Doctor
from manifest_platform.pipeline.discovery import discover
from manifest_platform_tests.pipeline.shop import FIRST, STEP, Shop, drained, run_name
from manifest_platform_tests.sources.snowplow.given import contexts, enriched, entity, publish

TEXT = {"type": "string", "maxLength": 10}
ORDER = {
    "1-0-0": {"id": TEXT, "items": {"type": "integer", "maximum": 100}},
    "1-0-1": {"id": {**TEXT, "maxLength": 40}, "items": {"type": "integer"}},
    "1-1-0": {"id": TEXT, "items": {"type": "integer"}, "total": {"type": "number", "multipleOf": 0.01, "maximum": 1000}},
    "1-1-1": {"id": TEXT, "items": TEXT},
    "2-0-0": {"id": TEXT, "items": {"type": "boolean"}},
}
CART = {
    "1-0-0": {"place": {"type": "object", "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 9}}}},
    "1-0-1": {"place": {"type": "object", "properties": {"x": {"type": "number"}, "b": TEXT}}},
    "1-1-0": {"place": {"type": "object", "properties": {"a": {"type": "string", "format": "date"}}}, "added": TEXT},
    "1-1-1": {"place": {"type": "object", "properties": {"x": {"type": "boolean"}}}},
    "2-0-0": {"place": TEXT},
}
VALUES = {
    "order": {
        "1-0-0": {"id": "a", "items": 7},
        "1-0-1": {"id": "b" * 40, "items": 2**40},
        "1-1-0": {"id": "c", "total": 9.99},
        "1-1-1": {"id": "d", "items": "many"},
        "2-0-0": {"id": "e", "items": True},
    },
    "cart": {
        "1-0-0": {"place": {"x": 1}},
        "1-0-1": {"place": {"x": 2.5, "b": "y"}},
        "1-1-0": {"place": {"a": "2024-05-14"}, "added": "z"},
        "1-1-1": {"place": {"x": True}},
        "2-0-0": {"place": "here"},
    },
}
EARLIER, LATER = ("1-0-0", "1-0-1", "1-1-1"), ("1-1-0", "2-0-0")


def write(shop: Shop, number: int, versions: tuple[str, ...]) -> None:
    """Writes a run with an event for each version, which has an entity of each family."""
    lines = []
    for version in versions:
        cell = contexts(*(entity(f"iglu:com.acme/{name}/jsonschema/{version}", VALUES[name][version]) for name in VALUES))
        time = f"{FIRST + number * STEP - timedelta(minutes=1):%Y-%m-%d %H:%M:%S}.000"
        lines.append(enriched(event_id=str(uuid.uuid5(uuid.NAMESPACE_URL, version)), collector_tstamp=time, contexts=cell))
    folder = shop.directory(number)
    folder.mkdir()
    (folder / "part-00000.tsv").write_bytes(b"".join(line + b"\n" for line in lines))
    (folder / "_SUCCESS").write_bytes(b"")


@pytest.mark.long
def test_tables_and_columns_do_not_depend_on_the_order_in_which_versions_arrive(spark: Any, tmp_path: Path) -> None:
    for name, versions in (("order", ORDER), ("cart", CART)):
        for version, properties in versions.items():
            publish(tmp_path, f"iglu:com.acme/{name}/jsonschema/{version}", {"type": "object", "properties": properties})
    layouts, rows, notes = [], [], []
    for place, runs in enumerate(((EARLIER, LATER), (LATER, EARLIER))):
        shop = Shop(tmp_path / f"shop{place}", shred={"schemas": [str(tmp_path)]})
        with shop.open() as pipeline:
            for number, versions in enumerate(runs):
                write(shop, number, versions)
                discover(pipeline, everything=True)
                _, report = drained(pipeline, spark)
                assert (report.loaded, report.failed) == (1, 0), run_name(number)
            notes.append(Doctor(pipeline).notes())
        with duckdb.connect(str(shop.home / "warehouse.duckdb"), read_only=True) as warehouse:
            layouts.append(
                warehouse.execute(
                    "SELECT table_name, column_index, column_name, data_type FROM duckdb_columns() WHERE schema_name = 'shop'"
                    " ORDER BY ALL"
                ).fetchall()
            )
            tables = sorted({table for table, *_ in layouts[-1] if table.startswith("com_acme")})
            query = "SELECT * EXCLUDE (load_tstamp, root_tstamp) FROM shop.{} ORDER BY ALL"
            rows.append({table: warehouse.execute(query.format(table)).fetchall() for table in tables})
            assert warehouse.execute("SELECT count(*) FROM shop.bad").fetchall() == [(0,)]
    assert layouts[0] == layouts[1]
    assert rows[0] == rows[1]
    assert {re.sub("_[0-9a-f]{8}$", "", table): len(found) for table, found in rows[0].items()} == {
        "com_acme_order_1": 3,
        "com_acme_order_1_recovered_1_1_1": 1,
        "com_acme_order_2": 1,
        "com_acme_cart_1": 3,
        "com_acme_cart_1_recovered_1_1_1": 1,
        "com_acme_cart_2": 1,
    }
    assert notes[0] == notes[1]
    assert [re.sub(r"table (com_acme_\w+_recovered_1_1_1)_.*", r"\1", note) for note in notes[0]] == [
        "com_acme_cart_1_recovered_1_1_1",
        "com_acme_order_1_recovered_1_1_1",
    ]
