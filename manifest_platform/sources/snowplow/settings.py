"""The settings of a dataset of Snowplow enriched events, and the names of its feed and of its main table."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from manifest_platform.settings import ReadableLocation, Settings
from manifest_platform.sources.settings import DatasetSettings, ShredSettings

FEED = "enriched"
EVENTS_TABLE = "events"


def time_column(table: str) -> str:
    """The column with the collector's time, by which a table's rows are put under dates."""
    return "collector_tstamp" if table == EVENTS_TABLE else "root_tstamp"


class RegistrySettings(Settings):
    """What an HTTP registry wants besides its URL, and what it means by an answer."""

    url: ReadableLocation = Field(description="the registry, one of `schemas`")
    apikey_variable: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="the environment variable that holds the key of an Iglu server, which its header `apikey` takes",
    )
    absent: tuple[Literal[403, 404], ...] = Field(
        (404,),
        description="the answers that mean that a schema is not there: with 403, for static stores that answer so, even before"
        " the registry has given any schema",
    )


class SnowplowShredSettings(ShredSettings):
    """Where shredded Parquet goes, and by which schemas entities are typed."""

    schemas: list[ReadableLocation] = Field(
        min_length=1, description="Iglu registries by priority, each a folder, an s3:// or an http(s):// URL"
    )
    registries: list[RegistrySettings] = Field([], description="what is special about HTTP registries of `schemas`")

    @model_validator(mode="after")
    def _names_its_own(self) -> SnowplowShredSettings:
        """Of each registry that is special there is one, and it is looked into."""
        urls = [registry.url for registry in self.registries]
        for url in urls:
            if url not in self.schemas or not url.startswith(("http://", "https://")) or urls.count(url) > 1:
                raise ValueError("registries: allowed are http(s):// URLs of `schemas`, each once")
        return self


class SnowplowSettings(DatasetSettings):
    """A dataset of Snowplow enriched runs."""

    feeds: ClassVar[tuple[str, ...]] = (FEED,)

    source: Literal["snowplow_enriched"] = Field("snowplow_enriched", description="Snowplow enriched runs")
    shred: SnowplowShredSettings = Field(description="where shredded Parquet goes, and by which schemas")
