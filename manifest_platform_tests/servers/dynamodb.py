"""DynamoDB Local for tests: one server for the session, its tables in memory.

Use the fixture `dynamodb`: it sets an environment in which every AWS client may talk to the server, and nothing of the
user's own is left. Tables are the test's to make: give each test its own.

The server answers all test processes through one lock, and not in the order in which they asked. While a test kept it busy,
single requests of others waited for more than twenty seconds, and their clients gave up: so a test's clients are patient.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from manifest_platform import aws
from manifest_platform.demo.dynamodb import DynamoDbLocal, dynamodb_local
from manifest_platform.demo.s3 import PROXY_VARIABLES
from manifest_platform_tests.servers.shared import shared

PATIENCE_S = 120


@contextmanager
def dynamodb_at(folder: Path) -> Generator[str]:
    """Runs DynamoDB Local and gives its endpoint."""
    with dynamodb_local(folder / "log") as server:
        yield server.endpoint


@pytest.fixture(scope="session")
def dynamodb_server(session_folder: Path) -> Iterator[DynamoDbLocal]:
    """The server."""
    with shared(session_folder, f"{__name__}:dynamodb_at") as endpoint:
        yield DynamoDbLocal(endpoint)


@pytest.fixture
def dynamodb(dynamodb_server: DynamoDbLocal, monkeypatch: pytest.MonkeyPatch) -> DynamoDbLocal:
    """The server, and the environment that its clients need."""
    import boto3

    for name in list(os.environ):
        if name.startswith("AWS_") or name.upper() in PROXY_VARIABLES:
            monkeypatch.delenv(name)
    for name, value in dynamodb_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    monkeypatch.setitem(aws.LIMITS, "dynamodb", aws.Limits(3, PATIENCE_S, 4))
    return dynamodb_server
