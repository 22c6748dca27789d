"""Manifests of many items that are done, written straight into a store: what a year of work leaves.

Belongs here: rows as the work would have left them. That they are such rows, the benchmarks check by asking the manifest.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from manifest_platform.manifest import LANDED, OUTPUT, Application, ItemKey, Landed, Manifest, Record, State, Step, StepState
from manifest_platform.manifest.keys import record_key, state_key
from manifest_platform.manifest.stores.sql import SqlStore

if TYPE_CHECKING:
    from manifest_platform.demo.dynamodb import DynamoDbLocal

FEED = "enriched"
SHRED, LOAD = Application("shred"), Application("load")
STEPS = [Step(SHRED), Step(LOAD, upstream=("shred",), order="strict")]
START = datetime(2024, 1, 1, tzinfo=UTC)
EVENTS = (
    (State.NEW, Application("discover"), LANDED),
    (State.PROCESSING, SHRED, None),
    (State.PROCESSED, SHRED, OUTPUT),
    (State.PROCESSING, LOAD, None),
    (State.PROCESSED, LOAD, OUTPUT),
)
Row = tuple[str, str, int, str]
KeyOf = Callable[[int], ItemKey]


def item_key(number: int) -> ItemKey:
    """The key of the number-th run: one every minute."""
    sort = f"{START + timedelta(minutes=number):%Y-%m-%d-%H-%M-%S}"
    return ItemKey(FEED, sort, f"s3://bucket/enriched/run={sort}")


def rows(dataset: str, items: int) -> Iterator[Row]:
    """All rows of a dataset whose items are discovered, shredded and loaded: partition, sort key, version, data."""
    last = item_key(items - 1)
    yield from records(dataset, items, item_key)
    done = StepState().with_feed(FEED, watermark=last.position, swept=item_key(max(0, items - 2)).position, applied=items)
    yield dataset, state_key(LOAD), items, json.dumps(done.to_dict())


def records(dataset: str, items: int, key_of: KeyOf, starts: bool = False) -> Iterator[Row]:
    """The rows of the records alone. With `starts` an item is a window: from the sort key of the one before it to its own."""
    templates = [_template(sequence, *event) for sequence, event in enumerate(EVENTS, start=1)]
    if starts:
        templates = [text.replace('"start":null,"stop":null', '"start":"<","stop":">"') for text in templates]
    for number in range(items):
        key = key_of(number)
        prefix = record_key(key, 0)[:-1]
        for sequence, text in enumerate(templates, start=1):
            if starts and sequence == 1:
                text = text.replace("<", key_of(number - 1).sort).replace(">", key.sort)
            yield dataset, f"{prefix}{sequence}", 1, text.replace("@", key.id).replace("%", f"{number:012d}")


def _template(sequence: int, state: State, application: Application, schema: str | None) -> str:
    """A record's stored form; `@` stands for the item's id, `%` for its number."""
    data = {
        LANDED: {"uri": "@", "files": 4, "bytes": 1_000_000, "checksum": "0" * 32, "start": None, "stop": None},
        OUTPUT: {"rows": 1000, "bytes": 100_000},
    }
    points_at = {State.PROCESSING: 1, State.PROCESSED: sequence - 1}.get(state)
    record = {
        "item": "@",
        "sequence": sequence,
        "record_id": f"00000000-0000-400{sequence}-8000-%",
        "previous": points_at and f"00000000-0000-400{points_at}-8000-%",
        "state": str(state),
        "application": {"name": application.name, "version": "1", "instance": None},
        "author": "benchmark",
        "run_id": None,
        "timestamp": "2024-01-01T00:00:00.000000Z",
        "epoch": 1 if application == LOAD else None,
        "token": None if application.name == "discover" else 1,
        "payload": {"schema": schema, "data": data[schema]} if schema else None,
    }
    return json.dumps(record, separators=(",", ":"))


def fill_sqlite(file: Path, datasets: dict[str, int]) -> None:
    """A SQLite store with the given number of done items in each dataset."""
    put_sqlite(file, chain.from_iterable(rows(dataset, items) for dataset, items in datasets.items()))


def put_sqlite(file: Path, every: Iterable[Row]) -> None:
    """A SQLite store with these rows."""
    SqlStore(f"sqlite:///{file}").close()
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO manifest (partition, sort, version, data) VALUES (?, ?, ?, ?)", every)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def put_dynamodb(server: DynamoDbLocal, table: str, every: Iterator[Row]) -> None:
    """Puts these rows into a table of a DynamoDB Local, whose environment this process has."""
    import boto3

    from manifest_platform.demo.dynamodb import REGION

    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=server.endpoint)

    def write(batch: list[Row]) -> None:
        puts = [{"PutRequest": {"Item": _item(*row)}} for row in batch]
        left = client.batch_write_item(RequestItems={table: puts})
        assert not left["UnprocessedItems"]

    with ThreadPoolExecutor(4) as pool:
        while some := list(islice(every, 25_000)):
            list(pool.map(write, [some[at : at + 25] for at in range(0, len(some), 25)]))


def _item(partition: str, sort: str, version: int, data: str) -> dict:
    return {"partition": {"S": partition}, "sort": {"S": sort}, "version": {"N": str(version)}, "data": {"S": data}}


def check(manifest: Manifest, items: int) -> None:
    """Raises AssertionError if the manifest does not take its rows for done items, by the last and by what it keeps."""
    item = manifest.item(item_key(items - 1))
    assert not item.problems, item.problems
    assert item.landed == Landed(item.key, 4, 1_000_000, "0" * 32)
    assert item.processed_by(SHRED)
    assert item.processed_by(LOAD, 1)
    assert manifest.state(LOAD).feed(FEED).applied == items
    assert all(isinstance(record, Record) for record in item.records)
