"""Random histories with retention among them: whatever was deleted, everything that the documents allow still works.

The manifest is real, and the storage is two sets: items whose landed directory is there, and items whose output is. A verdict
of retention may be old by the time it is recorded, as in a run beside other processes.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from manifest_platform.listing import Listing, ShreddedObject
from manifest_platform.manifest import (
    OUTPUT,
    Application,
    Claim,
    ConditionFailed,
    Holding,
    Item,
    ItemKey,
    Lease,
    Payload,
    Ready,
    Refused,
    Standing,
)
from manifest_platform.manifest.dataset import judge
from manifest_platform.manifest.deletion import Deletion
from manifest_platform.manifest.stores import open_store
from manifest_platform.merging.catalogs.embedded import EmbeddedCatalog
from manifest_platform.merging.readers import NotPublished, Reader
from manifest_platform.merging.settling import settle_rows
from manifest_platform.merging.state import Partition
from manifest_platform.operations.retention import rule as rules
from manifest_platform.operations.retention.merged import MergingNeeds
from manifest_platform.operations.retention.rule import Base, Facts, judged
from manifest_platform.sources.settings import DataRetention
from manifest_platform_tests.effort import cases
from manifest_platform_tests.manifest.given import Clock
from manifest_platform_tests.manifest.test_state_machine import MEMORY, walk
from manifest_platform_tests.manifest.vault import FULL, INCR, LOAD, LOG, SHRED, acquire, is_full_load, key, land, state, vault
from manifest_platform_tests.merging import given as merging
from manifest_platform_tests.merging.catalogs.given import merge, run, turn
from manifest_platform_tests.merging.given import DAY, TABLE

DAYS = 7
MADE = Payload(OUTPUT, {"listing": "s3://lake/attempt/listing.json", "rows": 1})
HOUR = timedelta(hours=1)


class History(RuleBasedStateMachine):
    """A vault with snapshots, windows and logs. `landing`, `output`: the items whose data is there.

    `rewritten`: those of `landing` with other content than was registered. They are no copy, and the only place of what is new.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.exists() else None)
        self.clock = Clock()
        self.store = open_store(f"sqlite:///{self.folder.name}/manifest.db")
        self.of = vault(self.store, clock=self.clock, needs_full=True)
        self.landing: set[ItemKey] = set()
        self.output: set[ItemKey] = set()
        self.rewritten: set[ItemKey] = set()
        self.last_copies: int | None = None
        self.decided: list[tuple[Item, Deletion, Facts]] = []
        self.claimed: tuple[Lease, Claim] | None = None
        self.number = 0

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @initialize(last_copies=st.sampled_from([None, DAYS]))
    def begin(self, last_copies: int | None) -> None:
        self.last_copies = last_copies
        self.land(1)
        self.snapshot()

    # Life

    @rule(windows=st.integers(1, 3))
    def land(self, windows: int) -> None:
        for _ in range(windows):
            self.number += 1
            for feed in (INCR, LOG):
                land(self.of, feed, self.number, shredded=False)
                self.landing.add(key(feed, self.number))
        self.shred(INCR), self.shred(LOG)

    @rule()
    def snapshot(self) -> None:
        if key(FULL, self.number) not in self.landing | self.output:
            with suppress(Refused):
                self.of.item(key(FULL, self.number))
                return
            land(self.of, FULL, self.number, shredded=False)
            self.landing.add(key(FULL, self.number))
            self.shred(FULL)

    def shred(self, feed: str) -> None:
        """Shreds whatever waits, which needs the landed directories."""
        with self.of.acquire(feed, SHRED.key, "shredder", HOUR) as held:
            ready, _ = self.of.waiting(feed, SHRED.key, limit=100)
            for item in ready:
                assert item.key in self.copies, f"{item.key} waits to be shredded, and is deleted"
                for claim in self.of.claim(held, [item]):
                    self.of.complete(claim, MADE)
                    self.output.add(item.key)

    def require_output(self, item: Item) -> Item:
        """The output of an item that will be loaded; made again from its landed directory if it is gone."""
        if item.key not in self.output:
            assert item.key in self.copies, f"{item.key} is loaded, and all its data is deleted"
            self.of.reopen(item.key, [SHRED.key], "lost", automatic=True)
            self.shred(item.key.feed)
        return self.of.item(item.key)

    @rule(feed=st.sampled_from([INCR, LOG]))
    def load(self, feed: str) -> None:
        if self.claimed:
            return
        verdict = self.of.next(feed, LOAD.key)
        if isinstance(verdict, Ready):
            self.require_output(verdict.item)
            with acquire(self.of, feed) as held:
                verdict = self.of.next(feed, LOAD.key, holding=True)
                assert isinstance(verdict, Ready)
                [claim] = self.of.claim(held, [verdict.item], verdict.state)
                self.of.complete(claim, MADE)

    @precondition(lambda self: self.claimed is None)
    @rule()
    def claim(self) -> None:
        held = acquire(self.of, LOG)
        verdict = self.of.next(LOG, LOAD.key, holding=True)
        if isinstance(verdict, Ready) and verdict.item.key in self.output:
            [claim] = self.of.claim(held, [verdict.item], verdict.state)
            self.claimed = held, claim
        else:
            held.release()

    @precondition(lambda self: self.claimed is not None)
    @rule()
    def complete(self) -> None:
        assert self.claimed
        held, claim = self.claimed
        assert claim.item.key in self.output, f"{claim.item.key} was deleted while it was loaded"
        with suppress(Refused):
            self.of.complete(claim, MADE)
        held.release()
        self.claimed = None

    @rule()
    def begin_full_load(self) -> None:
        newest = self.newest()
        if newest and not self.claimed:
            with suppress(Refused):
                self.of.begin_full_load(newest.key, LOAD.key, "needed")

    @precondition(lambda self: is_full_load(self.of))
    @rule(cancels=st.booleans())
    def end_full_load(self, cancels: bool) -> None:
        with acquire(self.of, FULL) as held:
            if cancels:
                self.of.cancel_full_load(held, "not now")
                return
            verdict = self.of.next(FULL, LOAD.key, holding=True)
            assert isinstance(verdict, Ready)
            assert verdict.item.key in self.output, "the snapshot that is loaded is deleted"
            [claim] = self.of.claim(held, [verdict.item], verdict.state)
            self.of.complete(claim, MADE)

    @rule()
    def rewind(self) -> None:
        """A full load of the newest snapshot, and all windows behind it."""
        self.begin_full_load()
        if is_full_load(self.of):
            self.end_full_load(cancels=False)
        for _ in range(self.number):
            self.load(INCR)

    @rule(number=st.integers(1, 12), feed=st.sampled_from([INCR, LOG, FULL]), skips=st.booleans())
    def skip(self, number: int, feed: str, skips: bool) -> None:
        with suppress(Refused):
            self.of.skip(key(feed, number), "unwanted") if skips else self.of.unskip(key(feed, number), "wanted")

    @rule(number=st.integers(1, 12), feed=st.sampled_from([INCR, LOG]))
    def do_again(self, number: int, feed: str) -> None:
        """Reloads an item of the log, or shreds a window again: allowed as long as the data for it is there."""
        one = key(feed, number)
        with suppress(Refused):
            item = self.of.item(one)
            if feed == LOG and {one} & (self.copies | self.output):
                self.of.reload(one, LOAD, "wrong rows", read=item)
            elif feed == INCR and one in self.copies:
                self.of.reopen(one, [SHRED.key], "mended", read=item)

    @rule(number=st.integers(1, 12), feed=st.sampled_from([INCR, LOG, FULL]))
    def rewrite(self, number: int, feed: str) -> None:
        """A producer writes a directory again. It loses what only this directory had, which is not retention's fault."""
        if key(feed, number) in self.landing & self.output:
            self.rewritten.add(key(feed, number))

    @property
    def copies(self) -> set[ItemKey]:
        """The items whose output can be made again."""
        return self.landing - self.rewritten

    @rule(days=st.integers(1, 9))
    def turn(self, days: int) -> None:
        if self.claimed:
            self.complete()  # its lease would expire
        self.clock.turn(timedelta(days=days))

    # Retention

    def newest(self) -> Item | None:
        """The newest snapshot with which a full load can begin."""
        snapshots = self.of.items(FULL, reverse=True)
        return next((one for one in snapshots if one.key in self.output and not one.skipped_for(LOAD)), None)

    @rule()
    def decide(self) -> None:
        newest = self.newest()
        base = Base.of(newest) if newest else None
        self.decided = []
        for feed in (INCR, LOG, FULL):
            states = self.of.states(feed)
            for item in self.of.items(feed):
                facts = Facts(item, self.of.steps(feed), states, feed != LOG, base)
                if chosen := self._choose(facts):
                    self.decided.append((item, Deletion(item.key, tuple(chosen), ("s3://lake/attempt",)), facts))

    def _choose(self, facts: Facts) -> list[Holding]:
        """The data of an item that may be deleted, by what the storage holds now."""
        settings = DataRetention(landing_days=DAYS, shredded_days=DAYS, last_copy_days=self.last_copies)
        item, chosen = facts.item, list[Holding]()
        for holding, mine, other in (
            (Holding.SHREDDED, self.output, self.copies),
            (Holding.LANDING, self.landing, self.output),
        ):
            lost = item.key not in other or (holding is Holding.LANDING and Holding.SHREDDED in chosen)
            rewritten = "rewritten" if item.key in self.rewritten else ""
            seen = dataclasses.replace(facts, copies={holding: "gone"} if lost else {}, rewritten=rewritten)
            if item.key in mine and judged(holding, seen, settings, self.clock()).may_delete:
                chosen.append(holding)
        return chosen

    @rule()
    def delete(self) -> None:
        """Records what was decided, maybe long ago, and deletes it. The storage is asked again before that."""
        decided, self.decided = self.decided, []
        for item, deletion, facts in decided:
            if not set(deletion.holdings) <= set(self._choose(facts)):
                continue
            relied = [facts.base.snapshot] if facts.base else []
            try:
                self.of.begin_deletions(item.key.feed, [(item, deletion)], facts.states, relied, "old")
            except ConditionFailed:
                continue
            assert Holding.LANDING not in deletion.holdings or item.key not in self.rewritten, "what is new is deleted"
            for holding in deletion.holdings:
                (self.landing if holding is Holding.LANDING else self.output).discard(item.key)
            self.of.end_deletions([deletion])

    @rule()
    def collect(self) -> None:
        self.decide()
        self.delete()
        if self.last_copies is None:
            known = {item.key for feed in (INCR, LOG, FULL) for item in self.of.items(feed)}
            assert known == self.copies | self.output, "of each item a copy stays"


def test_whatever_was_deleted_everything_that_is_allowed_still_works() -> None:
    walk(History, cases(8, 40), 30)


@contextmanager
def _without(guard: str) -> Generator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rules, guard, lambda *_: iter(()))
        yield


def _rewound() -> None:
    """A full load that a person cancels, and begins again after retention."""
    history = History()
    history.begin(DAYS)
    history.rewind()
    history.land(2)
    for feed in (INCR, INCR, LOG, LOG):
        history.load(feed)
    history.turn(9)
    history.begin_full_load()
    history.end_full_load(cancels=True)
    history.collect()
    history.rewind()


def _waiting() -> None:
    """A window that is loaded long after it was shredded."""
    history = History()
    history.begin(DAYS)
    history.turn(9)
    history.collect()
    history.load(LOG)


def _corrected() -> None:
    """A loaded item of the log whose directory is written again, with what the producer corrected."""
    history = History()
    history.begin(DAYS)
    history.load(LOG)
    history.turn(9)
    history.decide()
    history.rewrite(1, LOG)
    history.delete()
    history.collect()


@pytest.mark.parametrize(
    ("guard", "happens"),
    [("_needed_by_full_loads", _rewound), ("_unfinished", _waiting), ("_rewritten", _corrected)],
)
def test_without_a_guard_a_history_loses_what_it_needs(guard: str, happens: Callable[[], None]) -> None:
    happens()
    with _without(guard), pytest.raises(AssertionError, match="deleted"):
        happens()


class MergedHistory(RuleBasedStateMachine):
    """A partition of small objects that are merged and published. `there`: the small objects that are not deleted.

    `seen`: what readers saw, and until when they may use it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.exists() else None)
        self.store = open_store(f"sqlite:///{self.folder.name}/manifest.db")
        self.of = merging.inventory(self.store)
        self.catalog = EmbeddedCatalog(self.of)
        self.there: set[str] = set()
        self.items: dict[int, str] = {}
        self.seen: list[tuple[Any, set[str]]] = []

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule()
    def arrive(self) -> None:
        number = self.of.cursor() + 1
        merging.arrive(self.of, 100 * number)
        self.items[number] = merging.small(100 * number).uri
        self.there.add(self.items[number])

    @rule()
    def merge(self) -> None:
        partition = self.of.partition(TABLE, DAY)
        if partition and partition.upper < partition.newest:
            needed = {one.uri for one in self.of.small_objects(TABLE, DAY, after=partition.upper)}
            assert needed <= self.there, "a merge reads what is deleted"
            merge(self.of)

    @rule(listed=st.booleans())
    def publish(self, listed: bool) -> None:
        run(self.of, self.catalog, listed=listed)

    @rule()
    def read(self) -> None:
        with suppress(NotPublished):
            files = {one.uri for one in Reader(self.of).files(TABLE, DAY).files if one.lower is None}
            self.seen.append((self.of.clock() + timedelta(days=DAYS), files))
        for until, files in self.seen:
            if self.of.clock() < until:
                assert files <= self.there, "a reader reads what is deleted"

    @rule()
    def rebuild(self) -> None:
        known = {one.uri for one in self.of.small_objects(TABLE, DAY)}
        assert known <= self.there, "merged objects cannot be made again"

    @rule(days=st.integers(1, 9))
    def turn(self, days: int) -> None:
        turn(self.of, timedelta(days=days))

    @rule(settles=st.booleans())
    def collect(self, settles: bool) -> None:
        now = self.of.clock()
        if settles:
            settle_rows(self.of, now - timedelta(days=DAYS))
        needs = MergingNeeds(self.of, set(), now - timedelta(days=DAYS), None)
        for number, uri in self.items.items():
            item = Item(ItemKey("enriched", f"{number:03d}", f"s3://bucket/run={number:03d}/"), ())
            found = ShreddedObject(TABLE, str(DAY), uri, 1, 30)
            if not needs.of(item, Listing(item.key.id, "attempt", 1, 1, 0, (), (found,))):
                self.there.discard(uri)
        self.read()


def test_merges_readers_and_rebuilds_find_what_they_need() -> None:
    walk(MergedHistory, cases(8, 40), 30)


def _merged_late() -> None:
    """Small objects that are merged after retention."""
    history = MergedHistory()
    history.arrive()
    history.turn(9)
    history.collect(settles=True)
    history.merge()


def _read_before() -> None:
    """A reader that got small objects just before readers get merged ones."""
    history = MergedHistory()
    history.arrive()
    history.publish(listed=False)
    history.read()
    history.turn(1)
    history.merge()
    history.publish(listed=False)
    settle_rows(history.of, history.of.clock())
    history.collect(settles=False)


def _blind(of: MergingNeeds, table: str, day: date) -> tuple[Partition | None, set[str], str]:
    """A look that does not see which batches are there, nor what readers see."""
    return of._inventory.partition(table, day), set(), ""


@pytest.mark.parametrize(
    ("guard", "without", "happens"),
    [("_look", _blind, _merged_late), ("_readers", lambda *_: "", _read_before)],
)
def test_without_what_it_asks_of_the_inventory_something_is_missed(
    guard: str, without: Callable[..., object], happens: Callable[[], None]
) -> None:
    happens()
    with pytest.MonkeyPatch.context() as patched, pytest.raises(AssertionError, match="deleted"):
        patched.setattr(MergingNeeds, guard, without)
        happens()


def test_histories_reach_deletions() -> None:
    """The walks would prove nothing if nothing was ever deleted in them."""
    history = History()
    history.begin(DAYS)
    history.rewind()
    for _ in range(3):
        history.land(2)
        history.snapshot()
        history.rewind()
        for _ in range(2):
            history.load(LOG)
    history.turn(9)
    before = len(history.landing), len(history.output)
    history.collect()
    assert (len(history.landing), len(history.output)) < before
    assert judge(history.of.item(key(INCR, 1)), history.of.step(INCR, LOAD.key), state(history.of).feed(INCR)).standing is (
        Standing.SUPERSEDED
    )
    assert not history.of.is_being_deleted(key(INCR, 1)) and Application("load").key == LOAD.key
    history.rewind()
    history.teardown()
