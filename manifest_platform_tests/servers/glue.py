"""AWS Glue for tests: moto's server on a free local port, in a thread of this process, one for the session.

Use the fixture `glue`: it gives each test an empty Glue, an environment in which every AWS client finds it and nothing else,
and a client. The server keeps its state without locks: use it from one thread at a time.
"""

from __future__ import annotations

import functools
import os
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from manifest_platform.demo.s3 import ACCESS_KEY, PROXY_VARIABLES, REGION, SECRET_KEY
from manifest_platform.demo.server import free_port


@pytest.fixture(scope="session")
def glue_server() -> Iterator[str]:
    """The server's endpoint; started on first use and stopped at the end of the session."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def emptied(endpoint: str) -> None:
    """Makes the server forget everything."""
    reset = urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(reset).close()


@functools.cache
def _client(endpoint: str) -> Any:
    """Made once: to read Glue's model takes longer than most tests."""
    import boto3
    from botocore.config import Config

    session = boto3.Session(ACCESS_KEY, SECRET_KEY, region_name=REGION)
    return session.client("glue", endpoint_url=endpoint, config=Config(proxies={}))


@pytest.fixture
def glue(glue_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of an empty Glue, to look at what the code under test made there."""
    import boto3

    for name in list(os.environ):
        if name.startswith("AWS_") or name.upper() in PROXY_VARIABLES:
            monkeypatch.delenv(name)
    environment = {
        "AWS_ENDPOINT_URL_GLUE": glue_server,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    emptied(glue_server)
    return _client(glue_server)
