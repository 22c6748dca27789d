"""DynamoDB Local for tests: one server for the session, its tables in memory.

Use the fixture `dynamodb`: it sets an environment in which every AWS client may talk to the server, and nothing of the
user's own is left. Tables are the test's to make: give each test its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import boto3
import pytest

from manifest_platform.demo.dynamodb import DynamoDbLocal, dynamodb_local
from manifest_platform_tests.servers.s3 import PROXY_VARIABLES


@pytest.fixture(scope="session")
def dynamodb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDbLocal]:
    """The server, started on first use and stopped at the end of the session."""
    with dynamodb_local(tmp_path_factory.mktemp("dynamodb") / "log") as server:
        yield server


@pytest.fixture
def dynamodb(dynamodb_server: DynamoDbLocal, monkeypatch: pytest.MonkeyPatch) -> DynamoDbLocal:
    """The server, and the environment that its clients need."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.upper() in PROXY_VARIABLES:
            monkeypatch.delenv(name)
    for name, value in dynamodb_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    return dynamodb_server
