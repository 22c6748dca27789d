"""Opens and walks files and folders below a landing root without following symbolic links.

A stranger may land files, so a link is refused in every part of a path below the root. The check happens at the moment of
opening, so that a file replaced by a link after its listing reveals nothing. Pipes, devices and sockets are refused, too:
opening a pipe could wait forever. The root itself may be a link, because its owner controls it. S3 has none of these.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, cast

from manifest_platform import storage
from manifest_platform.faults import Permanent
from manifest_platform.remedies import LAND_ANEW

DEEPEST = 32
"""Largest depth of folders in a landed directory."""

_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_PASSED = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW  # for folders that are only passed through
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class NotFollowed(ValueError, Permanent):
    """A path below a landing root is neither a file nor a folder, but usually a symbolic link."""

    remedy = LAND_ANEW

    def __init__(self, path: str, mode: int) -> None:
        super().__init__(f"{path} is {kind(mode)}. Land the file or folder itself instead")


def is_plain(status: os.stat_result) -> bool:
    """True for a regular file or a folder."""
    return stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)


def kind(mode: int) -> str:
    """Describes a file type that is neither a file nor a folder, for messages."""
    if stat.S_ISLNK(mode):
        return "a symbolic link, which is never followed"
    return "a pipe, a device or the like, which is never read"


def open_file(uri: str, root: str = "") -> BinaryIO:
    """Opens a file for reading. `uri` and `root` are canonical URIs; without a root, the file's folder is the root.

    Raises NotFollowed if the file or a folder between it and the root is a link or a special file; FileNotFoundError or
    OSError.
    """
    if not storage.is_local(uri):
        system, path = storage.filesystem(uri)
        return cast(BinaryIO, system.open_input_file(path))
    path = str(storage.local_path(uri))
    folder, _, name = path.rpartition("/")
    with _opened(folder or "/", str(storage.local_path(root)) if root else folder or "/", _PASSED) as parent:
        opened = _open(name, _FILE, parent, path)
    status = os.fstat(opened)
    if not stat.S_ISREG(status.st_mode):
        os.close(opened)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise NotFollowed(path, status.st_mode)
    return os.fdopen(opened, "rb")


def read_bytes(uri: str, root: str = "") -> bytes:
    """Reads a whole file. Raises the errors of `open_file`."""
    with open_file(uri, root) as file:
        return file.read()


def check_way(folder: str, root: str) -> None:
    """Checks the path of a local folder before writing there. Raises NotFollowed if a part below the root is a link.

    Parts that do not exist yet are accepted. Raises OSError.
    """
    with suppress(FileNotFoundError), _opened(folder, root, _PASSED):
        pass


def walk(folder: str, root: str, enter: Callable[[str], bool] = lambda _name: True) -> Iterator[tuple[str, os.stat_result]]:
    """Yields everything below a local folder as (relative path, status). A link has its own status and is not followed.

    A folder comes before its content; its content is skipped if `enter` returns False for the folder's name. Raises NotFollowed
    if the folder is a link or below a link, and OSError, also if folders are nested deeper than `DEEPEST`.
    """
    with _opened(folder, root, _LISTED) as opened:
        yield from _walk(opened, folder, "", enter, DEEPEST)


def entries(folder: str, root: str) -> list[tuple[str, os.stat_result]]:
    """Lists a local folder as (name, status). A link has its own status. Raises the errors of `walk`."""
    with _opened(folder, root, _LISTED) as opened:
        return list(_entries(opened, folder))


def folders(folder: str, root: str) -> list[tuple[str, bool]]:
    """Lists a local folder as (name, True for a folder or a link), without the status of each. Raises the errors of `walk`."""
    with _opened(folder, root, _LISTED) as opened, os.scandir(opened) as found:
        return [(entry.name, entry.is_dir(follow_symlinks=False) or entry.is_symlink()) for entry in found]


def _walk(
    opened: int, folder: str, relative: str, enter: Callable[[str], bool], deep: int
) -> Iterator[tuple[str, os.stat_result]]:
    for name, status in list(_entries(opened, folder)):
        yield relative + name, status
        if not stat.S_ISDIR(status.st_mode) or not enter(name):
            continue
        path = f"{folder}/{name}"
        if not deep:
            raise OSError(errno.ELOOP, f"folders are nested deeper than {DEEPEST} within each other", path)
        inner = _open(name, _LISTED, opened, path)
        try:
            yield from _walk(inner, path, f"{relative}{name}/", enter, deep - 1)
        finally:
            os.close(inner)


def _entries(opened: int, folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(opened) as found:
        for entry in found:
            try:
                yield entry.name, entry.stat(follow_symlinks=False)
            except OSError as error:
                raise _at(error, f"{folder}/{entry.name}") from error


@contextmanager
def _opened(folder: str, root: str, how: int) -> Generator[int]:
    """Opens a folder part by part, starting at the root. `how`: the flags for the last part, for listing or passing through."""
    path = root.rstrip("/")
    if folder.rstrip("/") != path and not folder.startswith(f"{path}/"):
        raise ValueError(f"{folder} is not below {root}")
    parts = [part for part in folder[len(path) :].split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"{folder} leads out of {root}")
    reached = os.open(root, (_PASSED if parts else how) & ~os.O_NOFOLLOW)
    try:
        for left, part in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
            path = f"{path}/{part}"
            inner = _open(part, _PASSED if left else how, reached, path)
            os.close(reached)
            reached = inner
        yield reached
    finally:
        os.close(reached)


def _open(name: str, flags: int, parent: int, path: str) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except OSError:
            raise _at(error, path) from error
        if not is_plain(status):
            raise NotFollowed(path, status.st_mode) from error
        raise _at(error, path) from error


def _at(error: OSError, path: str) -> OSError:
    """The same error with the whole path instead of the opened name."""
    return OSError(error.errno, error.strerror, path)
