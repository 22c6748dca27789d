"""Values of entities in their columns: what a schema allows is kept as it was, or its event is bad."""

from __future__ import annotations

import json
import math
import operator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifest_platform.column_types import arrow_type
from manifest_platform.sources.snowplow import numbers
from manifest_platform.sources.snowplow.events.entities import all_fit
from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents, shred_lines
from manifest_platform.sources.snowplow.events.validation import EntitySchema
from manifest_platform.sources.snowplow.events.values import Misfit, fit
from manifest_platform.sources.snowplow.rules import Rules, Validation
from manifest_platform.sources.snowplow.schemas.columns import EntityTable
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform_tests.sources.snowplow.given import contexts, enriched, entity, publish

FIRST = "iglu:com.acme/thing/jsonschema/1-0-0"
SECOND = "iglu:com.acme/thing/jsonschema/1-0-1"
TABLE = "com_acme_thing_1"
KEEP = Rules(validate="types", other_properties="keep")
HUGE = 123456789012345678901234567890


def shredded(registry: Path, *entities: tuple[str, Any], rules: Rules = KEEP) -> ShreddedEvents:
    cell = contexts(*(entity(*one) for one in entities))
    return shred_lines(enriched(contexts=cell), Resolver([str(registry)], rules=rules), rules=rules)


def row_of(registry: Path, schema: Any, data: Any, rules: Rules = KEEP) -> dict[str, Any]:
    """Returns the row of an entity without the hierarchy columns."""
    publish(registry, FIRST, json.dumps(schema).encode())
    result = shredded(registry, (FIRST, data), rules=rules)
    assert result.good == 1, result.bad["reasons"].to_pylist()
    (row,) = result.tables[TABLE].to_pylist()
    return dict(list(row.items())[9:])


# Single rules


@pytest.mark.parametrize(
    ("schema", "value", "kept"),
    [
        ({"type": "number", "multipleOf": 0.01}, 19.99, Decimal("19.99")),
        ({"type": "number", "multipleOf": 0.01}, 20, Decimal("20.00")),
        ({"type": "number", "multipleOf": 0.5, "minimum": -10, "maximum": 10}, -1.5, Decimal("-1.5")),
        ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, 2**64 - 1, Decimal(2**64 - 1)),
        ({"type": "integer", "minimum": 0, "maximum": 10**30}, HUGE, Decimal(HUGE)),
        ({"type": ["string", "integer"]}, "5", "5"),
        ({"type": ["string", "integer"]}, 5, "5"),
        ({"type": ["string", "boolean", "null"]}, True, "true"),
        ({"type": ["boolean", "number"]}, 1.5, "1.5"),
        ({"enum": ["a", 1]}, "a", "a"),
        ({"const": "abc"}, "abc", "abc"),
        ({"type": "array"}, [HUGE, -HUGE], f"[{HUGE},-{HUGE}]"),
        ({"type": "object"}, {"n": {"deep": HUGE}}, f'{{"n":{{"deep":{HUGE}}}}}'),
        ({}, 2**63, str(2**63)),
        ({"type": "string", "maxLength": 3}, "longer than three", "longer than three"),
        ({"type": "string", "format": "date-time"}, "2024-01-01T00:00:00Z", datetime(2024, 1, 1)),
    ],
)
def test_a_value_is_kept_as_it_was(tmp_path: Path, schema: Any, value: Any, kept: Any):
    assert row_of(tmp_path, {"properties": {"value": schema}}, {"value": value})["value"] == kept


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "number", "multipleOf": 0.01}, 0.001),
        ({"type": "number", "multipleOf": 0.01}, 1e40),
        ({"type": "number", "multipleOf": 0.01}, "1"),
        ({"type": "number", "multipleOf": 0.01}, True),
        ({"type": "integer"}, HUGE),
        ({"type": "string", "format": "date-time"}, "2024-01-01"),
        ({"type": "string"}, "a\0b"),
        ({"type": ["string", "integer"]}, [1]),
        ({"type": "array"}, ["\0"]),
        ({"type": "string", "maxLength": 3}, 5),
    ],
)
def test_an_event_is_bad_with_a_value_that_cannot_be_kept(tmp_path: Path, schema: Any, value: Any):
    publish(tmp_path, FIRST, {"properties": {"value": schema}})
    result = shredded(tmp_path, (FIRST, {"value": value}))
    assert (result.good, result.bad.num_rows) == (0, 1)
    assert '"path":"value"' in result.bad["reasons"][0].as_py()


@pytest.mark.parametrize("text", ['"\\ud800"', '"a\\udc00b"'])
def test_half_of_a_surrogate_pair_makes_a_bad_event(tmp_path: Path, text: str):
    publish(tmp_path, FIRST, {"properties": {"value": {}}})
    cell = contexts(entity(FIRST, {"value": "@"})).replace('"@"', text)
    for extra in ("", f" {HUGE}"):  # beside a long number, another parser reads the cell
        line = enriched(contexts=cell + extra.replace(" ", " " * bool(extra) or ""))
        result = shred_lines(line, Resolver([str(tmp_path)]), rules=KEEP)
        assert (result.good, result.bad.num_rows) == (0, 1)
    with pytest.raises(Misfit):
        fit("\ud800", "string")


MONEY = "12345678901234567.89"


@pytest.mark.parametrize("later", [[], [{"type": "number"}]], ids=["alone", "beside any number"])
def test_money_keeps_its_digits_whatever_is_published_later(tmp_path: Path, later: list[Any]):
    for version, schema in zip((FIRST, SECOND), [{"type": "number", "multipleOf": 0.01}, *later], strict=False):
        publish(tmp_path, version, {"properties": {"total": schema}})
    cell = contexts(entity(FIRST, {"total": "@"})).replace('"@"', MONEY)
    result = shred_lines(enriched(contexts=cell), Resolver([str(tmp_path)]))
    assert result.tables[TABLE]["total"].to_pylist() == [Decimal(MONEY)]


@pytest.mark.parametrize("validate", ["full", "types"])
@pytest.mark.parametrize(
    ("schema", "text", "kept"),
    [
        ({"type": "number", "multipleOf": 0.01}, "900719925474099.37", Decimal("900719925474099.37")),
        ({"type": "number", "multipleOf": 0.01}, "-90071992547409937e-2", Decimal("-900719925474099.37")),
        ({"type": "integer"}, "9007199254740993.0", 9007199254740993),
        ({"type": "integer"}, "9007199254740993e0", 9007199254740993),
        ({"type": "integer"}, "-1.2345678901234568e18", -1234567890123456800),
        ({"type": "integer", "maximum": 2**80}, "1234567890123456789012.0", Decimal(1234567890123456789012)),
        ({"type": "array"}, "[9007199254740993.5]", "[9007199254740993.5]"),
        ({"type": ["string", "number"]}, "9007199254740993.5", "9007199254740993.5"),
        ({"type": "number"}, "9007199254740993", 9007199254740992.0),
        ({"type": "number"}, "1234567890123456789", 1234567890123456768.0),
    ],
)
def test_all_columns_but_doubles_keep_every_digit(tmp_path: Path, validate: Validation, schema: Any, text: str, kept: Any):
    publish(tmp_path, FIRST, json.dumps({"properties": {"value": schema}}).encode())
    cell = contexts(entity(FIRST, {"value": "@"})).replace('"@"', text)
    rules = Rules(validate=validate)
    result = shred_lines(enriched(contexts=cell), Resolver([str(tmp_path)], rules=rules), rules=rules)
    assert result.good == 1, result.bad["reasons"].to_pylist()
    assert result.tables[TABLE]["value"].to_pylist() == [kept]


def test_an_integer_beyond_its_bound_is_told_with_all_digits(tmp_path: Path):
    publish(tmp_path, FIRST, {"properties": {"value": {"type": "integer", "maximum": 9}}})
    [reason] = json.loads(shredded(tmp_path, (FIRST, {"value": HUGE}), rules=Rules()).bad["reasons"][0].as_py())
    assert (reason["keyword"], reason["value"]) == ("maximum", str(HUGE))


def test_an_empty_property_name_has_a_column(tmp_path: Path):
    schema = {"properties": {"": {"type": "string"}, "a": {"properties": {"": {"type": "string"}}}}}
    assert row_of(tmp_path, schema, {"": "x", "a": {"": "y"}}) == {"_": "x", "a_": "y", "other_properties": None}


def test_properties_that_no_version_names(tmp_path: Path):
    schema = {
        "properties": {"a": {"type": "string"}, "b": {"type": "object", "properties": {"c": {"type": "integer"}}}},
    }
    data = {"a": "x", "b": {"c": 1, "d": [HUGE]}, "e": {"f": None}}
    assert row_of(tmp_path, schema, data) == {
        "a": "x",
        "b_c": 1,
        "other_properties": f'{{"b":{{"d":[{HUGE}]}},"e":{{"f":null}}}}',
    }
    assert row_of(tmp_path, schema, data, Rules()) == {"a": "x", "b_c": 1}


def test_properties_named_by_a_pattern_are_always_kept(tmp_path: Path):
    schema = {
        "properties": {"a": {"type": "string"}},
        "patternProperties": {"^x": {"type": "string"}},
        "additionalProperties": False,
    }
    assert row_of(tmp_path, schema, {"a": "1", "x1": "2"}, Rules()) == {"a": "1", "other_properties": '{"x1":"2"}'}


def test_a_closed_schema_has_no_column_for_other_properties(tmp_path: Path):
    schema = {"properties": {"a": {"type": "string"}}, "additionalProperties": False}
    assert row_of(tmp_path, schema, {"a": "x"}) == {"a": "x"}


def test_what_only_a_later_version_names_may_be_anything_in_an_earlier_one(tmp_path: Path):
    publish(tmp_path, FIRST, {"properties": {"a": {"type": "string"}}})
    later = {"b": {"type": "integer"}, "c": {"type": "array"}, "d": {"properties": {"e": {"type": "string"}}}}
    publish(tmp_path, SECOND, {"properties": {"a": {"type": "string"}, **later}})
    old, new = {"a": "x", "b": "text", "c": 1, "d": 2}, {"a": "y", "b": 1, "c": [], "d": {"e": "z"}}
    result = shredded(tmp_path, (FIRST, old), (SECOND, new))
    assert result.good == 1
    first, second = result.tables[TABLE].to_pylist()
    assert [first[name] for name in ("a", "b", "c", "d_e")] == ["x", None, None, None]
    assert json.loads(first["other_properties"]) == {"b": "text", "c": 1, "d": 2}
    assert [second[name] for name in ("a", "b", "c", "d_e", "other_properties")] == ["y", 1, "[]", "z", None]
    assert shredded(tmp_path, (SECOND, old)).good == 0


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/thing", "definitions": {"thing": {"properties": {"a": {"type": "string"}}}}},
        {"allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["a"]}]},
        {"oneOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"required": ["b"]}]},
        {"properties": {"a": {"type": "string"}}, "anyOf": [{"properties": {"a": {"enum": ["x"]}}}, {}]},
    ],
)
def test_the_parts_of_a_root_name_its_columns(tmp_path: Path, schema: Any):
    assert row_of(tmp_path, schema, {"a": "x"}, Rules())["a"] == "x"


@pytest.mark.parametrize("text", [b"[1.5]", b"[-0.12345678901234567890123]", b'{"a":[1e5, -18446744073709551616]}'])
def test_numbers_keep_their_digits(text: bytes):
    assert json.loads(numbers.dumps(numbers.loads(text)), parse_float=Decimal) == json.loads(text, parse_float=Decimal)


_LONG = b"12345678901234567890123"


@pytest.mark.parametrize("fraction", [b"0e" + b"9" * 30, b"1e-" + b"9" * 30, b"1e-20000", b"0." + b"1" * 20_000])
def test_a_fraction_that_no_warehouse_holds_is_the_nearest_float_beside_a_long_number(fraction: bytes):
    assert numbers.loads(b'{"a":%b,"b":%b}' % (_LONG, fraction)) == {"a": int(_LONG), "b": float(fraction)}


def test_text_with_a_long_number_that_is_nested_too_deeply_is_no_json():
    def nested(depth: int) -> bytes:
        return b'{"a":%b,"b":%b%b}' % (_LONG, b"[" * depth, b"]" * depth)

    assert numbers.loads(nested(498))["a"] == int(_LONG)
    for depth in (501, 1_000, 1_020):
        with pytest.raises(orjson.JSONDecodeError, match="nested too deeply"):
            numbers.loads(nested(depth))
    assert numbers.loads(b'{"a":%b,"b":[%b[]]}' % (_LONG, b"[]," * 1_000))["a"] == int(_LONG)


def test_only_long_numbers_are_parsed_twice():
    assert numbers.may_be_long(b'{"a": -12345678901234567890}')
    assert not numbers.may_be_long(
        b'{"id":"12345678901234567890","t":1709633472345,"lat":-32.613128765928984,"n":[1,2,3,4,5,6,7,8,9]}'
    )


def test_the_times_of_an_event_are_no_long_numbers():
    assert not numbers.any_may_be_long(
        b"2021-10-14 13:54:45.811000001\t2021-10-14 13:54:40.027000001\t12345678901234567890\n" * 2
    )
    assert numbers.any_may_be_long(b'web\t{"a": -12345678901234567890}\t\n')
    assert numbers.any_may_be_long(b'{"a":0.06229016948897019,"b":0.06229016948897019001}\n')
    assert numbers.any_may_be_long(b'{"a":9007199254740993.0}\n') and numbers.any_may_be_long(b'{"a":9007199254740993e0}\n')
    assert numbers.any_may_be_long(b'{"a":-18446744073709551615}\n')
    assert not numbers.any_may_be_long(b'{"a":0.1000000000000000,"b":"12: 1.2.3.4.5.6.7.8.9.10"}\n{"a":999999999999999.0}\n')
    assert not numbers.any_may_be_long(b'{"a":0.06229016948897019,"b":-9223372036854775807}\n')


DIGITS = st.text("0123456789", min_size=1, max_size=45)
JSON_NUMBERS = st.builds(
    lambda sign, whole, point, power: f"{sign}{whole.lstrip('0') or '0'}{point}{power}",
    st.sampled_from(["", "-"]),
    DIGITS,
    st.one_of(st.just(""), DIGITS.map(lambda digits: f".{digits}")),
    st.sampled_from(["", "", "e5", "E-7", "e+20"]),
)


@given(st.lists(st.one_of(JSON_NUMBERS, st.floats(allow_nan=False, allow_infinity=False).map(repr)), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_numbers_are_those_of_the_slow_parser(written: list[str]):
    text = f'{{"a": [{" ,".join(written)}], "b":{written[0]}}}'.encode()
    slow = json.loads(text, parse_int=numbers.integer, parse_float=numbers.number)
    assert repr(numbers.loads(text)) == repr(slow)
    assert exact(numbers.dumps(slow)) == exact(text)
    if not numbers.any_may_be_long(b"a\t" + text + b"\tb\n"):
        assert repr(orjson.loads(text)) == repr(slow)


def exact(text: bytes) -> Any:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


# Generated schemas: a value that the schema allows is never lost or misplaced

NAMES = st.sampled_from(["a", "b", "fooBar", "foo_bar", "rootId", "", "other_properties", "é", "x.y"])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
INTEGERS = st.integers(-(2**70), 2**70)
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, st.floats(allow_nan=False, allow_infinity=False, width=32), TEXTS)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS | NAMES, inner, max_size=2), max_leaves=4
)
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
BOUNDS = st.sampled_from([1, 9, 2**31, 2**53, 2**63, 2**66]).flatmap(lambda bound: st.sampled_from([bound - 1, bound]))
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "maxLength": st.integers(0, 5),
    "minimum": BOUNDS.map(operator.neg),
    "maximum": BOUNDS,
    "multipleOf": st.sampled_from([0.01, 0.5, 1, 3]),
    "format": st.sampled_from(["date-time", "date", "uuid"]),
}
ENUM = st.lists(st.one_of(st.none(), st.booleans(), INTEGERS, TEXTS), min_size=1, max_size=3)
LEAVES = st.one_of(
    st.fixed_dictionaries({"type": KINDS}, optional=OPTIONS),
    st.fixed_dictionaries({"type": KINDS | st.lists(KINDS, min_size=1, max_size=3, unique=True)}, optional=OPTIONS),
    st.fixed_dictionaries({"enum": ENUM}, optional=OPTIONS),
    st.fixed_dictionaries({}, optional={**OPTIONS, "type": KINDS, "enum": ENUM, "oneOf": st.just([{}])}),
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(NAMES, inner, min_size=1, max_size=4).flatmap(
        lambda properties: st.fixed_dictionaries(
            {"properties": st.just(properties)},
            optional={
                "type": st.just("object"),
                "required": st.lists(st.sampled_from(sorted(properties)), min_size=1, max_size=2, unique=True),
                "additionalProperties": st.booleans(),
                "patternProperties": st.just({"^x": {"type": "string"}}),
            },
        )
    )


SCHEMAS = objects(st.recursive(LEAVES, objects, max_leaves=4))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any]:
    """A schema, and an entity that it may allow: most values are of the right kind, and many at their bounds."""
    schema = draw(SCHEMAS)

    def one_in(number: int) -> bool:
        return draw(st.integers(1, number)) == number // 2 + 1  # its ends are drawn more often

    def made(part: Any) -> Any:
        if one_in(20):
            return draw(VALUES)
        if "properties" in part:
            names = {name for name in part["properties"] if not one_in(5)} | set(part.get("required", ()))
            others = {"other", "x1"} if one_in(10) else ()
            return {name: made(part["properties"].get(name, {})) for name in sorted(names.union(others))}
        if "enum" in part:
            return draw(st.sampled_from(part["enum"]))
        kinds = part.get("type", [])
        kind = kinds if isinstance(kinds, str) else draw(st.sampled_from(kinds or [""]))
        return draw(of_kind(kind, part))

    return schema, made(schema)


def of_kind(kind: str, part: Any) -> st.SearchStrategy[Any]:
    """Values of a kind: texts of a format, numbers between the bounds of a schema and with its steps."""
    low, high = part.get("minimum", -(2**70)), part.get("maximum", 2**70)
    step = Decimal(str(part.get("multipleOf", 1)))
    steps = st.integers(math.ceil(low / step), math.floor(high / step))
    whole = st.sampled_from([low, high]) | (
        st.integers(low, high) if step < 1 else steps.map(lambda number: int(number * step))
    )
    texts = {"date": st.dates().map(str), "date-time": st.datetimes().map(lambda time: f"{time.isoformat()}Z")}
    floats = st.floats(max(low, -(2**60)), min(high, 2**60))
    numbers = {
        "integer": whole,
        "number": whole | (steps.map(lambda number: float(number * step)) if "multipleOf" in part else floats),
    }
    others = {
        "string": texts.get(part.get("format"), TEXTS),
        "boolean": st.booleans(),
        "null": st.none(),
        "array": st.lists(VALUES, max_size=2),
        "object": st.dictionaries(TEXTS, VALUES, max_size=2),
    }
    return {**numbers, **others}.get(kind, VALUES)


def rebuilt(table: EntityTable, row: dict[str, Any]) -> dict[str, Any]:
    """Returns the entity that a row holds, with every value at its place."""
    found: dict[str, Any] = {}
    for column in table.columns:
        value = row[column.column.name]
        if value is None:
            continue
        if column.column.type == "json":
            value = json.loads(value, parse_float=Decimal)
        if not column.path:
            merge(found, value)
            continue
        merge(found, nested(column.path, value))
    return found


def nested(path: tuple[str, ...], value: Any) -> Any:
    return {path[0]: nested(path[1:], value)} if path else value


def merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if name in into:
            assert isinstance(into[name], dict), f"{name} is there twice"
            merge(into[name], value)
        else:
            into[name] = value


def same(kept: Any, sent: Any, table: EntityTable, path: tuple[str, ...] = ()) -> bool:
    """True if a value was kept: nothing, null and an empty object are the same where columns hold an object's properties.

    A column of doubles has the nearest double.
    """
    flat = isinstance(names_at(table, path), dict)
    if flat and isinstance(sent, dict):
        kept = {} if kept is None else kept
        names = {*kept, *sent}
        return isinstance(kept, dict) and all(same(kept.get(name), sent.get(name), table, (*path, name)) for name in names)
    if sent is None or kept is None:
        return kept is None and (sent is None or (flat and sent == {}))
    if isinstance(kept, str) and not isinstance(sent, str):
        kept = json.loads(kept, parse_float=Decimal)
    elif isinstance(kept, float) and type_at(table, path) == "double":
        sent = float(sent)
    elif isinstance(kept, date):
        kept, sent = kept.isoformat(), sent.removesuffix("Z")
    return as_decimal(kept) == as_decimal(sent) and isinstance(kept, bool) == isinstance(sent, bool)


def type_at(table: EntityTable, path: tuple[str, ...]) -> str | None:
    return next((one.column.type for one in table.columns if one.path == path), None)


def names_at(table: EntityTable, path: tuple[str, ...]) -> Any:
    found: Any = table.names
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def as_decimal(value: Any) -> Any:
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, dict):
        return {name: as_decimal(inner) for name, inner in value.items()}
    return [as_decimal(inner) for inner in value] if isinstance(value, list) else value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=100)
@given(case=cases())
def test_a_value_that_a_schema_allows_is_kept_or_its_event_is_bad(tmp_path: Path, case: tuple[Any, Any]):
    schema, data = case
    publish(tmp_path, FIRST, json.dumps(schema).encode())
    resolver = Resolver([str(tmp_path)], rules=KEEP)
    table = resolver.table(SchemaKey.parse(FIRST))
    cell = contexts(entity(FIRST, data))
    result = shred_lines(enriched(contexts=cell), resolver, rules=KEEP)
    assert result.good + result.bad.num_rows == 1
    allowed = type(data) is dict and not list(EntitySchema(json.loads(json.dumps(schema))).breaches(data))
    if not result.good:
        reasons = json.loads(result.bad["reasons"][0].as_py())
        assert not allowed or all(is_documented(reason, table, schema) for reason in reasons), reasons
    elif allowed:
        (row,) = result.tables[table.table.name].to_pylist()
        assert same(rebuilt(table, row), data, table), (row, data)


def is_documented(reason: dict[str, Any], table: EntityTable, schema: Any) -> bool:
    """True if the documentation says that this value is bad although the schema allows it."""
    if reason["message"] == "is no object" or "\\u0000" in reason["value"]:
        return True
    (column,) = (one for one in table.columns if one.path and ".".join(one.path) == reason["path"])
    if column.column.type in ("timestamp", "date"):  # `format` is checked by the column alone
        return True
    if not column.column.type.startswith(("bigint", "decimal")):
        return False
    for name in column.path:
        schema = schema["properties"][name]
    value = json.loads(reason["value"], parse_float=Decimal)
    return ("maximum" if value > 0 else "minimum") not in schema and abs(value) >= 2**63


# Whole columns at once: the same verdicts and values as value by value

TIMES = st.builds(
    "{}{}{}{}{}".format,
    st.one_of(st.dates().map(str), st.sampled_from(["0000-01-01", "2023-02-29", "2024-02-29", "9999-12-31", "24-1-1"])),
    st.sampled_from(["T", "t", " ", ""]),
    st.one_of(st.times().map(str), st.sampled_from(["23:59:60", "24:00:00", "10:00", "00:00:00.", "10:11:12.1234567", ""])),
    st.sampled_from(["Z", "z", "", "+01:00", "-0530", "ZZ", "\n", "\0"]),
    st.sampled_from(["", "", "", " "]),
)
USUAL_TIMES = st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='milliseconds')}Z")
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    INTEGERS,
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.text(st.characters(), max_size=4),
    TIMES,
    st.lists(st.integers(), max_size=2),
    st.dictionaries(TEXTS, st.one_of(st.none(), TEXTS), max_size=2),
)
LIKELY = {
    "boolean": st.booleans(),
    "integer": st.integers(-(2**31) - 1, 2**31),
    "bigint": st.integers(-(2**63) - 1, 2**63),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(st.characters(), max_size=4),
    "string(2)": TEXTS,
    "timestamp": st.one_of(USUAL_TIMES, TIMES),
    "date": st.one_of(st.dates().map(str), TIMES),
    "decimal(18,2)": st.one_of(st.integers(-(10**17), 10**17), st.decimals(-1000, 1000, places=2)),
    "json": ANYTHING,
}


@given(st.data())
@settings(max_examples=500, deadline=None)
def test_a_column_is_typed_as_its_values_are(data: st.DataObject):
    type_ = data.draw(st.sampled_from(sorted(LIKELY)))
    likely = st.one_of(st.none(), LIKELY[type_])
    values = data.draw(st.one_of(st.lists(likely, max_size=4), st.lists(st.one_of(likely, ANYTHING), max_size=4)))
    array = all_fit(values, type_, nul=True)
    if array is not None:  # otherwise each value is looked at by itself
        assert array.type == arrow_type(type_)
        assert repr(array.to_pylist()) == repr([fit(value, type_) for value in values])


@given(st.lists(st.one_of(st.none(), USUAL_TIMES), max_size=4))
def test_usual_times_are_typed_at_once(values: list[str | None]):
    assert all_fit(values, "timestamp", nul=True) is not None
    assert all_fit([value and value[:10] for value in values], "date", nul=True) is not None
