"""What must be true of a day in the end: asked of the warehouse by SQL, of Dagster's instance, of the machine's processes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC
from itertools import pairwise

import dagster as dg

from manifest_platform.pipeline.merge import Merging
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform_tests.pipeline.shop import NAME, Shop
from manifest_platform_tests.soak.day import Day

EVENT_ID = 6
"""The column of the event's id in what lands."""


def ledger(shop: Shop) -> list[tuple[str, float]]:
    """The runs in the order in which they were loaded, and when; seconds since 1970. Empty before the first load."""
    if not (shop.home / "warehouse.duckdb").exists():
        return []
    with closing(DuckDB(shop.home / "warehouse.duckdb")) as warehouse:
        if "ledger" not in warehouse.columns("manifest_platform"):
            return []
        table = warehouse.qualified("manifest_platform", "ledger")
        rows = warehouse.execute(f"SELECT item, applied_at FROM {table} ORDER BY applied_at")
    return [(item.rpartition("/")[2], at.replace(tzinfo=at.tzinfo or UTC).timestamp()) for item, at in rows]


def landed_events(shop: Shop) -> Counter[str]:
    """The ids of all events that landed."""
    files = (shop.home / "landing").glob("run=*/part-*.tsv")
    lines = (line.split("\t") for file in files for line in file.read_text().splitlines())
    return Counter(fields[EVENT_ID] for fields in lines if len(fields) > EVENT_ID)  # corrupt lines have fewer fields


def loaded_events(shop: Shop) -> Counter[str]:
    """The ids of all events that the warehouse has."""
    with closing(DuckDB(shop.home / "warehouse.duckdb")) as warehouse:
        if "events" not in warehouse.columns(NAME):
            return Counter()
        rows = warehouse.execute(f"SELECT event_id FROM {warehouse.qualified(NAME, 'events')}")
    return Counter(str(event) for (event,) in rows)


def shown(home: str) -> set[str]:
    """The runs that Dagster shows as loaded."""
    with dg.DagsterInstance.from_config(home) as instance:
        return set(instance.get_materialized_partitions(dg.AssetKey([NAME, "warehouse"])))


def unfinished(day: Day) -> Iterator[str]:
    """The landed items that are not done yet."""
    names, loaded = set(day.landed), {name for name, _ in ledger(day.shop)}
    if missing := sorted(names - loaded):
        yield f"never loaded: {len(missing)} runs, {missing[:5]}"
    if unseen := sorted(loaded - shown(str(day.platform.home))):
        yield f"loaded, and not shown by Dagster: {len(unseen)} runs, {unseen[:5]}"
    with day.shop.open() as pipeline:
        for partition in Merging(pipeline).inventory.open_partitions():
            if partition.waiting.objects:
                yield f"not merged: {partition.waiting.objects} objects of {partition.table} of {partition.date}"


def wrong(day: Day) -> Iterator[str]:
    """All that is not as it must be."""
    shop = day.shop
    yield from unfinished(day)
    loaded = [name for name, _ in ledger(shop)]
    doubled = [name for name, count in Counter(loaded).items() if count > 1]
    if doubled:
        yield f"loaded more than once: {doubled[:5]}"
    if loaded != sorted(loaded):
        yield "loaded out of order: " + str([pair for pair in pairwise(loaded) if pair[0] > pair[1]][:3])
    there, wanted = loaded_events(shop), landed_events(shop)
    if there != wanted:
        yield f"events: {sum((wanted - there).values())} missing, {sum((there - wanted).values())} too many"


def leaked(day: Day) -> list[str]:
    """Processes of starts that have ended long ago, as they live on: nothing works any more."""
    now = {one.process.pid for one in day.platform.all}
    return [one.what[:120] for one in day.platform.living() if one.session not in now]


def waited(day: Day) -> dict[str, float]:
    """Seconds from each run's marker to the warehouse, without corrupt runs."""
    seconds = sorted(at - day.landed[name] for name, at in ledger(day.shop) if name in day.landed and name not in day.mended)
    if len(seconds) < 2:
        return {}
    centiles = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"median": centiles[49], "p95": centiles[94], "longest": seconds[-1]}
