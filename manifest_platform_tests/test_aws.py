"""The clients of AWS: one a process and service, their retries and timeouts, and what a throttled or dead service costs."""

from __future__ import annotations

import ast
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

import manifest_platform
from manifest_platform import aws, config, storage
from manifest_platform.config import ConfigError
from manifest_platform.demo.dynamodb import DynamoDbLocal
from manifest_platform.demo.s3 import S3Server
from manifest_platform.manifest.stores.dynamodb.store import DynamoDbStore
from manifest_platform.pipeline import Stop
from manifest_platform.pipeline.discovery import discover
from manifest_platform_tests.pipeline.shop import EVENTS, Shop, drained, ended, history, run_names
from manifest_platform_tests.servers.proxy import Fault, first_attempts, from_on, nothing
from manifest_platform_tests.servers.s3 import requests_of, through
from manifest_platform_tests.servers.warehouses import FilePlace

PACKAGE = Path(manifest_platform.__file__).parent
MOST_REQUESTS = 58
"""Requests of a run with one file and seven tables: each object is written once, and each table is read three times."""
HURRIED = aws.Choices(aws.Service(connect_seconds=1, read_seconds=1, attempts=3))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the pauses of the test's thread instead of waiting. Other threads still wait."""
    told: list[float] = []
    sleep, mine = time.sleep, threading.get_ident()
    monkeypatch.setattr("time.sleep", lambda seconds: (told.append if threading.get_ident() == mine else sleep)(seconds))
    return told


def imports_of(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{one.name}" for one in node.names}
    return found


def test_one_module_makes_clients_and_sets_how_they_repeat_requests() -> None:
    imports = {str(file.relative_to(PACKAGE)): imports_of(file) for file in PACKAGE.rglob("*.py")}

    def importing(name: str) -> set[str]:
        return {file for file, names in imports.items() if any(f"{one}.".startswith(f"{name}.") for one in names)}

    assert importing("boto3") == {"aws.py"}
    assert importing("botocore.config") == {"aws.py"}
    assert importing("botocore.session") == {"aws.py"}
    assert importing("pyarrow.fs.S3FileSystem") == {"storage.py"}


def test_a_process_has_one_client_a_service(s3_environment: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert aws.client("s3") is aws.client("s3")
    before = aws.client("s3")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert aws.client("s3") is not before, "a code location may take over the access of a project's resources"
    assert aws.client("s3").meta.region_name == "eu-west-1"


def test_stores_of_a_process_share_a_client(dynamodb: DynamoDbLocal) -> None:
    one, another = DynamoDbStore(dynamodb.store("one")), DynamoDbStore(dynamodb.store("another"))
    assert one._client is another._client


def test_credentials_that_come_later_are_found(
    s3_environment: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with pytest.raises(NoCredentialsError):
        aws.client("s3")
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    assert aws.client("s3").meta.service_model.service_name == "s3"


def test_a_queue_is_polled_longer_than_its_long_poll() -> None:
    from manifest_platform.notices.sqs.queue import WAIT_SECONDS

    assert aws.limits_of("sqs").read_seconds > WAIT_SECONDS


# The configuration


def test_the_configuration_says_how_long_clients_wait(tmp_path: Path, s3_environment: S3Server) -> None:
    services = {"s3": {"attempts": 2, "endpoint": "http://127.0.0.1:9/"}, "dynamodb": {"read_seconds": 2}}
    shop = Shop(tmp_path, aws={"connect_seconds": 1.5, "services": services})
    config.load(shop.config_file)
    assert aws.limits_of("s3") == aws.Limits(1.5, 30, 2)
    assert aws.limits_of("dynamodb") == aws.limits_of("dynamodbstreams") == aws.Limits(1.5, 2, 4)
    assert aws.limits_of("glue") == aws.Limits(1.5, 30, 5)
    client = aws.client("s3")
    assert client.meta.endpoint_url == "http://127.0.0.1:9"
    told = client.meta.config
    assert (told.connect_timeout, told.read_timeout, told.retries["total_max_attempts"]) == (1.5, 30, 2)
    assert told.retries["mode"] == "standard"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"attempts": 0}, r"aws\.attempts: 0: .*greater than or equal to 1"),
        ({"read_seconds": 10_000}, r"aws\.read_seconds: 10000: .*less than or equal to 900"),
        ({"services": {"s4": {}}}, r"aws\.services\.s4: .*'s3'"),
        ({"services": {"s3": {"endpoint": "s3.local"}}}, r"aws\.services\.s3\.endpoint: 's3\.local': allowed: http"),
        (
            {"retries": 3},
            r"aws\.retries: unknown key; allowed here: attempts, connect_seconds, locations, read_seconds, services",
        ),
    ],
)
def test_a_wrong_setting_is_told_with_what_is_allowed(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        config.load(Shop(tmp_path, aws=given).config_file)


def test_configurations_of_a_process_must_agree(tmp_path: Path) -> None:
    config.load(Shop(tmp_path / "a", aws={"attempts": 2}).config_file)
    config.load(Shop(tmp_path / "b").config_file)
    with pytest.raises(ConfigError, match=r"another part `aws`.*give all configurations of a code location the same"):
        config.load(Shop(tmp_path / "c", aws={"attempts": 3}).config_file)
    assert aws.limits_of("s3").attempts == 2


def test_another_process_takes_over_what_the_configuration_says() -> None:
    aws.use(HURRIED)
    here = storage.surroundings()
    aws.use(aws.Choices())
    here.adopt()
    assert aws.limits_of("glue").attempts == 3


# Faults between client and server


def by_boto3(bucket: str) -> object:
    return aws.client("s3").list_objects_v2(Bucket=bucket.removeprefix("s3://"))


def by_arrow(bucket: str) -> object:
    return storage.write_bytes(f"{bucket}/name", b"content")


both = pytest.mark.parametrize("request_of", [by_boto3, by_arrow])


@both
@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.REQUEST_LOST])
def test_a_request_that_is_throttled_or_cut_is_sent_again(
    s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request_of: Callable[[str], object], fault: Fault
) -> None:
    with through(s3_server, monkeypatch) as proxy:
        proxy.choose(first_attempts(fault))
        request_of(s3_bucket)
        assert proxy.met == 1


@both
@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.REQUEST_LOST, Fault.DELAYED])
def test_a_service_that_stays_away_is_given_up_after_a_bounded_time(
    s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request_of: Callable[[str], object], fault: Fault
) -> None:
    aws.use(HURRIED)
    with through(s3_server, monkeypatch) as proxy:
        proxy.choose(from_on(1, fault))
        began = time.monotonic()
        with pytest.raises((OSError, BotoCoreError, ClientError)):
            request_of(s3_bucket)
        proxy.choose(nothing)
        assert time.monotonic() - began < 60
    assert proxy.total == 3


def test_the_pauses_before_repeats_are_random_and_grow(
    s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    aws.use(aws.Choices(aws.Service(attempts=8)))
    with through(s3_server, monkeypatch) as proxy:
        proxy.choose(from_on(1, Fault.SLOW_DOWN))
        for _ in range(2):
            with pytest.raises(ClientError, match="SlowDown"):
                by_boto3(s3_bucket)
    assert len(pauses) == 14
    assert pauses[:7] != pauses[7:]
    assert all(pause <= min(20, 2**number) for half in (pauses[:7], pauses[7:]) for number, pause in enumerate(half))


# Whole drains


class InBucket(FilePlace):
    """A warehouse in a DuckDB file, which loads what is in a bucket."""

    def __init__(self, folder: Path, bucket: str) -> None:
        super().__init__(folder)
        self.objects = bucket


def test_an_outage_of_s3_is_charged_to_no_item_and_a_throttled_load_succeeds(
    spark: Any, tmp_path: Path, s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = {"read_seconds": 2, "attempts": 3}
    shop = Shop(tmp_path, InBucket(tmp_path, s3_bucket), lease={"max_attempts": 1}, aws=patience)
    shop.shredded(spark, 1)
    with through(s3_server, monkeypatch) as proxy, shop.open() as pipeline:
        proxy.choose(from_on(1, Fault.SLOW_DOWN))
        report = drained(pipeline)[1]
        assert (report.stop, report.loaded, report.failed) == (Stop.UNAVAILABLE, 0, 0), report
        assert not [line for line in history(pipeline, 0) if "Failed" in line]
        proxy.choose(first_attempts(Fault.SLOW_DOWN))
        assert drained(pipeline)[1].stop is Stop.IDLE
        assert proxy.met > 0
    assert (shop.seen.rows["events"], shop.seen.runs) == (EVENTS, run_names(0))


def shop_in(bucket: str, home: Path, **settings: Any) -> Shop:
    """A shop that keeps all files in a bucket."""
    return Shop(
        home,
        landing={"root": f"{bucket}/landing"},
        shred={"output": f"{bucket}/shredded"},
        merge={"output": f"{bucket}/merged"},
        **settings,
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_tiny_run_takes_few_requests_and_each_object_one(
    tmp_path: Path, s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = shop_in(s3_bucket, tmp_path)
    shop.write(0)
    with shop.open() as pipeline:
        discover(pipeline)
    with requests_of(s3_server, monkeypatch) as requests:
        assert ended(shop.process(environment=dict(os.environ)), seconds=540)["stop"] == Stop.IDLE
    lines = [request.partition("\r\n")[0] for request in requests]
    methods = [line.partition(" ")[0] for line in lines]
    written = [line.split(" ")[1] for line in lines if line.startswith("PUT")]
    assert "POST" not in methods, "an upload in parts"
    assert len(written) == len(set(written))
    assert len(lines) <= MOST_REQUESTS, "\n".join(lines)
