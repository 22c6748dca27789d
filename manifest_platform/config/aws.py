"""The settings of AWS's clients: how long they wait, how often they repeat a request, and where a service answers.

Belongs here: the model. What the clients do with it is in `manifest_platform.aws`.
"""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

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


class AwsConfig(AwsPatience):
    """The settings of the clients of AWS's services, of this process and of Spark's workers."""

    services: dict[_SERVICES, AwsService] = Field({}, description="settings of single services, by the service's name")

    @property
    def choices(self) -> aws.Choices:
        """Returns what the clients need to know."""
        every = aws.Service(self.connect_seconds, self.read_seconds, self.attempts)
        return aws.Choices(every, {name: aws.Service(**one.model_dump()) for name, one in self.services.items()})
