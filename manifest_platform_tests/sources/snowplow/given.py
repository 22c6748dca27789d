"""Enriched events and schemas, made for tests."""

import json
from pathlib import Path
from typing import Any

import orjson

from manifest_platform.sources.snowplow.fields import FIELDS, POSITION

EVENT_ID = "c6ef3124-b53a-4b13-a233-0088f79dcbcb"
_WRAPPER = "iglu:com.snowplowanalytics.snowplow/{}/jsonschema/1-0-0"

CLICK = "iglu:com.acme/link_click/jsonschema/1-0-0"
CLICK_SCHEMA = {
    "type": "object",
    "properties": {
        "targetUrl": {"type": "string", "maxLength": 12},
        "position": {"type": "integer", "minimum": 0, "maximum": 1000},
        "elementClasses": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object", "properties": {"x": {"type": "number"}, "visible": {"type": ["boolean", "null"]}}},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "total": {"type": "integer"},
    },
    "required": ["targetUrl"],
}
PAGE = "iglu:com.acme/WebPage/jsonschema/1-0-0"
PAGE_SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}}

DEFAULTS = {
    "app_id": "shop",
    "platform": "web",
    "collector_tstamp": "2024-03-05 10:11:12.345",
    "event": "page_view",
    "event_id": EVENT_ID,
    "v_collector": "ssc-3.0.0",
    "v_etl": "enrich-4.0.0",
}


def enriched(**fields: str) -> bytes:
    """Returns an enriched line, without its line end, from field values by name."""
    values = [""] * len(FIELDS)
    for name, value in {**DEFAULTS, **fields}.items():
        values[POSITION[name]] = value
    return "\t".join(values).encode()


def entity(schema: str, data: Any) -> dict[str, Any]:
    return {"schema": schema, "data": data}


def contexts(*entities: Any) -> str:
    return _json({"schema": _WRAPPER.format("contexts"), "data": entities})


def unstruct(data: Any) -> str:
    return _json({"schema": _WRAPPER.format("unstruct_event"), "data": data})


def _json(document: Any) -> str:
    """Returns compact JSON, even of careless values: NaN, and integers of more than 64 bits."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def publish(registry: Path, key: str, schema: Any) -> None:
    """Writes a schema into a folder registry."""
    path = registry / "schemas" / key.removeprefix("iglu:")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(schema if isinstance(schema, bytes) else orjson.dumps(schema))


def acme_registry(root: Path) -> Path:
    """Creates a folder registry with the two schemas that most tests use."""
    publish(root, CLICK, CLICK_SCHEMA)
    publish(root, PAGE, PAGE_SCHEMA)
    return root
