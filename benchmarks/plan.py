"""Planning a partition's merge from the manifest alone, by how many small objects wait.

    python benchmarks/plan.py [--repeats 5] [--scale 1]

A partition's small objects lie in a SQLite manifest as the inventory keeps them, up to 500 a row. Read them all and plan: the
time an object takes must not grow with their number, and 10,000 must take less than a second.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from pairs import arguments, print_figure

from manifest_platform.manifest import Store
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, Put
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform.merging import names
from manifest_platform.merging.plan import DEFAULT, STRICT, Plan, Profile, plan
from manifest_platform.merging.state import (
    SMALL,
    Batch,
    MergedTable,
    Partition,
    SmallObject,
    from_row,
    rows_prefix,
    small_key,
    to_data,
)

COUNTS = (1_000, 3_000, 10_000, 30_000, 100_000)
A_ROW = 500
A_SECOND_FOR = 10_000
DAY = date(2024, 5, 1)
NOW = datetime(2024, 5, 1, tzinfo=UTC)
TABLE = MergedTable("events", "app", 3600, DEFAULT.target_bytes, create_time=NOW)
CLOSED = Partition("events", DAY, NOW, last_live=1)


def fill(store: Store, dataset: str, count: int) -> None:
    """Writes the given number of small objects of about a megabyte, 500 a commit."""
    writes = []
    for commit in range(1, -(-count // A_ROW) + 1):
        objects = tuple(
            SmallObject(
                names.object_id(commit, ordinal),
                f"s3://bucket/shredded/run={commit}/events/date={DAY}/{ordinal:05d}-000.parquet",
                7_000,
                800_000 + ordinal * 997 % 400_000,
                "2024-05-01T00:00:00.000001Z",
                "2024-05-01T00:10:00.000001Z",
            )
            for ordinal in range(1, min(A_ROW, count - (commit - 1) * A_ROW) + 1)
        )
        batch = Batch("events", DAY, commit, f"s3://bucket/enriched/run={commit}", False, NOW, objects)
        writes.append(Put(small_key("events", DAY, objects[-1].id), to_data(batch), ABSENT))
    at_once = min(MAX_WRITES, 20)
    for start in range(0, len(writes), at_once):
        store.transact(dataset, writes[start : start + at_once], uuid.uuid4().hex)


def read_and_plan(store: Store, dataset: str, profile: Profile) -> tuple[Plan, float, float]:
    """The plan, the seconds to read the objects, and those to plan."""
    began = time.perf_counter()
    objects = [
        found for row in store.query(dataset, rows_prefix(SMALL, "events", DAY)) for found in from_row(Batch, row).objects
    ]
    read = time.perf_counter()
    planned = plan(CLOSED, TABLE, None, objects, profile)
    return planned, read - began, time.perf_counter() - read


def main() -> None:
    options = arguments(__doc__, 3, "1,000 to 100,000 objects").parse_args()
    whole = replace(DEFAULT, max_objects=1_000_000)
    each: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as home:
        store = SqlStore(f"sqlite:///{Path(home) / 'manifest.db'}")
        for count in (int(count * options.scale) for count in COUNTS):
            dataset = f"objects-{count}"
            fill(store, dataset, count)
            taken = [read_and_plan(store, dataset, whole) for _ in range(options.repeats + 1)][1:]
            reading, planning = (min(one[place] for one in taken) for place in (1, 2))
            each[count] = (reading + planning) / count
            ranges = len(taken[0][0].ranges)
            print(
                f"{count:8,} objects   read {reading:7.3f} s   plan {planning:7.4f} s   "
                f"{each[count] * 1e6:6.2f} µs an object   {ranges} ranges"
            )
            assert sum(len(found.objects) for found in taken[0][0].ranges) == count
        planned, reading, planning = read_and_plan(store, dataset, STRICT)
        print(f"strict profile, of the last: read {reading:.3f} s, plan {planning:.4f} s, {planned.reason}")
        store.close()
    counts = list(each)
    print_figure(f"{counts[2]:,} objects", each[counts[2]] * counts[2], 1, " s")
    print_figure("an object's time, last / first", each[counts[-1]] / each[counts[0]], 1.5)


if __name__ == "__main__":
    main()
