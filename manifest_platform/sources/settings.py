"""The settings of a dataset that all sources share. A source's own model extends these.

They say where directories land and when they are complete, where shredded output goes, how a dataset is loaded, and which steps
a user adds. Settings of a single source are in its own folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, field_validator, model_validator

from manifest_platform import plugins, storage
from manifest_platform.deployments import folder_beside
from manifest_platform.manifest.item import InvalidKey, check_key_text
from manifest_platform.manifest.records import Holding
from manifest_platform.merging.settings import MergeSettings
from manifest_platform.notices import kind_of
from manifest_platform.settings import YEAR, PluginSettings, Settings, StorageLocation
from manifest_platform.shred.limits import InputLimits
from manifest_platform.sources.blackout import BlackoutSettings
from manifest_platform.warehouse.checks import AnyCheck, same_names
from manifest_platform.warehouse.upkeep_settings import RetentionSettings

PLATFORM_STEPS = ("shred", "load")
"""The platform's own steps, which a user's steps may name as upstream."""
_TAKEN = (*PLATFORM_STEPS, "discover", "operator", "retention")


class LandingSettings(Settings):
    """The landing root of a dataset, and the rule for when a directory is complete."""

    root: StorageLocation = Field(description="the folder in which directories land: a local path or s3://bucket/prefix")
    complete: Literal["marker", "settle"] = Field(
        "marker",
        description="when a directory is complete. `marker`: when it contains the file named by `marker`. `settle`: when it has"
        " not changed for `settle_seconds`, for writers that leave no marker",
    )
    marker: str = Field(
        "_SUCCESS", min_length=1, pattern=r"^[^/]+$", description="the name of the file that the writer writes last"
    )
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
        description="hours in which all directories are listed once, a part at each look. This finds directories that landed"
        " with a time before the look-back",
    )

    notify: str | None = Field(
        None,
        description="where the storage's events of new objects come from, which wake a follower: a queue, which the datasets of"
        " a follower may share,"
        " such as `sqs://QUEUE?region=eu-west-1`; or `http://HOST:PORT`, where the follower listens for what a server posts."
        " A listing finds what events do not tell",
    )

    expected_every_seconds: dict[str, PositiveFloat] = Field(
        {},
        description="by feed, the longest normal time in seconds from one directory to the next, landing and loading included."
        " A check warns if the watermark is further behind: the producer has probably stopped. Feeds that are not named are not"
        " watched",
    )

    @field_validator("notify")
    @classmethod
    def _is_known(cls, notify: str | None) -> str | None:
        return kind_of(notify).checked(notify) if notify else None

    @field_validator("root")
    @classmethod
    def _fits_keys(cls, root: str) -> str:
        """Refuses characters that a key of the manifest cannot hold: URIs of items begin with the root."""
        try:
            check_key_text("landing root", storage.as_uri(root))
        except InvalidKey as error:
            allowed = "allowed in an s3:// URI: printable ASCII without spaces, '!', '\"' and '#'"
            raise ValueError(allowed) from error
        return root


class BadRowsSettings(Settings):
    """The bad rows that a directory may have. It fails if it exceeds both the share and the count, or has no good row."""

    max_count: int = Field(
        100,
        ge=0,
        description="bad rows that a directory may have, whatever their share, if it has at least as many good rows",
    )
    max_share: float = Field(0.05, ge=0, le=1, description="share of bad rows that a directory may have, whatever their count")


class LimitSettings(Settings):
    """Limits of a landed directory, whoever wrote it. They bound the memory, disk and time of shredding."""

    line_kib: int = Field(
        InputLimits.line >> 10,
        ge=64,
        le=262_144,
        description="the longest line or record, in KiB. A longer line becomes a bad row that keeps its beginning; a longer CSV"
        " record fails its directory",
    )
    files: int = Field(
        InputLimits.files,
        ge=1,
        le=1_000_000,
        description="Parquet files that shredding may write for a directory, over all tables and dates",
    )
    bad_rows: int = Field(
        InputLimits.bad_rows, ge=1, le=100_000_000, description="bad rows of a directory that are kept; with more it fails"
    )

    def of_input(self) -> InputLimits:
        """The limits as shredding takes them."""
        return InputLimits(line=self.line_kib << 10, files=self.files, bad_rows=self.bad_rows)


class ShredSettings(Settings):
    """The output and the limits of shredding, and how its work is divided for Spark."""

    output: StorageLocation = Field(description="the folder for typed Parquet: a local path or s3://bucket/prefix")
    batch: int = Field(40, ge=1, le=90, description="the most directories that a Spark job shreds")
    ahead: bool = Field(
        True,
        description="whether the next batch is shredded while the batch before is loaded; false needs less memory at a time",
    )
    split_mib: int = Field(32, ge=1, le=1024, description="the most that a Spark task reads, in MiB")
    bad_rows: BadRowsSettings = Field(BadRowsSettings(), description="how many bad rows a directory may have")
    limits: LimitSettings = Field(LimitSettings(), description="limits of a landed directory")


class BatchSettings(Settings):
    """The directories that follow each other in a feed and are loaded in one transaction, as long as they are ready."""

    items: int = Field(1, ge=1, le=1000, description="the most directories in a transaction; 1: each has its own")
    mib: int = Field(256, ge=1, le=1_048_576, description="the most Parquet in a transaction of several directories, in MiB")
    seconds: float = Field(
        60,
        gt=0,
        le=3600,
        description="seconds that a transaction of several directories may take, by the time that the directories before took",
    )


class LoadSettings(Settings):
    """Settings of loading a dataset."""

    batch: BatchSettings = Field(BatchSettings(), description="directories that are loaded in one transaction")

    blackout: tuple[BlackoutSettings, ...] = Field(
        (),
        description="windows in which nothing is loaded, such as the warehouse's maintenance. Directories are registered and"
        " shredded meanwhile; a transaction that runs when a window begins is not cut",
    )

    late: Literal["append", "quarantine"] = Field(
        "append",
        description="what happens to a directory that arrives behind the watermark. `append`: it is loaded next and marked"
        " late, for tables that only append. `quarantine`: it is set aside until an operator decides",
    )
    max_lag_seconds: float = Field(
        3600, ge=1, le=YEAR, description="seconds that a discovered directory may wait before a check warns"
    )
    targets: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None, description="names of the targets that the dataset is loaded into; null for all: the warehouse, and `targets`"
    )

    text: Literal["refuse", "cut"] = Field(
        "refuse",
        description="what becomes of a text that is longer than its column of the warehouse can be. `refuse`: the load fails."
        " `cut`: the warehouse gets the beginning, and the load tells how many. Keys are never cut; texts of `bad` always are",
    )

    schema_name: str | None = Field(
        None,
        pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="the schema of the dataset's tables in the warehouse, such as that of tables taken over from another"
        " loader; null for the dataset's name",
    )

    @field_validator("targets")
    @classmethod
    def _once(cls, targets: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if targets and len(set(targets)) < len(targets):
            raise ValueError("allowed: each target once")
        return targets

    checks: tuple[AnyCheck, ...] = Field(
        (), description="assertions on the rows of each item, checked before they become visible"
    )

    retention: tuple[RetentionSettings, ...] = Field(
        (), description="old rows of appended tables that upkeep removes; a table follows the first entry that covers it"
    )

    @field_validator("checks")
    @classmethod
    def _have_names_of_their_own(cls, checks: tuple[AnyCheck, ...]) -> tuple[AnyCheck, ...]:
        if problems := list(same_names(checks)):
            raise ValueError("; ".join(problems))
        return checks


_RetentionDays = Annotated[int, Field(ge=1, le=36_500)]


class DataRetention(Settings):
    """The days after which `gc` deletes a dataset's data in storage. `null` keeps it permanently, and is the default.

    The days of an item count from its newest record: since then, nobody has worked on it. What may still be needed is kept
    however old it is.
    """

    landing_days: _RetentionDays | None = Field(None, description="days after which landed directories are deleted")
    shredded_days: _RetentionDays | None = Field(None, description="days after which shredded output is deleted")
    bad_days: _RetentionDays | None = Field(
        None, description="days after which the bad rows in shredded output are deleted, if the output itself stays"
    )
    merged_days: _RetentionDays | None = Field(
        None,
        description="days after which superseded merged objects are deleted; if it is set, it holds instead of"
        " `housekeeping.merged_hours`",
    )
    last_copy_days: _RetentionDays | None = Field(
        None,
        description="days after which the last copy of a directory's data may be deleted, too. Without it, a landed directory"
        " stays as long as its shredded output is gone, and the reverse",
    )

    def days(self, holding: Holding) -> int | None:
        """Returns the days for which data of items is kept; None: permanently."""
        return getattr(self, f"{holding}_days")

    @property
    def deletes(self) -> tuple[Holding, ...]:
        """The data of items that is deleted at some time, in the order in which it is judged."""
        return tuple(one for one in (Holding.SHREDDED, Holding.BAD, Holding.LANDING) if self.days(one) is not None)

    @property
    def is_on(self) -> bool:
        """True if anything is deleted at some time."""
        return bool(self.deletes) or self.merged_days is not None

    @model_validator(mode="after")
    def _keep_last_copies_longest(self) -> DataRetention:
        needed = max((self.days(one) or 0 for one in (Holding.LANDING, Holding.SHREDDED)), default=0)
        if self.last_copy_days is not None and self.last_copy_days < needed:
            raise ValueError(f"last_copy_days: {self.last_copy_days}: allowed: {needed} or more, as the other ages say")
        return self


class StepSettings(Settings):
    """A step of your own. Programs do its work and claim items from a shell."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$", description="lower case letters, digits, '_' and '-'")
    feed: str | None = Field(None, description="the feed whose items it works on, if the dataset has several feeds")
    upstream: tuple[str, ...] = Field((), description="the steps that must be done with an item before this step claims it")
    order: Literal["any", "strict"] = Field(
        "any", description="`any`: claims every item that is ready. `strict`: claims only the earliest item that is not done"
    )
    late: Literal["append", "quarantine"] = Field(
        "quarantine", description="for a strict step: what happens to a directory that arrives behind its watermark"
    )
    environment: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$")], ...] = Field(
        (),
        description="environment variables that the step's programs get, as `[AWS_*, API_TOKEN]`: names, or prefixes that end"
        " in `*`. In addition, programs get only `PATH`, `HOME` and the variables for language, time zone and temporary files",
    )


class DatasetBasics(Settings):
    """The settings that every dataset has: its source, its owner, and steps of a user's own.

    `feeds`: the source's feeds, the main feed first. `platform_steps`: the platform's own steps, which a user's steps may wait
    for.
    """

    feeds: ClassVar[tuple[str, ...]] = ()
    platform_steps: ClassVar[tuple[str, ...]] = PLATFORM_STEPS

    source: str = Field(description="the kind of directories that land")
    owner: str = Field(
        "team:data",
        pattern=r"^(team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+)$",
        description="the owner that Dagster shows: team:NAME or an e-mail address",
    )
    steps: tuple[StepSettings, ...] = Field((), description="steps of your own")

    @field_validator("steps")
    @classmethod
    def _fit_together(cls, steps: tuple[StepSettings, ...]) -> tuple[StepSettings, ...]:
        """Refuses a step whose name is taken, or that waits for a step that does not come before it."""
        known = list(cls.platform_steps)
        for step in steps:
            if step.name in (*known, *_TAKEN):
                raise ValueError(
                    f"the name {step.name!r} of a step is taken; allowed: names other than discover, {', '.join(known)}"
                )
            if missing := [name for name in step.upstream if name not in known]:
                raise ValueError(
                    f"step {step.name!r} waits for {', '.join(missing)}; allowed: steps declared before it: {', '.join(known)}"
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
        """Returns the dataset for a deployment beside production: it writes elsewhere than production. Raises ValueError."""
        del deployment
        return self

    @property
    def remembers(self) -> bool:
        """True if loads need the store beside the manifest's that remembers what was loaded."""
        return False

    def problems(self) -> Iterator[str]:
        """Yields a sentence for each setting that does not fit the others by the source's rules, with what is allowed."""
        yield from ()


class DatasetSettings(DatasetBasics):
    """A dataset whose directories land and are loaded into the warehouse schema of the dataset's name.

    A source whose directories land extends this model by its own settings.
    """

    landing: LandingSettings = Field(description="where directories land, and when a directory is complete")
    shred: ShredSettings = Field(description="where shredded Parquet goes, and how the work is divided for Spark")
    load: LoadSettings = Field(LoadSettings(), description="how the dataset is loaded")
    merge: MergeSettings | None = Field(
        None,
        description="how small objects are merged into well-sized objects and published in a catalog; without it nothing is"
        " merged",
    )
    retention: DataRetention = Field(DataRetention(), description="when `gc` deletes data in storage; by default never")

    @property
    def date_files(self) -> bool:
        """True if shredding must write a file for each date, because readers of the catalog read whole files."""
        return self.merge is not None and not self.merge.catalog.reads_row_groups

    def of_deployment(self, deployment: str) -> DatasetSettings:
        """Returns the dataset with the same landing root, which is only read, and with output folders beside production's."""
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

    @model_validator(mode="after")
    def _deletes_what_it_has(self) -> DatasetSettings:
        if self.merge is None and self.retention.merged_days is not None:
            raise ValueError(f"retention.merged_days: {self.retention.merged_days}: allowed: null, for nothing is merged")
        return self

    @model_validator(mode="after")
    def _checks_its_feeds(self) -> DatasetSettings:
        for check in self.load.checks:
            if check.feed not in (None, *self.feeds):
                raise ValueError(f"load.checks: {check.name} is of feed {check.feed!r}; allowed: {', '.join(self.feeds)}")
        return self


DEFAULT_SOURCE = "snowplow_enriched"
"""The source of a dataset that does not name a source."""

AnyDataset = Annotated[DatasetSettings, PluginSettings(plugins.SOURCES, DEFAULT_SOURCE, "source")]
"""The settings of a dataset of the source that `source` names, or else of the default source."""
