"""Common fixtures of the tests of full loads: a feed of windows that snapshots cover, and a feed of logs that they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from manifest_platform.manifest import (
    Application,
    Claim,
    Item,
    ItemKey,
    Landed,
    Lease,
    Manifest,
    Ready,
    Standing,
    Step,
    StepState,
    Store,
)
from manifest_platform.manifest.dataset import Mode, judge
from manifest_platform_tests.manifest.given import DONE, Clock, Gap, Late

SHRED, LOAD = Application("shred"), Application("load")
INCR, LOG, FULL = "incr", "log", "full"
HOUR = timedelta(hours=1)


def vault(
    store: Store,
    *,
    clock: Callable[[], datetime] | None = None,
    late: Late = "quarantine",
    gap: Gap = "none",
    needs_full: bool = False,
    author: str = "test",
) -> Manifest:
    def steps(**options: Any) -> list[Step]:
        return [Step(SHRED), Step(LOAD, upstream=("shred",), **options)]

    feeds = {
        INCR: steps(order="strict", late=late, gap=gap, needs_full=needs_full),
        LOG: steps(order="strict"),
        FULL: steps(order="full", covers=(INCR,)),
    }
    return Manifest(store, "vault", feeds, author, clock=clock or Clock())


def sort(number: int) -> str:
    return f"{number:04d}"


def key(feed: str, number: int) -> ItemKey:
    return ItemKey(feed, sort(number), f"s3://vault/{feed}/stoptime={number:04d}/")


def land(of: Manifest, feed: str, *numbers: int, shredded: bool = True) -> Sequence[str]:
    """Discovers a window for each number, from the number before it to the number. A snapshot is as of its number."""
    directories = [Landed(key(feed, one), 1, 10, "as-landed", sort(one - 1), sort(one)) for one in numbers]
    outcomes = [found.outcome for found in of.discover(feed, directories)]
    if shredded:
        shred(of, feed, *numbers)
    return outcomes


def shred(of: Manifest, feed: str, *numbers: int) -> None:
    with of.acquire(feed, "shred", "shredder", HOUR) as held:
        for claim in of.claim(held, [of.item(key(feed, number)) for number in numbers]):
            of.complete(claim, DONE)


def acquire(of: Manifest, feed: str, holder: str = "worker") -> Lease:
    return of.acquire(feed, "load", holder, HOUR)


def claim(of: Manifest, held: Lease) -> Claim:
    verdict = of.next(held.feed, "load", holding=True)
    assert isinstance(verdict, Ready), verdict
    [claimed] = of.claim(held, [verdict.item], verdict.state)
    return claimed


def load(of: Manifest, feed: str, *numbers: int) -> None:
    """Loads the next items, and asserts that they are the given numbers."""
    with acquire(of, feed) as held:
        for number in numbers:
            claimed = claim(of, held)
            assert claimed.item.key == key(feed, number)
            of.complete(claimed, DONE)


def begin(of: Manifest, number: int) -> None:
    of.begin_full_load(key(FULL, number), "load", "needed")


def load_in_full(of: Manifest, number: int) -> None:
    begin(of, number)
    load(of, FULL, number)


def state(of: Manifest) -> StepState:
    return of.state(LOAD)


def is_full_load(of: Manifest) -> bool:
    return state(of).mode == Mode.FULL_LOAD


def standings(of: Manifest, feed: str) -> dict[int, Standing]:
    """The standing of each item of a feed for `load`, by number."""
    step, seen = of.step(feed, "load"), state(of)
    return {number_of(item): judge(item, step, seen.seen_by(step, feed)).standing for item in of.items(feed)}


def number_of(item: Item) -> int:
    return int(item.key.sort)


def counters(of: Manifest, feed: str) -> dict[str, int]:
    kept = state(of).feed(feed)
    return {"applied": kept.applied, "skipped": kept.skipped, "late": kept.late, "quarantined": kept.quarantined}


def refolded(of: Manifest, feed: str) -> dict[str, int]:
    """The counters as computed from the records of all items."""
    serving = state(of).feed(feed).serving_epoch
    counted = {"applied": 0, "skipped": 0, "late": 0, "quarantined": 0}
    for item in of.items(feed):
        for name in _counted(item, serving):
            counted[name] += 1
    return counted


def _counted(item: Item, serving: int) -> Iterable[str]:
    if item.skipped_for(LOAD):
        return ["skipped"]
    if item.processed_by(LOAD, serving):
        return ["applied"]
    if item.is_late_for(LOAD, serving):
        return ["quarantined" if item.is_set_aside_for(LOAD) else "late"]
    return []
