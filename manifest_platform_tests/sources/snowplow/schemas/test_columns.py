import pytest

from manifest_platform.listing import Column
from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources.snowplow.schemas.columns import entity_columns
from manifest_platform.sources.snowplow.schemas.keys import snake_case


def columns(*properties: dict, required: tuple[str, ...] = ()) -> dict[str, str]:
    schemas = [
        (f"1-0-{number}", {"type": "object", "properties": each, "required": list(required)})
        for number, each in enumerate(properties)
    ]
    return {each.column.name: each.column.type for each in entity_columns(schemas, "iglu:com.acme/a/jsonschema/1")}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("PerformanceTiming", "performance_timing"),
        ("link_click", "link_click"),
        ("com.acme-inc", "com_acme_inc"),
        ("osIs64Bit", "os_is64_bit"),
        ("targetURL", "target_url"),
        ("HTTPServer", "http_server"),
        ("__utma", "__utma"),
        ("größe", "gr__e"),
    ],
)
def test_snake_case(name: str, expected: str):
    assert snake_case(name) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "maxLength": 7}, "string(7)"),
        ({"type": ["string", "null"], "maxLength": 7}, "string(7)"),
        ({"type": "string", "maxLength": True}, "string"),
        ({"type": "string", "enum": ["a", "abc", "ab"]}, "string(3)"),
        ({"enum": ["a", "abc", None]}, "string(3)"),
        ({"enum": [1, 2]}, "integer"),
        ({"enum": [1, "a"]}, "string"),
        ({"enum": [1.1805916207174113e21]}, "decimal(22,0)"),
        ({"enum": [1e300]}, "double"),
        ({"type": "integer", "maximum": 1e23}, "decimal(24,0)"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "integer"}, "bigint"),
        ({"type": "integer", "minimum": 0}, "bigint"),
        ({"type": "integer", "minimum": 0, "maximum": 2147483647}, "integer"),
        ({"type": "integer", "minimum": 0, "maximum": 2147483648}, "bigint"),
        ({"type": "integer", "minimum": -2147483649, "maximum": 0}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "number", "null"]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": ["integer", "boolean"]}, "string"),
        ({"type": "array", "items": {"type": "string"}}, "json"),
        ({"type": "object"}, "json"),
        ({"type": ["object", "string"], "properties": {"a": {"type": "string"}}}, "json"),
        ({"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "string"}]}, "json"),
        ({"type": "object", "properties": {"a": {}}, "oneOf": [{}]}, "json"),
        ({}, "json"),
        (True, "json"),
    ],
)
def test_types(schema, expected: str):
    assert columns({"value": schema}) == {"value": expected}


def test_objects_are_flattened_and_required_columns_come_first_alphabetically():
    inner = {"type": "object", "properties": {"dField": {"type": "string"}, "a": {"type": "number"}}, "required": ["dField"]}
    properties = {"z": {"type": "string"}, "nested": inner, "b": {"type": ["string", "null"]}, "a": {"type": "string"}}
    assert list(columns(properties, required=("z", "nested", "b"))) == ["nested_d_field", "z", "a", "b", "nested_a"]
    assert list(columns(properties, required=("z",))) == ["z", "a", "b", "nested_a", "nested_d_field"]


def test_columns_of_later_versions_are_appended():
    first = {"m": {"type": "string"}}
    second = {"a": {"type": "string"}, "m": {"type": "string"}}
    third = {**second, "b": {"type": "object", "properties": {"c": {"type": "string"}}}}
    assert list(columns(first, second, third, required=("a",))) == ["m", "a", "b_c"]


def test_columns_whose_name_is_taken_get_an_underscore():
    names = columns({name: {"type": "string"} for name in ("rootId", "schema_name", "fooBar", "foo_bar", "x")})
    assert list(names) == ["foo_bar", "foo_bar_", "root_id_", "schema_name_", "x"]


def test_versions_widen_a_column_in_its_place():
    small = {"type": "integer", "minimum": 0, "maximum": 9}
    assert columns({"a": small, "b": small}, {"a": {"type": "integer"}, "b": small}) == {"a": "bigint", "b": "integer"}


def test_a_small_integer_beside_a_number_is_a_double_and_a_large_one_contradicts_it():
    number, whole = {"type": "number"}, {"type": "integer", "minimum": 0, "maximum": 9}
    assert columns({"a": whole}, {"a": number}) == columns({"a": number}, {"a": whole}) == {"a": "double"}
    for versions in ([{"type": "integer"}, number], [number, {"type": "integer"}]):
        with pytest.raises(SchemaError, match="no type holds both without loss"):
            columns(*({"a": one} for one in versions))


@pytest.mark.parametrize(
    "exact",
    [{"type": "number", "multipleOf": 0.01}, {"type": "integer", "minimum": 0, "maximum": 2**70}],
    ids=["money", "large integer"],
)
def test_a_decimal_beside_any_number_contradicts_it_because_a_double_loses_digits(exact: dict):
    number = {"type": "number"}
    for versions in ([exact, number], [number, exact]):
        with pytest.raises(SchemaError, match="no type holds both without loss"):
            columns(*({"a": one} for one in versions))


def test_versions_that_contradict_one_another_are_named():
    with pytest.raises(
        SchemaError, match=r"iglu:com.acme/a/jsonschema/1: column my_field is bigint in 1-0-0 but string in 1-0-1"
    ):
        columns({"myField": {"type": "integer"}}, {"myField": {"type": "string"}})


def test_an_object_that_becomes_a_value_is_a_contradiction():
    nested = {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}
    with pytest.raises(SchemaError, match=r"a\.b is string in 1-0-0, but a is string in 1-0-1"):
        columns(nested, {"a": {"type": "string"}})
    with pytest.raises(SchemaError, match=r"a is string in 1-0-0, but a\.b is string in 1-0-1"):
        columns({"a": {"type": "string"}}, nested)


def test_a_schema_without_properties_has_no_columns_and_one_that_is_no_object_is_refused():
    assert entity_columns([("1-0-0", {"type": "object"})], "x") == ()
    with pytest.raises(SchemaError, match="1-0-0: the schema is not a JSON object"):
        entity_columns([("1-0-0", [])], "x")


def test_entity_columns_are_nullable():
    (column,) = entity_columns([("1-0-0", {"properties": {"a": {"type": "string"}}, "required": ["a"]})], "x")
    assert column.column == Column("a", "string", nullable=True)
    assert column.path == ("a",)
