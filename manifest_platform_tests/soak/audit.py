"""What must be true in the end: asked of the warehouse by SQL, of the manifest, of Dagster, and of the processes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from datetime import UTC
from itertools import pairwise

import dagster as dg

from manifest_platform.manifest import Item, Record, State
from manifest_platform.pipeline.merge import Merging
from manifest_platform_tests.pipeline.shop import NAME, Shop
from manifest_platform_tests.soak.day import Day

EVENT_ID = 6
"""The column of the event's id in what lands."""


def ledger(shop: Shop) -> list[tuple[str, float]]:
    """The runs in the order in which they were loaded, and when; seconds since 1970. Empty before the first load."""
    with closing(shop.place.open()) as warehouse:
        if not warehouse.exists() or "ledger" not in warehouse.columns("manifest_platform"):
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
    with closing(shop.place.open()) as warehouse:
        if not warehouse.exists() or "events" not in warehouse.columns(NAME):
            return Counter()
        rows = warehouse.execute(f"SELECT event_id FROM {warehouse.qualified(NAME, 'events')}")
    return Counter(str(event) for (event,) in rows)


def never_loaded(shop: Shop, landed: Collection[str]) -> list[str]:
    """The runs that landed and that the ledger lacks."""
    return sorted({*landed} - {name for name, _ in ledger(shop)})


def lost(shop: Shop, landed: Collection[str]) -> Iterator[str]:
    """All that the warehouse does not hold as it must: each run once, in order, with its events."""
    if missing := never_loaded(shop, landed):
        yield f"never loaded: {len(missing)} of {len(landed)} runs, {missing[:5]}"
    loaded = [name for name, _ in ledger(shop)]
    if doubled := [name for name, count in Counter(loaded).items() if count > 1]:
        yield f"loaded more than once: {doubled[:5]}"
    if unordered := [pair for pair in pairwise(loaded) if pair[0] > pair[1]]:
        yield f"loaded out of order: {unordered[:3]}"
    there, wanted = loaded_events(shop), landed_events(shop)
    if there != wanted:
        yield f"events: {(wanted - there).total()} missing, {(there - wanted).total()} too many"


def failures(shop: Shop) -> Counter[str]:
    """The records of failed items, by their message."""
    return Counter(f"{record.application.name}: {record.data.get('message')}" for _, record in _failed(shop))


def _failed(shop: Shop) -> list[tuple[Item, Record]]:
    """The records of failed items, with their items."""
    with shop.open() as pipeline:
        items = [item for feed in pipeline.feeds for item in pipeline.manifest.items(feed)]
    return [(item, record) for item in items for record in item.records if record.state is State.FAILED]


def blamed(shop: Shop, faults: int) -> Iterator[str]:
    """The failures that an item was charged with, other than the end of its worker's lease, which another worker settles.

    `faults`: the number of faults that were made. Each explains one end of a lease an item, and no more.
    """
    for told in failures(shop):
        if _EXPIRED not in told:
            yield f"failed: {told}"
    for name, number in _expired(shop).items():
        if number > faults:
            yield f"{name}: {number} leases expired, after {faults} faults"


_EXPIRED = "lease expired"


def _expired(shop: Shop) -> Counter[str]:
    """The number of leases that expired with each item."""
    return Counter(item.key.name for item, record in _failed(shop) if _EXPIRED in str(record.data.get("message")))


def shown(home: str) -> set[str]:
    """The runs that Dagster shows as loaded."""
    with dg.DagsterInstance.from_config(home) as instance:
        return set(instance.get_materialized_partitions(dg.AssetKey([NAME, "warehouse"])))


def unfinished(day: Day) -> Iterator[str]:
    """The landed items that are not done yet."""
    if missing := never_loaded(day.shop, day.landed):
        yield f"never loaded: {len(missing)} runs, {missing[:5]}"
    yield from unseen(day)


def unseen(day: Day) -> Iterator[str]:
    """The loaded items that Dagster does not show, and the shredded objects that are not merged."""
    loaded = {name for name, _ in ledger(day.shop)}
    if not_shown := sorted(loaded - shown(str(day.platform.home))):
        yield f"loaded, and not shown by Dagster: {len(not_shown)} runs, {not_shown[:5]}"
    with day.shop.open() as pipeline:
        for partition in Merging(pipeline).inventory.open_partitions():
            if partition.waiting.objects:
                yield f"not merged: {partition.waiting.objects} objects of {partition.table} of {partition.date}"


def wrong(day: Day) -> Iterator[str]:
    """All that is not as it must be after a day of Dagster."""
    yield from lost(day.shop, day.landed)
    yield from unseen(day)


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
