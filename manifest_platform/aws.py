"""The clients of AWS's services: one a process and service, with retries and timeouts in one place.

Belongs here: every client and session of boto3, who it signs as, and how long it waits and how often it repeats a request.
What a request means does not belong here. boto3 is loaded with the first client.

Clients repeat what was throttled, and what met a connection or server that failed, in botocore's standard mode: the waits
double, each with full jitter, up to 20 seconds, and a budget stops the repeats of an outage. Its adaptive mode also slows
down calls that need not wait, by a rate that all calls of a client share: a throttled write would delay a lease's heartbeat.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from manifest_platform import masking

CONNECTIONS = 32
"""The most connections of a client, and so of its requests at the same time."""
_MOST_CLIENTS = 64
Keys = tuple[str, str, str | None]
"""An access key, its secret, and a session's token."""
Environment = tuple[tuple[str, str], ...]
_ENVIRONMENT = ("AWS_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class Limits:
    """Limits of a client: seconds until a connection, seconds without a byte of an answer, and times that a request is sent."""

    connect_seconds: float = 5
    read_seconds: float = 30
    attempts: int = 5


IMPATIENT = Limits(3, 10, 2)
"""For a request that a person waits for, such as the first look at a new landing root, or that others will soon repeat."""
_impatient: ContextVar[bool] = ContextVar("impatient", default=False)

LIMITS: dict[str, Limits] = {
    "dynamodb": Limits(3, 5, 4),  # a heartbeat must be through in a third of a lease
    "dynamodbstreams": Limits(3, 5, 4),
    "s3": Limits(5, 30, 5),
    "sqs": Limits(5, 30, 5),  # more than the 20 seconds of a long poll
}
"""The limits of services that need others than `Limits()`."""


@dataclass(frozen=True)
class Service:
    """The configuration of a service; None for what it leaves open."""

    connect_seconds: float | None = None
    read_seconds: float | None = None
    attempts: int | None = None
    endpoint: str | None = None


@dataclass(frozen=True)
class Access:
    """The identity that a client signs with, if not the environment's: a profile, or a role that it assumes and renews."""

    profile: str | None = None
    role: str | None = None
    external_id: str | None = None


@dataclass(frozen=True)
class Location:
    """The configuration of a place in S3: a bucket, or a prefix in it."""

    kms_key: str | None = None
    requester_pays: bool = False
    role: str | None = None
    external_id: str | None = None
    endpoint: str | None = None
    region: str | None = None

    @property
    def access(self) -> Access:
        """The identity for requests to it."""
        return Access(role=self.role, external_id=self.external_id)

    @property
    def needs_headers(self) -> bool:
        """True if requests need headers that Arrow's S3 client cannot send."""
        return bool(self.kms_key or self.requester_pays)


@dataclass(frozen=True)
class Choices:
    """The configuration of AWS's clients: of every service, and of some."""

    every: Service = Service()
    services: Mapping[str, Service] = field(default_factory=dict)
    locations: Mapping[str, Location] = field(default_factory=dict)  # by URI

    def of(self, service: str) -> Service:
        """The configuration of a service. DynamoDB's streams are as DynamoDB is."""
        return self.services.get(service) or self.services.get(service.removesuffix("streams")) or Service()


_choices = Choices()
_lock = threading.RLock()  # clients may be shared between threads, sessions not


def use(choices: Choices) -> None:
    """Sets what the configuration says, from now on."""
    global _choices
    _choices = choices


def used() -> Choices:
    """The configuration that `use` set, so that another process can set it, too."""
    return _choices


@contextmanager
def impatient() -> Generator[None]:
    """In the block, this thread's requests wait no longer than `IMPATIENT` says: for work whose time is limited."""
    token = _impatient.set(True)
    try:
        yield
    finally:
        _impatient.reset(token)


def limits_of(service: str) -> Limits:
    """The limits of a service's clients: the configuration's, else the service's own, else the general ones.

    In a block of `impatient`, at most those of `IMPATIENT`.
    """
    found = LIMITS.get(service, Limits())
    for told in (_choices.every, _choices.of(service)):
        given = {name: getattr(told, name) for name in ("connect_seconds", "read_seconds", "attempts")}
        found = replace(found, **{name: value for name, value in given.items() if value is not None})
    if not _impatient.get():
        return found
    return Limits(
        min(found.connect_seconds, IMPATIENT.connect_seconds),
        min(found.read_seconds, IMPATIENT.read_seconds),
        min(found.attempts, IMPATIENT.attempts),
    )


def endpoint_of(service: str) -> str | None:
    """The endpoint of a service that the configuration names; None if it names none. boto3 then asks the environment."""
    return _choices.of(service).endpoint


def location_of(uri: str) -> Location:
    """The configuration of the narrowest configured location that an S3 URI is in; all defaults if it is in none."""
    found = [place for place in _choices.locations if uri == place or uri.startswith(f"{place}/")]
    return _choices.locations[max(found, key=len)] if found else Location()


def s3(uri: str, limits: Limits | None = None) -> Any:
    """The client for requests to an S3 URI. It adds the headers that the configuration asks for. Raises as `client`."""
    place = location_of(uri)
    return client("s3", region=place.region, endpoint=place.endpoint, access=place.access, limits=limits)


def keys_of(access: Access) -> Keys | None:
    """The access key, secret and token of a role now, renewed in time; None for the environment's identity."""
    if not access.role:
        return None
    with _lock:
        found = _session(access, environment()).get_credentials().get_frozen_credentials()
    return found.access_key, found.secret_key, found.token


def client(
    service: str,
    *,
    region: str | None = None,
    endpoint: str | None = None,
    access: Access | None = None,
    limits: Limits | None = None,
) -> Any:
    """The process's client of a service, safe for threads; nobody closes it. Raises BotoCoreError and ValueError.

    It is made again if AWS's variables in the environment have changed, as in a code location that takes over the settings
    of a project's resources.
    """
    with _lock:
        return _client(
            service, region, endpoint or endpoint_of(service), access or Access(), limits or limits_of(service), environment()
        )


def environment() -> Environment:
    """The variables that clients read from the environment: AWS's, and those of proxies."""
    return tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)))


def forget() -> None:
    """Forgets clients and sessions, for tests."""
    with _lock:
        _client.cache_clear()
        _session.cache_clear()


@functools.lru_cache(_MOST_CLIENTS)
def _client(
    service: str,
    region: str | None,
    endpoint: str | None,
    access: Access,
    limits: Limits,
    environment: Environment,
) -> Any:
    from botocore.config import Config
    from botocore.exceptions import NoCredentialsError

    # Building a request takes a third less time without its validation; DynamoDB's requests are built in one place only.
    terse: dict[str, Any] = {"user_agent": "manifest-platform", "parameter_validation": False}
    config = Config(
        connect_timeout=limits.connect_seconds,
        read_timeout=limits.read_seconds,
        retries={"mode": "standard", "total_max_attempts": limits.attempts},
        max_pool_connections=CONNECTIONS,
        **(terse if service.startswith("dynamodb") else {"user_agent_extra": "manifest-platform"}),
    )
    session = _session(access, environment)
    if session.get_credentials() is None:
        raise NoCredentialsError()  # now, because a client that is kept would not look for them again
    made = session.client(service, region_name=region, endpoint_url=endpoint, config=config)
    if service == "s3":
        made.meta.events.register("provide-client-params.s3", _add_headers)
    return made


def _add_headers(params: dict[str, Any], model: Any, **_event: Any) -> dict[str, Any]:
    """Returns a request's parameters with those of its location, where the operation has such parameters."""
    deleted = params.get("Delete", {}).get("Objects") or [{}]
    key = params.get("Key") or params.get("Prefix") or deleted[0].get("Key", "")
    place = location_of(f"s3://{params.get('Bucket', '')}/{key}".rstrip("/"))
    added: dict[str, Any] = {}
    if place.requester_pays:
        added["RequestPayer"] = "requester"
    if place.kms_key:
        added |= {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": place.kms_key, "BucketKeyEnabled": True}
    known = model.input_shape.members if model.input_shape else {}
    return params | {name: value for name, value in added.items() if name in known}


@functools.lru_cache(_MOST_CLIENTS)
def _session(access: Access, environment: Environment) -> Any:
    """The session of an access: reading boto3's models takes thirty times as long as making a client."""
    import boto3
    from botocore.session import get_session

    session = get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time)
    if not access.role:
        return boto3.Session(profile_name=access.profile, botocore_session=session)
    from botocore.credentials import DeferredRefreshableCredentials

    session._credentials = DeferredRefreshableCredentials(functools.partial(_assumed, access), "assume-role")
    return boto3.Session(botocore_session=session)


def _time(value: Any) -> datetime:
    """The time of an answer. Two thirds of a listing's CPU time went into botocore's own parser, which knows many forms."""
    from botocore.utils import parse_timestamp

    if isinstance(value, str) and value[10:11] == "T" and value.endswith("Z"):
        return datetime.fromisoformat(value)
    return parse_timestamp(value)


def _assumed(access: Access) -> dict[str, str]:
    """Assumes a role, and returns its credentials. botocore calls it for the first request, and before they expire."""
    told = {"ExternalId": access.external_id} if access.external_id else {}
    answer = client("sts").assume_role(RoleArn=access.role, RoleSessionName="manifest-platform", **told)["Credentials"]
    masking.keep(answer["SecretAccessKey"], answer["SessionToken"])
    return {
        "access_key": answer["AccessKeyId"],
        "secret_key": answer["SecretAccessKey"],
        "token": answer["SessionToken"],
        "expiry_time": answer["Expiration"].isoformat(),
    }
