"""The settings of a dataset of runs that Snowplow's transformer has shredded."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from manifest_platform.sources.snowplow.recognition import SEAL
from manifest_platform.sources.snowplow.settings import RUNS, SnowplowLandingSettings, SnowplowSettings


class TransformedLandingSettings(SnowplowLandingSettings):
    """The output root of the transformer: runs, each complete when it has its seal."""

    marker: str = Field(SEAL, min_length=1, pattern=r"^[^/]+$", description="the name of the file that the writer writes last")

    @field_validator("layout")
    @classmethod
    def _has_runs(cls, layout: str) -> str:
        if layout != RUNS:
            raise ValueError(f"the transformer writes runs; allowed: {RUNS}")
        return layout


class TransformedSettings(SnowplowSettings):
    """A dataset of runs that Snowplow's transformer has shredded, as TSV or as wide rows in Parquet."""

    source: Literal["snowplow_transformed"] = Field(  # ty: ignore[incompatible-attribute-override]
        "snowplow_transformed", description="runs that Snowplow's transformer has shredded"
    )
    landing: TransformedLandingSettings = Field(description="where the transformer writes its runs")

    @model_validator(mode="after")
    def _has_whole_events(self) -> TransformedSettings:
        """Refuses what needs the enriched events: the transformer's output has no lines to hide values in, or to skip."""
        if self.shred.private.columns or self.shred.entities:
            raise ValueError("shred.private and shred.entities: allowed with snowplow_enriched only")
        return self
