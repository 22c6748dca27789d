"""The settings of a warehouse in Snowflake."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from manifest_platform.deployments import identifier
from manifest_platform.settings import LocalPath, SecretReference, is_this_machine
from manifest_platform.warehouse.engines.engine import EngineSettings
from manifest_platform.warehouse.engines.snowflake.access import Access, Login

if TYPE_CHECKING:
    from manifest_platform.warehouse.engines.snowflake.engine import Snowflake

_NAME = r"^[A-Za-z_][A-Za-z0-9_$]*$"
_STAGE = r"^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*){1,2}$"
_EXAMPLE = "snowflake://user@account/database?warehouse=WH&role=R"
_OPTIONS = frozenset({"warehouse", "role", "host", "port", "protocol"})


def _url(url: str) -> str:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.password is not None:
        raise ValueError(
            "a URL with a password in it is shown wherever the warehouse is named. Write the URL without it, and set"
            " password_variable to the name of an environment variable that holds the password"
        )
    complete = parts.scheme == "snowflake" and parts.username and parts.hostname and _database(parts)
    if not complete or parts.fragment or not all(options.values()) or "warehouse" not in options:
        raise ValueError(f"allowed: {_EXAMPLE}")
    if unknown := sorted(options.keys() - _OPTIONS):
        raise ValueError(f"{', '.join(unknown)}: allowed after the question mark: {', '.join(sorted(_OPTIONS))}")
    for name in (_database(parts), options["warehouse"], options.get("role", "R")):
        if not re.fullmatch(_NAME, name):
            raise ValueError(f"{name!r}: allowed as database, warehouse and role: letters, digits, _ and $")
    if options.get("protocol", "https") != "https" and not is_this_machine(options.get("host")):
        raise ValueError("protocol: allowed: https, or http for a host on this machine")
    if not options.get("port", "443").isdecimal():
        raise ValueError("port: allowed: a number")
    return url


def _database(parts: SplitResult) -> str:
    return unquote(parts.path.strip("/"))


class SnowflakeSettings(EngineSettings):
    """The settings of a warehouse in Snowflake: a database, the way to log in, and the stage that objects are read from.

    Secrets are given by the name of an environment variable or a file, never by value.
    """

    reserved_schemas: ClassVar[frozenset[str]] = frozenset({"information_schema", "manifest_platform_staging"})
    counts_at_once: ClassVar[bool] = True
    imaginary: ClassVar[Mapping[str, Any]] = {"url": _EXAMPLE, "token_variable": "TOKEN", "stage": "LANDING.OBJECTS"}
    kind: Literal["snowflake"] = Field("snowflake", description="a database in Snowflake")
    url: Annotated[str, AfterValidator(_url)] = Field(
        description=f"account, user, database, virtual warehouse and role: `{_EXAMPLE}`. The database must exist."
        " `host`, `port`: of a private endpoint or a tunnel"
    )
    private_key_file: LocalPath | None = Field(
        None, description="the file with the user's private key (PEM, PKCS#8); relative to the configuration file"
    )
    private_key_variable: SecretReference | None = Field(
        None, description="the environment variable with the private key, in place of a file"
    )
    passphrase_variable: SecretReference | None = Field(
        None, description="the environment variable with the passphrase of the private key"
    )
    password_variable: SecretReference | None = Field(
        None,
        description="the environment variable with the user's password, in place of a key",
    )
    token_variable: SecretReference | None = Field(
        None,
        description="the environment variable with an OAuth token, in place of a key; another program renews it",
    )
    stage: str | None = Field(
        None,
        pattern=_STAGE,
        description="the external stage over the shredded objects: `SCHEMA.STAGE` or `DATABASE.SCHEMA.STAGE`",
    )
    storage_integration: str | None = Field(
        None, pattern=_NAME, description="the storage integration that may read the shredded objects, in place of a stage"
    )
    json_columns: Literal["varchar", "variant"] = Field(
        "varchar",
        description="the type of JSON columns, to be chosen before the first load. `variant`: can be queried by path; text that"
        " is not JSON is kept in it as text",
    )
    statement_seconds: int = Field(
        3600, ge=1, le=604_800, description="the most seconds for one statement; a statement that takes longer is transient"
    )
    login_seconds: int = Field(60, ge=1, le=3600, description="the most seconds to log in")
    network_seconds: int = Field(
        120, ge=1, le=3600, description="the most seconds that a request without an answer is repeated"
    )
    read_role: str | None = Field(
        None, pattern=_NAME, description="the role of people's queries (`sql`); without it, the role of the URL"
    )
    clustering: dict[str, tuple[str, ...]] = Field(
        {},
        description="clustering keys by table, which new tables get: `{events: [collector_tstamp]}`. Snowflake charges for"
        " keeping tables in this order",
    )

    @field_validator("clustering")
    @classmethod
    def _keys(cls, clustering: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        if empty := sorted(table for table, columns in clustering.items() if not columns):
            raise ValueError(f"{', '.join(empty)}: allowed: at least one column")
        return clustering

    @model_validator(mode="after")
    def _logs_in_one_way_and_reads_one_way(self) -> SnowflakeSettings:
        ways = (self.private_key_file, self.private_key_variable, self.password_variable, self.token_variable)
        if sum(way is not None for way in ways) != 1:
            raise ValueError(
                "allowed: exactly one of private_key_file, private_key_variable, password_variable and token_variable"
            )
        if self.passphrase_variable and not (self.private_key_file or self.private_key_variable):
            raise ValueError("passphrase_variable: allowed with a private key")
        if bool(self.stage) == bool(self.storage_integration):
            raise ValueError("allowed: either a stage or a storage_integration")
        return self

    @property
    def place(self) -> str:
        """The account and the database."""
        return f"snowflake://{self.account}/{self.database}"

    @property
    def account(self) -> str:
        """The account's identifier."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def user(self) -> str:
        """The name of the user."""
        return unquote(urlsplit(self.url).username or "")

    @property
    def database(self) -> str:
        """The name of the database."""
        return _database(urlsplit(self.url))

    @property
    def options(self) -> dict[str, str]:
        """The options of the URL: the virtual warehouse, the role, host and port."""
        return dict(parse_qsl(urlsplit(self.url).query))

    def of_deployment(self, deployment: str) -> SnowflakeSettings:
        """Returns the settings of another database of the account, such as `database_pr_7`, which must exist."""
        parts = urlsplit(self.url)
        return self.model_copy(update={"url": parts._replace(path=f"/{self.database}_{identifier(deployment)}").geturl()})

    @property
    def access(self) -> Access:
        """Returns everything that the engine needs."""
        options = dict(self.options)
        warehouse, port = options.pop("warehouse"), options.pop("port", None)
        return Access(
            account=self.account,
            user=self.user,
            database=self.database,
            warehouse=warehouse,
            options={**options, **({"port": int(port)} if port else {})},
            login=Login(
                self.private_key_file,
                self.private_key_variable,
                self.passphrase_variable,
                self.password_variable,
                self.token_variable,
            ),
            stage=self.stage,
            storage_integration=self.storage_integration,
            has_variants=self.json_columns == "variant",
            statement_seconds=self.statement_seconds,
            login_seconds=self.login_seconds,
            network_seconds=self.network_seconds,
            read_role=self.read_role,
            clustering=self.clustering,
        )

    def open(self, *, read_only: bool = False, patience: float | None = None) -> Snowflake:
        """Returns the engine for the database."""
        from manifest_platform.warehouse.engines.snowflake.engine import Snowflake

        return Snowflake(self.access, Snowflake.patience if patience is None else patience, read_only)
