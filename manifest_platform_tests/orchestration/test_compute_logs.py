"""The block for compute logs in `dagster.yaml`, used as it is written there, keeps the output of runs in S3."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import boto3
import dagster as dg
import pytest
import yaml
from dagster._core.instance.ref import InstanceRef

from manifest_platform.demo.s3 import S3Server
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


def test_compute_logs_are_read_from_s3_by_another_machine(
    tmp_path: Path, s3_environment: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_bucket.removeprefix("s3://")
    monkeypatch.delenv("AWS_ENDPOINT_URL")  # the block itself names the server
    home = _with_the_block(tmp_path / "worker", s3_environment, bucket)
    with dg.DagsterInstance.from_config(home) as worker:
        result = saying.execute_in_process(instance=worker)
    [event] = [event for event in result.all_events if event.event_type_value == "LOGS_CAPTURED"]
    key = [result.run_id, "compute_logs", event.logs_captured_data.file_key]
    found = boto3.Session().client("s3", endpoint_url=s3_environment.endpoint).list_objects_v2(Bucket=bucket)["Contents"]
    assert {one["Key"] for one in found} >= {"/".join(["dagster/logs/storage", *key]) + f".{end}" for end in ("out", "err")}

    elsewhere = InstanceRef.from_dir(_with_the_block(tmp_path / "webserver", s3_environment, bucket)).compute_log_manager
    log = elsewhere.get_log_data(key)
    assert log.stdout == b"one line for people\n"
    assert b"and one for its errors\n" in (log.stderr or b"")
    assert elsewhere.get_log_metadata(key).stdout_location == f"s3://{bucket}/dagster/logs/storage/{'/'.join(key)}.out"
