"""The S3 test server answers the clients that the project uses."""

from __future__ import annotations

import os

import boto3
import pytest
from botocore.exceptions import ClientError
from pyarrow.fs import FileSelector

from manifest_platform import storage
from manifest_platform.demo.s3 import ACCESS_KEY, S3Server


def test_what_arrow_writes_boto3_reads_and_the_other_way_round(s3_bucket: str) -> None:
    bucket = s3_bucket.removeprefix("s3://")
    client = boto3.client("s3")

    storage.write_bytes(f"{s3_bucket}/a/run=1/from arrow", b"1")
    assert client.get_object(Bucket=bucket, Key="a/run=1/from arrow")["Body"].read() == b"1"

    client.put_object(Bucket=bucket, Key="a/run=1/from-boto3", Body=b"22")
    assert storage.read_bytes(f"{s3_bucket}/a/run=1/from-boto3") == b"22"

    system, path = storage.filesystem(f"{s3_bucket}/a")
    found = {info.base_name: info.size for info in system.get_file_info(FileSelector(path, recursive=True))}
    assert found.items() >= {"from arrow": 1, "from-boto3": 2}.items()


def test_a_flat_listing_pages_and_starts_after_a_key(s3_bucket: str) -> None:
    client = boto3.client("s3")
    for name in "abcde":
        client.put_object(Bucket=s3_bucket.removeprefix("s3://"), Key=f"dir/{name}")
    page = client.list_objects_v2(Bucket=s3_bucket.removeprefix("s3://"), Prefix="dir/", StartAfter="dir/b", MaxKeys=2)
    assert ([key["Key"] for key in page["Contents"]], page["IsTruncated"]) == (["dir/c", "dir/d"], True)


def test_a_conditional_put_is_refused(s3_bucket: str) -> None:
    put = {"Bucket": s3_bucket.removeprefix("s3://"), "Key": "once", "Body": b"1", "IfNoneMatch": "*"}
    boto3.client("s3").put_object(**put)
    with pytest.raises(ClientError, match="PreconditionFailed"):
        boto3.client("s3").put_object(**put)


@pytest.fixture
def users_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://elsewhere")
    monkeypatch.setenv("https_proxy", "http://proxy")


def test_nothing_of_the_users_own_environment_is_left(users_own_environment: None, s3_environment: S3Server) -> None:
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    assert aws == {name: value for name, value in s3_environment.environment.items() if name.startswith("AWS_")}
    assert aws["AWS_ACCESS_KEY_ID"] == ACCESS_KEY
    assert "https_proxy" not in os.environ
