"""A follower over real servers: every store wakes it, and so do events of S3, which may be lost, doubled or in any order."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from moto.server import ThreadedMotoServer

from manifest_platform import failpoints
from manifest_platform.demo.server import free_port
from manifest_platform_tests.pipeline.following import PATIENCE, Following
from manifest_platform_tests.pipeline.shop import Shop, run_name, run_names
from manifest_platform_tests.pipeline.test_follow import shop
from manifest_platform_tests.waking import s3_record

pytestmark = pytest.mark.long


@pytest.mark.every_store
def test_what_another_process_decides_wakes_a_follower_at_once(tmp_path: Path, store_url: str) -> None:
    made = shop(tmp_path, manifest={"store": store_url})
    (made.home / "landing" / run_name(0)).mkdir()
    (made.directory(0) / "part-0").write_text("no event\n")
    (made.directory(0) / "_SUCCESS").touch()
    made.write(1)
    with Following(made.config_file) as follower, made.open() as pipeline:
        follower.told("ended", shredded=1, failed=1)
        pipeline.manifest.skip(pipeline.key(run_name(0)), "test data")
        follower.told("loaded", item=run_name(1))
        assert follower.end(signal.SIGTERM) == 143
    assert made.seen.runs == [run_name(1)]


@pytest.mark.every_store
def test_a_follower_that_is_stopped_in_a_load_ends_well_and_the_next_goes_on(tmp_path: Path, store_url: str) -> None:
    made = shop(tmp_path, manifest={"store": store_url}, lease={"seconds": 3600})
    made.write(0)
    with Following(made.config_file, environment={failpoints.VARIABLE: "load.committed:stop"}) as first:
        until(lambda: is_stopped(first.process.pid))
        first.process.send_signal(signal.SIGTERM)
        assert first.end(signal.SIGCONT) == 143
        assert "the leases are released" in first.log.read_text()
    made.write(1)
    with Following(made.config_file) as second:
        second.told("loaded", item=run_name(1))
        assert second.end(signal.SIGTERM) == 143
    assert made.seen.runs == run_names(0, 1)
    assert made.doubled_events == []


@pytest.mark.every_store
def test_a_follower_that_is_killed_in_a_load_is_replaced_within_the_time_of_its_lease(tmp_path: Path, store_url: str) -> None:
    made = shop(tmp_path, manifest={"store": store_url}, lease={"seconds": 5})
    with Following(made.config_file, environment={failpoints.VARIABLE: "load.committed:kill"}) as first:
        first.told("following")
        with Following(made.config_file) as second:
            second.told("standing_by")
            made.write(0, 1)
            assert first.process.wait(60) == -signal.SIGKILL
            killed = time.monotonic()
            done = second.told("loaded", item=run_name(1))
            assert second.told("loaded", item=run_name(0))["already"]
            assert done["at"] - killed < 5 + 10
    assert made.seen.runs == [run_name(0), run_name(1)]
    assert made.doubled_events == []


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def by_webhook(_request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[str], object]]]:
    url = f"http://127.0.0.1:{free_port()}"
    yield url, lambda body: httpx.post(url, content=body, trust_env=False).raise_for_status()


def by_queue(_request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[str], object]]]:
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.Session().client("sqs", endpoint_url=f"http://{host}:{port}")
    queue = client.create_queue(QueueName="landed")["QueueUrl"]
    yield (
        f"sqs://landed?region=us-east-1&endpoint=http://{host}:{port}",
        lambda body: client.send_message(QueueUrl=queue, MessageBody=body),
    )
    server.stop()


@pytest.fixture(params=[by_webhook, by_queue], ids=["webhook", "queue"])
def way(request: pytest.FixtureRequest, s3_bucket: str) -> Iterator[tuple[str, Callable[[str], object]]]:
    """The place of the events, as the configuration names it, and a function that sends a message there."""
    assert s3_bucket
    yield from request.param(request)


def event(bucket: str, *numbers: int) -> str:
    name = bucket.removeprefix("s3://")
    return json.dumps({"Records": [s3_record(f"landing/{run_name(one)}/_SUCCESS", name) for one in numbers]})


def in_s3(home: Path, bucket: str, notify: str, **settings: Any) -> Shop:
    return shop(home, landing={"root": f"{bucket}/landing", "notify": notify}, **settings)


def test_events_of_s3_that_are_lost_doubled_or_reordered_do_no_harm(
    tmp_path: Path, s3_bucket: str, way: tuple[str, Callable[[str], object]]
) -> None:
    notify, send = way
    made = in_s3(tmp_path, s3_bucket, notify)
    with Following(made.config_file) as follower:
        follower.told("following")
        until(lambda: listens(notify, send))
        made.write(0)
        for _ in range(3):  # doubled
            send(event(s3_bucket, 0))
        follower.told("loaded", item=run_name(0))
        made.write(1, 2)
        for number in (2, 1, 0):  # the newest first, and an old one last
            send(event(s3_bucket, number))
        follower.told("loaded", item=run_name(2))
        made.write(3)  # its own event is lost
        send("poison") if notify.startswith("sqs") else None
        send(event(s3_bucket, 99))  # of what is not there
        follower.told("loaded", item=run_name(3))
        assert follower.end(signal.SIGTERM) == 143
    assert made.seen.runs == run_names(0, 1, 2, 3)
    assert made.doubled_events == []


def listens(notify: str, send: Callable[[str], object]) -> bool:
    """True once the follower takes messages. A queue takes them at any time."""
    try:
        send(json.dumps({"Event": "s3:TestEvent"}))
    except httpx.ConnectError:
        return False
    return True


def test_a_listing_finds_what_no_event_of_s3_told(
    tmp_path: Path, s3_bucket: str, way: tuple[str, Callable[[str], object]]
) -> None:
    made = in_s3(tmp_path, s3_bucket, way[0], listing_seconds=2)
    with Following(made.config_file) as follower:
        follower.told("following")
        made.write(0)
        follower.told("loaded", item=run_name(0))
        assert follower.end(signal.SIGTERM) == 143
    assert made.seen.runs == [run_name(0)]
