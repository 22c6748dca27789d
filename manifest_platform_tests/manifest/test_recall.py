"""A store that is replaced or restored while processes have it open: they forget what they knew of the earlier store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from manifest_platform.manifest import Manifest, Memory, Step, Store
from manifest_platform.manifest.keys import ID
from manifest_platform.manifest.store import Delete
from manifest_platform.manifest.stores.dynamodb.store import DynamoDbStore
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform.manifest.takeover import Places, TakenOver
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    HOUR,
    LOAD,
    SHRED,
    Clock,
    claim_next,
    discover,
    key,
    land,
    landed,
    lease,
    load_next,
    manifest,
    steps,
)


def table_of(store: SqlStore) -> str:
    """The table's name, with its schema if the connection has no search path for it."""
    return f'"{schema}".manifest' if (schema := store._database.schema) else "manifest"


def contents(store: Store) -> Any:
    """All rows with their versions, as in a backup."""
    if isinstance(store, SqlStore):
        with store._database.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {table_of(store)}").fetchall()]
    assert isinstance(store, DynamoDbStore)
    return store._client.scan(TableName=store._address.table, ConsistentRead=True)["Items"]


def put_back(store: Store, rows: Any) -> None:
    """Restores the rows in place. Processes that have the store open do not notice it."""
    if isinstance(store, SqlStore):
        with store._database.engine.begin() as connection:
            store._database.begin(connection, [])
            connection.exec_driver_sql(f"DELETE FROM {table_of(store)}")
            mark = "?" if connection.dialect.name == "sqlite" else "%s"
            connection.exec_driver_sql(f"INSERT INTO {table_of(store)} VALUES ({mark}, {mark}, {mark}, {mark})", rows)
        return
    assert isinstance(store, DynamoDbStore)
    for row in contents(store):
        found = {name: row[name] for name in ("partition", "sort")}
        store._client.delete_item(TableName=store._address.table, Key=found)
    for row in rows:
        store._client.put_item(TableName=store._address.table, Item=row)


@pytest.fixture
def shop(store: Store) -> Manifest:
    """A manifest with a loaded item and a shredded item."""
    of = manifest(TakenOver(store, Places.of({FEED: steps()}), Clock()))
    land(of, 1, 2)
    load_next(of)
    return of


@pytest.mark.every_store
def test_items_that_a_restored_store_lacks_are_discovered_again(store: Store, shop: Manifest) -> None:
    """A sensor knew items that the restored store lacked, and did not register them again until its process ended."""
    backup = contents(store)
    assert discover(shop, 3) == ["new"]
    put_back(store, backup)
    assert discover(shop, 3) == ["known"]  # still remembered
    assert not shop.recall()
    assert shop.recall()
    assert discover(shop, 1, 3) == ["known", "new"]


@pytest.mark.every_store
def test_the_knowledge_of_a_replaced_store_is_forgotten(store: Store, shop: Manifest, reopen: Callable[[], Store]) -> None:
    shop.recall()
    for row in store.query("shop", ""):
        store.transact("shop", [Delete(row.sort, row.version)], f"delete {row.sort}")
    assert not shop.recall()
    assert discover(shop, 1) == ["new"]
    row = store.get("shop", ID)
    assert row and row.data["id"] != shop.memory.id
    assert shop.recall()
    assert row.data["id"] == shop.memory.id


def test_an_unchanged_store_is_recognized_with_one_request(store: Store, shop: Manifest) -> None:
    other = manifest(store)
    discover(other, 3)
    load_next(other)
    with lease(other, SHRED) as held:
        other.complete(claim_next(other, held), DONE)
    before = store.requests
    assert shop.recall()
    assert store.requests - before == 1
    before = store.requests
    assert discover(shop, 1, 2) == ["known", "known"]
    assert store.requests == before


def test_recall_without_any_knowledge_makes_no_request(store: Store) -> None:
    fresh, before = manifest(store), store.requests
    assert fresh.recall()
    assert store.requests == before


def test_a_record_that_was_only_read_is_a_witness_too(store: Store, shop: Manifest) -> None:
    backup = contents(store)
    load_next(manifest(store))
    reader = manifest(store)
    assert [item.key for item in reader.items(FEED)] == [key(1), key(2)]
    put_back(store, backup)
    assert not reader.recall()


def test_the_memory_of_another_process_must_hold_as_well(store: Store, shop: Manifest) -> None:
    """A sensor's cursor outlives its process."""
    backup = contents(store)
    assert discover(shop, 3) == ["new"]
    cursor = shop.memory.with_newest(Memory())
    assert manifest(store).recall(cursor)
    put_back(store, backup)
    assert not manifest(store).recall(cursor)
    assert manifest(store).recall(Memory())
    assert not manifest(store).recall(Memory("0d4ad1a5-0000-4000-8000-000000000000"))


def test_a_lease_given_back_before_the_store_was_set_back_is_read_again(store: Store) -> None:
    """The lease's row again had the version under which it was given back. Another worker held it, and both worked."""
    clock = Clock()
    of, other = manifest(store, clock=clock), manifest(store, clock=clock)
    land(of, 1)
    backup = contents(store)
    load_next(of)
    put_back(store, backup)
    version = of._leases[LOAD.key, FEED].given_back
    held = lease(other, holder="other")
    while version and held._state.version < version.version:
        held.heartbeat()
    of.recall()
    with pytest.raises(Exception, match="other"):
        lease(of)
    held.leave()


def test_a_commit_number_is_given_again_after_the_store_was_set_back(store: Store) -> None:
    """The numbers of commits have no gaps: merging waits for the next number."""
    declared = {FEED: [Step(SHRED, numbered=True)]}

    def opened() -> Manifest:
        return Manifest(store, "shop", declared, "test", clock=Clock())

    of = opened()
    discover(of, 1, 2)
    backup = contents(store)
    with of.acquire(FEED, "shred", "worker", HOUR) as held:
        for claim in of.claim(held, [of.item(key(number)) for number in (1, 2)]):
            of.complete(claim, DONE)
    assert [commit.number for commit in of.commits()] == [1, 2]
    put_back(store, backup)
    of.recall()
    of.discover(FEED, [landed(3)])
    with of.acquire(FEED, "shred", "worker", HOUR) as held:
        [claim] = of.claim(held, [of.item(key(3))])
        of.complete(claim, DONE)
    assert [commit.number for commit in of.commits()] == [1]
