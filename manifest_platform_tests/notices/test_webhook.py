"""Notices of S3 that a server posts: heard by all datasets of an address, and never believed."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import boto3
import httpx
import pytest

from manifest_platform.demo.s3 import S3Server, s3_at
from manifest_platform.demo.server import free_port
from manifest_platform.notices import Bell, kind_of
from manifest_platform_tests.waking import s3_record

MARKER = "landing/run=2024-05-14-12-00-00/_SUCCESS"
EVENT = {"Records": [s3_record(MARKER)]}


@pytest.mark.parametrize(
    "url",
    ["http://", "http://h", "http://h:x", "http://h:99999", "http://h:1/x", "http://h:1?a=b", "http://u:p@h:1", "http://:1"],
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="allowed: http://HOST:PORT"):
        kind_of(url).checked(url)


class Heard:
    """A bell that the notices of an address ring, as `what`, for objects of a folder."""

    def __init__(self, url: str) -> None:
        self.url, self.bell, self.warned = url, Bell(), list[str]()

    def listen(self, what: str, folder: str, bucket: str = "b") -> None:
        notices = kind_of(self.url)(self.url, lambda uri: uri.startswith(f"s3://{bucket}/{folder}/"))
        self.bell.listen(notices, what, self.warned.append)
        assert self.bell.wait(60) == {what}, "as soon as it listens"

    def post(self, body: bytes) -> int:
        return httpx.post(self.url, content=body, trust_env=False).status_code


@pytest.fixture
def heard() -> Iterator[Heard]:
    made = Heard(f"http://127.0.0.1:{free_port()}")
    yield made
    made.bell.close()


def test_datasets_with_the_same_address_hear_of_their_own_objects(heard: Heard) -> None:
    heard.listen("a", "landing")
    heard.listen("b", "other")
    assert heard.post(json.dumps(EVENT).encode()) == 204
    assert heard.bell.wait(60) == {"a"}
    assert heard.post(json.dumps({"Records": [s3_record("other/x"), s3_record(MARKER)]}).encode()) == 204
    assert heard.bell.wait(60) == {"a", "b"}
    assert heard.post(json.dumps({"Event": "s3:TestEvent"}).encode()) == 204
    assert heard.bell.wait(0) == frozenset()
    assert heard.warned == []


def test_what_is_no_event_is_refused_and_the_next_is_heard(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    heard.listen("a", "landing")
    assert [heard.post(body) for body in (b"hunter2", b"\xff", b"[" * 100_000, b"x" * (2 << 20))] == [400, 400, 400, 413]
    assert "hunter2" not in caplog.text and "left out" in caplog.text
    address = ("127.0.0.1", int(heard.url.rpartition(":")[2]))
    with socket.create_connection(address) as unsaid:
        unsaid.sendall(b"POST / HTTP/1.1\r\n\r\n")
        assert b"411" in unsaid.recv(100)
    assert heard.bell.wait(0) == frozenset()
    heard.post(json.dumps(EVENT).encode())
    assert heard.bell.wait(60) == {"a"}


def test_an_address_that_is_taken_is_told_and_the_last_listener_frees_it(heard: Heard) -> None:
    notices = kind_of(heard.url)(heard.url, lambda _: True)
    with socket.create_server(("127.0.0.1", int(heard.url.rpartition(":")[2]))), pytest.raises(OSError, match="in use"):
        notices.watch(lambda: None)
    notices.watch(notices.close)
    notices.watch(lambda: None)
    with pytest.raises(httpx.ConnectError):
        heard.post(b"")


def test_a_real_server_posts_and_the_object_rings(heard: Heard, tmp_path: Path) -> None:
    heard.listen("a", "landing/run=2024-05-14-12-00-00", "landed")
    with s3_at(tmp_path, heard.url) as endpoint:
        environment = S3Server(endpoint).environment
        session = boto3.Session(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"], region_name="us-east-1")
        client = session.client("s3", endpoint_url=endpoint)
        client.create_bucket(Bucket="landed")
        client.put_object(Bucket="landed", Key="elsewhere/_SUCCESS", Body=b"")
        assert heard.bell.wait(1) == frozenset()
        client.put_object(Bucket="landed", Key=MARKER, Body=b"")
        assert heard.bell.wait(60) == {"a"}
    assert heard.warned == []
