"""Lists and deletes the files under a location, locally and in S3.

Belongs here: operations that need only the storage. `garbage` decides which files may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from manifest_platform import aws, storage
from manifest_platform.merging.errors import TransientMergeError

_DELETES_AT_ONCE = 1_000  # S3's limit


@dataclass(frozen=True)
class StoredFile:
    """A file under a location: its name relative to the location, its size, and its modification time."""

    name: str
    bytes: int
    written: datetime


def stored_files(location: str, folder: str = "") -> Iterator[StoredFile]:
    """Yields the files under a location or one of its folders; nothing if it does not exist. Raises TransientMergeError."""
    from pyarrow.fs import FileSelector, FileType

    system, path = storage.filesystem(location)
    try:
        found = system.get_file_info(FileSelector(f"{path}/{folder}".rstrip("/"), recursive=True, allow_not_found=True))
    except OSError as error:
        raise TransientMergeError(f"{location}/{folder} cannot be listed: {error}") from error
    for one in found:
        if one.type == FileType.File and one.mtime:
            yield StoredFile(one.path[len(path) + 1 :], one.size or 0, one.mtime)


def delete(location: str, names_: Sequence[str]) -> None:
    """Deletes files of a location by name. A file that does not exist is not an error. Raises TransientMergeError.

    Local directories that become empty are removed. In S3, no marker objects for directories are left or created.
    """
    if storage.is_local(location):
        _delete_local(storage.local_path(location), names_)
    else:
        _delete_in_s3(location, names_)


def _delete_local(root: Path, names_: Sequence[str]) -> None:
    try:
        for name in names_:
            (root / name).unlink(missing_ok=True)
    except OSError as error:
        raise TransientMergeError(f"{error.filename} cannot be removed: {error}") from error
    folders = {parent for name in names_ for parent in (root / name).parents if parent.is_relative_to(root)}
    for folder in sorted(folders, reverse=True):
        with suppress(OSError):  # the directory is not empty
            folder.rmdir()


def _delete_in_s3(location: str, names_: Sequence[str]) -> None:
    """Deletes in batches. Arrow sends a request for each object and writes a marker object for each directory left empty."""
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    client = aws.s3(location)
    for start in range(0, len(names_), _DELETES_AT_ONCE):
        keys = [{"Key": f"{prefix}/{name}" if prefix else name} for name in names_[start : start + _DELETES_AT_ONCE]]
        try:
            answer = client.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
        except (BotoCoreError, ClientError) as error:
            raise TransientMergeError(f"{location}: {len(keys):,} objects cannot be removed: {error}") from error
        for failed in answer.get("Errors", []):
            raise TransientMergeError(f"s3://{bucket}/{failed['Key']} cannot be removed: {failed['Code']}: {failed['Message']}")
