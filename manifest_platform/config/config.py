"""The one configuration: datasets, the manifest's store, the warehouse, leases, Spark.

Belongs here: how the parts are put together. A plug-in declares what it alone can be told; `reading` reads a file.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from manifest_platform import storage
from manifest_platform.carried import carried
from manifest_platform.config.apart import overlaps, places, taken_tables
from manifest_platform.deployments import PATTERN, PRODUCTION, folder_beside
from manifest_platform.manifest import Store
from manifest_platform.manifest.stores import DEFAULT_URL, URL_FORMS, checked_url, local_file, of_deployment, open_store
from manifest_platform.settings import LocalFolder, Settings, StorageLocation, local_path
from manifest_platform.sources.settings import AnyDataset
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, AnyEngine


class ConfigError(ValueError):
    """The configuration is missing or wrong; the message names every wrong key, its value and what is allowed."""


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$", description="lower case letters, digits, underscore")]
"""The name of a dataset, and of its schema in the warehouse."""


class ManifestConfig(Settings):
    """Where the manifest is kept."""

    store: str = Field(DEFAULT_URL, description=URL_FORMS)
    overflow: StorageLocation | None = Field(
        None, description="where rows keep data that is too large for the store, a path or s3://; without it they are refused"
    )
    archive: StorageLocation | None = Field(None, description="where old records are archived, a path or s3://")
    schemas: list[LocalFolder] = Field(
        [], description="folders of JSON Schemas of payloads that others write, as vendor/name/jsonschema/1-0-0"
    )

    @field_validator("store")
    @classmethod
    def _is_a_stores(cls, url: str, info: ValidationInfo) -> str:
        return checked_url(url, lambda path: local_path(path, info))

    def of_deployment(self, deployment: str) -> ManifestConfig:
        """The store of another deployment, and its folders. Raises ValueError."""
        folders = {
            key: at and folder_beside(at, deployment) for key, at in (("overflow", self.overflow), ("archive", self.archive))
        }
        return self.model_copy(update={"store": of_deployment(self.store, deployment), **folders})

    def open(self) -> Store:
        """The store, opened: close it after use. Raises StoreError."""
        return open_store(self.store, storage.ObjectFolder(self.overflow) if self.overflow else None)


class LeaseConfig(Settings):
    """How long a worker that falls silent keeps its lease."""

    seconds: float = Field(
        60,
        ge=1,
        le=3600,
        description="seconds of silence after which a worker may be replaced; heartbeats come at a third of it",
    )
    max_attempts: int = Field(
        8, ge=1, le=20, description="attempts that end by a crash before a person is asked, the last of them at the item alone"
    )


Hours = Annotated[float, Field(gt=0, le=8784)]


class LimitConfig(Settings):
    """How long a step may work at one go: beyond it, its work is cancelled, and its lease runs out though the worker lives."""

    shred_hours: Hours = Field(2, description="hours that shredding a batch of directories may take")
    load_hours: Hours = Field(2, description="hours that loading a directory may take")
    full_hours: Hours = Field(12, description="hours that loading a snapshot in full may take")
    merge_hours: Hours = Field(4, description="hours that a Spark job of merging may take")
    program_hours: Hours = Field(24, description="hours that a program may work on an item, for a step of your own")

    def of(self, step: str) -> timedelta:
        """The limit of shred, load, full, merge or program."""
        return timedelta(hours=getattr(self, f"{step}_hours"))

    @property
    def longest(self) -> tuple[str, float]:
        """The key of the longest of all limits, and its hours: nobody works longer by what was read before."""
        return max(((f"limits.{key}", hours) for key, hours in self), key=lambda one: one[1])


def _properties_file(location: str, info: ValidationInfo) -> str:
    """The absolute path of a properties file; one of the package's own where it names one that does not lie beside the file."""
    path = local_path(location, info)
    folder, own = Path(location).parent, carried(location)
    return str(own) if folder == Path("spark_conf") and not Path(path).exists() and own.exists() else path


class SparkConfig(Settings):
    """Spark's settings."""

    conf: Annotated[str, AfterValidator(_properties_file)] = Field(
        "spark_conf/local.conf",
        description="Spark's properties file; `spark_conf/` has one for each place to run, and is taken from the package where"
        " it does not lie beside the configuration",
    )


class DrainBudget(Settings):
    """How much a drain does that Dagster starts."""

    max_items: int = Field(1000, ge=1, description="items that a drain shreds or loads")
    max_seconds: float = Field(3000, ge=1, description="seconds after which a drain begins nothing new")


_WITHHELD = {"owner": 0o077, "group": 0o027, "umask": 0}


class FilesConfig(Settings):
    """Who may read the files that the platform makes on this machine's disks."""

    readable_by: Literal["owner", "group", "umask"] = Field(
        "owner",
        description="who may read what is made on a disk: the `owner` alone (files 0600, folders 0700), the `group` as well"
        " (0640, 0750), or whoever the `umask` of the process lets, beyond which none goes; what is there stays as it is",
    )

    def apply(self) -> None:
        """Holds for all that this process, and those that it starts, make from now on."""
        storage.withhold(_WITHHELD[self.readable_by])


class DagsterConfig(Settings):
    """What Dagster is shown."""

    partitions: int = Field(
        2_000,
        ge=1,
        description="newest items of a feed that Dagster keeps as partitions; older ones leave it, the manifest has all",
    )
    sensor_seconds: int = Field(
        30, ge=5, le=3600, description="seconds between two looks of a sensor; Dagster looks every 5 at most"
    )


_CRON = r"^[-0-9*/,A-Za-z]+( [-0-9*/,A-Za-z]+){4}$"


class HousekeepingConfig(Settings):
    """What is removed once it is old enough, by the housekeeping job and command; each may be off (`null`: kept for good)."""

    schedule: str | None = Field(
        "30 3 * * *", pattern=_CRON, description="when Dagster does it: five fields of cron, in UTC; null for never"
    )
    attempts_hours: float | None = Field(
        24,
        ge=1,
        le=8784,
        description="hours after which what attempts left that no record names is removed, as `doctor --clean`",
    )
    merged_hours: float | None = Field(
        168, ge=1, le=8784, description="hours that superseded merged objects are kept for their readers, as `merge gc`"
    )
    merge_rows_days: int | None = Field(
        30, ge=2, le=3660, description="days that the manifest keeps rows of small objects that are merged, and of merge jobs"
    )
    archive_days: int | None = Field(
        90,
        ge=2,
        le=3660,
        description="days after which records of finished items move to `manifest.archive`, where that is set",
    )
    dagster_days: int | None = Field(
        30, ge=1, le=3660, description="days that Dagster keeps runs and events that no partition which it shows rests on"
    )


@contextmanager
def _noted(key: str, problems: list[str]) -> Generator[None]:
    """Notes what does not fit with its key, so that all of it is told at once."""
    try:
        yield
    except ValueError as error:
        problems.append(f"{key}: {error}")


class Config(Settings):
    """Everything that the platform can be told."""

    datasets: dict[Name, AnyDataset] = Field(
        min_length=1, description="the datasets, by name; a dataset's tables lie in the schema of its name"
    )
    deployment: str = Field(
        PRODUCTION,
        pattern=f"^$|{PATTERN}",
        description=f"the deployment: `{PRODUCTION}`, or nothing, keeps all names as they are written; another, as a branch's,"
        " has a manifest, a warehouse and outputs of its own, called as those with its name behind, and captures nothing: lower"
        " case letters and digits, 40 at most, and single dashes between them",
    )
    manifest: ManifestConfig = Field(description="where the manifest is kept")
    warehouse: AnyEngine = Field(description="the warehouse that datasets are loaded into")
    lease: LeaseConfig = Field(LeaseConfig(), description="how long a silent worker keeps its lease")
    limits: LimitConfig = Field(LimitConfig(), description="how long a step may work at one go")
    drain: DrainBudget = Field(DrainBudget(), description="how much a drain does that Dagster starts")
    dagster: DagsterConfig = Field(DagsterConfig(), description="what Dagster is shown")
    housekeeping: HousekeepingConfig = Field(HousekeepingConfig(), description="what is removed once it is old enough")
    files: FilesConfig = Field(FilesConfig(), description="who may read the files that are made on a disk")
    spark: SparkConfig = Field(description="Spark's settings")

    @model_validator(mode="before")
    @classmethod
    def _fill_in_parts(cls, data: Any) -> Any:
        """Parts that are left out are validated too, so that their default paths are taken from the file as well."""
        if isinstance(data, dict):
            return {"manifest": {}, "warehouse": {}, "spark": {}, **data}
        return data

    @model_validator(mode="after")
    def _stay_beside_production(self) -> Config:
        """What another deployment writes, it writes to places of its own."""
        if self.deployment in ("", PRODUCTION):
            return self
        problems: list[str] = []
        parts: dict[str, Any] = {}
        for key, part in (("manifest", self.manifest), ("warehouse", self.warehouse)):
            with _noted(key, problems):
                parts[key] = part.of_deployment(self.deployment)
        for name, dataset in self.datasets.items():
            with _noted(f"datasets.{name}", problems):
                parts.setdefault("datasets", {})[name] = dataset.of_deployment(self.deployment)
        if problems:
            raise ValueError("; ".join(problems))
        return self.model_copy(update=parts)

    @model_validator(mode="after")
    def _keep_out_of_reserved_schemas(self) -> Config:
        """A dataset's name is its schema's in the warehouse, where some names are taken, one by the ledger."""
        reserved = sorted({CONTROL_SCHEMA, *self.warehouse.reserved_schemas})
        message = f"is a schema of the warehouse's own; allowed: any name but {', '.join(reserved)}"
        kind = PydanticCustomError("reserved", "{message}", {"message": message})
        taken = [name for name in self.datasets if name in reserved]
        if taken:
            problems = [InitErrorDetails(type=kind, loc=("datasets", name), input=name) for name in taken]
            raise ValidationError.from_exception_data("configuration", problems)
        return self

    @model_validator(mode="after")
    def _archive_what_nobody_works_on(self) -> Config:
        """What is archived is older than a step may take: a worker may go by what it read before."""
        days, (key, hours) = self.housekeeping.archive_days, self.limits.longest
        if self.manifest.archive and days and days * 24 <= hours:
            raise ValueError(f"housekeeping.archive_days: {days}: allowed: more than {hours / 24:g} days, which {key} allows")
        return self

    @model_validator(mode="after")
    def _keep_apart(self) -> Config:
        others = {
            "manifest.store": local_file(self.manifest.store),
            "manifest.overflow": self.manifest.overflow,
            "manifest.archive": self.manifest.archive,
            "warehouse.path": self.warehouse.file,
        }
        if problems := [*overlaps(places(self.datasets, others)), *taken_tables(self.datasets)]:
            raise ValueError("; ".join(problems))
        return self

    def dataset(self, name: str | None) -> str:
        """The name of the dataset meant: the only one where none is named. Raises ConfigError for an unknown one."""
        known = ", ".join(sorted(self.datasets))
        if name is None:
            if len(self.datasets) == 1:
                return next(iter(self.datasets))
            raise ConfigError(f"several datasets are configured, name one: {known}")
        if name not in self.datasets:
            raise ConfigError(f"dataset {name!r} is not configured; there are: {known}")
        return name
