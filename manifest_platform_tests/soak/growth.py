"""What grows with the runs: bytes and rows of each place, memory of each process; and what housekeeping takes away again."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg

from manifest_platform.merging import garbage
from manifest_platform.merging.settling import settle_rows
from manifest_platform.operations.doctor import Doctor
from manifest_platform.orchestration.dagster_store import prune
from manifest_platform.pipeline.merge import Merging
from manifest_platform_tests.orchestration.dagster_shop import PARTITIONS
from manifest_platform_tests.pipeline.shop import NAME, Shop
from manifest_platform_tests.soak.supervised import Platform

PLACES = {
    "Dagster's store": "dagster/history",
    "Dagster's schedules": "dagster/schedules",
    "Dagster's logs of runs": "dagster/storage",
    "manifest": "manifest.db",
    "shredded": "shredded",
    "merged": "merged",
    "warehouse": "warehouse.duckdb",
}


def sizes(shop: Shop) -> dict[str, int]:
    """The bytes of each place."""
    return {name: _size(shop.home / place) for name, place in PLACES.items()}


def _size(place: Path) -> int:
    files: Iterable[Path] = place.rglob("*") if place.is_dir() else place.parent.glob(f"{place.name}*")
    total = 0
    for file in files:
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:  # it is a living system's
            continue
    return total


def compact(shop: Shop) -> None:
    """Frees the space of deleted rows, so that sizes count present rows only. Nothing may work meanwhile."""
    for file in [shop.home / "manifest.db", *(shop.home / "dagster").rglob("*.db")]:
        with closing(sqlite3.connect(file)) as store:
            store.execute("VACUUM")
            store.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def rows(shop: Shop) -> Counter[str]:
    """The rows of the manifest by their kind."""
    with closing(sqlite3.connect(f"file:{shop.home / 'manifest.db'}?mode=ro", uri=True)) as store:
        return Counter(sort.partition("#")[0] for (sort,) in store.execute("SELECT sort FROM manifest"))


def memory(platform: Platform) -> dict[str, int]:
    """The resident bytes of each program, with all that it started."""
    living = platform.living()
    return {one.name: sum(process.bytes for process in living if process.session in one.sessions) for one in platform.all}


def tidied(shop: Shop) -> dict[str, int]:
    """Does all chores as if everything were old enough; says how much of what went."""
    done: dict[str, int] = {}
    with shop.open() as pipeline:
        doctor = Doctor(pipeline, grace=timedelta())
        doctor.clean(doctor.examine())
        done["places of dead attempts"] = len(doctor.done)
        merging, now = Merging(pipeline), datetime.now(UTC)
        for one in garbage.remove(merging.inventory, merging.output, now, timedelta()):
            done["superseded merged objects"] = done.get("superseded merged objects", 0) + len(one.objects)
        settled = settle_rows(merging.inventory, now)
        done |= {"rows of small objects": settled.batches, "rows of merge jobs": settled.jobs}
    with dg.DagsterInstance.from_config(str(shop.home / "dagster")) as instance:
        feeds = {dg.AssetKey([NAME, name]): PARTITIONS for name in ("enriched_runs", "shredded", "warehouse")}
        pruned = prune(instance, datetime.now(UTC), feeds)
        done |= {"runs of Dagster": pruned.runs, "runs of Dagster that stay": pruned.kept}
        done |= {"events of Dagster": pruned.events, "evaluations of Dagster": pruned.evaluations}
    return done
