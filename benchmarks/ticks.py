"""What a tick of the listing sensor costs, whatever waits or failed.

python benchmarks/ticks.py [--scale 1]

requests   of the manifest's store, by a tick that finds nothing new, at 0, 100 and 10,000 runs that wait, and that failed
seconds    of such a tick at 100,000 runs that are loaded and 10,000 that failed
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import dagster as dg
import yaml
from filled import SHRED, START, STEPS, Row, item_key, put_sqlite, rows
from pairs import arguments, print_figure

from manifest_platform.manifest import Failure, FailureKind, Item, Landed, State
from manifest_platform.manifest.beside import rows_of
from manifest_platform.manifest.keys import record_key
from manifest_platform.manifest.records import Stamp
from manifest_platform.manifest.transitions import append
from manifest_platform.orchestration import listing
from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.resources import ManifestResource

DATASET = "shop"
SIZES = (0, 100, 10_000)
LOADED = 100_000
QUIET = 40
"""Ticks until Dagster has been shown all that a tick shows at once."""


def waiting(first: int, count: int, failed: bool) -> Iterator[Row]:
    """The rows of runs that wait to be shredded, or that shredding failed on."""
    for number in range(first, first + count):
        key = item_key(number)
        stamp = Stamp("benchmark", at=START)
        item = append(Item(key, ()), State.NEW, SHRED, stamp, payload=Landed(key, 4, 1_000_000, "0" * 32).payload())
        if failed:
            item = append(item, State.PROCESSING, SHRED, Stamp("benchmark", at=START), token=1)
            payload = Failure(FailureKind.PERMANENT, "no such schema").payload()
            previous = item.records[-1].record_id
            item = append(item, State.FAILED, SHRED, Stamp("benchmark", at=START), previous=previous, payload=payload)
        for record in item.records:
            yield DATASET, record_key(key, record.sequence), 1, json.dumps(record.to_dict())
        for step in STEPS:
            for row in rows_of(item, step):
                yield DATASET, row, 1, "{}"


def loaded(items: int) -> Iterator[Row]:
    """The rows of runs that are loaded, with what the product's own shredding and loading say of them."""
    made = '"rows":{"events":1000},"bytes":100000,"lines":1000,"good":1000,"bad":0,"late":false'
    for dataset, sort, version, data in rows(DATASET, items):
        yield dataset, sort, version, data.replace('"rows":1000,"bytes":100000', made)


def tick(config_file: Path, every: Iterator[Row]) -> tuple[int, float]:
    """Requests and seconds of a tick once Dagster has been shown what is there."""
    home = config_file.parent
    put_sqlite(home / "manifest.db", every)
    resources = {"manifest": ManifestResource(config_file=str(config_file))}
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = build_defs(config_file).resolve_sensor_def(f"{DATASET}_listing_sensor")
        cursor = None
        for last in range(QUIET, -1, -1):
            store = listing._pipeline(str(config_file), DATASET).manifest.store
            before, began = store.requests, time.perf_counter()
            with dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources) as context:
                result = sensor(context)
            assert isinstance(result, dg.SensorResult)
            taken = store.requests - before, time.perf_counter() - began
            for request in result.dynamic_partitions_requests or ():
                if isinstance(request, dg.AddDynamicPartitionsRequest):
                    instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
            for event in result.asset_events:
                instance.report_runless_asset_event(event)
            quiet = result.cursor == cursor
            cursor = result.cursor
            if quiet or not last:
                break
    listing._forget(str(config_file), DATASET)
    return taken


def configure(home: Path) -> Path:
    """A configuration of one dataset with a manifest beside it."""
    (home / "landing").mkdir(parents=True)
    dataset = {"landing": {"root": str(home / "landing")}, "shred": {"output": str(home / "out"), "schemas": ["schemas"]}}
    file = home / "manifest_platform.yaml"
    whole = {"datasets": {DATASET: dataset}, "manifest": {"store": "sqlite:///manifest.db"}, "dagster": {"partitions": 200}}
    file.write_text(yaml.safe_dump(whole))
    return file


def main() -> None:
    options = arguments(__doc__, 1, f"{LOADED:,} runs").parse_args()
    with tempfile.TemporaryDirectory() as root:
        for failed in (False, True):
            for size in SIZES:
                count = int(size * options.scale)
                what = "failed" if failed else "waiting"
                requests, seconds = tick(configure(Path(root) / f"{what}-{size}"), waiting(0, count, failed))
                print_figure(f"requests a tick, {count:,} {what}", requests, 5, "")
                print(f"{what:10} {count:7,} runs: {requests} requests, {seconds * 1e3:.0f} ms")
        done = int(LOADED * options.scale)
        every = chain(loaded(done), waiting(done, int(SIZES[-1] * options.scale), failed=True))
        requests, seconds = tick(configure(Path(root) / "loaded"), every)
        print_figure(f"a tick at {done:,} runs", seconds, 2, " s")
        print(f"{'loaded':10} {done:7,} runs: {requests} requests, {seconds * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
