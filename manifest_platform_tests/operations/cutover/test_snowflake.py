"""The cutover on Snowflake's stand-in, with the wide table that Snowplow's loader makes there.

The loader's table has upper-case names, ARRAY columns for contexts and OBJECT columns for the event's own entity.
"""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.operations.cutover import adopt, compare, look
from manifest_platform.operations.doctor import Doctor
from manifest_platform.pipeline import Stop
from manifest_platform.warehouse.control_table import ControlTable
from manifest_platform_tests.operations.cutover import former
from manifest_platform_tests.pipeline.shop import EVENTS, NAME, Shop, drained, run_names
from manifest_platform_tests.servers.snowflake import PASSWORD, URL, Sessions, settings_of
from manifest_platform_tests.sources.snowplow import published

NOTED = datetime(2024, 5, 15, tzinfo=UTC)
WAREHOUSE = {
    "kind": "snowflake",
    "url": URL,
    "password_variable": PASSWORD,
    "stage": "PUBLIC.SHREDDED",
    "json_columns": "variant",
}
NOTES = (
    "base VARCHAR(512) NOT NULL, types VARCHAR(65535) NOT NULL, shredding_started TIMESTAMP_NTZ NOT NULL, "
    "shredding_completed TIMESTAMP_NTZ NOT NULL, min_collector_tstamp TIMESTAMP_NTZ, max_collector_tstamp TIMESTAMP_NTZ, "
    "ingestion_tstamp TIMESTAMP_NTZ NOT NULL, compression VARCHAR(16) NOT NULL, processor_artifact VARCHAR(64) NOT NULL, "
    "processor_version VARCHAR(32) NOT NULL, count_good INTEGER"
)


def shop_of(home: Path, schema: str) -> Shop:
    return Shop(home, warehouse=WAREHOUSE, shred={"rows": "events"}, load={"schema_name": schema})


@pytest.fixture
def shop(tmp_path: Path, spark: Any, snowflake_sessions: Sessions) -> Shop:
    """A shop of four runs, of which Snowplow's loader has loaded the first two."""
    beside = shop_of(tmp_path, former.BESIDE)
    beside.shredded(spark, 4)
    with beside.open() as pipeline:
        drained(pipeline)
    with closing(settings_of(json_columns="variant").open()) as engine:
        theirs = engine.columns(former.BESIDE)["events"]
        atomic = {one.name: one.type for one in published.events("snowflake")}
        wide = {name: "ARRAY" if name.startswith("contexts_") else "OBJECT" for name in theirs if name not in atomic}
        wide.pop("load_tstamp", None)
        columns = ", ".join(f"{name} {type_}" for name, type_ in {**atomic, **wide}.items())
        engine.execute(f"CREATE SCHEMA {former.SCHEMA}")
        engine.execute(f"CREATE TABLE {former.SCHEMA}.events ({columns})")
        engine.execute(f"CREATE TABLE {former.SCHEMA}.manifest ({NOTES})")
        shared = ", ".join(name for name in theirs if name in atomic or name in wide)
        query = f"SELECT item, applied_at FROM {ControlTable(engine, 'ledger', NAME, {}).qualified}"
        for item, at in engine.execute(query):
            name = item.rpartition("/")[2]
            if name not in run_names(0, 1):
                continue
            rows = f"SELECT {shared} FROM {former.BESIDE}.events WHERE load_tstamp = ?"
            engine.write(f"INSERT INTO {former.SCHEMA}.events ({shared}) {rows}", (at,))
            told = json.dumps([{"schemaKey": former.LINK_CLICK, "format": "WIDEROW"}])
            noted = NOTED.replace(tzinfo=None)
            values = (f"s3://acme/{name}/", told, noted, noted, None, None, noted, "NONE", "transformer", "5.6.3", EVENTS)
            engine.write(f"INSERT INTO {former.SCHEMA}.manifest VALUES ({', '.join('?' for _ in values)})", values)
    return beside


@pytest.mark.long
def test_loads_go_on_in_the_wide_table_of_snowplows_loader(shop: Shop, spark: Any) -> None:
    with closing(settings_of(json_columns="variant").open()) as engine:
        engine.execute("DROP SCHEMA manifest_platform CASCADE")
    (shop.home / "manifest.db").unlink()
    shop = shop_of(shop.home, former.SCHEMA)
    with shop.open() as pipeline:
        found = look(pipeline)
        assert (found.hindrances, found.rows, found.noted) == ([], 2 * EVENTS, 2 * EVENTS)
        assert [*found.runs] == run_names(0, 1)
        assert (adopt(pipeline).entered, adopt(pipeline).entered) == (2, 0)
        shop.land(pipeline)
        report = drained(pipeline, spark)[1]
        assert (report.stop, report.loaded, report.failed) == (Stop.IDLE, 2, 0)
        assert Doctor(pipeline).examine().findings == []
    with closing(settings_of(json_columns="variant").open()) as engine:
        counts = (
            "count(*), count(DISTINCT event_id), count(contexts_com_acme_page_1), count(unstruct_event_com_acme_link_click_1)"
        )
        [ours], [all_] = (
            engine.execute(f"SELECT {counts} FROM {engine.qualified(schema, 'events')}") for schema in ("atomic", "beside")
        )
        assert ours == all_ and ours[:2] == (4 * EVENTS, 4 * EVENTS)
        page = "contexts_com_acme_page_1[0]:kind::VARCHAR"
        kinds = f"SELECT {page}, count(*) FROM {{}} GROUP BY 1 ORDER BY 1"
        assert engine.execute(kinds.format("atomic.events")) == engine.execute(kinds.format("beside.events"))


@pytest.mark.long
def test_rows_of_the_wide_table_are_compared_run_by_run(shop: Shop) -> None:
    with shop.open() as pipeline:
        assert [one for one in compare(pipeline) if not one.same] == []
    with closing(settings_of(json_columns="variant").open()) as engine:
        [(first,)] = engine.execute("SELECT min(event_id) FROM atomic.events")
        engine.write("UPDATE atomic.events SET user_id = 'somebody else' WHERE event_id = ?", (first,))
    with shop.open() as pipeline:
        [found] = [one for one in compare(pipeline) if not one.same]
        assert (found.ours, found.theirs, found.different) == (EVENTS, EVENTS, 1)
