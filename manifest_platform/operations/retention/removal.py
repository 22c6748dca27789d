"""Removes folders with everything in them, locally and in S3, and measures them. Links are never followed.

In S3, a request deletes up to 1,000 objects. A bucket with versioning keeps the deleted objects as older versions, until its
own lifecycle rules remove them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from manifest_platform import failpoints, landed_files, storage
from manifest_platform.merging.stored import delete, stored_files

AT_ONCE = 1_000
"""The number of objects that a request to S3 deletes."""


@dataclass(frozen=True)
class Measured:
    """The number of objects in some folders, their bytes, and the times of the oldest and the newest."""

    objects: int = 0
    bytes: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None

    def __add__(self, other: Measured) -> Measured:
        oldest = min((one for one in (self.oldest, other.oldest) if one), default=None)
        newest = max((one for one in (self.newest, other.newest) if one), default=None)
        return Measured(self.objects + other.objects, self.bytes + other.bytes, oldest, newest)


NOTHING = Measured()


class WrittenSince(Exception):
    """A folder has files that were written after it was judged."""


def measure(folder: str) -> Measured:
    """Measures a folder; nothing is there if it does not exist. Raises OSError, TransientMergeError if it cannot be listed."""
    total = Measured()
    for size, written in _local_files(folder) if storage.is_local(folder) else _objects(folder):
        total += Measured(1, size, written, written)
    return total


def _objects(folder: str) -> Iterator[tuple[int, datetime]]:
    return ((one.bytes, one.written) for one in stored_files(folder))


def _local_files(folder: str) -> Iterator[tuple[int, datetime]]:
    for path, _folders, names in os.walk(storage.local_path(folder)):
        for name in names:
            with suppress(FileNotFoundError):
                status = os.lstat(os.path.join(path, name))
                yield status.st_size, datetime.fromtimestamp(status.st_mtime, UTC)


def remove(folder: str, root: str, newest: datetime | None = None) -> None:
    """Removes a folder below a root, whether it exists or not.

    `newest`: the time of its newest file when it was judged. Raises WrittenSince if there is a newer file, and removes nothing
    then. Raises OSError, NotFollowed, TransientMergeError.
    """
    written = measure(folder).newest if newest else None
    if newest and written and written > newest:
        raise WrittenSince(f"{folder} was written to after the decision to delete it, so what is there stays")
    if storage.is_local(folder):
        _remove_local(storage.local_path(folder), storage.local_path(root))
        return
    names = [one.name for one in stored_files(folder)]
    for start in range(0, len(names), AT_ONCE):
        delete(folder, names[start : start + AT_ONCE])
        failpoints.reach("retention.deleting")


def _remove_local(folder: Path, root: Path) -> None:
    if not root.is_dir():
        raise FileNotFoundError(f"{root} does not exist; is its disk mounted?")
    landed_files.check_way(str(folder), str(root))
    with suppress(FileNotFoundError):
        for file in sorted(folder.iterdir()):
            if file.is_dir() and not file.is_symlink():
                shutil.rmtree(file)  # follows no links
            else:
                file.unlink(missing_ok=True)
            failpoints.reach("retention.deleting")
        folder.rmdir()
