"""Loading: a shredded item goes into the warehouse, and what a dead worker left on its way there is settled.

Claim, apply, complete: the manifest is told before and after, and the warehouse's fence and ledger say what happened between.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

from manifest_platform import failpoints
from manifest_platform.listing import Listing, Table
from manifest_platform.manifest import OUTPUT, Abandoned, Claim, Failure, FailureKind, Item, Lease, Payload, Ready
from manifest_platform.manifest.dataset import BEYOND_IDS
from manifest_platform.pipeline.events import ItemFailed, Loaded
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.shredding import OutputGone, listing_of, shredded_bytes
from manifest_platform.sources.source import LOAD
from manifest_platform.warehouse.apply import AlreadyApplied, Full, LedgerEntry, Load
from manifest_platform.warehouse.errors import Behind, CannotLoad, Fenced, Unclear

log = logging.getLogger(__name__)

Result = TypeVar("Result")


def load(pipeline: Pipeline, lease: Lease, ready: Ready) -> Loaded | ItemFailed:
    """Loads the item that is next: claim, apply, complete.

    Raises ConditionFailed if it is not next any more, Fenced and Unavailable (nothing is recorded then: the next
    holder of the lease settles what was claimed), ClaimLost.
    """
    started, requests = time.monotonic(), pipeline.manifest.store.requests
    try:
        listing = listing_of(ready.item)
    except OutputGone as error:
        listing = error
    [claim] = pipeline.manifest.claim(lease, [ready.item], ready.state)
    failpoints.reach("load.claimed")
    if isinstance(listing, OutputGone):
        return pipeline.fail(claim, Failure.of(listing))
    key = ready.item.key
    try:
        order = _order(pipeline, lease, ready, claim, listing)
        with lease.cancelling(pipeline.warehouse.interrupt):
            applied = _above_fence(
                lease, order.epoch, lambda token: pipeline.warehouse.apply(dataclasses.replace(order, token=token))
            )
    except Unclear:
        settled = settle(pipeline, lease, Abandoned(claim.item, claim.processing))
        return settled or ItemFailed(key, LOAD, Failure(FailureKind.LEASE_EXPIRED, "COMMIT failed; the ledger lacks the item"))
    except Behind as error:
        pipeline.manifest.defer(claim, str(error))
        return ItemFailed(key, LOAD, Failure(FailureKind.BEHIND, str(error), type(error).__name__))
    except CannotLoad as error:
        return pipeline.fail(claim, Failure.of(error, traceback.format_exc()))
    pipeline.manifest.complete(claim, loaded_payload(applied.entry, listing.bytes))
    failpoints.reach("load.completed")
    seconds, used = time.monotonic() - started, pipeline.manifest.store.requests - requests
    already = isinstance(applied, AlreadyApplied)
    return _loaded(ready.item, applied.entry, listing.bytes, seconds, used, already, listing.tables)


def settle(pipeline: Pipeline, lease: Lease, abandoned: Abandoned) -> Loaded | None:
    """Ends what a dead worker had begun to load: completes what the ledger has, fails what it lacks.

    The fence is raised to this lease's token first, so that the answer is final. Raises Unavailable.
    """
    state, step = pipeline.manifest.state(lease.application), pipeline.manifest.step(lease.feed, lease.application.key)
    _above_fence(lease, state.epoch, lambda token: pipeline.warehouse.raise_fence(lease.feed, token, state.epoch))
    key = abandoned.item.key
    entry = pipeline.warehouse.ledger_entry(key.feed, key.id, state.seen_by(step, key.feed).serving_epoch)
    if entry is None:
        pipeline.manifest.abandon(lease, abandoned)
        log.warning("%s was left unfinished and is not in the ledger", key.name)
        return None
    bytes_loaded = shredded_bytes(abandoned.item)
    pipeline.manifest.adopt(lease, abandoned, entry.epoch, loaded_payload(entry, bytes_loaded))
    return _loaded(abandoned.item, entry, bytes_loaded, 0.0, 0, already=True)


def _above_fence(lease: Lease, epoch: int, act: Callable[[int], Result]) -> Result:
    """Acts under the lease's token, or above the fence's: one with a newer token has outlived the manifest's backup."""
    try:
        return act(lease.token)
    except Fenced as fenced:
        if fenced.epoch > epoch:
            raise
        lease.raise_token(fenced.token)
        return act(lease.token)


def _order(pipeline: Pipeline, lease: Lease, ready: Ready, claim: Claim, listing: Listing) -> Load:
    """What the warehouse is to apply for a claimed item."""
    state, key, landed = ready.state, ready.item.key, ready.item.landed
    serving_epoch = state.seen_by(claim.step, key.feed).serving_epoch
    return Load(
        item=key.id,
        feed=key.feed,
        position=key.position,
        epoch=state.epoch,
        serving_epoch=serving_epoch,
        token=lease.token,
        record_id=claim.processing.record_id,
        checksum=landed.checksum if landed else "",
        listing=listing,
        late=ready.item.is_late_for(lease.application, serving_epoch),
        full=_full(pipeline, claim),
        snapshots=_snapshots_of(pipeline, key.feed),
    )


def _snapshots_of(pipeline: Pipeline, feed: str) -> str | None:
    """The feed whose snapshots contain a feed's items, if there is such a feed."""
    return next((other for other in pipeline.feeds if feed in pipeline.manifest.step(other, LOAD).covers), None)


def _full(pipeline: Pipeline, claim: Claim) -> Full | None:
    """What a snapshot is to the warehouse; None for a directory that is none."""
    landed = claim.item.landed
    if claim.step.order != "full" or landed is None or landed.stop is None:
        return None  # a snapshot without a stop time is refused before it can be claimed
    boundary = f"{landed.stop}#{BEYOND_IDS}"
    return Full(boundary, covers=claim.step.covers, feeds=pipeline.feeds, keeps=pipeline.source.keeps)


def loaded_payload(entry: LedgerEntry, bytes_loaded: int) -> Payload:
    """What a load's Processed says, from the ledger's entry."""
    applied_at = entry.applied_at.isoformat()
    return Payload(OUTPUT, {"rows": entry.rows, "bytes": bytes_loaded, "late": entry.late, "applied_at": applied_at})


def _loaded(
    item: Item,
    entry: LedgerEntry,
    bytes_loaded: int,
    seconds: float,
    requests: int,
    already: bool,
    tables: tuple[Table, ...] = (),
) -> Loaded:
    lag = max(0.0, (entry.applied_at - item.records[0].timestamp).total_seconds())
    return Loaded(item.key, entry.rows, bytes_loaded, seconds, lag, requests, entry.late, already, tables, entry.epoch)
