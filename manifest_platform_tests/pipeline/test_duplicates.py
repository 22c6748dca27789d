"""Duplicates of events from landing to warehouse: counted in the shred's record, and left out by the load."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from manifest_platform.manifest import Application
from manifest_platform.manifest.stores import create_store, memory_of, open_store
from manifest_platform.operations.bad_rows import bad_rows
from manifest_platform.operations.doctor import Doctor
from manifest_platform.operations.reload import reload
from manifest_platform.operations.tables import states_of_tables
from manifest_platform.pipeline import SHRED
from manifest_platform.pipeline.chosen import shred_chosen
from manifest_platform.pipeline.discovery import discover
from manifest_platform.sources.snowplow.fields import POSITION
from manifest_platform.sources.snowplow.settings import FEED
from manifest_platform_tests.pipeline.shop import EVENTS, Shop, drained, keys, loaded_record
from manifest_platform_tests.pipeline.test_crashes import drained_after_lease
from manifest_platform_tests.pipeline.test_crashes_by_store import kill_at

SENT_AGAIN = 5


def landed(shop: Shop) -> None:
    """Lands two runs. The second has events of the first, an event of its own twice, and a different event under its id."""
    shop.write(0, 1)
    first, second = (next(shop.directory(number).glob("part-*")) for number in (0, 1))
    old, new = first.read_bytes().splitlines(), second.read_bytes().splitlines()
    other = new[0].split(b"\t")
    other[POSITION["event_fingerprint"]] = b"other"
    second.write_bytes(b"\n".join([*new, *old[:SENT_AGAIN], new[1], b"\t".join(other)]) + b"\n")


@pytest.mark.parametrize("across", ["seen", "warehouse"])
def test_copies_are_left_out_counted_and_stay_out_after_a_reload(tmp_path: Path, spark: Any, across: str) -> None:
    shop = Shop(tmp_path, load={"duplicates": across})
    landed(shop)
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
        drained(pipeline, spark)
        second = pipeline.manifest.item(keys(pipeline, 1)[0])
        record = second.processed_by(Application(SHRED))
        assert record is not None
        assert record.data["duplicates"] == {"natural": 1, "synthetic": 2}
        assert record.data["lines"] == record.data["good"] + record.data["bad"] + 1 == EVENTS + SENT_AGAIN + 2
        assert bad_rows(FEED, [record]).duplicates == {"natural": 1, "synthetic": 2}
        loaded = loaded_record(pipeline, 1).data
        assert loaded["rows"]["events"] == EVENTS + 1
        assert f"{SENT_AGAIN} rows of table events were left out" in loaded["told"][0]
        rows = pipeline.warehouse.row_counts()
        assert rows["events"] == 2 * EVENTS + 1
        pipeline.warehouse.close()
        assert shop.doubled_events == []
        reload(pipeline, second.key, "in a test")
        drained(pipeline)
        assert pipeline.warehouse.row_counts() == rows
        pipeline.warehouse.close()
        assert [*states_of_tables(pipeline).differences, *Doctor(pipeline, objects=False).examine().findings] == []


@contextmanager
def memory_beside(store_url: str) -> Generator[str]:
    """Creates the store that remembers what was loaded, as an operator would: for PostgreSQL first a database and a schema."""
    url = memory_of(store_url)
    created = f'CREATE DATABASE "{make_url(url).database}"' if url.startswith("postgresql") else ""
    if created:
        with closing(psycopg.connect(store_url, autocommit=True)) as connection:
            connection.execute(created.encode())
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            connection.execute(f"CREATE SCHEMA {url.rpartition('%3D')[2]}".encode())
    assert create_store(url, memory=True).differences == []
    yield url
    if created:
        with closing(psycopg.connect(store_url, autocommit=True)) as connection:
            connection.execute(created.replace("CREATE", "DROP").encode() + b" WITH (FORCE)")


@pytest.mark.long
@pytest.mark.parametrize("store_url", ["sqlite", "postgresql", "dynamodb"], indirect=True)
def test_a_worker_killed_between_its_claims_and_its_commit_loses_and_doubles_nothing(
    tmp_path: Path, store_url: str, spark: Any
) -> None:
    """Case (c), by processes: each run dies after its claims and after its COMMIT, and events that came again stay out."""
    points = ["load.before_transaction", "load.in_transaction", "load.committed"]
    settings = {"load": {"duplicates": "seen"}, "lease": {"seconds": 1, "max_attempts": 2 * len(points) + 1}}
    shop = Shop(tmp_path, manifest={"store": store_url}, **settings)
    with memory_beside(store_url) as memory:
        landed(shop)
        with shop.open() as pipeline:
            discover(pipeline, everything=True)
            list(shred_chosen(pipeline, lambda: spark, keys(pipeline, 0, 1)))
        for point in [*points, *points]:
            kill_at(shop, point)
        with shop.open() as pipeline:
            assert drained_after_lease(pipeline).failed == 0
            rows = pipeline.warehouse.row_counts()
            assert rows["events"] == 2 * EVENTS + 1
            assert [loaded_record(pipeline, number).data["rows"]["events"] for number in (0, 1)] == [EVENTS, EVENTS + 1]
        with closing(open_store(memory)) as store:
            claims = [row for digit in "0123456789abcdef" for row in store.query(f"shop~load~{digit}", digit)]
    assert len(claims) == len({row.data["id"] for row in claims}) == 2 * EVENTS + 1
    assert shop.doubled_events == []


def test_without_the_setting_an_event_is_there_as_often_as_runs_have_it(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path)
    landed(shop)
    with shop.open() as pipeline:
        discover(pipeline, everything=True)
        drained(pipeline, spark)
        assert loaded_record(pipeline, 1).data["rows"]["events"] == EVENTS + SENT_AGAIN + 1
    assert len(shop.doubled_events) == SENT_AGAIN
