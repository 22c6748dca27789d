"""Files on a local disk or in S3, named by URI.

Belongs here: turning a path into a URI, and reading and writing whole files by URI. What the files mean does not.

S3 is configured as every AWS tool is: credentials, region and an endpoint override (`AWS_ENDPOINT_URL_S3`,
`AWS_ENDPOINT_URL`) from the environment, never from a file of ours.
"""

from __future__ import annotations

import functools
import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes, urlsplit

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem


_REFUSALS = ("ACCESS_DENIED", "NO_SUCH_BUCKET", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "EXPIRED_TOKEN")
"""What pyarrow says where S3 refuses access, in the words of AWS's C++ client."""


class UnsupportedLocation(ValueError):
    """A location that is neither a local path nor an s3:// or file:// URI."""


def as_uri(location: str | Path) -> str:
    """The canonical URI of a location: `file:///…` for a local path, `s3://bucket/…` as it is; no trailing slash.

    Raises UnsupportedLocation for any other scheme and for an S3 URI without a bucket.
    """
    text = str(location)
    if text.startswith("s3://"):
        if not urlsplit(text).netloc:
            raise UnsupportedLocation(f"{text!r} names no bucket; write s3://bucket/prefix")
        return text.rstrip("/")
    if text.startswith("file://"):
        text = _unquoted_path(text)
    elif "://" in text:
        raise UnsupportedLocation(f"{text!r}: only local paths, file:// and s3:// are supported")
    return f"file://{quote_path(os.path.abspath(os.path.expanduser(text)))}"


def quote_path(path: str) -> str:
    """A local path as it stands in a URI; `=` and the like stay readable, as in `run=2026-01-01-00-00-00`."""
    return quote(os.fsencode(path), safe="/=:@+,~")


def is_local(uri: str) -> bool:
    """Whether a canonical URI names the local disk."""
    return uri.startswith("file://")


def local_path(uri: str) -> Path:
    """The local path of a canonical file:// URI."""
    return Path(_unquoted_path(uri))


def _unquoted_path(uri: str) -> str:
    """The path of a file:// URI, as `quote_path` quotes it: bytes that are no text stay what they are."""
    return os.fsdecode(unquote_to_bytes(urlsplit(uri).path))


def filesystem(uri: str) -> tuple[FileSystem, str]:
    """The Arrow file system of a canonical URI, and the path to use with it."""
    if is_local(uri):
        return _local(), str(local_path(uri))
    return _s3(), uri.removeprefix("s3://")


@functools.cache
def _local() -> FileSystem:
    from pyarrow.fs import LocalFileSystem

    return LocalFileSystem()


@functools.cache
def _s3() -> FileSystem:
    from pyarrow.fs import S3FileSystem

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return S3FileSystem(endpoint_override=endpoint) if endpoint else S3FileSystem()


def read_bytes(uri: str) -> bytes:
    """The whole content of a file. Raises FileNotFoundError where there is none."""
    system, path = filesystem(uri)
    with system.open_input_stream(path, compression=None) as stream:
        return stream.read()


def write_bytes(uri: str, data: bytes) -> None:
    """Writes a whole file, with its parent directories where the storage has such."""
    with open_output(uri) as stream:
        stream.write(data)


def open_output(uri: str) -> NativeFile:
    """A file to be written piece by piece, with its parent directories where the storage has such. Close it after use."""
    system, path = filesystem(uri)
    if is_local(uri):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    return system.open_output_stream(path, compression=None)


def umask() -> int:
    """The permissions that files and folders lack that this process makes."""
    found = os.umask(0o077)  # there is no other way to ask; for that moment nobody gets more than before
    os.umask(found)
    return found


def withhold(permissions: int) -> None:
    """Has the files and folders lack these permissions, too, that this process and those that it starts make from now on.

    It is for the whole process, so it is for its entry to call: a command, a code location, a worker of Spark. No mode that is
    given where a file is opened would do: DuckDB and SQLite open files of their own.
    """
    os.umask(umask() | permissions)


def checksum(data: bytes | memoryview) -> str:
    """BLAKE2b of some bytes, 16 bytes as hex: what tells a file that is as it was written from one that is not."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def delete_folder(uri: str) -> None:
    """Removes all that lies under a location. Raises FileNotFoundError where there is nothing, OSError."""
    system, path = filesystem(uri)
    system.delete_dir(path)


def is_missing(uri: str) -> bool:
    """Whether a local folder is not there, as where its disk is not mounted. In S3 there are no folders to miss."""
    return is_local(uri) and not local_path(uri).is_dir()


def is_refusal(error: OSError) -> bool:
    """Whether storage refused access, for a person to mend: the wrong credentials or rights, or a bucket that there is not."""
    return isinstance(error, PermissionError) or any(word in str(error) for word in _REFUSALS)


class ObjectFolder:
    """Whole objects under one location, by name: there or not there, never in part, and durable once they are put."""

    def __init__(self, location: str | Path):
        self.uri = as_uri(location)

    def put(self, name: str, data: bytes) -> str:
        """Writes an object over what may be there, and returns its URI. Raises OSError."""
        uri = f"{self.uri}/{name}"
        if not is_local(uri):
            write_bytes(uri, data)  # S3 shows an object when it is whole
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
        """The object of a URI that `put` gave. Raises FileNotFoundError where there is none, OSError."""
        return read_bytes(uri)

    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        """The URI and size in bytes of all objects whose names begin with a folder's. Raises OSError."""
        from pyarrow.fs import FileSelector, FileType

        system, path = filesystem(f"{self.uri}/{folder}")
        for found in system.get_file_info(FileSelector(path, recursive=True, allow_not_found=True)):
            if found.type == FileType.File:
                yield as_uri(found.path) if is_local(self.uri) else f"s3://{found.path}", found.size or 0

    def remove(self, uri: str) -> None:
        """Removes the object of a URI that `put` gave, if it is there. Raises OSError."""
        system, path = filesystem(uri)
        with suppress(FileNotFoundError):
            system.delete_file(path)
