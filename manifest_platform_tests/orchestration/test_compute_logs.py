"""The block for compute logs in `dagster.yaml`, used as it is written there, keeps the output of runs in S3."""

from __future__ import annotations

import re
import sys
import uuid
from pathlib import Path

import boto3
import dagster as dg
import pytest
import yaml
from dagster._core.instance.ref import InstanceRef

from manifest_platform.demo.s3 import S3Server
from manifest_platform_tests.aws.deployment import Deployment
from manifest_platform_tests.aws.recording import Record, recorded
from manifest_platform_tests.pipeline.shop import REPOSITORY

FILE = (REPOSITORY / "dagster.yaml").read_text()


@dg.op
def says() -> None:
    print("one line for people")  # noqa: T201
    print("and one for its errors", file=sys.stderr)  # noqa: T201


@dg.job
def saying() -> None:
    says()


def _with_the_block(folder: Path, s3: S3Server, bucket: str) -> str:
    """Returns the home of an instance with the block of compute logs from our file: same keys, other values, another disk."""
    [block] = re.findall(r"^# (compute_logs:\n(?:#   .*\n)+)", FILE, re.MULTILINE)
    told = yaml.safe_load(re.sub("^# ", "", block, flags=re.MULTILINE))
    assert set(told["compute_logs"]["config"]) >= {"bucket", "prefix", "endpoint_url"}
    told["compute_logs"]["config"] |= {"bucket": bucket, "endpoint_url": s3.endpoint, "local_dir": str(folder / "own")}
    folder.mkdir()
    (folder / "dagster.yaml").write_text(FILE + yaml.safe_dump(told))
    return str(folder)


def test_compute_logs_are_read_from_s3_by_another_machine_and_each_role_may_do_it(
    tmp_path: Path, s3_environment: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's role reads, and the role of runs writes: their requests are compared with the policies of `deploy/aws`."""
    deployment = Deployment(tmp_path, f"mp-{uuid.uuid4().hex[:8]}", {}, {}, {}, {})
    bucket = deployment.bucket("artifacts")
    monkeypatch.delenv("AWS_ENDPOINT_URL")  # the block itself names the server
    client = boto3.Session().client("s3", endpoint_url=s3_environment.endpoint)
    client.create_bucket(Bucket=bucket)
    written, read = Record(), Record()
    with recorded(s3_environment.endpoint, written) as endpoint:
        home = _with_the_block(tmp_path / "worker", S3Server(endpoint), bucket)
        with dg.DagsterInstance.from_config(home) as worker:
            result = saying.execute_in_process(instance=worker)
    [event] = [event for event in result.all_events if event.event_type_value == "LOGS_CAPTURED"]
    key = [result.run_id, "compute_logs", event.logs_captured_data.file_key]
    found = client.list_objects_v2(Bucket=bucket)["Contents"]
    assert {one["Key"] for one in found} >= {"/".join(["dagster/logs/storage", *key]) + f".{end}" for end in ("out", "err")}

    with recorded(s3_environment.endpoint, read) as endpoint:
        home = _with_the_block(tmp_path / "webserver", S3Server(endpoint), bucket)
        elsewhere = InstanceRef.from_dir(home).compute_log_manager
        log, metadata = elsewhere.get_log_data(key), elsewhere.get_log_metadata(key)
    assert log.stdout == b"one line for people\n"
    assert b"and one for its errors\n" in (log.stderr or b"")
    for policy, record in (("UI", read), ("Printer", written)):
        assert record.calls
        assert [call for call in record.calls if not deployment.policies[policy].allowing(call)] == [], policy
    assert metadata.stdout_location == f"s3://{bucket}/dagster/logs/storage/{'/'.join(key)}.out"
