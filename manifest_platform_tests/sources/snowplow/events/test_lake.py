"""Events with their entities as structs: `rows: lake`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.shred.batch import TwoFamilies
from manifest_platform.shred.rows import arrow_schema
from manifest_platform.sources.snowplow.events.atomic import EVENTS
from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents, shred_lines
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas.keys import snake_case
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

CLICKS, PAGES = "contexts_com_acme_link_click_1", "contexts_com_acme_web_page_1"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return acme_registry(tmp_path_factory.mktemp("registry"))


def shredded(registry: Path, *lines: bytes, rows: Any = "lake") -> ShreddedEvents:
    result = shred_lines(b"".join(line + b"\n" for line in lines), Resolver([str(registry)]), "f", rules=Rules(rows=rows))
    for name, table in result.tables.items():
        table.validate(full=True)
        assert table.schema == arrow_schema(result.definitions[name].columns)
    return result


def entities(result: ShreddedEvents) -> list[dict[str, Any]]:
    """Returns the columns of entities that have a value, by event."""
    own = len(EVENTS.columns)
    return [
        {name: row[name] for name in list(row)[own:] if row[name] is not None} for row in result.tables["events"].to_pylist()
    ]


def test_contexts_are_arrays_of_structs_and_the_events_own_entity_is_a_struct(registry):
    click = {"targetUrl": "a", "position": 3, "elementClasses": ["x"], "place": {"x": 1.5}}
    result = shredded(
        registry,
        enriched(unstruct_event=unstruct(entity(CLICK, click)), contexts=contexts(entity(PAGE, {"id": "1"}), entity(PAGE, {}))),
        enriched(),
        enriched(contexts=contexts(entity(CLICK, {"targetUrl": "b"}))),
    )
    values = {"target_url": "a", "at": None, "day": None, "element_classes": '["x"]', "position": 3, "total": None}
    first, second, third = entities(result)
    assert first.pop("unstruct_event_com_acme_link_click_1") == {**values, "place": {"visible": None, "x": 1.5}}
    assert first == {PAGES: [{"_schema_version": "1-0-0", "id": "1"}, {"_schema_version": "1-0-0", "id": None}]}
    assert second == {}
    [only] = third[CLICKS]
    assert (only["_schema_version"], only["target_url"], only["place"]) == ("1-0-0", "b", None)


def test_the_listing_says_the_nested_types(registry):
    found = shredded(registry, enriched(contexts=contexts(entity(PAGE, {}), entity(CLICK, {"targetUrl": "a"}))))
    types = {column.name: column.type for column in found.definitions["events"].columns[len(EVENTS.columns) :]}
    assert types[PAGES] == "array<struct<_schema_version:string,id:string>>"
    assert "place:struct<visible:boolean,x:double>" in types[CLICKS]
    assert list(types) == [CLICKS, PAGES]


def test_the_same_lines_are_bad_in_each_layout(registry):
    lines = [
        enriched(contexts=contexts(entity(CLICK, {"targetUrl": 1}))),
        enriched(contexts=contexts(entity(PAGE, []))),
        enriched(contexts=contexts(entity(PAGE, {"id": "1"}))),
    ]
    tables, lake = (shredded(registry, *lines, rows=rows) for rows in ("tables", "lake"))
    assert tables.bad.equals(lake.bad)
    assert (lake.good, list(lake.tables), lake.types["events"][PAGE]) == (1, ["events"], 1)


def test_every_mix_of_entities_goes_to_its_own_event(registry):
    """Arrays begin and end where their events do, whichever events have none."""
    counts = list(itertools.product(range(3), range(2)))
    lines = [
        enriched(
            user_id=f"{pages}{own}",
            contexts=contexts(*(entity(PAGE, {"id": f"{pages}{own}{n}"}) for n in range(pages))),
            **({"unstruct_event": unstruct(entity(PAGE, {"id": f"own {pages}"}))} if own else {}),
        )
        for pages, own in counts
    ]
    for (pages, own), found in zip(counts, entities(shredded(registry, *lines)), strict=True):
        ids = [one["id"] for one in found.get(PAGES, [])]
        assert ids == [f"{pages}{own}{n}" for n in range(pages)]
        assert found.get("unstruct_event_com_acme_web_page_1") == ({"id": f"own {pages}"} if own else None)


def test_names_that_are_alike_are_kept_apart_and_a_model_without_properties_has_its_version(tmp_path):
    alike, empty = "iglu:com.acme/alike/jsonschema/1-0-0", "iglu:com.acme/empty/jsonschema/1-0-0"
    publish(tmp_path, alike, {"type": "object", "properties": {"fooBar": {"type": "string"}, "foo_bar": {"type": "string"}}})
    publish(tmp_path, empty, {"type": "object"})
    line = enriched(
        contexts=contexts(entity(alike, {"fooBar": "a", "foo_bar": "b"})), unstruct_event=unstruct(entity(empty, {}))
    )
    [found] = entities(shredded(tmp_path, line))
    assert found["contexts_com_acme_alike_1"] == [{"_schema_version": "1-0-0", "foo_bar": "a", "foo_bar_": "b"}]
    assert found["unstruct_event_com_acme_empty_1"] == {"_schema_version": "1-0-0"}


def test_columns_have_the_names_of_the_layout_with_json(tmp_path):
    """Several capital letters in sequence: Snowplow's libraries divide such a name otherwise than a table's."""
    odd = "iglu:com.acme/HTTPHeader/jsonschema/1-0-0"
    publish(tmp_path, odd, {"type": "object", "properties": {"a": {"type": "string"}}})
    line = enriched(contexts=contexts(entity(odd, {"a": "1"})), unstruct_event=unstruct(entity(odd, {"a": "2"})))
    for rows in ("events", "lake"):
        table = shred_lines(line, Resolver([str(tmp_path)]), rules=Rules(rows=rows)).tables["events"]
        assert table.column_names[-2:] == ["contexts_com_acme_httpheader_1", "unstruct_event_com_acme_httpheader_1"]


def test_two_models_with_one_column_name_are_told_and_can_be_named_apart(tmp_path):
    families = ["iglu:com.acmeInc/thing/jsonschema/1", "iglu:com.acmeinc/thing/jsonschema/1"]
    for family in families:
        publish(tmp_path, f"{family}-0-0", {"type": "object", "properties": {"a": {"type": "string"}}})
    line = enriched(contexts=contexts(*(entity(f"{family}-0-0", {"a": family}) for family in families)))
    with pytest.raises(TwoFamilies, match=r"shred\.tables: \{iglu:com\.acmeinc/thing/jsonschema/1: com_acmeinc_thing_1_2\}"):
        shredded(tmp_path, line)
    named = Resolver([str(tmp_path)], tables={families[1]: "com_acmeinc_thing_1_2"})
    [found] = entities(shred_lines(line, named, rules=Rules(rows="lake")))
    assert [found[f"contexts_com_acmeinc_thing_1{end}"][0]["a"] for end in ("", "_2")] == families


def test_properties_that_no_version_names_are_a_field_of_json(tmp_path):
    publish(tmp_path, PAGE, {"type": "object", "properties": {"id": {"type": "string"}}})
    rules = Rules(rows="lake", other_properties="keep")
    line = enriched(contexts=contexts(entity(PAGE, {"id": "1", "more": [2]})))
    [found] = entities(shred_lines(line + b"\n", Resolver([str(tmp_path)], rules=rules), "f", rules=rules))
    assert found[PAGES] == [{"_schema_version": "1-0-0", "id": "1", "other_properties": '{"more":[2]}'}]


def test_a_version_that_breaks_its_model_has_a_column_of_its_own(tmp_path):
    key = "iglu:com.acme/changing/jsonschema"
    for version, type_ in (("1-0-0", "integer"), ("1-0-1", "boolean")):
        publish(tmp_path, f"{key}/{version}", {"type": "object", "properties": {"x": {"type": type_}}})
    both = contexts(entity(f"{key}/1-0-0", {"x": 1}), entity(f"{key}/1-0-1", {"x": True}))
    [found] = entities(shredded(tmp_path, enriched(contexts=both)))
    [recovered] = [name for name in found if "_recovered_1_0_1_" in name]
    assert found.pop(recovered) == [{"_schema_version": "1-0-1", "x": True}]
    assert found == {"contexts_com_acme_changing_1": [{"_schema_version": "1-0-0", "x": 1}]}


def test_fields_have_the_names_that_dbt_packages_read_in_lakes(tmp_path):
    for read in published.read():
        publish(tmp_path, f"{read.family}-0-0", {"type": "object", "properties": {name: {} for name in read.properties}})
    for read in published.read():
        own = entity(f"{read.family}-0-0", dict.fromkeys(read.properties, "x"))
        in_contexts = read.column.startswith("contexts_")
        line = enriched(**({"contexts": contexts(own)} if in_contexts else {"unstruct_event": unstruct(own)}))
        [found] = entities(shredded(tmp_path, line))
        value = found[read.column][0] if in_contexts else found[read.column]
        assert {snake_case(name) for name in read.properties} <= set(value)
