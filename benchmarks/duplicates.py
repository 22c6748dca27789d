"""Events that earlier runs brought: what each choice of `load.duplicates` costs a load, and the requests of `seen` an event.

    python benchmarks/duplicates.py [--repeats 3] [--scale 1]

Runs of 1,000 and of 10,000 events at scale 1, with two entities an event, are loaded into a fresh DuckDB file. Of each run,
one event in twenty came with the run before. The load of the last run is measured:

    off        nothing is looked for
    warehouse  the table of events is asked, within the load's transaction
    seen       a store beside the manifest is asked and takes the claims: a SQLite file
    dynamodb   the same in DynamoDB Local; its requests are those that DynamoDB would be sent

The seconds are those of this process's processor. DynamoDB Local is another process, and its answers come faster than those of
DynamoDB.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pairs import arguments, interleaved, print_figure
from prepared import run_directory, write_listing

from manifest_platform.demo.dynamodb import dynamodb_local
from manifest_platform.listing import Column, Table
from manifest_platform.manifest import Store
from manifest_platform.manifest.stores import create_store, memory_of, open_store
from manifest_platform.sources.snowplow.source import IDENTITY
from manifest_platform.warehouse.apply import Applied, Warehouse
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.load import Load
from manifest_platform.warehouse.repeats import Repeats, Rule
from manifest_platform.warehouse.seen import Seen

SIZES = 1_000, 10_000
RUNS = 3
AGAIN = 20  # of this number of events, one came with the run before
GOAL = 0.035
TIMES = (IDENTITY.time, IDENTITY.made)
EVENTS = Table(
    IDENTITY.table,
    (
        *(Column(name, "string") for name in (IDENTITY.id, IDENTITY.content, "page_url", "useragent")),
        *(Column(name, "timestamp") for name in TIMES),
    ),
    load_time=True,
)
ENTITIES = Table("com_acme_thing_1", (Column(IDENTITY.refers, "string"), Column("name", "string")))
Ask = Callable[[], tuple[Repeats | None, Store | None]]


def loads(root: Path, size: int) -> Iterator[Load]:
    """Yields the loads of runs of this many events."""
    ids = [str(uuid.UUID(int=number * 2**96 + number)) for number in range(RUNS * size)]
    for number in range(RUNS):
        copies = ids[(number - 1) * size :][: size // AGAIN] if number else []
        chosen = [*copies, *ids[number * size : (number + 1) * size]][:size]
        at = pa.array([datetime(2024, 5, 1)] * size, pa.timestamp("us"))
        texts = [chosen, chosen, [f"https://shop.example/{one}" for one in chosen], ["Mozilla/5.0 (X11; Linux x86_64)"] * size]
        events = pa.table([*map(pa.array, texts), *[at] * len(TIMES)], names=[column.name for column in EVENTS.columns])
        named = [one for one in chosen for _ in range(2)]
        entities = pa.table([named, named], names=[column.name for column in ENTITIES.columns])
        listing = write_listing(run_directory(root, number), [(EVENTS, [events]), (ENTITIES, [entities])])
        times = {"min_time": "2024-05-01T00:00:00Z", "max_time": "2024-05-01T00:00:00Z"}
        listing = replace(listing, objects=tuple(replace(one, **times) for one in listing.objects))
        item = listing.item
        yield Load(item, "enriched", item, 1, 1, 1, f"record-{number}", "checksum", listing)


def measured(root: Path, runs: list[Load], ask: Ask, requests: list[float]) -> float:
    """Loads the runs into a fresh warehouse. Returns the seconds of the last; adds its requests an event."""
    repeats, store = ask()
    taken = 0.0
    with closing(DuckDB(root / f"{uuid.uuid4()}.duckdb")) as engine:
        warehouse = Warehouse(engine, "bench")
        for number, run in enumerate(runs):
            before = store.requests if store else 0
            began = time.process_time()
            done = warehouse.apply(replace(run, repeats=repeats, believed=f"record-{number - 1}" if number else ""))
            taken = time.process_time() - began
            assert isinstance(done, Applied), done
            size = run.listing.good
            rows = size - size // AGAIN if repeats and number else size
            assert done.entry.rows == {EVENTS.name: rows, ENTITIES.name: 2 * rows}, done.entry.rows
            if number == len(runs) - 1 and store:
                requests.append((store.requests - before) / size)
    return taken


def remembered(store: Store) -> tuple[Repeats, Store]:
    """Returns the rule of `seen`, with a target of its own, so that nothing is claimed yet."""
    rule = Rule(IDENTITY, days=180, remembered=True)
    return Repeats(rule, Seen(f"bench~{uuid.uuid4()}", rule, lambda: store)), store


def opened(url: str) -> Any:
    """Returns the store of what was loaded that is beside a manifest's."""
    create_store(memory_of(url), memory=True)
    return closing(open_store(memory_of(url)))


def main() -> None:
    options = arguments(__doc__, 3, f"runs of {' and '.join(f'{size:,}' for size in SIZES)} events").parse_args()
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, dynamodb_local(Path(folder) / "log") as server:
        os.environ.update(server.environment)
        root = Path(folder)
        with opened(f"sqlite:///{root}/manifest.db") as sqlite, opened(server.store("manifest")) as dynamodb:
            ways: dict[str, Ask] = {
                "off": lambda: (None, None),
                "warehouse": lambda: (Repeats(Rule(IDENTITY, days=14)), None),
                "seen": partial(remembered, sqlite),
                "dynamodb": partial(remembered, dynamodb),
            }
            for size in (max(AGAIN, int(size * options.scale)) for size in SIZES):
                runs = list(loads(root / str(size), size))
                requests: dict[str, list[float]] = {way: [] for way in ways}
                seconds = interleaved(
                    {way: partial(measured, root, runs, ask, requests[way]) for way, ask in ways.items()}, options.repeats
                )
                print(f"{RUNS} runs of {size:,} events")
                for way, taken in seconds.items():
                    asked = f"{requests[way][-1]:.4f} requests an event" if requests[way] else ""
                    print(f"{way:10} {min(taken) / size * 1e6:8.1f} ms of processor a thousand events   {asked}")
                print_figure(f"requests an event of {size:,}", max(requests["dynamodb"]), GOAL)


if __name__ == "__main__":
    main()
