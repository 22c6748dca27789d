"""Folders for what a process puts aside on this machine: each goes with its `with` block, or is known to be a dead process's.

A process that is killed removes nothing. It holds a lock on a file in its folder as long as it lives (flock), so that whoever
gets the lock knows that the folder is nobody's. `MANIFEST_PLATFORM_SPOOL` is the directory of all such folders; else it is that
of temporary files.
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
"""How old a folder must be that nobody holds: one that was just made is not locked yet."""
_LOCK = ".held"


@dataclass(frozen=True)
class Abandoned:
    """A folder of a process that died."""

    path: Path
    bytes: int


@contextmanager
def folder(purpose: str, directory: str | None = None) -> Generator[Path]:
    """A folder that is there within the block alone. `directory`: where, instead of where all others are."""
    place = directory or os.environ.get(VARIABLE)
    with (
        tempfile.TemporaryDirectory(prefix=f"{PREFIX}{purpose}-", dir=place) as path,
        open(Path(path) / _LOCK, "w") as lock,  # noqa: PTH123 - it is kept open
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(path)


def abandoned(age: timedelta = AGE) -> Iterator[Abandoned]:
    """The folders of processes that died, but for those that another user made."""
    root = Path(os.environ.get(VARIABLE) or tempfile.gettempdir())
    for path in sorted(root.glob(f"{PREFIX}*")):
        with suppress(OSError):  # it goes, or is another user's
            if path.is_dir() and not path.is_symlink() and _is_nobodys(path, age):
                yield Abandoned(path, sum(file.lstat().st_size for file in path.rglob("*") if file.is_file()))


def remove(path: Path, age: timedelta = AGE) -> bool:
    """Removes a folder that is still nobody's; whether it was. Raises OSError."""
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
