"""The settings of merging: how small objects of a dataset become well-sized ones, and which catalog shows them."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, field_validator

from manifest_platform import plugins
from manifest_platform.merging.catalogs.catalog import CatalogSettings
from manifest_platform.settings import YEAR, PluginSettings, Settings, StorageLocation, TimeZone

_TABLE = r"^[a-z][a-z0-9_]{0,126}$"


class MergeTableSettings(Settings):
    """What is different about a table, under the name that shredding gives it; what is left out is as for all of them."""

    name: str | None = Field(None, pattern=_TABLE, description="what readers call it, if not as shredding does")
    schema_name: str | None = Field(None, pattern=_TABLE, description="the schema that readers find it in, if not the dataset")
    enabled: bool = Field(True, description="false: it takes no new objects")
    interval_seconds: int | None = Field(None, ge=0, le=YEAR, description="as for all tables")
    target_mib: int | None = Field(None, ge=1, le=4096, description="as for all tables")
    zone: TimeZone | None = Field(None, description="as for all tables")
    comments: dict[str, str] = Field({}, description="what a catalog says of its columns, by column")


class MergeSettings(Settings):
    """How small objects of a dataset become well-sized ones."""

    output: StorageLocation = Field(description="where merged objects go: a local path or s3://bucket/prefix")
    first_day: date | None = Field(
        None,
        description="the first day that Dagster shows as a partition (the oldest that there is when its code is loaded, or a"
        " month ago); older ones are merged all the same",
    )
    profile: Literal["default", "strict"] = Field(
        "default", description="what applies where nothing is said here: `default`, or `strict` with Prism's limits"
    )
    interval_seconds: int | None = Field(
        None, ge=0, le=YEAR, description="seconds from a partition's first unmerged object to its merge (3600, strict 43200)"
    )
    target_mib: int | None = Field(None, ge=1, le=4096, description="the size of a merged object, MiB (256, strict 128)")
    zone: TimeZone = Field("UTC", description="the time zone in which a day ends")
    close_after_seconds: int | None = Field(
        None, ge=0, le=YEAR, description="seconds from the end of a day to the close of its partition (900, strict 0)"
    )
    max_attempts: int = Field(5, ge=1, le=20, description="merges of a partition that may die or fail before it is set aside")
    workers: int = Field(2, ge=1, le=64, description="merge runs that work at once")
    delayed: Literal["merged", "at_once"] = Field(
        "merged", description="whether readers see what comes after the close once it is `merged`, or `at_once` beside it"
    )
    invisible_seconds: int | None = Field(
        None,
        ge=1,
        le=YEAR,
        description="seconds that readers may not see an object before a check fails (twice the interval and five minutes)",
    )
    tables: dict[Annotated[str, Field(pattern=_TABLE)], MergeTableSettings] = Field(
        {}, description="what is different about a table, by its name"
    )
    catalog: Annotated[CatalogSettings, PluginSettings(plugins.CATALOGS, "embedded")] = Field(
        default_factory=dict, description="the catalog that shows merged partitions"
    )

    @field_validator("tables")
    @classmethod
    def _have_names_of_their_own(cls, tables: dict[str, MergeTableSettings]) -> dict[str, MergeTableSettings]:
        """No two tables are the same to readers."""
        named: dict[tuple[str | None, str], str] = {}
        for key, table in tables.items():
            own = (table.schema_name, table.name or key)
            if own in named:
                raise ValueError(f"{named[own]} and {key} are both called {own[1]!r}; allowed: names of their own")
            named[own] = key
        return tables
