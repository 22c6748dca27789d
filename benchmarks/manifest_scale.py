"""The cost of a growing manifest: a query, an overview, an import.

python benchmarks/manifest_scale.py [--repeats 5] [--scale 1] [--dynamodb]

next     the next item of a feed of a thousand items, and of a million (SQLite; with --dynamodb, of 200,000 on
         DynamoDB Local, which takes minutes to fill). Each query is repeated, and the median is reported
status   the command, process and all, over 100 feeds of a million items together
import   of manifest_platform.manifest, in a fresh process, beyond what the bare interpreter takes
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import yaml
from filled import FEED, LOAD, STEPS, check, fill_sqlite, item_key, put_dynamodb, rows
from pairs import Seconds, arguments, interleaved, print_figure, print_medians, print_ratio

from manifest_platform.manifest import Blocked, Idle, Landed, Manifest, Store
from manifest_platform.manifest.stores.sql import SqlStore

SMALL, LARGE, FEEDS = 1_000, 1_000_000, 100
ASKED = 200
PYTHON = sys.executable


def ask(manifest: Manifest) -> float:
    """Seconds of the median of many questions for what is next."""
    taken = []
    for _ in range(ASKED):
        began = time.perf_counter()
        manifest.next(FEED, LOAD.key)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def next_of(store: Store, sizes: Mapping[str, int], repeats: int) -> Seconds:
    """Asks what is next in each dataset, one item of which waits; the seconds of a question."""
    ways: dict[str, Callable[[], float]] = {}
    for dataset, items in sizes.items():
        manifest = Manifest(store, dataset, {FEED: STEPS}, "benchmark")
        check(manifest, items)
        assert isinstance(manifest.next(FEED, LOAD.key), Idle)
        manifest.discover(FEED, [Landed(item_key(items), 1, 1, "checksum")])
        verdict = manifest.next(FEED, LOAD.key)
        assert isinstance(verdict, Blocked)
        assert verdict.item.key == item_key(items), verdict
        before = store.requests
        manifest.next(FEED, LOAD.key)
        print(f"{dataset:10} {items:9,} items, {store.requests - before} requests")
        ways[dataset] = partial(ask, manifest)
    seconds = interleaved(ways, repeats)
    for way, taken in seconds.items():
        print(f"{way:10} p50 {statistics.median(taken) * 1e3:6.3f} ms")
    return seconds


def run(*command: str, **environment: str) -> float:
    """Seconds of a process."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    return time.perf_counter() - began


def configure(home: Path, datasets: list[str]) -> Path:
    """A configuration of datasets whose manifest is the file that was filled."""
    one = {name: {"landing": {"root": name}, "shred": {"output": f"{name}-out", "schemas": ["schemas"]}} for name in datasets}
    file = home / "manifest_platform.yaml"
    file.write_text(yaml.safe_dump({"datasets": one, "manifest": {"store": "sqlite:///feeds.db"}}))
    return file


def main() -> None:
    parser = arguments(__doc__, 3, f"{LARGE:,} items")
    parser.add_argument("--dynamodb", action="store_true", help="also ask a feed of 200,000 items on DynamoDB Local")
    options = parser.parse_args()
    large = int(LARGE * options.scale)
    with tempfile.TemporaryDirectory() as root:
        home = Path(root)
        fill_sqlite(home / "feed.db", {"small": SMALL, "large": large})
        store = SqlStore(f"sqlite:///{home}/feed.db")
        asked = next_of(store, {"small": SMALL, "large": large}, options.repeats)
        print_ratio("next, SQLite", asked, "large", "small", 1.2)
        store.close()
        (home / "feed.db").unlink()

        datasets = [f"feed{number:03d}" for number in range(FEEDS)]
        fill_sqlite(home / "feeds.db", dict.fromkeys(datasets, large // FEEDS))
        file = configure(home, datasets)
        command = (PYTHON, "-m", "manifest_platform", "status", "--config", str(file))
        seconds = interleaved({"status": partial(run, *command)}, options.repeats)
        print_medians(seconds)
        print_figure(f"status, {FEEDS} feeds", statistics.median(seconds["status"]), 1, " s")

        importing = {
            "import": partial(run, PYTHON, "-c", "import manifest_platform.manifest"),
            "bare": partial(run, PYTHON, "-c", ""),
        }
        seconds = interleaved(importing, 3 * options.repeats)
        print_medians(seconds)
        beyond = [whole - bare for whole, bare in zip(seconds["import"], seconds["bare"], strict=True)]
        print_figure("import", statistics.median(beyond), 0.2, " s")
        if options.dynamodb:
            asked = next_on_dynamodb(home, int(200_000 * options.scale), options.repeats)
            print_ratio("next, DynamoDB", asked, "large", "small", 1.2)


def next_on_dynamodb(home: Path, items: int, repeats: int) -> Seconds:
    """The same on DynamoDB Local."""
    from manifest_platform.demo.dynamodb import dynamodb_local
    from manifest_platform.manifest.stores.dynamodb.store import DynamoDbStore
    from manifest_platform.manifest.stores.dynamodb.table import create_table

    with dynamodb_local(home / "log") as server:
        os.environ.update(server.environment)
        create_table(server.store("manifest"))
        sizes = {"small": SMALL, "large": items}
        for dataset, count in sizes.items():
            put_dynamodb(server, "manifest", rows(dataset, count))
        store = DynamoDbStore(server.store("manifest"))
        try:
            return next_of(store, sizes, repeats)
        finally:
            store.close()


if __name__ == "__main__":
    main()
