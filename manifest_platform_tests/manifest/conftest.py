from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from manifest_platform.manifest import Store
from manifest_platform.manifest.stores.dynamodb import DynamoDbStore
from manifest_platform.manifest.stores.dynamodb_table import create_table
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform_tests.servers.dynamodb import dynamodb, dynamodb_server
from manifest_platform_tests.servers.postgres import postgres, postgres_server

__all__ = ["dynamodb", "dynamodb_server", "postgres", "postgres_server"]


def _sqlite(request: pytest.FixtureRequest) -> str:
    return f"sqlite:///{request.getfixturevalue('tmp_path')}/manifest.db"


def _postgresql(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("postgres")


def _dynamodb(request: pytest.FixtureRequest) -> str:
    url = request.getfixturevalue("dynamodb").store(f"test-{uuid.uuid4().hex[:12]}")
    create_table(url)
    return url


DRIVERS: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "dynamodb": _dynamodb,
}
"""The stores that every test of the manifest runs on: each gives the URL of a fresh one."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every store for whatever asks for one; for tests of rules that lie above the contract, those that their module names.

    The contract, the cases, epochs, faults and misuse run on all.
    """
    chosen = any("store_url" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "store_url" in metafunc.fixturenames and not chosen:
        marker = metafunc.definition.get_closest_marker("stores")
        metafunc.parametrize("store_url", marker.args if marker else tuple(DRIVERS), indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str:
    return DRIVERS[request.param](request)


def open_store(url: str) -> Store:
    return DynamoDbStore(url) if url.startswith("dynamodb:") else SqlStore(url)


@pytest.fixture
def reopen(store_url: str) -> Callable[[], Store]:
    """Opens the same store once more, as another process would."""
    return lambda: open_store(store_url)


@pytest.fixture
def store(reopen: Callable[[], Store]) -> Iterator[Store]:
    opened = reopen()
    yield opened
    opened.close()
