"""The view with the columns of the loader's table `manifest`, and the facts that it shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from manifest_platform.listing import Listing, ShreddedObject, ShreddedType
from manifest_platform.sources.snowplow.cutover import SnowplowLoader
from manifest_platform.sources.snowplow.manifest_view import about, manifest_view
from manifest_platform.sources.snowplow.settings import SnowplowLoadSettings, SnowplowSettings
from manifest_platform.warehouse.applied_view import query
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB

ATOMIC = "iglu:com.snowplowanalytics.snowplow/atomic/jsonschema/1-0-0"
CLICK, PAGE = "iglu:com.acme/click/jsonschema/1-0-0", "iglu:com.acme/page/jsonschema/2-0-0"
NOTHING = Listing("run", "attempt", 0, 0, 0, (), ())


def types(*found: tuple[str, str]) -> str | None:
    return about(replace(NOTHING, types=tuple(ShreddedType(key, table, 1) for key, table in found))).types


def test_types_are_told_as_the_loader_tells_them_whatever_the_layout():
    tables = types((ATOMIC, "events"), (PAGE, "com_acme_page_2"), (CLICK, "com_acme_click_1"), (CLICK, "com_acme_click_1"))
    assert tables and orjson.loads(tables) == [{"schemaKey": key, "format": "TSV"} for key in (CLICK, PAGE)]
    wide = types((ATOMIC, "events"), (CLICK, "events"))
    assert wide and orjson.loads(wide) == [{"schemaKey": CLICK, "format": "PARQUET", "transformation": "widerow"}]
    assert types() == "[]"


def test_types_that_no_warehouse_could_store_are_left_out():
    keys = [(f"iglu:com.acme/{'x' * 100}{n:03}/jsonschema/1-0-0", "x") for n in range(500)]
    assert types(*keys) is None
    assert len(orjson.loads(types(*keys[:300]) or "")) == 300


def test_the_first_and_the_last_time_are_those_of_the_table_that_is_asked_for():
    def written(table: str, first: str | None, last: str | None) -> ShreddedObject:
        return ShreddedObject(table, "2024-03-05", "uri", 1, 1, first, last)

    objects = (
        written("events", "2024-03-05T10:00:00Z", "2024-03-05T11:00:00.5Z"),
        written("events", None, None),
        written("other", "2020-01-01T00:00:00Z", None),
    )
    listing = replace(NOTHING, objects=objects)
    assert listing.times_of("events") == (
        datetime(2024, 3, 5, 10, tzinfo=UTC),
        datetime(2024, 3, 5, 11, 0, 0, 500_000, tzinfo=UTC),
    )
    assert listing.times_of("bad") is None


def test_what_the_former_loader_noted_is_what_the_view_shows_of_its_runs():
    at = datetime(2024, 3, 5, 10)
    row = dict.fromkeys(
        ("shredding_started", "shredding_completed", "min_collector_tstamp", "max_collector_tstamp", "ingestion_tstamp"), at
    ) | {
        "base": "s3://acme/transformed/run=2024-03-05-10-00-00/",
        "types": orjson.dumps([{"schemaKey": CLICK, "format": "TSV"}]).decode(),
        "compression": "GZIP",
        "processor_artifact": "snowplow-transformer-batch",
        "processor_version": "5.6.3",
        "count_good": 7,
    }
    [run] = SnowplowLoader().runs(list(row), [list(row.values())]).runs
    noted, zoned = run.about, at.replace(tzinfo=UTC)
    assert noted
    assert (noted.started, noted.completed, noted.first_time, noted.last_time) == (zoned,) * 4
    assert (noted.processor, noted.release, noted.compression) == ("snowplow-transformer-batch", "5.6.3", "GZIP")
    assert (noted.good, noted.types) == (7, row["types"])
    [bare] = SnowplowLoader().runs(["base", "ingestion_tstamp"], [["s3://acme/run/", at]]).runs
    assert bare.about and (bare.about.good, bare.about.types, bare.about.started) == (None, None, None)


def test_the_name_of_the_view_is_no_table_of_the_dataset():
    assert SnowplowLoadSettings(manifest_view="manifest").manifest_view == "manifest"
    for name in ("events", "bad", "Manifest", "a b"):
        with pytest.raises(ValidationError):
            SnowplowLoadSettings(manifest_view=name)
    shred: dict[str, Any] = {"output": "/out", "schemas": ["/iglu"], "tables": {"iglu:com.acme/click/jsonschema/1": "clicks"}}
    settings = {"landing": {"root": "/in"}, "shred": shred}
    SnowplowSettings.model_validate({**settings, "load": {"manifest_view": "manifest"}})
    with pytest.raises(ValidationError, match=r"load\.manifest_view clicks is a table in shred\.tables"):
        SnowplowSettings.model_validate({**settings, "load": {"manifest_view": "clicks"}})


def test_a_quote_in_a_name_ends_no_text(tmp_path: Path):
    assert "'it''s'" in query(DuckDB(tmp_path / "w.duckdb"), "it's", manifest_view("manifest"), "ledger")
