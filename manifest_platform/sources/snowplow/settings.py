"""The settings of a dataset of Snowplow enriched events, and the names of its feed and of its main table."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from manifest_platform.listing import BAD_TABLE
from manifest_platform.settings import ReadableLocation, Settings, is_this_machine
from manifest_platform.shred.limits import InputLimits
from manifest_platform.sources.layouts import Template
from manifest_platform.sources.settings import DatasetSettings, LandingSettings, LimitSettings, ShredSettings

FEED = "enriched"
RUNS = "run"
"""The layout of directories that are each a run."""
_OVERHEARD = "credentials are sent by https:// only, or by http:// to this machine"
EVENTS_TABLE = "events"


def time_column(table: str) -> str:
    """The column with the collector's time, by which a table's rows are put under dates."""
    return "collector_tstamp" if table == EVENTS_TABLE else "root_tstamp"


def has_credentials(url: str) -> bool:
    """Whether a registry's URL has a user or a password in it."""
    return is_http(url) and "@" in urlsplit(url).netloc


def is_overheard(url: str) -> bool:
    """Whether what is sent to a URL travels in the clear, to another machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_this_machine(parts.hostname)


def is_http(location: str) -> bool:
    """Whether a registry is asked over HTTP."""
    return location.startswith(("http://", "https://"))


def without_userinfo(location: str) -> str:
    """A registry's location as it may be shown and stored."""
    return re.sub(r"^(https?://)[^/?#]*@", r"\1", location)


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


class RegistryLimits(Settings):
    """What is taken of an HTTP registry at most, whatever it answers."""

    schema_kib: int = Field(256, ge=1, le=1 << 16, description="KiB of a schema, or of a list of its versions")
    total_mib: int = Field(16, ge=1, le=1 << 12, description="MiB of all schemas that the tasks of one batch need in a process")
    seconds: float = Field(
        60, ge=1, le=3600, description="seconds for a schema, or for all versions of one, further tries and redirects included"
    )
    redirects: int = Field(5, ge=0, le=20, description="redirects that are followed, within the registry's own origin")
    versions: int = Field(200, ge=1, le=100_000, description="versions of a model")
    columns: int = Field(2_000, ge=1, le=100_000, description="columns of a model's table")
    unknown_keys: int = Field(
        500,
        ge=1,
        le=1_000_000,
        description="schemas that no registry has and that one task asks for; beyond them the registries are asked only for"
        " those that most lines name, a few with each 4 MiB, and the other lines are bad rows that say so",
    )


class SnowplowLimitSettings(LimitSettings):
    """What no landed run may exceed, whoever wrote it: so memory, disk and time of shredding are bounded."""

    inflation: float = Field(
        InputLimits.inflation,
        ge=2,
        le=100_000,
        description="how many times as large the text of a compressed file may be as its bytes, beyond its first 64 MiB",
    )
    dates: int = Field(
        InputLimits.dates, ge=1, le=100_000, description="dates of `collector_tstamp` that the events of a run may have"
    )

    def of_input(self) -> InputLimits:
        """The limits as shredding takes them."""
        return replace(super().of_input(), inflation=self.inflation, dates=self.dates)


class SnowplowLandingSettings(LandingSettings):
    """Where runs or windows of time land, and when they count as complete."""

    layout: str = Field(
        RUNS,
        description="what lies below the root: `run`, directories as `run=YYYY-MM-DD-HH-MM-SS`; or windows of time, in the"
        " words of `partitionFormat` of Snowplow's S3 loader, as `year={yyyy}/month={MM}/day={dd}/hour={HH}` or"
        " `{yyyy}/{MM}/{dd}/{HH}`; with `*` at its end, how files are called, as `{yyyy}-{MM}-{dd}-{HH}*`. A window is"
        " complete when it is over and has settled: `complete` is `settle` then, and `look_back_days` 0.25 where nothing else"
        " is said",
    )

    @model_validator(mode="before")
    @classmethod
    def _windows_settle(cls, data: Any) -> Any:
        """Nobody marks a window; and they hold so many files that few of them are listed at each look."""
        if isinstance(data, dict) and data.get("layout", RUNS) != RUNS:
            return {"complete": "settle", "look_back_days": 0.25, **data}
        return data

    @field_validator("layout")
    @classmethod
    def _is_layout(cls, layout: str) -> str:
        if layout != RUNS:
            Template(layout)
        return layout

    @model_validator(mode="after")
    def _no_window_is_marked(self) -> SnowplowLandingSettings:
        if self.layout != RUNS and self.complete != "settle":
            raise ValueError("a window of time has no marker; allowed with this layout: `complete: settle`")
        return self


class SnowplowShredSettings(ShredSettings):
    """Where shredded Parquet goes, and by which schemas entities are typed."""

    schemas: list[ReadableLocation] = Field(
        min_length=1, description="Iglu registries by priority, each a folder, an s3:// or an http(s):// URL"
    )
    tables: dict[
        Annotated[str, Field(pattern=r"^iglu:[A-Za-z0-9._-]+/[A-Za-z0-9._-]+/[A-Za-z0-9._-]+/[1-9][0-9]*$")],
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")],
    ] = Field(
        {},
        description="of `iglu:vendor/name/format/model`, the table that its rows go to, where its own name is the table"
        " of another one: `{iglu:com.acme_order/x/jsonschema/1: acme_order_x_of_orders}`",
    )
    registries: list[RegistrySettings] = Field([], description="what is special about HTTP registries of `schemas`")
    limits: SnowplowLimitSettings = Field(SnowplowLimitSettings(), description="what no landed run may exceed")
    registry_limits: RegistryLimits = Field(
        RegistryLimits(), description="what is taken of an HTTP registry at most, whatever it answers"
    )

    @field_validator("schemas")
    @classmethod
    def _can_be_asked(cls, schemas: list[str]) -> list[str]:
        """Each URL is one whose password, if it has any, nobody overhears. The message repeats none."""
        for number, url in enumerate(schemas, start=1):
            if has_credentials(url) and is_overheard(url):
                raise ValueError(f"schemas: the registry at place {number}: {_OVERHEARD}")
        return schemas

    @field_validator("tables")
    @classmethod
    def _keeps_rows_apart(cls, tables: dict[str, str]) -> dict[str, str]:
        """One table a family, and none that is not for entities."""
        if len({*tables.values(), EVENTS_TABLE, BAD_TABLE}) < len(tables) + 2:
            raise ValueError(
                f"a table is named twice; allowed: a table of its own for each, other than {EVENTS_TABLE} and {BAD_TABLE}"
            )
        return tables

    @model_validator(mode="after")
    def _names_its_own(self) -> SnowplowShredSettings:
        """Of each registry that is special there is one, and it is looked into."""
        urls = [registry.url for registry in self.registries]
        for url in urls:
            if url not in self.schemas or not url.startswith(("http://", "https://")) or urls.count(url) > 1:
                raise ValueError("registries: allowed are http(s):// URLs of `schemas`, each once")
        for registry in self.registries:
            if registry.apikey_variable and is_overheard(registry.url):
                raise ValueError(f"registries: of {without_userinfo(registry.url)}, with an apikey_variable: {_OVERHEARD}")
        return self


class SnowplowSettings(DatasetSettings):
    """A dataset of Snowplow enriched runs."""

    feeds: ClassVar[tuple[str, ...]] = (FEED,)

    source: Literal["snowplow_enriched"] = Field("snowplow_enriched", description="Snowplow enriched runs")
    landing: SnowplowLandingSettings = Field(description="where runs or windows of time land, and when they are complete")
    shred: SnowplowShredSettings = Field(description="where shredded Parquet goes, and by which schemas")
