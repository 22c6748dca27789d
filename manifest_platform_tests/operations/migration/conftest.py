from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from manifest_platform.manifest import Store
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform_tests.manifest.conftest import DRIVERS, open_store
from manifest_platform_tests.servers.dynamodb import dynamodb, dynamodb_server
from manifest_platform_tests.servers.postgres import postgres, postgres_server

__all__ = ["dynamodb", "dynamodb_server", "postgres", "postgres_server"]


@pytest.fixture
def reopen(tmp_path: Path) -> Callable[[], Store]:
    """Opens the same SQLite store once more, as another process would."""
    return lambda: SqlStore(f"sqlite:///{tmp_path}/manifest.db")


@pytest.fixture
def store(reopen: Callable[[], Store]) -> Iterator[Store]:
    """A SQLite store: most of what is tested here rests on the contract alone, which every store holds."""
    opened = reopen()
    yield opened
    opened.close()


@pytest.fixture(params=DRIVERS)
def any_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each of the stores."""
    opened = open_store(DRIVERS[request.param](request))
    yield opened
    opened.close()
