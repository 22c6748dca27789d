"""A file system for Arrow that writes to S3 and deletes there through boto3.

Arrow's own S3 client cannot name a KMS key, and cannot say that the requester pays. So for a location whose requests need such
headers, all that writes goes through boto3 here, and reads do if the requester pays. Everywhere, boto3 deletes: Arrow leaves an
empty object in place of the folder around what it deletes, without the key, and with a permission that a delete does not need.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileSystemHandler, FileType
from urllib3.exceptions import HTTPError

from manifest_platform import aws

PART = 10 << 20
"""Bytes of a part of a large object. A smaller object is one request."""
_AT_ONCE = 1_000  # objects a request deletes: S3's limit
_MISSING = ("NoSuchKey", "404", "NotFound")
_REFUSED = ("AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "NoSuchBucket")


@contextmanager
def _told(path: str) -> Generator[None]:
    """Raises an error of boto3 in the block as Arrow would: FileNotFoundError, PermissionError or another OSError."""
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        kind = FileNotFoundError if code in _MISSING else PermissionError if code in _REFUSED else OSError
        raise kind(f"s3://{path}: {error}") from error
    except (BotoCoreError, HTTPError) as error:
        raise OSError(f"s3://{path}: {type(error).__name__}: {error}") from error


def _split(path: str) -> dict[str, str]:
    bucket, _, key = path.partition("/")
    return {"Bucket": bucket, "Key": key}


class S3Files(FileSystemHandler):
    """The files of S3. `arrow` returns the file system that reads them; None if boto3 reads them, too."""

    def __init__(self, arrow: Callable[[], FileSystem] | None) -> None:
        self._arrow = arrow

    def get_type_name(self) -> str:
        """The name of the kind of file system."""
        return "s3 through boto3"

    def normalize_path(self, path: str) -> str:
        """The path as it is."""
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        """The kind of what is at each path: a file, a folder, or nothing."""
        return self._arrow().get_file_info(paths) if self._arrow else [self._info(path) for path in paths]

    def _info(self, path: str) -> FileInfo:
        with _told(path):
            try:
                found = aws.s3(f"s3://{path}").head_object(**_split(path))
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") not in _MISSING:
                    raise
                is_folder = next(self._listed(f"{path}/", MaxKeys=1), None)
                return FileInfo(path, FileType.Directory if is_folder else FileType.NotFound)
        return FileInfo(path, FileType.File, size=found["ContentLength"], mtime=found["LastModified"])

    def _listed(self, prefix: str, **more: Any) -> Generator[dict[str, Any]]:
        """Yields the objects and common prefixes under a prefix."""
        asked = _split(prefix)
        with _told(prefix):
            pages = aws.s3(f"s3://{prefix.rstrip('/')}").get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=asked["Bucket"], Prefix=asked["Key"], **more):
                yield from page.get("Contents", [])
                yield from page.get("CommonPrefixes", [])

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """The files and folders in a folder."""
        if self._arrow:
            return self._arrow().get_file_info(selector)
        bucket, base = selector.base_dir.partition("/")[0], selector.base_dir.rstrip("/")
        found, folders = [], set[str]()
        for one in self._listed(f"{base}/", **({} if selector.recursive else {"Delimiter": "/"})):
            if "Prefix" in one:
                folders.add(f"{bucket}/{one['Prefix']}".rstrip("/"))
                continue
            path = f"{bucket}/{one['Key']}"
            parts = path.removeprefix(f"{base}/").split("/")
            folders.update(f"{base}/{'/'.join(parts[:depth])}" for depth in range(1, len(parts)))
            if parts[-1]:
                found.append(FileInfo(path, FileType.File, size=one["Size"], mtime=one["LastModified"]))
        if not found and not folders and not selector.allow_not_found and self._info(base).type == FileType.NotFound:
            raise FileNotFoundError(f"s3://{base}: there is no such folder")
        return [*found, *(FileInfo(folder, FileType.Directory) for folder in sorted(folders))]

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Opens a file for reading from its start. Raises FileNotFoundError, and OSError."""
        return self._arrow().open_input_stream(path, compression=None) if self._arrow else self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Opens a file for reading at any place. Raises FileNotFoundError, and OSError."""
        return self._arrow().open_input_file(path) if self._arrow else pa.PythonFile(_Reader(path), mode="r")

    def open_output_stream(self, path: str, _metadata: object) -> pa.NativeFile:
        """Opens a file for writing. It exists once it is closed."""
        return pa.PythonFile(_Writer(path), mode="w")

    def open_append_stream(self, path: str, _metadata: object) -> pa.NativeFile:
        """Raises NotImplementedError: objects do not grow."""
        raise NotImplementedError(f"s3://{path}: an object in S3 cannot be appended to")

    def create_dir(self, _path: str, _recursive: bool) -> None:
        """Does nothing: S3 has no folders."""

    def delete_file(self, path: str) -> None:
        """Deletes a file, if it exists."""
        with _told(path):
            aws.s3(f"s3://{path}").delete_object(**_split(path))

    def delete_dir(self, path: str) -> None:
        """Deletes everything in a folder. Raises FileNotFoundError if it has nothing."""
        self._delete(path, missing_dir_ok=False)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Deletes everything in a folder."""
        self._delete(path, missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        """Raises NotImplementedError: nobody deletes all buckets."""
        raise NotImplementedError("all buckets together cannot be emptied")

    def _delete(self, path: str, missing_dir_ok: bool) -> None:
        keys = [{"Key": one["Key"]} for one in self._listed(f"{path.rstrip('/')}/")]
        if not keys and not missing_dir_ok:
            raise FileNotFoundError(f"s3://{path}: there is no such folder")
        with _told(path):
            for start in range(0, len(keys), _AT_ONCE):
                some = {"Objects": keys[start : start + _AT_ONCE], "Quiet": True}
                answer = aws.s3(f"s3://{path}").delete_objects(Bucket=_split(path)["Bucket"], Delete=some)
                for failed in answer.get("Errors", []):
                    raise OSError(f"s3://{path}: {failed['Key']} cannot be deleted: {failed['Code']}: {failed['Message']}")

    def copy_file(self, src: str, dest: str) -> None:
        """Copies a file within S3."""
        with _told(src):
            aws.s3(f"s3://{dest}").copy_object(CopySource=_split(src), **_split(dest))

    def move(self, src: str, dest: str) -> None:
        """Copies a file, and deletes the original."""
        self.copy_file(src, dest)
        self.delete_file(src)


class _Reader(io.RawIOBase):
    """An object that is read by requests for ranges of it."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path, self._place = path, 0
        with _told(path):
            self._size: int = aws.s3(f"s3://{path}").head_object(**_split(path))["ContentLength"]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        """Reads bytes from the place on; by default, all."""
        left = max(0, self._size - self._place)
        size = left if size is None or size < 0 else min(size, left)
        if not size:
            return b""
        with _told(self._path):
            data = self._ranged(f"bytes={self._place}-{self._place + size - 1}")
        self._place += len(data)
        return data

    def _ranged(self, range_: str) -> bytes:
        """Reads a range. boto3 repeats a request, but not the reading of an answer that breaks off."""
        left = aws.limits_of("s3").attempts
        while True:
            left -= 1
            body = aws.s3(f"s3://{self._path}").get_object(**_split(self._path), Range=range_)["Body"]
            try:
                return body.read()
            except (BotoCoreError, HTTPError):
                if left <= 0:
                    raise


class _Writer(io.RawIOBase):
    """An object that is written with one request if it is small, else in parts.

    If a part fails, the upload is aborted, and there is no object: S3 would keep, and charge for, the parts that it has.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path, self._place = path, 0
        self._waiting = bytearray()
        self._upload = ""
        self._failed = False
        self._parts: list[dict[str, Any]] = []

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def write(self, data: Any) -> int:
        """Takes bytes, and sends a part once it is full."""
        self._waiting += data
        self._place += (taken := memoryview(data).nbytes)
        while len(self._waiting) > PART:
            self._send(bytes(self._waiting[:PART]))
            del self._waiting[:PART]
        return taken

    def close(self) -> None:
        """Completes the object. Raises OSError."""
        if self.closed:
            return
        try:
            self._complete()
        finally:
            super().close()

    def _complete(self) -> None:
        client, named = aws.s3(f"s3://{self._path}"), _split(self._path)
        if self._failed:
            raise OSError(f"s3://{self._path}: it is not written, because a part of it was not")
        if not self._upload:
            with _told(self._path):
                client.put_object(**named, Body=bytes(self._waiting))
            return
        if self._waiting:
            self._send(bytes(self._waiting))
        with self._aborted_on_failure(), _told(self._path):
            client.complete_multipart_upload(**named, UploadId=self._upload, MultipartUpload={"Parts": self._parts})

    def _send(self, data: bytes) -> None:
        client, named = aws.s3(f"s3://{self._path}"), _split(self._path)
        with self._aborted_on_failure(), _told(self._path):
            self._upload = self._upload or client.create_multipart_upload(**named)["UploadId"]
            number = len(self._parts) + 1
            sent = client.upload_part(**named, UploadId=self._upload, PartNumber=number, Body=data)
        self._parts.append({"PartNumber": number, "ETag": sent["ETag"]})

    @contextmanager
    def _aborted_on_failure(self) -> Generator[None]:
        """Aborts the upload if the block fails. What made it fail is raised, whether S3 can be reached for that or not."""
        try:
            yield
        except BaseException:
            self._failed = True
            if self._upload:
                with suppress(BotoCoreError, ClientError, HTTPError):
                    aws.s3(f"s3://{self._path}").abort_multipart_upload(**_split(self._path), UploadId=self._upload)
            raise
