"""A real S3 server for tests: versitygw on a free local port, one for the session, its data in a temporary directory.

Use the fixture `s3_bucket`: it gives each test a fresh bucket and an environment in which every AWS client finds this
server and nothing else.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from manifest_platform.demo.s3 import PROXY_VARIABLES, S3Server, s3_at
from manifest_platform_tests.servers.proxy import Proxy, proxied
from manifest_platform_tests.servers.shared import shared


@pytest.fixture(scope="session")
def s3_server(session_folder: Path) -> Iterator[S3Server]:
    """The server."""
    with shared(session_folder, f"{s3_at.__module__}:{s3_at.__name__}") as endpoint:
        yield S3Server(endpoint)


@pytest.fixture
def s3_environment(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The process's environment, and Arrow's cached S3 client, point at the server and nowhere else."""
    import boto3

    for name in list(os.environ):
        if name.startswith("AWS_") or name.upper() in PROXY_VARIABLES:
            monkeypatch.delenv(name)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    yield s3_server


@contextmanager
def through(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Generator[Proxy]:
    """A proxy that clients of this process, and of those that it starts, meet in the block instead of the server."""
    address = urlsplit(server.endpoint)
    with proxied(lambda: socket.create_connection((address.hostname, address.port)), is_http=True) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        try:
            yield proxy
        finally:
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)


@contextmanager
def requests_of(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """The requests that are made in the block: the head of each, which begins with its method and path."""
    requests: list[str] = []

    def noted(_number: int, request: bytes) -> None:
        if b" HTTP/" in request.partition(b"\r\n")[0]:  # otherwise it is the body of a request
            requests.append(request.partition(b"\r\n\r\n")[0].decode())

    with through(server, monkeypatch) as proxy:
        proxy.choose(noted)
        yield requests


@pytest.fixture
def s3_bucket(s3_environment: S3Server) -> str:
    """`s3://` and the name of a fresh, empty bucket."""
    import boto3

    name = f"test-{uuid.uuid4().hex[:12]}"
    boto3.Session().client("s3").create_bucket(Bucket=name)  # the default session would remember its credentials
    return f"s3://{name}"
