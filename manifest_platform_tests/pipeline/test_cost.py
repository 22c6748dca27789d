"""The cost of a run in DynamoDB from discovery to load, including the drain's own requests."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from manifest_platform.demo.dynamodb import DynamoDbLocal
from manifest_platform.manifest.store import Put, Write
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.pipeline.discovery import discover
from manifest_platform_tests.pipeline.shop import Shop, drained

RUNS = 24
REQUESTS, WRITE_UNITS = 8, 26


def priced(writes: Sequence[Write]) -> int:
    """The write units of a transaction as AWS documents them: two for each started kilobyte of each row.

    DynamoDB Local rounds their sum instead, so its account alone would flatter. A put by itself is half the price.
    """
    [first, *others] = writes
    twice = 1 if isinstance(first, Put) and first.lasting and not others else 2
    return twice * sum(math.ceil((200 + len(json.dumps(one.data) if isinstance(one, Put) else "")) / 1024) for one in writes)


def test_a_run_costs_few_requests_and_units(
    tmp_path: Path, spark: Any, dynamodb: DynamoDbLocal, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = dynamodb.store("cost")
    create_table(url)
    shop = Shop(tmp_path, manifest={"store": url})
    shop.write(*range(RUNS), events=1)
    with shop.open() as pipeline:
        store, price = pipeline.manifest.store, []
        transact = store.transact

        def noted(partition: str, writes: Sequence[Write], token: str) -> None:
            transact(partition, writes, token)
            price.append(priced(writes))  # the first write to a store is refused once: it takes the store over

        monkeypatch.setattr(store, "transact", noted)
        discover(pipeline)
        _, report = drained(pipeline, spark)
        assert report.loaded == RUNS
        assert store.units is not None
        assert store.requests / RUNS <= REQUESTS
        assert store.units.write / RUNS <= sum(price) / RUNS <= WRITE_UNITS
