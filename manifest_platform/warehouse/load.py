"""What is to be applied, and on whose authority; and what of it could not be applied by anybody."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from manifest_platform.listing import BAD_TABLE, Listing, Table
from manifest_platform.warehouse.control import KnownTable
from manifest_platform.warehouse.errors import CountMismatch, EmptySnapshot, IncompatibleChange, KeyMissing, UnsupportedMode
from manifest_platform.warehouse.tables import LOAD_TIME, TABLES_WITH_LOAD_TIME, is_passing


@dataclass(frozen=True)
class Full:
    """What makes a load one of a snapshot, which replaces what the dataset's tables hold.

    `boundary`: the position up to which the snapshot contains the feeds that it `covers`; what they have applied is set to it,
    which may be back. `feeds`: all feeds of the dataset; to none of them may an older epoch commit afterwards. A table that
    only the snapshot's own and the covered feeds load, and that the snapshot lacks, becomes empty; unless its name matches one
    of the patterns in `keeps`.
    """

    boundary: str
    covers: tuple[str, ...]
    feeds: tuple[str, ...]
    keeps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := set(self.covers) - set(self.feeds):
            raise ValueError(f"a snapshot covers feeds that its dataset does not have: {', '.join(sorted(unknown))}")

    def empties(self, known: Collection[KnownTable], feed: str, listing: Listing) -> list[str]:
        """The tables that become empty, for want of them in a listing of a feed."""
        mine = {one.table for one in known if one.feed in (feed, *self.covers)}
        kept = {one.table for one in known if one.mode == "append"} | {table.name for table in listing.tables} | {BAD_TABLE}
        return sorted(name for name in mine - kept if not any(fnmatchcase(name, pattern) for pattern in self.keeps))


@dataclass(frozen=True)
class Load:
    """One shredded directory to apply, and on whose authority.

    `position` is the item's place in its feed: texts whose bytewise order is the logical order. `epoch` and `token`
    are those that the item was claimed under; ledger entries of an epoch before `serving_epoch` no longer count.
    `late` marks an item behind the feed's newest one that is to be appended all the same. With `full` it is a snapshot: its
    epoch must be a new one, and its place in its feed does not matter. `snapshots`: the feed whose snapshots contain this one's
    items, if any: a load does not go onto one that its `serving_epoch` knows nothing of.
    """

    item: str
    feed: str
    position: str
    epoch: int
    serving_epoch: int
    token: int
    record_id: str
    checksum: str
    listing: Listing
    late: bool = False
    full: Full | None = None
    snapshots: str | None = None


def refuse_unsupported(load: Load) -> None:
    """Raises a CannotLoad for a load that asks for what cannot be. Asks the warehouse nothing."""
    if load.full and not load.listing.tables:
        raise EmptySnapshot(
            f"{load.item}: a snapshot without a single table would empty them all; nothing was changed. Look at what the "
            "source delivered, and load another snapshot"
        )
    for table in load.listing.tables:
        _refuse_mode(load, table)
        _refuse_key(load, table)
        if table.name in TABLES_WITH_LOAD_TIME and any(column.name == LOAD_TIME.name for column in table.columns):
            raise IncompatibleChange(
                f"{load.item}: table {table.name} brings a column {LOAD_TIME.name}, which the load itself sets; shred it under "
                "another name"
            )
        if is_passing(table.name):
            raise IncompatibleChange(
                f"{load.item}: table {table.name} is called as those that full loads drop; shred it under another name"
            )
    if unknown := {found.table for found in load.listing.objects} - {table.name for table in load.listing.tables}:
        raise CountMismatch(
            f"{load.item}: its listing has objects of tables that it does not describe "
            f"({', '.join(sorted(unknown))}); shred it again"
        )


def _refuse_mode(load: Load, table: Table) -> None:
    allowed = ("replace", "merge") if load.full else ("append", "merge", "delete")
    if table.mode not in allowed:
        raise UnsupportedMode(
            f"{load.item}: table {table.name} has mode {table.mode!r}; {'a snapshot' if load.full else 'an item'} can only "
            f"{', '.join(allowed)}"
        )


def _refuse_key(load: Load, table: Table) -> None:
    by_key = table.mode in ("merge", "delete")
    unknown = set(table.key) - {column.name for column in table.columns}
    if by_key and (not table.key or unknown or (table.mode == "delete" and not table.target)):
        raise KeyMissing(
            f"{load.item}: table {table.name} is to {table.mode} rows by key, and lacks "
            f"{'the columns ' + ', '.join(sorted(unknown)) if unknown else 'its key' if not table.key else 'its target'}; "
            "shred it again"
        )
