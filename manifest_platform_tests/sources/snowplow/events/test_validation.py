"""Entities against their JSON Schemas."""

import functools
import json
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources.snowplow.events.complexity import steps
from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents, shred_lines
from manifest_platform.sources.snowplow.events.validation import entity_schema, left_out
from manifest_platform.sources.snowplow.rules import Rules, Validation
from manifest_platform.sources.snowplow.schemas.catalog import IgluSchemas
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform_tests.sources.snowplow.given import contexts, enriched, entity, publish, unstruct

LATEST = "https://json-schema.org/draft/2020-12/schema"
IGLU = "http://iglucentral.com/schemas/com.snowplowanalytics.self-desc/schema/jsonschema/1-0-0#"
ORDER = "iglu:com.acme/order/jsonschema/1-0-0"
ORDERS = "com_acme_order_1"
ORDER_SCHEMA = {
    "$schema": IGLU,
    "self": {"vendor": "com.acme", "name": "order", "format": "jsonschema", "version": "1-0-0"},
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
        "kind": {"enum": ["sale", "return"]},
        "items": {"type": "integer", "minimum": 1, "maximum": 99},
        "weight": {"type": ["number", "null"], "minimum": 0, "exclusiveMinimum": True},
        "note": {"type": "string", "maxLength": 10},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "place": {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False},
        "size": {"oneOf": [{"type": "string", "maxLength": 2}, {"type": "integer"}]},
    },
    "required": ["id"],
    "additionalProperties": False,
}
GOOD = {"id": "AB-1"}
SESSION = "iglu:com.acme/session_context/jsonschema/1-0-0"


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Resolver:
    root = tmp_path_factory.mktemp("registry")
    publish(root, ORDER, ORDER_SCHEMA)
    publish(root, SESSION, {"type": "object", "properties": {"id": {"type": "string"}}})
    return Resolver([str(root)])


def of_order(resolver: Resolver, data: Any, validate: Validation = "full") -> ShreddedEvents:
    line = enriched(unstruct_event=unstruct(entity(ORDER, data)))
    return shred_lines(line + b"\n", resolver, rules=Rules(validate=validate))


def reasons(found: ShreddedEvents) -> list[dict[str, Any]]:
    assert (found.lines, found.good, found.tables) == (1, 0, {})
    return orjson.loads(found.bad["reasons"][0].as_py())


@pytest.mark.parametrize(
    ("data", "path", "keyword", "value"),
    [
        ({}, "", "required", "{}"),
        ({"id": "ab-1"}, "id", "pattern", '"ab-1"'),
        ({"id": None}, "id", "type", "null"),
        ({**GOOD, "kind": "gift"}, "kind", "enum", '"gift"'),
        ({**GOOD, "items": 0}, "items", "minimum", "0"),
        ({**GOOD, "items": 100}, "items", "maximum", "100"),
        ({**GOOD, "items": 10**30}, "items", "maximum", None),
        ({**GOOD, "items": "7"}, "items", "type", '"7"'),
        ({**GOOD, "items": True}, "items", "type", "true"),
        ({**GOOD, "items": None}, "items", "type", "null"),
        ({**GOOD, "weight": 0}, "weight", "exclusiveMinimum", "0"),
        ({**GOOD, "tags": ["a", 1]}, "tags.1", "type", "1"),
        ({**GOOD, "tags": ["a", "b", "c"]}, "tags", "maxItems", '["a","b","c"]'),
        ({**GOOD, "place": {"town": "Ulm"}}, "place", "additionalProperties", '{"town":"Ulm"}'),
        ({**GOOD, "extra": 1}, "", "additionalProperties", None),
        ({**GOOD, "size": 1.5}, "size", "oneOf", "1.5"),
        ([], "", "type", "[]"),
        (None, "", "type", "null"),
    ],
)
def test_an_event_with_an_entity_that_breaks_its_schema_is_bad(
    resolver: Resolver, data: Any, path: str, keyword: str, value: str | None
):
    (reason,) = reasons(of_order(resolver, data))
    assert (reason["type"], reason["schema"], reason["path"], reason["keyword"]) == ("entity", ORDER, path, keyword)
    assert value is None or reason["value"] == value
    assert reason["message"]


@pytest.mark.parametrize(
    ("data", "column", "value"),
    [
        ({**GOOD, "note": "longer than ten"}, "note", None),
        ({**GOOD, "items": 7.0}, "items", 7),
        ({**GOOD, "weight": None}, "weight", None),
        (GOOD, "items", None),
    ],
)
def test_where_it_is_gentler_than_the_schema_the_event_is_good(resolver: Resolver, data: Any, column: str, value: Any):
    found = of_order(resolver, data)
    assert found.good == 1, found.bad.to_pylist()
    assert value is None or found.tables[ORDERS][column].to_pylist() == [value]


def test_every_breach_is_told_and_the_message_has_no_value_of_the_event(resolver: Resolver):
    found = reasons(of_order(resolver, {"id": "secret", "items": 4711}))
    assert {reason["path"] for reason in found} == {"id", "items"}
    assert not any("secret" in reason["message"] or "4711" in reason["message"] for reason in found)


def test_a_bad_entity_takes_its_whole_event_and_no_other(resolver: Resolver):
    lines = [
        enriched(contexts=contexts(entity(ORDER, GOOD), entity(ORDER, {"id": 5}))),
        enriched(contexts=contexts(entity(ORDER, GOOD), entity(SESSION, {"id": "s"}))),
    ]
    found = shred_lines(b"\n".join(lines), resolver)
    assert (found.good, found.bad.num_rows) == (1, 1)
    assert {name: rows.num_rows for name, rows in found.tables.items()} == {
        "events": 1,
        ORDERS: 1,
        "com_acme_session_context_1": 1,
    }


def test_a_null_where_none_is_allowed_is_bad_by_the_schema_and_good_by_types(resolver: Resolver):
    """Real trackers send sessions without an id, as null, under a schema that allows only text."""
    line = enriched(contexts=contexts(entity(SESSION, {"id": None})))
    (reason,) = reasons(shred_lines(line, resolver))
    assert (reason["schema"], reason["path"], reason["keyword"], reason["value"]) == (SESSION, "id", "type", "null")
    found = shred_lines(line, resolver, rules=Rules(validate="types"))
    assert found.tables["com_acme_session_context_1"]["id"].to_pylist() == [None]


def test_types_checks_what_the_columns_hold_and_no_more(resolver: Resolver):
    assert of_order(resolver, {"id": "ab", "items": 500, "extra": 1}, "types").good == 1
    (reason,) = reasons(of_order(resolver, {"items": "7"}, "types"))
    assert reason["path"] == "items"


def test_off_leaves_out_what_does_not_fit_its_column(resolver: Resolver):
    found = of_order(resolver, {"id": "ab", "items": "7", "tags": 1}, "off")
    assert found.good == 1
    (row,) = found.tables[ORDERS].to_pylist()
    assert (row["id"], row["items"], row["tags"]) == ("ab", None, None)
    assert of_order(resolver, [], "off").good == 1


# What schemas may do


def breaches(schema: Any, data: Any) -> list[tuple[str, ...]]:
    return [one.path for one in entity_schema(schema, "iglu:a/b/jsonschema/1-0-0").breaches(data)]


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"$ref": "http://127.0.0.1:9/x.json"}, "127.0.0.1"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "passwd"),
        ({"properties": {"a": {"type": "strang"}}}, "properties.a.type"),
        ({"properties": {"a": {"pattern": 5}}}, "properties.a.pattern"),
        ({"required": "a"}, "required"),
        ([], "object"),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(tmp_path: Path, schema: Any, named: str):
    with pytest.raises(SchemaError, match="no entity can be checked") as caught:
        entity_schema(schema, ORDER)
    assert named in str(caught.value)
    if isinstance(schema, dict):
        publish(tmp_path, ORDER, schema)
        (reason,) = reasons(of_order(Resolver([str(tmp_path)]), {"a": 1}))
        assert named in reason["message"]
        assert reason["schema"] == ORDER


@pytest.mark.parametrize(
    "pattern",
    [r"^[\w-.]+$", "^(?i)abc$", "^a++$", "^.{1,50000}$", "^[a-z&&[^b]]$", r"^\Qa.b\E$", r"^\h+$", "(?=a", "["],
)
def test_a_pattern_that_no_engine_reads_is_left_out_and_the_rest_is_checked(pattern: str, tmp_path: Path):
    """Java reads most of these. Before, every event of the schema was bad."""
    schema = {"properties": {"a": {"type": "string", "pattern": pattern}, "b": {"pattern": "^x"}}, "required": ["b"]}
    assert breaches(schema, {"a": "anything", "b": "xy"}) == []
    assert breaches(schema, {"a": 5, "b": "y"}) == [("a",), ("b",)]
    assert left_out(schema, ORDER) == ("properties.a.pattern",)
    publish(tmp_path, ORDER, {"type": "object", **schema})
    catalog = IgluSchemas(Resolver([str(tmp_path)]), left_out)
    (note,) = catalog.show(ORDER).notes
    assert note.startswith(f"{ORDER}: properties.a.pattern is not checked")


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"patternProperties": {"(?=a": {"type": "string"}}, "additionalProperties": False}, "patternProperties.(?=a"),
        ({"not": {"properties": {"a": {"pattern": "^a++$"}}}}, "not"),
        ({"allOf": [{"oneOf": [{"required": ["a"]}, {"properties": {"a": {"pattern": "^a++$"}}}]}]}, "allOf.0.oneOf"),
        ({"properties": {"not": {"pattern": "^a++$"}, "pattern": {"type": "string"}}}, "properties.not.pattern"),
        (
            {"definitions": {"d": {"pattern": "^a++$"}}, "properties": {"a": {"$ref": "#/definitions/d"}}},
            "definitions.d.pattern",
        ),
        (
            {
                "definitions": {"d": {"pattern": "^a++$"}},
                "properties": {"a": {"$ref": "#/definitions/d"}, "if": {"enum": [{"not": {"$ref": "#"}}]}},
                "oneOf": [{"properties": {"$ref": {"type": "string"}}}, {"required": ["$ref"], "type": "null"}],
            },
            "definitions.d.pattern",
        ),
        (
            {"$schema": LATEST, "patternProperties": {"(?=a": {"type": "string"}}, "unevaluatedProperties": False},
            "patternProperties.(?=a",
        ),
        (
            {
                "$schema": LATEST,
                "allOf": [{"properties": {"a": {"pattern": "(?=a"}, "not": {}, "pattern": {}}}],
                "unevaluatedProperties": False,
            },
            "allOf.0.properties.a.pattern",
        ),
    ],
)
def test_what_is_left_out_makes_no_entity_bad(schema: Any, place: str):
    assert breaches(schema, {"a": "a", "not": "x", "pattern": "y"}) == []
    assert left_out(schema, ORDER) == (place,)


@pytest.mark.parametrize(
    "schema",
    [
        {"definitions": {"d": {"pattern": "^a++$"}}, "not": {"$ref": "#/definitions/d"}},
        {"properties": {"x": {"pattern": "^a++$"}, "y": {"not": {"$ref": "#/properties/x"}}}},
        {"properties": {"x": {"pattern": "^a++$"}, "y": {"oneOf": [{"type": "null"}, {"$ref": "#/properties/x"}]}}},
        {"properties": {"x": {"pattern": "^a++$"}, "y": {"not": {"$ref": "#"}}}},
        {"$schema": LATEST, "allOf": [{"patternProperties": {"(?=a": {}}}], "unevaluatedProperties": False},
        {
            "$schema": LATEST,
            "oneOf": [{"properties": {"a": {"pattern": "(?=a"}}}, {"required": ["b"]}],
            "unevaluatedProperties": False,
        },
        {"properties": {str(number): {"pattern": "^a++$"} for number in range(50)}},
    ],
)
def test_where_leaving_out_could_turn_the_verdict_the_schema_cannot_be_used(schema: Any):
    with pytest.raises(SchemaError, match="pattern"):
        entity_schema(schema, ORDER)


def test_an_integer_beyond_64_bits_is_compared_and_quoted_with_all_digits(tmp_path: Path):
    number = 2**70 + 1
    own = {"type": "object", "properties": {"n": {"enum": [number]}, "m": {"maximum": number}}}
    publish(tmp_path, ORDER, json.dumps(own).encode())

    def of(value: int) -> ShreddedEvents:
        cell = unstruct(entity(ORDER, {"n": 0, "m": 0})).replace("0}", f"{value}}}").replace(":0,", f":{value},")
        return shred_lines(enriched(unstruct_event=cell), Resolver([str(tmp_path)]))

    assert of(number).good == 1
    found = reasons(of(number + 1))
    assert [reason["value"] for reason in found] == [str(number + 1)] * 2


def test_no_schema_makes_a_connection(tmp_path: Path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x.json"
        with pytest.raises(SchemaError):
            entity_schema({"$schema": url, "allOf": [{"$ref": url}]}, ORDER)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(?=a)(a+)+$", "^(a|aa)+$", r"^(?!b)(.*)*\1c$"])
def test_no_pattern_takes_long(pattern: str):
    found: list[list[Any]] = []
    work = threading.Thread(target=lambda: found.append(breaches({"pattern": pattern}, "a" * 50_000 + "!")), daemon=True)
    work.start()
    work.join(30)
    assert found == [[()]]


def test_patterns_with_look_around_work():
    assert breaches({"pattern": "^(?!x)"}, "abc") == []
    assert breaches({"pattern": "^(?!x)"}, "xbc") == [()]


def test_iglu_schemas_are_of_draft_4_and_others_of_the_draft_that_they_name():
    assert breaches({"$schema": IGLU, "const": 1}, 2) == []
    assert breaches({"const": 1}, 2) == []
    assert breaches({"$schema": "http://json-schema.org/draft-07/schema#", "const": 1}, 2) == [()]


def test_what_is_nested_too_deeply_has_a_verdict():
    deep: Any = {}
    for _ in range(900):
        deep = {"a": deep}
    schema = entity_schema({"properties": {"a": {"$ref": "#"}}, "additionalProperties": False}, ORDER)
    assert schema.is_surely_valid({})
    assert len(list(schema.breaches(deep))) <= 1


def alternatives(levels: int) -> dict[str, Any]:
    """A schema whose property `x` is checked by 2 ** levels paths."""
    next_ = [{"anyOf": [{"$ref": f"#/definitions/a{n + 1}"}] * 2} for n in range(levels)]
    named = {f"a{n}": schema for n, schema in enumerate([*next_, {"type": "string"}])}
    return {"type": "object", "properties": {"x": {"$ref": "#/definitions/a0"}}, "definitions": named}


AGAIN = {"anyOf": [{"type": "object", "properties": {"x": {"$ref": "#/definitions/a"}}}] * 2}
RECURSIVE = {"type": "object", "properties": {"x": {"$ref": "#/definitions/a"}}, "definitions": {"a": AGAIN}}


@pytest.mark.parametrize(
    ("schema", "turns", "count"),
    [
        ({"type": "string"}, 0, 1),
        ({"properties": {"a": {}, "b": {"items": [{}, True]}}}, 0, 5),
        (alternatives(3), 0, 31),
        (alternatives(24), 0, 10**6),
        ({"properties": {"next": {"$ref": "#"}}}, 3, 9),
        ({"$ref": "#/nowhere"}, 9, 2),
        ({"$ref": "#"}, 200, 202),
        (RECURSIVE, 2, 45),
        (RECURSIVE, 100, 10**6),
        (functools.reduce(lambda inner, _: {"not": inner}, range(5_000), {}), 0, 10**6),
    ],
)
def test_paths_are_counted_without_walking_them(schema: Any, turns: int, count: int):
    assert steps(schema, 10**6, turns) == count


def test_an_exponential_schema_makes_only_its_own_events_bad_and_takes_no_time(tmp_path: Path):
    """Before, an entity of such a schema took half an hour; its place is not searched for beyond some thousand paths."""
    publish(tmp_path, ORDER, alternatives(24))
    began = time.process_time()
    line = enriched(unstruct_event=unstruct(entity(ORDER, {"x": 1})))
    found = shred_lines(b"\n".join([line, enriched(), b""]), Resolver([str(tmp_path)]))
    assert (found.good, found.bad.num_rows) == (1, 1)
    [reason] = orjson.loads(found.bad["reasons"][0].as_py())
    assert reason["schema"] == ORDER and "more than 1,000,000 steps" in reason["message"]
    assert breaches(alternatives(16), {"x": 1}) == [()]
    assert breaches(alternatives(16), {"x": "good"}) == []
    assert breaches(alternatives(4), {"x": 1}) == [("x",)]
    deep = functools.reduce(lambda inner, _: {"x": inner}, range(60), 1)
    assert breaches(RECURSIVE, deep) == [()]
    assert breaches(RECURSIVE, {"x": {"x": 1}}) == [("x",)]
    assert time.process_time() - began < 5


@pytest.mark.parametrize(("levels", "says"), [(300, "nested too deeply"), (5_000, "depth limit exceeded")])
def test_a_schema_that_is_nested_too_deeply_is_told_as_such(tmp_path: Path, levels: int, says: str):
    nested = b'{"type":"array","items":' * levels + b"{}" + b"}" * levels
    publish(tmp_path, ORDER, b'{"type":"object","properties":{"x":' + nested + b"}}")
    line = enriched(unstruct_event=unstruct(entity(ORDER, {"x": []})))
    [reason] = reasons(shred_lines(line + b"\n", Resolver([str(tmp_path)])))
    assert reason["schema"] == ORDER and says in reason["message"]


@pytest.mark.parametrize("listed", [2.0**70, 2**70])
def test_a_number_beyond_64_bits_is_the_same_in_a_schema_and_in_an_entity(listed: float) -> None:
    """The parser of entities reads such a number as a double, and the thorough search as a whole number."""
    ready = entity_schema({"enum": [listed]}, ORDER)
    assert list(ready.breaches(2.0**70)) == []
    assert list(ready.breaches(2.0**71))


# Any schema, any entity

_SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 0.5, "", "a", "ab", 2.0**70])
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=5
)
_TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
_SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": _TYPES | st.lists(_TYPES, min_size=1, unique=True),
            "enum": st.lists(_SCALARS, min_size=1, max_size=3),
            "maxLength": st.integers(0, 2),
            "minimum": st.integers(-2, 2),
            "pattern": st.sampled_from(["^a", "b$"]),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner),
            "required": st.lists(st.sampled_from("ab"), min_size=1, unique=True),
            "additionalProperties": st.booleans(),
            "items": inner,
        },
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(_SCHEMAS, st.lists(_VALUES, max_size=6))
def test_no_breach_is_found_where_an_entity_is_surely_valid(schema: Any, values: list[Any]):
    """The quick verdict, which most entities get, is that of the thorough search."""
    ready = entity_schema(schema, ORDER)
    for value in values:
        breaches = list(ready.breaches(value))
        assert not (ready.is_surely_valid(value) and breaches)
        # A length and a whole number written as 1.0 are where the search is gentler.
        if breaches == [] and "maxLength" not in str(schema) and "0" not in str(value):
            assert ready.is_surely_valid(value)
