"""A schema `atomic` as Snowplow's loader leaves it: its tables by its own DDL, with rows, and its table `manifest`.

`fill` makes it of a shop that has loaded its runs beside. The tables of events and of notes are as release 5.6.3 of the loader
makes them; the tables of entities are in the form of the DDL that Iglu Central publishes: NOT NULL, CHAR, and encodings whose
columns Redshift does not alter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta

from manifest_platform.warehouse.control_table import ControlTable
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform_tests.pipeline.shop import EVENTS, NAME, Shop, run_name
from manifest_platform_tests.sources.snowplow import published

SCHEMA = "atomic"
BESIDE = "beside"
"""The schema with the rows of all runs, as this platform has loaded them."""
NOTED = datetime(2024, 5, 15, tzinfo=UTC)
LINK_CLICK = "iglu:com.acme/link_click/jsonschema/1-0-0"
ENTITIES = ("com_acme_link_click_1", "com_acme_page_1", "com_acme_session_1", "com_acme_user_1")
"""Tables that the former loader has."""
MISSING = {"com_acme_add_to_cart_1", "com_acme_product_list_1"}
"""Tables that it never had, although the runs have rows of them."""

_REQUIRED = ("collector_tstamp", "event_id", "v_collector", "v_etl")
_HIERARCHY = {
    "schema_vendor": "VARCHAR(128) ENCODE RUNLENGTH NOT NULL",
    "schema_name": "VARCHAR(128) ENCODE RUNLENGTH NOT NULL",
    "schema_format": "VARCHAR(128) ENCODE RUNLENGTH NOT NULL",
    "schema_version": "VARCHAR(128) ENCODE RUNLENGTH NOT NULL",
    "root_id": "CHAR(36) ENCODE RAW NOT NULL",
    "root_tstamp": "TIMESTAMP ENCODE RAW NOT NULL",
    "ref_root": "VARCHAR(255) ENCODE RUNLENGTH NOT NULL",
    "ref_tree": "VARCHAR(1500) ENCODE RUNLENGTH NOT NULL",
    "ref_parent": "VARCHAR(255) ENCODE RUNLENGTH NOT NULL",
}
_NOTES = (
    "base VARCHAR(512) ENCODE ZSTD NOT NULL PRIMARY KEY",
    "types VARCHAR(65535) ENCODE ZSTD NOT NULL",
    "shredding_started TIMESTAMP ENCODE ZSTD NOT NULL",
    "shredding_completed TIMESTAMP ENCODE ZSTD NOT NULL",
    "min_collector_tstamp TIMESTAMP ENCODE RAW NULL",
    "max_collector_tstamp TIMESTAMP ENCODE ZSTD NULL",
    "ingestion_tstamp TIMESTAMP ENCODE ZSTD NOT NULL",
    "compression VARCHAR(16) ENCODE ZSTD NOT NULL",
    "processor_artifact VARCHAR(64) ENCODE ZSTD NOT NULL",
    "processor_version VARCHAR(32) ENCODE ZSTD NOT NULL",
    "count_good INT ENCODE ZSTD NULL",
)


def fill(
    shop: Shop,
    numbers: Iterable[int],
    types: Mapping[str, Mapping[str, str]] | None = None,
    tables: Iterable[str] = ("events", *ENTITIES),
    without: Iterable[str] = (),
) -> None:
    """Creates the schema with the rows of these runs, and their notes.

    `types`: other types, by table and column. `tables`: only these. `without`: columns that the tables lack.
    """
    types = types or {}
    with closing(shop.place.open()) as engine:
        engine.execute(engine.schema_creation(SCHEMA))
        runs = [shop.directory(number).name for number in numbers]
        for table, columns in _tables(engine).items():
            if table not in tables:
                continue
            columns |= types.get(table, {})
            columns = {name: columns[name] for name in reversed(columns) if name not in without}
            definitions = ", ".join(f"{engine.quote(name)} {_plain(shop, type_)}" for name, type_ in columns.items())
            engine.execute(f"CREATE TABLE {engine.qualified(SCHEMA, table)} ({definitions}){_layout(shop, table)}")
            copy_rows(engine, table, runs)
        notes = ", ".join(_plain(shop, column) for column in _NOTES)
        engine.execute(f"CREATE TABLE {engine.qualified(SCHEMA, 'manifest')} ({notes})")
    note(shop, dict.fromkeys(numbers, EVENTS))


def _tables(engine: Engine) -> dict[str, dict[str, str]]:
    """Returns the columns of each table, with their DDL."""
    there = engine.columns(BESIDE)
    found = {
        "events": {
            one.name: f"{one.type} ENCODE ZSTD{' NOT NULL' * (one.name in _REQUIRED)}" for one in published.events("redshift")
        }
    }
    for table in ENTITIES:
        own = {
            name: f"{_published(type_)} ENCODE {'TEXT255' if type_.startswith('string') else 'RAW'}"
            for name, type_ in there[table].items()
            if name not in _HIERARCHY and name != "load_tstamp"
        }
        found[table] = {**_HIERARCHY, **own}
    found["com_acme_link_click_1"]["target_url"] = "VARCHAR(4096) ENCODE TEXT32K NOT NULL"
    return found


def _published(type_: str) -> str:
    """Returns the type that a published table has where ours has this logical type. JSON is text there."""
    kind, _, _ = type_.partition("(")
    simple = {"string": "VARCHAR(2048)", "json": "VARCHAR(65535)", "integer": "INT", "double": "DOUBLE PRECISION"}
    return simple.get(kind) or type_.upper()


def _plain(shop: Shop, ddl: str) -> str:
    """Returns the definition of a column without what the engine does not know."""
    words = ddl.split()
    if shop.place.kind == "redshift" or "ENCODE" not in words:
        return ddl
    at = words.index("ENCODE")
    return " ".join([*words[:at], *words[at + 2 :]])


def _layout(shop: Shop, table: str) -> str:
    if shop.place.kind != "redshift":
        return ""
    key, time = ("event_id", "collector_tstamp") if table == "events" else ("root_id", "root_tstamp")
    return f" DISTSTYLE KEY DISTKEY ({key}) SORTKEY ({time})"


def copy_rows(engine: Engine, table: str, runs: Iterable[str]) -> None:
    """Copies the rows of runs into a table of the former loader."""
    quote = engine.quote
    have, from_ = engine.columns(SCHEMA)[table], engine.columns(BESIDE)[table]
    shared = [name for name in have if name in from_]
    columns = ", ".join(map(quote, shared))
    values = ", ".join(f"left({quote(one)}, {have[one][7:-1]})" if _is_short(have[one]) else quote(one) for one in shared)
    identity = "event_id" if table == "events" else "root_id"
    ledger = engine.execute(f"SELECT item, applied_at FROM {ControlTable(engine, 'ledger', NAME, {}).qualified}")
    source = engine.qualified(BESIDE, table)
    for run in runs:
        [at] = [time for item, time in ledger if item.endswith(run)]
        engine.write(
            f"INSERT INTO {engine.qualified(SCHEMA, table)} ({columns}) SELECT {values} FROM {source} "
            f'WHERE {quote(identity)} IN (SELECT "event_id" FROM {engine.qualified(BESIDE, "events")} WHERE "load_tstamp" = ?)',
            (at,),
        )


def _is_short(type_: str) -> bool:
    return type_ in ("string(5)", "string(1)")


def note(shop: Shop, rows: Mapping[int, int | None], types: Iterable[str] = (LINK_CLICK,)) -> None:
    """Notes runs as loaded, with their numbers of events."""
    told = json.dumps([{"schemaKey": one, "format": "TSV", "snowplowEntity": "SELF_DESCRIBING_EVENT"} for one in types])
    with closing(shop.place.open()) as engine:
        for number, count in rows.items():
            base = f"s3://acme/transformed/{run_name(number)}/"
            at = (NOTED + number * timedelta(minutes=10)).replace(tzinfo=None)
            values = (base, told, at, at, None, None, at, "GZIP", "snowplow-transformer-batch", "5.6.3", count)
            marks = ", ".join("?" for _ in values)
            engine.write(f"INSERT INTO {engine.qualified(SCHEMA, 'manifest')} VALUES ({marks})", values)
