"""Publishing: closing partitions whose day is over, switching those that are merged, and telling the catalog.

Belongs here: the order of these steps, and what happens when one of them fails or another publisher is at work. How each of
them is done is in `inventory` and in the catalogs.

A partition's files are listed first, where no reader looks; then its entry is moved to the list in one step; then the manifest
notes what readers see. Whatever stops a publication between two steps, readers see the old or the new files, and the next one
goes on: told again, a catalog is told the same.

One publisher works at a time, by a lease. A catalog cannot refuse one who has lost it without knowing, so nothing rests on the
lease: the manifest notes a publication only if it still says what it said before the catalog was told. If not, another was
at work, and the catalog is told what the manifest says until nobody interferes.
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
"""How often a partition that changes meanwhile is looked at again, before it is left to the next publication."""


@dataclass(frozen=True)
class PublishSettings:
    """How is published. `output`: the URI under which merged objects and manifest files lie.

    `grace`: how long after its day ends a partition is still open. `two_runs`: a partition that is closed is switched by the
    next publication, not by the same, and its merge is not hastened. `listed`: merged versions are published together with the
    small objects that came later. `comments`: what people wrote about columns, by table (as shredding calls it) and column.
    `verify`: compare every entry with what it should be, and not only those that have news. `lease`: how long a publisher that
    says nothing is thought to be alive, by `clock`, which goes by the wall whatever is published as of when.
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
    """A partition, or with no date a whole table."""

    table: str
    day: date | None = None

    def __str__(self) -> str:
        return f"{self.table} of {self.day}" if self.day else self.table


@dataclass(frozen=True)
class Failed:
    """What could not be published, and why. `transient`: trying again may help without a person."""

    place: TablePart
    error: str
    transient: bool


@dataclass(frozen=True)
class PublishReport:
    """What a publication did.

    `entered`: tables whose entry was made or changed. `shown`: partitions whose live objects readers see now. `published`:
    those of which readers see a merged version now, with its largest id. `waiting`: partitions that are not as the next step
    needs them, and why. `put_back`: those that another publisher had told otherwise at the same time. `busy`: who else
    publishes, so that this one told the catalog nothing. Requests are those to the manifest's store and to the catalog.
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
        """Whether nothing failed; a publication by another publisher is no failure."""
        return not self.failed


def publish(inventory: Inventory, catalog: Catalog, settings: PublishSettings, now: datetime) -> PublishReport:
    """Closes, switches and publishes all that is due, and says what it did. With no news it writes nothing.

    What fails of one table or partition does not stop the others. Raises StoreError: without the manifest nothing is known.
    """
    return _Publication(inventory, catalog, settings, now).run()


@dataclass(frozen=True)
class _Target:
    """What readers of a partition are to see: as it was read, with the files, and the version that the manifest keeps."""

    partition: Partition
    served: Served
    files: tuple[ServedFile, ...] = ()
    version: Version | None = None


@dataclass(frozen=True)
class _Work:
    """A table of which the catalog is to be told something. `all`: of all its partitions, not only those that are due."""

    entry: CatalogTable
    standing: Entry
    due: tuple[Partition, ...]
    all: bool

    @property
    def table(self) -> MergedTable:
        return self.entry.table


class _Publication:
    """One publication as it goes on, with what it has to report so far."""

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
        asked, told = self._inventory.store.requests, self._catalog.requests
        tables = {table.key: table for table in self._inventory.tables() if table.enabled and not table.dropped}
        found = [found for found in self._inventory.open_partitions() if found.table in tables]
        self._tell([self._moved_on(tables[partition.table], partition) for partition in found], tables)
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
            store_requests=self._inventory.store.requests - asked,
            catalog_requests=self._catalog.requests - told,
        )

    # Close and switch

    def _moved_on(self, table: MergedTable, partition: Partition) -> Partition:
        """The partition after what the day's end and its merges allow; where two runs are asked for, not both at once."""
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
            self._waiting.append((_place(partition), f"closed, and {left} of its objects are not merged yet"))
            return partition
        after = self._inventory.switch(partition)
        if after.switched:
            self._switched.append(_place(after))
            failpoints.reach("publish.switched")
        return after

    # What there is to tell

    def _tell(self, partitions: Sequence[Partition], tables: Mapping[str, MergedTable]) -> None:
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
            self._failed.append(Failed(TablePart("*"), f"{lost}: another publisher goes on from here", transient=True))

    def _hold(self) -> Lease:
        """The one publisher's lease. Raises LeaseBusy while another's is live."""
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
        for entry, standing in self._standings(tables.values()):
            table = entry.table
            moved = self._catalog.known_as(entry) not in (None, table.catalog_name)
            everything = moved or standing == "missing" or self._settings.verify
            if everything or standing != "current" or table.key in due:
                found.append(_Work(entry, standing, tuple(due.get(table.key, ())), everything))
        # A name that a table gives up may be another's now.
        return sorted(found, key=lambda work: not self._gives_up_a_name(work))

    def _standings(self, tables: Iterable[MergedTable]) -> Iterator[tuple[CatalogTable, Entry]]:
        """Each table as readers are to know it, and how its entry stands; those that cannot be asked about have failed."""
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
        """The largest id in a merged version. What readers have seen once is not taken back."""
        newest = partition.newest if self._settings.listed else partition.published_newest
        return max(partition.desired, newest)

    # Telling it

    def _table(self, work: _Work, lease: Lease) -> None:
        place = TablePart(work.table.key)
        try:
            if work.standing != "current":
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
        """Has readers see what is due of a table, and the rest of it where the catalog does not say what it should."""
        targets = {target.partition.date: target for target in map(self._target, work.due) if target}
        known = self._catalog.locations(work.entry) if work.all and work.standing != "missing" else {}
        again = self._unknown(work, known, targets) if work.all else {}
        told = again | targets
        new = [day for day, one in told.items() if (day not in known if work.all else one.partition.current == NEW)]
        for day, one in list(told.items()):
            try:
                self._catalog.write(work.entry, day, one.served, one.files)
            except CatalogError as error:
                self._fail(TablePart(work.table.key, day), error)
                del told[day]
        if not told:
            return
        failpoints.reach("publish.written")
        lease.heartbeat()
        errors = self._catalog.point(work.entry, {day: one.served for day, one in told.items()}, new)
        for day, error in errors.items():
            self._fail(TablePart(work.table.key, day), error)
        failpoints.reach("publish.pointed")
        told = {day: one for day, one in told.items() if day not in errors}
        raced = [day for day, one in told.items() if day in targets and not self._record(one)]
        looked = {day: one.served for day, one in told.items() if day in again}
        self._put_back(work.entry, {**looked, **dict.fromkeys(raced)})

    def _target(self, partition: Partition) -> _Target | None:
        """What readers are to see of a partition that is due, as it is now; None if it is not in the state for it.

        It is looked at again, for another publisher may have been at work before this one had the lease.
        """
        place, looked = _place(partition), self._inventory.partition(partition.table, partition.date)
        if looked is None or not self._is_due(looked):
            return None
        if not looked.switched:
            newest = looked.newest_live
            files = () if self._catalog.shows_live else live_files(self._inventory, looked, newest)
            return _Target(looked, Served(0, newest), files)
        looked, ranges = self._inventory.chain(partition.table, partition.date)
        if looked is None:
            return None
        if not ranges or ranges[-1].upper != looked.desired:
            self._waiting.append((place, f"its ranges do not end at {looked.desired}, the version that is due"))
            return None
        newest = self._newest_of(looked)
        later = (
            self._inventory.small_objects(looked.table, looked.date, after=looked.desired) if newest > looked.desired else []
        )
        files = (*map(ServedFile.of_range, ranges), *(ServedFile.of_small(one) for one in later if one.id <= newest))
        version = Version(looked.table, looked.date, newest, looked.generation, self._now, files)
        return _Target(looked, Served(version.generation, version.version), files, version)

    def _unknown(self, work: _Work, known: Mapping[date, str], but: Collection[date]) -> dict[date, _Target]:
        """The partitions that readers should see already, and that the catalog does not have so."""
        found = {}
        for partition in self._inventory.partitions(work.table.key):
            served = Served.recorded(partition)
            right = self._catalog.location(work.entry, partition.date, served)
            if partition.current == NEW or partition.date in but or known.get(partition.date) == right:
                continue
            if _is_lost(self._inventory, partition):
                reason = f"the manifest has no row of version {served.newest} any more: rebuild the partition"
                self._failed.append(Failed(_place(partition), reason, transient=False))
                continue
            found[partition.date] = _Target(partition, served, served_files(self._inventory, partition))
        return found

    def _record(self, target: _Target) -> bool:
        """Notes in the manifest what readers see; whether nobody noted anything else since the partition was read.

        No loop that begins anew: each look goes on from the partition that the last one was overtaken by.
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

    def _put_back(self, entry: CatalogTable, told: Mapping[date, Served | None]) -> None:
        """Tells the catalog what the manifest says of partitions until that is what it was `told`; None: it is not known.

        No loop that begins anew: nothing is written on a condition, and each look compares with what the last one told.
        """
        for _ in range(_LOOKS):
            wrong = {}
            for day, last in told.items():
                partition = self._inventory.partition(entry.table.key, day)
                if partition and partition.current != NEW and Served.recorded(partition) != last:
                    wrong[day] = Served.recorded(partition)
            if not wrong:
                return
            self._returned += [TablePart(entry.table.key, day) for day in wrong]
            errors = self._catalog.point(entry, wrong, ())
            for day, error in errors.items():
                self._fail(TablePart(entry.table.key, day), error)
            told = {day: served for day, served in wrong.items() if day not in errors}
        self._fail(TablePart(entry.table.key), CatalogUnavailable("another publisher changes its partitions again and again"))

    def _gives_up_a_name(self, work: _Work) -> bool:
        return work.table.catalog_name not in (None, self._catalog.known_as(work.entry))

    def _rename(self, work: _Work) -> None:
        """Once all partitions are there under a table's new name, the old one goes, and the new one is noted."""
        name, old = self._catalog.known_as(work.entry), work.table.catalog_name
        if name is None or name == old:
            return
        if old:
            failpoints.reach("publish.renamed")
            try:
                self._catalog.remove_table(old, work.entry.location)
            except CatalogRejected as error:
                self._fail(TablePart(work.table.key), error)  # told once: a person removes it
            failpoints.reach("publish.removed")
        self._inventory.catalogued(work.table.key, name)

    def _fail(self, place: TablePart, error: CatalogError) -> None:
        log.warning("%s is not published: %s", place, error)
        self._failed.append(Failed(place, str(error), isinstance(error, Transient)))


@dataclass(frozen=True)
class CatalogDifference:
    """Where a catalog does not say what the manifest says; a table that is not as it should be has no date.

    `lost`: the manifest itself lacks the row of the version that readers are to see, so that a catalog can be told of no files.
    """

    place: TablePart
    expected: str
    found: str
    lost: bool = False


def differences(inventory: Inventory, catalog: Catalog, settings: PublishSettings) -> list[CatalogDifference]:
    """Where the catalog's entries differ from the manifest; changes nothing. Partitions that are due count as they are.

    A publication with `verify` mends them, but for those that are lost, which are rebuilt. Raises CatalogError.
    """
    found: list[CatalogDifference] = []
    for table in inventory.tables():
        if table.dropped or not table.enabled:
            continue
        entry = catalog_table(table, settings.output, settings.comments.get(table.key, {}))
        standing = catalog.entries(table.schema, [entry])[entry]
        if standing != "current":
            found.append(CatalogDifference(TablePart(table.key), "current", standing))
        known = dict(catalog.locations(entry))
        for partition in inventory.partitions(table.key):
            told = known.pop(partition.date, "missing")
            expected = (
                "missing" if partition.current == NEW else catalog.location(entry, partition.date, Served.recorded(partition))
            )
            if told != expected:
                found.append(CatalogDifference(_place(partition), expected, told, _is_lost(inventory, partition)))
        found += [CatalogDifference(TablePart(table.key, day), "missing", told) for day, told in sorted(known.items())]
    return found


def _is_lost(inventory: Inventory, partition: Partition) -> bool:
    """Whether readers are to see a merged version of which the manifest has no row."""
    return partition.current > LIVE and inventory.shown_version(partition) is None


def _place(partition: Partition) -> TablePart:
    return TablePart(partition.table, partition.date)
