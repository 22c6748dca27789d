"""The settings of a dataset of Snowplow enriched events, and the names of its feed and of its main table."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from manifest_platform.settings import ReadableLocation
from manifest_platform.sources.settings import DatasetSettings, ShredSettings

FEED = "enriched"
EVENTS_TABLE = "events"


def time_column(table: str) -> str:
    """The column with the collector's time, by which a table's rows are put under dates."""
    return "collector_tstamp" if table == EVENTS_TABLE else "root_tstamp"


class SnowplowShredSettings(ShredSettings):
    """Where shredded Parquet goes, and by which schemas entities are typed."""

    schemas: list[ReadableLocation] = Field(
        min_length=1, description="Iglu registries by priority, each a folder, an s3:// or an http(s):// URL"
    )


class SnowplowSettings(DatasetSettings):
    """A dataset of Snowplow enriched runs."""

    feeds: ClassVar[tuple[str, ...]] = (FEED,)

    source: Literal["snowplow_enriched"] = Field("snowplow_enriched", description="Snowplow enriched runs")
    shred: SnowplowShredSettings = Field(description="where shredded Parquet goes, and by which schemas")
