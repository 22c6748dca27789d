"""The description of a load: the rows to apply, and the authority to apply them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from manifest_platform.listing import Listing
from manifest_platform.warehouse.checks import CheckSettings
from manifest_platform.warehouse.repeats import Repeats

EMPTY, SHRINK = "empty", "shrink"
"""The consents that an operator can give: load a snapshot without rows, or a snapshot that shrinks a table."""
MISSING = "missing"
"""The consent to reload an item of which some rows are no longer in the warehouse."""


@dataclass(frozen=True)
class Limits:
    """The limits of a snapshot without an operator's consent.

    A table may lose the share `max_share` of its rows, or `max_count` rows, whichever is more. `describing`: tables that only
    describe the others; a snapshot with rows only in these counts as empty.
    """

    max_share: float
    max_count: int
    describing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Full:
    """The part of a load that makes it a snapshot, which replaces the rows of the dataset's tables.

    `boundary`: the position up to which the snapshot contains the feeds that it `covers`. Their applied position is set to it,
    which may be a step back. `feeds`: all feeds of the dataset; afterward no older epoch may commit to any of them. A table
    that only the snapshot's own feed and covered feeds load, and that the snapshot lacks, becomes empty, unless its name
    matches a pattern in `keeps`. `limits`: above them the operator's consent is required; None: never. `allows`: the consents
    given.
    """

    boundary: str
    covers: tuple[str, ...]
    feeds: tuple[str, ...]
    keeps: tuple[str, ...] = ()
    limits: Limits | None = None
    allows: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if unknown := set(self.covers) - set(self.feeds):
            raise ValueError(f"a snapshot covers feeds that its dataset does not have: {', '.join(sorted(unknown))}")


@dataclass(frozen=True)
class Origin:
    """A way to an item's rows in tables to which an older release wrote no load time.

    `column`: a column of such a table. It refers to the column `refers` of the appended table `table`, whose rows have a load
    time; or, without these, it has the URI of the file that the row comes from.
    """

    column: str
    table: str = ""
    refers: str = ""


@dataclass(frozen=True)
class Reload:
    """The part of a load that makes it a reload: the item's rows are replaced, not added to.

    `attempts`: the ids of the attempts since the operator asked for it. An entry of the ledger that is not of these is of an
    earlier load, and is superseded. `origins`: the ways to rows without a load time. `allows_missing`: true if some of the rows
    may be gone.
    """

    attempts: frozenset[str]
    origins: tuple[Origin, ...] = ()
    allows_missing: bool = False


@dataclass(frozen=True)
class About:
    """Facts about a shredded directory, which the ledger keeps for people and other tools. No load depends on them.

    `started`, `completed`: when it was shredded. `processor`, `release`: by which program, and by which release of it.
    `compression`, `types`: of its files, and of its rows, in the words of the source's own tools. `first_time`, `last_time`: of
    the rows of its main table. `good`: its good rows. Times are in UTC.
    """

    started: datetime | None = None
    completed: datetime | None = None
    processor: str | None = None
    release: str | None = None
    compression: str | None = None
    first_time: datetime | None = None
    last_time: datetime | None = None
    good: int | None = None
    types: str | None = None


@dataclass(frozen=True)
class Load:
    """A shredded directory to apply, and the authority to apply it.

    `position`: the item's place in its feed; the bytewise order of these texts is the logical order. `epoch`, `token`: those of
    the item's claim. `serving_epoch`: the first epoch whose rows are current for the feed. Ledger entries of earlier epochs no
    longer count, because a snapshot has replaced their rows.

    `late`: the item is behind the feed's newest item and is appended anyway.
    `full`: the load is a snapshot; its epoch must be new, and its position does not matter.
    `believed`: the record id that the manifest believes was applied last on the feed, empty before the first load; None without
    such a chain. `snapshots`: the feed whose snapshots contain this feed's items; the load is refused on top of a snapshot that
    is newer than its `serving_epoch`. `overlaps`: a text that names what the directory's time overlaps; then rows of appended
    tables that already exist are left out. `splits_types`: a value whose type a column of an appended table cannot hold goes to
    a column beside it. `checks`: assertions that the load must meet (see `checks`). `reload`: the load replaces the item's
    rows. `replaces`: the record id of the ledger's entry whose rows it replaces; empty if there is none.
    `repeats`: the rule by which rows that earlier loads brought are left out (see `repeats`); None: all rows are loaded.
    `cuts_texts`: a text that is longer than its column is cut; otherwise it is refused. `joins_names`: a setting joins the
    names of nested properties, by dots or underscores, so names that differ only in that mean one column. `about`: facts for
    the ledger.
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
    believed: str | None = None
    full: Full | None = None
    snapshots: str | None = None
    overlaps: str = ""
    splits_types: bool = False
    checks: tuple[CheckSettings, ...] = ()
    reload: Reload | None = None
    replaces: str = ""
    repeats: Repeats | None = None
    cuts_texts: bool = False
    joins_names: bool = False
    about: About | None = None
