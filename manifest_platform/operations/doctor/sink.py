"""The manifest against the warehouse's ledger: loaded but not recorded, recorded but not loaded.

Belongs here: what the ledger of a feed says of every item, read and never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from manifest_platform.manifest import Application, Item, ItemKey, Record
from manifest_platform.operations.doctor.findings import CLEAN, REPAIR, Finding, Kind
from manifest_platform.operations.doctor.log import Watcher, look_again
from manifest_platform.pipeline import LOAD, SHRED, Pipeline
from manifest_platform.pipeline.chain import broken_at
from manifest_platform.remedies import Action, Remedy

if TYPE_CHECKING:
    from manifest_platform.warehouse.apply import LedgerEntry, Warehouse


def shadows(pipeline: Pipeline, warehouse: Warehouse, now: datetime) -> Iterator[Finding]:
    """The tables that a killed full load left. While somebody holds the snapshots' lease, they are in the making."""
    feed = pipeline.source.snapshots
    lease = pipeline.manifest.lease(Application(LOAD), feed) if feed else None
    if feed and not (lease and lease.is_live(now)):
        for name in warehouse.leftovers():
            cause = "a full load that was killed made it; nobody reads it, and the next full load drops it"
            yield Finding(Kind.SHADOW, cause, CLEAN, step=LOAD, place=f"{warehouse.schema}.{name}")


class LedgerWatcher(Watcher):
    """Compares each item that passes with the ledger."""

    def __init__(self, pipeline: Pipeline, warehouse: Warehouse, now: datetime):
        self.pipeline, self.manifest, self.warehouse, self.now = pipeline, pipeline.manifest, warehouse, now
        self._application = Application(LOAD)

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
        """An item of the manifest: the ledger has it exactly if it is recorded as loaded."""
        self._pass(item.key.position)
        entry = None
        if self._next and self._next.position == item.key.position:
            entry, self._next = self._next, next(self._entries, None)
        recorded = self._recorded(item)
        if (recorded is None) != (entry is None) and not self._accepted_without(recorded):
            self._suspects[item.key] = entry

    def _recorded(self, item: Item) -> Record | None:
        """The record that an item was loaded by this platform: under a lease, so with a token. What was imported has none."""
        record = item.processed_by(self._application, self._serving)
        return record if record and record.token is not None else None

    def _accepted_without(self, recorded: Record | None) -> bool:
        """Whether an item was loaded before the warehouse was accepted as it is: that it is in no ledger is on purpose."""
        return recorded is not None and (recorded.token or 0) <= self._accepted

    def _pass(self, position: str | None) -> None:
        while self._next and (position is None or self._next.position < position):
            self._suspects[ItemKey.at(self._feed, self._next.position)] = self._next
            self._next = next(self._entries, None)

    def end(self, feed: str) -> Iterator[Finding]:
        """What differs still: a load commits first and is recorded then, so the ledger is read once more, and then the log."""
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
                if not self._accepted or self.pipeline.source.holds(key.id):  # else it was there when accepted
                    yield self._unknown(key, entry)
            elif entry and not recorded and not self._in_work(item):
                yield self._unrecorded(item, entry)
            elif recorded and not entry and not self._accepted_without(recorded):
                yield self._unledgered(item, recorded)

    def _in_work(self, item: Item) -> bool:
        """Whether a worker may be about to record it, or whoever holds the lease will."""
        lease = self.manifest.lease(self._application, item.key.feed)
        return lease is not None and lease.is_live(self.now)

    def _unknown(self, key: ItemKey, entry: LedgerEntry) -> Finding:
        cause = (
            f"the warehouse has it since {entry.applied_at:%Y-%m-%d %H:%M:%S %Z}, and the manifest does not know it: it was put"
            f" back from a backup, or is another one"
        )
        repairable = self.pipeline.source.holds(key.id)
        if self._broken and not repairable:
            return Finding(Kind.UNKNOWN, cause, self._broken.remedy, key, LOAD)
        cause = f"{cause}. To repair looks for {key.id}"
        return Finding(Kind.UNKNOWN, cause, REPAIR, key, LOAD, repairable=repairable)

    def _unrecorded(self, item: Item, entry: LedgerEntry) -> Finding:
        at = f"{entry.applied_at:%Y-%m-%d %H:%M:%S %Z}"
        cause = f"the warehouse has it since {at} (epoch {entry.epoch}, token {entry.token}), and no record says so"
        state = self.manifest.state(self._application)
        if self.manifest.step(item.key.feed, LOAD).order == "full" and state.full != item.key.position:
            cause = f"{cause}: the manifest was put back to before this full load, which must be begun again"
            return Finding(Kind.UNRECORDED, cause, Remedy(Action.LOAD_SNAPSHOT, item=item.key.name), item.key, LOAD)
        if item.processed_by(Application(SHRED)):
            return Finding(Kind.UNRECORDED, cause, REPAIR, item.key, LOAD, repairable=True)
        cause = f"{cause}; it must be shredded again first, for which its directory must be there, and is not loaded again"
        return Finding(Kind.UNRECORDED, cause, Remedy(Action.DRAIN), item.key, LOAD)

    def _unledgered(self, item: Item, record: Record) -> Finding:
        at = f"{record.timestamp:%Y-%m-%d %H:%M:%S %Z}"
        cause = (
            f"{LOAD} recorded it as loaded at {at}, and the warehouse's ledger lacks it: the warehouse was put back from a"
            " backup, or is another one"
        )
        if self._broken:
            return Finding(Kind.UNLEDGERED, cause, self._broken.remedy, item.key, LOAD)
        # The warehouse has what was loaded last: somebody has changed the ledger, which no command can set right.
        return Finding(Kind.UNLEDGERED, cause, Remedy(Action.READ_RECORDS, item=item.key.name), item.key, LOAD)
