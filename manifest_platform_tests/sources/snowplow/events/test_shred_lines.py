"""Lines as rows, by the types of columns alone. test_validation.py has the checks against schemas."""

import gc
from datetime import date, datetime
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifest_platform.shred.rows import arrow_schema
from manifest_platform.sources.snowplow.events.atomic import EVENTS
from manifest_platform.sources.snowplow.events.shredder import ATOMIC, ShreddedEvents, shred_lines
from manifest_platform.sources.snowplow.fields import FIELDS
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform_tests.sources.snowplow.given import (
    CLICK,
    EVENT_ID,
    PAGE,
    acme_registry,
    contexts,
    enriched,
    entity,
    publish,
    unstruct,
)

TYPES = Rules(validate="types")
CLICKS = "com_acme_link_click_1"
PAGES = "com_acme_web_page_1"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return acme_registry(tmp_path_factory.mktemp("registry"))


@pytest.fixture(scope="module")
def resolver(registry: Path) -> Resolver:
    return Resolver([str(registry)])


def shredded(resolver: Resolver, *lines: bytes) -> ShreddedEvents:
    return shred_lines(b"".join(line + b"\n" for line in lines), resolver, "file:///f", rules=TYPES)


def only_event(resolver: Resolver, **fields: str) -> dict[str, Any]:
    result = shredded(resolver, enriched(**fields))
    assert result.bad.num_rows == 0, result.bad.to_pylist()
    (row,) = result.tables["events"].to_pylist()
    return row


def reasons(resolver: Resolver, line: bytes) -> list[dict[str, Any]]:
    """Returns the reasons of a bad line, and checks that no other table has anything of it."""
    result = shredded(resolver, line)
    assert (result.lines, result.good, result.bad.num_rows) == (1, 0, 1)
    assert result.tables == {}
    return orjson.loads(result.bad["reasons"][0].as_py())


def only_click(resolver: Resolver, data: Any) -> dict[str, Any]:
    result = shredded(resolver, enriched(unstruct_event=unstruct(entity(CLICK, data))))
    assert result.bad.num_rows == 0, result.bad.to_pylist()
    (row,) = result.tables[CLICKS].to_pylist()
    return row


def misfit(resolver: Resolver, data: Any) -> dict[str, Any]:
    (reason,) = reasons(resolver, enriched(unstruct_event=unstruct(entity(CLICK, data))))
    assert (reason["type"], reason["schema"]) == ("entity", CLICK)
    return reason


def test_an_event_is_typed(resolver: Resolver):
    row = only_event(
        resolver,
        event_id=EVENT_ID.upper(),
        collector_tstamp="2024-03-05 10:11:12.345678999",
        etl_tstamp="2024-03-05 10:11:13",
        txn_id="-17",
        geo_latitude="48.5",
        br_cookies="1",
        br_features_pdf="0",
        page_url="https://exämple.org",
        true_tstamp="0001-01-01 00:00:00.0",
        derived_tstamp="9999-12-31 23:59:59.999999999",
    )
    assert row["event_id"] == EVENT_ID
    assert row["collector_tstamp"] == datetime(2024, 3, 5, 10, 11, 12, 345678)
    assert row["etl_tstamp"] == datetime(2024, 3, 5, 10, 11, 13)
    assert (row["txn_id"], row["geo_latitude"], row["br_cookies"], row["br_features_pdf"]) == (-17, 48.5, True, False)
    assert row["page_url"] == "https://exämple.org"
    assert row["true_tstamp"] == datetime(1, 1, 1)
    assert row["derived_tstamp"] == datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert row["user_id"] is None
    assert len(row) == 128


def test_the_events_table_has_the_types_of_its_definition(resolver: Resolver):
    assert shredded(resolver, enriched()).tables["events"].schema == arrow_schema(EVENTS.columns)


def test_texts_are_whole_and_the_table_says_how_long_they_are(resolver: Resolver):
    result = shredded(resolver, enriched(geo_country="äöü", geo_region="äöü"))
    (row,) = result.tables["events"].to_pylist()
    assert (row["geo_country"], row["geo_region"]) == ("äöü", "äöü")
    types = {column.name: column.type for column in result.definitions["events"].columns}
    assert (types["geo_country"], types["geo_region"], types["geo_city"]) == ("string(4)", "string(3)", "string(75)")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("collector_tstamp", "2024-03-05T10:11:12"),
        ("collector_tstamp", "2024-03-05"),
        ("collector_tstamp", "2024-02-30 10:11:12"),
        ("collector_tstamp", "2024-03-05 24:00:00"),
        ("collector_tstamp", "2024-03-05 10:11:12.0000000001"),
        ("etl_tstamp", "0000-12-31 23:59:59.999"),
        ("etl_tstamp", "-2024-03-05 10:11:12"),
        ("etl_tstamp", "10000-01-01 00:00:00"),
        ("etl_tstamp", "2024-03-05 10:11:12.123 and more, beyond the microseconds"),
        ("event_id", "not-a-uuid"),
        ("event_id", f"{EVENT_ID}0"),
        ("txn_id", "2147483648"),
        ("txn_id", "1.5"),
        ("txn_id", "0x1F"),
        ("txn_id", "0X1F"),
        ("txn_id", " 1"),
        ("txn_id", "9" * 400),
        ("tr_total", "NaN"),
        ("tr_total", "Infinity"),
        ("tr_total", "-inf"),
        ("tr_total", "1e400"),
        ("tr_total", "12,50"),
        ("br_cookies", "true"),
        ("br_cookies", "2"),
        ("br_cookies", "01"),
    ],
)
def test_a_value_that_does_not_fit_its_field(resolver: Resolver, field: str, value: str):
    (reason,) = reasons(resolver, enriched(**{field: value}))
    assert (reason["type"], reason["field"], reason["value"]) == ("field", field, value)


@pytest.mark.parametrize("field", ["event_id", "collector_tstamp", "v_collector", "v_etl"])
def test_a_required_field_must_not_be_empty(resolver: Resolver, field: str):
    (reason,) = reasons(resolver, enriched(**{field: ""}))
    assert reason == {"type": "field", "field": field, "value": "", "message": "must not be empty"}


def test_only_the_bad_lines_of_a_column_are_bad(resolver: Resolver):
    lines = [enriched(txn_id="x" if number % 7 == 3 else str(number)) for number in range(100)]
    result = shredded(resolver, *lines)
    expected = [number + 1 for number in range(100) if number % 7 == 3]
    assert result.bad["line"].to_pylist() == expected
    assert result.tables["events"]["txn_id"].to_pylist() == [number for number in range(100) if number + 1 not in expected]


def test_the_number_of_fields(resolver: Resolver):
    assert reasons(resolver, b"no tab")[0]["type"] == "not_tsv"
    assert reasons(resolver, b"")[0]["type"] == "not_tsv"
    (reason,) = reasons(resolver, enriched() + b"\t")
    assert (reason["type"], "132 fields" in reason["message"]) == ("field_count", True)
    assert "130 fields" in reasons(resolver, enriched().removesuffix(b"\t"))[0]["message"]


def test_line_ends(resolver: Resolver):
    line = enriched(true_tstamp="2024-01-01 00:00:00")
    for data in (line, line + b"\r", line + b"\n", line + b"\r\n"):
        result = shred_lines(data, resolver)
        assert (result.lines, result.good) == (1, 1)
        assert result.tables["events"]["true_tstamp"].to_pylist() == [datetime(2024, 1, 1)]
    assert shred_lines(b"", resolver).lines == 0
    assert shred_lines(line + b"\n\n" + line, resolver).bad["line"].to_pylist() == [2]
    assert only_event(resolver, user_id="a\rb")["user_id"] == "a\rb"


def test_quotes_and_backslashes_mean_nothing(resolver: Resolver):
    assert only_event(resolver, user_id='"', page_title='a\\tb"c', app_id="\\N")["user_id"] == '"'
    assert only_event(resolver, user_id='"', page_title='a\\tb"c')["page_title"] == 'a\\tb"c'


def test_bytes_that_are_no_utf8_and_nul(resolver: Resolver):
    line = enriched(user_id="@1", app_id="@2", page_url="@3", txn_id="x").replace(b"@1", b"\xff").replace(b"@2", b"a\0b")
    found = reasons(resolver, line.replace(b"@3", b"\xc3"))
    assert {(reason["field"], reason["message"].split()[0]) for reason in found} == {
        ("user_id", "is"),
        ("app_id", "contains"),
        ("page_url", "is"),
        ("txn_id", "is"),
    }
    result = shredded(resolver, enriched(), b"\xc3\xa4\xff\0", enriched())
    assert result.bad.to_pylist()[0]["raw"] == "ä\ufffd\ufffd"
    assert result.good == 2
    (reason,) = reasons(resolver, enriched(txn_id="@").replace(b"@", b"\xff"))
    assert reason["message"] == "is not valid UTF-8"


def test_nul_alone_is_bad(resolver: Resolver):
    (reason,) = reasons(resolver, enriched(user_id="a\0b"))
    assert (reason["field"], reason["value"]) == ("user_id", "a\ufffdb")


def test_a_bad_row_says_where_and_has_the_raw_line(resolver: Resolver):
    data = b"\n".join([enriched(), b"bad one", enriched(), b"bad\ttwo"])
    result = shred_lines(data, resolver, "s3://b/f", 100)
    rows = result.bad.to_pylist()
    assert [(row["file"], row["line"], row["raw"]) for row in rows] == [
        ("s3://b/f", 101, "bad one"),
        ("s3://b/f", 103, "bad\ttwo"),
    ]
    assert (result.lines, result.good) == (4, 2)


def test_one_reason_for_each_problem(resolver: Resolver):
    nowhere = "iglu:com.acme/nowhere/jsonschema/1-0-0"
    line = enriched(txn_id="a", tr_total="b", br_cookies="c", contexts=contexts(entity(nowhere, {}), entity(PAGE, {"id": "x"})))
    found = reasons(resolver, line)
    assert [reason.get("field") for reason in found[:3]] == ["txn_id", "tr_total", "br_cookies"]
    assert len(found) == 4
    assert (found[3]["type"], found[3]["schema"], found[3]["field"]) == ("unknown_schema", nowhere, "contexts")


def test_entities_come_in_order_with_their_hierarchy(resolver: Resolver):
    first = enriched(
        contexts=contexts(entity(PAGE, {"id": "4"}), entity(PAGE, {"id": "4"}), entity(CLICK, {"targetUrl": "c"})),
        derived_contexts=contexts(entity(PAGE, {"id": "2"})),
        unstruct_event=unstruct(entity(PAGE, {"id": "1"})),
    )
    other_id = EVENT_ID.replace("c6", "d7")
    second = enriched(event_id=other_id, contexts=contexts(entity(PAGE, {"id": "5"})))
    result = shredded(resolver, enriched(), first, second)
    assert result.good == 3
    pages = result.tables[PAGES].to_pylist()
    assert [(row["id"], row["root_id"]) for row in pages] == [
        *[(number, EVENT_ID) for number in ("1", "2", "4", "4")],
        ("5", other_id),
    ]
    assert pages[0] == {
        "schema_vendor": "com.acme",
        "schema_name": "WebPage",
        "schema_format": "jsonschema",
        "schema_version": "1-0-0",
        "root_id": EVENT_ID,
        "root_tstamp": datetime(2024, 3, 5, 10, 11, 12, 345000),
        "ref_root": "events",
        "ref_tree": '["events","WebPage"]',
        "ref_parent": "events",
        "id": "1",
    }
    assert result.tables[CLICKS].num_rows == 1
    for name, table in result.tables.items():
        assert table.schema == arrow_schema(result.definitions[name].columns)


def test_an_entity_is_typed_by_its_schema(resolver: Resolver):
    row = only_click(
        resolver,
        {
            "targetUrl": "ä",
            "position": 7,
            "elementClasses": ["a", {"b": None}],
            "place": {"x": 1, "visible": True, "unknown": 1},
            "at": "2024-03-05T23:30:00.1234567-01:00",
            "day": "2024-02-29",
            "total": 9223372036854775807,
            "unknown": 5,
        },
    )
    assert {name: row[name] for name in list(row)[9:]} == {
        "target_url": "ä",
        "at": datetime(2024, 3, 6, 0, 30, 0, 123456),
        "day": date(2024, 2, 29),
        "element_classes": '["a",{"b":null}]',
        "place_visible": True,
        "place_x": 1.0,
        "position": 7,
        "total": 9223372036854775807,
    }


def test_null_and_missing_properties_are_null_columns(resolver: Resolver):
    for data in ({}, {"targetUrl": None, "position": None, "place": None, "elementClasses": None, "at": None}):
        assert set(list(only_click(resolver, data).values())[9:]) == {None}


def test_whole_floats_are_integers_and_any_number_is_the_nearest_double(resolver: Resolver):
    row = only_click(resolver, {"position": 7.0, "total": 2**60 + 1, "place": {"x": 2**60 + 1}})
    assert (row["position"], row["total"], row["place_x"]) == (7, 2**60 + 1, float(2**60))


def test_long_strings_are_whole_beside_a_misfit(resolver: Resolver):
    lines = [enriched(unstruct_event=unstruct(entity(CLICK, {"targetUrl": value}))) for value in ("ä" * 20, 5)]
    result = shredded(resolver, *lines)
    assert result.bad["line"].to_pylist() == [2]
    assert result.tables[CLICKS]["target_url"].to_pylist() == ["ä" * 20]
    assert {column.name: column.type for column in result.definitions[CLICKS].columns}["target_url"] == "string(32)"


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"targetUrl": 5}, "targetUrl"),
        ({"targetUrl": {"a": 1}}, "targetUrl"),
        ({"targetUrl": "a\0b"}, "targetUrl"),
        ({"elementClasses": ["\0"]}, "elementClasses"),
        ({"position": "5"}, "position"),
        ({"position": True}, "position"),
        ({"position": 1.5}, "position"),
        ({"position": 2147483648}, "position"),
        ({"total": 9223372036854775808}, "total"),
        ({"total": 1e300}, "total"),
        ({"place": {"x": "1"}}, "place.x"),
        ({"place": {"x": False}}, "place.x"),
        ({"place": {"visible": 1}}, "place.visible"),
        ({"place": [1]}, "place"),
        ({"place": "here"}, "place"),
        ({"at": 1}, "at"),
        ({"at": "yesterday"}, "at"),
        ({"at": "2024-02-30T00:00:00Z"}, "at"),
        ({"at": "0000-01-01T00:00:00Z"}, "at"),
        ({"at": "9999-12-31T23:59:59-05:00"}, "at"),
        ({"at": "2024-01-01"}, "at"),
        ({"day": "2024-13-01"}, "day"),
        ({"day": "20240101"}, "day"),
        ({"elementClasses": 7}, "elementClasses"),
        ({"elementClasses": {"0": "a"}}, "elementClasses"),
        ([], ""),
        ("text", ""),
        (None, ""),
        (5, ""),
    ],
)
def test_an_entity_that_does_not_fit(resolver: Resolver, data: Any, path: str):
    assert misfit(resolver, data)["path"] == path


def test_an_escaped_backslash_before_u0000_is_not_nul(resolver: Resolver):
    row = only_click(resolver, {"targetUrl": "\\u0000", "elementClasses": ["\\u0000"]})
    assert (row["target_url"], row["element_classes"]) == ("\\u0000", '["\\\\u0000"]')


def test_json_that_is_nested_too_deeply_makes_a_bad_row(resolver: Resolver):
    deep = "[" * 400 + "]" * 400
    text = f'{{"schema":"{CLICK}","data":{{"elementClasses":{deep}}}}}'
    line = enriched(unstruct_event=unstruct(1).replace('"data":1', f'"data":{text}'))
    (reason,) = reasons(resolver, line)
    assert (reason["type"], reason["path"]) == ("entity", "elementClasses")


def test_a_bad_entity_makes_its_event_bad_and_no_other(resolver: Resolver):
    good = enriched(contexts=contexts(entity(PAGE, {"id": "good"}), entity(CLICK, {"position": 1})))
    bad = enriched(contexts=contexts(entity(PAGE, {"id": "bad"}), entity(CLICK, {"position": "1", "total": "2"})))
    result = shredded(resolver, good, bad, good)
    assert result.bad["line"].to_pylist() == [2]
    assert [reason["path"] for reason in orjson.loads(result.bad["reasons"][0].as_py())] == ["position", "total"]
    assert result.tables["events"].num_rows == 2
    assert result.tables[PAGES]["id"].to_pylist() == ["good", "good"]
    assert result.tables[CLICKS]["position"].to_pylist() == [1, 1]


_UNSTRUCT = "iglu:com.snowplowanalytics.snowplow/unstruct_event/jsonschema/1-0-0"
_CONTEXTS = "iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-0"


@pytest.mark.parametrize(
    ("field", "text", "kind"),
    [
        ("contexts", "{", "field"),
        ("contexts", "NaN", "field"),
        ("contexts", '{"schema":"\\ud800"}', "field"),
        ("contexts", "[" * 3000, "field"),
        ("contexts", "[]", "wrapper_schema"),
        ("contexts", "null", "wrapper_schema"),
        ("contexts", "{}", "wrapper_schema"),
        ("contexts", '{"schema":[],"data":[]}', "wrapper_schema"),
        ("contexts", f'{{"schema":"{_UNSTRUCT}","data":[]}}', "wrapper_schema"),
        ("contexts", f'{{"schema":"{_CONTEXTS.replace("1-0-0", "2-0-0")}","data":[]}}', "wrapper_schema"),
        ("contexts", f'{{"schema":"{_CONTEXTS}","data":{{}}}}', "wrapper_schema"),
        ("contexts", f'{{"schema":"{_CONTEXTS}"}}', "wrapper_schema"),
        ("derived_contexts", f'{{"schema":"{_UNSTRUCT}","data":[]}}', "wrapper_schema"),
        ("unstruct_event", f'{{"schema":"{_CONTEXTS}","data":{{}}}}', "wrapper_schema"),
        ("unstruct_event", f'{{"schema":"{_UNSTRUCT}","data":[]}}', "entity"),
        ("unstruct_event", f'{{"schema":"{_UNSTRUCT}"}}', "entity"),
        ("contexts", f'{{"schema":"{_CONTEXTS}","data":[5]}}', "entity"),
        ("contexts", f'{{"schema":"{_CONTEXTS}","data":[{{"schema":"{PAGE}"}}]}}', "entity"),
        ("contexts", f'{{"schema":"{_CONTEXTS}","data":[{{"schema":{{}},"data":1}}]}}', "entity"),
        ("contexts", f'{{"schema":"{_CONTEXTS}","data":[{{"schema":5,"data":1}}]}}', "unknown_schema"),
        ("contexts", f'{{"schema":"{_CONTEXTS}","data":[{{"schema":"iglu:x","data":1}}]}}', "unknown_schema"),
    ],
)
def test_a_cell_that_holds_no_entities(resolver: Resolver, field: str, text: str, kind: str):
    (reason,) = reasons(resolver, enriched(**{field: text}))
    assert (reason["type"], reason["field"]) == (kind, field)


def test_later_wrapper_versions_are_accepted(resolver: Resolver):
    cell = contexts(entity(PAGE, {"id": "1"})).replace("1-0-0", "1-3-12", 1)
    assert shredded(resolver, enriched(contexts=cell)).good == 1


def test_versions_of_a_model_share_its_table(tmp_path: Path):
    publish(tmp_path, PAGE, {"properties": {"id": {"type": "string"}, "rootId": {"type": "string"}}})
    newer = PAGE.replace("1-0-0", "1-0-1")
    publish(tmp_path, newer, {"properties": {"id": {"type": "string"}, "added": {"type": "number"}}})
    cell = contexts(entity(newer, {"id": "a", "added": 2}), entity(PAGE, {"id": "b", "rootId": "mine"}))
    (new, old) = shredded(Resolver([str(tmp_path)]), enriched(contexts=cell)).tables[PAGES].to_pylist()
    assert (new["schema_version"], new["id"], new["added"]) == ("1-0-1", "a", 2.0)
    assert (old["schema_version"], old["id"], old["added"]) == ("1-0-0", "b", None)
    assert (old["root_id"], old["root_id_"]) == (EVENT_ID, "mine")


def test_a_version_that_contradicts_the_others_goes_to_its_own_table(tmp_path: Path):
    newer = PAGE.replace("1-0-0", "1-0-1")
    publish(tmp_path, PAGE, {"properties": {"id": {"type": "string"}}})
    publish(tmp_path, newer, {"properties": {"id": {"type": "integer"}}})
    result = shredded(
        Resolver([str(tmp_path)]), enriched(contexts=contexts(entity(PAGE, {"id": "a"}), entity(newer, {"id": 7})))
    )
    assert (result.good, result.tables[PAGES]["id"].to_pylist()) == (1, ["a"])
    (recovered,) = (name for name in result.tables if name.startswith(f"{PAGES}_recovered_1_0_1_"))
    assert result.tables[recovered]["id"].to_pylist() == [7]
    assert result.types[recovered] == {newer: 1}


@pytest.mark.parametrize(
    "rules", [TYPES, Rules(), Rules(rows="lake"), Rules(rows="events")], ids=lambda rules: rules.rows + rules.validate
)
def test_nothing_that_was_parsed_waits_for_the_garbage_collector(registry: Path, rules: Rules):
    lines = b"".join(enriched(contexts=contexts(entity(PAGE, {"id": f"{number}"}))) + b"\n" for number in range(50))
    resolver = Resolver([str(registry)], rules=rules)
    shred_lines(lines, resolver, rules=rules)
    gc.collect()
    gc.disable()
    try:
        shred_lines(lines, resolver, rules=rules)
        assert gc.collect() == 0, "a circle of objects keeps the parsed entities of its model"
    finally:
        gc.enable()


def test_garbage_collection_is_restored(resolver: Resolver):
    assert gc.isenabled()
    shredded(resolver, enriched())
    assert gc.isenabled()
    gc.disable()
    try:
        shredded(resolver, enriched())
        assert not gc.isenabled()
    finally:
        gc.enable()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["targetUrl", "place", "x", "at"]), inner),
    max_leaves=8,
)
_CELL = st.one_of(
    st.builds(lambda *data: contexts(*(entity(CLICK, each) for each in data)), _JSON, _JSON).map(str),
    st.builds(lambda data: unstruct(entity(CLICK, data)), _JSON.filter(lambda value: _writable(value))),
    st.text(max_size=9),
)


def _writable(value: Any) -> bool:
    try:
        return bool(orjson.dumps(value))
    except TypeError:
        return False


_WRITABLE = _JSON.filter(_writable)
_LINE = st.one_of(
    st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")),
    st.dictionaries(st.sampled_from([field.name for field in FIELDS]), st.text(max_size=12), max_size=4).map(
        lambda fields: enriched(
            **{name: value.encode("utf-8", "replace").decode().replace("\n", "") for name, value in fields.items()}
        )
    ),
    st.builds(
        lambda first, second: enriched(
            contexts=contexts(entity(CLICK, first), entity(PAGE, second)), unstruct_event=unstruct(entity(CLICK, second))
        ),
        _WRITABLE,
        _WRITABLE,
    ),
    st.builds(
        lambda start, data, end: start + data + end, st.just(enriched()[:300]), st.binary(max_size=9), st.just(b"\t")
    ).map(lambda data: data.replace(b"\n", b"")),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_LINE, max_size=8))
def test_any_lines_are_good_or_bad(resolver: Resolver, lines: list[bytes]):
    result = shredded(resolver, *lines)
    assert result.lines == len(lines) == result.good + result.bad.num_rows
    assert result.good == (result.tables["events"].num_rows if "events" in result.tables else 0)
    assert len(set(result.bad["line"].to_pylist())) == result.bad.num_rows
    for name, table in result.tables.items():
        table.validate(full=True)
        assert table.schema == arrow_schema(result.definitions[name].columns)
        for column in table.schema:
            assert column.nullable or table[column.name].null_count == 0
            if pa.types.is_string(column.type):
                assert not any("\0" in (value or "") for value in table[column.name].to_pylist())
    one_by_one = [shredded(resolver, line) for line in lines]
    assert sum(each.good for each in one_by_one) == result.good
    assert [number + 1 for number, each in enumerate(one_by_one) if not each.good] == result.bad["line"].to_pylist()


def test_types_are_counted_by_version_and_bad_lines_not(tmp_path: Path) -> None:
    registry = acme_registry(tmp_path)
    key = CLICK.rpartition("/")[0]
    publish(registry, f"{key}/1-0-1", {"type": "object", "properties": {"targetUrl": {"type": "string"}}})
    one, other = entity(CLICK, {"targetUrl": "a"}), entity(f"{key}/1-0-1", {"targetUrl": "b"})
    good = [enriched(contexts=contexts(one, other, other)), enriched(contexts=contexts(other)), enriched()]
    bad = enriched(contexts=contexts(one, {"schema": "iglu:com.acme/nothing/jsonschema/1-0-0", "data": {}}))
    result = shredded(Resolver([str(registry)]), *good, bad)
    assert result.types == {"events": {ATOMIC: 3}, CLICKS: {CLICK: 1, f"{key}/1-0-1": 3}}
    assert {name: sum(types.values()) for name, types in result.types.items()} == {
        name: table.num_rows for name, table in result.tables.items()
    }
