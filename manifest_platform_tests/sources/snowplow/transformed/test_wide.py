from __future__ import annotations

import io
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyarrow import parquet

from manifest_platform.shred.batch import Unusable
from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents
from manifest_platform.sources.snowplow.transformed.wide import shred_parquet
from manifest_platform_tests.sources.snowplow.transformed.given import wide_table

CLICKS = "contexts_com_acme_link_click_1"


def shredded(table: pa.Table, rows: int = 100, **options: Any) -> list[ShreddedEvents]:
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    file.seek(0)
    return [events for _, events in shred_parquet(file, "file", rows)]


def entities(*values: Any, name: str = CLICKS) -> pa.Table:
    return wide_table({name: pa.array(values)}, len(values))


def test_entities_become_json_of_what_the_structs_hold():
    values = [
        [{"target_url": "http://acme", "position": None}, {"target_url": 'a "b"\n', "position": 2}],
        None,
        [],
    ]
    [events] = shredded(entities(*values))
    assert events.tables["events"][CLICKS].to_pylist() == [
        '[{"target_url":"http://acme"},{"target_url":"a \\"b\\"\\n","position":2}]',
        None,
        "[]",
    ]
    assert (events.good, events.bad.num_rows) == (3, 0)
    assert [column.type for column in events.definitions["events"].columns if column.name == CLICKS] == ["json"]


def test_an_event_of_its_own_is_an_object():
    value = {
        "at": datetime(2024, 3, 5, 10, 11, 12, tzinfo=UTC),
        "price": Decimal("12345678901234567.89"),
        "inner": {"x": [1, 2]},
    }
    [events] = shredded(entities(value, name="unstruct_event_com_acme_sale_1"))
    [text] = events.tables["events"]["unstruct_event_com_acme_sale_1"].to_pylist()
    assert text == '{"at":"2024-03-05T10:11:12Z","price":12345678901234567.89,"inner":{"x":[1,2]}}'


@pytest.mark.parametrize("year", [1600, 2024, 2999])
def test_timestamps_in_the_form_of_old_releases_of_spark_keep_their_value(year: int):
    """Nanoseconds, as INT96 is read by default, end in 1677 and in 2262; a client's clock may tell any time."""
    at = datetime(year, 3, 5, 10, 11, 12, 345000)
    inner = pa.array([[{"at": at}]], pa.list_(pa.struct([("at", pa.timestamp("us"))])))
    table = wide_table({CLICKS: inner}, 1, dvce_created_tstamp=at)
    [events] = shredded(table, use_deprecated_int96_timestamps=True)
    assert events.tables["events"]["dvce_created_tstamp"].to_pylist() == [at]
    assert events.tables["events"][CLICKS].to_pylist() == [f'[{{"at":"{year}-03-05T10:11:12.345000Z"}}]']


def test_text_that_parquet_marks_as_json_is_the_value_that_it_says():
    attributes = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"n":12345678901234567890}']))
    structs = pa.StructArray.from_arrays([attributes, pa.array(['{"no":1}'])], ["attributes", "name"])
    column = pa.ListArray.from_arrays([0, 1], structs)
    [events] = shredded(wide_table({CLICKS: column}, 1))
    [text] = events.tables["events"][CLICKS].to_pylist()
    assert text == '[{"attributes":{"n":12345678901234567890},"name":"{\\"no\\":1}"}]'


@pytest.mark.parametrize("text", ["{", '1}, "evil": {"x": 1', "", '{"a":1e400}', "[" * 1100 + "]" * 1100])
def test_a_row_with_json_that_cannot_be_parsed_is_bad_and_the_others_are_good(text: str):
    values = pa.array(['{"a":1}', text, None], pa.json_())
    [events] = shredded(wide_table({CLICKS: pa.StructArray.from_arrays([values], ["extra"])}, 3))
    assert events.tables["events"][CLICKS].to_pylist() == ['{"extra":{"a":1}}', "{}"]
    [bad] = events.bad.to_pylist()
    [reason] = orjson.loads(bad["reasons"])
    assert (bad["line"], reason["type"], reason["field"]) == (2, "field", CLICKS)
    assert reason["message"].startswith("cannot be parsed as JSON: ")
    assert orjson.loads(bad["raw"])[CLICKS]["extra"] == text


def test_events_have_the_types_of_enriched_events():
    table = wide_table({}, 2, app_id="shop", br_cookies=True, page_urlport=443)
    [events] = shredded(table)
    first = events.tables["events"].to_pylist()[0]
    assert (first["app_id"], first["br_cookies"], first["page_urlport"]) == ("shop", True, 443)
    assert first["collector_tstamp"] == datetime(2024, 3, 5, 10, 11, 12, 345000)


def test_a_missing_column_is_null_and_a_large_file_comes_in_parts():
    table = wide_table({}, 25).drop_columns(["tr_total"])
    parts = shredded(table, rows=10)
    assert [part.good for part in parts] == [10, 10, 5]
    assert parts[0].tables["events"]["tr_total"].null_count == 10


def test_rows_without_a_required_value_or_with_nul_are_bad():
    table = wide_table({CLICKS: pa.array([None, None, [{"a": "x\0y"}], None])}, 4)
    ids = ["", None, *table["event_id"].to_pylist()[2:]]
    table = table.set_column(table.column_names.index("event_id"), "event_id", pa.array(ids, pa.string()))
    table = table.set_column(table.column_names.index("app_id"), "app_id", pa.array(["a", "b", "c", "d\0e"]))
    [events] = shredded(table)
    bad = [(row["line"], orjson.loads(row["reasons"])[0]["field"]) for row in events.bad.to_pylist()]
    assert bad == [(2, "event_id"), (3, CLICKS), (4, "app_id")]
    assert events.good == 1
    assert "\0" not in "".join(events.bad["raw"].to_pylist())


def test_a_backslash_before_u0000_is_no_nul():
    texts = ["\\u0000", "\\\\u0000", "\\\\\0"]
    [events] = shredded(entities(*([{"a": text}] for text in texts)))
    assert [orjson.loads(text)[0]["a"] for text in events.tables["events"][CLICKS].to_pylist()] == texts[:2]
    assert events.bad["line"].to_pylist() == [3]


def test_a_time_beyond_the_year_9999_in_an_entity_is_told():
    late = pa.array([4 * 10**17]).cast(pa.timestamp("us"))
    with pytest.raises(Unusable, match="date value out of range"):
        shredded(wide_table({CLICKS: pa.ListArray.from_arrays([0, 1], pa.StructArray.from_arrays([late], ["at"]))}, 1))


def test_other_files_are_refused():
    with pytest.raises(Unusable, match="cannot be read as wide rows in Parquet"):
        list(shred_parquet(io.BytesIO(b"PAR1 no parquet"), "file"))
    with pytest.raises(Unusable, match="has the column strange"):
        shredded(wide_table({"strange": pa.array([1])}, 1))
    for array in (pa.array([b"\xff"]), pa.array([b"\xff"]).view(pa.string())):
        with pytest.raises(Unusable, match="cannot be read as wide rows in Parquet"):
            shredded(wide_table({CLICKS: pa.StructArray.from_arrays([array], ["a"])}, 1))
    wrong = wide_table({}, 1).drop_columns(["txn_id"]).append_column("txn_id", pa.array(["x"]))
    with pytest.raises(Unusable, match="the column txn_id has a value that does not fit integer"):
        shredded(wrong)
