"""The settings of merging (`merge:` of a dataset): sizes, schedules and the catalog."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, field_validator

from manifest_platform import plugins
from manifest_platform.merging.catalogs.catalog import CatalogSettings
from manifest_platform.settings import YEAR, PluginSettings, Settings, StorageLocation, TimeZone

_TABLE = r"^[a-z][a-z0-9_]{0,126}$"


class MergeTableSettings(Settings):
    """Settings of one table, by its name in shredding. A setting that is not given has the value for all tables."""

    name: str | None = Field(
        None, pattern=_TABLE, description="the table's name for readers (by default its name in shredding)"
    )
    schema_name: str | None = Field(None, pattern=_TABLE, description="the table's schema for readers (by default the dataset)")
    enabled: bool = Field(True, description="false to take no new objects")
    interval_seconds: int | None = Field(None, ge=0, le=YEAR, description="overrides the setting for all tables")
    target_mib: int | None = Field(None, ge=1, le=4096, description="overrides the setting for all tables")
    zone: TimeZone | None = Field(None, description="overrides the setting for all tables")
    comments: dict[str, str] = Field({}, description="comments for the catalog, by column")


class MergeSettings(Settings):
    """Settings of merging for a dataset."""

    output: StorageLocation = Field(description="location of merged objects: a local path or s3://bucket/prefix")
    first_day: date | None = Field(
        None,
        description="the first daily partition in Dagster (by default the oldest partition when its code is loaded, or a month"
        " ago); earlier days are merged, too",
    )
    profile: Literal["default", "strict"] = Field(
        "default", description="default values of the other settings: `default`, or `strict` with Prism's limits"
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
    workers: int = Field(2, ge=1, le=64, description="largest number of concurrent merge runs")
    delayed: Literal["merged", "at_once"] = Field(
        "merged", description="when readers see objects that arrive after the close: `merged` (after their merge) or `at_once`"
    )
    invisible_seconds: int | None = Field(
        None,
        ge=1,
        le=YEAR,
        description="seconds that an object may be invisible to readers before a check fails (twice the interval plus 300)",
    )
    tables: dict[Annotated[str, Field(pattern=_TABLE)], MergeTableSettings] = Field(
        {}, description="settings of single tables, by name"
    )
    catalog: Annotated[CatalogSettings, PluginSettings(plugins.CATALOGS, "embedded")] = Field(
        default_factory=dict, description="the catalog that shows merged partitions"
    )

    @field_validator("tables")
    @classmethod
    def _have_names_of_their_own(cls, tables: dict[str, MergeTableSettings]) -> dict[str, MergeTableSettings]:
        """Raises ValueError if two tables have the same name for readers."""
        named: dict[tuple[str | None, str], str] = {}
        for key, table in tables.items():
            own = (table.schema_name, table.name or key)
            if own in named:
                raise ValueError(f"{named[own]} and {key} are both called {own[1]!r}; give each its own name")
            named[own] = key
        return tables
