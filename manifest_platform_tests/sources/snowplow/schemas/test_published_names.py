"""The names of our tables and columns, compared with the tables that Snowplow publishes for its schemas."""

from __future__ import annotations

from typing import Any

import pytest

from manifest_platform.sources.snowplow.events.atomic import EVENTS
from manifest_platform.sources.snowplow.schemas.columns import entity_columns
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.warehouse.tables import LOAD_TIME
from manifest_platform_tests.sources.snowplow import published

# Written by hand before there was a generator, and contrary to its rule. A cutover finds such columns by their letters.
BY_HAND = {
    "com_pagerduty_incident_1": 3,
    "com_snowplowanalytics_monitoring_kinesis_storage_write_failed_1": 3,
    "com_snowplowanalytics_monitoring_kinesis_stream_write_failed_1": 6,
    "com_snowplowanalytics_snowplow_desktop_context_1": 1,
    "com_snowplowanalytics_snowplow_flash_context_1": 2,
}
MISNAMED = {"com_mparticle_session_context_1"}  # its vendor is com.mparticle.snowplow


def nested(paths: list[tuple[str, ...]]) -> dict[str, Any]:
    """Returns a schema with a text at the end of each path."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    for path in paths:
        place = schema
        for part in path[:-1]:
            place = place["properties"].setdefault(part, {"type": "object", "properties": {}})
        place["properties"][path[-1]] = {"type": "string"}
    return schema


def names(table: published.PublishedTable, dotted: bool) -> dict[tuple[str, ...], str]:
    schema = nested([column.path for column in table.columns])
    columns = entity_columns([("1-0-0", schema)], table.name, dotted=dotted)
    return {column.path: column.column.name for column in columns}


def differing(dotted: bool) -> dict[str, int]:
    """Returns the number of columns of each table that are named differently; warehouses match names without case."""
    found = {}
    for table in published.tables():
        ours = names(table, dotted)
        wrong = [
            one
            for one in table.columns
            if ours[one.path] != (one.name.lower() if dotted else one.name.lower().replace(".", "_"))
        ]
        if wrong:
            found[table.name] = len(wrong)
    return found


def test_dotted_names_are_those_of_the_published_tables():
    assert differing(dotted=True) == BY_HAND


def test_underscored_names_differ_from_the_published_ones_in_the_dots_alone():
    differs = differing(dotted=False)
    assert {name: differs[name] for name in differs if name not in BY_HAND} == {}


@pytest.mark.parametrize(
    ("name", "path", "property_", "missing"),
    [
        (
            "com_apple_notification_event_1",
            ("notification", "userInfo", "aps", "alert"),
            {"type": ["string", "object"], "properties": {"body": {"type": "string"}}},
            8,
        ),
        (
            "com_mandrill_message_clicked_1",
            ("msg", "metadata"),
            {"type": "object", "properties": {"user_id": {"type": "number"}}},
            1,
        ),
    ],
)
def test_columns_that_differ_because_of_the_type_that_the_schema_gives_a_property(
    name: str, path: tuple[str, ...], property_: Any, missing: int
):
    """The other tests know the paths of properties alone. By their schemas, these two tables differ, too."""
    (table,) = (one for one in published.tables() if one.name == name)
    schema = place = nested([column.path for column in table.columns])
    for part in path[:-1]:
        place = place["properties"][part]
    place["properties"][path[-1]] = property_
    ours = {one.column.name for one in entity_columns([("1-0-0", schema)], name, dotted=True)}
    assert len([one for one in table.columns if one.name.lower() not in ours]) == missing


def test_the_facts_are_all_the_published_tables():
    tables = published.tables()
    assert len(tables) == 226
    assert sum(len(table.columns) for table in tables) == 2_516
    assert len({column.name for table in tables for column in table.columns if "." in column.name}) == 487


def test_tables_have_their_published_names():
    ours = {table.name: SchemaKey.parse(f"{table.family}-0-0").table_name for table in published.tables()}
    assert {name for name, own in ours.items() if name != own} == MISNAMED


def test_a_property_with_a_dot_keeps_it_in_a_dotted_name():
    schema = {"properties": {"data.json": {"type": "string"}, "data": {"properties": {"json": {"type": "string"}}}}}
    columns = entity_columns([("1-0-0", schema)], "x", dotted=True)
    assert [column.column.name for column in columns] == ["data.json", "data.json_"]


def test_tables_have_the_columns_that_dbt_packages_read_on_redshift_and_postgresql():
    for one in published.read():
        columns = entity_columns([("1-0-0", nested([(name,) for name in one.properties]))], "x", dotted=True)
        assert set(one.fields) <= {column.column.name for column in columns}, one.column
    assert sum(len(one.fields) for one in published.read()) == 126


def test_events_has_the_published_columns_in_their_order():
    ours = [*(column.name for column in EVENTS.columns), LOAD_TIME.name]
    assert ours == [column.name for column in published.events("redshift")]
    assert set(ours[:-1]) == {column.name for column in published.events("snowflake")}


def test_events_has_the_published_types():
    published_types = {column.name: column.type for column in published.events("redshift")}
    for column in EVENTS.columns:
        assert redshift_form(column.type) == plain(published_types[column.name]), column.name


def redshift_form(type_: str) -> str:
    """Returns a column's type as Redshift's DDL has it."""
    simple = {"integer": "INT", "double": "DOUBLE PRECISION", "string": "VARCHAR", "decimal": "DEC"}
    kind, bracket, size = type_.partition("(")
    return f"{simple.get(kind, kind.upper())}{bracket}{size}"


def plain(type_: str) -> str:
    """Returns a published type with CHAR as VARCHAR: it differs in padding alone."""
    return f"VAR{type_}" if type_.startswith("CHAR(") else type_
