"""The drivers of manifest stores, their contract, and the one place that chooses a driver by a URL's scheme.

Belongs here: a file or folder for each driver. What an opened store must do is the contract in
`manifest_platform.manifest.store`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from manifest_platform import plugins
from manifest_platform.manifest.store import Difference, Store
from manifest_platform.manifest.stores.driver import Driver, Objects
from manifest_platform.notices import Notices

DEFAULT_URL = "sqlite:///.manifest_platform/manifest.db"
"""The store of a configuration that names none: embedded, its path relative to the configuration's file."""
URL_FORMS = (
    "`sqlite:///path`, the path relative to the file; `postgresql://user@host/database`, by TLS with a certificate of the"
    " host's name unless it has an `?sslmode=`, with `?owner=` if another role owns the tables; or `dynamodb://TABLE`, with"
    " `?region=` and `&endpoint=` if the environment does not set them. A row in DynamoDB holds up to 300 KB; larger data"
    " requires `overflow`"
)
"""The URLs of the platform's own drivers, for the reference of the configuration."""


@dataclass(frozen=True)
class Setup:
    """The setup of a store: its name for people, whether it was created now, and its differences from the required setup."""

    name: str
    made: bool
    differences: list[Difference]


def open_store(url: str, overflow: Objects | None = None) -> Store:
    """Opens the store of a URL. Close it after use. Raises StoreError.

    `overflow` takes data that is too large for a row, if the store limits its rows.
    """
    return _driver(url).open(url, overflow)


def create_store(url: str, memory: bool = False) -> Setup:
    """Creates what the store of a URL lacks, and checks it. Idempotent. Raises StoreError.

    `memory`: True for the store of a memory, `memory_of`, whose rows expire.
    """
    driver = _driver(url)
    made = driver.create_memory(url) if memory else driver.create(url)
    found = check_store(url, memory)
    return Setup(found.name, made, found.differences)


def check_store(url: str, memory: bool = False) -> Setup:
    """The differences between the store of a URL and the required setup; changes nothing. Raises StoreError."""
    driver = _driver(url)
    name, differences = driver.check_memory(url) if memory else driver.check(url)
    return Setup(name, False, differences)


def memory_of(url: str) -> str:
    """The URL of the store beside a manifest's store that remembers what was loaded. Raises ValueError as `of_deployment`."""
    return of_deployment(url, "seen")


def checked_url(url: str, local_path: Callable[[str], str]) -> str:
    """The URL of a store in its driver's form, with absolute paths. Raises ValueError that says what is allowed."""
    return _driver(url).checked(url, local_path)


def of_deployment(url: str, deployment: str) -> str:
    """The URL of another deployment's store. Raises ValueError if its driver cannot make one."""
    return _driver(url).of_deployment(url, deployment)


def local_file(url: str) -> str | None:
    """The path of a store's file; None for a store that is not a file."""
    file = _driver(url).file(url)
    return str(file) if file else None


def file_identity(url: str) -> int:
    """The identity of a store's file, which a restored backup or the next demo changes; 0 for a store that is not a file."""
    return _driver(url).file_identity(url)


def notices(url: str) -> Notices | None:
    """Notices of what any process writes to the store of a URL; None if its driver has none."""
    return _driver(url).notices(url)


def _driver(url: str) -> Driver:
    """The driver of a URL's scheme. Raises ValueError with an example URL of each installed driver."""
    scheme, separator, _ = url.partition("://")
    try:
        return _class(scheme if separator else "")()
    except plugins.UnknownPlugin:
        examples = (_class(name).example for name in plugins.names(plugins.STORES))
        raise ValueError(f"allowed: {', '.join(examples)}") from None


def _class(scheme: str) -> type[Driver]:
    return cast(type[Driver], plugins.load(plugins.STORES, scheme))
