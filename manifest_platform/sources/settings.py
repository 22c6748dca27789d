"""The settings of a dataset: what all sources share. A source's own model extends these.

Belongs here: where directories land and when they are complete, where shredded output goes, how a dataset is loaded, steps of a
user's own. What one source alone can be told is in its own folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, field_validator, model_validator

from manifest_platform import plugins, storage
from manifest_platform.deployments import folder_beside
from manifest_platform.manifest.item import InvalidKey, check_key_text
from manifest_platform.merging.settings import MergeSettings
from manifest_platform.settings import YEAR, PluginSettings, Settings, StorageLocation
from manifest_platform.shred.limits import InputLimits

PLATFORM_STEPS = ("shred", "load")
"""The names of the platform's own steps, which a user's steps may wait for."""
_TAKEN = (*PLATFORM_STEPS, "discover", "operator")


class LandingSettings(Settings):
    """Where a dataset's directories land, and when one counts as complete."""

    root: StorageLocation = Field(description="the folder that the directories appear in: a local path or s3://bucket/prefix")
    complete: Literal["marker", "settle"] = Field(
        "marker",
        description="when a directory is complete: `marker`, it holds the file named by `marker`; `settle`, it has not changed"
        " for `settle_seconds`, for writers that leave no marker",
    )
    marker: str = Field("_SUCCESS", min_length=1, pattern=r"^[^/]+$", description="the file that a writer writes last")
    settle_seconds: float = Field(
        300,
        ge=1,
        le=86_400,
        description="seconds without a change, by the storage's clock, after which a directory is complete",
    )
    look_back_days: float = Field(
        30, gt=0, le=36_500, description="days behind the watermark, in logical time, in which late directories are looked for"
    )

    full_listing_hours: float = Field(
        24,
        gt=0,
        le=876_000,
        description="hours after which all directories are listed once more, a part at each look: so one is found that landed"
        " when the look-back was past it",
    )

    expected_every_seconds: dict[str, PositiveFloat] = Field(
        {},
        description="seconds, by feed, after which the next directory is loaded at the latest, landing and loading included:"
        " where the watermark is further behind now, its producer has stopped, and a check says so; a feed that is not named"
        " is not watched",
    )

    @field_validator("root")
    @classmethod
    def _fits_keys(cls, root: str) -> str:
        """Items are known by their URIs, so what a key of the manifest cannot hold cannot be in them."""
        try:
            check_key_text("landing root", storage.as_uri(root))
        except InvalidKey as error:
            allowed = "allowed in an s3:// URI: printable ASCII without spaces, '!', '\"' and '#'"
            raise ValueError(allowed) from error
        return root


class BadRowsSettings(Settings):
    """How many bad rows a directory may have: it fails when it exceeds both the share and the count, or has no good row."""

    max_count: int = Field(
        100, ge=0, description="bad rows that a directory may have whatever their share, if at least as many rows are good"
    )
    max_share: float = Field(0.05, ge=0, le=1, description="share of bad rows that a directory may have whatever their count")


class LimitSettings(Settings):
    """What no landed directory may exceed, whoever wrote it: so memory, disk and time of shredding are bounded."""

    line_kib: int = Field(
        InputLimits.line >> 10,
        ge=64,
        le=262_144,
        description="the longest line or record, KiB: a longer line is a bad row with its beginning, a longer CSV record fails"
        " its directory",
    )
    files: int = Field(
        InputLimits.files, ge=1, le=1_000_000, description="Parquet files that a directory may become, of all tables and dates"
    )
    bad_rows: int = Field(
        InputLimits.bad_rows, ge=1, le=100_000_000, description="bad rows that are kept of a directory; with more it fails"
    )

    def of_input(self) -> InputLimits:
        """The limits as shredding takes them."""
        return InputLimits(line=self.line_kib << 10, files=self.files, bad_rows=self.bad_rows)


class ShredSettings(Settings):
    """Where shredded Parquet goes, and in which portions Spark works."""

    output: StorageLocation = Field(description="where typed Parquet goes: a local path or s3://bucket/prefix")
    batch: int = Field(40, ge=1, le=90, description="directories that a Spark job takes")
    split_mib: int = Field(32, ge=1, le=1024, description="the most that a Spark task reads, MiB")
    bad_rows: BadRowsSettings = Field(BadRowsSettings(), description="how many bad rows a directory may have")
    limits: LimitSettings = Field(LimitSettings(), description="what no landed directory may exceed")


class LoadSettings(Settings):
    """How a dataset is loaded."""

    late: Literal["append", "quarantine"] = Field(
        "append",
        description="what becomes of a directory that arrives behind the watermark: `append`, it is loaded next and marked late"
        " (for tables that only append); `quarantine`, it is set aside for the operator",
    )
    max_lag_seconds: float = Field(
        3600, ge=1, le=YEAR, description="seconds that a discovered directory may wait before a check warns"
    )


class StepSettings(Settings):
    """A step of a user's own, done by programs that claim items from a shell."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$", description="lower case letters, digits, '_' and '-'")
    feed: str | None = Field(None, description="the feed whose items it works on, where the dataset has several")
    upstream: tuple[str, ...] = Field((), description="the steps that must have done an item before")
    order: Literal["any", "strict"] = Field(
        "any", description="`any` item that is ready, or `strict`: the earliest that is not done, or nothing"
    )
    late: Literal["append", "quarantine"] = Field(
        "quarantine", description="of a strict step: what becomes of a directory that arrives behind its watermark"
    )
    environment: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$")], ...] = Field(
        (),
        description="variables of the environment that the step's programs get, as `[AWS_*, API_TOKEN]`: names, or their"
        " beginnings with `*`. Beside these, programs get `PATH`, `HOME`, and what language, time zone and the folder of"
        " temporary files depend on, and nothing else",
    )


class DatasetBasics(Settings):
    """What every dataset has: its source, who is responsible for it, and steps of a user's own.

    `feeds`: of the source, the main one first. `platform_steps`: the platform's own steps, which a user's may wait for.
    """

    feeds: ClassVar[tuple[str, ...]] = ()
    platform_steps: ClassVar[tuple[str, ...]] = PLATFORM_STEPS

    source: str = Field(description="the kind of directories that land")
    owner: str = Field(
        "team:data",
        pattern=r"^(team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+)$",
        description="who is responsible, as Dagster shows it: team:NAME or an e-mail address",
    )
    steps: tuple[StepSettings, ...] = Field((), description="steps of your own")

    @field_validator("steps")
    @classmethod
    def _fit_together(cls, steps: tuple[StepSettings, ...]) -> tuple[StepSettings, ...]:
        """Each step has a name of its own, and waits only for steps that come before it."""
        known = list(cls.platform_steps)
        for step in steps:
            if step.name in (*known, *_TAKEN):
                raise ValueError(
                    f"step {step.name!r} is declared already; allowed: names other than discover, {', '.join(known)}"
                )
            if missing := [name for name in step.upstream if name not in known]:
                raise ValueError(
                    f"step {step.name!r} waits for {', '.join(missing)}; allowed, declared before: {', '.join(known)}"
                )
            if step.feed not in (None, *cls.feeds):
                raise ValueError(f"step {step.name!r} is of feed {step.feed!r}; allowed: {', '.join(cls.feeds)}")
            known.append(step.name)
        return steps

    @model_validator(mode="after")
    def _fits_its_source(self) -> DatasetBasics:
        if problems := list(self.problems()):
            raise ValueError("; ".join(problems))
        return self

    def of_deployment(self, deployment: str) -> DatasetBasics:
        """The dataset as a deployment beside production has it: it writes nowhere that production does. Raises ValueError."""
        del deployment
        return self

    def problems(self) -> Iterator[str]:
        """What does not fit together, by the source's own rules: a sentence each, with what is allowed."""
        yield from ()


class DatasetSettings(DatasetBasics):
    """A dataset, from a landing root to the warehouse schema of the dataset's name.

    A source whose directories land extends this model by what it alone can be told.
    """

    landing: LandingSettings = Field(description="where directories land, and when they are complete")
    shred: ShredSettings = Field(description="where shredded Parquet goes")
    load: LoadSettings = Field(LoadSettings(), description="how the dataset is loaded")
    merge: MergeSettings | None = Field(
        None, description="how small objects become well-sized ones, which a catalog shows; without it nothing is merged"
    )

    def of_deployment(self, deployment: str) -> DatasetSettings:
        """The same landing root, which is only read; what is made of it goes beside what production makes."""
        output = folder_beside(self.shred.output, deployment)
        merge = self.merge and self.merge.model_copy(
            update={
                "output": folder_beside(self.merge.output, deployment),
                "catalog": self.merge.catalog.of_deployment(deployment),
            }
        )
        return self.model_copy(update={"shred": self.shred.model_copy(update={"output": output}), "merge": merge})

    @model_validator(mode="after")
    def _expects_its_feeds(self) -> DatasetSettings:
        if strangers := sorted(self.landing.expected_every_seconds.keys() - set(self.feeds)):
            allowed = ", ".join(self.feeds)
            raise ValueError(f"landing.expected_every_seconds names feed {strangers[0]!r}; allowed: {allowed}")
        return self


DEFAULT_SOURCE = "snowplow_enriched"
"""The source of a dataset that names none."""

AnyDataset = Annotated[DatasetSettings, PluginSettings(plugins.SOURCES, DEFAULT_SOURCE, "source")]
"""The settings of a dataset of any source: of the one that `source` names, else of this."""
