"""Settings of registries: their vendors and priorities, the limits of their answers, and how long answers are kept."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from manifest_platform.settings import ReadableLocation, SecretReference, Settings, is_this_machine

OVERHEARD = "credentials are sent by https:// only, or by http:// to this machine"


def has_credentials(url: str) -> bool:
    """True if a registry's URL contains a user or a password."""
    return is_http(url) and "@" in urlsplit(url).netloc


def is_overheard(url: str) -> bool:
    """True if data sent to a URL would travel unencrypted to another machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_this_machine(parts.hostname)


def is_http(location: str) -> bool:
    """True if a registry is asked over HTTP."""
    return location.startswith(("http://", "https://"))


def without_userinfo(location: str) -> str:
    """Returns a registry's location without user and password, to be shown and stored."""
    return re.sub(r"^(https?://)[^/?#]*@", r"\1", location)


class RegistrySettings(Settings):
    """Special settings of a registry: its vendors and its priority, and for HTTP its key and the meaning of its answers."""

    url: ReadableLocation = Field(description="the registry's place, as in `schemas`")
    prefixes: tuple[str, ...] = Field(
        (),
        description="the beginnings of vendors that the registry is for, as `com.acme`. It is asked first for them, and if it"
        " has a schema of such a vendor, only registries with such a prefix are asked for the versions of its model",
    )
    priority: int = Field(
        0,
        ge=-1_000_000,
        le=1_000_000,
        description="a registry with a lower number is asked earlier; with the same number, in the order of `schemas`",
    )
    apikey_variable: SecretReference | None = Field(
        None,
        description="the environment variable with the key of an Iglu server; the key is sent in the header `apikey`",
    )
    absent: tuple[Literal[403, 404], ...] = Field(
        (404,),
        description="the HTTP statuses that mean that a schema does not exist. Add 403 for a static store that answers 403 for"
        " missing files; else 403 counts so only after the registry has given some schema",
    )


class RegistryCacheSettings(Settings):
    """Times for which answers of registries over HTTP and in S3 are kept, on each machine, for all its worker processes."""

    seconds: float = Field(
        600, ge=0, le=86_400, description="how long a schema, and the list of a model's versions, is used without asking again"
    )
    missing_seconds: float = Field(
        10, ge=0, le=3_600, description="how long a schema that a registry lacks is not asked for again by a later batch"
    )
    stale_hours: float = Field(
        24,
        ge=0,
        le=8_760,
        description="how much longer a schema that was found is used while its registry does not answer; `0`: not at all, so"
        " that the batch fails and is tried again",
    )


class RegistryLimits(Settings):
    """Limits of what is read from an HTTP registry, whatever it answers."""

    schema_kib: int = Field(256, ge=1, le=1 << 16, description="the largest schema, or list of its versions, in KiB")
    total_mib: int = Field(
        16, ge=1, le=1 << 12, description="the most MiB of schemas that the tasks of one batch read in a process"
    )
    seconds: float = Field(
        60, ge=1, le=3600, description="the most seconds for a schema, or for all its versions, retries and redirects included"
    )
    redirects: int = Field(5, ge=0, le=20, description="the most redirects that are followed, within the registry's own origin")
    versions: int = Field(200, ge=1, le=100_000, description="the most versions of a model")
    columns: int = Field(2_000, ge=1, le=100_000, description="the most columns of a model's table")
    unknown_keys: int = Field(
        500,
        ge=1,
        le=1_000_000,
        description="the most missing schemas that a task asks for. Beyond that, it asks only for the schemas that most lines"
        " name, a few with each 4 MiB; the other lines become bad rows that say so",
    )
