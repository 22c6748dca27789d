"""The estimated cost of an item, compared with that of its writes. DynamoDB Local charges all transactions alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from manifest_platform.manifest import Failure, FailureKind, Manifest, Payload, Store
from manifest_platform.manifest.cost import Cost, cost_of
from manifest_platform.manifest.keys import lease_key
from manifest_platform.manifest.records import OUTPUT
from manifest_platform.manifest.store import Put, Write
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    LOAD,
    SHRED,
    claim_next,
    discover,
    key,
    land,
    lease,
    load_next,
    manifest,
    shred,
)


class Counting:
    """A store that adds up the price of its transactions by the published prices."""

    def __init__(self, store: Store):
        self.store = store
        self.get, self.get_many, self.query, self.close = store.get, store.get_many, store.query, store.close
        self.requests, self.units, self.transactions = 0, None, 0
        self.write_units = 0

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        self.store.transact(partition, writes, token)
        if [write.sort for write in writes] in [[lease_key(one, FEED)] for one in (SHRED, LOAD)]:
            return  # the lease is acquired or released
        self.transactions += 1
        for write in writes:
            row = self.store.get(partition, write.sort)
            data = write.data if isinstance(write, Put) else row.data if row else {}
            size = len(f"{partition}{write.sort}partitionsortversiondata1{json.dumps(data, separators=(',', ':'))}".encode())
            self.write_units += 2 * (size // 1024 + (size % 1024 > 0))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Counting]:
    opened = SqlStore(f"sqlite:///{tmp_path}/manifest.db")
    yield Counting(opened)
    opened.close()


def cost(of: Manifest, number: int) -> Cost:
    steps = of.steps(FEED)
    states = {step.application.key: of.state(step.application) for step in steps}
    leases = {step.application.key: of.lease(step.application, FEED) for step in steps}
    return cost_of(of.item(key(number)), of.dataset, steps, states, {name: held for name, held in leases.items() if held})


def loads(shop: Manifest) -> None:
    load_next(shop)


def fails_and_loads(shop: Manifest) -> None:
    with lease(shop) as held:
        shop.fail(claim_next(shop, held), Failure(FailureKind.TRANSIENT, "no"))
        shop.complete(claim_next(shop, held), DONE)


def fails_for_good(shop: Manifest) -> None:
    with lease(shop) as held:
        shop.fail(claim_next(shop, held), Failure(FailureKind.PERMANENT, "no", traceback="x" * 3000))
    shop.resolve(key(2), "mended")


def is_skipped(shop: Manifest) -> None:
    shop.skip(key(2), "not needed")


def has_a_large_output(shop: Manifest) -> None:
    with lease(shop) as held:
        shop.complete(
            claim_next(shop, held), Payload(OUTPUT, {"rows": {f"table_{number:03d}": number for number in range(300)}})
        )


@pytest.mark.parametrize("then", [loads, fails_and_loads, fails_for_good, is_skipped, has_a_large_output])
def test_the_estimate_equals_the_price_of_the_writes(store: Counting, then: Callable[[Manifest], None]) -> None:
    shop = manifest(cast(Store, store))
    land(shop, 1)
    load_next(shop)
    units, transactions = store.write_units, store.transactions
    discover(shop, 2)
    shred(shop, 2)
    then(shop)
    told = cost(shop, 2)
    assert (told.units.write, told.transactions) == (store.write_units - units, store.transactions - transactions)
    rows = [row for row in store.query(shop.dataset, "") if key(2).position in row.sort]
    assert (told.records, told.rows) == (len(shop.history(key(2))), len([row for row in rows if row.sort[:5] != "LEASE"]))


def test_an_item_without_failures_is_within_the_budget(store: Counting) -> None:
    shop = manifest(cast(Store, store))
    land(shop, 1)
    load_next(shop)
    assert cost(shop, 1).units.write <= 26


def test_the_waiting_row_of_an_item_is_counted(store: Counting) -> None:
    shop = manifest(cast(Store, store))
    discover(shop, 1)
    assert (cost(shop, 1).records, cost(shop, 1).rows) == (1, 2)
    shred(shop, 1)
    assert (cost(shop, 1).records, cost(shop, 1).rows) == (3, 3)
