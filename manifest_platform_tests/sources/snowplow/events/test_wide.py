"""Events with their entities in columns of their own: `rows: events`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snowplow_analytics_sdk.json_shredder import fix_schema

from manifest_platform.sources.snowplow.events.atomic import EVENTS
from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents, shred_lines
from manifest_platform.sources.snowplow.events.wide import column_name
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform_tests.sources.snowplow import published
from manifest_platform_tests.sources.snowplow.given import (
    CLICK,
    PAGE,
    acme_registry,
    contexts,
    enriched,
    entity,
    publish,
    unstruct,
)

ANY = "iglu:com.acme/anything/jsonschema/1-0-2"
CLICKS, PAGES = "contexts_com_acme_link_click_1", "contexts_com_acme_web_page_1"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = acme_registry(tmp_path_factory.mktemp("registry"))
    publish(root, ANY, {"type": "object"})
    for one in published.read():
        properties: dict[str, Any] = {name: {} for name in one.properties}
        publish(root, f"{one.family}-0-0", {"type": "object", "properties": properties})
    return root


@pytest.fixture(scope="module")
def resolver(registry: Path) -> Resolver:
    return Resolver([str(registry)])


def shredded(resolver: Resolver, *lines: bytes, rows: Any = "events") -> ShreddedEvents:
    return shred_lines(b"".join(line + b"\n" for line in lines), resolver, "file:///f", rules=Rules(rows=rows))


def parsed(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the columns of entities in a row that have a value."""
    return {name: orjson.loads(row[name]) for name in list(row)[len(EVENTS.columns) :] if row[name] is not None}


def only_row(resolver: Resolver, **fields: str) -> dict[str, Any]:
    result = shredded(resolver, enriched(**fields))
    assert result.bad.num_rows == 0, result.bad.to_pylist()
    assert list(result.tables) == ["events"]
    (row,) = result.tables["events"].to_pylist()
    return parsed(row)


def test_contexts_are_arrays_and_the_events_own_entity_is_an_object(resolver):
    found = only_row(
        resolver,
        unstruct_event=unstruct(entity(CLICK, {"targetUrl": "a", "place": {"x": 1.5}})),
        contexts=contexts(entity(PAGE, {"id": "1"}), entity(PAGE, {"id": "2"})),
        derived_contexts=contexts(entity(PAGE, {"id": "0"})),
    )
    assert found == {
        "unstruct_event_com_acme_link_click_1": {"targetUrl": "a", "place": {"x": 1.5}},
        PAGES: [{"_schema_version": "1-0-0", "id": one} for one in "012"],
    }


def test_columns_follow_the_event_in_alphabetical_order_and_are_json(resolver):
    line = enriched(contexts=contexts(entity(PAGE, {}), entity(CLICK, {"targetUrl": "a"})))
    definition = shredded(resolver, line, enriched()).definitions["events"]
    assert definition.columns[: len(EVENTS.columns)] == EVENTS.columns
    assert [(one.name, one.type) for one in definition.columns[len(EVENTS.columns) :]] == [(CLICKS, "json"), (PAGES, "json")]
    assert definition.load_time


def test_a_column_without_a_good_event_is_left_out(resolver):
    bad = enriched(contexts=contexts(entity(PAGE, {}), entity(CLICK, {"targetUrl": 1})))
    good = enriched(contexts=contexts(entity(PAGE, {"id": "1"})))
    result = shredded(resolver, bad, good)
    assert (result.good, result.bad.num_rows) == (1, 1)
    assert [one.name for one in result.definitions["events"].columns[len(EVENTS.columns) :]] == [PAGES]


def test_the_same_lines_are_bad_for_the_same_reasons_in_each_layout(resolver):
    lines = [
        enriched(contexts=contexts(entity(CLICK, {"targetUrl": 1}))),
        enriched(contexts=contexts(entity("iglu:com.acme/missing/jsonschema/1-0-0", {}))),
        enriched(unstruct_event="no json"),
        enriched(event_id="x"),
        enriched(contexts=contexts(entity(PAGE, []))),
        enriched(contexts=contexts(entity(PAGE, {"id": "1"}))),
    ]
    tables, events = (shredded(resolver, *lines, rows=rows) for rows in ("tables", "events"))
    assert tables.bad.equals(events.bad)
    assert (events.lines, events.good, events.bad.num_rows) == (6, 1, 5)


@pytest.mark.parametrize("validate", ["full", "off"])
def test_what_no_column_of_json_holds_is_bad_though_a_table_would_leave_it_out(tmp_path, validate):
    """Tables have no column for the property. Here it is in the entity's JSON, which would be another without it."""
    publish(tmp_path, PAGE, {"type": "object", "properties": {"id": {"type": "string"}}})
    for value in ("\0", functools.reduce(lambda inner, _: [inner], range(300), 1)):
        line = enriched(contexts=contexts(entity(PAGE, {"id": "1", "other": "X"}))).replace(b'"X"', json.dumps(value).encode())
        good = {
            rows: shred_lines(line, Resolver([str(tmp_path)]), rules=Rules(rows=rows, validate=validate)).good
            for rows in ("tables", "lake", "events")
        }
        assert good == {"tables": 1, "lake": 1, "events": 0}


def test_entities_are_counted_by_schema_with_the_events(resolver):
    line = enriched(contexts=contexts(entity(PAGE, {}), entity(PAGE, {}), entity(ANY, {})))
    assert shredded(resolver, line, enriched()).types == {
        "events": {"iglu:com.snowplowanalytics.snowplow/atomic/jsonschema/1-0-0": 2, PAGE: 2, ANY: 1}
    }


def test_a_context_with_a_property_of_the_versions_name_keeps_it(resolver):
    assert only_row(resolver, contexts=contexts(entity(ANY, {"_schema_version": 7}))) == {
        "contexts_com_acme_anything_1": [{"_schema_version": 7}]
    }


def test_numbers_keep_all_their_digits(resolver):
    sent = '{"big":123456789012345678901234567890,"fine":0.1234567890123456789}'
    text = contexts(entity(ANY, {"x": 0})).replace('{"x":0}', sent)
    (row,) = shredded(resolver, enriched(contexts=text)).tables["events"].to_pylist()
    assert row["contexts_com_acme_anything_1"] == f'[{{"_schema_version":"1-0-2",{sent[1:]}]'


def test_a_version_that_breaks_its_model_stays_in_the_models_column(tmp_path):
    key = "iglu:com.acme/changing/jsonschema"
    for version, type_ in (("1-0-0", "integer"), ("1-0-1", "object")):
        publish(tmp_path, f"{key}/{version}", {"type": "object", "properties": {"x": {"type": type_}}})
    both = contexts(entity(f"{key}/1-0-0", {"x": 1}), entity(f"{key}/1-0-1", {"x": {}}))
    assert only_row(Resolver([str(tmp_path)]), contexts=both) == {
        "contexts_com_acme_changing_1": [{"_schema_version": "1-0-0", "x": 1}, {"_schema_version": "1-0-1", "x": {}}]
    }


def test_an_entity_with_nul_is_bad_wherever_it_is(resolver):
    result = shredded(resolver, enriched(contexts=contexts(entity(ANY, {"unnamed": ["\0"]}))))
    (reasons,) = (orjson.loads(text) for text in result.bad["reasons"].to_pylist())
    assert (result.good, reasons[0]["message"]) == (0, "contains NUL, which warehouses cannot store in text")


_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    own=st.none() | st.dictionaries(_TEXT, _JSON, max_size=4),
    before=st.lists(st.dictionaries(_TEXT, _JSON, max_size=4), max_size=3),
    after=st.lists(st.dictionaries(_TEXT, _JSON, max_size=4), max_size=3),
)
def test_a_row_reads_back_equal_to_its_source(resolver, own, before, after):
    fields = {
        "contexts": contexts(*(entity(ANY, one) for one in after)),
        "derived_contexts": contexts(*(entity(ANY, one) for one in before)),
    }
    found = only_row(resolver, **fields, **({"unstruct_event": unstruct(entity(ANY, own))} if own is not None else {}))
    sent = [{"_schema_version": "1-0-2", **one} for one in (*before, *after)]
    expected = {"contexts_com_acme_anything_1": sent} if sent else {}
    if own is not None:
        expected["unstruct_event_com_acme_anything_1"] = own
    assert found == expected


# What Snowplow's packages for dbt read


@pytest.mark.parametrize("read", published.read(), ids=lambda read: read.column)
def test_dbt_packages_find_their_columns_and_properties(resolver, read):
    cell = "unstruct_event" if read.column.startswith("unstruct_event_") else "contexts"
    own = entity(f"{read.family}-0-0", {name: f"of {name}" for name in read.properties})
    found = only_row(resolver, **{cell: contexts(own) if cell == "contexts" else unstruct(own)})
    values = found[read.column][0] if cell == "contexts" else found[read.column]
    assert {name: values[name] for name in read.properties} == {name: f"of {name}" for name in read.properties}


def test_dbt_packages_find_their_tables():
    ours = {SchemaKey.parse(f"{one.family}-0-0").table_name for one in published.read()}
    assert set(published.tables_read()) == ours


ODD = ("com.acme/WebPage", "com.acme-two.Site/HTTPHeader", "org.ietf/http-cookie", "com.acme/aB9cD_eF")


def test_columns_are_named_as_in_the_analytics_sdk():
    """Snowplow's library for Python names the columns alike, of all published models and of odd ones.

    It keeps hyphens. The library for Scala, which the loaders use, replaces them, too.
    """
    families = {*(table.family for table in published.tables()), *(f"iglu:{one}/jsonschema/3" for one in ODD)}
    for family in families:
        key = SchemaKey.parse(f"{family}-0-0")
        assert column_name(key, "derived_contexts") == fix_schema("contexts", str(key)).replace("-", "_")
        assert column_name(key, "unstruct_event") == fix_schema("unstruct_event", str(key)).replace("-", "_")
