"""The table `manifest` of Snowplow's loader, as a view of this platform's ledger, for dashboards and alerts that read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from manifest_platform.sources.snowplow.schemas.keys import is_key
from manifest_platform.sources.snowplow.settings import ARTIFACT, ATOMIC, EVENTS_TABLE, FEED
from manifest_platform.warehouse.applied_view import AppliedView, ViewColumn
from manifest_platform.warehouse.load import About

if TYPE_CHECKING:
    from manifest_platform.listing import Listing

_LONGEST = 65_535  # bytes of the longest text of Redshift, and of the loader's column

_COLUMNS = (
    ViewColumn("base", "string", "item", "/"),
    ViewColumn("types", "string", "types", is_json=True),
    ViewColumn("shredding_started", "timestamp", "shredding_started"),
    ViewColumn("shredding_completed", "timestamp", "shredding_completed"),
    ViewColumn("min_collector_tstamp", "timestamp", "first_time"),
    ViewColumn("max_collector_tstamp", "timestamp", "last_time"),
    ViewColumn("ingestion_tstamp", "timestamp", "applied_at"),
    ViewColumn("compression", "string", "compression"),
    ViewColumn("processor_artifact", "string", "processor"),
    ViewColumn("processor_version", "string", "processor_version"),
    ViewColumn("count_good", "bigint", "good"),
)
"""The columns of the loader's table, in its order."""


def manifest_view(name: str) -> AppliedView:
    """Returns the view under a name."""
    return AppliedView(name, FEED, _COLUMNS)


def about(listing: Listing) -> About:
    """Returns the facts of a run that the loader notes too."""
    return About(processor=ARTIFACT, compression="NONE", types=_types(listing))


def _types(listing: Listing) -> str | None:
    """Returns the schemas of a run as the loader notes them; None if the text would be too long for its column.

    A schema whose rows are in the table of events is one of wide rows.
    """
    tables = {one.type: one.table for one in listing.types if is_key(one.type) and not one.type.startswith(ATOMIC)}
    text = orjson.dumps([_told(key, table) for key, table in sorted(tables.items())])
    return text.decode() if len(text) <= _LONGEST else None


def _told(key: str, table: str) -> dict[str, str]:
    if table == EVENTS_TABLE:
        return {"schemaKey": key, "format": "PARQUET", "transformation": "widerow"}
    return {"schemaKey": key, "format": "TSV"}
