"""What is to be applied, and on whose authority."""

from __future__ import annotations

from dataclasses import dataclass

from manifest_platform.listing import Listing

EMPTY, SHRINK = "empty", "shrink"
"""What an operator may let a full load do: load a snapshot without rows, or one that shrinks a table."""


@dataclass(frozen=True)
class Limits:
    """What a snapshot may do without an operator's consent.

    A table may lose rows up to `max_share` of them, or up to `max_count`. `describing`: tables that say what the others are;
    a snapshot that has rows in these alone is empty.
    """

    max_share: float
    max_count: int
    describing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Full:
    """What makes a load one of a snapshot, which replaces what the dataset's tables hold.

    `boundary`: the position up to which the snapshot contains the feeds that it `covers`; what they have applied is set to it,
    which may be back. `feeds`: all feeds of the dataset; to none of them may an older epoch commit afterwards. A table that
    only the snapshot's own and the covered feeds load, and that the snapshot lacks, becomes empty; unless its name matches one
    of the patterns in `keeps`. `limits`: what needs the operator's consent, None: nothing does. `allows`: the consent.
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
    """One shredded directory to apply, and on whose authority.

    `position` is the item's place in its feed: texts whose bytewise order is the logical order. `epoch` and `token`
    are those that the item was claimed under; ledger entries of an epoch before `serving_epoch` no longer count.
    `late` marks an item behind the feed's newest one that is to be appended all the same. With `full` it is a snapshot: its
    epoch must be a new one, and its place in its feed does not matter. `believed`: the record id that the manifest believes
    was applied to the feed last, empty before the first; None where no manifest keeps that chain. `snapshots`: the feed whose
    snapshots contain this one's items, if any: a load does not go onto one that its `serving_epoch` knows nothing of.
    `overlaps`: with what the directory's time overlaps, in words: rows of appended tables that are there already are left out.
    `splits_types`: a type that a column of an appended table cannot hold goes to a column beside it.
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
