"""The manifest's own code against the orders of events that a random walk finds: two workers, crashes, operators.

The sink is simulated by the rules of the apply protocol: a fence that holds the newest token, epoch and position, and a ledger.
Each worker takes one step at a time, so that anything may happen between any two of its steps.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from manifest_platform.manifest import (
    Abandoned,
    Blocked,
    Claim,
    ClaimLost,
    ConditionFailed,
    Failure,
    FailureKind,
    Idle,
    Item,
    Lease,
    LeaseBusy,
    Mode,
    Ready,
    Refused,
    Standing,
    State,
    Store,
)
from manifest_platform.manifest.keys import records_prefix
from manifest_platform.manifest.store import Write
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform_tests.effort import cases
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    HOUR,
    LOAD,
    SHRED,
    Clock,
    Late,
    LossyStore,
    assert_kept,
    discover,
    key,
    kill,
    lease,
    manifest,
    set_state,
    steps,
)

ITEMS = 7
MEMORY = Path("/dev/shm")  # if it exists: a walk commits thousands of times
WALKS = cases(6, 15)
CHANCES = ["commits", "commits", "commits", "answer lost", "fails", "stumbles"]


class Fenced(Exception):
    """The sink has seen a newer token or epoch."""


@dataclass
class Entry:
    position: str
    late: bool
    epoch: int


@dataclass
class Sink:
    """A simulated warehouse: fence, ledger and commits in order."""

    token: int = 0
    epoch: int = 1
    applied: str = ""
    ledger: dict[str, int] = field(default_factory=dict)
    history: list[Entry] = field(default_factory=list)

    def raise_fence(self, token: int, epoch: int) -> None:
        if self.token > token or self.epoch > epoch:
            raise Fenced
        self.token, self.epoch = token, epoch

    def apply(self, item: Item, token: int, epoch: int, serving_epoch: int) -> int:
        """Commits an item, or finds it committed. Returns the epoch in the ledger."""
        if self.token > token or self.epoch > epoch:
            raise Fenced
        position, late = item.key.position, item.is_late_for(LOAD)
        if self.ledger.get(position, 0) >= serving_epoch:
            return self.ledger[position]
        assert late or position > self.applied, f"{position} comes behind {self.applied}, and is not marked late"
        self.token, self.epoch = token, epoch
        self.applied = max(self.applied, position)
        self.ledger[position] = epoch
        self.history.append(Entry(position, late, epoch))
        return epoch


@dataclass
class Worker:
    """A worker between two of its steps: its next step, its lease and its claim."""

    next: str = ""
    lease: Lease | None = None
    item: Ready | Abandoned | None = None
    claim: Claim | None = None
    epoch: int = 0


class Interrupted(LossyStore):
    """A store that lets another event happen between the reads and the writes of an operation."""

    def __init__(self, store: Store, interrupt: Callable[[], None]):
        super().__init__(store, "none", at=0)
        self.interrupt = interrupt

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        self.interrupt()
        super().transact(partition, writes, token)


class Walk:
    """A random walk: a manifest on a real store, its sink, two workers, an operator."""

    def __init__(self, late: Late | None, seed: int) -> None:
        """`late`: the feed's policy; None if it changes during the walk."""
        self.late: Late | None = late
        self.random = Random(seed)
        self.told: list[str] = []
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.store = SqlStore(f"sqlite:///{self.folder.name}/manifest.db")
        self.clock, self.sink = Clock(), Sink()
        self.busy: int | None = None  # the worker in the middle of a step
        self.interrupted = False
        halting = Interrupted(self.store, self.interrupt)
        first = late or "quarantine"
        self.manifests = [manifest(halting, clock=self.clock, author=f"worker-{n}", late=first) for n in range(2)]
        self.of = manifest(self.store, clock=self.clock, author="operator", late=first)
        self.workers = [Worker(), Worker()]
        self.log: dict[str, dict] = {}

    def run(self, length: int) -> None:
        try:
            for _ in range(length):
                self.act()
                self.check()
            for worker in self.workers:
                if worker.lease:
                    kill(worker.lease)
            self.workers = [Worker(), Worker()]
            self.interrupted = True
            self.come_to_rest()
            self.check()
        except BaseException as error:
            error.add_note("after: " + ", ".join(self.told))
            raise
        finally:
            self.store.close()
            self.folder.cleanup()

    def act(self) -> None:
        """Executes a random event of those that may happen next."""
        some = self.random
        by, number = some.randrange(2) if self.busy is None else 1 - self.busy, some.randint(1, ITEMS)
        actions: list[tuple[float, str, tuple]] = [
            (8, "work", (by, some.choices(CHANCES, k=some.randint(1, 4)))),
            (3, "discover", (set(some.sample(range(1, ITEMS + 1), some.randint(1, 2))), by)),
            (3, "shred", (some.randint(1, 3), some.random() < 0.1)),
            (2, "operate", (number, some.choice(["resolve", "skip", "skip shred", "skip load", "unskip", "unskip"]))),
            (2, "operate", (number, "resolve")),
            (1, "look", (some.choice(["load", "shred"]),)),
            (2, "time_passes", ()),
            (1, "crash", (by,)),
            (3 if self.of.state(LOAD).mode is Mode.FULL_LOAD else 0.4, "begin_or_cancel_a_full_load", ()),
        ]
        if self.late is None:
            actions.append((1, "set_policy", (some.choice(["append", "quarantine"]), some.choice([0, 1, 2]))))
        [(_, name, arguments)] = some.choices(actions, weights=[weight for weight, _, _ in actions])
        self.told.append(f"{name}{arguments}")
        getattr(self, name)(*arguments)

    def interrupt(self) -> None:
        if not self.interrupted and self.random.random() < 0.15:
            self.interrupted = True
            self.told.append("[")
            self.act()
            self.told.append("]")
            self.interrupted = False

    def check(self) -> None:
        self.the_history_is_in_order_and_each_item_occurs_once()
        self.the_log_only_grows()
        self.rows_beside_the_log_equal_what_follows_from_it()
        self.done_items_are_in_the_ledger()
        self.nothing_is_passed_silently()

    # Directories, shredding, operators

    def discover(self, found: set[int], by: int) -> None:
        busy, self.busy = self.busy, by if self.busy is None else self.busy
        discover(self.manifests[by], *found)
        self.busy = busy

    def shred(self, count: int, fails: bool) -> None:
        items, _ = self.of.waiting(FEED, "shred", count)
        if items:
            with lease(self.of, SHRED) as held:
                for claim in self.of.claim(held, items):
                    if fails and claim.item.key == items[-1].key:
                        self.of.fail(claim, Failure(FailureKind.TRANSIENT, "no memory"))
                    else:
                        self.of.complete(claim, DONE)

    def operate(self, number: int, what: str) -> None:
        name, _, application = what.partition(" ")
        with suppress(Refused):
            if application:
                self.of.skip(key(number), "by hand", application)
            else:
                getattr(self.of, name)(key(number), "by hand")

    def look(self, application: str) -> None:
        self.of.survey(FEED, application)

    def time_passes(self) -> None:
        self.clock.turn(2 * HOUR)

    def set_policy(self, late: Late, of: int) -> None:
        """Lets one process read the changed configuration; the others follow in later events."""
        [*self.manifests, self.of][of].feeds = {FEED: tuple(steps(late))}

    def begin_or_cancel_a_full_load(self) -> None:
        state = self.of.state(LOAD)
        if state.mode is Mode.INCREMENTAL:
            set_state(self.of, dataclasses.replace(state, mode=Mode.FULL_LOAD, epoch=state.epoch + 1))
        else:
            set_state(self.of, dataclasses.replace(state, mode=Mode.INCREMENTAL))

    # Two loaders

    def crash(self, by: int) -> None:
        worker = self.workers[by]
        if worker.lease:
            kill(worker.lease)
        self.workers[by] = Worker()

    def take_lease(self, by: int) -> None:
        if self.workers[by].lease is None:
            with suppress(LeaseBusy):
                self.workers[by] = Worker("look", lease(self.manifests[by], holder=f"worker-{by}"))

    def work(self, by: int, chances: list[str]) -> None:
        busy, self.busy = self.busy, by if self.busy is None else self.busy
        self.take_lease(by)
        for chance in chances:
            self.step(by, chance)
        self.busy = busy

    def step(self, by: int, chance: str) -> None:
        worker = self.workers[by]
        if worker.lease is None:
            return
        try:
            getattr(self, f"_{worker.next}")(by, worker, worker.lease, chance)
        except (ClaimLost, ConditionFailed, Fenced) as lost:
            if isinstance(lost, Fenced) and worker.lease.token >= self.newest_token():
                assert self.sink.epoch > worker.epoch, "the newest lease is fenced"
            worker.lease.release()
            self.workers[by] = Worker()

    def newest_token(self) -> int:
        stored = self.of.lease(LOAD, FEED)
        return stored.token if stored else 0

    def _look(self, by: int, worker: Worker, held: Lease, _chance: str) -> None:
        of = self.manifests[by]
        verdict = of.unsettled(held) or of.next(FEED, "load", holding=True)
        if isinstance(verdict, Blocked | Idle):
            held.release()
            self.workers[by] = Worker()
            return
        worker.item = verdict
        worker.next = "claim" if isinstance(verdict, Ready) else "raise"

    def _claim(self, by: int, worker: Worker, held: Lease, _chance: str) -> None:
        assert isinstance(worker.item, Ready)
        [worker.claim] = self.manifests[by].claim(held, [worker.item.item], worker.item.state)
        worker.next = "apply"

    def _apply(self, by: int, worker: Worker, held: Lease, chance: str) -> None:
        claim = worker.claim
        assert claim and claim.processing.epoch
        if chance in ("fails", "stumbles"):
            kind = FailureKind.PERMANENT if chance == "fails" else FailureKind.TRANSIENT
            self.manifests[by].fail(claim, Failure(kind, chance))
            worker.next = "look"
            return
        worker.epoch = claim.processing.epoch
        before = len(self.sink.history)
        serving = claim.state.feed(FEED).serving_epoch
        epoch = self.sink.apply(claim.item, claim.processing.token or 0, claim.processing.epoch, serving)
        already = len(self.sink.history) == before
        worker.item, worker.epoch = Abandoned(claim.item, claim.processing), epoch
        worker.next = "adopt" if already else "raise" if chance == "answer lost" else "complete"

    def _complete(self, by: int, worker: Worker, _held: Lease, _chance: str) -> None:
        assert worker.claim
        self.manifests[by].complete(worker.claim, DONE)
        worker.next = "look"

    def _raise(self, by: int, worker: Worker, held: Lease, _chance: str) -> None:
        worker.epoch = self.manifests[by].state(LOAD).epoch
        self.sink.raise_fence(held.token, worker.epoch)
        worker.next = "ask"

    def _ask(self, by: int, worker: Worker, _held: Lease, _chance: str) -> None:
        assert isinstance(worker.item, Abandoned)
        worker.epoch = self.sink.ledger.get(worker.item.item.key.position, 0)
        worker.next = "adopt" if worker.epoch else "abandon"

    def _adopt(self, by: int, worker: Worker, held: Lease, _chance: str) -> None:
        assert isinstance(worker.item, Abandoned)
        self.manifests[by].adopt(held, worker.item, worker.epoch, DONE)
        worker.next = "look"

    def _abandon(self, by: int, worker: Worker, held: Lease, _chance: str) -> None:
        assert isinstance(worker.item, Abandoned)
        self.manifests[by].abandon(held, worker.item)
        worker.next = "look"

    # Invariants

    def the_history_is_in_order_and_each_item_occurs_once(self) -> None:
        in_order = [entry.position for entry in self.sink.history if not entry.late]
        assert in_order == sorted(in_order)
        everything = [entry.position for entry in self.sink.history]
        assert len(set(everything)) == len(everything)

    def the_log_only_grows(self) -> None:
        log = {row.sort: row.data for row in self.store.query("shop", records_prefix(FEED))}
        assert self.log.items() <= log.items()
        self.log = log

    def rows_beside_the_log_equal_what_follows_from_it(self) -> None:
        assert_kept(self.of, self.late)

    def done_items_are_in_the_ledger(self) -> None:
        feed = self.of.state(LOAD).feed(FEED)
        assert feed.watermark <= self.sink.applied
        for item in self.of.items(FEED):
            done = item.processed_by(LOAD)
            assert not done or self.sink.ledger[item.key.position] == done.epoch

    def nothing_is_passed_silently(self) -> None:
        feed = self.of.state(LOAD).feed(FEED)
        for item in self.of.items(FEED):
            passed = item.processed_by(LOAD) or item.skipped_for(LOAD) or item.is_late_for(LOAD)
            assert passed or item.key.position > feed.swept, f"{item.key.name} was passed"
            blocker = item.blocker()
            if blocker and blocker.state is State.FAILED and blocker.application == LOAD and not passed:
                assert self.sink.applied <= item.key.position, f"{item.key.name} failed and was passed"

    def come_to_rest(self) -> None:
        """Asserts that all items are done or set aside, without crashes and with an operator who resolves every failure."""
        if self.of.state(LOAD).mode is Mode.FULL_LOAD:
            self.begin_or_cancel_a_full_load()
        self.clock.turn(2 * HOUR)
        for _ in range(60):
            self.shred(3, False)
            for number in range(1, ITEMS + 1):
                self.operate(number, "resolve")
            self.take_lease(0)
            while self.workers[0].lease:
                self.step(0, "commits")
            verdict = self.of.next(FEED, "load")
            if verdict == Idle() and self.of.next(FEED, "shred") == Idle():
                break
        if not isinstance(verdict, Idle):
            assert isinstance(verdict, Blocked) and verdict.standing is Standing.CUT_OFF, verdict
        for item in self.of.items(FEED):
            aside = item.skipped_for(LOAD) or item.skipped_for(SHRED)
            aside = aside or (self.late != "append" and item.is_set_aside_for(LOAD))
            assert aside or isinstance(verdict, Blocked) or item.key.position in self.sink.ledger


@pytest.mark.thorough
@pytest.mark.parametrize("late", ["quarantine", "append", None])
def test_no_order_of_events_breaks_an_invariant(late: Late | None) -> None:
    for seed in range(WALKS):
        Walk(late, seed).run(length=80)
