"""A landing root on the local disk and another in S3, behind the same interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from manifest_platform import storage


@dataclass(frozen=True)
class Place:
    """A landing root; paths are relative to it."""

    root: str
    is_local: bool
    client: Any = None

    def put(self, path: str, data: bytes = b"x") -> None:
        uri = f"{self.root}/{path}"
        if self.is_local:
            storage.local_path(uri).parent.mkdir(parents=True, exist_ok=True)
            storage.local_path(uri).write_bytes(data)
        else:
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            self.client.put_object(Bucket=bucket, Key=key, Body=data)

    def remove(self, path: str) -> None:
        storage_path = f"{self.root}/{path}"
        if self.is_local:
            storage.local_path(storage_path).unlink()
        else:
            bucket, _, key = storage_path.removeprefix("s3://").partition("/")
            self.client.delete_object(Bucket=bucket, Key=key)

    def put_folder_key(self, path: str) -> None:
        """Writes the key that consoles and Hadoop leave in S3 for an empty folder."""
        bucket, _, key = f"{self.root}/{path}/".removeprefix("s3://").partition("/")
        self.client.put_object(Bucket=bucket, Key=key)


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Any) -> Place:
    """An empty landing root, once on disk and once in S3."""
    if request.param == "s3":
        return request.getfixturevalue("s3_place")
    (tmp_path / "landing" / "enriched").mkdir(parents=True)
    return Place(storage.as_uri(tmp_path / "landing" / "enriched"), True)


@pytest.fixture
def s3_place(s3_bucket: str) -> Place:
    """An empty landing root in S3."""
    return Place(f"{s3_bucket}/landing/enriched", False, boto3.client("s3"))


@pytest.fixture
def writes_between_pages(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Callable[[], None]], None]:
    """Makes an S3 client's listing run an action after its first page was read."""

    def arrange(client: Any, action: Callable[[], None]) -> None:
        real = client.list_objects_v2
        pages = []

        def list_objects_v2(**arguments: Any) -> Any:
            answer = real(**arguments)
            pages.append(answer)
            if len(pages) == 1:
                action()
            return answer

        monkeypatch.setattr(client, "list_objects_v2", list_objects_v2)

    return arrange
