"""Reads and writes files on a local disk or in S3, by URI.

Belongs here: URIs of paths, and whole files. The meaning of files does not belong here.

S3 is configured as for all AWS tools: credentials, region and an endpoint override (`AWS_ENDPOINT_URL_S3`,
`AWS_ENDPOINT_URL`) come from the environment, never from a file of this platform.
"""

from __future__ import annotations

import functools
import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from manifest_platform import aws

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem


_REFUSALS = ("ACCESS_DENIED", "NO_SUCH_BUCKET", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "EXPIRED_TOKEN")
"""Parts of pyarrow's error messages when S3 refuses access, in the terms of AWS's C++ client."""


class UnsupportedLocation(ValueError):
    """A location that is neither a local path nor an s3:// or file:// URI."""


def as_uri(location: str | Path) -> str:
    """The canonical URI of a location: `file:///…` for a local path, `s3://bucket/…` as it is; no trailing slash.

    Raises UnsupportedLocation for any other scheme and for an S3 URI without a bucket.
    """
    text = str(location)
    if text.startswith("s3://"):
        if not urlsplit(text).netloc:
            raise UnsupportedLocation(f"{text!r} has no bucket; write s3://bucket/prefix")
        return text.rstrip("/")
    if text.startswith("file://"):
        text = _unquoted_path(text)
    elif "://" in text:
        raise UnsupportedLocation(f"{text!r}: only local paths, file:// and s3:// are supported")
    return f"file://{quote_path(os.path.abspath(os.path.expanduser(text)))}"


def quote_path(path: str) -> str:
    """A local path quoted for a URI. `=` and similar characters stay readable, as in `run=2026-01-01-00-00-00`."""
    return quote(os.fsencode(path), safe="/=:@+,~")


def is_local(uri: str) -> bool:
    """True if a canonical URI is on the local disk."""
    return uri.startswith("file://")


def local_path(uri: str) -> Path:
    """The local path of a canonical file:// URI."""
    return Path(_unquoted_path(uri))


def _unquoted_path(uri: str) -> str:
    """The path of a file:// URI quoted by `quote_path`. Bytes that are not text are preserved."""
    return os.fsdecode(unquote_to_bytes(urlsplit(uri).path))


def filesystem(uri: str) -> tuple[FileSystem, str]:
    """The Arrow file system of a canonical URI, and the path to use with it."""
    if is_local(uri):
        return _local(), str(local_path(uri))
    place = aws.location_of(uri)
    return (_with_headers(place) if place.needs_headers else _s3(place)), uri.removeprefix("s3://")


@functools.cache
def _local() -> FileSystem:
    from pyarrow.fs import LocalFileSystem

    return LocalFileSystem()


@functools.lru_cache(16)
def _with_headers(place: aws.Location) -> FileSystem:
    from pyarrow.fs import PyFileSystem

    from manifest_platform.s3_files import S3Files

    return PyFileSystem(S3Files(None if place.requester_pays else functools.partial(_s3, place)))


def _s3(place: aws.Location) -> FileSystem:
    endpoint = place.endpoint or aws.endpoint_of("s3")
    return _s3_of(aws.limits_of("s3"), endpoint, place.region, aws.keys_of(place.access), aws.environment())


@functools.lru_cache(16)
def _s3_of(
    limits: aws.Limits, endpoint: str | None, region: str | None, keys: aws.Keys | None, environment: aws.Environment
) -> FileSystem:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    names = dict(environment)
    given: dict[str, Any] = {
        "region": region,
        **({"access_key": keys[0], "secret_key": keys[1], "session_token": keys[2]} if keys else {}),
        "endpoint_override": endpoint or names.get("AWS_ENDPOINT_URL_S3") or names.get("AWS_ENDPOINT_URL"),
        "connect_timeout": limits.connect_seconds,
        "request_timeout": limits.read_seconds,
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=limits.attempts),
    }
    try:
        # An object of up to 10 MiB is then one request. Otherwise it is an upload in parts, of at least three.
        return S3FileSystem(**given, allow_delayed_open=True)
    except TypeError:  # an older pyarrow lacks the option
        return S3FileSystem(**given)


def read_bytes(uri: str, most: int | None = None) -> bytes:
    """Reads a whole file, or at most its first `most` bytes. Raises FileNotFoundError if it does not exist."""
    system, path = filesystem(uri)
    with system.open_input_stream(path, compression=None) as stream:
        return stream.read(most)


def write_bytes(uri: str, data: bytes) -> None:
    """Writes a whole file, and creates its parent directories if the storage has directories."""
    with open_output(uri) as stream:
        stream.write(data)


def open_output(uri: str) -> NativeFile:
    """Opens a file for sequential writing, and creates its parent directories. The caller closes it."""
    system, path = filesystem(uri)
    if is_local(uri):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    return system.open_output_stream(path, compression=None)


def umask() -> int:
    """The process's umask: the permissions that its new files and folders lack."""
    found = os.umask(0o077)  # it cannot be read otherwise; meanwhile, permissions are only stricter
    os.umask(found)
    return found


def withhold(permissions: int) -> None:
    """Removes these permissions from all new files and folders of this process and its child processes.

    It affects the whole process, so only entry points call it: a command, a code location, a Spark worker. Setting a mode when
    a file is opened would not be enough, because DuckDB and SQLite open files themselves.
    """
    os.umask(umask() | permissions)


@dataclass(frozen=True)
class Surroundings:
    """The choices of a process for all its files: the permissions that new files lack, and how it reaches AWS."""

    umask: int
    aws: aws.Choices

    def adopt(self) -> None:
        """Takes them over in this process, such as a Spark worker, which may be on another machine."""
        withhold(self.umask)
        aws.use(self.aws)


def surroundings() -> Surroundings:
    """The choices of this process, for another process that works for it."""
    return Surroundings(umask(), aws.used())


def checksum(data: bytes | memoryview) -> str:
    """The BLAKE2b digest of some bytes (16 bytes, in hex), to detect changes of a file."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def delete_folder(uri: str) -> None:
    """Deletes everything under a location. Raises FileNotFoundError if nothing exists there, and OSError."""
    system, path = _deleting(uri)
    system.delete_dir(path)


def _deleting(uri: str) -> tuple[FileSystem, str]:
    """The file system that deletes at a URI, and the path to use with it.

    In S3 it is boto3's: Arrow's own client writes an empty object in place of the folder around what it deletes. Who may only
    delete is then refused, and the empty object stays.
    """
    return filesystem(uri) if is_local(uri) else (_with_headers(aws.location_of(uri)), uri.removeprefix("s3://"))


def is_missing(uri: str) -> bool:
    """True if a local folder does not exist, for example if its disk is not mounted. False in S3, which has no folders."""
    return is_local(uri) and not local_path(uri).is_dir()


def is_refusal(error: OSError) -> bool:
    """True if the storage refused access, so that a person must act: credentials, permissions, or a missing bucket."""
    return isinstance(error, PermissionError) or any(word in str(error) for word in _REFUSALS)


class ObjectFolder:
    """Objects under a location, by name. An object exists completely or not at all, and is durable after `put`."""

    def __init__(self, location: str | Path):
        self.uri = as_uri(location)

    def put(self, name: str, data: bytes) -> str:
        """Writes or overwrites an object, and returns its URI. Raises OSError."""
        uri = f"{self.uri}/{name}"
        if not is_local(uri):
            write_bytes(uri, data)  # an object in S3 becomes visible when it is complete
            return uri
        path = local_path(uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        begun = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        try:
            with begun.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            begun.replace(path)
        finally:
            begun.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return uri

    def get(self, uri: str) -> bytes:
        """Reads an object by the URI that `put` returned. Raises FileNotFoundError if it does not exist, and OSError."""
        return read_bytes(uri)

    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yields URI and size in bytes of all objects in a folder of the location. Raises OSError."""
        from pyarrow.fs import FileSelector, FileType

        system, path = filesystem(f"{self.uri}/{folder}")
        for found in system.get_file_info(FileSelector(path, recursive=True, allow_not_found=True)):
            if found.type == FileType.File:
                yield as_uri(found.path) if is_local(self.uri) else f"s3://{found.path}", found.size or 0

    def remove(self, uri: str) -> None:
        """Deletes an object by the URI that `put` returned, if it exists. Raises OSError."""
        system, path = _deleting(uri)
        with suppress(FileNotFoundError):
            system.delete_file(path)
