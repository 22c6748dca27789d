"""The settings of AWS's clients: how long they wait, how often they repeat a request, and where a service answers.

Belongs here: the model. What the clients do with it is in `manifest_platform.aws`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from manifest_platform import aws
from manifest_platform.settings import Settings

_SERVICES = Literal["dynamodb", "glue", "s3", "secretsmanager", "sqs", "ssm", "sts"]


def _endpoint(url: str) -> str:
    """Returns the URL. Raises ValueError if it is no endpoint."""
    parts = urlsplit(url)
    beyond = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in ("http", "https") or not parts.hostname or beyond:
        raise ValueError("allowed: http(s)://host or http(s)://host:port, such as that of a VPC endpoint")
    return url.rstrip("/")


Endpoint = Annotated[str, AfterValidator(_endpoint)]


class AwsPatience(Settings):
    """The limits of clients: how long they wait, and how often they repeat a request. Each service has defaults of its own."""

    connect_seconds: float | None = Field(None, ge=0.1, le=300, description="most seconds until a connection is open")
    read_seconds: float | None = Field(
        None, ge=0.1, le=900, description="most seconds without a byte of an answer, after which the request is repeated"
    )
    attempts: int | None = Field(
        None,
        ge=1,
        le=20,
        description="most times that a request is sent; the pauses between them are random, and twice as long each time",
    )


class AwsService(AwsPatience):
    """The settings of a service's clients."""

    endpoint: Endpoint | None = Field(
        None, description="where the service answers, such as `https://vpce-0a1b.s3.eu-west-1.vpce.amazonaws.com`"
    )


_ROLE = r"^arn:aws[a-z-]*:iam::\d{12}:role/[^\s',]+$"
_KEY = r"^(arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:(key|alias)/)?[A-Za-z0-9/_-]{1,256}$"


class AwsLocation(Settings):
    """The access to a place in S3, beyond the credentials of the environment."""

    kms_key: str | None = Field(
        None,
        pattern=_KEY,
        description="the KMS key that encrypts each object which is written there: a key's ID or ARN, or an alias's ARN."
        " Without it, the bucket's own default holds",
    )
    requester_pays: bool = Field(
        False, description="`true`: this account pays for requests and transfer. Arrow cannot say so: boto3 reads, more slowly"
    )
    role: str | None = Field(
        None, pattern=_ROLE, description="the role that is assumed for it, such as another account's; its session is renewed"
    )
    external_id: str | None = Field(
        None,
        min_length=2,
        max_length=1224,
        pattern=r"^[A-Za-z0-9_+=,.@:/-]+$",
        description="the external ID that the role's owner asks for",
    )
    endpoint: Endpoint | None = Field(None, description="where S3 answers for it, such as a VPC endpoint")
    region: str | None = Field(None, pattern=r"^[a-z0-9-]+$", description="the bucket's region; by default the environment's")

    @model_validator(mode="after")
    def _assume_with_an_external_id(self) -> AwsLocation:
        if self.external_id and not self.role:
            raise ValueError("external_id: allowed only with role")
        return self


_LOCATION = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/]+)*")


def _location(uri: str) -> str:
    """Returns the URI. Raises ValueError if it is no bucket and no prefix."""
    if not _LOCATION.fullmatch(uri):
        raise ValueError("allowed: s3://bucket or s3://bucket/prefix, without a slash at the end")
    return uri


class AwsConfig(AwsPatience):
    """The settings of the clients of AWS's services, of this process and of Spark's workers."""

    services: dict[_SERVICES, AwsService] = Field({}, description="settings of single services, by the service's name")

    locations: dict[Annotated[str, AfterValidator(_location)], AwsLocation] = Field(
        {}, description="the access to places in S3, by `s3://bucket` or `s3://bucket/prefix`; of several, the narrowest holds"
    )

    @property
    def choices(self) -> aws.Choices:
        """Returns what the clients need to know."""
        every = aws.Service(self.connect_seconds, self.read_seconds, self.attempts)
        return aws.Choices(
            every,
            {name: aws.Service(**one.model_dump()) for name, one in self.services.items()},
            {uri: aws.Location(**one.model_dump()) for uri, one in self.locations.items()},
        )
