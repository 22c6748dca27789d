"""Processes killed while they shred, load and merge runs whose files hold several dates, in row groups of their own."""

from __future__ import annotations

import signal
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from manifest_platform.pipeline import Pipeline, Stop
from manifest_platform.pipeline.discovery import discover
from manifest_platform.pipeline.merge import MergeReport, Merging, merge
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.sources.snowplow.fields import POSITION
from manifest_platform_tests.pipeline.shop import FIRST, Shop, keys, run_names
from manifest_platform_tests.pipeline.test_crashes import drained_after_lease

RUNS, DATES = 2, 3
AT = POSITION["collector_tstamp"]
DAYS = [FIRST.date() + timedelta(days=number) for number in range(DATES)]
OF_DRAINS = ("shred.job_done", "shred.completed", "load.in_transaction", "load.committed")
OF_MERGES = ("merge.registered", "merge.job_done", "merge.committed", "publish.switched")


def spread(shop: Shop, number: int) -> Counter[date]:
    """Gives the events of a run the dates of DAYS in turn. Returns the number of events by date."""
    part = shop.directory(number) / "part-00000.tsv"
    lines = [line.split("\t") for line in part.read_text().splitlines()]
    for place, fields in enumerate(lines):
        fields[AT] = f"{DAYS[place % DATES]} {fields[AT].partition(' ')[2]}"
    part.write_text("".join("\t".join(fields) + "\n" for fields in lines))
    return Counter(date.fromisoformat(fields[AT][:10]) for fields in lines)


def merged_by_date(pipeline: Pipeline) -> dict[date, int]:
    with duckdb.connect() as connection:
        Merging(pipeline).reader.views(connection, tables=["events"])
        return dict(
            connection.execute("SELECT CAST(collector_tstamp AS date), count(*) FROM shop.events GROUP BY 1").fetchall()
        )


def killed(shop: Shop, point: str, *arguments: str) -> None:
    process = shop.process(f"{point}:kill", *arguments)
    process.communicate(timeout=250)
    assert process.returncode == -signal.SIGKILL, f"{point} was not reached"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_rows_of_every_date_are_there_once_whenever_a_process_is_killed(tmp_path: Path, spark: Any) -> None:
    shop = Shop(tmp_path, merge={}, lease={"seconds": 1, "max_attempts": 9})
    shop.write(*range(RUNS))
    expected = spread(shop, 0) + spread(shop, 1)
    for point in OF_DRAINS:
        with shop.open() as pipeline:
            discover(pipeline, everything=True)
        _wait_for_lease(shop)
        killed(shop, point)
    with shop.open() as pipeline:
        assert drained_after_lease(pipeline, spark).stop is Stop.IDLE
        for key in keys(pipeline, *range(RUNS)):
            [events] = [found for found in listing_of(pipeline.manifest.item(key)).objects if found.table == "events"]
            assert events.all_dates == tuple(map(str, DAYS))
        found = pipeline.warehouse.query("SELECT CAST(collector_tstamp AS date), count(*) FROM shop.events GROUP BY 1")
        assert dict(found[1]) == expected
    assert (shop.seen.runs, shop.doubled_events) == (run_names(*range(RUNS)), [])
    for point in OF_MERGES:
        killed(shop, point, "--merge")
        with shop.open() as pipeline:
            assert all(rows in (0, expected[day]) for day, rows in merged_by_date(pipeline).items())
    with shop.open() as pipeline:
        for _ in range(20):
            *_, report = merge(Merging(pipeline), lambda: spark)
            assert isinstance(report, MergeReport)
            shop.ahead += timedelta(hours=1)
            if all(found and found.at_rest for day in DAYS for found in [Merging(pipeline).inventory.partition("events", day)]):
                break
        assert merged_by_date(pipeline) == expected


def _wait_for_lease(shop: Shop) -> None:
    """Waits until the lease of a killed process has expired."""
    deadline = datetime.now(UTC) + timedelta(seconds=30)
    while datetime.now(UTC) < deadline:
        with shop.open() as pipeline:
            leases = [pipeline.manifest.lease(step.application, "enriched") for step in pipeline.manifest.steps("enriched")]
        if not any(lease and lease.expires_at > datetime.now(UTC) for lease in leases):
            return
    raise AssertionError("the lease does not run out")
