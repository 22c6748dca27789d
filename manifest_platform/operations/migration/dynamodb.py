"""The DynamoDB table of another system's manifest, read page by page and never written.

Belongs here: access to the table, and its errors. The meaning of its rows is in `snowplow_manifest` and `snowflake_loader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from manifest_platform import aws
from manifest_platform.manifest import StoreError
from manifest_platform.operations.migration.attributes import Row


class SourceError(StoreError):
    """The source's table cannot be read; the message says why and what to do."""


@dataclass(frozen=True)
class ForeignTable:
    """A DynamoDB table and its connection. Settings that are None come from the environment, as for every AWS tool."""

    name: str
    region: str | None = None
    profile: str | None = None
    endpoint: str | None = None

    def __str__(self) -> str:
        return f"dynamodb://{self.name}"

    def rows(self) -> Iterator[Row]:
        """Yields all rows by consistent reads, a page at a time. Raises SourceError."""
        from botocore.exceptions import BotoCoreError, ClientError

        access = aws.Access(profile=self.profile)
        try:
            client = aws.client("dynamodb", region=self.region, endpoint=self.endpoint, access=access, limits=_PATIENT)
            for page in client.get_paginator("scan").paginate(TableName=self.name, ConsistentRead=True):
                yield from page["Items"]
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            raise SourceError(f"table {self.name} cannot be read ({error}): {_ADVICE.get(code, _CHECK)}") from error
        except (BotoCoreError, ValueError) as error:
            raise SourceError(f"table {self.name} cannot be read ({error}): {_CHECK}") from error


_PATIENT = aws.Limits(10, 60, 10)  # a scan of a table that other programs use, and that may throttle it
_CHECK = "check --region, --profile and --endpoint, or the AWS variables of the environment"
_ADVICE = {
    "ResourceNotFoundException": "there is no such table; check its name and --region",
    "AccessDeniedException": "allow these credentials dynamodb:Scan on the table",
    "ProvisionedThroughputExceededException": "its read capacity is used up; raise it or try again later",
    "ThrottlingException": "its requests are throttled; try again later",
}
