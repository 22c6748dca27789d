"""The settings of a dataset of a Veeva vault's Direct Data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from manifest_platform.listing import BAD_TABLE
from manifest_platform.settings import KindSettings, SecretReference, ServerUrl, Settings, is_this_machine
from manifest_platform.sources.settings import DatasetSettings, LimitSettings, LoadSettings, ShredSettings
from manifest_platform.sources.veeva.files import Feed

INCR, LOG, FULL = "incr", "log", "full"

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
_PROFILE = r"^[^/\s]+$"


def _provider_url(url: str) -> str:
    parts = urlsplit(url)
    local = is_this_machine(parts.hostname)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and local)
    if not is_safe or not parts.hostname or any(mark in url for mark in "?#@"):
        raise ValueError("allowed: https://host/path, or http://localhost:port/path for one of this machine")
    return url


ProviderUrl = Annotated[str, AfterValidator(_provider_url)]
"""A URL of an identity provider, to which a secret is sent: https, or http on this machine."""


class PasswordLogin(Settings):
    """A login by user and password."""

    kind: Literal["password"] = Field(description="a login by user and password")
    user: str = Field(min_length=1, description="the user name at the vault")
    password_variable: SecretReference = Field("VAULT_PASSWORD", description="the environment variable with the password")

    @property
    def secret(self) -> str:
        """The name of the environment variable with the secret."""
        return self.password_variable


class SessionLogin(Settings):
    """A session that another program opens, renews and shares by its id."""

    kind: Literal["session"] = Field(description="the id of an open session")
    session_variable: SecretReference = Field("VAULT_SESSION", description="the environment variable with the session's id")

    @property
    def secret(self) -> str:
        """The name of the environment variable with the secret."""
        return self.session_variable


class TokenLogin(Settings):
    """A session by a bearer token of an identity provider. Another program obtains and renews the token."""

    kind: Literal["token"] = Field(description="a bearer token that another program obtained")
    profile: str = Field(min_length=1, pattern=_PROFILE, description="the OAuth profile of the vault")
    client: str = Field(min_length=1, description="the client's id at the vault")
    token_variable: SecretReference = Field("VAULT_TOKEN", description="the environment variable with the token")
    url: ServerUrl = Field("https://login.veevavault.com", description="the server that opens sessions")

    @property
    def secret(self) -> str:
        """The name of the environment variable with the secret."""
        return self.token_variable


class OAuthLogin(Settings):
    """A session by a bearer token that the platform obtains from an identity provider by client credentials, and renews."""

    kind: Literal["oauth"] = Field(description="a bearer token that the platform obtains and renews")
    profile: str = Field(min_length=1, pattern=_PROFILE, description="the OAuth profile of the vault")
    client: str = Field(min_length=1, description="the client's id, at the provider and at the vault")
    secret_variable: SecretReference = Field(
        "VAULT_CLIENT_SECRET",
        description="the environment variable with the client's secret",
    )
    issuer: ProviderUrl | None = Field(
        None, description="the identity provider, whose metadata (/.well-known/openid-configuration) names its token endpoint"
    )
    token_url: ProviderUrl | None = Field(None, description="the token endpoint of a provider that publishes no metadata")
    scope: str | None = Field(None, min_length=1, description="the scopes to request, separated by spaces")
    url: ServerUrl = Field("https://login.veevavault.com", description="the server that opens sessions")

    @model_validator(mode="after")
    def _knows_its_provider(self) -> OAuthLogin:
        if bool(self.issuer) == bool(self.token_url):
            raise ValueError("allowed: either an issuer or a token_url")
        return self

    @property
    def secret(self) -> str:
        """The name of the environment variable with the secret."""
        return self.secret_variable


Login = PasswordLogin | SessionLogin | TokenLogin | OAuthLogin
"""The login at the vault."""
_LOGIN = KindSettings(PasswordLogin, SessionLogin, TokenLogin, OAuthLogin)


class VaultLimits(Settings):
    """Limits of what is read from a vault, whatever it answers."""

    answer_mib: int = Field(
        8, ge=1, le=1024, description="the largest answer that is not a file, in MiB; a list of ten days has about one MiB"
    )
    answer_seconds: float = Field(
        120, ge=1, le=3600, description="the most seconds for such an answer, from the call to its last byte"
    )
    part_gib: float = Field(
        4, gt=0, le=1024, description="the largest part of a file, in GiB; only a window with a larger part fails"
    )
    part_seconds: float = Field(
        7200, ge=1, le=86_400, description="the most seconds for the download of a part, however often it is resumed"
    )

    @property
    def answer_bytes(self) -> int:
        """`answer_mib` in bytes."""
        return self.answer_mib << 20

    @property
    def part_bytes(self) -> int:
        """`part_gib` in bytes."""
        return int(self.part_gib * (1 << 30))

    @property
    def too_large(self) -> str:
        """The message for an answer larger than `answer_mib`."""
        return f"the answer has more than {self.answer_mib} MiB; if that is right, raise vault.limits.answer_mib"


class VaultSettings(Settings):
    """The vault whose Direct Data files are captured. Without `url` nothing is captured, and others land the directories."""

    id: str = Field(pattern=r"^[0-9]{1,12}$", description="the vault's number; a session with another vault is refused")
    url: ServerUrl | None = Field(None, description="the vault's server; without it nothing is captured")
    capture: bool = Field(
        True,
        description="`true`: this deployment captures the vault. `false`: another deployment captures it, and its windows are"
        " only read here",
    )
    login: Annotated[Login | None, _LOGIN] = Field(None, description="the credentials; required with a url")
    api: str = Field("v25.2", pattern=r"^v[0-9]{2}\.[0-9]$", description="the version of Vault's API")
    feeds: tuple[Feed, ...] = Field((LOG, INCR, FULL), min_length=1, description="the feeds that are captured")
    minutes_after: int = Field(
        5,
        ge=0,
        le=14,
        description="minutes after each quarter hour at which schedules capture: Vault publishes at about the quarter hour",
    )
    client_id: str = Field(
        "manifest-platform",
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="the name of the platform in Vault's API usage log",
    )
    read_seconds: float = Field(60, ge=1, le=3600, description="seconds that the server may be silent")
    limits: VaultLimits = Field(VaultLimits(), description="limits of what is read from the vault, whatever it answers")

    @model_validator(mode="after")
    def _logs_in(self) -> VaultSettings:
        if self.url and self.login is None:
            raise ValueError("it has a url but no login; allowed with a url: a login of kind password, session, token or oauth")
        return self


class ArchiveSettings(Settings):
    """The allowed contents of Vault's archives."""

    unnamed: Literal["refuse", "keep"] = Field(
        "refuse",
        description="for files that an archive's manifest.csv does not name: `refuse` the window, or `keep` the files where it"
        " lands; they do not become tables",
    )


class VeevaLimitSettings(LimitSettings):
    """Limits of a landed window, whoever wrote it. They bound the memory, disk and time of shredding."""

    metadata_mib: int = Field(
        32,
        ge=1,
        le=1024,
        description="the largest manifest.csv or metadata file, in MiB: these are read into memory",
    )


class VeevaShredSettings(ShredSettings):
    """The output and the limits of shredding, and corrections of Vault's metadata."""

    types: dict[Annotated[str, Field(pattern=r"^[^.\s]+\.[^.\s]+$")], VaultType] = Field(
        {}, description="by `extract.column`, the correct type where Vault's metadata is wrong"
    )
    tables: dict[
        Annotated[str, Field(pattern=r"^(Object|Document|Workflow|Log)\.[A-Za-z0-9_]+$")],
        Annotated[str, Field(pattern=r"^[a-z0-9_]+$")],
    ] = Field(
        {},
        description="by `Component.extract`, the table for its rows, if its default name is the table of another extract:"
        " `{Workflow.visit__c: workflow_visit__c}`",
    )
    partial_in_full: tuple[str, ...] = Field(
        ("*legacy*__sys",), description="patterns of workflow tables that a snapshot holds only in part"
    )
    limits: VeevaLimitSettings = Field(VeevaLimitSettings(), description="limits of a landed window")

    @field_validator("tables")
    @classmethod
    def _keeps_rows_apart(cls, tables: dict[str, str]) -> dict[str, str]:
        """Refuses an extract that is named twice, in whatever case, and a table that is named twice."""
        if len({name.lower() for name in tables}) < len(tables):
            raise ValueError("an extract is named twice; allowed: each extract once, in whatever case")
        if len({*tables.values(), BAD_TABLE}) <= len(tables):
            raise ValueError(f"a table is named twice; allowed: a table of its own for each extract, other than {BAD_TABLE}")
        return tables


class ShrinkSettings(Settings):
    """The rows that a snapshot may remove from a table. If it exceeds both the count and the share, it needs consent."""

    max_count: int = Field(100, ge=0, description="rows that a table may lose, whatever their share")
    max_share: float = Field(0.5, ge=0, le=1, description="share of its rows that a table may lose, whatever their count")


class VeevaLoadSettings(LoadSettings):
    """Settings of loading a vault. `late` applies to logs only: a late window of changes is always quarantined."""

    logs: Literal["with", "own"] = Field(
        "with", description="`with`: logs are drained together with the other feeds. `own`: logs have a drain of their own"
    )
    shrink: ShrinkSettings = Field(
        ShrinkSettings(), description="how many rows a snapshot may remove from a table without `full begin --allow-shrink`"
    )


class VeevaSettings(DatasetSettings):
    """A dataset of a Veeva vault's Direct Data."""

    feeds: ClassVar[tuple[str, ...]] = (INCR, LOG, FULL)

    source: Literal["veeva"] = Field("veeva", description="a Veeva vault's Direct Data")
    vault: VaultSettings = Field(description="the vault")
    archive: ArchiveSettings = Field(ArchiveSettings(), description="the allowed contents of Vault's archives")
    shred: VeevaShredSettings = Field(description="where shredded Parquet goes, and corrections of Vault's metadata")
    load: VeevaLoadSettings = Field(VeevaLoadSettings(), description="how the vault is loaded")

    def of_deployment(self, deployment: str) -> VeevaSettings:
        """Returns the dataset for a deployment beside production. It captures nothing: captures write to the landing root."""
        beside = super().of_deployment(deployment)
        return self.model_copy(
            update={"shred": beside.shred, "merge": beside.merge, "vault": self.vault.model_copy(update={"capture": False})}
        )

    def problems(self) -> Iterator[str]:
        """Refuses settings that can never work: merging tables that are loaded by key, and steps that could never continue."""
        if self.merge is not None:
            yield "merge is for tables that only append, but a vault's tables are loaded by key; allowed: no merge"
        # Only snapshots that a full load begins with are loaded, and feeds do not share items.
        feeds = {step.name: step.feed or INCR for step in self.steps}
        for step in self.steps:
            feed = feeds[step.name]
            if step.order == "strict" and feed == FULL:
                yield f"step {step.name!r} would stop at snapshots that are never loaded; allowed: order any"
            if strangers := [name for name in step.upstream if feeds.get(name, feed) != feed]:
                yield f"step {step.name!r} of feed {feed} waits for {strangers[0]!r}, which is of feed {feeds[strangers[0]]}"
