"""Schemas of entities that shredding itself adds to events. A registry that has one of them has priority.

They are those that Iglu Central publishes. Without them here, an event that shredding adds an entity to would be bad wherever
the registries of a dataset lack Iglu Central.
"""

from __future__ import annotations

from typing import Any

from manifest_platform.sources.snowplow.schemas.keys import SchemaKey

BUILT_IN: dict[SchemaKey, dict[str, Any]] = {
    SchemaKey.parse("iglu:com.snowplowanalytics.snowplow/duplicate/jsonschema/1-0-0"): {
        "type": "object",
        "properties": {"originalEventId": {"type": "string", "format": "uuid"}},
        "required": ["originalEventId"],
        "additionalProperties": False,
    }
}
