"""The settings of a dataset of runs that Snowplow's transformer has shredded."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from manifest_platform.sources.snowplow.recognition import SEAL
from manifest_platform.sources.snowplow.settings import (
    RUNS,
    SnowplowLandingSettings,
    SnowplowSettings,
    SnowplowShredSettings,
)


class TransformedLandingSettings(SnowplowLandingSettings):
    """The output root of the transformer: runs, each complete when it has its seal."""

    marker: str = Field(SEAL, min_length=1, pattern=r"^[^/]+$", description="the name of the file that the writer writes last")

    @field_validator("layout")
    @classmethod
    def _has_runs(cls, layout: str) -> str:
        if layout != RUNS:
            raise ValueError(f"the transformer writes runs; allowed: {RUNS}")
        return layout

    @field_validator("complete")
    @classmethod
    def _has_a_marker(cls, complete: str) -> str:
        if complete != "marker":
            raise ValueError("a run cannot be read without its seal, which the transformer writes last; allowed: marker")
        return complete


class TransformedShredSettings(SnowplowShredSettings):
    """The output and the limits of typing, and the schemas that give entities their types."""

    fewer_events: Literal["refuse", "load"] = Field(
        "refuse",
        description="what becomes of a run with fewer events than its seal counts. The transformer counts the events of a"
        " repeated task twice, and a file may be missing: the two look alike. `refuse`: the run fails. `load`: it is loaded,"
        " and the difference is told",
    )


class TransformedSettings(SnowplowSettings):
    """A dataset of runs that Snowplow's transformer has shredded, as TSV or as wide rows in Parquet."""

    source: Literal["snowplow_transformed"] = Field(  # ty: ignore[incompatible-attribute-override]
        "snowplow_transformed", description="runs that Snowplow's transformer has shredded"
    )
    landing: TransformedLandingSettings = Field(description="where the transformer writes its runs")
    shred: TransformedShredSettings = Field(description="where typed Parquet goes, and the schemas of entities")

    @model_validator(mode="after")
    def _has_whole_events(self) -> TransformedSettings:
        """Refuses what needs the enriched events: the transformer's output has no lines to hide values in, or to skip."""
        if self.shred.private.columns or self.shred.entities:
            raise ValueError("shred.private and shred.entities: allowed with snowplow_enriched only")
        return self
