"""A client of DynamoDB: the table that a URL names, and the meaning of a call's error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from manifest_platform import aws
from manifest_platform.manifest.store import StoreError, StoreRejected, StoreUnavailable
from manifest_platform.remedies import Action, Remedy

EXPIRES = "expires"
"""The attribute of a row's expiry. Only tables of a memory have it set as DynamoDB's time to live."""

_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_REGION = re.compile(r"[a-z0-9-]+")
_ALLOWED = "dynamodb://TABLE?region=eu-west-1, and &endpoint=http://localhost:8000 for a server other than AWS's"
_PASSING_CODES = (
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "TransactionInProgressException",
)


@dataclass(frozen=True)
class Address:
    """The location of a table, from `manifest.store`. A missing region is taken from the environment or the profile."""

    table: str
    region: str | None = None
    endpoint: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Parses a `dynamodb://` URL. Raises ValueError that says what is allowed."""
        parts = urlsplit(url)
        if parts.scheme != "dynamodb" or not _TABLE.fullmatch(parts.netloc) or parts.path or parts.fragment:
            raise ValueError(f"allowed: {_ALLOWED}")
        given = parse_qsl(parts.query, keep_blank_values=True)
        options = dict(given)
        unknown = sorted(options.keys() - {"region", "endpoint"})
        if unknown or len(options) < len(given):
            raise ValueError(f"unknown or repeated {', '.join(unknown) or 'parameter'}; allowed: {_ALLOWED}")
        if "region" in options and not _REGION.fullmatch(options["region"]):
            raise ValueError(f"region must be a region's name; allowed: {_ALLOWED}")
        if "endpoint" in options and not _is_endpoint(options["endpoint"]):
            raise ValueError(f"endpoint must be http(s)://host:port and nothing more; allowed: {_ALLOWED}")
        return cls(parts.netloc, options.get("region"), options.get("endpoint"))

    def __str__(self) -> str:
        region = f" in {self.region}" if self.region else ""
        endpoint = f" at {self.endpoint}" if self.endpoint else ""
        return f"DynamoDB table {self.table}{region}{endpoint}"


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        beyond = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not beyond
    except ValueError:  # a port that is not a number
        return False


def failure(address: Address, error: Exception) -> StoreError:
    """The StoreError for a botocore error of a call that carried out nothing: transient, or permanent until a person acts."""
    from botocore.exceptions import ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as NoConnection
    from botocore.parsers import ResponseParserError

    if isinstance(error, ClientError):
        code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
        passing = status >= 500 or code in _PASSING_CODES
    else:
        code, passing = type(error).__name__, isinstance(error, HTTPClientError | NoConnection | ResponseParserError)
    if passing:
        return StoreUnavailable(f"{address}: {error}")
    advice = _ADVICE.get(code, "")
    said = str(error).removesuffix(".")
    remedy = Remedy(Action.CREATE_STORE) if code == "ResourceNotFoundException" else None
    return StoreRejected(f"{address}: {said}: {advice}" if advice else f"{address}: {said}", remedy)


_CREDENTIALS = "give credentials as for every AWS tool: AWS_PROFILE, AWS_ACCESS_KEY_ID, or the machine's role"
_ADVICE = {
    "ResourceNotFoundException": "create the table, or name another in manifest.store",
    "NoRegionError": "set the region in manifest.store (?region=eu-west-1) or in AWS_DEFAULT_REGION",
    "NoCredentialsError": _CREDENTIALS,
    "PartialCredentialsError": _CREDENTIALS,
    "ProfileNotFound": _CREDENTIALS,
    "UnrecognizedClientException": _CREDENTIALS,
    "ExpiredTokenException": _CREDENTIALS,
    "AccessDeniedException": "allow this role dynamodb:GetItem, BatchGetItem, Query, PutItem, DeleteItem and ConditionCheckItem"
    " on the table",
    "IdempotentParameterMismatchException": "a token was used for other writes before: give each transaction its own",
}


def open_client(address: Address, service: str = "dynamodb") -> Any:
    """The process's client for the table. Raises StoreRejected without a region or with a wrong profile.

    `service`: DynamoDB's streams have one of their own, at the same place.
    """
    from botocore.exceptions import BotoCoreError

    try:
        return aws.client(service, region=address.region, endpoint=address.endpoint)
    except BotoCoreError as error:
        raise failure(address, error) from error
