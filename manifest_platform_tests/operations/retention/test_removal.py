"""Folders are removed with all they hold, and nothing beside them, on a disk and in S3."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import boto3
import pytest

from manifest_platform import failpoints, storage
from manifest_platform.landed_files import NotFollowed
from manifest_platform.operations.retention import removal
from manifest_platform.operations.retention.removal import NOTHING, WrittenSince, measure, remove
from manifest_platform_tests.servers.s3 import S3Server, requests_of


def _write(root: str, *names: str) -> None:
    for name in names:
        storage.write_bytes(f"{root}/{name}", b"rows")


@pytest.fixture(params=["disk", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return storage.as_uri(tmp_path / "root") if request.param == "disk" else f"{request.getfixturevalue('s3_bucket')}/root"


def test_a_folder_is_removed_and_its_neighbors_stay(root: str) -> None:
    _write(root, "run=1/a", "run=1/deep/er/b", "run=10/a", "run=1.json")
    assert (measure(f"{root}/run=1").objects, measure(f"{root}/run=1").bytes) == (2, 8)
    remove(f"{root}/run=1", root)
    assert measure(f"{root}/run=1") == NOTHING
    assert measure(root).objects == 2
    remove(f"{root}/run=1", root)


def test_a_folder_that_was_written_to_since_it_was_judged_stays(root: str) -> None:
    _write(root, "run=1/a", "run=1/b")
    judged = measure(f"{root}/run=1").newest
    assert judged
    with pytest.raises(WrittenSince, match="run=1 was written to after the decision to delete it"):
        remove(f"{root}/run=1", root, judged - timedelta(seconds=1))
    assert measure(f"{root}/run=1").objects == 2
    remove(f"{root}/run=1", root, judged)
    assert measure(f"{root}/run=1") == NOTHING


def test_a_removal_that_broke_off_is_continued(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(root, *(f"run=1/part-{number}" for number in range(5)))
    monkeypatch.setattr(removal, "AT_ONCE", 2)
    monkeypatch.setenv(failpoints.VARIABLE, "retention.deleting:raise")
    with pytest.raises(failpoints.FailpointReached):
        remove(f"{root}/run=1", root)
    assert 0 < measure(f"{root}/run=1").objects < 5
    monkeypatch.delenv(failpoints.VARIABLE)
    remove(f"{root}/run=1", root)
    assert measure(f"{root}/run=1") == NOTHING


def test_many_objects_are_deleted_with_few_requests(
    s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = boto3.Session().client("s3")
    for number in range(30):
        client.put_object(Bucket=s3_bucket.removeprefix("s3://"), Key=f"root/run=1/part-{number}", Body=b"rows")
    with requests_of(s3_server, monkeypatch) as requests:
        remove(f"{s3_bucket}/root/run=1", f"{s3_bucket}/root")
    assert len([one for one in requests if one.startswith("POST")]) == 1
    assert not [one for one in requests if one.startswith(("DELETE", "PUT"))]


def test_a_root_that_is_not_mounted_is_no_empty_root(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is its disk mounted"):
        remove(storage.as_uri(tmp_path / "root" / "run=1"), storage.as_uri(tmp_path / "root"))


def test_a_link_on_the_way_is_refused(tmp_path: Path) -> None:
    precious = tmp_path / "precious" / "run=1"
    precious.mkdir(parents=True)
    (precious / "file").write_text("stays")
    (tmp_path / "root").mkdir()
    os.symlink(tmp_path / "precious", tmp_path / "root" / "vault")
    with pytest.raises(NotFollowed):
        remove(storage.as_uri(tmp_path / "root" / "vault" / "run=1"), storage.as_uri(tmp_path / "root"))
    assert (precious / "file").exists()


def test_a_link_in_a_folder_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("stays")
    (tmp_path / "root" / "run=1").mkdir(parents=True)
    os.symlink(tmp_path / "precious", tmp_path / "root" / "run=1" / "link")
    remove(storage.as_uri(tmp_path / "root" / "run=1"), storage.as_uri(tmp_path / "root"))
    assert (tmp_path / "precious" / "file").exists() and not (tmp_path / "root" / "run=1").exists()
