"""Shredding: claimed items become typed Parquet, a batch in one Spark job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from manifest_platform import failpoints
from manifest_platform.listing import BAD_TABLE, LISTING_FILE, Listing
from manifest_platform.manifest import OUTPUT, Abandoned, Claim, Failure, FailureKind, Item, Lease, Payload, Refused, State
from manifest_platform.pipeline.events import ItemFailed, Shredded
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.shred.batch import Directory, ShredFailure
from manifest_platform.sources.errors import LandingError
from manifest_platform.sources.source import SHRED
from manifest_platform.spark import cancellable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def free_abandoned(pipeline: Pipeline, lease: Lease, items: Iterable[Item]) -> int:
    """Frees those of the items that a dead worker left unshredded; returns how many.

    What it wrote is named by no record, so nothing is asked. The lease is what makes its holder dead.
    """
    freed = 0
    for item in items:
        blocker = item.blocker()
        if blocker and blocker.state is State.PROCESSING and blocker.application.key == SHRED:
            pipeline.manifest.abandon(lease, Abandoned(item, blocker))
            freed += 1
    return freed


def shred(
    pipeline: Pipeline, lease: Lease, spark: Callable[[], SparkSession], items: Sequence[Item]
) -> list[Shredded | ItemFailed]:
    """Shreds items that are ready, in one Spark job; each ends Processed or Failed on its own."""
    session = spark()  # before any claim: a Spark that does not start is no failure of an item
    started, requests = time.monotonic(), pipeline.manifest.store.requests
    claims = {one.item.key.id: one for one in pipeline.manifest.claim(lease, items)}
    outcomes: list[Shredded | ItemFailed] = []
    directories: list[Directory] = []
    for claim in claims.values():
        try:
            directories.append(pipeline.source.directory(claim, _output(pipeline, claim)))
        except (LandingError, Refused) as error:
            outcomes.append(pipeline.fail(claim, Failure.of(error)))
    with cancellable(session) as cancel, lease.cancelling(cancel):
        results = pipeline.source.shred(session, directories) if directories else []
    lease.check()
    seconds = time.monotonic() - started
    each = (pipeline.manifest.store.requests - requests) // max(1, len(claims))
    for result in results:
        claim = claims[result.item]
        if isinstance(result, ShredFailure):
            kind = FailureKind.TRANSIENT if result.transient else FailureKind.PERMANENT
            outcomes.append(pipeline.fail(claim, Failure(kind, result.message)))
            continue
        before = pipeline.manifest.store.requests
        pipeline.manifest.complete(claim, shredded_payload(result, f"{_output(pipeline, claim)}/{LISTING_FILE}"))
        failpoints.reach("shred.completed")
        used = each + pipeline.manifest.store.requests - before
        bytes_in = claim.item.landed.bytes if claim.item.landed else 0
        outcomes.append(Shredded(claim.item.key, result, bytes_in, seconds, len(claims), used))
    return outcomes


def _output(pipeline: Pipeline, claim: Claim) -> str:
    return f"{pipeline.folder(claim.item.key)}/{claim.processing.record_id}"


def shredded_payload(listing: Listing, uri: str) -> Payload:
    """What the Processed record of a shredding says: where the listing is, its counts and its tables."""
    tables = sorted({table.name for table in listing.tables if table.mode != "delete"} - {BAD_TABLE})
    data = {
        "listing": uri,
        "lines": listing.lines,
        "good": listing.good,
        "bad": listing.bad,
        "bytes": listing.bytes,
        "tables": tables,
    }
    return Payload(OUTPUT, data)
