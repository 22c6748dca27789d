"""Catching up: consecutive items of a feed are loaded in one transaction of the warehouse, as long as they are ready.

A transaction costs seconds on some warehouses, however few rows it has, so that a history of thousands of directories would
take days. Each item keeps its own claim, its own ledger entry and its own Processed record. If the items cannot be loaded
together, all are put back without a failure, and tried by halves, until the item that is the cause is alone.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from manifest_platform import progress
from manifest_platform.listing import Listing
from manifest_platform.manifest import Abandoned, Claim, ConditionFailed, Item, ItemKey, Lease, Ready, StepState
from manifest_platform.manifest.dataset import supposing_done
from manifest_platform.manifest.store import MAX_WRITES
from manifest_platform.pipeline import loading
from manifest_platform.pipeline.events import ItemFailed, Loaded, ShreddedAgain
from manifest_platform.pipeline.loading import Declared, limit_of, load, loaded, loaded_payload, order_of, overlap
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.requests import ApplyAll, ClaimTogether, CompleteAll, Program, PutBackAll, ask, run
from manifest_platform.pipeline.shredding import OutputGone, listing_of, portion, shredded_bytes
from manifest_platform.sources.settings import BatchSettings
from manifest_platform.warehouse.errors import (
    CannotLoad,
    CheckInvalid,
    NewerControlTables,
    NotTakenOver,
    Unavailable,
    Unbelieved,
    Unclear,
    ViewRefused,
)

log = logging.getLogger(__name__)

FIRST = 10
"""The items of the first batch of a drain, whose pace decides the size of the next."""

Some = TypeVar("Some")


class Pace:
    """The size of a feed's next batch: by the settings, by the time that the items before took, and after a failure."""

    def __init__(self, settings: BatchSettings) -> None:
        self.settings = settings
        self._seconds_each: float | None = None
        self._suspects = 0  # the next items, of which one keeps the others from being loaded together
        self._most = 0

    @property
    def most(self) -> int:
        """The most items of the next batch: after a failure, a half of those among which the cause is, or those before it."""
        if self._suspects:
            return max(1, min(self._most, self._suspects - 1))
        if self._seconds_each is None:
            return min(FIRST, self.settings.items)
        return max(1, min(self.settings.items, int(self.settings.seconds / max(self._seconds_each, 1e-6))))

    def took(self, items: int, seconds: float) -> None:
        """Learns from a batch that was loaded."""
        self._seconds_each = seconds / items
        self._suspects = max(0, self._suspects - items)
        self._most = self._suspects // 2

    def fell_apart(self, items: int, fitting: int | None = None) -> None:
        """Learns that a batch of this size could not be loaded. `fitting`: the items before the cause, if it is known."""
        self._suspects = items if fitting is None else fitting + 1
        self._most = items // 2 if fitting is None else fitting


def load_next(
    pipeline: Pipeline, lease: Lease, ready: Ready, pace: Pace, most: int | None = None, only: Collection[ItemKey] | None = None
) -> list[Loaded | ItemFailed | ShreddedAgain]:
    """Loads the next item, and those behind it that may be loaded with it; returns what became of each.

    Empty if the items could not be loaded together: they are put back, and the next calls try fewer. `most`: the most
    items. `only`: the items that may be loaded. Raises as `load`.
    """
    items = _together(pipeline, ready, min(pace.most, most or pace.most), only)
    started, requests = time.monotonic(), pipeline.manifest.store.requests
    if len(items) > 1:
        with lease.within(limit_of(pipeline, lease), f"loading {items[0].key.name} and {len(items) - 1} more"):
            listings = list(_listings(items))
            if len(listings) > 1:
                done = _load_all(pipeline, lease, Ready(items[0], ready.state), items[: len(listings)], listings, pace)
                seconds, used = time.monotonic() - started, pipeline.manifest.store.requests - requests
                if done:
                    pace.took(len(done), seconds)
                shares = enumerate(dataclasses.replace(one, target=pipeline.target) for one in done)
                return [_share(one, nth, len(done), seconds, used) for nth, one in shares]
    event = load(pipeline, lease, ready)
    pace.took(1, time.monotonic() - started)
    return [event]


def _together(pipeline: Pipeline, ready: Ready, most: int, only: Collection[ItemKey] | None) -> list[Item]:
    """Returns the next item and the items that may be loaded in its transaction."""
    step, feed = pipeline.manifest.step(ready.item.key.feed, pipeline.load.key), ready.item.key.feed
    standing = ready.state.seen_by(step, feed)
    alone = pipeline.source.repeats or any(check.sees_each_item for check in Declared.by(pipeline).checks_of(feed))
    if most < 2 or overlap(ready.item, step, standing) or alone:
        return [ready.item]
    found, left = [ready.item], pipeline.dataset.load.batch.mib * 2**20 - shredded_bytes(ready.item)
    for item in pipeline.manifest.following(ready, pipeline.load.key, most - 1):
        standing, left = supposing_done(standing, found[-1]), left - shredded_bytes(item)
        if left < 0 or overlap(item, step, standing) or (only is not None and item.key not in only):
            break
        found.append(item)
    return portion(found, most, pipeline.load)


def _listings(items: Sequence[Item]) -> Iterator[Listing]:
    """Yields the listings of items, up to the first whose output is lost: it is loaded alone, and then shredded again."""
    for item in items:
        try:
            yield listing_of(item)
        except OutputGone:
            return


def _load_all(
    pipeline: Pipeline, lease: Lease, ready: Ready, items: Sequence[Item], listings: Sequence[Listing], pace: Pace
) -> list[Loaded]:
    declared = Declared.by(pipeline)
    part = (MAX_WRITES - 3) // (1 + len(declared.feeds[lease.feed]))  # an item's record, and a row beside the log for each step
    try:
        with progress.work(f"loading {len(items)} directories together"):
            return run(loading_together(declared, items, ready.state, listings, part), pipeline, lease)
    except CannotLoad as error:
        names = f"{items[0].key.name} and {len(items) - 1} more"
        log.warning("%s cannot be loaded together, and are tried in smaller batches: %s", names, error)
        pace.fell_apart(len(items), error.fitting)
        return []


def loading_together(
    declared: Declared, items: Sequence[Item], state: StepState, listings: Sequence[Listing], part: int
) -> Program[list[Loaded]]:
    """The program of a batch: claim the items, apply them in one transaction, complete them in their order.

    `items`: the next item, and those directly behind it. `part`: the number of items in a transaction of the manifest. Raises
    ConditionFailed if the first part cannot be claimed; CannotLoad, Unavailable and Unbelieved once all are put back.
    """
    claims = yield from _claimed(items, state, part)
    count = len(claims)
    orders, believed = [], state.feed(claims[0].item.key.feed).believed
    for item, claim, listing in zip(items, claims, listings, strict=False):
        order = order_of(declared, Ready(item, state), claim, listing)
        orders.append(dataclasses.replace(order, believed=believed, overlaps=""))  # none overlaps the item before it
        believed = order.record_id
    try:
        applied = yield from ask(ApplyAll(tuple(orders)))
    except Unclear:
        return (yield from _settled(declared, claims))
    except (CannotLoad, CheckInvalid, NewerControlTables, NotTakenOver, Unavailable, Unbelieved, ViewRefused) as error:
        for some in _parts(claims, part):
            yield from ask(PutBackAll(tuple(some), f"{count} items could not be loaded together: {error}"))
        raise
    done = [
        (claim, loaded_payload(one.entry, listing.bytes, one.told, one.checks, batch=count), one.entry.record_id)
        for claim, listing, one in zip(claims, listings, applied, strict=False)
    ]
    written: StepState | None = None
    for some in _parts(done, part):
        written = yield from ask(CompleteAll(tuple(some), written))
    return [
        dataclasses.replace(
            loaded(claim.item, one.entry, listing.bytes, False, listing.tables, one.told, one.checks), batch=count
        )
        for claim, listing, one in zip(claims, listings, applied, strict=False)
    ]


def _claimed(items: Sequence[Item], state: StepState, part: int) -> Program[list[Claim]]:
    """Claims items part by part. If a later part cannot be claimed, the batch ends before it."""
    claims: list[Claim] = []
    for some in _parts(items, part):
        try:
            behind = claims[0] if claims else None
            claims += yield from ask(ClaimTogether(tuple(some), state, len(items), behind))
        except ConditionFailed:
            if not claims:
                raise
            break
    return claims


def _settled(declared: Declared, claims: Sequence[Claim]) -> Program[list[Loaded]]:
    """Settles each item of a batch whose COMMIT got no answer, in their order: the ledger has all of them, or none."""
    found = []
    for claim in claims:
        found.append((yield from loading.settling(declared, Abandoned(claim.item, claim.processing))))
    return [one for one in found if one]


def _parts(values: Sequence[Some], size: int) -> Iterator[Sequence[Some]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _share(one: Loaded, nth: int, count: int, seconds: float, requests: int) -> Loaded:
    """Returns an item's event with its share of the batch's seconds and requests."""
    return dataclasses.replace(one, seconds=seconds / count, requests=requests // count + (nth < requests % count))
