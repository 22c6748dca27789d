"""The contract of a store plug-in: what a driver says about its URLs, beside the store that it opens.

A plug-in of the group `manifest_platform.stores` is a subclass of Driver. Its entry point's name is the scheme of the URLs that
it takes: `sqlite` takes `sqlite:///path`. What the opened store must do is said by `Store`, in `manifest.store`, and tested by
`manifest_platform.testing.store`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from manifest_platform.deployments import PRODUCTION
from manifest_platform.manifest.store import Difference, Store


@dataclass(frozen=True)
class StoredObject:
    """An object by the path that `put` gave, and its size in bytes."""

    path: str
    bytes: int


class Objects(Protocol):
    """Where data goes that is too large for a row: whole objects, by name."""

    def put(self, name: str, data: bytes, /) -> str:
        """Writes an object, durably, and returns the path by which `get` finds it. Raises OSError."""
        ...

    def get(self, path: str, /) -> bytes:
        """The object at a path. Raises FileNotFoundError where there is none, OSError."""
        ...

    def list(self, folder: str, /) -> Iterable[tuple[str, int]]:
        """The path and size in bytes of each object whose name begins with a folder's and a slash. Raises OSError."""
        ...

    def remove(self, path: str, /) -> None:
        """Removes the object at a path, if it is there. Raises OSError."""
        ...


@runtime_checkable
class KeepsOutside(Protocol):
    """What a store has beside the contract whose rows may have their data in objects outside."""

    def unnamed(self, partition: str) -> list[StoredObject]:
        """The objects that were put for rows of a partition, and that none of its rows names now. Raises StoreError.

        A name is never used again: what no row names is left over, unless the store is put back to an older state, or somebody
        is about to write the row.
        """
        ...

    def remove_object(self, path: str) -> None:
        """Removes an object, if it is there. Raises StoreError."""
        ...


class Driver(ABC):
    """How stores of one URL scheme are opened, made and checked.

    It is made without arguments, often only to read a URL: heavy libraries are imported in methods. Every URL that a method
    gets has the driver's scheme. A URL may hold a password: no message repeats it.
    """

    example: ClassVar[str]
    """A URL that it takes, for messages that say what is allowed."""

    def of_deployment(self, url: str, deployment: str) -> str:
        """The URL of another deployment's store, beside this one. Raises ValueError where the driver knows of none."""
        raise ValueError(f"a store of this kind has no place of its own for deployment {deployment!r}; allowed: {PRODUCTION}")

    @abstractmethod
    def checked(self, url: str, local_path: Callable[[str], str]) -> str:
        """The URL as the configuration keeps it. Reaches nothing. Raises ValueError with what is allowed, and not with the URL.

        `local_path` makes a relative path absolute, from the folder of the configuration's file.
        """

    @abstractmethod
    def open(self, url: str, overflow: Objects | None) -> Store:
        """The store of a URL. Raises StoreError. `overflow` takes data that a row cannot hold, where the rows are bounded."""

    @abstractmethod
    def create(self, url: str) -> bool:
        """Makes what the store lacks to be opened, and says whether it made anything. May be repeated. Raises StoreError."""

    @abstractmethod
    def check(self, url: str) -> tuple[str, list[Difference]]:
        """The store's name for people, without secrets, and how its setup differs from what it should be; changes nothing."""

    def file(self, url: str) -> Path | None:
        """The store's file; None for a store that is none."""
        del url
        return None

    def file_identity(self, url: str) -> int:
        """Tells a store's file from another that replaces it, as a restored backup does; 0 for no file."""
        del url
        return 0
