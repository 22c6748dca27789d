"""What a full load costs the manifest, by how many windows it makes pending again.

python benchmarks/rewind.py [--repeats 9] [--scale 1] [--dynamodb]

begin    `full begin` of a snapshot of the vault's first day, with a hundred windows applied behind it and with a hundred
         thousand: the requests to the store and what it charges, which must be the same, and the seconds, each the median of
         ten. On SQLite, and with --dynamodb on DynamoDB Local, which takes minutes to fill; its seconds are told, not judged
end      the write that ends the full load, and so makes all of them pending again: its requests, and what is next after it
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NoReturn

import yaml
from filled import Row, put_dynamodb, put_sqlite, records
from pairs import arguments, interleaved, print_figure, print_ratio

from manifest_platform import config
from manifest_platform.manifest import OUTPUT, Application, ItemKey, Landed, Payload, Ready, StepState
from manifest_platform.manifest.dataset import BEYOND_IDS, Mode
from manifest_platform.manifest.keys import state_key
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.pipeline.full import Begun, begin, cancel
from manifest_platform.sources.veeva.layout import item_uri, minute, window_name

SMALL, LARGE = 100, 100_000
BEGUN = 10
QUARTER = timedelta(minutes=15)
FIRST = datetime(2020, 1, 1, tzinfo=UTC)
VAULT = "1001"


def root(dataset: str) -> str:
    return f"s3://bucket/{dataset}"


def snapshot(dataset: str) -> ItemKey:
    """The key of a vault's first snapshot."""
    return ItemKey("full", minute(FIRST), item_uri(root(dataset), VAULT, window_name("full", FIRST)))


def window(dataset: str, number: int) -> ItemKey:
    """The key of the number-th window behind the first snapshot, counted from 0; of -1 the sort key is the snapshot's."""
    stop = FIRST + (number + 1) * QUARTER
    return ItemKey("incr", minute(stop), item_uri(root(dataset), VAULT, window_name("incr", stop)))


def rows(dataset: str, windows: int) -> Iterator[Row]:
    """All rows of a vault with the given number of windows applied behind its first snapshot."""
    yield from records(dataset, windows, partial(window, dataset), starts=True)
    last, before = window(dataset, windows - 1), window(dataset, windows - 2)
    boundary = f"{minute(FIRST)}#{BEYOND_IDS}"
    standing = {"watermark": last.position, "swept": before.position, "stop": last.sort, "boundary": boundary}
    done = StepState(boundary=minute(FIRST)).with_feed("incr", **standing, applied=windows)
    yield dataset, state_key(Application(LOAD)), windows, json.dumps(done.to_dict())


def configured(home: Path, store: str, names: Iterable[str]) -> config.Config:
    """The configuration of the vaults."""
    datasets = {
        name: {
            "source": "veeva",
            "vault": {"id": VAULT},
            "landing": {"root": root(name)},
            "shred": {"output": str(home / name)},
        }
        for name in names
    }
    file = home / "manifest_platform.yaml"
    whole = {"datasets": datasets, "manifest": {"store": store}, "warehouse": {"path": "warehouse.duckdb"}}
    file.write_text(yaml.safe_dump(whole))
    return config.load(file)


def no_spark() -> NoReturn:
    raise AssertionError("the snapshot is shredded")


def land(pipeline: Pipeline) -> None:
    """The snapshot has landed, and is shredded."""
    manifest = pipeline.manifest
    key = snapshot(pipeline.name)
    manifest.discover("full", [Landed(key, 4, 1_000_000, "0" * 32, minute(FIRST), minute(FIRST))])
    with pipeline.lease("full", SHRED) as lease:
        [claim] = manifest.claim(lease, [manifest.item(key)])
        manifest.complete(claim, Payload(OUTPUT, {"listing": "listing.json", "bytes": 1}))


def begun(pipeline: Pipeline) -> tuple[float, int, float | None]:
    """The seconds of `full begin`, its requests, and the units that the store charges for its writes, if it charges."""
    store = pipeline.manifest.store
    requests, units, started = store.requests, store.units, time.perf_counter()
    *_, last = begin(pipeline, no_spark, snapshot(pipeline.name).id, "to measure")
    seconds = time.perf_counter() - started
    assert isinstance(last, Begun)
    return seconds, store.requests - requests, store.units.write - units.write if store.units and units else None


def ended(pipeline: Pipeline, windows: int) -> int:
    """The requests of the write that ends a full load. All windows are pending behind it, and the first window is next."""
    manifest = pipeline.manifest
    with pipeline.lease("full", LOAD) as lease:
        ready = manifest.next("full", LOAD, holding=True)
        assert isinstance(ready, Ready)
        [claim] = manifest.claim(lease, [ready.item], ready.state)
        before = manifest.store.requests
        manifest.complete(claim, Payload(OUTPUT, {"rows": {}}))
        used = manifest.store.requests - before
    state = manifest.state(Application(LOAD))
    assert (state.mode, state.feed("incr").applied) == (Mode.INCREMENTAL, 0)
    verdict = manifest.next("incr", LOAD)
    assert isinstance(verdict, Ready)
    assert verdict.item.key == window(pipeline.name, 0), verdict
    serving = state.feed("incr").serving_epoch
    for number in (0, windows // 2, windows - 1):
        item = manifest.item(window(pipeline.name, number))
        assert item.processed_by(Application(LOAD), 1)
        assert not item.processed_by(Application(LOAD), serving), "it is to be loaded anew"
    return used


def measure(store: str, settings: config.Config, sizes: dict[str, int], repeats: int) -> None:
    """Prints what `full begin` takes on each of the datasets. Raises AssertionError where their requests differ."""
    pipelines = {name: Pipeline(settings, name) for name in sizes}
    counts: dict[str, list[int]] = {name: [] for name in sizes}
    units: dict[str, list[float | None]] = {name: [] for name in sizes}

    def some(name: str) -> float:
        taken = []
        for _ in range(BEGUN):
            seconds, requests, written = begun(pipelines[name])
            counts[name].append(requests)
            units[name].append(written)
            taken.append(seconds)
            cancel(pipelines[name], "to begin it again")
        return statistics.median(taken)

    try:
        for pipeline in pipelines.values():
            land(pipeline)
        ways: dict[str, Callable[[], float]] = {name: partial(some, name) for name in sizes}
        seconds = interleaved(ways, repeats)
        ends = {}
        for name, pipeline in pipelines.items():
            begun(pipeline)
            ends[name] = ended(pipeline, sizes[name])
    finally:
        for pipeline in pipelines.values():
            pipeline.close()
    for name, windows in sizes.items():
        requests = "/".join(map(str, sorted(set(counts[name]))))
        middle = statistics.median(seconds[name]) * 1e3
        charged = "" if units[name][-1] is None else f", {units[name][-1]:g} write units"
        print(
            f"{store:9} {windows:8,} windows: {requests} requests{charged}, p50 {middle:7.3f} ms; its end: {ends[name]} request"
        )
    small, large = counts.values()
    assert set(small) == set(large), f"the requests depend on the windows: {counts}"
    assert units["small"] == units["large"], f"the units depend on the windows: {units}"
    assert len(set(ends.values())) == 1, f"the requests depend on the windows: {ends}"
    print_figure(f"requests, large / small, {store}", max(large) / max(small), 1)
    if all(charged is None for charged in units["small"]):  # DynamoDB Local reads on to the end of a partition
        print_ratio(f"a full load begun, {store}", seconds, "large", "small", 1.2)


def main() -> None:
    parser = arguments(__doc__, 5, f"{LARGE:,} windows")
    parser.add_argument("--dynamodb", action="store_true", help="also on DynamoDB Local")
    options = parser.parse_args()
    sizes = {"small": SMALL, "large": int(LARGE * options.scale)}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        put_sqlite(home / "manifest.db", chain.from_iterable(rows(name, count) for name, count in sizes.items()))
        measure("SQLite", configured(home, "sqlite:///manifest.db", sizes), sizes, options.repeats)
        if options.dynamodb:
            on_dynamodb(home, sizes, options.repeats)


def on_dynamodb(home: Path, sizes: dict[str, int], repeats: int) -> None:
    """The same on DynamoDB Local."""
    from manifest_platform.demo.dynamodb import dynamodb_local
    from manifest_platform.manifest.stores.dynamodb.table import create_table

    with dynamodb_local(home / "log") as server:
        os.environ.update(server.environment)
        create_table(server.store("manifest"))
        for name, count in sizes.items():
            put_dynamodb(server, "manifest", rows(name, count))
        measure("DynamoDB", configured(home, server.store("manifest"), sizes), sizes, repeats)


if __name__ == "__main__":
    main()
