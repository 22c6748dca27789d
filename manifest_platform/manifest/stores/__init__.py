"""Where the manifest is kept: the drivers, their contract, and the one place that chooses a driver by a URL's scheme.

Belongs here: a file for each driver. What an opened store must do is said by `manifest_platform.manifest.store`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from manifest_platform import plugins
from manifest_platform.manifest.store import Difference, Store
from manifest_platform.manifest.stores.driver import Driver, Objects

DEFAULT_URL = "sqlite:///.manifest_platform/manifest.db"
"""The store of a configuration that names none: embedded, its path relative to the configuration's file."""
URL_FORMS = (
    "`sqlite:///path`, the path relative to the file; `postgresql://user@host/database`, by TLS with a certificate of the"
    " host's name unless it has an `?sslmode=`, with `?owner=` where another role owns the tables; or `dynamodb://TABLE`, with"
    " `?region=` and `&endpoint=` where the environment does not say them; its rows hold up to 300 KB, what is larger needs"
    " `overflow`"
)
"""The URLs that the platform's own drivers take, for the reference of the configuration."""


@dataclass(frozen=True)
class Setup:
    """How a store is set up: its name for people, whether it was made just now, and what is not as it should be."""

    name: str
    made: bool
    differences: list[Difference]


def open_store(url: str, overflow: Objects | None = None) -> Store:
    """The store of a URL. Close it after use. Raises StoreError.

    `overflow` takes data that is too large for a row, where the store bounds its rows.
    """
    return _driver(url).open(url, overflow)


def create_store(url: str) -> Setup:
    """Makes what the store of a URL lacks, and checks it. May be repeated. Raises StoreError."""
    made = _driver(url).create(url)
    found = check_store(url)
    return Setup(found.name, made, found.differences)


def check_store(url: str) -> Setup:
    """How the store of a URL differs from what it should be; changes nothing. Raises StoreError."""
    name, differences = _driver(url).check(url)
    return Setup(name, False, differences)


def checked_url(url: str, local_path: Callable[[str], str]) -> str:
    """The URL of a store as its driver wants it, with absolute paths. Raises ValueError with what is allowed."""
    return _driver(url).checked(url, local_path)


def of_deployment(url: str, deployment: str) -> str:
    """The URL of another deployment's store. Raises ValueError where its driver knows of none."""
    return _driver(url).of_deployment(url, deployment)


def local_file(url: str) -> str | None:
    """The path of a store's file; None for a store that is no file."""
    file = _driver(url).file(url)
    return str(file) if file else None


def file_identity(url: str) -> int:
    """The identity of a store's file, which a restored backup or the next demo changes; 0 for a store that is no file."""
    return _driver(url).file_identity(url)


def _driver(url: str) -> Driver:
    """The driver of a URL's scheme. Raises ValueError with an example of each that is installed."""
    scheme, separator, _ = url.partition("://")
    try:
        return _class(scheme if separator else "")()
    except plugins.UnknownPlugin:
        examples = (_class(name).example for name in plugins.names(plugins.STORES))
        raise ValueError(f"allowed: {', '.join(examples)}") from None


def _class(scheme: str) -> type[Driver]:
    return cast(type[Driver], plugins.load(plugins.STORES, scheme))
