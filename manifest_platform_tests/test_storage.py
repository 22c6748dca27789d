"""Whole objects in a folder, on a local disk and in S3."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from manifest_platform.demo.s3 import S3Server
from manifest_platform.storage import ObjectFolder, as_uri, is_refusal, local_path, write_bytes
from manifest_platform_tests.servers.s3 import requests_of


@pytest.fixture(params=["local", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectFolder:
    if request.param == "local":
        return ObjectFolder(tmp_path / "not there" / "yet")
    return ObjectFolder(f"{request.getfixturevalue('s3_bucket')}/some/prefix/")


def test_an_object_comes_back_by_its_uri_and_may_be_put_again(folder: ObjectFolder) -> None:
    for content in (b"first", b"second"):
        uri = folder.put("name", content)
        assert uri == f"{folder.uri}/name"
        assert folder.get(uri) == content


@pytest.mark.parametrize("name", [b"part-00000", "täxt✓".encode(), b"part-\xff\xfe", b"a b%20c?d#e", b"new\nline"])
def test_a_local_file_is_found_by_its_uri_whatever_the_bytes_of_its_name(tmp_path: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    Path(os.fsdecode(path)).write_bytes(b"content")
    uri = as_uri(os.fsdecode(path))
    assert uri.isascii() and as_uri(uri) == uri
    assert os.fsencode(local_path(uri)) == path
    assert local_path(uri).read_bytes() == b"content"


def test_an_object_that_is_not_there_is_said_so(folder: ObjectFolder) -> None:
    folder.put("name", b"content")
    with pytest.raises(FileNotFoundError):
        folder.get(f"{folder.uri}/another")


def test_a_write_that_breaks_off_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ObjectFolder(tmp_path)
    uri = folder.put("name", b"whole")

    def fail(_descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        folder.put("name", b"longer than before")
    assert folder.get(uri) == b"whole"
    assert [file.name for file in tmp_path.iterdir()] == ["name"]


def test_a_small_object_is_written_with_one_request(
    s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with requests_of(s3_server, monkeypatch) as requests:
        write_bytes(f"{s3_bucket}/some/prefix/name", b"content")
    assert [request.partition(" ")[0] for request in requests] == ["PUT"]


def test_a_refused_write_is_told_when_the_object_is_complete(s3_bucket: str) -> None:
    with pytest.raises(OSError) as refused:
        write_bytes(f"{s3_bucket}-there-is-none/name", b"content")
    assert is_refusal(refused.value)
