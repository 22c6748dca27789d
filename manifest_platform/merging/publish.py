"""Publication: closes partitions whose day is over, switches merged partitions, and updates the catalog.

Belongs here: the order of these steps, and the reaction to errors and to concurrent publishers. `inventory` and the catalogs
implement the steps.

A partition's list of files is written first, where no reader sees it. Then the catalog entry moves to the list in one step.
Then the manifest records what readers see. If a publication stops between two steps, readers see either the old or the new
files, and the next publication continues: writing the same entry to the catalog again changes nothing.

A lease limits a dataset to a single publisher at a time. A catalog cannot refuse a publisher that lost its lease unnoticed, so
correctness does not depend on the lease. The manifest records a publication only if the recorded version has not changed
since the catalog was updated. Otherwise another publisher interfered, and the catalog is set to the manifest's version until
both agree.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from manifest_platform import failpoints
from manifest_platform.faults import Transient
from manifest_platform.manifest import Application, Lease, LeaseBusy, LeaseLost, Manifest, Refused
from manifest_platform.merging.catalogs.catalog import (
    Catalog,
    CatalogError,
    CatalogRejected,
    CatalogTable,
    CatalogUnavailable,
    Entry,
    catalog_table,
)
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.served import Served, live_files, served_files
from manifest_platform.merging.state import LIVE, NEW, MergedTable, Partition, ServedFile, Version
from manifest_platform.merging.transitions import Overtaken, is_over

log = logging.getLogger(__name__)

PUBLISH = Application("publish")
PLACE = "catalog"

_LOOKS = 5
"""Number of attempts for a partition that changes concurrently, before the next publication takes over."""


@dataclass(frozen=True)
class PublishSettings:
    """The parameters of a publication. `output`: the URI of merged objects and manifest files.

    `grace`: time that a partition stays open after its day ends. `two_runs`: True to switch a closed partition only in the next
    publication, and not to hasten its merge. `listed`: True to publish small objects that arrived after the close immediately,
    beside the merged objects. `comments`: comments on columns, by table (its name in shredding) and column. `verify`: True to
    compare all entries with the manifest, and not only those with changes. `lease`: the duration of the publisher's lease,
    measured by `clock` (wall time, independent of the time `now` of the publication).
    """

    output: str
    grace: timedelta = timedelta(0)
    two_runs: bool = False
    listed: bool = False
    comments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    verify: bool = False
    lease: timedelta = timedelta(seconds=60)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)


@dataclass(frozen=True, order=True)
class TablePart:
    """A partition, or a whole table if there is no date."""

    table: str
    day: date | None = None

    def __str__(self) -> str:
        return f"{self.table} of {self.day}" if self.day else self.table


@dataclass(frozen=True)
class Failed:
    """A table or partition that could not be published, and the reason. `transient`: a retry may succeed without a person."""

    place: TablePart
    error: str
    transient: bool


@dataclass(frozen=True)
class PublishReport:
    """The result of a publication.

    `entered`: tables whose catalog entry was created or changed. `shown`: partitions whose live objects readers see now.
    `published`: partitions of which readers see a merged version now, with its largest id. `waiting`: partitions that do not
    meet the conditions of the next step, and why. `put_back`: partitions reset to the manifest's version after a concurrent
    publication. `busy`: the other publisher that holds the lease, so that the catalog was not updated.
    Requests are counted for the manifest's store and for the catalog.
    """

    closed: tuple[TablePart, ...] = ()
    switched: tuple[TablePart, ...] = ()
    entered: tuple[TablePart, ...] = ()
    shown: tuple[TablePart, ...] = ()
    published: tuple[tuple[TablePart, int], ...] = ()
    put_back: tuple[TablePart, ...] = ()
    waiting: tuple[tuple[TablePart, str], ...] = ()
    failed: tuple[Failed, ...] = ()
    busy: str | None = None
    store_requests: int = 0
    catalog_requests: int = 0

    @property
    def succeeded(self) -> bool:
        """True if nothing failed. A concurrent publication by another publisher is not a failure."""
        return not self.failed


def publish(inventory: Inventory, catalog: Catalog, settings: PublishSettings, now: datetime) -> PublishReport:
    """Closes, switches and publishes everything that is due. Writes nothing if there are no changes.

    A failure of a table or partition does not stop the others. Raises StoreError if the manifest's store fails.
    """
    return _Publication(inventory, catalog, settings, now).run()


@dataclass(frozen=True)
class _Target:
    """The intended state of a partition for readers: the partition as read, its files, and the version row to record."""

    partition: Partition
    served: Served
    files: tuple[ServedFile, ...] = ()
    version: Version | None = None


@dataclass(frozen=True)
class _Work:
    """A table whose catalog entries need an update. `all`: True to update all partitions, not only those that are due."""

    entry: CatalogTable
    state: Entry
    due: tuple[Partition, ...]
    all: bool

    @property
    def table(self) -> MergedTable:
        return self.entry.table


class _Publication:
    """A publication in progress, with its results so far."""

    def __init__(self, inventory: Inventory, catalog: Catalog, settings: PublishSettings, now: datetime):
        self._inventory, self._catalog, self._settings, self._now = inventory, catalog, settings, now
        self._closed: list[TablePart] = []
        self._switched: list[TablePart] = []
        self._entered: list[TablePart] = []
        self._shown: list[TablePart] = []
        self._published: list[tuple[TablePart, int]] = []
        self._returned: list[TablePart] = []
        self._waiting: list[tuple[TablePart, str]] = []
        self._failed: list[Failed] = []
        self._busy: str | None = None

    def run(self) -> PublishReport:
        store_before, catalog_before = self._inventory.store.requests, self._catalog.requests
        tables = {table.key: table for table in self._inventory.tables() if table.enabled and not table.dropped}
        found = [found for found in self._inventory.open_partitions() if found.table in tables]
        self._update([self._advanced(tables[partition.table], partition) for partition in found], tables)
        return PublishReport(
            closed=tuple(self._closed),
            switched=tuple(self._switched),
            entered=tuple(self._entered),
            shown=tuple(self._shown),
            published=tuple(self._published),
            put_back=tuple(self._returned),
            waiting=tuple(self._waiting),
            failed=tuple(self._failed),
            busy=self._busy,
            store_requests=self._inventory.store.requests - store_before,
            catalog_requests=self._catalog.requests - catalog_before,
        )

    # Close and switch

    def _advanced(self, table: MergedTable, partition: Partition) -> Partition:
        """Closes and switches a partition if possible; with `two_runs`, not both in one publication."""
        try:
            if self._settings.two_runs:
                return self._close(table, self._switch(partition))
            return self._switch(self._close(table, partition))
        except Refused as refused:
            self._waiting.append((_place(partition), str(refused)))
            return partition

    def _close(self, table: MergedTable, partition: Partition) -> Partition:
        if partition.closed or not is_over(partition.date, table.zone, self._settings.grace, self._now):
            return partition
        after = self._inventory.close(partition, self._now, self._settings.grace, hasten=not self._settings.two_runs)
        if after.closed:
            self._closed.append(_place(after))
            failpoints.reach("publish.closed")
        return after

    def _switch(self, partition: Partition) -> Partition:
        if partition.switched or partition.last_live is None:
            return partition
        if partition.upper < partition.last_live:
            left = partition.waiting.objects
            self._waiting.append((_place(partition), f"it is closed, but {left} of its objects are not merged yet"))
            return partition
        after = self._inventory.switch(partition)
        if after.switched:
            self._switched.append(_place(after))
            failpoints.reach("publish.switched")
        return after

    # Catalog updates

    def _update(self, partitions: Sequence[Partition], tables: Mapping[str, MergedTable]) -> None:
        work = self._work(partitions, tables)
        if not work:
            return
        try:
            with self._hold() as lease:
                for one in work:
                    lease.check()
                    self._table(one, lease)
        except LeaseBusy as busy:
            self._busy = busy.lease.holder
        except LeaseLost as lost:
            self._failed.append(Failed(TablePart("*"), f"{lost}: another publisher continues", transient=True))

    def _hold(self) -> Lease:
        """Takes the publisher's lease. Raises LeaseBusy while another publisher holds it."""
        inventory = self._inventory
        manifest = Manifest(
            inventory.store, inventory.dataset, {}, inventory.owner, inventory.run_id, clock=self._settings.clock
        )
        return manifest.hold(PUBLISH, PLACE, inventory.owner, self._settings.lease)

    def _work(self, partitions: Sequence[Partition], tables: Mapping[str, MergedTable]) -> list[_Work]:
        due: dict[str, list[Partition]] = {}
        for partition in partitions:
            if self._is_due(partition):
                due.setdefault(partition.table, []).append(partition)
        found = []
        for entry, state in self._entries(tables.values()):
            table = entry.table
            moved = self._catalog.known_as(entry) not in (None, table.catalog_name)
            everything = moved or state == "missing" or self._settings.verify
            if everything or state != "current" or table.key in due:
                found.append(_Work(entry, state, tuple(due.get(table.key, ())), everything))
        # Tables that give up a name go first, because another table may take it.
        return sorted(found, key=lambda work: not self._gives_up_a_name(work))

    def _entries(self, tables: Iterable[MergedTable]) -> Iterator[tuple[CatalogTable, Entry]]:
        """Yields each table for the catalog with the state of its entry. Tables whose state cannot be read are failures."""
        schemas: dict[str, list[CatalogTable]] = {}
        for table in tables:
            try:
                entry = catalog_table(table, self._settings.output, self._settings.comments.get(table.key, {}))
            except CatalogError as error:
                self._fail(TablePart(table.key), error)
            else:
                schemas.setdefault(table.schema, []).append(entry)
        for schema, entries in schemas.items():
            try:
                yield from self._catalog.entries(schema, entries).items()
            except CatalogError as error:
                for entry in entries:
                    self._fail(TablePart(entry.table.key), error)

    def _is_due(self, partition: Partition) -> bool:
        recorded = Served.recorded(partition)
        if partition.switched:
            return Served(partition.generation, self._newest_of(partition)) > recorded
        if not partition.newest_live:
            return False
        unseen = not self._catalog.shows_live and partition.newest_live > recorded.newest
        return partition.current == NEW or unseen

    def _newest_of(self, partition: Partition) -> int:
        """The largest id in the next merged version. An object that readers have seen is never removed."""
        newest = partition.newest if self._settings.listed else partition.published_newest
        return max(partition.desired, newest)

    # One table

    def _table(self, work: _Work, lease: Lease) -> None:
        place = TablePart(work.table.key)
        try:
            if work.state != "current":
                self._catalog.put_table(work.entry)
                self._entered.append(place)
                failpoints.reach("publish.entered")
            failures = len(self._failed)
            self._partitions(work, lease)
            if len(self._failed) == failures:
                self._rename(work)
        except CatalogError as error:
            self._fail(place, error)

    def _partitions(self, work: _Work, lease: Lease) -> None:
        """Publishes the due partitions of a table, and corrects other entries that differ from the manifest."""
        targets = {target.partition.date: target for target in map(self._target, work.due) if target}
        known = self._catalog.locations(work.entry) if work.all and work.state != "missing" else {}
        corrected = self._unpublished(work, known, targets) if work.all else {}
        updates = corrected | targets
        new = [day for day, one in updates.items() if (day not in known if work.all else one.partition.current == NEW)]
        for day, one in list(updates.items()):
            try:
                self._catalog.write(work.entry, day, one.served, one.files)
            except CatalogError as error:
                self._fail(TablePart(work.table.key, day), error)
                del updates[day]
        if not updates:
            return
        failpoints.reach("publish.written")
        lease.heartbeat()
        errors = self._catalog.point(work.entry, {day: one.served for day, one in updates.items()}, new)
        for day, error in errors.items():
            self._fail(TablePart(work.table.key, day), error)
        failpoints.reach("publish.pointed")
        updates = {day: one for day, one in updates.items() if day not in errors}
        raced = [day for day, one in updates.items() if day in targets and not self._record(one)]
        checked = {day: one.served for day, one in updates.items() if day in corrected}
        self._put_back(work.entry, {**checked, **dict.fromkeys(raced)})

    def _target(self, partition: Partition) -> _Target | None:
        """The intended state of a due partition; None if it is not due any more, or its ranges are incomplete.

        The partition is read again, because another publisher may have worked on it before this publisher got the lease.
        """
        place, looked = _place(partition), self._inventory.partition(partition.table, partition.date)
        if looked is None or not self._is_due(looked):
            return None
        if not looked.switched:
            newest = looked.newest_live
            files = () if self._catalog.shows_live else live_files(self._inventory, looked, newest)
            return _Target(looked, Served(0, newest), files) if self._can_be_read(place, files) else None
        looked, ranges = self._inventory.chain(partition.table, partition.date)
        if looked is None:
            return None
        if not ranges or ranges[-1].upper != looked.desired:
            self._waiting.append((place, f"its ranges do not end at {looked.desired}, the version to publish"))
            return None
        newest = self._newest_of(looked)
        later = (
            self._inventory.small_objects(looked.table, looked.date, after=looked.desired) if newest > looked.desired else []
        )
        files = (*map(ServedFile.of_range, ranges), *(ServedFile.of_small(one) for one in later if one.id <= newest))
        if not self._can_be_read(place, files):
            return None
        version = Version(looked.table, looked.date, newest, looked.generation, self._now, files)
        return _Target(looked, Served(version.generation, version.version), files, version)

    def _can_be_read(self, place: TablePart, files: Sequence[ServedFile]) -> bool:
        """True if the catalog's readers can read the files. Otherwise the partition waits for the merge of its small objects.

        Only files that were shredded before the dataset had this catalog can hold several dates.
        """
        shared = sum(file.groups is not None for file in files)
        if not shared or self._catalog.reads_row_groups:
            return True
        self._waiting.append(
            (
                place,
                f"{shared} of its files hold other dates, too, which this catalog's readers would see: it waits for a merge",
            )
        )
        return False

    def _unpublished(self, work: _Work, known: Mapping[date, str], but: Collection[date]) -> dict[date, _Target]:
        """The published partitions whose catalog entry differs from the manifest or does not exist, except those in `but`."""
        found = {}
        for partition in self._inventory.partitions(work.table.key):
            served = Served.recorded(partition)
            right = self._catalog.location(work.entry, partition.date, served)
            if partition.current == NEW or partition.date in but or known.get(partition.date) == right:
                continue
            if _is_lost(self._inventory, partition):
                reason = f"the manifest lacks the row of version {served.newest}: rebuild the partition"
                self._failed.append(Failed(_place(partition), reason, transient=False))
                continue
            found[partition.date] = _Target(partition, served, served_files(self._inventory, partition))
        return found

    def _record(self, target: _Target) -> bool:
        """Records in the manifest what readers see. True if nobody recorded anything else since the partition was read.

        After a concurrent publication, it tries again with the newer partition, unless that has the same or a newer version.
        """
        partition, served, place = target.partition, target.served, _place(target.partition)
        for _ in range(_LOOKS):
            try:
                self._inventory.published(partition, served.generation, served.newest, target.version)
            except Overtaken as overtaken:
                partition = overtaken.partition
                if Served.recorded(partition) >= served:
                    return False
            except Refused as refused:
                self._failed.append(Failed(place, str(refused), transient=True))
                return partition is target.partition
            else:
                failpoints.reach("publish.recorded")
                if target.version:
                    self._published.append((place, target.version.version))
                else:
                    self._shown.append(place)
                return partition is target.partition
        self._failed.append(Failed(place, f"others published it {_LOOKS} times meanwhile", transient=True))
        return False

    def _put_back(self, entry: CatalogTable, written: Mapping[date, Served | None]) -> None:
        """Writes the manifest's version to the catalog, and repeats this until the manifest no longer changes meanwhile.

        `written`: the state that was last written to the catalog for each date; None if it is unknown. The catalog has no
        conditional writes, so each round compares the manifest with the state that the last round wrote.
        """
        for _ in range(_LOOKS):
            wrong = {}
            for day, last in written.items():
                partition = self._inventory.partition(entry.table.key, day)
                if partition and partition.current != NEW and Served.recorded(partition) != last:
                    wrong[day] = Served.recorded(partition)
            if not wrong:
                return
            self._returned += [TablePart(entry.table.key, day) for day in wrong]
            errors = self._catalog.point(entry, wrong, ())
            for day, error in errors.items():
                self._fail(TablePart(entry.table.key, day), error)
            written = {day: served for day, served in wrong.items() if day not in errors}
        self._fail(TablePart(entry.table.key), CatalogUnavailable("another publisher keeps changing its partitions"))

    def _gives_up_a_name(self, work: _Work) -> bool:
        return work.table.catalog_name not in (None, self._catalog.known_as(work.entry))

    def _rename(self, work: _Work) -> None:
        """Removes the table's old name after all partitions exist under the new name, and records the new name."""
        name, old = self._catalog.known_as(work.entry), work.table.catalog_name
        if name is None or name == old:
            return
        if old:
            failpoints.reach("publish.renamed")
            try:
                self._catalog.remove_table(old, work.entry.location)
            except CatalogRejected as error:
                self._fail(TablePart(work.table.key), error)  # reported once: a person removes it
            failpoints.reach("publish.removed")
        self._inventory.catalogued(work.table.key, name)

    def _fail(self, place: TablePart, error: CatalogError) -> None:
        log.warning("%s is not published: %s", place, error)
        self._failed.append(Failed(place, str(error), isinstance(error, Transient)))


@dataclass(frozen=True)
class CatalogDifference:
    """A catalog entry that differs from the manifest. Without a date, it is the entry of a table.

    `lost`: the manifest lacks the row of the version that readers should see, so that its files are unknown.
    """

    place: TablePart
    expected: str
    found: str
    lost: bool = False


def differences(inventory: Inventory, catalog: Catalog, settings: PublishSettings) -> list[CatalogDifference]:
    """Finds catalog entries that differ from the manifest; changes nothing. A publication that is due is no difference.

    A publication with `verify` repairs them, except lost versions, which must be rebuilt. Raises CatalogError.
    """
    found: list[CatalogDifference] = []
    for table in inventory.tables():
        if table.dropped or not table.enabled:
            continue
        entry = catalog_table(table, settings.output, settings.comments.get(table.key, {}))
        state = catalog.entries(table.schema, [entry])[entry]
        if state != "current":
            found.append(CatalogDifference(TablePart(table.key), "current", state))
        known = dict(catalog.locations(entry))
        for partition in inventory.partitions(table.key):
            actual = known.pop(partition.date, "missing")
            expected = (
                "missing" if partition.current == NEW else catalog.location(entry, partition.date, Served.recorded(partition))
            )
            if actual != expected:
                found.append(CatalogDifference(_place(partition), expected, actual, _is_lost(inventory, partition)))
        found += [CatalogDifference(TablePart(table.key, day), "missing", actual) for day, actual in sorted(known.items())]
    return found


def _is_lost(inventory: Inventory, partition: Partition) -> bool:
    """True if readers should see a merged version whose row does not exist in the manifest."""
    return partition.current > LIVE and inventory.shown_version(partition) is None


def _place(partition: Partition) -> TablePart:
    return TablePart(partition.table, partition.date)
