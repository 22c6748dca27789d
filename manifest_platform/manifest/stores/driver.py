"""The contract of a store plug-in: how a driver reads its URLs, and opens, creates and checks stores.

A plug-in of the group `manifest_platform.stores` is a subclass of Driver. The name of its entry point is the scheme of its
URLs: `sqlite` handles `sqlite:///path`. What the opened store must do is the contract `Store` in `manifest.store`, which
`manifest_platform.testing.store` tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from manifest_platform.deployments import PRODUCTION
from manifest_platform.manifest.store import Difference, Store
from manifest_platform.notices import Notices


@dataclass(frozen=True)
class StoredObject:
    """An object, by the path that `put` returned, and its size in bytes."""

    path: str
    bytes: int


class Objects(Protocol):
    """The place of data that is too large for a row: whole objects, by name."""

    def put(self, name: str, data: bytes, /) -> str:
        """Writes an object durably; returns the path by which `get` finds it. Raises OSError."""
        ...

    def get(self, path: str, /) -> bytes:
        """The object at a path. Raises FileNotFoundError if there is none, OSError."""
        ...

    def list(self, folder: str, /) -> Iterable[tuple[str, int]]:
        """The path and size in bytes of each object whose name starts with a folder's name and a slash. Raises OSError."""
        ...

    def remove(self, path: str, /) -> None:
        """Removes the object at a path, if it exists. Raises OSError."""
        ...


@runtime_checkable
class KeepsOutside(Protocol):
    """The additional methods of a store whose rows may have their data in objects outside."""

    def unnamed(self, partition: str) -> list[StoredObject]:
        """The objects that were put for rows of a partition, and that none of its rows names now. Raises StoreError.

        A name is never used again. So an object that no row names is orphaned, unless the store is set back to an older state,
        or a writer is about to write the row.
        """
        ...

    def remove_object(self, path: str) -> None:
        """Removes an object, if it exists. Raises StoreError."""
        ...


@runtime_checkable
class RemovesExpired(Protocol):
    """A store that removes rows by itself some time after they expired."""

    removes_expired: bool


class Driver(ABC):
    """Opens, creates and checks the stores of one URL scheme.

    A driver is created without arguments, often only to read a URL, so its methods import heavy libraries. Every URL that a
    method gets has the driver's scheme. A URL may hold a password: no message repeats it.
    """

    example: ClassVar[str]
    """An example of a URL, for messages that say what is allowed."""

    def of_deployment(self, url: str, deployment: str) -> str:
        """The URL of another deployment's store, beside this store. Raises ValueError if the driver cannot make one."""
        raise ValueError(f"a store of this kind has no place of its own for deployment {deployment!r}; allowed: {PRODUCTION}")

    @abstractmethod
    def checked(self, url: str, local_path: Callable[[str], str]) -> str:
        """The URL as the configuration stores it, without any connection.

        Raises ValueError that says what is allowed, without the URL. `local_path` makes a relative path absolute, from the
        folder of the configuration's file.
        """

    @abstractmethod
    def open(self, url: str, overflow: Objects | None) -> Store:
        """Opens the store of a URL. Raises StoreError.

        `overflow` takes data that is too large for a row, if the rows are limited.
        """

    @abstractmethod
    def create(self, url: str) -> bool:
        """Creates what the store lacks; returns True if it created anything. Idempotent. Raises StoreError."""

    @abstractmethod
    def check(self, url: str) -> tuple[str, list[Difference]]:
        """The store's name for people, without secrets, and the differences from its required setup. Changes nothing."""

    def create_memory(self, url: str) -> bool:
        """Creates the store of a memory, whose rows may expire, as `create` does. Raises StoreError."""
        return self.create(url)

    def check_memory(self, url: str) -> tuple[str, list[Difference]]:
        """The name of the store of a memory, and the differences from its required setup, as `check` does."""
        return self.check(url)

    def file(self, url: str) -> Path | None:
        """The store's file; None for a store that is not a file."""
        del url
        return None

    def file_identity(self, url: str) -> int:
        """The identity of a store's file, which changes if a restored backup or another file replaces it; 0 for no file."""
        del url
        return 0

    def notices(self, url: str) -> Notices | None:
        """Notices of what any process writes to the store; None if the driver has none."""
        del url
        return None
