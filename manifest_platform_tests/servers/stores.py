"""The manifest stores that tests run on, and which test runs on which.

A test that asks for `store`, `store_url` or `reopen` runs on SQLite: it is of rules, which lie above the store's contract, and
every store keeps that. `pytest --stores all` runs it on every store. Two marks say otherwise:

- `every_store` runs on every store always: what a store may get wrong (contract, linearizability, faults, lost answers, kills);
- `stores(*names)` runs on these stores and on no others: what is about them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from manifest_platform.manifest import Store
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, Put, stored_rows
from manifest_platform.manifest.stores import open_store


def _sqlite(request: pytest.FixtureRequest) -> str:
    return f"sqlite:///{request.getfixturevalue('tmp_path')}/manifest.db"


def _postgresql(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("postgres")


def _dynamodb(request: pytest.FixtureRequest) -> str:
    from manifest_platform.manifest.stores.dynamodb.client import Address, open_client
    from manifest_platform.manifest.stores.dynamodb.table import create_table

    url = request.getfixturevalue("dynamodb").store(f"test-{uuid.uuid4().hex[:12]}")
    create_table(url)
    address = Address.parse(url)
    client = open_client(address)

    def remove() -> None:
        """With a thousand tables DynamoDB Local takes more than the five seconds that a client waits."""
        with suppress(client.exceptions.ResourceNotFoundException):  # a test may have removed it
            client.update_table(TableName=address.table, DeletionProtectionEnabled=False)
            client.delete_table(TableName=address.table)

    request.addfinalizer(remove)
    return url


DRIVERS: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "dynamodb": _dynamodb,
}
"""Every store: each gives the URL of a fresh one."""

EMBEDDED = ("sqlite",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stores", choices=("embedded", "all"), default="embedded", help="where rules above the contract run")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs whatever asks for a store on the stores that the module's docstring says."""
    chosen = any("store_url" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "store_url" in metafunc.fixturenames and not chosen:
        metafunc.parametrize("store_url", stores_of(metafunc.definition, metafunc.config.getoption("stores")), indirect=True)


def stores_of(test: pytest.Item, asked: str) -> tuple[str, ...]:
    """The stores that a test runs on. The nearest mark counts; `asked`: what `--stores` says."""
    for mark in test.iter_markers():
        if mark.name == "stores":
            return mark.args
        if mark.name == "every_store":
            return tuple(DRIVERS)
    return tuple(DRIVERS) if asked == "all" else EMBEDDED


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh, empty store."""
    return DRIVERS[request.param](request)


@pytest.fixture
def reopen(store_url: str) -> Callable[[], Store]:
    """Opens the same store once more, as another process would."""
    return lambda: open_store(store_url)


@pytest.fixture
def store(reopen: Callable[[], Store]) -> Iterator[Store]:
    opened = reopen()
    yield opened
    opened.close()


def tampered(url: str, partition: str, prefix: str, change: Callable[[str, dict[str, Any]], bool]) -> bool:
    """Changes the first row of a prefix that `change` changes, behind the manifest's back; whether there was one."""
    with closing(open_store(url)) as store:
        for row in stored_rows(store, partition, prefix):
            if change(row.sort, row.data):
                store.transact(partition, [Put(row.sort, row.data, row.version)], str(uuid.uuid4()))
                return True
    return False


def copied(source: str, target: str, partition: str) -> None:
    """Copies the rows of a partition into a store that has none of it."""
    with closing(open_store(source)) as old, closing(open_store(target)) as new:
        puts = [Put(row.sort, row.data, ABSENT) for row in stored_rows(old, partition, "")]
        for first in range(0, len(puts), MAX_WRITES):
            new.transact(partition, puts[first : first + MAX_WRITES], str(uuid.uuid4()))
