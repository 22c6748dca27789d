from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from manifest_platform.manifest import Store
from manifest_platform.manifest.stores import open_store
from manifest_platform.manifest.stores.sql import SqlStore


@pytest.fixture
def reopen(tmp_path: Path) -> Callable[[], Store]:
    """Opens the same SQLite store again, as another process would."""
    return lambda: SqlStore(f"sqlite:///{tmp_path}/manifest.db")


@pytest.fixture
def store(reopen: Callable[[], Store]) -> Iterator[Store]:
    """A SQLite store. Most of these tests depend only on the store's contract."""
    opened = reopen()
    yield opened
    opened.close()


@pytest.fixture
def any_store(store_url: str) -> Iterator[Store]:
    """Each of the stores, if all are requested."""
    opened = open_store(store_url)
    yield opened
    opened.close()
