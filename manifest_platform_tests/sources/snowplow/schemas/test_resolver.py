import re
from pathlib import Path

import pytest

from manifest_platform.listing import Listing
from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.registry import FolderRegistry
from manifest_platform.sources.snowplow.schemas.resolver import Resolver, UnknownSchema
from manifest_platform_tests.sources.snowplow.given import CLICK, CLICK_SCHEMA, acme_registry, publish

KEY = SchemaKey.parse(CLICK)


def key(version: str) -> SchemaKey:
    return SchemaKey.parse(f"iglu:com.acme/link_click/jsonschema/{version}")


def test_a_key_is_parsed_and_printed():
    found = SchemaKey.parse("iglu:org.w3/PerformanceTiming/jsonschema/1-2-30")
    assert (found.vendor, found.name, found.format) == ("org.w3", "PerformanceTiming", "jsonschema")
    assert (found.model, found.revision, found.addition, found.version) == (1, 2, 30, "1-2-30")
    assert str(found) == "iglu:org.w3/PerformanceTiming/jsonschema/1-2-30"
    assert found.table_name == "org_w3_performance_timing_1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "com.acme/a/jsonschema/1-0-0",
        "iglu:com.acme/a/jsonschema/1-0",
        "iglu:com.acme/a/jsonschema/0-0-0",
        "iglu:com.acme/a/jsonschema/1-0-0\n",
        "iglu:com.acme/a/jsonschema/1-0-01",
        "iglu:../a/jsonschema/1-0-0",
        "iglu:com.acme/../jsonschema/1-0-0",
        f"iglu:com.acme/{'a' * 129}/jsonschema/1-0-0",
        "iglu:com.acme/a/jsonschema/1-0-9999999999",
    ],
)
def test_other_texts_are_not_keys(text: str):
    with pytest.raises(ValueError, match="is no schema key"):
        SchemaKey.parse(text)


def test_versions_sort_as_numbers():
    assert key("1-0-9") < key("1-0-10") < key("1-2-0") < key("10-0-0")


@pytest.mark.parametrize("below", ["", "schemas"])
def test_a_folder_may_be_schemas_or_hold_it(tmp_path: Path, below: str):
    acme_registry(tmp_path)
    publish(tmp_path, str(key("1-0-10")), CLICK_SCHEMA)
    publish(tmp_path, str(key("1-0-9")), CLICK_SCHEMA)
    publish(tmp_path, str(key("2-0-5")), CLICK_SCHEMA)
    (tmp_path / "schemas/com.acme/link_click/jsonschema/1-0-0.bak").touch()
    resolver = Resolver([str(tmp_path / below)])
    assert resolver.schema(KEY) == CLICK_SCHEMA
    assert resolver.versions(KEY) == [key("1-0-0"), key("1-0-9"), key("1-0-10")]


def test_the_table_of_a_model_has_the_hierarchy_and_the_columns_of_all_versions(tmp_path: Path):
    acme_registry(tmp_path)
    publish(tmp_path, str(key("1-0-1")), {"properties": {"added": {"type": "boolean"}}})
    table = Resolver([str(tmp_path)]).table(KEY).table
    assert table.name == "com_acme_link_click_1"
    assert [column.name for column in table.columns] == [
        *("schema_vendor", "schema_name", "schema_format", "schema_version"),
        *("root_id", "root_tstamp", "ref_root", "ref_tree", "ref_parent"),
        *("target_url", "at", "day", "element_classes", "place_visible", "place_x", "position", "total", "added"),
    ]
    assert [column.nullable for column in table.columns] == [False] * 9 + [True] * 9


def test_the_first_registry_wins_and_versions_are_those_of_all(tmp_path: Path):
    publish(tmp_path / "a", CLICK, {"properties": {"mine": {"type": "string"}}})
    publish(tmp_path / "b", CLICK, CLICK_SCHEMA)
    publish(tmp_path / "b", str(key("1-0-1")), CLICK_SCHEMA)
    resolver = Resolver([str(tmp_path / "a"), str(tmp_path / "b")])
    assert resolver.schema(KEY) == {"properties": {"mine": {"type": "string"}}}
    assert resolver.versions(KEY) == [key("1-0-0"), key("1-0-1")]


def test_the_error_for_an_unknown_schema_names_the_registries(tmp_path: Path):
    acme_registry(tmp_path)
    resolver = Resolver([str(tmp_path)])
    with pytest.raises(UnknownSchema, match=rf"{key('1-0-5')} is in none of the registries {tmp_path}"):
        resolver.table(key("1-0-5"))


def test_found_and_missing_schemas_are_remembered(tmp_path: Path):
    acme_registry(tmp_path)
    resolver = Resolver([str(tmp_path)])
    resolver.table(KEY)
    with pytest.raises(UnknownSchema):
        resolver.schema(key("3-0-0"))
    publish(tmp_path, str(key("3-0-0")), CLICK_SCHEMA)
    publish(tmp_path, CLICK, {})
    with pytest.raises(UnknownSchema):
        resolver.schema(key("3-0-0"))
    assert resolver.schema(KEY) == CLICK_SCHEMA
    assert Resolver([str(tmp_path)]).schema(key("3-0-0")) == CLICK_SCHEMA


@pytest.mark.parametrize("broken", [b"{", b"[]"])
def test_only_the_events_of_a_broken_version_have_no_table(tmp_path: Path, broken: bytes):
    publish(tmp_path, CLICK, broken)
    publish(tmp_path, str(key("1-0-1")), {"properties": {"a": {"type": "string"}}})
    resolver = Resolver([str(tmp_path)])
    with pytest.raises(SchemaError, match=r"is not (valid JSON|a JSON object)"):
        resolver.table(KEY)
    assert [one.path for one in resolver.table(key("1-0-1")).columns] == [("a",)]


def test_a_version_that_contradicts_the_others_has_a_table_of_its_own(tmp_path: Path):
    publish(tmp_path, CLICK, {"properties": {"a": {"type": "integer"}}})
    publish(tmp_path, str(key("1-0-1")), {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}})
    publish(tmp_path, str(key("1-0-2")), {"properties": {"a": {"type": "integer"}, "c": {"type": "string"}}})
    resolver = Resolver([str(tmp_path)])
    first, broken, last = (resolver.table(key(f"1-0-{number}")) for number in range(3))
    assert first == last
    assert [one.column.name for one in first.columns] == ["a", "c"]
    assert re.fullmatch(r"com_acme_link_click_1_recovered_1_0_1_[0-9a-f]{8}", broken.table.name)
    assert [(one.column.name, one.column.type) for one in broken.columns] == [("a", "string"), ("b", "string")]
    assert broken.table.family == first.table.family
    assert "column a is bigint in 1-0-0 but string in 1-0-1" in broken.recovered
    listing = Listing("item", "attempt", 0, 0, 0, (first.table, broken.table), ())
    assert listing.remarks == [f"table {broken.table.name}: {broken.recovered}"]
    # the name follows from the schemas alone, whichever version is asked for first
    assert Resolver([str(tmp_path)]).table(key("1-0-1")) == broken


@pytest.mark.parametrize("first", ["1-0-0", "1-1-0"])
def test_the_form_of_a_model_does_not_depend_on_the_version_that_comes_first(tmp_path: Path, first: str):
    acme_registry(tmp_path)
    publish(tmp_path, str(key("1-1-0")), CLICK_SCHEMA)
    pattern = "iglu:com.acme/link_click/jsonschema"
    resolver = Resolver([str(tmp_path)], rules=Rules(entities=((f"{pattern}/1-0-*", "skip"), (f"{pattern}/1-*-*", "json"))))
    assert resolver.skips(key("1-0-0")) and not resolver.skips(key("1-1-0"))
    resolver.table(key(first))
    assert [one.column.name for one in resolver.table(key("1-1-0")).columns] == ["data"]


def test_a_version_that_is_only_listed_hurts_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    acme_registry(tmp_path)
    before = Resolver([str(tmp_path)]).table(KEY)
    publish(tmp_path, str(key("1-0-1")), CLICK_SCHEMA)
    resolver = Resolver([str(tmp_path)])
    read = FolderRegistry.read
    monkeypatch.setattr(FolderRegistry, "read", lambda self, asked: read(self, asked) if asked == KEY else None)
    assert resolver.table(KEY).table == before.table
