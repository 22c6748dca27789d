"""The manifest compared with the warehouse's ledger: items loaded but not recorded, and items recorded but not loaded.

Belongs here: the comparison of a feed's ledger with every item. The warehouse is read and never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from manifest_platform.manifest import Application, Item, ItemKey, Record
from manifest_platform.operations.bad_replay import is_replay
from manifest_platform.operations.doctor.findings import CLEAN, REPAIR, Finding, Kind
from manifest_platform.operations.doctor.log import Watcher, look_again
from manifest_platform.operations.tables import was_accepted, was_taken_over
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.chain import broken_at
from manifest_platform.pipeline.loading import is_applied
from manifest_platform.remedies import Action, Remedy

if TYPE_CHECKING:
    from manifest_platform.warehouse.apply import LedgerEntry, Warehouse


def shadows(pipeline: Pipeline, warehouse: Warehouse, now: datetime) -> Iterator[Finding]:
    """Yields the tables that a killed full load left. While the snapshots' lease is held, a full load still makes them."""
    feed = pipeline.source.snapshots
    lease = pipeline.manifest.lease(pipeline.load, feed) if feed else None
    if feed and not (lease and lease.is_live(now)):
        for name in warehouse.leftovers():
            cause = "a killed full load left this table. Nobody reads it, and the next full load drops it"
            yield Finding(Kind.SHADOW, cause, CLEAN, step=pipeline.load.key, place=f"{warehouse.schema}.{name}")


class LedgerWatcher(Watcher):
    """Compares each item with the ledger."""

    def __init__(self, pipeline: Pipeline, warehouse: Warehouse, now: datetime):
        self.pipeline, self.manifest, self.warehouse, self.now = pipeline, pipeline.manifest, warehouse, now
        self._application, self._step = pipeline.load, pipeline.load.key

    def feed(self, feed: str) -> None:
        """Begins to read a feed's ledger."""
        self._feed = feed
        standing = self.manifest.state(self._application).feed(feed)
        self._serving, self._accepted = standing.serving_epoch, standing.accepted
        self._entries = self.warehouse.ledger(feed, self._serving)
        self._next = next(self._entries, None)
        self._suspects: dict[ItemKey, LedgerEntry | None] = {}
        self._broken = broken_at(self.pipeline, self.warehouse, feed)

    def see(self, item: Item) -> None:
        """Takes an item of the manifest. The ledger must have it exactly if it is recorded as loaded."""
        self._pass(item.key.position)
        entry = None
        if self._next and self._next.position == item.key.position:
            entry, self._next = self._next, next(self._entries, None)
        entry = entry if is_applied(item, self._application, entry) else None
        recorded = self._recorded(item)
        if (recorded is None) != (entry is None) and not self._accepted_without(recorded):
            self._suspects[item.key] = entry

    def _recorded(self, item: Item) -> Record | None:
        """Returns the record of a load that was entered in the ledger. That of an import was not, and has no token."""
        record = item.processed_by(self._application, self._serving)
        return record if record and (record.token is not None or was_taken_over(record)) else None

    def _accepted_without(self, recorded: Record | None) -> bool:
        """True if an item was loaded before the warehouse was accepted as it is, so that no ledger needs to have it."""
        return recorded is not None and was_accepted(recorded, self._accepted)

    def _pass(self, position: str | None) -> None:
        while self._next and (position is None or self._next.position < position):
            self._suspects[ItemKey.at(self._feed, self._next.position)] = self._next
            self._next = next(self._entries, None)

    def end(self, feed: str) -> Iterator[Finding]:
        """Yields the persistent differences. A load commits before it is recorded: the ledger is read again, then the log."""
        self._pass(None)
        if not self._suspects:
            return
        entries = {entry.position: entry for entry in self.warehouse.ledger(feed, self._serving)}
        for key in self._suspects:
            item, entry = look_again(self.manifest, key), entries.get(key.position)
            if isinstance(item, Finding):
                yield item
                continue
            recorded = self._recorded(item)
            if entry and not item.records:
                if not self._accepted or self.pipeline.source.holds(key.id):  # otherwise it is older than the acceptance
                    yield self._unknown(key, entry)
                continue
            entry = entry if is_applied(item, self._application, entry) else None
            if entry and not recorded and not self._in_work(item):
                yield self._unrecorded(item, entry)
            elif recorded and not entry and not self._accepted_without(recorded):
                yield self._unledgered(item, recorded)

    def _in_work(self, item: Item) -> bool:
        """True if a worker may be about to record it, or the lease's holder will."""
        lease = self.manifest.lease(self._application, item.key.feed)
        return lease is not None and lease.is_live(self.now)

    def _unknown(self, key: ItemKey, entry: LedgerEntry) -> Finding:
        cause = (
            f"the warehouse has had it since {entry.applied_at:%Y-%m-%d %H:%M:%S %Z}, and the manifest does not know it: the"
            f" manifest was restored from a backup, or the warehouse belongs to another manifest"
        )
        repairable = self.pipeline.source.holds(key.id) or is_replay(self.pipeline, key)
        if self._broken and not repairable:
            return Finding(Kind.UNKNOWN, cause, self._broken.remedy, key, self._step)
        cause = f"{cause}. The repair discovers {key.id}"
        return Finding(Kind.UNKNOWN, cause, REPAIR, key, self._step, repairable=repairable)

    def _unrecorded(self, item: Item, entry: LedgerEntry) -> Finding:
        at = f"{entry.applied_at:%Y-%m-%d %H:%M:%S %Z}"
        cause = f"the warehouse has had it since {at} (epoch {entry.epoch}, token {entry.token}), and no record says so"
        state = self.manifest.state(self._application)
        if self.manifest.step(item.key.feed, self._step).order == "full" and state.full != item.key.position:
            cause = f"{cause}: the manifest was restored to a time before this full load, which must begin again"
            return Finding(Kind.UNRECORDED, cause, Remedy(Action.LOAD_SNAPSHOT, item=item.key.name), item.key, self._step)
        if item.processed_by(Application(SHRED)):
            return Finding(Kind.UNRECORDED, cause, REPAIR, item.key, self._step, repairable=True)
        cause = f"{cause}. It must be shredded again first, for which its directory must exist. It is not loaded a second time"
        return Finding(Kind.UNRECORDED, cause, Remedy(Action.DRAIN), item.key, self._step)

    def _unledgered(self, item: Item, record: Record) -> Finding:
        at = f"{record.timestamp:%Y-%m-%d %H:%M:%S %Z}"
        cause = (
            f"{self._step} recorded it as loaded at {at}, and the warehouse's ledger lacks it: the warehouse was restored from"
            " a backup, or belongs to another manifest"
        )
        if self._broken:
            return Finding(Kind.UNLEDGERED, cause, self._broken.remedy, item.key, self._step)
        # The warehouse has the newest load, so another program changed the ledger. No command can repair that.
        return Finding(Kind.UNLEDGERED, cause, Remedy(Action.READ_RECORDS, item=item.key.name), item.key, self._step)
