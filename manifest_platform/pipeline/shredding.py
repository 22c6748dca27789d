"""Shredding: claimed items become typed Parquet, a batch in one Spark job; and what items became is found by their records."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from manifest_platform import failpoints
from manifest_platform.listing import BAD_TABLE, LISTING_FILE, Listing, Table
from manifest_platform.manifest import (
    OUTPUT,
    Abandoned,
    Application,
    Claim,
    Failure,
    FailureKind,
    Item,
    Lease,
    Payload,
    Refused,
    State,
)
from manifest_platform.pipeline.events import ItemFailed, Shredded
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.shred.batch import Directory, ShredFailure
from manifest_platform.sources.errors import LandingError
from manifest_platform.sources.source import SHRED
from manifest_platform.spark import cancellable
from manifest_platform.warehouse.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OutputGone(Refused):
    """What the manifest names as committed is not there any more."""


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


# What was shredded, as the manifest's records name it


def shredded_bytes(item: Item) -> int:
    """How much Parquet the completed shredding of an item wrote, by its record."""
    record = item.processed_by(Application(SHRED))
    return record.data["bytes"] if record else 0


def recent_tables(pipeline: Pipeline, records: int) -> list[Table]:
    """The tables of the newest items that were shredded, by name: of those that the newest records of each feed tell of.

    An item whose listing is gone is passed over.
    """
    tables: dict[str, Table] = {}
    for record in (record for feed in pipeline.feeds for record in pipeline.manifest.newest(feed, records)):
        listing = record.data.get("listing")
        named = set(record.data.get("tables", ())) if record.application.name == SHRED else set()
        if listing and named - tables.keys():
            with contextlib.suppress(OutputGone):
                tables = {table.name: table for table in _read_listing(listing).tables} | tables
    return [tables[name] for name in sorted(tables) if tables[name].mode != "delete"]


def listing_of(item: Item) -> Listing:
    """What the completed shredding of an item wrote. Raises Refused if it is not shredded, OutputGone, Unavailable."""
    record = item.processed_by(Application(SHRED))
    if record is None:
        raise Refused(f"{item.key.name} is not shredded yet")
    return _read_listing(record.data["listing"])


def _read_listing(uri: str) -> Listing:
    try:
        return Listing.read(uri)
    except FileNotFoundError as error:
        raise OutputGone(f"the listing {uri} is gone, though the manifest names it; put it back from a backup") from error
    except (ValueError, KeyError, TypeError) as error:
        raise OutputGone(f"the listing {uri} is damaged ({error}); put it back from a backup") from error
    except OSError as error:
        raise Unavailable(f"the listing {uri} cannot be read now: {error}") from error
