"""Temporary folders of a process on the local disk, which are removed even if the process dies.

Each folder is removed at the end of its `with` block. A killed process cannot remove anything, but it holds a lock (flock) on
a file in its folder while it lives. A process that gets the lock therefore knows that the folder is abandoned. The folders
are in the directory of `MANIFEST_PLATFORM_SPOOL`, by default the system's directory of temporary files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

VARIABLE = "MANIFEST_PLATFORM_SPOOL"
PREFIX = "manifest-platform-spool-"
AGE = timedelta(hours=1)
"""The smallest age of an abandoned folder. A new folder may not be locked yet."""
_LOCK = ".held"


@dataclass(frozen=True)
class Abandoned:
    """An abandoned folder of a process that died, with the bytes in it."""

    path: Path
    bytes: int


@contextmanager
def folder(purpose: str, directory: str | None = None) -> Generator[Path]:
    """Creates a folder for the duration of the block. `directory`: its parent, if not the usual directory."""
    place = directory or os.environ.get(VARIABLE)
    with (
        tempfile.TemporaryDirectory(prefix=f"{PREFIX}{purpose}-", dir=place) as path,
        open(Path(path) / _LOCK, "w") as lock,  # noqa: PTH123 - it is kept open
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(path)


def abandoned(age: timedelta = AGE) -> Iterator[Abandoned]:
    """Yields the folders of processes that died, except those of other users."""
    root = Path(os.environ.get(VARIABLE) or tempfile.gettempdir())
    for path in sorted(root.glob(f"{PREFIX}*")):
        with suppress(OSError):  # it is just being removed, or belongs to another user
            if path.is_dir() and not path.is_symlink() and _is_nobodys(path, age):
                yield Abandoned(path, sum(file.lstat().st_size for file in path.rglob("*") if file.is_file()))


def remove(path: Path, age: timedelta = AGE) -> bool:
    """Removes a folder if it is still abandoned, and returns True if it was. Raises OSError."""
    if not _is_nobodys(path, age):
        return False
    shutil.rmtree(path)
    return True


def _is_nobodys(path: Path, age: timedelta) -> bool:
    if time.time() - path.stat().st_mtime < age.total_seconds():
        return False
    try:
        with open(path / _LOCK, "r+") as lock:  # noqa: PTH123
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True  # killed before it could lock
    except BlockingIOError:
        return False
    return True
