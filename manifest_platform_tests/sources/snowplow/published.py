"""Facts about the tables that Snowplow publishes; scripts/published_tables.py writes them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import orjson

HOME = Path(__file__).with_name("published_tables.json")


class PublishedColumn(NamedTuple):
    """A column of a published table, its SQL type, and the path of properties that it comes from."""

    name: str
    type: str
    path: tuple[str, ...] = ()


class PublishedTable(NamedTuple):
    """A published table: its name, the family of its schemas, and its columns after those of the hierarchy."""

    name: str
    family: str
    columns: tuple[PublishedColumn, ...]


@functools.cache
def facts() -> Any:
    return orjson.loads(HOME.read_bytes())


def tables() -> list[PublishedTable]:
    """Returns the published tables of entities."""
    return [PublishedTable(name, one["family"], _columns(one["columns"])) for name, one in facts()["tables"].items()]


def events(engine: str) -> tuple[PublishedColumn, ...]:
    """Returns the published columns of the table of events."""
    return _columns(facts()["events"][engine])


def _columns(found: list[list[Any]]) -> tuple[PublishedColumn, ...]:
    return tuple(PublishedColumn(name, type_, *(tuple(path) for path in rest)) for name, type_, *rest in found)


class Read(NamedTuple):
    """A column that queries of Snowplow's dbt packages read, the family of its entities, and the properties that are read.

    `fields`: the columns that are read of the entities' table, on Redshift and PostgreSQL.
    """

    column: str
    family: str
    properties: tuple[str, ...]
    fields: tuple[str, ...] = ()


def read() -> list[Read]:
    """Returns the wide columns that dbt packages read on Snowflake."""
    found = facts()["read"].items()
    return [
        Read(name, one["family"], tuple(one["properties"]), tuple(one.get("fields", ())))
        for name, one in found
        if name != "tables"
    ]


def tables_read() -> list[str]:
    """Returns the tables that dbt packages read on Redshift and PostgreSQL."""
    return facts()["read"]["tables"]
