"""The settings of a Redshift warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from pydantic import AfterValidator, Field, model_validator

from manifest_platform.deployments import identifier
from manifest_platform.settings import SecretReference, Settings, StorageLocation
from manifest_platform.warehouse.engines.engine import EngineSettings
from manifest_platform.warehouse.engines.redshift.engine import Redshift
from manifest_platform.warehouse.engines.redshift.layout import Layout
from manifest_platform.warehouse.engines.redshift.login import Login
from manifest_platform.warehouse.upkeep_settings import UpkeepAction

_EXAMPLE = "redshift://user@host:5439/database"
_SSL_MODES = ("verify-full", "verify-ca", "disable")


def _checked(url: str) -> str:
    """Refuses what is no URL of a Redshift database, and one with a password, without repeating it in the message."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if ":" in parts.netloc.rpartition("@")[0] or "password" in query:
        raise ValueError("it holds a password; name the environment variable that has it in password_variable instead")
    allowed = set(query) <= {"sslmode"} and query.get("sslmode", "verify-full") in _SSL_MODES
    if parts.scheme != "redshift" or not parts.hostname or not parts.path.strip("/") or not allowed:
        raise ValueError(f"allowed: {_EXAMPLE}, optionally with ?sslmode= and one of {', '.join(_SSL_MODES)}")
    return url


class LayoutSettings(Settings):
    """The layout of tables, where the rules are not wanted."""

    diststyle: Literal["auto", "even", "key", "all"] | None = Field(
        None, description="how rows are distributed; `all` copies a small table to every node"
    )
    distkey: str | None = Field(None, min_length=1, description="the column by which rows are distributed")
    sortkey: tuple[str, ...] | None = Field(None, description="the columns by which rows are sorted; `[]` sorts by no column")
    encode: dict[str, Annotated[str, Field(pattern=r"^[a-z0-9]+$")]] = Field(
        {}, description="the compression of columns, by name: `{payload: zstd}`"
    )

    @model_validator(mode="after")
    def _is_distributed_once(self) -> LayoutSettings:
        if (self.diststyle == "key") != bool(self.distkey) and self.diststyle is not None:
            raise ValueError("allowed: diststyle key with a distkey, or another diststyle without")
        return self

    @property
    def layout(self) -> Layout:
        """The layout as the engine takes it."""
        return Layout(self.diststyle, self.distkey, self.sortkey, self.encode)


class RedshiftSettings(EngineSettings):
    """The settings of a Redshift database as the warehouse: a cluster or Serverless. Rows come by COPY from S3."""

    upkeep_actions: ClassVar[tuple[UpkeepAction, ...]] = ("analyze", "vacuum", "sort")
    imaginary: ClassVar[Mapping[str, Any]] = {"url": _EXAMPLE}
    kind: Literal["redshift"] = Field("redshift", description="a Redshift database")
    url: Annotated[str, AfterValidator(_checked)] = Field(
        description=f"the database, such as `{_EXAMPLE}`. The server's certificate and name are verified, unless "
        "`?sslmode=` says otherwise. No password: see `password_variable`, `secret` and `iam`"
    )
    password_variable: SecretReference = Field(
        "WAREHOUSE_PASSWORD", description="the environment variable with the user's password"
    )
    secret: str | None = Field(
        None, min_length=1, description="name or ARN of a secret of AWS Secrets Manager with `username` and `password`"
    )
    iam: bool = Field(False, description="`true`: temporary credentials, by the AWS credentials of the environment")
    cluster: str | None = Field(None, min_length=1, description="the cluster's identifier, for `iam`; by default from the host")
    workgroup: str | None = Field(
        None, min_length=1, description="the Serverless workgroup, for `iam` with a domain of your own"
    )
    region: str | None = Field(
        None, min_length=1, description="the AWS region, for `iam` and `secret`; by default from the host"
    )
    role: str = Field(
        "default",
        pattern=r"^(default|arn:aws[a-z-]*:iam::\d{12}:role/[^\s',]+(,arn:aws[a-z-]*:iam::\d{12}:role/[^\s',]+)*)$",
        description="the role with which COPY reads S3: an ARN that is attached to the cluster or namespace, or `default`",
    )
    manifests: StorageLocation | None = Field(
        None,
        description="the folder in S3 for the manifests of COPY, each of which exists while a table is staged; by default"
        " beside the objects that it names",
    )
    json_columns: Literal["varchar", "super"] = Field(
        "varchar", description="the type of new JSON columns; text in a `super` column that is no JSON becomes a SUPER text"
    )
    layout: dict[str, LayoutSettings] = Field(
        {}, description="by a pattern of table names, the layout of new tables where the rules are not wanted"
    )
    statement_timeout_seconds: float | None = Field(
        None, gt=0, description="how long a statement may run. A load whose statement runs longer is tried again later"
    )
    connect_seconds: float = Field(
        120, ge=1, le=3600, description="how long a connection may take: a Serverless endpoint that slept needs a while"
    )
    query_group: str | None = Field(
        None, min_length=1, max_length=320, description="the query group, for queues and monitoring"
    )

    @model_validator(mode="after")
    def _has_a_user(self) -> RedshiftSettings:
        if not urlsplit(self.url).username and not self.iam and not self.secret:
            raise ValueError(f"url has no user; allowed without: iam or secret. With a user: {_EXAMPLE}")
        if self.iam and self.secret:
            raise ValueError("allowed: either iam or secret")
        if self.manifests and not self.manifests.startswith("s3://"):
            raise ValueError("manifests: allowed: s3://bucket/prefix, because COPY reads them there")
        return self

    @property
    def place(self) -> str:
        """The server and its database."""
        parts = urlsplit(self.url)
        return f"redshift://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def of_deployment(self, deployment: str) -> RedshiftSettings:
        """Returns the settings of another database on the same server, such as `database_pr_7`, which must exist."""
        parts = urlsplit(self.url)
        name = f"{unquote(parts.path.strip('/'))}_{identifier(deployment)}"
        return self.model_copy(update={"url": urlunsplit(parts._replace(path=f"/{quote(name, safe='')}"))})

    def open(self, *, read_only: bool = False, patience: float | None = None) -> Redshift:
        """Returns the engine for the database. Credentials are read when it connects."""
        parts = urlsplit(self.url)
        login = Login(
            host=parts.hostname or "",
            port=parts.port or 5439,
            database=unquote(parts.path.strip("/")),
            user=unquote(parts.username) if parts.username else None,
            password_variable=self.password_variable,
            secret=self.secret,
            iam=self.iam,
            cluster=self.cluster,
            workgroup=self.workgroup,
            region=self.region,
            ssl_mode=dict(parse_qsl(parts.query)).get("sslmode", "verify-full"),
            seconds=self.connect_seconds,
        )
        return Redshift(
            login,
            place=self.place,
            role=self.role,
            manifests=self.manifests,
            is_super=self.json_columns == "super",
            layouts={pattern: one.layout for pattern, one in self.layout.items()},
            session=self._session(),
            patience=Redshift.patience if patience is None else patience,
            read_only=read_only,
        )

    def _session(self) -> dict[str, str]:
        """The parameters that each session sets, with their values as SQL text."""
        found = {}
        if self.statement_timeout_seconds:
            found["statement_timeout"] = str(max(1, round(self.statement_timeout_seconds * 1000)))
        if self.query_group:
            found["query_group"] = "'" + self.query_group.replace("'", "''") + "'"
        return found
