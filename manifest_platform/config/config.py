"""The model of the configuration: datasets, the manifest's store, the warehouse, leases, limits, Spark.

Belongs here: how the parts are combined. Does not belong here: the settings of a plug-in, which the plug-in declares; reading
a file, which is in `reading`. The descriptions are the text of docs/reference/configuration.md.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from manifest_platform import storage
from manifest_platform.config.apart import out_of_reach, overlaps, places, taken_tables
from manifest_platform.config.aws import AwsConfig
from manifest_platform.config.targets import AnyTarget, key_of, same_places
from manifest_platform.deployments import PATTERN, PRODUCTION, folder_beside
from manifest_platform.manifest import Store
from manifest_platform.manifest.records import FIRST_TARGET
from manifest_platform.manifest.stores import (
    DEFAULT_URL,
    URL_FORMS,
    checked_url,
    local_file,
    memory_of,
    of_deployment,
    open_store,
)
from manifest_platform.settings import LocalFolder, Settings, StorageLocation, local_path
from manifest_platform.sources.settings import AnyDataset
from manifest_platform.spark import AnyPlace
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, AnyEngine, EngineSettings


class ConfigError(ValueError):
    """The configuration is missing or wrong. The message names every wrong key, its value and the allowed values."""


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$", description="lower case letters, digits, underscore")]
"""The name of a dataset, and of its schema in the warehouse."""


class ManifestConfig(Settings):
    """The store of the manifest."""

    store: str = Field(DEFAULT_URL, description=URL_FORMS)
    overflow: StorageLocation | None = Field(
        None,
        description="place for data that is too large for a row of the store: a path or s3://; without it, the data is refused",
    )
    archive: StorageLocation | None = Field(None, description="place for archived records, a path or s3://")
    schemas: list[LocalFolder] = Field(
        [], description="folders with JSON Schemas for the payloads of your programs, as vendor/name/jsonschema/1-0-0"
    )

    @field_validator("store")
    @classmethod
    def _is_a_stores(cls, url: str, info: ValidationInfo) -> str:
        return checked_url(url, lambda path: local_path(path, info))

    def of_deployment(self, deployment: str) -> ManifestConfig:
        """Returns the store and folders of another deployment. Raises ValueError if the store does not support deployments."""
        folders = {
            key: at and folder_beside(at, deployment) for key, at in (("overflow", self.overflow), ("archive", self.archive))
        }
        return self.model_copy(update={"store": of_deployment(self.store, deployment), **folders})

    def open(self) -> Store:
        """Opens the store; the caller closes it. Raises StoreError."""
        return open_store(self.store, storage.ObjectFolder(self.overflow) if self.overflow else None)


class LeaseConfig(Settings):
    """The lease of a worker: how long it lasts without a heartbeat."""

    seconds: float = Field(
        60,
        ge=1,
        le=3600,
        description="seconds without a heartbeat after which another worker may take over; a heartbeat comes each third of it",
    )
    max_attempts: int = Field(
        8,
        ge=1,
        le=20,
        description="attempts that may end with a crash before a person must decide; the last attempt works on the item alone",
    )


Hours = Annotated[float, Field(gt=0, le=8784)]


class LimitConfig(Settings):
    """The time limits of steps. Beyond its limit, work is canceled, and the lease expires even if the worker still runs."""

    shred_hours: Hours = Field(2, description="most hours for shredding a batch of directories")
    load_hours: Hours = Field(2, description="most hours for loading a directory")
    full_hours: Hours = Field(12, description="most hours for a full load of a snapshot")
    merge_hours: Hours = Field(4, description="most hours for a Spark job of merging")
    program_hours: Hours = Field(24, description="most hours for a program that works on an item, for your own steps")

    def of(self, step: str) -> timedelta:
        """Returns the limit of a step: shred, load, full, merge or program."""
        return timedelta(hours=getattr(self, f"{step}_hours"))

    @property
    def longest(self) -> tuple[str, float]:
        """The key and the hours of the longest limit. No worker still relies on data that it read longer ago than that."""
        return max(((f"limits.{key}", hours) for key, hours in self), key=lambda one: one[1])


class DrainBudget(Settings):
    """The budget of a drain that Dagster starts."""

    max_items: int = Field(1000, ge=1, description="most items that a drain shreds or loads")
    max_seconds: float = Field(3000, ge=1, description="seconds after which a drain starts nothing new")


class FollowConfig(Settings):
    """The settings of a follower: `drain --follow`."""

    listing_seconds: float = Field(
        30,
        ge=0.1,
        le=3600,
        description="seconds between two listings of a landing root. Notices wake the follower before that, and a listing finds"
        " what they lost",
    )
    health: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9.\-]+:\d{1,5}$",
        description="`host:port` at which the follower answers GET /healthz with the state of each dataset, as JSON; such as"
        " `127.0.0.1:8181`. It asks for no password, so keep it to the machine's or the cluster's own network",
    )
    warm_spark: bool = Field(
        True, description="starts Spark as soon as nothing waits, so that the first directory need not wait"
    )


_WITHHELD = {"owner": 0o077, "group": 0o027, "umask": 0}


class FilesConfig(Settings):
    """The permissions of files that the platform creates on this machine's disks."""

    readable_by: Literal["owner", "group", "umask"] = Field(
        "owner",
        description="who may read new files and folders on a disk: only the `owner` (files 0600, folders 0700), also the"
        " `group` (0640, 0750), or everyone whom the process's `umask` allows; the umask always applies; existing files do not"
        " change",
    )

    def apply(self) -> None:
        """Applies the permissions to all files that this process and its children create from now on."""
        storage.withhold(_WITHHELD[self.readable_by])


class DagsterConfig(Settings):
    """The part of the manifest that Dagster shows."""

    partitions: int = Field(
        2_000,
        ge=1,
        description="number of the newest items of a feed that are partitions in Dagster; the manifest keeps all items",
    )
    sensor_seconds: int = Field(
        30, ge=5, le=3600, description="seconds between two evaluations of a sensor; Dagster's minimum is 5"
    )
    listing_seconds: int = Field(
        5,
        ge=5,
        le=3600,
        description="seconds between two looks of the listing sensor, which has drains started; Dagster's minimum is 5. A look"
        " costs requests to landing and to the manifest's store; a longer time suits many datasets, or a follower",
    )


_CRON = r"^[-0-9*/,A-Za-z]+( [-0-9*/,A-Za-z]+){4}$"


class HousekeepingConfig(Settings):
    """The ages at which the housekeeping job and command remove old data. `null` keeps it permanently."""

    schedule: str | None = Field(
        "30 3 * * *", pattern=_CRON, description="schedule of the job in Dagster: five fields of cron, in UTC; null for never"
    )
    retention_schedule: str | None = Field(
        "0 5 * * *",
        pattern=_CRON,
        description="schedule of the job `retention` in Dagster, which does what `gc` does; the job exists if a dataset has"
        " `retention`; null for never",
    )
    attempts_hours: float | None = Field(
        24,
        ge=1,
        le=8784,
        description="hours after which orphaned files of attempts are removed, as by `doctor --clean`",
    )
    merged_hours: float | None = Field(
        168, ge=1, le=8784, description="hours after which superseded merged objects are removed, as by `merge gc`"
    )
    merge_rows_days: int | None = Field(
        30,
        ge=2,
        le=3660,
        description="days after which the manifest's rows of merge jobs, and of small objects that are merged, are removed",
    )
    archive_days: int | None = Field(
        90,
        ge=2,
        le=3660,
        description="days after which records of finished items are moved to `manifest.archive`, if that is set",
    )
    dagster_days: int | None = Field(
        30,
        ge=1,
        le=3660,
        description="days after which Dagster's runs and events are removed, unless a partition in Dagster depends on them",
    )


@contextmanager
def _noted(key: str, problems: list[str]) -> Generator[None]:
    """Adds a ValueError of the block to `problems`, with its key, so that all problems are reported together."""
    try:
        yield
    except ValueError as error:
        problems.append(f"{key}: {error}")


class Config(Settings):
    """All settings of the platform."""

    datasets: dict[Name, AnyDataset] = Field(
        min_length=1, description="the datasets by name; a dataset's tables are in the schema with its name"
    )
    deployment: str = Field(
        PRODUCTION,
        pattern=f"^$|{PATTERN}",
        description=f"name of the deployment: at most 40 lower case letters and digits, with single dashes between them."
        f" `{PRODUCTION}`, or nothing, uses all names as they are written. Any other, such as a branch's, has its own manifest,"
        " warehouse and outputs, whose names end with the deployment's name, and it captures nothing",
    )
    manifest: ManifestConfig = Field(description="the store of the manifest")
    warehouse: AnyEngine = Field(
        description="the warehouse that datasets are loaded into. A URL alone, as `kind://…`, stands for its `kind` and `url`"
    )
    targets: dict[Name, AnyTarget] = Field(
        {},
        description="further warehouses by name, each a target that datasets are loaded into independently, with an order, a"
        f" watermark and a lease of its own; `warehouse` is the target named `{FIRST_TARGET}`",
    )
    lease: LeaseConfig = Field(LeaseConfig(), description="how long a lease lasts without a heartbeat")
    limits: LimitConfig = Field(LimitConfig(), description="time limits of the steps")
    drain: DrainBudget = Field(DrainBudget(), description="budget of a drain that Dagster starts")
    follow: FollowConfig = Field(FollowConfig(), description="settings of a follower, `drain --follow`")
    dagster: DagsterConfig = Field(DagsterConfig(), description="the part of the manifest that Dagster shows")
    housekeeping: HousekeepingConfig = Field(HousekeepingConfig(), description="ages at which old data is removed")
    files: FilesConfig = Field(FilesConfig(), description="permissions of new files on a disk")
    spark: AnyPlace = Field(description="where Spark computes, and its settings")
    aws: AwsConfig = Field(AwsConfig(), description="settings of the clients of AWS's services")

    @model_validator(mode="before")
    @classmethod
    def _fill_in_parts(cls, data: Any) -> Any:
        """Adds empty parts for missing ones, so that their default paths are validated, and are relative to the file too."""
        if isinstance(data, dict):
            return {"manifest": {}, "warehouse": {}, "spark": {}, **data}
        return data

    @model_validator(mode="after")
    def _stay_beside_production(self) -> Config:
        """Gives a deployment that is not production its own places to write to."""
        if self.deployment in ("", PRODUCTION):
            return self
        problems: list[str] = []
        parts: dict[str, Any] = {}
        for key, part in (("manifest", self.manifest), ("warehouse", self.warehouse)):
            with _noted(key, problems):
                parts[key] = part.of_deployment(self.deployment)
        for name, target in self.targets.items():
            with _noted(key_of(name), problems):
                parts.setdefault("targets", {})[name] = target.of_deployment(self.deployment)
        for name, dataset in self.datasets.items():
            with _noted(f"datasets.{name}", problems):
                parts.setdefault("datasets", {})[name] = dataset.of_deployment(self.deployment)
        if problems:
            raise ValueError("; ".join(problems))
        return self.model_copy(update=parts)

    @model_validator(mode="after")
    def _keep_out_of_reserved_schemas(self) -> Config:
        """Refuses datasets with the name of a schema that the ledger or the warehouse itself uses."""
        reserved = sorted({CONTROL_SCHEMA, *(name for engine in self.engines.values() for name in engine.reserved_schemas)})
        message = f"is a reserved schema of the warehouse; allowed: any name but {', '.join(reserved)}"
        kind = PydanticCustomError("reserved", "{message}", {"message": message})
        taken: list[tuple[tuple[str, ...], str]] = [(("datasets", name), name) for name in self.datasets if name in reserved]
        for name, dataset in self.datasets.items():
            if (schema := dataset.load.schema_name) in reserved:
                taken.append((("datasets", name, "load", "schema_name"), schema))
        if taken:
            problems = [InitErrorDetails(type=kind, loc=loc, input=name) for loc, name in taken]
            raise ValidationError.from_exception_data("configuration", problems)
        return self

    @model_validator(mode="after")
    def _have_schemas_of_their_own(self) -> Config:
        """Refuses two datasets in one schema: their tables may have the same names."""
        owners: dict[str, str] = {}
        for name, dataset in self.datasets.items():
            schema = dataset.load.schema_name or name
            if owner := owners.get(schema):
                raise ValueError(
                    f"datasets.{name}: its tables would be in schema {schema!r}, which has those of dataset {owner}; allowed in"
                    " load.schema_name: a schema that no other dataset has"
                )
            owners[schema] = name
        return self

    @property
    def memory(self) -> str | None:
        """The URL of the store that remembers what was loaded; None if no dataset needs one."""
        return memory_of(self.manifest.store) if any(one.remembers for one in self.datasets.values()) else None

    @model_validator(mode="after")
    def _have_a_memory(self) -> Config:
        """Refuses a dataset that needs a store beside the manifest's if stores of its kind have none."""
        try:
            _ = self.memory
        except ValueError as error:
            name = next(name for name, one in self.datasets.items() if one.remembers)
            raise ValueError(f"datasets.{name}.load needs a store beside manifest.store: {error}") from error
        return self

    @model_validator(mode="after")
    def _archive_what_nobody_works_on(self) -> Config:
        """Refuses to archive records that a worker may still rely on: the age must exceed the longest time limit of a step."""
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
            **{f"{key_of(name)}.path": engine.file for name, engine in self.engines.items()},
        }
        found, taken = list(places(self.datasets, others)), [*same_places(self.engines), *taken_tables(self.datasets)]
        if problems := [*overlaps(found), *out_of_reach(found, self.spark), *taken]:
            raise ValueError("; ".join(problems))
        return self

    @model_validator(mode="after")
    def _name_known_targets(self) -> Config:
        """Refuses a target named as the first is, and datasets and steps that name a target that is not configured."""
        known = ", ".join(self.engines)
        if FIRST_TARGET in self.targets:
            raise ValueError(
                f"targets.{FIRST_TARGET}: the key `{FIRST_TARGET}` declares the target of this name; give it another"
            )
        for name, dataset in self.datasets.items():
            for one in dataset.load.targets or ():
                if one not in self.engines:
                    raise ValueError(f"datasets.{name}.load.targets: {one!r} is not configured; allowed: {known}")
        return self

    @property
    def engines(self) -> dict[str, EngineSettings]:
        """The settings of all targets by name, the warehouse first."""
        return {FIRST_TARGET: self.warehouse, **self.targets}

    def targets_of(self, dataset: str) -> tuple[str, ...]:
        """Returns the names of the targets that a dataset is loaded into, in the order of a drain."""
        return tuple(self.datasets[dataset].load.targets or self.engines)

    def engine_of(self, dataset: str, target: str) -> EngineSettings:
        """Returns the settings of a target of a dataset. Raises ConfigError if the dataset has no such target."""
        if target not in self.targets_of(dataset):
            known = ", ".join(self.targets_of(dataset))
            raise ConfigError(f"dataset {dataset} has no target {target!r}; its targets are: {known}")
        return self.engines[target]

    def dataset(self, name: str | None) -> str:
        """Returns the name of a dataset; if `name` is None, the only configured one. Raises ConfigError if it is unknown."""
        known = ", ".join(sorted(self.datasets))
        if name is None:
            if len(self.datasets) == 1:
                return next(iter(self.datasets))
            raise ConfigError(f"several datasets are configured, name one: {known}")
        if name not in self.datasets:
            raise ConfigError(f"dataset {name!r} is not configured; configured are: {known}")
        return name
