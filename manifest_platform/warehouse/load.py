"""The description of a load: the rows to apply, and the authority to apply them."""

from __future__ import annotations

from dataclasses import dataclass

from manifest_platform.listing import Listing
from manifest_platform.warehouse.checks import CheckSettings

EMPTY, SHRINK = "empty", "shrink"
"""The consents that an operator can give: load a snapshot without rows, or a snapshot that shrinks a table."""


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
    a column beside it. `checks`: assertions that the load must meet (see `checks`).
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
