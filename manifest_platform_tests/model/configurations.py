"""The scopes that are explored: which feeds and items exist, and how often each fault or operator action may happen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from manifest_platform.manifest import Application, ItemKey, Landed, Step

LOAD, SHRED = Application("load"), Application("shred")


class Budget(NamedTuple):
    """The number of times that each event may still happen.

    `expiries`: takeovers from a live worker. `losses`: lost answers of the manifest; `unclear`: lost answers of a COMMIT.
    `restores`: the manifest is set back. `rewinds`: the sink is set back to a copy, or emptied. `refusals`: loads that are put
    back because the sink lacks the believed record. `rewrites`: directories that are rewritten and accepted. `lost`: output
    that is found lost when it is loaded.
    """

    crashes: int = 0
    expiries: int = 0
    losses: int = 0
    unclear: int = 0
    failures: int = 0
    resolves: int = 0
    skips: int = 0
    unskips: int = 0
    begins: int = 0
    cancels: int = 0
    restores: int = 0
    rewinds: int = 0
    refusals: int = 0
    accepts: int = 0
    reshreds: int = 0
    rewrites: int = 0
    lost: int = 0
    archives: int = 0
    reloads: int = 0
    replays: int = 0


@dataclass(frozen=True)
class Feed:
    """A feed of a scope: items 1 to `items`. Item k has the window (k - 1, k]; a snapshot's window ends at `stop`."""

    name: str = "incr"
    items: int = 2
    order: Literal["strict", "full"] = "strict"
    late: Literal["quarantine", "append"] = "quarantine"
    gap: Literal["none", "contiguous"] = "none"
    covers: tuple[str, ...] = ()
    stop: int = 0


@dataclass(frozen=True)
class Configuration:
    """A scope, small enough to be explored completely.

    `clerks`: how many operators and discoveries act concurrently. `together`: the most items that a worker loads together.
    """

    name: str
    about: str
    budget: Budget
    feeds: tuple[Feed, ...] = (Feed(),)
    workers: int = 2
    shred: bool = False
    max_attempts: int = 3
    clerks: int = 1
    together: int = 1

    def steps(self, feed: Feed) -> tuple[Step, ...]:
        """The declared steps of a feed."""
        load = Step(
            LOAD,
            upstream=(SHRED.key,) if self.shred else (),
            order=feed.order,
            late=feed.late,
            gap=feed.gap,
            max_attempts=self.max_attempts,
            covers=feed.covers,
        )
        return (Step(SHRED, max_attempts=self.max_attempts), load) if self.shred else (load,)

    @property
    def landed(self) -> list[Landed]:
        """The directories of all feeds, feed by feed in order."""
        return [_landed(feed, number) for feed in self.feeds for number in range(1, feed.items + 1)]


def _landed(feed: Feed, number: int) -> Landed:
    key = ItemKey(feed.name, str(number), f"{feed.name}/{number}")
    stop = feed.stop if feed.order == "full" else number
    return Landed(key, files=1, bytes=1, checksum="c", start=str(number - 1), stop=str(stop))


INCR = Feed("incr", 2)
SNAPSHOTS = Feed("full", 1, order="full", covers=("incr",), stop=1)

EMPTY_SNAPSHOTS = Feed("full", 1, order="full", covers=("incr",), stop=0)

CONFIGURATIONS = [
    Configuration("two", "two items in order", Budget(expiries=1, failures=1), (INCR,)),
    Configuration(
        "two-append",
        "two items, of which either may be late and is appended then",
        Budget(expiries=1, skips=1, unskips=1),
        (Feed(items=2, late="append"),),
    ),
    Configuration("three", "three items, skipped and unskipped", Budget(skips=1, unskips=1), (Feed(items=3),), workers=1),
    Configuration(
        "three-append",
        "the same, on a feed that appends late items",
        Budget(skips=1, unskips=1),
        (Feed(items=3, late="append"),),
        workers=1,
    ),
    Configuration(
        "full-one", "a snapshot beside one item", Budget(expiries=1, begins=2, cancels=1), (Feed(items=1), SNAPSHOTS)
    ),
    Configuration(
        "full-two", "a snapshot that contains the first of two items", Budget(failures=1, begins=1), (INCR, SNAPSHOTS)
    ),
    Configuration(
        "full-late",
        "a snapshot that contains none of three items",
        Budget(begins=1),
        (Feed(items=3), EMPTY_SNAPSHOTS),
        workers=1,
    ),
    Configuration(
        "full-three",
        "a snapshot that contains the first of three items, on a feed that appends late items",
        Budget(begins=1),
        (Feed(items=3, late="append"), SNAPSHOTS),
        workers=1,
    ),
    Configuration(
        "full-skip", "a snapshot that is skipped", Budget(skips=1, unskips=1, begins=1, cancels=1), (Feed(items=1), SNAPSHOTS)
    ),
    Configuration("restore-skip", "the manifest is set back to before a skip", Budget(skips=1, restores=1), (INCR,), workers=1),
    Configuration("shred", "an unordered step before the load", Budget(expiries=1, failures=1, resolves=1), shred=True),
    Configuration(
        "shred-skip",
        "an unordered step before the load, for which items are skipped",
        Budget(expiries=1, skips=1, unskips=1),
        shred=True,
    ),
    Configuration(
        "order",
        "two workers, three items that arrive in any order, and each fault once",
        Budget(crashes=1, unclear=1, failures=1),
        (Feed(items=3),),
    ),
    Configuration(
        "takeover",
        "leases that expire while their workers live",
        Budget(crashes=1, expiries=2, unclear=1, failures=1),
        (INCR,),
    ),
    Configuration(
        "answers",
        "lost answers of the manifest; no attempt may be repeated, so a lost answer must not fail an attempt",
        Budget(expiries=1, losses=3, failures=1, resolves=1),
        (INCR,),
        max_attempts=1,
    ),
    Configuration(
        "append",
        "late items that are appended",
        Budget(expiries=1),
        (Feed(items=3, late="append"),),
    ),
    Configuration(
        "operators",
        "skip and unskip while workers work, on a feed that quarantines",
        Budget(expiries=1, skips=1, unskips=1),
        (Feed(items=3),),
    ),
    Configuration(
        "operators-append",
        "the same on a feed that appends",
        Budget(expiries=1, failures=1, skips=1, unskips=1),
        (Feed(items=2, late="append"),),
    ),
    Configuration(
        "gap",
        "windows that must follow each other without a gap",
        Budget(expiries=1, skips=1, unskips=1),
        (Feed(items=3, gap="contiguous"),),
    ),
    Configuration(
        "full",
        "snapshots that contain the first of two windows, begun and canceled at any time",
        Budget(expiries=1, begins=1, cancels=1),
        (INCR, SNAPSHOTS),
    ),
    Configuration(
        "full-crash",
        "a snapshot whose worker dies, or cannot read it",
        Budget(crashes=1, unclear=1, failures=1, begins=1),
        (INCR, SNAPSHOTS),
    ),
    Configuration(
        "full-feeds",
        "a snapshot that covers one of two feeds",
        Budget(expiries=1, begins=1, cancels=1),
        (Feed("incr", 1), Feed("log", 1), SNAPSHOTS),
    ),
    Configuration(
        "full-append",
        "a snapshot of a feed with late items",
        Budget(crashes=1, begins=1),
        (Feed("incr", 2, late="append"), SNAPSHOTS),
    ),
    Configuration(
        "restore",
        "the manifest is set back to a backup; its workers are stopped first, and their last COMMIT may come later",
        Budget(crashes=1, failures=1, skips=1, restores=1),
        (INCR,),
    ),
    Configuration(
        "restore-full",
        "the manifest is set back to before a full load, with one worker",
        Budget(begins=2, restores=1),
        (Feed(items=1), SNAPSHOTS),
        workers=1,
    ),
    Configuration(
        "restore-epoch",
        "the manifest is set back to before a full load was begun or canceled, so that its epoch is used twice",
        Budget(begins=2, cancels=2, restores=1),
        (Feed(items=1), EMPTY_SNAPSHOTS),
        workers=1,
    ),
    Configuration(
        "restore-other",
        "the manifest is set back to before a full load, after which another snapshot may be begun in its epoch",
        Budget(begins=2, restores=1),
        (Feed(items=1), Feed("full", 2, order="full", covers=("incr",), stop=0)),
        workers=1,
    ),
    Configuration(
        "restore-append",
        "the manifest is set back, on a feed that appends late items",
        Budget(expiries=1, restores=1),
        (Feed(items=2, late="append"),),
    ),
    Configuration(
        "rewind",
        "the warehouse is set back to a copy, or emptied, under two workers, and reconciled",
        Budget(expiries=1, rewinds=1, refusals=1),
        (INCR,),
    ),
    Configuration(
        "rewind-settle",
        "the warehouse is emptied or set back while a paused worker's COMMIT is in flight, and that item is settled",
        Budget(expiries=1, unclear=1, rewinds=1),
        (INCR,),
    ),
    Configuration(
        "rewind-crash",
        "the same with three items, and workers that crash",
        Budget(crashes=1, rewinds=1, refusals=1),
        (Feed(items=3),),
        workers=1,
    ),
    Configuration(
        "rewind-append",
        "the warehouse of a feed with late items is set back",
        Budget(rewinds=1, refusals=1),
        (Feed(items=3, late="append"),),
        workers=1,
    ),
    Configuration(
        "rewind-accept",
        "the warehouse is set back or emptied, and accepted as it is",
        Budget(rewinds=1, refusals=1, accepts=1),
        (INCR,),
        workers=1,
    ),
    Configuration(
        "rewind-full",
        "the warehouse is set back to before a full load",
        Budget(begins=2, rewinds=1, refusals=1),
        (INCR, SNAPSHOTS),
        workers=1,
    ),
    Configuration(
        "rewind-restore",
        "warehouse and manifest are set back, each to its own copy",
        Budget(restores=1, rewinds=1, refusals=1),
        (INCR,),
        workers=1,
    ),
    Configuration(
        "reshred", "an item that is shredded again, in any state", Budget(expiries=1, reshreds=1), (INCR,), shred=True
    ),
    Configuration(
        "output-lost",
        "output that is lost before or during a load, and made again",
        Budget(expiries=1, reshreds=1, lost=2),
        (Feed(items=1),),
        shred=True,
    ),
    Configuration(
        "accept-item",
        "a directory that is rewritten and accepted",
        Budget(expiries=1, unclear=1, rewrites=2),
        (Feed(items=1),),
        shred=True,
    ),
    Configuration(
        "accept-restore",
        "the manifest is set back to before a rewritten directory was accepted",
        Budget(rewrites=1, restores=1),
        (Feed(items=1),),
        workers=1,
        shred=True,
    ),
    Configuration("reload", "an item that is reloaded", Budget(expiries=1, failures=1, reloads=1), (INCR,)),
    Configuration(
        "reload-twice",
        "items that are reloaded, also late ones, and again",
        Budget(crashes=1, unclear=1, reloads=2),
        (Feed(items=2, late="append"),),
        workers=1,
    ),
    Configuration(
        "reload-shred",
        "an item that is shredded again and reloaded",
        Budget(crashes=1, reshreds=1, reloads=1),
        (Feed(items=1),),
        workers=1,
        shred=True,
        clerks=2,
    ),
    Configuration(
        "reload-restore",
        "the manifest is set back to before or after a reload was asked for",
        Budget(restores=1, reloads=1),
        (INCR,),
        workers=1,
    ),
    Configuration(
        "reload-rewind",
        "the warehouse is set back to before a reload, and reconciled",
        Budget(rewinds=1, refusals=1, reloads=1),
        (INCR,),
        workers=1,
    ),
    Configuration(
        "replay",
        "bad lines that are replayed as a new item, while their item is shredded again",
        Budget(crashes=1, reshreds=1, replays=1),
        (INCR,),
        workers=1,
        shred=True,
        clerks=2,
    ),
    Configuration("archive", "records of finished items are archived", Budget(expiries=1, archives=1), (INCR,), shred=True),
    Configuration(
        "full-archive",
        "records are archived while snapshots are begun and canceled",
        Budget(begins=1, cancels=1, archives=2),
        (INCR, SNAPSHOTS),
        workers=1,
        clerks=2,
    ),
    Configuration(
        "rewind-archive",
        "the warehouse is set back to before the archived items",
        Budget(rewinds=1, refusals=1, archives=1),
        (INCR,),
        workers=1,
    ),
    Configuration(
        "two-operators",
        "two operators at the same time, on one item and its output",
        Budget(failures=1, resolves=1, skips=1, unskips=1, reshreds=1, rewrites=1),
        (Feed(items=1),),
        workers=1,
        shred=True,
        clerks=2,
    ),
    Configuration(
        "two-operators-append",
        "two operators at the same time, on items that may be late and are appended",
        Budget(failures=1, resolves=1, skips=1, unskips=2),
        (Feed(items=2, late="append"),),
        workers=1,
        clerks=2,
    ),
    Configuration(
        "two-operators-full",
        "two operators at the same time, who begin, cancel and skip snapshots",
        Budget(begins=2, cancels=1, skips=1),
        (Feed(items=1), SNAPSHOTS),
        workers=1,
        clerks=2,
    ),
    Configuration(
        "rewind-operators",
        "the warehouse is set back and reconciled, while two operators act",
        Budget(rewinds=1, failures=1, resolves=1, skips=1, unskips=1),
        (INCR,),
        workers=1,
        clerks=2,
    ),
    Configuration(
        "together",
        "two items that may be loaded together, claimed and completed one after the other",
        Budget(expiries=1, unclear=1, failures=1),
        (INCR,),
        together=2,
    ),
    Configuration(
        "together-three",
        "the same with three items, any of which may be skipped",
        Budget(crashes=1, skips=1),
        (Feed(items=3),),
        workers=1,
        together=3,
    ),
    Configuration(
        "together-shred",
        "items that may be loaded together, shredded in any order",
        Budget(),
        (Feed(items=3),),
        workers=1,
        shred=True,
        together=2,
    ),
    Configuration(
        "together-append",
        "the same on a feed that appends late items",
        Budget(crashes=1, unclear=1),
        (Feed(items=3, late="append"),),
        workers=1,
        together=2,
    ),
    Configuration(
        "together-full",
        "items that may be loaded together, beside a snapshot that contains the first",
        Budget(expiries=1, begins=1),
        (INCR, SNAPSHOTS),
        together=2,
    ),
    Configuration(
        "together-restore",
        "items that may be loaded together, by a manifest that is set back",
        Budget(restores=1),
        (INCR,),
        workers=1,
        together=2,
    ),
    Configuration(
        "together-rewind",
        "items that may be loaded together, into a warehouse that is set back",
        Budget(crashes=1, rewinds=1, refusals=1),
        (INCR,),
        workers=1,
        together=2,
    ),
]
"""All scopes. Each is explored completely."""
