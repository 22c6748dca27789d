from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import orjson
import pytest

from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform.sources.snowplow.transformed.tsv import Model, shred_entities, shred_events
from manifest_platform_tests.sources.snowplow.given import CLICK, CLICK_SCHEMA, publish
from manifest_platform_tests.sources.snowplow.transformed.given import CLICK_TSV, event, row

KEY = SchemaKey.parse(CLICK)
LATER = "iglu:com.acme/link_click/jsonschema/1-0-1"


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    publish(tmp_path, CLICK, CLICK_SCHEMA)
    return tmp_path


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def reasons(bad: Any) -> list[tuple[int, str, str]]:
    found = ((line["line"], orjson.loads(line["reasons"])[0]) for line in bad.to_pylist())
    return [(line, one.get("field", one["type"]), one["message"]) for line, one in found]


def test_events_are_typed_as_those_of_enriched_lines():
    shredded = shred_events(lines(event(0, tr_total="1.50", br_cookies="1"), event(1, page_urlport="443")), "file", 1)
    first, second = shredded.tables["events"].to_pylist()
    assert (float(first["tr_total"]), first["br_cookies"], first["app_id"], first["event_fingerprint"]) == (
        1.5,
        True,
        "shop",
        None,
    )
    assert (second["page_urlport"], second["derived_tstamp"]) == (443, None)
    assert (shredded.lines, shredded.good, shredded.bad.num_rows) == (2, 2, 0)


def test_an_events_line_that_does_not_fit_is_bad_with_its_reason_and_its_text():
    short, wrong = "a\tb", event(1, page_urlport="x")
    shredded = shred_events(lines(event(0), short, wrong, "\t" * 130), "file", 5)
    assert reasons(shredded.bad) == [
        (6, "field_count", "the line has 2 fields; a transformed event has 128"),
        (7, "page_urlport", "is no 32-bit integer"),
        (8, "field_count", "the line has 131 fields; a transformed event has 128"),
    ]
    assert shredded.bad["raw"].to_pylist()[:2] == [short, wrong]
    assert (shredded.lines, shredded.good) == (4, 1)


def test_entities_are_typed_by_their_schemas(registry: Path):
    shredded = shred_entities(lines(row(CLICK, CLICK_TSV)), Model(Resolver([str(registry)]), KEY), "file", 1)
    [click] = shredded.tables["com_acme_link_click_1"].to_pylist()
    assert (click["schema_version"], click["root_id"], str(click["root_tstamp"])) == (
        "1-0-0",
        "c6ef3124-b53a-4b13-a233-0088f79d0000",
        "2024-03-05 10:11:12.345000",
    )
    found = {name: value for name, value in click.items() if not name.startswith(("schema_", "root_", "ref_"))}
    assert found == {
        "target_url": "http://acme",
        "at": None,
        "day": date(2024, 3, 5),
        "element_classes": '["a","b"]',
        "place_visible": True,
        "place_x": 1.5,
        "position": 7,
        "total": None,
    }
    assert (shredded.types, shredded.good) == ({"com_acme_link_click_1": {CLICK: 1}}, 0)


def test_json_with_an_escaped_nul_is_bad(registry: Path):
    place = CLICK_TSV.index('["a","b"]')
    texts = ['["\\u0000"]', '["\\\\u0000"]', "\\u0000 is no JSON"]
    rows = [row(CLICK, (*CLICK_TSV[:place], text, *CLICK_TSV[place + 1 :])) for text in texts]
    shredded = shred_entities(lines(*rows), Model(Resolver([str(registry)]), KEY), "file", 1)
    assert reasons(shredded.bad)[0][:2] == (1, "element_classes")
    assert orjson.loads(shredded.tables["com_acme_link_click_1"]["element_classes"].to_pylist()[0]) == ["\\u0000"]


def test_columns_of_later_versions_are_at_the_end_and_may_be_missing(registry: Path):
    properties: Any = CLICK_SCHEMA["properties"]
    later = {**CLICK_SCHEMA, "properties": {**properties, "a": {"type": "string"}}}
    publish(registry, LATER, later)
    model = Model(Resolver([str(registry)]), KEY)
    shredded = shred_entities(lines(row(CLICK, CLICK_TSV), row(LATER, (*CLICK_TSV, "new"))), model, "file", 1)
    rows = shredded.tables["com_acme_link_click_1"].to_pylist()
    assert [(one["schema_version"], one["target_url"], one["a"]) for one in rows] == [
        ("1-0-0", "http://acme", None),
        ("1-0-1", "http://acme", "new"),
    ]
    assert shredded.types == {"com_acme_link_click_1": {CLICK: 1, LATER: 1}}


def test_a_file_of_an_exact_version_has_the_columns_of_that_version_by_name(registry: Path):
    properties: Any = CLICK_SCHEMA["properties"]
    later = {**CLICK_SCHEMA, "properties": {**properties, "a": {"type": "string"}}}
    publish(registry, LATER, later)
    exact = Model(Resolver([str(registry)]), KEY, SchemaKey.parse(LATER))
    shredded = shred_entities(lines(row(LATER, (CLICK_TSV[0], "new", *CLICK_TSV[1:]))), exact, "file", 1)
    [click] = shredded.tables["com_acme_link_click_1"].to_pylist()
    assert (click["target_url"], click["a"], click["position"]) == ("http://acme", "new", 7)


def test_an_entity_that_does_not_fit_is_bad_with_its_reason(registry: Path):
    model = Model(Resolver([str(registry)]), KEY)
    wrong = row(CLICK, (*CLICK_TSV[:6], "many", "\\N"))
    unknown = row("iglu:com.acme/link_click/jsonschema/1-0-9", CLICK_TSV)
    shredded = shred_entities(lines(row(CLICK, (*CLICK_TSV, "more")), wrong, unknown, row(CLICK, CLICK_TSV)), model, "file", 1)
    found = reasons(shredded.bad)
    assert [(line, field) for line, field, _ in found] == [(1, "field_count"), (2, "position"), (3, "unknown_schema")]
    assert "publish that first" in found[0][2]
    assert shredded.tables["com_acme_link_click_1"].num_rows == 1


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ({"type": "string", "format": "date-time"}, "2021-10-13T20:21:47.595072674Z", "2021-10-13 20:21:47.595072"),
        ({"type": "string", "format": "date-time"}, "2021-10-13T20:21:47+02:00", "2021-10-13 18:21:47"),
        ({"type": "object"}, '{"n":12345678901234567890}', '{"n":12345678901234567890}'),
        ({"type": "array"}, "no json", '"no json"'),
        ({"type": "boolean"}, "0", "False"),
        ({"type": "integer"}, "9007199254740993", "9007199254740993"),
    ],
)
def test_text_becomes_the_value_that_it_says(tmp_path: Path, type_: dict[str, Any], text: str, value: str):
    key = "iglu:com.acme/x/jsonschema/1-0-0"
    publish(tmp_path, key, {"type": "object", "properties": {"a": type_}})
    shredded = shred_entities(lines(row(key, (text,))), Model(Resolver([str(tmp_path)]), SchemaKey.parse(key)), "file", 1)
    [found] = shredded.tables["com_acme_x_1"].to_pylist()
    assert str(found["a"]) == value
