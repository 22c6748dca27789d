"""One dataset from landing to warehouse: how items are discovered, shredded, loaded and settled.

Belongs here: each kind of work on claimed items. What differs by source is in `source` and its kinds; in which order items are
taken is in `drain` and `chosen`, and what may be taken at all is decided by the manifest alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from manifest_platform import __version__, failpoints, storage, stores
from manifest_platform.archive import read_archived
from manifest_platform.config import Config
from manifest_platform.identity import operator_name
from manifest_platform.listing import BAD_TABLE, LISTING_FILE, Listing, Table
from manifest_platform.manifest import (
    OUTPUT,
    Abandoned,
    Application,
    Claim,
    Failure,
    FailureKind,
    Item,
    ItemKey,
    Lease,
    Manifest,
    Payload,
    Ready,
    Refused,
    State,
    Step,
    Store,
    UnknownItem,
)
from manifest_platform.manifest.dataset import BEYOND_IDS, position_name
from manifest_platform.manifest.payloads import register_folder
from manifest_platform.manifest.records import format_time, parse_time
from manifest_platform.pipeline.events import DiscoveryReport, ItemFailed, Loaded, Shredded
from manifest_platform.sources.directories import Look, complete_runs
from manifest_platform.sources.errors import LandingError, LandingUnavailable
from manifest_platform.sources.snowplow.source import SnowplowEnriched
from manifest_platform.sources.source import LOAD, SHRED, Named, Source
from manifest_platform.sources.veeva.source import VeevaDirectData
from manifest_platform.warehouse.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from manifest_platform.shred.batch import Directory
    from manifest_platform.warehouse.apply import AlreadyApplied, Applied, Full, LedgerEntry, Load, Warehouse

log = logging.getLogger(__name__)

FUTURE = timedelta(days=1)
SOURCES: dict[str, type[Source]] = {"snowplow_enriched": SnowplowEnriched, "veeva": VeevaDirectData}
"""The kinds of source, as the configuration calls them."""


class OutputGone(Refused):
    """What the manifest names as committed is not there any more."""


class Pipeline:
    """One dataset: landing root, manifest, shredder, warehouse. Close it after use.

    `run_id` is the orchestrator's run, kept in every record and lease; `author` names who is behind an operator's command.
    `store`: the manifest's, where it is open already; it stays open.
    """

    def __init__(
        self,
        config: Config,
        dataset: str,
        run_id: str | None = None,
        author: str | None = None,
        store: Store | None = None,
    ):
        self.config, self.name = config, dataset
        self.dataset = config.datasets[dataset]
        for folder in config.manifest.schemas:
            register_folder(Path(folder))
        self._stack = ExitStack()
        if store is None:
            store = stores.open_store(config.manifest)
            self._stack.callback(store.close)
        author = author or f"manifest-platform {__version__}"
        self.source = SOURCES[self.dataset.source](dataset, self.dataset)
        declared = {feed: self._steps(feed) for feed in self.source.feeds}
        self.manifest = Manifest(store, dataset, declared, author, run_id, read_archived=read_archived)

    def _steps(self, feed: str) -> tuple[Step, ...]:
        attempts = self.config.lease.max_attempts
        own = (step for step in self.dataset.steps if (step.feed or self.source.main) == feed)
        return (
            *self.source.steps(feed, attempts),
            *(Step(Application(one.name), one.upstream, one.order, one.late, max_attempts=attempts) for one in own),
        )

    @property
    def feeds(self) -> tuple[str, ...]:
        """The dataset's feeds, in the order in which a drain loads them."""
        return self.source.feeds

    def close(self) -> None:
        """Gives connections back."""
        self._stack.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def root(self) -> str:
        """The landing root, as a URI."""
        return storage.as_uri(self.dataset.landing.root)

    @property
    def holder(self) -> str:
        """Who holds the leases that this process takes."""
        return f"{operator_name()}@{socket.gethostname()}:{os.getpid()}"

    @cached_property
    def warehouse(self) -> Warehouse:
        """The dataset's tables in the warehouse; connects at first use."""
        from manifest_platform.warehouse.apply import Warehouse
        from manifest_platform.warehouse.engines.duckdb import DuckDB

        warehouse = Warehouse(DuckDB(self.config.warehouse.path), self.name)
        self._stack.callback(warehouse.close)
        return warehouse

    def newest_epoch(self) -> int:
        """The newest epoch that the warehouse's fence has seen, without waiting for who has it open. Raises WarehouseError."""
        from manifest_platform.warehouse.apply import Warehouse
        from manifest_platform.warehouse.engines.duckdb import DuckDB

        if "warehouse" in self.__dict__:
            return self.warehouse.newest_epoch()
        if not Path(self.config.warehouse.path).exists():
            return 0
        with contextlib.closing(
            Warehouse(DuckDB(self.config.warehouse.path, patience=0.1, read_only=True), self.name)
        ) as reader:
            return reader.newest_epoch()

    def command(self, text: str) -> str:
        """An operator's command as it must be typed: it names the dataset where several are configured."""
        return f"{text} --dataset {self.name}" if len(self.config.datasets) > 1 else text

    def key(self, item: str) -> ItemKey:
        """The key of an item named by its name or URI. Raises Refused for a name that is none or is of several, UnknownItem."""
        text = item.rstrip("/")
        meant = self.source.named(text)
        if not meant:
            placed = self.source.placed(text)
            if placed is None:
                raise Refused(f"{item!r} is neither {self.source.form} nor a URI that ends in one")
            return self.manifest.item(ItemKey(placed.feed, placed.sort, storage.as_uri(text))).key
        found: list[ItemKey] = []
        for named in meant:
            try:
                found.append(self.manifest.find(named.feed, named.sort))
            except UnknownItem:
                if named == meant[-1] and not found:
                    raise
        if len(found) > 1:
            raise Refused(f"{item!r} may be {' or '.join(key.name for key in found)}: name its feed")
        return found[0]

    def folder(self, key: ItemKey) -> str:
        """The URI of the folder below which the attempts at an item write."""
        return f"{storage.as_uri(self.dataset.shred.output)}/{self.name}/{folder_name(key)}"

    def meant_by(self, folder: str) -> list[Named]:
        """The items that such a folder may be of, by its name."""
        return self.source.named(folder.replace(".", "/", 1))

    # Discovery

    def discover(self, everything: bool = False) -> DiscoveryReport:
        """Looks at the landing root and registers complete directories that the manifest does not know, feed by feed.

        Looks from the watermark's logical time minus the look-back on, or at `everything`. A directory that is dated more than
        a day ahead is reported and not registered: loaded, it would put the watermark beyond all that is still to come.
        Raises LandingError.
        """
        report = DiscoveryReport()
        for feed in self.feeds:
            report += self._discover(feed, everything)
        return report

    def _discover(self, feed: str, everything: bool) -> DiscoveryReport:
        now = datetime.now(UTC)
        start = None if everything else self._look_from(feed, now)
        sweep = self.source.sweep(feed, start, lambda keys: self._registered(feed, keys))
        future = [seen.name for seen in sweep.runs if seen.time > now + FUTURE]
        present = [seen for seen in sweep.runs if seen.time <= now + FUTURE]
        landed = {seen.name: self.source.landed(feed, seen) for seen in present}
        known = self.manifest.known(feed, [one.key for one in landed.values()])
        unknown = [seen for seen in present if landed[seen.name].key.id not in known]
        looks = {
            name: Look(look["checksum"], parse_time(look["first_seen"])) for name, look in self.manifest.looks(feed).items()
        }
        complete_now, next_looks = complete_runs(unknown, self.source.completeness, looks, now)
        found = self.manifest.discover(
            feed, [landed[seen.name] for seen in complete_now] + [one for one in landed.values() if one.key.id in known]
        )
        moved = {one.landed.key for one in found if one.outcome == "moved"}
        done = {seen.name for seen in complete_now if landed[seen.name].key not in moved}
        not_looked_at = {name: look for name, look in looks.items() if self._is_before(name, start)}
        settling = {name: look for name, look in next_looks.items() if name not in done} | not_looked_at
        if settling != looks:
            self._keep_looks(feed, settling)
        ended = moved | {landed[name].key for name in done}
        names: dict[str, list[str]] = {}
        for one in found:
            names.setdefault(one.outcome, []).append(one.landed.key.name)
        return DiscoveryReport(
            new=tuple(names.get("new", ())),
            late=tuple(names.get("late", ())),
            quarantined=tuple(names.get("quarantined", ())),
            changed=tuple(names.get("changed", ())),
            moved=tuple(names.get("moved", ())),
            future=tuple(future),
            unparseable=tuple(sweep.unparseable),
            incomplete=tuple(landed[seen.name].key.name for seen in unknown if landed[seen.name].key not in ended),
            known=len(names.get("known", ())) + sweep.known,
            requests=sweep.requests,
            landed=tuple(one.landed for one in found if one.outcome != "moved"),
        )

    def _registered(self, feed: str, keys: Sequence[ItemKey]) -> set[ItemKey]:
        known = self.manifest.known(feed, keys)
        return {key for key in keys if key.id in known}

    def _keep_looks(self, feed: str, looks: dict[str, Look]) -> None:
        stored = {name: {"checksum": look.checksum, "first_seen": format_time(look.first_seen)} for name, look in looks.items()}
        self.manifest.keep_looks(feed, stored)

    def _look_from(self, feed: str, now: datetime) -> datetime | None:
        watermark = self.manifest.state(Application(LOAD)).feed(feed).watermark
        time_ = self.source.time(position_name(feed, watermark))
        return min(time_, now) - timedelta(days=self.dataset.landing.look_back_days) if time_ else None

    def _is_before(self, name: str, start: datetime | None) -> bool:
        time_ = self.source.time(name)
        return start is not None and time_ is not None and time_ < start

    # Work

    @contextmanager
    def lease(self, feed: str, application: str) -> Generator[Lease]:
        """The lease of a step on a feed, kept alive while the block runs. Raises LeaseBusy."""
        duration = timedelta(seconds=self.config.lease.seconds)
        with self.manifest.acquire(feed, application, self.holder, duration) as lease:
            yield lease

    def free_abandoned(self, lease: Lease, items: Iterable[Item]) -> int:
        """Frees those of the items that a dead worker left unshredded; returns how many.

        What it wrote is named by no record, so nothing is asked. The lease is what makes its holder dead.
        """
        freed = 0
        for item in items:
            blocker = item.blocker()
            if blocker and blocker.state is State.PROCESSING and blocker.application.key == SHRED:
                self.manifest.abandon(lease, Abandoned(item, blocker))
                freed += 1
        return freed

    def shred(self, lease: Lease, spark: Callable[[], SparkSession], items: Sequence[Item]) -> list[Shredded | ItemFailed]:
        """Shreds items that are ready, in one Spark job; each ends Processed or Failed on its own."""
        from manifest_platform.shred.batch import ShredFailure
        from manifest_platform.spark import cancellable

        session = spark()  # before any claim: a Spark that does not start is no failure of an item
        started, requests = time.monotonic(), self.manifest.store.requests
        claims = {one.item.key.id: one for one in self.manifest.claim(lease, items)}
        outcomes: list[Shredded | ItemFailed] = []
        directories: list[Directory] = []
        for claim in claims.values():
            try:
                directories.append(self.source.directory(claim, self._output(claim)))
            except (LandingError, Refused) as error:
                kind = FailureKind.TRANSIENT if isinstance(error, LandingUnavailable) else FailureKind.PERMANENT
                outcomes.append(self._fail(claim, Failure(kind, str(error), type(error).__name__)))
        with cancellable(session) as cancel, lease.cancelling(cancel):
            results = self.source.shred(session, directories) if directories else []
        lease.check()
        seconds = time.monotonic() - started
        each = (self.manifest.store.requests - requests) // max(1, len(claims))
        for result in results:
            claim = claims[result.item]
            if isinstance(result, ShredFailure):
                outcomes.append(self._fail(claim, Failure(FailureKind(result.kind), result.message)))
                continue
            before = self.manifest.store.requests
            self.manifest.complete(claim, _shredded_payload(claim, result, self._listing_uri(claim)))
            failpoints.reach("shred.completed")
            used = each + self.manifest.store.requests - before
            bytes_in = claim.item.landed.bytes if claim.item.landed else 0
            outcomes.append(Shredded(claim.item.key, result, bytes_in, seconds, len(claims), used))
        return outcomes

    def _output(self, claim: Claim) -> str:
        return f"{self.folder(claim.item.key)}/{claim.processing.record_id}"

    def _listing_uri(self, claim: Claim) -> str:
        return f"{self._output(claim)}/{LISTING_FILE}"

    def _fail(self, claim: Claim, failure: Failure) -> ItemFailed:
        self.manifest.fail(claim, failure)
        return ItemFailed(claim.item.key, claim.step.application.key, failure)

    def settle(self, lease: Lease, abandoned: Abandoned) -> Loaded | None:
        """Ends what a dead worker had begun to load: completes what the ledger has, fails what it lacks.

        The fence is raised to this lease's token first, so that the answer is final. Raises Unavailable.
        """
        state, step = self.manifest.state(lease.application), self.manifest.step(lease.feed, lease.application.key)
        self._raise_fence(lease, state.epoch)
        key = abandoned.item.key
        entry = self.warehouse.ledger_entry(key.feed, key.id, state.seen_by(step, key.feed).serving_epoch)
        if entry is None:
            self.manifest.abandon(lease, abandoned)
            log.warning("%s was left unfinished and is not in the ledger", key.name)
            return None
        bytes_loaded = self.shredded_bytes(abandoned.item)
        self.manifest.adopt(lease, abandoned, entry.epoch, loaded_payload(entry, bytes_loaded))
        return _loaded(abandoned.item, entry, bytes_loaded, 0.0, 0, already=True)

    def _raise_fence(self, lease: Lease, epoch: int) -> None:
        """Raises the fence; a sink that knows a newer token than the newest lease has outlived the manifest's backup."""
        from manifest_platform.warehouse.errors import Fenced

        try:
            self.warehouse.raise_fence(lease.feed, lease.token, epoch)
        except Fenced as fenced:
            if fenced.epoch > epoch:
                raise
            lease.raise_token(fenced.token)
            self.warehouse.raise_fence(lease.feed, lease.token, epoch)

    def load(self, lease: Lease, ready: Ready) -> Loaded | ItemFailed:
        """Loads the item that is next: claim, apply, complete.

        Raises ConditionFailed if it is not next any more, Fenced and Unavailable (nothing is recorded then: the next
        holder of the lease settles what was claimed), ClaimLost.
        """
        from manifest_platform.warehouse.apply import AlreadyApplied, Load
        from manifest_platform.warehouse.errors import Behind, PermanentFailure, Unclear

        started, requests = time.monotonic(), self.manifest.store.requests
        listing, gone = None, None
        try:
            listing = self.listing(ready.item)
        except OutputGone as error:
            gone = error
        [claim] = self.manifest.claim(lease, [ready.item], ready.state)
        failpoints.reach("load.claimed")
        if listing is None:
            return self._fail(claim, Failure(FailureKind.PERMANENT, str(gone), type(gone).__name__))
        state, key, landed = ready.state, ready.item.key, ready.item.landed
        feed = state.seen_by(claim.step, key.feed)
        try:
            load = Load(
                item=key.id,
                feed=key.feed,
                position=key.position,
                epoch=state.epoch,
                serving_epoch=feed.serving_epoch,
                token=lease.token,
                record_id=claim.processing.record_id,
                checksum=landed.checksum if landed else "",
                listing=listing,
                late=ready.item.is_late_for(lease.application, feed.serving_epoch),
                full=self._full(claim),
                snapshots=self._snapshots_of(key.feed),
            )
            with lease.cancelling(self.warehouse.interrupt):
                applied = self._apply(lease, load)
        except Unclear:
            settled = self.settle(lease, Abandoned(claim.item, claim.processing))
            return settled or ItemFailed(
                key, LOAD, Failure(FailureKind.LEASE_EXPIRED, "COMMIT failed; the ledger lacks the item")
            )
        except Behind as error:
            self.manifest.defer(claim, str(error))
            return ItemFailed(key, LOAD, Failure(FailureKind.BEHIND, str(error), type(error).__name__))
        except PermanentFailure as error:
            return self._fail(claim, Failure(FailureKind.PERMANENT, str(error), type(error).__name__, traceback.format_exc()))
        self.manifest.complete(claim, loaded_payload(applied.entry, listing.bytes))
        failpoints.reach("load.completed")
        seconds, used = time.monotonic() - started, self.manifest.store.requests - requests
        already = isinstance(applied, AlreadyApplied)
        return _loaded(ready.item, applied.entry, listing.bytes, seconds, used, already, listing.tables)

    def _snapshots_of(self, feed: str) -> str | None:
        """The feed whose snapshots contain a feed's items, if there is one."""
        return next((one for one in self.feeds if feed in self.manifest.step(one, LOAD).covers), None)

    def _full(self, claim: Claim) -> Full | None:
        """What a snapshot is to the warehouse; None for a directory that is none."""
        from manifest_platform.warehouse.apply import Full

        landed = claim.item.landed
        if claim.step.order != "full" or landed is None or landed.stop is None:
            return None  # a snapshot without a stop time is refused before it can be claimed
        boundary = f"{landed.stop}#{BEYOND_IDS}"
        return Full(boundary, covers=claim.step.covers, feeds=self.feeds, keeps=self.source.keeps)

    def _apply(self, lease: Lease, load: Load) -> Applied | AlreadyApplied:
        """Applies under the lease's token, or above it where the sink outlived the manifest's backup."""
        from manifest_platform.warehouse.errors import Fenced

        try:
            return self.warehouse.apply(load)
        except Fenced as fenced:
            if fenced.epoch > load.epoch:
                raise
            lease.raise_token(fenced.token)
            return self.warehouse.apply(dataclasses.replace(load, token=lease.token))

    def shredded_bytes(self, item: Item) -> int:
        """How much Parquet the completed shredding of an item wrote, by its record."""
        record = item.processed_by(Application(SHRED))
        return record.data["bytes"] if record else 0

    def recent_tables(self, records: int) -> list[Table]:
        """The tables of the newest items that were shredded, by name: of those that the newest records of each feed tell of.

        An item whose listing is gone is passed over.
        """
        tables: dict[str, Table] = {}
        for record in (record for feed in self.feeds for record in self.manifest.newest(feed, records)):
            listing = record.data.get("listing")
            named = set(record.data.get("tables", ())) if record.application.name == SHRED else set()
            if listing and named - tables.keys():
                with contextlib.suppress(OutputGone):
                    tables = {table.name: table for table in _read_listing(listing).tables} | tables
        return [tables[name] for name in sorted(tables) if tables[name].mode != "delete"]

    def listing(self, item: Item) -> Listing:
        """What the completed shredding of an item wrote. Raises Refused if it is not shredded, OutputGone, Unavailable."""
        record = item.processed_by(Application(SHRED))
        if record is None:
            raise Refused(f"{item.key.name} is not shredded yet")
        return _read_listing(record.data["listing"])


def folder_name(key: ItemKey) -> str:
    """What the folder is called below which the attempts at an item write: one level, whatever the item's name has."""
    return key.name.replace("/", ".", 1)


def _read_listing(uri: str) -> Listing:
    try:
        return Listing.read(uri)
    except FileNotFoundError as error:
        raise OutputGone(f"the listing {uri} is gone, though the manifest names it; put it back from a backup") from error
    except (ValueError, KeyError, TypeError) as error:
        raise OutputGone(f"the listing {uri} is damaged ({error}); put it back from a backup") from error
    except OSError as error:
        raise Unavailable(f"the listing {uri} cannot be read now: {error}") from error


def _shredded_payload(claim: Claim, listing: Listing, uri: str) -> Payload:
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
