"""Plays a day and tells what became of it; exit code 1 where anything is not as it must be."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from manifest_platform.quantities import size_of
from manifest_platform_tests.pipeline.shop import Shop
from manifest_platform_tests.soak import audit, growth
from manifest_platform_tests.soak.day import Day, Pace
from manifest_platform_tests.soak.program import Played, Told, run
from manifest_platform_tests.soak.supervised import platform

REST_S = 400
"""The time in which the backlog must be loaded after landing and kills have stopped."""
SETTINGS = {
    "shred": {"bad_rows": {"max_count": 0, "max_share": 0.5}},
    "load": {"late": "quarantine"},
    "lease": {"seconds": 15, "max_attempts": 20},
    "dagster": {"sensor_seconds": 10},
    "merge": {"interval_seconds": 60, "max_attempts": 20},
    "manifest": {"store": "sqlite:///manifest.db", "archive": "archive"},
}


def play(home: Path, minutes: float, seed: int, told: Told = lambda line: None, pace: Pace | None = None) -> Played:
    """Plays the given number of minutes of a day in a folder, waits until it is idle, audits it, and cleans up."""
    shop = Shop(home / "shop", **SETTINGS)
    with platform(shop) as dagster:
        day = Day(dagster, pace or Pace(), random.Random(seed))
        mended = reported = time.monotonic()
        for passed in day.play(minutes * 60):
            if time.monotonic() - mended > 10:
                day.mend()
                mended = time.monotonic()
            if time.monotonic() - reported > 60:
                reported = time.monotonic()
                memory = ", ".join(f"{name} {size_of(size)}" for name, size in growth.memory(dagster).items())
                told(f"{passed / 60:4.1f} min: {len(day.landed)} runs landed, {sum(day.kills.values())} kills; {memory}")
        rested = _rest(day)
        lines = _told(day, rested)
        wrong = list(audit.wrong(day))
        wrong += [f"{what} lives on" for what in audit.leaked(day)]
        stopped = {one.name: one.stop() for one in reversed(dagster.all)}
        lines.append("told to end, gone after: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in stopped.items()))
        wrong += [f"{one.what[:120]} does not end" for one in dagster.living()]
    lines += _tidied(shop, len(day.landed))
    wrong += [f"after housekeeping: {one}" for one in audit.wrong(day)]
    return Played(len(day.landed), wrong, lines, day.kills)


def _rest(day: Day) -> float:
    """Waits until all is loaded and no run works any more; how many seconds that took."""
    began = time.monotonic()
    while time.monotonic() - began < REST_S:
        day.mend()
        working = any(one.works_on_a_run for one in day.platform.living())
        if not working and not list(audit.unfinished(day)):
            break
        time.sleep(3)
    return time.monotonic() - began


def _told(day: Day, rested: float) -> list[str]:
    runs = max(1, len(day.landed))
    kills = ", ".join(f"{count} {kind}" for kind, count in sorted(day.kills.items())) or "none"
    starts = ", ".join(f"{one.name} {one.starts}" for one in day.platform.all)
    waits = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in audit.waited(day).items())
    memory = ", ".join(f"{name} {size_of(size)}" for name, size in growth.memory(day.platform).items())
    return [
        f"{runs} runs landed, {len(day.mended)} of them corrupt at first and mended; at rest after {rested:.0f} s",
        f"killed: {kills}; starts: {starts}",
        f"waited from landing to the warehouse: {waits}",
        f"memory: {memory}",
        "grown, a run: " + ", ".join(f"{name} {size_of(size // runs)}" for name, size in growth.sizes(day.shop).items()),
        "rows of the manifest, a run: "
        + ", ".join(f"{kind} {count / runs:.1f}" for kind, count in growth.rows(day.shop).most_common(12)),
    ]


def _tidied(shop: Shop, runs: int) -> list[str]:
    growth.compact(shop)
    before = growth.sizes(shop)
    done = growth.tidied(shop)
    growth.compact(shop)
    return [
        "before, a run, compacted: " + ", ".join(f"{name} {size_of(size // runs)}" for name, size in before.items()),
        "housekeeping, as if all were old: " + ", ".join(f"{count:,} {name}" for name, count in done.items()),
        "left, a run, compacted: " + ", ".join(f"{name} {size_of(size // runs)}" for name, size in growth.sizes(shop).items()),
        "rows left, a run: " + ", ".join(f"{kind} {count / runs:.1f}" for kind, count in growth.rows(shop).most_common(12)),
    ]


if __name__ == "__main__":
    sys.exit(run("python -m manifest_platform_tests.soak", str(__doc__), 20, play))
