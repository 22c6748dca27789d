"""The settings of a dataset of Snowplow enriched events, and the names of its feed and of its main table."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, Field, field_validator, model_validator

from manifest_platform.listing import BAD_TABLE
from manifest_platform.settings import OffIsFalse, ReadableLocation, Settings
from manifest_platform.shred.limits import InputLimits
from manifest_platform.sources.layouts import Template
from manifest_platform.sources.settings import DatasetSettings, LandingSettings, LimitSettings, LoadSettings, ShredSettings
from manifest_platform.sources.snowplow.criteria import EntitySettings
from manifest_platform.sources.snowplow.private import Private, PrivateSettings
from manifest_platform.sources.snowplow.rules import Kinds, Names, OtherProperties, Rows, Rules, Validation
from manifest_platform.sources.snowplow.schemas.settings import (
    OVERHEARD,
    RegistryCacheSettings,
    RegistryLimits,
    RegistrySettings,
    has_credentials,
    is_http,
    is_overheard,
    without_userinfo,
)

FEED = "enriched"
RUNS = "run"
"""The layout where each directory is a run."""
EVENTS_TABLE = "events"
ATOMIC = "iglu:com.snowplowanalytics.snowplow/atomic/"
"""The beginning of the schema of the events themselves."""
ARTIFACT = "manifest-platform"
"""The name of this platform where Snowplow's tools name the processor."""


def time_column(table: str) -> str:
    """Returns the column with the collector's time, by whose date a table's rows are partitioned."""
    return "collector_tstamp" if table == EVENTS_TABLE else "root_tstamp"


class SnowplowLimitSettings(LimitSettings):
    """Limits of a landed run, whoever wrote it. They bound the memory, disk and time of shredding."""

    inflation: float = Field(
        InputLimits.inflation,
        ge=2,
        le=100_000,
        description="the most bytes of text for each byte of a compressed file, beyond its first 64 MiB",
    )
    dates: int = Field(
        InputLimits.dates, ge=1, le=100_000, description="the most dates of `collector_tstamp` in the events of a run"
    )

    duplicates: int = Field(
        InputLimits.duplicates,
        ge=1,
        le=1_000_000_000,
        description="lines of a run that repeat the event id of another; Spark's driver keeps 16 bytes for each",
    )

    def of_input(self) -> InputLimits:
        """The limits as shredding takes them."""
        return replace(super().of_input(), inflation=self.inflation, dates=self.dates, duplicates=self.duplicates)


class SnowplowLandingSettings(LandingSettings):
    """The landing root of runs or windows of time, and the rule for when they are complete."""

    layout: str = Field(
        RUNS,
        description="the layout below the root. `run`: directories named `run=YYYY-MM-DD-HH-MM-SS`. Or windows of time, in the"
        " words of `partitionFormat` of Snowplow's S3 loader, as `year={yyyy}/month={MM}/day={dd}/hour={HH}` or"
        " `{yyyy}/{MM}/{dd}/{HH}`; with `*` at the end, the beginning of file names, as `{yyyy}-{MM}-{dd}-{HH}*`. A window is"
        " complete when it is over and has settled, so `complete` defaults to `settle`, and `look_back_days` to 0.25",
    )

    @model_validator(mode="before")
    @classmethod
    def _windows_settle(cls, data: Any) -> Any:
        """Sets other defaults for windows: they have no marker, and too many files to list many windows at each look."""
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


class DuplicateSettings(Settings):
    """The duplicates that are treated within a run. What other runs have is decided when a run is loaded."""

    natural: bool = Field(
        True,
        description="whether only the event with the earliest `etl_tstamp` stays of those with the same id and the same"
        " fingerprint",
    )
    synthetic: bool = Field(
        True,
        description="whether events that have the same id, but are different, each get a new id and a context `duplicate` with"
        " the original id",
    )


with warnings.catch_warnings():
    # pydantic warns, because the name is that of a deprecated method of its models, which nothing here calls.
    warnings.filterwarnings("ignore", 'Field name "validate"')

    class ValidatedSettings(ShredSettings):
        """The output and the limits of shredding, and how entities are checked."""

        validate: Annotated[Validation, OffIsFalse()] = Field(  # ty: ignore[incompatible-attribute-override]  # as above
            "full",
            description="how entities are checked. `full`: by their JSON Schemas, as Snowplow does. `types`: a value must fit"
            " its column. `off`: a value that does not fit its column is left out, and null there",
        )


class SnowplowShredSettings(ValidatedSettings):
    """The output and the limits of shredding, and the schemas that give entities their types."""

    schemas: list[ReadableLocation] = Field(
        [], description="Iglu registries by priority, each a folder, an s3:// prefix or an http(s):// URL"
    )
    resolver: ReadableLocation | None = Field(
        None,
        description="a file with a resolver configuration of Snowplow (`com.snowplowanalytics.iglu/resolver-config`), whose"
        " registries over HTTP are asked together with those of `schemas`, by their priorities and vendor prefixes",
    )
    tables: dict[
        Annotated[str, Field(pattern=r"^iglu:[A-Za-z0-9._-]+/[A-Za-z0-9._-]+/[A-Za-z0-9._-]+/[1-9][0-9]*$")],
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")],
    ] = Field(
        {},
        description="by `iglu:vendor/name/format/model`, the table for its rows, if its default name is the table of another"
        " model: `{iglu:com.acme_order/x/jsonschema/1: acme_order_x_of_orders}`",
    )
    names: Names = Field(
        "underscored",
        description="how the columns of nested properties are named. `underscored`: `newsletter_id`. `dotted`: `newsletter.id`,"
        " as in the tables that Snowplow publishes; queries then quote the name",
    )
    rows: Rows = Field(
        "tables",
        description="the layout of rows. `tables`: a table for each model of entities. `events`: one row an event, with the"
        " entities as JSON in columns such as `contexts_com_acme_user_1`. `lake`: the same columns as arrays of structs",
    )
    other_properties: OtherProperties = Field(
        "leave_out",
        description="what becomes of properties that a schema allows and does not name. `leave_out`: only the run has them."
        " `keep`: they go to the column `other_properties`, as JSON. Those of an object with `patternProperties` always do",
    )
    oldest: AwareDatetime | None = Field(
        None,
        description="the earliest time that an event may have, with its zone, as `2021-01-01T00:00:00Z`. An event with a time"
        " before it is bad. By default, no time is too old, as in Snowplow's loader",
    )
    pack_kib: int = Field(
        0,
        ge=0,
        le=65_536,
        description="the most KiB of Parquet of a task that become one file instead of a file for each table, for many small"
        " runs; 0: none. With `merge`, each table always has files of its own",
    )
    duplicates: DuplicateSettings = Field(DuplicateSettings(), description="which duplicates within a run are treated")
    entities: list[EntitySettings] = Field(
        [],
        description="what becomes of entities by their schemas; the first match counts",
    )
    private: PrivateSettings = Field(
        PrivateSettings(), description="columns whose values are dropped or hashed before anything is written"
    )
    registries: list[RegistrySettings] = Field([], description="special settings of registries that `schemas` names")
    limits: SnowplowLimitSettings = Field(SnowplowLimitSettings(), description="limits of a landed run")
    registry_limits: RegistryLimits = Field(
        RegistryLimits(), description="limits of what is read from an HTTP registry, whatever it answers"
    )
    registry_cache: RegistryCacheSettings = Field(
        RegistryCacheSettings(), description="how long answers of registries over HTTP and in S3 are kept"
    )

    def rules(self) -> Rules:
        """The rules by which lines become rows, as shredding takes them."""
        duplicates = Kinds(self.duplicates.natural, self.duplicates.synthetic)
        return Rules(
            validate=self.validate,
            names=self.names,
            rows=self.rows,
            duplicates=duplicates,
            oldest=self.oldest,
            other_properties=self.other_properties,
            entities=tuple((one.schemas, one.form) for one in self.entities),
            private=Private.of(self.private) if self.private.columns else None,
        )

    @field_validator("schemas")
    @classmethod
    def _can_be_asked(cls, schemas: list[str]) -> list[str]:
        """Refuses URLs whose password would travel unencrypted. The message does not repeat the password."""
        for number, url in enumerate(schemas, start=1):
            if has_credentials(url) and is_overheard(url):
                raise ValueError(f"schemas: the registry at place {number}: {OVERHEARD}")
        return schemas

    @field_validator("tables")
    @classmethod
    def _keeps_rows_apart(cls, tables: dict[str, str]) -> dict[str, str]:
        """Refuses a table that is named for two families, or that is not for entities."""
        if len({*tables.values(), EVENTS_TABLE, BAD_TABLE}) < len(tables) + 2:
            raise ValueError(
                f"a table is named twice; allowed: a table of its own for each, other than {EVENTS_TABLE} and {BAD_TABLE}"
            )
        return tables

    @model_validator(mode="after")
    def _names_its_own(self) -> SnowplowShredSettings:
        """Refuses settings for a registry that is not among `schemas`, or is named twice."""
        if not self.schemas and not self.resolver:
            raise ValueError("there is no registry; allowed: at least one of `schemas`, or a file in `resolver`")
        urls = [registry.url for registry in self.registries]
        for url in urls:
            if url not in self.schemas or urls.count(url) > 1:
                raise ValueError("registries: allowed are the places of `schemas`, each once")
        for registry in self.registries:
            if not is_http(registry.url) and (registry.apikey_variable or registry.absent != (404,)):
                raise ValueError(f"registries: {registry.url} is not asked over HTTP; allowed there: prefixes, priority")
            if registry.apikey_variable and is_overheard(registry.url):
                raise ValueError(f"registries: {without_userinfo(registry.url)} has an apikey_variable: {OVERHEARD}")
        return self


class SnowplowLoadSettings(LoadSettings):
    """Settings of loading a dataset of events."""

    duplicates: Annotated[Literal["off", "seen", "warehouse"], OffIsFalse()] = Field(
        "off",
        description="where events of earlier runs with the same id and fingerprint are looked for, so that a load leaves them"
        " and their entities out. `warehouse`: in the table of events, within the load's transaction. `seen`: in a"
        " store beside the manifest, which remembers what was loaded. `off`: nowhere",
    )
    duplicates_days: float | None = Field(
        None,
        gt=0,
        le=3660,
        description="for `warehouse`, the days of `collector_tstamp` before a run's first event in which its events are looked"
        " for, null: 14; for `seen`, the days that an event is remembered, null: 180",
    )

    manifest_view: str | None = Field(
        None,
        pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="the name of a view in the dataset's schema with the columns of the table `manifest` of Snowplow's loader:"
        " a row for each loaded run, for dashboards and alerts that read that table. null: no view",
    )

    @field_validator("manifest_view")
    @classmethod
    def _is_no_table(cls, name: str | None) -> str | None:
        if name in (EVENTS_TABLE, BAD_TABLE):
            raise ValueError(f"{name} is a table of the dataset; allowed: names that no table has, such as manifest")
        return name

    @property
    def days(self) -> float:
        """The days in which copies are looked for."""
        return self.duplicates_days or (180 if self.duplicates == "seen" else 14)


class SnowplowSettings(DatasetSettings):
    """A dataset of Snowplow enriched runs."""

    feeds: ClassVar[tuple[str, ...]] = (FEED,)

    source: Literal["snowplow_enriched"] = Field("snowplow_enriched", description="Snowplow enriched runs")
    landing: SnowplowLandingSettings = Field(description="where runs or windows of time land, and when they are complete")
    shred: SnowplowShredSettings = Field(description="where shredded Parquet goes, and the schemas of entities")
    load: SnowplowLoadSettings = Field(SnowplowLoadSettings(), description="how the dataset is loaded")

    @property
    def remembers(self) -> bool:
        """True if loads leave out what a store beside the manifest's remembers."""
        return self.load.duplicates == "seen"

    @property
    def pack(self) -> int:
        """The most bytes of Parquet of a task that become a pack; 0 with a catalog, whose readers read the files of a table."""
        return self.shred.pack_kib << 10 if self.merge is None else 0

    def problems(self) -> Iterator[str]:
        """Yields a sentence if the view of loaded runs has the name of a table of entities."""
        yield from super().problems()
        if (name := self.load.manifest_view) in self.shred.tables.values():
            yield f"load.manifest_view {name} is a table in shred.tables; allowed: names that no table has, such as manifest"
