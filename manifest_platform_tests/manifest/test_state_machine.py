"""Random orders of calls on every store: a store compared with a dict, and the manifest compared with its log.

`test_invariants` walks further, on SQLite alone. Here every store is walked, with full loads, torn reads and half-done
shredding among the events, and a failing walk is reduced to the steps that it needs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from manifest_platform.manifest import (
    Blocked,
    ConditionFailed,
    Idle,
    Item,
    ItemKey,
    LeaseBusy,
    Manifest,
    Record,
    Refused,
    Standing,
    State,
    Store,
)
from manifest_platform.manifest.dataset import PASSED, FeedState, judge
from manifest_platform.manifest.keys import pending_prefix
from manifest_platform.manifest.store import ABSENT, Check, Delete, Put, Row, Write
from manifest_platform.manifest.stores import open_store
from manifest_platform_tests.effort import cases
from manifest_platform_tests.manifest.given import Clock, Late
from manifest_platform_tests.manifest.loader import Apart, Commit, Loader, Sink, boundary, shred
from manifest_platform_tests.manifest.vault import (
    FULL,
    HOUR,
    INCR,
    LOAD,
    LOG,
    SHRED,
    is_full_load,
    land,
    state,
    vault,
)

MEMORY = Path("/dev/shm")  # if it exists: a walk commits thousands of times
FRESH = count(1)
"""Numbers of partitions: each walk has one of its own."""


def walk(machine: Callable[[], RuleBasedStateMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,  # ty: ignore[invalid-argument-type]  # what makes one will do
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )


# A store compared with a dict

sorts = st.sampled_from(["P", "P#", "P#a", "P#b", "P#b#1", "P#~", "Q#a", "p#a"])
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
data = st.dictionaries(st.text(max_size=3), values, max_size=3)


class StoreMachine(RuleBasedStateMachine):
    """Two connections to one store give the same results as a dict."""

    def __init__(self, stores: Sequence[Store]):
        super().__init__()
        self.stores, self.partition, self.tokens = stores, f"partition {next(FRESH)}", count(1)
        self.rows: dict[str, tuple[int, dict[str, Any]]] = {}
        self.sent: list[tuple[str, list[Write]]] = []
        self.done: set[str] = set()

    by = st.integers(0, 1)

    @rule(by=by, drawn=st.data(), wanted=st.lists(sorts, min_size=1, max_size=4, unique=True))
    def transact(self, by: int, drawn: st.DataObject, wanted: list[str]) -> None:
        token = f"{self.partition} {next(self.tokens)}"
        self.sent.append((token, [drawn.draw(self._write(sort)) for sort in wanted]))
        self._transact(by, *self.sent[-1])

    def _write(self, sort: str) -> st.SearchStrategy[Write]:
        version = self._version(sort)
        expected = st.sampled_from([version] * 4 + [ABSENT, 1, version + 1])
        existing = expected.filter(lambda one: one != ABSENT)
        puts, checks = st.builds(Put, st.just(sort), data, expected), st.builds(Check, st.just(sort), expected)
        return puts | puts | checks | st.builds(Delete, st.just(sort), existing)

    @precondition(lambda self: self.sent)
    @rule(by=by, which=st.integers(0, 99))
    def repeat(self, by: int, which: int) -> None:
        self._transact(by, *self.sent[-1 - which % min(3, len(self.sent))])

    def _transact(self, by: int, token: str, writes: list[Write]) -> None:
        failed = [write for write in writes if self._version(write.sort) != write.expected]
        if token in self.done or not failed:
            self.stores[by].transact(self.partition, writes, token)
            self._apply(token, writes)
        else:
            with pytest.raises(ConditionFailed) as error:
                self.stores[by].transact(self.partition, writes, token)
            assert list(error.value.failed) == failed

    def _apply(self, token: str, writes: list[Write]) -> None:
        if token in self.done:
            return
        self.done.add(token)
        for write in writes:
            if isinstance(write, Put):
                self.rows[write.sort] = (write.expected + 1, write.data)
            elif isinstance(write, Delete):
                del self.rows[write.sort]

    def _version(self, sort: str) -> int:
        return self.rows[sort][0] if sort in self.rows else ABSENT

    @rule(by=by, sort=sorts)
    def get(self, by: int, sort: str) -> None:
        assert self.stores[by].get(self.partition, sort) == self._row(sort)

    @rule(by=by, asked=st.lists(sorts, max_size=5))
    def get_many(self, by: int, asked: list[str]) -> None:
        wanted = {sort: self._row(sort) for sort in asked if sort in self.rows}
        assert self.stores[by].get_many(self.partition, asked) == wanted

    def _row(self, sort: str) -> Row | None:
        return Row(self.partition, sort, *self.rows[sort]) if sort in self.rows else None

    prefixes = st.sampled_from(["", "P", "P#", "P#b", "Q", "~"])

    @rule(by=by, prefix=prefixes, after=st.none() | sorts, limit=st.none() | st.integers(1, 4), reverse=st.booleans())
    def query(self, by: int, prefix: str, after: str | None, limit: int | None, reverse: bool) -> None:
        wanted = [sort for sort in sorted(self.rows, reverse=reverse) if sort.startswith(prefix)]
        wanted = [sort for sort in wanted if after is None or (sort < after if reverse else sort > after)]
        found = self.stores[by].query(self.partition, prefix, after=after, limit=limit, reverse=reverse)
        assert found == [self._row(sort) for sort in wanted[:limit]]


@pytest.mark.thorough
@pytest.mark.every_store
def test_every_order_of_calls_gives_the_results_of_a_dict(store: Store, reopen: Callable[[], Store]) -> None:
    other = reopen()
    walk(lambda: StoreMachine([store, other]), examples=cases(12, 50), steps=25)
    other.close()


# The manifest compared with its log


class Interrupted(Apart):
    """A store that executes another event at its n-th call from now.

    A query then reads one half of its rows before the event and one half after it: a query is atomic only for a single row.
    """

    def __init__(self, store: Store, partition: str):
        super().__init__(store, partition)
        self.calls_left, self.event = 0, lambda: None
        self.later_half_first = False

    def interrupt(self, at: int, event: Callable[[], None], later_half_first: bool) -> None:
        self.calls_left, self.event, self.later_half_first = at, event, later_half_first

    def _is_due(self) -> bool:
        self.calls_left -= 1
        return self.calls_left == 0

    def get(self, partition: str, sort: str) -> Row | None:
        if self._is_due():
            self.event()
        return super().get(partition, sort)

    def get_many(self, partition: str, sorts: Iterable[str]) -> dict[str, Row]:
        """Reads the rows separately, because they are not read at one moment."""
        return {sort: row for sort in sorts if (row := self.get(partition, sort))}

    def query(self, partition: str, prefix: str, **bounds: Any) -> list[Row]:
        before = super().query(partition, prefix, **bounds)
        if not self._is_due():
            return before
        self.event()
        after = super().query(partition, prefix, **bounds)
        first, second = (after, before) if self.later_half_first else (before, after)
        middle = before[len(before) // 2].sort if before else ""
        backwards = bool(bounds.get("reverse"))
        torn = [row for row in first if (row.sort > middle) == backwards]
        torn += [row for row in second if (row.sort > middle) != backwards]
        return torn[: bounds.get("limit")]

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        if self._is_due():
            self.event()
        super().transact(partition, writes, token)


ITEMS, SNAPSHOTS = 8, 3
feeds = st.sampled_from([INCR] * 7 + [LOG, FULL])
items = st.integers(1, ITEMS)
some, many = st.sets(items, min_size=1, max_size=3), st.sets(items, min_size=3, max_size=5)
loaders = st.integers(0, 1)
chances = st.sampled_from(["commits"] * 12 + ["answer lost"] * 2 + ["fails"] * 2 + ["stumbles", "dies", "dies"])
ends = st.sampled_from(["done", "done", "done", "fails", "dies"])
operations = st.sampled_from(["resolve", "resolve", "skip", "skip shred", "skip load", "unskip"])


@dataclass(frozen=True)
class Event:
    """An event, either alone or during another operation. `at`: the number of the store's call at which it happens."""

    at: int
    what: str
    arguments: tuple[Any, ...]
    later_half_first: bool


Kinds = dict[str, tuple[int, tuple[st.SearchStrategy, ...]]]
MEANWHILE: Kinds = {  # the frequency and the arguments of each event
    "take_over": (6, (feeds, st.integers(1, 12))),
    "discover": (8, (feeds, some)),
    "operate": (3, (feeds, items, operations)),
    "shred": (3, (feeds, items, ends)),
    "begin_full_load": (1, (items,)),
    "full_load": (1, (items,)),
    "cancel_full_load": (2, ()),
}
ACTS: Kinds = {
    "work": (6, (loaders, feeds, chances)),
    "discover_interrupted": (1, (feeds, some)),
    "operate_interrupted": (1, (feeds, items, operations)),
}


@st.composite
def _events(draw: st.DrawFn, kinds: Kinds) -> Event:
    what = draw(st.sampled_from([name for name, (often, _) in kinds.items() for _ in range(often)]))
    return Event(draw(st.integers(1, 5)), what, tuple(map(draw, kinds[what][1])), draw(st.booleans()))


events, acts = _events(MEANWHILE), _events(ACTS)


class ManifestMachine(RuleBasedStateMachine):
    """Loaders, a shredder, discovery and an operator, each a process with a manifest of its own."""

    def __init__(self, store: Store):
        super().__init__()
        self.store, self.partition = store, f"vault {next(FRESH)}"
        self.clock, self.sink = Clock(), Sink()
        self.loaders: list[Loader | None] = [None, None]
        self.interrupted = Interrupted(store, self.partition)
        self.log: dict[str, Record] = {}

    @initialize(
        late=st.sampled_from(["quarantine", "append"]), landed=st.fixed_dictionaries({INCR: many, LOG: many, FULL: many})
    )
    def begin(self, late: Late, landed: dict[str, set[int]]) -> None:
        self.late: Late = late
        self.of, self.interrupting = (
            vault(store, clock=self.clock, late=late, author=author)
            for store, author in ((Apart(self.store, self.partition), "other"), (self.interrupted, "this"))
        )
        for feed, numbers in landed.items():
            self._land(self.of, feed, numbers, shredded=feed != LOG)

    def _land(self, of: Manifest, feed: str, numbers: set[int], *, shredded: bool = False) -> None:
        """Snapshots have the positions of early windows, so that some windows are beyond them."""
        land(of, feed, *({1 + number % SNAPSHOTS for number in numbers} if feed == FULL else numbers), shredded=shredded)

    # Events

    @rule(event=acts, meanwhile=events)
    def act(self, event: Event, meanwhile: Event) -> None:
        """Executes an event, and another event during it."""
        self.interrupted.interrupt(meanwhile.at, lambda: self._happens(meanwhile), meanwhile.later_half_first)
        self._happens(event)
        self.interrupted.calls_left = 0

    @rule(event=events)
    def by_itself(self, event: Event) -> None:
        self._happens(event)

    def _happens(self, event: Event) -> None:
        getattr(self, event.what)(*event.arguments)

    def work(self, by: int, feed: str, chance: str) -> None:
        """A loader takes one step, and is started if necessary. During a full load, a new loader loads the snapshot."""
        if self.loaders[by] is None:
            self.loaders[by] = Loader(self.interrupting, FULL if is_full_load(self.of) else feed, self.sink)
        loader = self.loaders[by]
        if loader and (chance == "dies" or not loader.go_on(chance)):
            loader.die()
            self.loaders[by] = None

    def discover_interrupted(self, feed: str, numbers: set[int]) -> None:
        self._land(self.interrupting, feed, numbers)

    def operate_interrupted(self, feed: str, which: int, what: str) -> None:
        self._operate(self.interrupting, feed, which, what)

    def discover(self, feed: str, numbers: set[int]) -> None:
        self._land(self.of, feed, numbers)

    def shred(self, feed: str, most: int, end: str) -> None:
        with suppress(LeaseBusy, Refused):  # Refused: a skip cut the item off meanwhile
            shred(self.of, feed, most, end)

    def take_over(self, feed: str, steps: int) -> None:
        """All leases expire. Another process shreds and loads a feed, or a full load's snapshot, until it dies or is done."""
        self.clock.turn(2 * HOUR)
        feed = FULL if is_full_load(self.of) else feed
        self.shred(feed, ITEMS, "done")
        loader = Loader(self.of, feed, self.sink)
        for _ in range(steps):
            if not loader.go_on("commits"):
                return
        loader.die()

    def operate(self, feed: str, which: int, what: str) -> None:
        self._operate(self.of, feed, which, what)

    def _operate(self, of: Manifest, feed: str, which: int, what: str) -> None:
        name, _, application = what.partition(" ")
        for item in self._one_of(feed, which):
            with suppress(Refused):
                if application:
                    of.skip(item, "by hand", application)
                else:
                    getattr(of, name)(item, "by hand")

    def _one_of(self, feed: str, which: int) -> list[ItemKey]:
        known = [item.key for item in self.of.items(feed)]
        return [known[which % len(known)]] if known else []

    def begin_full_load(self, which: int) -> None:
        for snapshot in self._one_of(FULL, which):
            with suppress(Refused):
                self.of.begin_full_load(snapshot, "load", "by hand")

    def full_load(self, which: int) -> None:
        self.begin_full_load(which)
        self.take_over(FULL, 12)

    def cancel_full_load(self) -> None:
        """An operator takes the lease, settles the items of a dead worker, and cancels the full load."""
        canceller = Loader(self.of, FULL, self.sink)
        try:
            canceller.held = held = self.of.acquire(FULL, "load", "operator", HOUR)
        except LeaseBusy:
            return
        with suppress(Refused, ConditionFailed):
            while abandoned := self.of.unsettled(held):
                list(canceller.settle(held, abandoned))
            self.of.cancel_full_load(held, "by hand")
        held.release()

    # Invariants, with the numbers of the design

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "of"):
            return
        seen, items = state(self.of), {feed: list(self.of.items(feed)) for feed in (INCR, LOG, FULL)}
        self.the_commits_of_an_epoch_are_in_order_and_unique()
        self.the_log_only_grows([record for feed in items for item in items[feed] for record in item.records])
        for feed in (INCR, LOG):
            self.only_an_operator_lets_the_feed_pass_a_failure(feed, seen.feed(feed), items[feed])
            self.nothing_is_passed_silently(seen.feed(feed), items[feed])
            self.rows_beside_the_log_equal_what_follows_from_it(feed, seen.feed(feed), items[feed])
        for feed in (INCR, LOG, FULL):
            self.done_items_are_in_the_ledger(feed, seen.feed(feed), items[feed])

    def the_commits_of_an_epoch_are_in_order_and_unique(self) -> None:  # 1, 2
        contained = {INCR: "", LOG: ""}
        since: dict[str, list[Commit]] = {INCR: [], LOG: []}
        for commit in self.sink.commits:
            if commit.feed == FULL:
                since[INCR], contained[INCR] = [], boundary(commit.position.partition("#")[0])
                continue
            assert commit.late or commit.position > contained[commit.feed], f"{commit} is in the snapshot"
            assert all(commit.late or one.late or commit.position > one.position for one in since[commit.feed]), commit
            assert all(commit.position != one.position for one in since[commit.feed]), f"{commit} is there twice"
            since[commit.feed].append(commit)

    def only_an_operator_lets_the_feed_pass_a_failure(self, feed: str, kept: FeedState, items: list[Item]) -> None:  # 3
        for item in items:
            blocker = item.blocker({LOAD.key: kept.serving_epoch})
            excused = item.skipped_for(LOAD) or item.is_late_for(LOAD, kept.serving_epoch) or item.key.position <= kept.boundary
            if blocker and blocker.state is State.FAILED and not excused:
                assert self.sink.fences[feed].applied < item.key.position, f"{item.key.name} failed and was passed"
            failed: dict[str, Record] = {}
            for record in item.records:
                if record.state is State.FAILED:
                    failed[record.record_id] = record
                elif record.state is State.RESOLVED and record.previous:
                    failed.pop(record.previous, None)
                elif record.state is State.PROCESSING:
                    assert all(one.epoch != record.epoch for one in failed.values()), f"{item.key.name} failed and was retried"

    def nothing_is_passed_silently(self, kept: FeedState, items: list[Item]) -> None:  # 7
        for item in items:
            judged = judge(item, self.of.step(item.key.feed, "load"), kept)
            late = item.is_late_for(LOAD, kept.serving_epoch)
            assert judged.standing in PASSED or late or item.key.position > kept.swept, f"{item.key.name} was passed"

    def done_items_are_in_the_ledger(self, feed: str, kept: FeedState, items: list[Item]) -> None:  # 4
        told = all(commit.epoch <= kept.serving_epoch for commit in self.sink.commits if commit.feed == FULL)
        assert feed != INCR or not told or kept.watermark <= self.sink.fences[feed].applied
        for item in items:
            if item.processed_by(LOAD, kept.serving_epoch):
                assert self.sink.ledger[feed, item.key.position] >= kept.serving_epoch

    def the_log_only_grows(self, records: list[Record]) -> None:  # 6
        log = {record.record_id: record for record in records}
        assert self.log.items() <= log.items()
        self.log = log

    def rows_beside_the_log_equal_what_follows_from_it(self, feed: str, kept: FeedState, items: list[Item]) -> None:  # 6
        serving, watermark = kept.serving_epoch, kept.boundary
        waiting, counted = {SHRED: set[str](), LOAD: set[str]()}, {"applied": 0, "skipped": 0, "late": 0, "quarantined": 0}
        for item in items:
            assert not item.problems
            ended = [one.previous for one in item.records if one.state in (State.PROCESSED, State.FAILED)]
            assert len(set(ended)) == len(ended), f"a claim on {item.key.name} was ended twice"
            late, done, skipped = item.is_late_for(LOAD, serving), item.processed_by(LOAD, serving), item.skipped_for(LOAD)
            aside = item.is_set_aside_for(LOAD)
            if done and not late:
                watermark = max(watermark, item.key.position)
            if not item.processed_by(SHRED) and not item.skipped_for(SHRED):
                waiting[SHRED].add(item.key.position)
            if item.is_late_for(LOAD) and not aside and not item.processed_by(LOAD) and not skipped:
                waiting[LOAD].add(item.key.position)  # whether or not its epoch still serves: see `choose`
            if skipped or done or late:
                counted["skipped" if skipped else "applied" if done else "quarantined" if aside else "late"] += 1
        assert {name: getattr(kept, name) for name in counted} == counted
        assert kept.watermark == watermark
        for application, positions in waiting.items():
            prefix = pending_prefix(application, feed)
            rows = {row.sort.removeprefix(prefix) for row in self.store.query(self.partition, prefix)}
            assert rows == positions, application

    def teardown(self) -> None:
        if hasattr(self, "of"):
            self.it_comes_to_rest()

    def it_comes_to_rest(self) -> None:  # invariant 8
        for loader in self.loaders:
            if loader:
                loader.die()
        self.clock.turn(2 * HOUR)
        for _ in range(ITEMS):
            for feed in (FULL, INCR, LOG):
                self.shred(feed, ITEMS, "done")
                for which in range(ITEMS):
                    self.operate(feed, which, "resolve")
                loader = Loader(self.of, feed, self.sink)
                while loader.go_on("commits"):
                    pass
            if all(self._is_at_rest(feed) for feed in (FULL, INCR, LOG)):
                break
        self.check()
        for feed in (FULL, INCR, LOG):
            assert self._is_at_rest(feed), self.of.next(feed, "load")

    def _is_at_rest(self, feed: str) -> bool:
        if self.of.next(feed, "shred") != Idle():
            return False
        verdict = self.of.next(feed, "load")
        return verdict == Idle() or (isinstance(verdict, Blocked) and verdict.standing in (Standing.CUT_OFF, Standing.MODE))


EXAMPLES = {"sqlite": cases(8, 25), "postgresql": cases(2, 5), "dynamodb": cases(1, 2)}


@pytest.mark.thorough
@pytest.mark.every_store
@pytest.mark.timeout(900)  # includes the time to minimize a failure
def test_no_order_of_events_breaks_the_manifest(store_url: str) -> None:
    driver = store_url.partition(":")[0]
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        store = open_store(f"sqlite:///{folder}/manifest.db" if driver == "sqlite" else store_url)
        walk(lambda: ManifestMachine(store), EXAMPLES[driver], steps=50)
        store.close()
