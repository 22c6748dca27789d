"""The manifest store that a configuration names: opened, made and checked.

Belongs here: which driver a URL means. How a driver works is in `manifest`; each is loaded only where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from manifest_platform.config import ManifestConfig
from manifest_platform.manifest import Store
from manifest_platform.manifest.store import Difference
from manifest_platform.storage import ObjectFolder


@dataclass(frozen=True)
class Setup:
    """How a store is set up: its name for people, whether it was made just now, and what is not as it should be."""

    name: str
    made: bool
    differences: list[Difference]


def open_store(config: ManifestConfig) -> Store:
    """The configured store; a SQL one makes its tables at first use. Close it after use. Raises StoreError."""
    if _is_dynamodb(config):
        from manifest_platform.manifest.stores.dynamodb import DynamoDbStore

        return DynamoDbStore(config.store, ObjectFolder(config.overflow) if config.overflow else None)
    from manifest_platform.manifest.stores.sql import SqlStore

    return SqlStore(config.store)


def create_store(config: ManifestConfig) -> Setup:
    """Makes the configured table or tables where they are missing, and checks them. May be repeated. Raises StoreError."""
    if _is_dynamodb(config):
        from manifest_platform.manifest.stores.dynamodb_table import create_table

        made = create_table(config.store)
    else:
        from manifest_platform.manifest.stores.sql import create_database

        made = create_database(config.store)
    found = check_store(config)
    return Setup(found.name, made, found.differences)


def check_store(config: ManifestConfig) -> Setup:
    """How the configured store differs from what it should be; changes nothing. Raises StoreError."""
    if _is_dynamodb(config):
        from manifest_platform.manifest.stores.dynamodb import Address
        from manifest_platform.manifest.stores.dynamodb_table import check_table

        return Setup(str(Address.parse(config.store)), False, check_table(config.store))
    path = _file(config)
    if path and not path.exists():
        return Setup(str(path), False, [Difference("file", "there", "missing", "manifest-platform store create")])
    from manifest_platform.manifest.stores.sql import check_database

    name, differences = check_database(config.store)
    return Setup(name, False, differences)


def file_identity(config: ManifestConfig) -> int:
    """Tells a store's file from another that replaces it: a restored backup, the next demo's. 0 for none."""
    path = _file(config)
    return path.stat().st_ino if path and path.exists() else 0


def _is_dynamodb(config: ManifestConfig) -> bool:
    return config.store.startswith("dynamodb:")


def _file(config: ManifestConfig) -> Path | None:
    return Path(config.store.removeprefix("sqlite:///")) if config.store.startswith("sqlite:") else None
