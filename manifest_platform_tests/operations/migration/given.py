"""Rows of the two source tables for tests of the migration, as DynamoDB's low-level client returns them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4, uuid5

import boto3

from manifest_platform.demo.dynamodb import REGION, DynamoDbLocal
from manifest_platform.manifest import Application, Manifest, Store
from manifest_platform.manifest.payloads import LOCKED
from manifest_platform.operations.migration import (
    Applications,
    Histories,
    Place,
    Report,
    import_items,
    read_snowflake,
    read_snowplow,
)
from manifest_platform.sources.snowplow.settings import SnowplowSettings
from manifest_platform.sources.snowplow.source import SnowplowEnriched
from manifest_platform_tests.manifest.given import FEED, LOAD, SHRED, steps

ROOT = "s3://shop/enriched/archive"
NAMES = Applications(load=LOAD, shred=SHRED)
START = datetime(2019, 3, 1, tzinfo=UTC)
SHREDDER, LOADER = Application("snowplow-rdb-shredder", "0.14.0"), Application("snowplow-rdb-loader", "0.15.0")
TYPES = "iglu:com.snowplowanalytics.snowplow.storage.rdbshredder/processed_payload/jsonschema/1-0-0"
SHREDDED = {"schema": TYPES, "data": {"shreddedTypes": ["iglu:com.acme/click/jsonschema/1-0-0"]}}

Attribute = dict[str, Any] | None
Row = dict[str, dict[str, Any]]


def place(root: str = ROOT, source_root: str = "") -> Place:
    """The source of a dataset of Snowplow runs, with a landing root."""
    parts = {
        "source": "snowplow_enriched",
        "landing": {"root": root},
        "shred": {"output": "/shredded", "schemas": ["/schemas"]},
    }
    return Place(SnowplowEnriched("shop", SnowplowSettings.model_validate(parts)), source_root)


PLACE = place()


def uid(name: str) -> str:
    return str(uuid5(UUID(int=0), name))


def run(number: int) -> str:
    return f"run=2019-03-01-00-{number:02d}-00"


def row(
    number: int,
    name: str,
    state: str,
    previous: str | None = None,
    by: Application = SHREDDER,
    *,
    seconds: float | None = None,
    data: dict[str, Any] | None = None,
    root: str = ROOT,
    but: dict[str, Attribute] | None = None,
) -> Row:
    """A row of the Processing Manifest. Its id and time are derived from `name`. `but`: attributes to replace."""
    at = START + timedelta(minutes=number, seconds=ord(name[-1]) if seconds is None else seconds)
    given: dict[str, Attribute] = {
        "ItemId": {"S": f"{root}/{run(number)}/"},
        "Id": {"S": uid(f"{number} {name}")},
        "PreviousRecordId": {"S": uid(f"{number} {previous}")} if previous else None,
        "RState": {"S": state},
        "AppName": {"S": by.name},
        "AppVer": {"S": by.version},
        "InstanceId": {"S": by.instance} if by.instance else None,
        "Author": {"S": f"{by.name}:{by.version}:0.1.0"},
        "Timestamp": {"N": str(round(at.timestamp() * 1000))},
        "Data": {"S": json.dumps(data)} if data else None,
        **(but or {}),
    }
    return {name: value for name, value in given.items() if value is not None}


def added(number: int) -> list[Row]:
    return [row(number, "0", "NEW")]


def shredded(number: int) -> list[Row]:
    return [*added(number), row(number, "1", "PROCESSING", "0"), row(number, "2", "PROCESSED", "1", data=SHREDDED)]


def loaded(number: int, by: Application = LOADER) -> list[Row]:
    return [*shredded(number), row(number, "3", "PROCESSING", "0", by), row(number, "4", "PROCESSED", "3", by)]


def shred_failed(number: int) -> list[Row]:
    error = {
        "schema": "iglu:com.snowplowanalytics.snowplow/application_error/jsonschema/1-0-2",
        "data": {"programmingLanguage": "SCALA", "message": "no space left"},
    }
    return [*added(number), row(number, "1", "PROCESSING", "0"), row(number, "2", "FAILED", "1", data=error)]


def lost_race(number: int) -> list[Row]:
    """Two concurrent shredders both gave up: their Failed records point at nothing, and name their own Processing."""
    pairs = [("1", "3"), ("2", "4")]
    rows = added(number)
    for processing, failed in pairs:
        data = {"schema": LOCKED, "data": {"recordId": uid(f"{number} {processing}")}}
        rows += [row(number, processing, "PROCESSING", "0"), row(number, failed, "FAILED", data=data)]
    return rows


def snowflake_row(number: int, state: str, to_skip: bool = False, but: dict[str, Attribute] | None = None) -> Row:
    """A row of the Snowflake Loader's table."""
    second = int((START + timedelta(minutes=number)).timestamp())
    given: dict[str, Attribute] = {
        "RunId": {"S": f"enriched/archive/{run(number)}/"},
        "AddedAt": {"N": str(second)},
        "AddedBy": {"S": "0.8.0"},
        "ToSkip": {"BOOL": to_skip},
    }
    if state in ("PROCESSED", "LOADED"):
        given |= {
            "ProcessedAt": {"N": str(second + 10)},
            "ShredTypes": {"L": [{"S": "contexts_com_acme_click_1"}, {"S": "unstruct_event_com_acme_buy_1"}]},
            "SavedTo": {"S": f"s3://shop/transformed/{run(number)}/"},
        }
    if state == "LOADED":
        given |= {"LoadedAt": {"N": str(second + 20)}, "LoadedBy": {"S": "0.8.1"}}
    return {name: value for name, value in {**given, **(but or {})}.items() if value is not None}


def manifest(store: Store, **options: Any) -> Manifest:
    return Manifest(store, "shop", {FEED: steps(**options)}, "operator")


def histories(*rows: list[Row], applications: Applications = NAMES) -> Histories:
    return read_snowplow([one for some in rows for one in some], PLACE, applications)


def import_snowplow(into: Manifest, *rows: list[Row], **options: Any) -> Report:
    return import_items(into, FEED, histories(*rows), "dynamodb://manifest", **options)


def import_snowflake(into: Manifest, *rows: Row, **options: Any) -> Report:
    return import_items(into, FEED, read_snowflake(rows, PLACE, LOAD), "dynamodb://runs", **options)


def source_table(dynamodb: DynamoDbLocal, rows: list[Row], *keys: str) -> str:
    """Creates a table of rows with a hash key and optionally a range key, and returns its name."""
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=dynamodb.endpoint)
    name = f"source-{uuid4().hex[:8]}"
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)],
    )
    for one in rows:
        client.put_item(TableName=name, Item=one)
    return name
