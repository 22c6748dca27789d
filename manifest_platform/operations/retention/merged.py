"""What merging still needs of small objects: jobs that will read them, readers that see them, and rebuilds.

Belongs here: the reason why the shredded output of an item is needed, from the inventory alone. This is safe beside merges,
because small objects are needed less and less: never again once their rows are settled and readers get merged objects.
"""

from __future__ import annotations

from datetime import date, datetime

from manifest_platform.listing import BAD_TABLE, Listing
from manifest_platform.manifest import Item, ItemKey
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.settling import settled_upto
from manifest_platform.merging.state import LIVE, Partition


class MergingNeeds:
    """The needs of merging, read once for each partition.

    `read_until`: readers may still use files that were replaced after this time. `settles`: batches that were registered before
    this time count as settled, if they can be: the rows are deleted before the objects, but not in a dry run.
    """

    def __init__(self, inventory: Inventory, unregistered: set[ItemKey], read_until: datetime, settles: datetime | None):
        self._inventory, self._unregistered = inventory, unregistered
        self._read_until, self._settles = read_until, settles
        self._partitions: dict[tuple[str, date], tuple[Partition | None, set[str], str]] = {}

    def of(self, item: Item, listing: Listing) -> str:
        """Returns why merging needs the objects of an item's listing; empty if it does not."""
        if item.key in self._unregistered:
            return "no merge has registered its objects yet"
        places = {(one.table, date.fromisoformat(day)) for one in listing.objects for day in one.all_dates if day}
        for table, day in sorted(place for place in places if place[0] != BAD_TABLE):
            if why := self._need(item, table, day):
                return f"{table} of {day}: {why}"
        return ""

    def _need(self, item: Item, table: str, day: date) -> str:
        if (table, day) not in self._partitions:
            self._partitions[table, day] = self._look(table, day)
        partition, items, readers = self._partitions[table, day]
        if partition is None:
            return ""  # the table is not merged, or was dropped
        if item.key.id in items:
            return "its small objects are not merged, or the merged objects may be made again from them"
        return readers

    def _look(self, table: str, day: date) -> tuple[Partition | None, set[str], str]:
        """Reads a partition, the items with batches that are not settled, and why readers may still see small objects."""
        partition = self._inventory.partition(table, day)
        if partition is None:
            return None, set(), ""
        items: set[str] = set()
        upto, settling = settled_upto(partition), self._settles is not None
        for batch in self._inventory.batches(table, day):
            settling = settling and batch.objects[-1].id <= upto and self._is_old(batch.registered)
            if not settling:
                items.add(batch.item)
        return partition, items, self._readers(partition)

    def _is_old(self, registered: datetime) -> bool:
        return self._settles is not None and registered < self._settles

    def _readers(self, partition: Partition) -> str:
        if not partition.switched or partition.current <= LIVE:
            return "readers see small objects"
        versions = self._inventory.versions(partition.table, partition.date)
        if any(file.lower is None for version in versions for file in version.files):
            return "a version that readers may still use names small objects"
        if not any(version.version > LIVE and version.created <= self._read_until for version in versions):
            return "readers saw small objects until a short time ago"
        return ""
