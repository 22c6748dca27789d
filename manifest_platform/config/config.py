"""The one configuration: datasets, where they land, where outputs go, warehouse, manifest store, leases, policies.

Read from YAML by the command line and the Dagster location alike. `${NAME}` and `${NAME:-default}` take values from the
environment, which is where secrets come from: a URL of the file with a password in it (`user:password@`) is refused.
Relative paths are relative to the file. Every wrong key or value is reported, all at once, with what is allowed.
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from manifest_platform import storage
from manifest_platform.manifest.item import InvalidKey, check_key_text
from manifest_platform.manifest.stores.dynamodb import Address
from manifest_platform.settings import (
    YEAR,
    LocalFolder,
    LocalPath,
    ReadableLocation,
    ServerUrl,
    Settings,
    StorageLocation,
    TimeZone,
    local_path,
)
from manifest_platform.warehouse.apply import CONTROL_SCHEMA

VARIABLE = "MANIFEST_PLATFORM_CONFIG"
DEFAULT_FILE = "manifest_platform.yaml"
STORES = (
    "sqlite:///path/to/manifest.db",
    "postgresql://user@host:5432/database",
    "dynamodb://TABLE?region=eu-west-1",
)
"""What `manifest.store` may say, one form each."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_PASSWORD_IN_URL = re.compile(r"://[^/@:\s]+:[^/@\s]+@")
_USER_INFO = re.compile(r"://.*@", re.DOTALL)  # greedy: a password may hold any character
_PASSWORD_OPTION = re.compile(r"((?:\?|&)[^=&]*password=)[^&'\"]*", re.IGNORECASE)
_TABLE = r"^[a-z][a-z0-9_]{0,126}$"
_RESERVED = (CONTROL_SCHEMA, "information_schema", "pg_catalog")


class ConfigError(ValueError):
    """The configuration is missing or wrong; the message names every wrong key, its value and what is allowed."""


def _not_reserved(name: str) -> str:
    """A dataset's name is its schema's in the warehouse, where some names are taken, one by the ledger."""
    if name in _RESERVED:
        raise ValueError(f"is a schema of the warehouse's own; allowed: any name but {', '.join(_RESERVED)}")
    return name


Name = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9_]{0,62}$", description="lower case letters, digits, underscore"),
    AfterValidator(_not_reserved),
]


VaultType = Literal[
    "String",
    "LongText",
    "Number",
    "Date",
    "DateTime",
    "Relationship",
    "MultiRelationship",
    "Picklist",
    "MultiPicklist",
    "Boolean",
]


class ManifestConfig(Settings):
    """Where the manifest is kept.

    `store`: `sqlite:///path`, the path relative to the file; `postgresql://user@host/database`; or `dynamodb://TABLE`, with
    `?region=` and `&endpoint=` where the environment does not say them. `overflow`: where DynamoDB's rows that grow beyond
    300 KB keep their data, a path or s3://; without it they are refused. `archive`: where `manifest-platform archive` moves old
    records, a path or s3://. `schemas`: folders of JSON Schemas of payloads that others write, as vendor/name/jsonschema/1-0-0.
    """

    store: str = "sqlite:///.manifest_platform/manifest.db"
    overflow: StorageLocation | None = None
    archive: StorageLocation | None = None
    schemas: list[LocalFolder] = []

    @field_validator("store")
    @classmethod
    def _is_a_stores(cls, url: str, info: ValidationInfo) -> str:
        scheme, separator, rest = url.partition("://")
        if scheme == "sqlite" and rest.startswith("/") and rest != "/":
            return f"sqlite:///{local_path(rest.removeprefix('/'), info)}"
        if scheme == "postgresql" and separator:
            from manifest_platform.manifest.stores.sql import check_url  # loads SQLAlchemy, which this store needs anyway

            check_url(url)
            return url
        if scheme == "dynamodb" and separator:
            Address.parse(url)
            return url
        raise ValueError(f"allowed: {', '.join(STORES)}")


class WarehouseConfig(Settings):
    """The warehouse that datasets are loaded into: a DuckDB file."""

    kind: Literal["duckdb"] = "duckdb"
    path: LocalPath = ".manifest_platform/warehouse.duckdb"


class LandingConfig(Settings):
    """Where a dataset's directories land, and when one counts as complete.

    `root`: a local path or s3://. `complete`: by a `marker` file (default `_SUCCESS`) or after `settle_seconds` without
    a change. `look_back_days`: how far behind the watermark (logical time) a late directory is still looked for.
    """

    root: StorageLocation
    complete: Literal["marker", "settle"] = "marker"
    marker: str = Field("_SUCCESS", min_length=1, pattern=r"^[^/]+$")
    settle_seconds: float = Field(300, ge=1, le=86_400)
    look_back_days: float = Field(30, gt=0, le=36_500)

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


class BadRowsConfig(Settings):
    """How many bad rows an item may have: it fails when both the count and the share are exceeded."""

    max_count: int = Field(100, ge=0)
    max_share: float = Field(0.05, ge=0, le=1)


class ShredConfig(Settings):
    """Where shredded Parquet goes, by which schemas, in which portions.

    `schemas`: Iglu registries by priority, each a folder, s3:// or http(s):// URL, for Snowplow. `types`: of `extract.column`,
    the type that is right where Vault's metadata is not. `partial_in_full`: patterns of workflows' tables of which Vault's
    snapshots hold only a part. `batch`: directories one Spark job takes. `split_mib`: the most that one Spark task reads, MiB.
    """

    output: StorageLocation
    schemas: list[ReadableLocation] = []
    types: dict[Annotated[str, Field(pattern=r"^[^.\s]+\.[^.\s]+$")], VaultType] = {}
    partial_in_full: tuple[str, ...] = ("*legacy*__sys",)
    batch: int = Field(40, ge=1, le=90)
    split_mib: int = Field(32, ge=1, le=1024)
    bad_rows: BadRowsConfig = BadRowsConfig()


class LoadConfig(Settings):
    """How a dataset is loaded. `late`: what becomes of a directory that arrives behind the watermark.

    `append`: it is loaded next and marked late (tables that only append). `quarantine`: it is set aside for the operator. Of
    Vault it is said of logs alone: what changes rows is always set aside. `logs`: whether Vault's logs are drained `with`
    the rest, or by a drain of their `own`. `max_lag_seconds`: how long a directory may wait, once it is discovered, before a
    check warns.
    """

    late: Literal["append", "quarantine"] = "append"
    logs: Literal["with", "own"] = "with"
    max_lag_seconds: float = Field(3600, ge=1, le=YEAR)


class OAuthConfig(Settings):
    """A Vault session by an identity provider's token: the profile, the client, the variable that holds the token."""

    profile: str = Field(min_length=1, pattern=r"^[^/\s]+$")
    client: str = Field(min_length=1)
    token_variable: str = Field("VAULT_TOKEN", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    url: ServerUrl = "https://login.veevavault.com"


class VaultConfig(Settings):
    """The Vault whose Direct Data files are captured; without `url` none are, and directories are landed by others.

    `id`: the vault's number, which every session is held against. `user`: who logs in; the password is in the environment, in
    `password_variable`, and never here. `oauth`: a session by a token instead. `api`: the API's version. `feeds`: what is
    captured. `read_seconds`: how long the server may be silent.
    """

    id: str = Field(pattern=r"^[0-9]{1,12}$", description="digits")
    url: ServerUrl | None = None
    user: str | None = Field(None, min_length=1)
    password_variable: str = Field("VAULT_PASSWORD", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    oauth: OAuthConfig | None = None
    api: str = Field("v25.2", pattern=r"^v[0-9]{2}\.[0-9]$")
    feeds: tuple[Literal["incr", "log", "full"], ...] = Field(("log", "incr", "full"), min_length=1)
    read_seconds: float = Field(60, ge=1, le=3600)

    @model_validator(mode="after")
    def _logs_in(self) -> VaultConfig:
        if self.url and bool(self.user) == bool(self.oauth):
            raise ValueError("with a url, allowed is either a user or oauth")
        return self


class MergeTableConfig(Settings):
    """What is different about one table, under the name that shredding gives it; what is left out is as for all of them.

    `name`, `schema_name`: what readers call it, if that is not shredding's name and the dataset's. `enabled: false`:
    it takes no new objects. `comments`: what a catalog says of its columns.
    """

    name: str | None = Field(None, pattern=_TABLE)
    schema_name: str | None = Field(None, pattern=_TABLE)
    enabled: bool = True
    interval_seconds: int | None = Field(None, ge=0, le=YEAR)
    target_mib: int | None = Field(None, ge=1, le=4096)
    zone: TimeZone | None = None
    comments: dict[str, str] = {}


class EmbeddedCatalogConfig(Settings):
    """The catalog within the manifest: readers are DuckDB views, Spark, and the IO manager."""

    kind: Literal["embedded"] = "embedded"


class GlueCatalogConfig(Settings):
    """AWS Glue's Data Catalog; a dataset's database is `prefix` and the dataset's name and `suffix`.

    `region`: where the environment does not say it. Credentials, and another endpoint, come from the environment alone.
    """

    kind: Literal["glue"]
    prefix: str = Field("", pattern=r"^[a-z0-9_]*$")
    suffix: str = Field("", pattern=r"^[a-z0-9_]*$")
    region: str | None = None


class MergeConfig(Settings):
    """How small objects of a dataset become well-sized ones.

    `output`: where merged objects lie, a path or s3://. `first_day`: Dagster's first partition; what is older is merged all the
    same. `profile`: `default`, or `strict` with Prism's limits; it gives what is
    left out here. `interval_seconds`: from a partition's first unmerged object to its merge. `target_mib`: the size that merged
    objects are to have. `zone`: the time zone in which a day ends; `close_after_seconds`: how long after that it is closed.
    `max_attempts`: merges of a partition that die or fail before it is set aside. `workers`: merge runs that work at once.
    `delayed`: whether readers see what comes after the close once it is merged, or `at_once` beside what is merged.
    `invisible_seconds`: how long readers may not see an object before a check fails.
    """

    output: StorageLocation
    first_day: date = date(2024, 1, 1)
    profile: Literal["default", "strict"] = "default"
    interval_seconds: int | None = Field(None, ge=0, le=YEAR)
    target_mib: int | None = Field(None, ge=1, le=4096)
    zone: TimeZone = "UTC"
    close_after_seconds: int | None = Field(None, ge=0, le=YEAR)
    max_attempts: int = Field(5, ge=1, le=20)
    workers: int = Field(2, ge=1, le=64)
    delayed: Literal["merged", "at_once"] = "merged"
    invisible_seconds: int | None = Field(None, ge=1, le=YEAR)
    tables: dict[Annotated[str, Field(pattern=_TABLE)], MergeTableConfig] = {}
    catalog: EmbeddedCatalogConfig | GlueCatalogConfig = Field(EmbeddedCatalogConfig(), discriminator="kind")

    @field_validator("tables")
    @classmethod
    def _have_names_of_their_own(cls, tables: dict[str, MergeTableConfig]) -> dict[str, MergeTableConfig]:
        """No two tables are one to readers."""
        named: dict[tuple[str | None, str], str] = {}
        for key, table in tables.items():
            own = (table.schema_name, table.name or key)
            if own in named:
                raise ValueError(f"{named[own]} and {key} are both called {own[1]!r}; allowed: names of their own")
            named[own] = key
        return tables


class StepConfig(Settings):
    """A step of one's own, done by programs that claim items from a shell (`manifest-platform run`).

    `feed`: whose items it is for, where the dataset has several. `upstream`: the steps that must have done an item before.
    `order`: `any` item that is ready, or `strict` order; `late`, for `strict`: what becomes of a directory that arrives behind
    the step's watermark.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$", description="lower case letters, digits, '_' and '-'")
    feed: Literal["incr", "log", "full"] | None = None
    upstream: tuple[str, ...] = ()
    order: Literal["any", "strict"] = "any"
    late: Literal["append", "quarantine"] = "quarantine"


class DatasetConfig(Settings):
    """One dataset, from a landing root to the warehouse schema of the dataset's name.

    `source`: Snowplow's enriched runs, or the Direct Data of a Veeva vault, which `vault` describes.
    """

    source: Literal["snowplow_enriched", "veeva"] = "snowplow_enriched"
    vault: VaultConfig | None = None
    owner: str = Field("team:data", pattern=r"^(team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+)$")
    landing: LandingConfig
    shred: ShredConfig
    load: LoadConfig = LoadConfig()
    merge: MergeConfig | None = None
    steps: tuple[StepConfig, ...] = ()

    @model_validator(mode="after")
    def _fits_its_source(self) -> DatasetConfig:
        """Each source has parts of its own."""
        if self.source == "veeva":
            wrong = {
                "vault is required of source veeva": self.vault is None,
                "shred.schemas is allowed of source snowplow_enriched only": bool(self.shred.schemas),
                "merge is allowed of source snowplow_enriched only": self.merge is not None,
                **dict.fromkeys(self._misplaced_steps(), True),
            }
        else:
            wrong = {
                "vault is allowed of source veeva only": self.vault is not None,
                "shred.schemas is required, with one registry at least": not self.shred.schemas,
                "shred.types is allowed of source veeva only": bool(self.shred.types),
                "load.logs is allowed of source veeva only": self.load.logs != "with",
                "a step's feed is allowed of source veeva only": any(step.feed for step in self.steps),
            }
        if problems := [problem for problem, is_wrong in wrong.items() if is_wrong]:
            raise ValueError("; ".join(problems))
        return self

    def _misplaced_steps(self) -> Iterator[str]:
        """Steps of a vault that could never go on: what a snapshot contains is not loaded, and feeds do not share items."""
        feeds = {step.name: step.feed or "incr" for step in self.steps}
        for step in self.steps:
            feed = feeds[step.name]
            if step.order == "strict" and ("load" in step.upstream or feed == "full"):
                yield f"step {step.name!r} would stop at what is never loaded; allowed of it is order any"
            if strangers := [name for name in step.upstream if feeds.get(name, feed) != feed]:
                yield f"step {step.name!r} of feed {feed} waits for {strangers[0]!r}, which is of feed {feeds[strangers[0]]}"

    @field_validator("steps")
    @classmethod
    def _fit_together(cls, steps: tuple[StepConfig, ...]) -> tuple[StepConfig, ...]:
        """Each step has a name of its own, and waits only for steps that come before it."""
        known = ["shred", "load"]
        for step in steps:
            if step.name in (*known, "discover", "operator"):
                raise ValueError(
                    f"step {step.name!r} is declared already; allowed: names other than discover, {', '.join(known)}"
                )
            if missing := [name for name in step.upstream if name not in known]:
                raise ValueError(
                    f"step {step.name!r} waits for {', '.join(missing)}; allowed, declared before: {', '.join(known)}"
                )
            known.append(step.name)
        return steps


class LeaseConfig(Settings):
    """How long a worker that falls silent keeps its lease. Heartbeats come at a third of it."""

    seconds: float = Field(60, ge=1, le=3600)
    max_attempts: int = Field(8, ge=1, le=20, description="attempts that end by a crash or a passing fault")


class SparkConfig(Settings):
    """Spark's settings: a properties file, one of `spark_conf/`."""

    conf: LocalPath = "spark_conf/local.conf"


class DrainBudget(Settings):
    """The bounds of one drain that Dagster starts."""

    max_items: int = Field(1000, ge=1)
    max_seconds: float = Field(3000, ge=1)


class Config(Settings):
    """Everything that the platform can be told."""

    datasets: dict[Name, DatasetConfig] = Field(min_length=1)
    manifest: ManifestConfig
    warehouse: WarehouseConfig
    lease: LeaseConfig = LeaseConfig()
    drain: DrainBudget = DrainBudget()
    spark: SparkConfig

    @model_validator(mode="before")
    @classmethod
    def _fill_in_parts(cls, data: Any) -> Any:
        """Parts that are left out are validated too, so that their default paths are taken from the file as well."""
        if isinstance(data, dict):
            return {"manifest": {}, "warehouse": {}, "spark": {}, **data}
        return data

    @model_validator(mode="after")
    def _keep_apart(self) -> Config:
        for field in ("landing.root", "shred.output", "merge.output"):
            part, name = field.split(".")
            places: dict[str, str] = {}
            for dataset, config in self.datasets.items():
                if getattr(config, part) is None:
                    continue
                place = storage.as_uri(getattr(getattr(config, part), name))
                if place in places:
                    raise ValueError(f"datasets {places[place]} and {dataset} share {field} {place!r}: give each its own")
                places[place] = dataset
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


def load(path: str | Path | None = None) -> Config:
    """The configuration of a file: the one given, else `$MANIFEST_PLATFORM_CONFIG`, else `manifest_platform.yaml` here.

    Raises ConfigError with every problem of the file.
    """
    file = Path(path or os.environ.get(VARIABLE) or DEFAULT_FILE).absolute()
    try:
        data = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except FileNotFoundError as error:
        raise ConfigError(f"no configuration at {file}; pass --config FILE or set {VARIABLE}") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read {file}: {reason}; pass a YAML file with --config or in {VARIABLE}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not YAML: {error}") from error
    problems: list[str] = []
    data = _interpolate(data, "", problems)
    if problems:
        raise ConfigError(_report(file, problems))
    try:
        return Config.model_validate(data, context={"base": file.parent})
    except ValidationError as error:
        raise ConfigError(_report(file, list(_explain(error)))) from error


def _report(file: Path, problems: list[str]) -> str:
    return "\n".join([f"{file}:", *(f"  {problem}" for problem in problems)])


def _interpolate(value: Any, key: str, problems: list[str]) -> Any:
    if isinstance(value, dict):
        return {name: _interpolate(part, f"{key}.{name}".lstrip("."), problems) for name, part in value.items()}
    if isinstance(value, list):
        return [_interpolate(part, f"{key}.{index}", problems) for index, part in enumerate(value)]
    if not isinstance(value, str):
        return value
    if _PASSWORD_IN_URL.search(_REFERENCE.sub("", value)):
        problems.append(f"{key}: holds a password; take it from the environment as ${{NAME}}")
        return value

    def substitute(found: re.Match[str]) -> str:
        name, default = found.groups()
        if (known := os.environ.get(name) or default) is None:
            problems.append(f"{key}: ${{{name}}} is not set in the environment, and has no default (${{{name}:-default}})")
            return ""
        return known

    return _REFERENCE.sub(substitute, value)


def _explain(error: ValidationError) -> Iterator[str]:
    """Each problem as `key: value: what is wrong, what is allowed`."""
    for problem in error.errors():
        location = [part for part in problem["loc"] if part != "[key]"]
        key = ".".join(str(part) for part in location) or "file"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            allowed = ", ".join(sorted(_fields_at(location[:-1])))
            yield f"{key}: unknown key; allowed here: {allowed}"
        elif problem["type"] == "missing":
            yield f"{key}: is required"
        elif isinstance(problem["input"], (dict, list)) and problem["type"] == "value_error":
            yield f"{key}: {message}" if isinstance(problem["input"], dict) and location else message
        else:
            yield f"{key}: {_without_secrets(repr(problem['input']))}: {message}"


def _without_secrets(text: str) -> str:
    """The text with `***` for whatever stands between a URL's scheme and its host, and for passwords behind it."""
    return _PASSWORD_OPTION.sub(r"\1***", _USER_INFO.sub("://***@", text))


def _fields_at(location: list[Any]) -> list[str]:
    """The keys that the configuration has at a place."""
    annotation: Any = Config
    for part in location:
        annotation = _annotation_at(annotation, part)
    return list(annotation.model_fields)


def _annotation_at(annotation: Any, part: Any) -> Any:
    """What a key of a mapping or of a part of the configuration is to be; of several kinds, the one that the key names."""
    if typing.get_origin(annotation) is dict:
        return typing.get_args(annotation)[1]
    kinds = typing.get_args(annotation)
    if kinds:
        return next(kind for kind in kinds if part in typing.get_args(kind.model_fields["kind"].annotation))
    found = annotation.model_fields[part].annotation
    if type(None) in typing.get_args(found):  # a part that may be left out
        return next(kind for kind in typing.get_args(found) if kind is not type(None))
    return found
