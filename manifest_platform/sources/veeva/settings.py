"""The settings of a dataset of a Veeva vault's Direct Data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from manifest_platform.listing import BAD_TABLE
from manifest_platform.settings import KindSettings, ServerUrl, Settings, is_this_machine
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
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
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

    kind: Literal["password"] = Field(description="by user and password")
    user: str = Field(min_length=1, description="who logs in")
    password_variable: str = Field(
        "VAULT_PASSWORD", pattern=_VARIABLE, description="the environment variable that holds the password"
    )

    @property
    def secret(self) -> str:
        """The environment variable that holds what nobody may know."""
        return self.password_variable


class SessionLogin(Settings):
    """A session that somebody else opens, renews and gives away by its id."""

    kind: Literal["session"] = Field(description="by the id of a session that is open")
    session_variable: str = Field(
        "VAULT_SESSION", pattern=_VARIABLE, description="the environment variable that holds the session's id"
    )

    @property
    def secret(self) -> str:
        """The environment variable that holds what nobody may know."""
        return self.session_variable


class TokenLogin(Settings):
    """A session by a bearer token of an identity provider, which somebody else obtains and renews."""

    kind: Literal["token"] = Field(description="by a bearer token that is there")
    profile: str = Field(min_length=1, pattern=_PROFILE, description="the OAuth profile of the vault")
    client: str = Field(min_length=1, description="the client's id at the vault")
    token_variable: str = Field("VAULT_TOKEN", pattern=_VARIABLE, description="the environment variable that holds the token")
    url: ServerUrl = Field("https://login.veevavault.com", description="the server that opens sessions")

    @property
    def secret(self) -> str:
        """The environment variable that holds what nobody may know."""
        return self.token_variable


class OAuthLogin(Settings):
    """A session by a bearer token, which is obtained of an identity provider by client credentials, and renewed."""

    kind: Literal["oauth"] = Field(description="by a bearer token that is obtained and renewed")
    profile: str = Field(min_length=1, pattern=_PROFILE, description="the OAuth profile of the vault")
    client: str = Field(min_length=1, description="the client's id, at the provider and at the vault")
    secret_variable: str = Field(
        "VAULT_CLIENT_SECRET", pattern=_VARIABLE, description="the environment variable that holds the client's secret"
    )
    issuer: ProviderUrl | None = Field(
        None, description="the identity provider, whose metadata (/.well-known/openid-configuration) name its token endpoint"
    )
    token_url: ProviderUrl | None = Field(None, description="the token endpoint, of a provider that tells no metadata")
    scope: str | None = Field(None, min_length=1, description="the scopes to ask for, with blanks between them")
    url: ServerUrl = Field("https://login.veevavault.com", description="the server that opens sessions")

    @model_validator(mode="after")
    def _knows_its_provider(self) -> OAuthLogin:
        if bool(self.issuer) == bool(self.token_url):
            raise ValueError("allowed is either an issuer or a token_url")
        return self

    @property
    def secret(self) -> str:
        """The environment variable that holds what nobody may know."""
        return self.secret_variable


Login = PasswordLogin | SessionLogin | TokenLogin | OAuthLogin
"""Who logs in at the vault."""
_LOGIN = KindSettings(PasswordLogin, SessionLogin, TokenLogin, OAuthLogin)


class VaultLimits(Settings):
    """What is taken of a vault at most, whatever it answers."""

    answer_mib: int = Field(8, ge=1, le=1024, description="MiB of an answer that is no file: a list of ten days has one")
    answer_seconds: float = Field(120, ge=1, le=3600, description="seconds for such an answer, from the call to its last byte")
    part_gib: float = Field(
        4, gt=0, le=1024, description="GiB of one part of a file; a window with a larger one fails, and no other does"
    )
    part_seconds: float = Field(
        7200, ge=1, le=86_400, description="seconds for the download of a part, however often it is taken up again"
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
        """What is said of an answer beyond `answer_mib`."""
        return f"the answer has more than {self.answer_mib} MiB; where that is right, raise vault.limits.answer_mib"


class VaultSettings(Settings):
    """The Vault whose Direct Data files are captured; without `url` none are, and others land the directories."""

    id: str = Field(pattern=r"^[0-9]{1,12}$", description="the vault's number, digits; every session is held against it")
    url: ServerUrl | None = Field(None, description="the vault's server; without it nothing is captured")
    capture: bool = Field(
        True, description="whether it is captured here; `false` where another deployment does, whose windows are read alone"
    )
    login: Annotated[Login | None, _LOGIN] = Field(None, description="who logs in, and by what; needed with a url")
    api: str = Field("v25.2", pattern=r"^v[0-9]{2}\.[0-9]$", description="the version of Vault's API")
    feeds: tuple[Feed, ...] = Field((LOG, INCR, FULL), min_length=1, description="the feeds that are captured")
    minutes_after: int = Field(
        5,
        ge=0,
        le=14,
        description="minutes after each quarter hour at which schedules capture: the Vault publishes at the quarter, and not to"
        " the second",
    )
    client_id: str = Field(
        "manifest-platform",
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="the name under which the Vault's API usage log has our calls",
    )
    read_seconds: float = Field(60, ge=1, le=3600, description="seconds that the server may be silent")
    limits: VaultLimits = Field(VaultLimits(), description="what is taken of the vault at most, whatever it answers")

    @model_validator(mode="after")
    def _logs_in(self) -> VaultSettings:
        if self.url and self.login is None:
            raise ValueError("has a url and no login; allowed with a url: a login of kind password, session, token or oauth")
        return self


class ArchiveSettings(Settings):
    """What an archive of Vault's may hold."""

    unnamed: Literal["refuse", "keep"] = Field(
        "refuse",
        description="files that an archive's manifest.csv does not name: `refuse` the window, or `keep` them where it lands;"
        " they become no table",
    )


class VeevaLimitSettings(LimitSettings):
    """What no landed window may exceed, whoever wrote it: so memory, disk and time of shredding are bounded."""

    metadata_mib: int = Field(
        32,
        ge=1,
        le=1024,
        description="MiB of manifest.csv, and of each metadata file: these are read whole",
    )


class VeevaShredSettings(ShredSettings):
    """Where shredded Parquet goes, and what Vault's metadata gets wrong."""

    types: dict[Annotated[str, Field(pattern=r"^[^.\s]+\.[^.\s]+$")], VaultType] = Field(
        {}, description="of `extract.column`, the type that is right where Vault's metadata is not"
    )
    tables: dict[
        Annotated[str, Field(pattern=r"^(Object|Document|Workflow|Log)\.[A-Za-z0-9_]+$")],
        Annotated[str, Field(pattern=r"^[a-z0-9_]+$")],
    ] = Field(
        {},
        description="of `Component.extract`, the table that its rows go to, where its own name is the table of another extract:"
        " `{Workflow.visit__c: workflow_visit__c}`",
    )
    partial_in_full: tuple[str, ...] = Field(
        ("*legacy*__sys",), description="patterns of workflows' tables of which a snapshot holds only a part"
    )
    limits: VeevaLimitSettings = Field(VeevaLimitSettings(), description="what no landed window may exceed")

    @field_validator("tables")
    @classmethod
    def _keeps_rows_apart(cls, tables: dict[str, str]) -> dict[str, str]:
        """One table an extract, whatever the case of its name."""
        if len({name.lower() for name in tables}) < len(tables):
            raise ValueError("an extract is named twice; allowed: each extract once, in whatever case")
        if len({*tables.values(), BAD_TABLE}) <= len(tables):
            raise ValueError(f"a table is named twice; allowed: a table of its own for each extract, other than {BAD_TABLE}")
        return tables


class ShrinkSettings(Settings):
    """How many rows a snapshot may take from a table by itself: beyond both the count and the share, it needs consent."""

    max_count: int = Field(100, ge=0, description="rows that a table may lose whatever their share")
    max_share: float = Field(0.5, ge=0, le=1, description="share of its rows that a table may lose whatever their count")


class VeevaLoadSettings(LoadSettings):
    """How a vault is loaded. `late` is about logs alone: a window of changes is always set aside."""

    logs: Literal["with", "own"] = Field(
        "with", description="whether logs are drained `with` the rest, or by a drain of their `own`"
    )
    shrink: ShrinkSettings = Field(
        ShrinkSettings(), description="how many rows a snapshot may take from a table without `full begin --allow-shrink`"
    )


class VeevaSettings(DatasetSettings):
    """A dataset of a Veeva vault's Direct Data."""

    feeds: ClassVar[tuple[str, ...]] = (INCR, LOG, FULL)

    source: Literal["veeva"] = Field("veeva", description="a Veeva vault's Direct Data")
    vault: VaultSettings = Field(description="the vault")
    archive: ArchiveSettings = Field(ArchiveSettings(), description="what an archive of Vault's may hold")
    shred: VeevaShredSettings = Field(description="where shredded Parquet goes, and what Vault's metadata gets wrong")
    load: VeevaLoadSettings = Field(VeevaLoadSettings(), description="how the vault is loaded")

    def of_deployment(self, deployment: str) -> VeevaSettings:
        """As of any dataset; and nothing is captured, which would write where production's windows land."""
        beside = super().of_deployment(deployment)
        return self.model_copy(
            update={"shred": beside.shred, "merge": beside.merge, "vault": self.vault.model_copy(update={"capture": False})}
        )

    def problems(self) -> Iterator[str]:
        """What could never work: merging tables that are loaded by key, and steps that could never go on."""
        if self.merge is not None:
            yield "merge is for tables that only append, and a vault's are loaded by key; allowed: no merge"
        # Of snapshots only those are loaded that a full load is begun with, and feeds do not share items.
        feeds = {step.name: step.feed or INCR for step in self.steps}
        for step in self.steps:
            feed = feeds[step.name]
            if step.order == "strict" and feed == FULL:
                yield f"step {step.name!r} would stop at what is never loaded; allowed of it is order any"
            if strangers := [name for name in step.upstream if feeds.get(name, feed) != feed]:
                yield f"step {step.name!r} of feed {feed} waits for {strangers[0]!r}, which is of feed {feeds[strangers[0]]}"
