"""Notices of S3 through a queue: received, settled after a listing, and never stuck on a message that nobody understands."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from manifest_platform.notices import Bell, kind_of
from manifest_platform.notices.s3_events import NoEvent, objects_of
from manifest_platform.notices.sqs.queue import QueueNotices
from manifest_platform_tests.waking import s3_record

MARKER = "landing/run=2024-05-14-12-00-00/_SUCCESS"
EVENT = {"Records": [{"s3": {"bucket": {"name": "b"}, "object": {"key": "landing/run%3D2024-05-14-12-00-00/_SUCCESS"}}}]}
URI = f"s3://b/{MARKER}"


@pytest.mark.parametrize(
    ("told", "objects"),
    [
        (EVENT, [URI]),
        ({"Type": "Notification", "Message": json.dumps(EVENT)}, [URI]),
        ({"source": "aws.s3", "detail": {"bucket": {"name": "b"}, "object": {"key": MARKER}}}, [URI]),
        ({"Service": "Amazon S3", "Event": "s3:TestEvent"}, []),
        ({"Records": [{"s3": {"bucket": {"name": "b"}, "object": {"key": "a+b%2Bc"}}}]}, ["s3://b/a b+c"]),
    ],
)
def test_every_form_of_s3s_events_is_read(told: object, objects: list[str]) -> None:
    assert objects_of(json.dumps(told)) == objects


@pytest.mark.parametrize("body", ["", "hello", "[]", "{}", '{"Records": [{}]}', '{"Records": 1}', "[" * 100_000])
def test_anything_else_is_no_event(body: str) -> None:
    with pytest.raises(NoEvent):
        objects_of(body)


@pytest.mark.parametrize(
    "url", ["sqs://", "sqs://a b", "sqs://q/x", "sqs://q?key=1", "sqs://q?region=", "sqs://q?region=a&region=b"]
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="allowed: sqs://QUEUE"):
        kind_of(url).checked(url)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^allowed: http://127.0.0.1:9099, sqs://QUEUE\?region=eu-west-1$"):
        kind_of("kafka://x")


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str, str]]:
    """A client of moto's SQS, a queue's URL there, and how the configuration names it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client("sqs", region_name="eu-west-1", endpoint_url=endpoint)
    name = f"landed-{uuid4()}"  # its own, since the last poll of another test may still be at hand
    url = client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "3600"})["QueueUrl"]
    yield client, url, f"sqs://{name}?region=eu-west-1&endpoint={endpoint}"
    server.stop()


def hidden(client: Any, url: str) -> tuple[int, int]:
    """The messages of a queue that wait, and those that were received and not deleted."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return int(found[names[0]]), int(found[names[1]])


def held(notices: QueueNotices) -> int:
    """The messages that a queue's notices have received and not deleted."""
    return len(notices._queue._held) if notices._queue else 0


def test_messages_ring_and_are_deleted_after_the_listing_that_covers_them(
    queue: tuple[Any, str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, url, named = queue
    monkeypatch.setattr("manifest_platform.notices.sqs.queue.WAIT_SECONDS", 1)
    notices = QueueNotices(named, lambda uri: uri.endswith("/_SUCCESS"))
    bell, warned = Bell(), list[str]()
    bell.listen(notices, "landing a", warned.append)
    try:
        with caplog.at_level(logging.WARNING):
            assert bell.wait(60) == {"landing a"}, "as soon as it receives"
            other = json.dumps(EVENT).replace("_SUCCESS", "part-0")
            for body in ("poison", other, json.dumps({"Event": "s3:TestEvent"}), *[json.dumps(EVENT)] * 12):
                client.send_message(QueueUrl=url, MessageBody=body)
            while hidden(client, url) != (0, 12) or held(notices) != 12:
                bell.wait(1)
        assert "was deleted: it is not one of S3's events" in caplog.text and "poison" not in caplog.text
        covered = notices.taken()
        client.send_message(QueueUrl=url, MessageBody=json.dumps(EVENT))
        while held(notices) != 13:
            bell.wait(1)
        covered()
        assert hidden(client, url) == (0, 1), "a message that came during the listing stays"
        notices.taken()()
        assert hidden(client, url) == (0, 0)
    finally:
        bell.close()
    assert warned == []


def test_datasets_with_the_same_queue_hear_of_their_own_objects_and_a_message_waits_for_all(
    queue: tuple[Any, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, url, named = queue
    monkeypatch.setattr("manifest_platform.notices.sqs.queue.WAIT_SECONDS", 1)
    bell, warned = Bell(), list[str]()
    a, b = (QueueNotices(named, lambda uri, folder=folder: uri.startswith(f"s3://b/{folder}/")) for folder in "ab")

    def heard(*keys: str) -> set[str]:
        """Sends a message about these objects, and returns what rings once the message was received."""
        client.send_message(QueueUrl=url, MessageBody=json.dumps({"Records": [s3_record(key) for key in keys]}))
        rung: set[str] = set()
        while hidden(client, url)[0] or len(rung) < len({key[0] for key in keys} & {"a", "b"}):
            rung |= bell.wait(1)
        return rung

    try:
        for notices, what in ((a, "a"), (b, "b")):
            bell.listen(notices, what, warned.append)
            assert bell.wait(60) == {what}, "as soon as it receives"
        assert heard("b/x") == {"b"}
        a.taken()()
        assert hidden(client, url) == (0, 1), "it is not about a"
        b.taken()()
        assert heard("a/x", "b/y") == {"a", "b"}
        a.taken()()
        assert hidden(client, url) == (0, 1), "b has not listed since"
        b.taken()()
        assert hidden(client, url) == (0, 0)
        heard("a/z")
        heard("a/x", "b/z")
        bell.hush(a)
        while held(b) > 1:
            bell.wait(1)
        assert held(b) == 1, "what only a awaited comes again, for whoever lists for it then"
        b.taken()()
        assert hidden(client, url) == (0, 1)
    finally:
        bell.close()
    assert warned == []


def test_a_queue_that_is_not_there_is_told_to_every_dataset_and_heard_once_it_is_there(
    queue: tuple[Any, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _, named = queue
    monkeypatch.setattr("manifest_platform.notices.sqs.queue.WAIT_SECONDS", 1)
    notices = [QueueNotices(named.replace("landed-", "later-"), lambda _: True) for _ in range(2)]
    for one in notices:
        with pytest.raises(ClientError, match="NonExistentQueue"):
            one.watch(lambda: None)
    name = named.partition("?")[0].removeprefix("sqs://").replace("landed-", "later-")
    url = client.create_queue(QueueName=name)["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody=json.dumps(EVENT))
    rang: list[int] = []

    def tell() -> None:
        rang.append(1)
        if len(rang) == 2:
            notices[0].close()

    notices[0].watch(tell)
    assert len(rang) == 2
