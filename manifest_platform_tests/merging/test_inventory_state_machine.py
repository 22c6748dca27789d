"""Any order of calls, one in the midst of another, workers that die, tables that go: the inventory keeps what it promises."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from manifest_platform.manifest import Lease, LeaseBusy, LeaseLost, Refused, Store
from manifest_platform.manifest.stores import open_store
from manifest_platform.merging.inventory import Claimed, Inventory
from manifest_platform.merging.plan import DEFAULT, STRICT, Profile
from manifest_platform.merging.registration import CommittedObjects, Rules
from manifest_platform.merging.state import Partition, Range, ServedFile, SmallObject, Version
from manifest_platform.merging.transitions import ChainChanged, JobLost, Leftover
from manifest_platform_tests.effort import cases
from manifest_platform_tests.manifest.test_state_machine import FRESH, MEMORY, Apart, Interrupted, walk
from manifest_platform_tests.merging.given import (
    COLUMNS,
    DAY,
    MORNING,
    TABLE,
    Made,
    assert_consistent,
    clock_at,
    inventory,
    kill,
    make,
    merge_all,
    settings,
    slot,
    small,
)

DAYS = [DAY - timedelta(days=1), DAY, DAY + timedelta(days=1)]
A_COMMIT = 1000
"""Ids that a commit takes here."""


def _day(random: Random) -> int:
    return random.randrange(len(DAYS))


def _content(random: Random) -> tuple[dict[int, int], int]:
    """The number of objects by place in `DAYS`, and their size in bytes."""
    some = random.sample(range(len(DAYS)), random.choice([0, 1, 1, 2, 3]))
    return {day: random.randint(1, 4) for day in some}, random.choice([5, 30, 30, 60, 150])


def _step(random: Random) -> tuple[int, str]:
    """The number of the worker that takes a step, and the way in which it ends a job that it holds."""
    return random.randrange(2), random.choice(["commits"] * 6 + ["commits a part", "fails", "is broken", "dies"])


CHOICES: dict[str, tuple[int, Callable[[Random], tuple]]] = {
    "register": (10, _content),
    "work": (26, _step),
    "hasten_all": (8, lambda _: ()),
    "close_and_switch": (8, lambda random: (_day(random),)),
    "publish": (10, lambda random: (_day(random),)),
    "rebuild": (8, lambda random: (_day(random),)),
    "take_over": (3, lambda _: ()),
    "requeue": (3, lambda _: ()),
    "heartbeat": (3, lambda random: (random.randrange(2),)),
    "turn": (4, lambda random: (random.choice([60, 601, 43_200]),)),
    "retry": (3, lambda random: (_day(random),)),
    "drop_or_begin": (2, lambda _: ()),
}
"""Each event by name: its weight in the random choice, and the function that draws its arguments."""


@dataclass(frozen=True)
class Event:
    what: str
    arguments: tuple

    @classmethod
    def any(cls, random: Random) -> Event:
        [what] = random.choices(list(CHOICES), [weight for weight, _ in CHOICES.values()])
        return cls(what, CHOICES[what][1](random))


randoms = st.randoms(use_true_random=True)  # chosen evenly: values that are drawn one by one are mostly alike


@dataclass
class Worker:
    """A merge worker: its lease, what it has claimed, and what it has made of that."""

    lease: Lease
    claimed: list[Claimed] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)


class LedgerMachine(RuleBasedStateMachine):
    """Things happen to an inventory of one table and three dates, some of them while others are being done."""

    def __init__(self, store: Store):
        super().__init__()
        name = f"partition {next(FRESH)}"
        self.clock = clock_at(MORNING)
        self.interrupted = Interrupted(store, name)
        self.of = inventory(Apart(store, name), self.clock, "other", max_attempts=3)
        self.interrupting = inventory(self.interrupted, self.clock, "this", max_attempts=3)
        self.workers: list[Worker | None] = [None, None]
        self.commits: dict[int, CommittedObjects] = {}
        self.registered: dict[tuple[int, int], int] = {}
        self.lives = 0
        self.looked: tuple[Partition, Version | None] | None = None
        self.found: tuple[Partition, list[Range]] | None = None
        self.versions: dict[str, dict] = {}
        self.seen: dict[Any, tuple[int, int, int]] = {}

    @initialize(profile=st.sampled_from([STRICT, DEFAULT]), most=st.integers(2, 5), by_volume=st.booleans())
    def begin(self, profile: Profile, most: int, by_volume: bool) -> None:
        self.profile = replace(profile, max_objects=most)
        self.taking = Rules(by_volume=by_volume)

    # What happens

    @rule(random=randoms)
    def act(self, random: Random) -> None:
        """Runs an event, and a second event at one of its first seven store calls."""
        event, meanwhile = Event.any(random), Event.any(random)
        self.interrupted.interrupt(random.randint(1, 7), lambda: self._happens(self.of, meanwhile), random.random() < 0.5)
        self._happens(self.interrupting, event)
        self.interrupted.calls_left = 0

    @rule(random=randoms)
    def by_itself(self, random: Random) -> None:
        self._happens(self.of, Event.any(random))

    def _happens(self, of: Inventory, event: Event) -> None:
        getattr(self, event.what)(of, *event.arguments)

    def register(self, of: Inventory, content: dict[int, int], size: int) -> None:
        """The next commit; its content is that with which it was first seen."""
        number, lives = self.of.cursor() + 1, self.lives
        objects: dict[Any, tuple[SmallObject, ...]] = {}
        id_ = number * A_COMMIT
        for at, count in content.items():
            objects[TABLE, DAYS[at]] = tuple(small(id_ + one, size, rows=1 + one) for one in range(1, count + 1))
            id_ += count
        commit = self.commits.setdefault(
            number, CommittedObjects(number, f"s3://bucket/run={number}/", objects, {TABLE: COLUMNS})
        )
        of.register(commit, self.taking)
        if lives == self.lives and lives % 2 == 0:  # the table was there all the time
            for (_, day), there in commit.objects.items():
                self.registered |= {(DAYS.index(day), one.id): one.rows for one in there}

    def work(self, of: Inventory, which: int, end: str) -> None:
        """A worker takes one step: it commits what it has in hand, or claims and merges, with a lease if it has none."""
        worker = self.workers[which]
        if worker and end == "dies":
            self._die(which)
        elif worker and worker.made:
            self._end(of, worker.made.pop(0), end)
        elif worker:
            try:
                worker.claimed += of.claim(worker.lease, self.clock.now, limit=2)
            except LeaseLost:
                self._die(which)
            while worker.claimed:
                self._make(of, worker, worker.claimed.pop(0))
        else:
            with suppress(LeaseBusy):
                self.workers[which] = Worker(slot(self.of, str(which)))
                self.work(of, which, "goes on")

    def _die(self, which: int) -> None:
        worker = self.workers[which]
        if worker:
            kill(worker.lease)
        self.workers[which] = None

    def take_over(self, of: Inventory) -> None:
        """Whoever has not been heard of for too long is dead; he may come back."""
        self.clock.turn(timedelta(seconds=601))
        of.requeue(self.clock.now)
        for which, worker in enumerate(self.workers):
            if worker and not worker.made:
                self._die(which)

    def _make(self, of: Inventory, worker: Worker, claimed: Claimed) -> None:
        try:
            worker.made.append(make(of, claimed, self.profile))
        except (ValueError, AssertionError):  # what it read does not fit together
            assert not self._is_running(claimed)

    def _is_running(self, claimed: Claimed) -> bool:
        return claimed.job.id in {job.id for job in self.of.running()}

    def _end(self, of: Inventory, made: Made, end: str) -> None:
        had = made.job.id in {job.id for job in self.of.running()}
        try:
            if end in ("fails", "is broken"):
                of.fail(made.job, end, permanent=end == "is broken")
            else:
                if end == "commits a part" and len(made.ranges) > 1:
                    taken = sum(one.bytes for one in made.ranges[1:])
                    made = replace(
                        made, ranges=made.ranges[:1], bytes_in=made.bytes_in - taken, leftover=Leftover(self.clock.now)
                    )
                made.commit(of)
        except JobLost:
            assert made.job.id not in {job.id for job in self.of.running()}, "refused, and nobody else can do it"
        except ChainChanged:
            with suppress(JobLost):
                of.fail(made.job, "planned for another state", permanent=False)
        else:
            assert had, "ended by somebody who had lost it"

    def heartbeat(self, _of: Inventory, which: int) -> None:
        worker = self.workers[which]
        if worker:
            with suppress(LeaseLost):
                worker.lease.heartbeat()

    def turn(self, _of: Inventory, seconds: int) -> None:
        self.clock.turn(timedelta(seconds=seconds))

    def requeue(self, of: Inventory) -> None:
        of.requeue(self.clock.now)

    def close_and_switch(self, of: Inventory, day: int) -> None:
        self._with(of, day, lambda found: of.switch(of.close(found, self.clock.now)))

    def hasten_all(self, of: Inventory) -> None:
        for at, day in enumerate(DAYS):
            self._with(of, at, lambda _, day=day: of.hasten(TABLE, day, self.clock.now))

    def retry(self, of: Inventory, day: int) -> None:
        self._with(of, day, lambda _: of.retry(TABLE, DAYS[day]))

    def _with(self, of: Inventory, day: int, act: Callable[[Partition], object]) -> None:
        found = of.partition(TABLE, DAYS[day])
        with suppress(Refused):
            if found:
                act(found)

    def publish(self, of: Inventory, day: int) -> None:
        """Records the state that the previous call read, and reads the state that the next call records."""
        if self.looked:
            read, version = self.looked
            with suppress(Refused):
                if version:
                    of.published(read, version.generation, version.version, version)
                else:
                    of.published(read, 0, read.newest_live)
        self.looked = None
        found, ranges = of.chain(TABLE, DAYS[day])
        if found and not found.switched:
            self.looked = found, None
        elif found and ranges and found.generation:
            files = tuple(ServedFile(one.uri, one.rows, one.bytes, one.lower, one.upper) for one in ranges)
            self.looked = found, Version(TABLE, DAYS[day], ranges[-1].upper, found.generation, self.clock.now, files)

    def rebuild(self, of: Inventory, day: int) -> None:
        """Rebuilds the chain that the previous call read, and reads a chain for the next call."""
        if self.found:
            read, ranges = self.found
            with suppress(ChainChanged, Refused):
                of.rebuild(read, [replace(one, uri=f"{one.uri}+", bytes=one.bytes + 1) for one in ranges])
        self.found = None
        for other in [*DAYS[day:], *DAYS[:day]]:
            found, ranges = of.chain(TABLE, other)
            if found and ranges:
                self.found = found, ranges

    def drop_or_begin(self, of: Inventory) -> None:
        """Drops the table, or creates it again if it was dropped."""
        if self.of.table(TABLE) is None:
            of.sync_table(settings())
            self.lives += self.lives % 2
        else:
            self.lives += 1 - self.lives % 2
            self._forget()
            of.drop(TABLE)
            self._forget()

    def _forget(self) -> None:
        self.registered.clear()
        self.seen.clear()
        self.versions.clear()

    # What holds at any time

    @invariant()
    def check(self) -> None:
        assert_consistent(self.of)
        self.what_was_registered_is_there_once()
        self.what_readers_see_never_goes_back()
        self.what_was_published_stays_as_it_was()

    def what_was_registered_is_there_once(self) -> None:
        there = {(at, one.id): one.rows for at, day in enumerate(DAYS) for one in self.of.small_objects(TABLE, day)}
        assert self.registered.items() <= there.items()

    def what_readers_see_never_goes_back(self) -> None:
        for one in self.of.partitions():
            now = one.current, one.published, one.published_newest
            before = self.seen.get((one.date, one.create_time), now)
            assert all(new >= old for new, old in zip(now, before, strict=True))
            self.seen[one.date, one.create_time] = now

    def what_was_published_stays_as_it_was(self) -> None:
        rows = {row.sort: row.data for row in self.of.store.query(self.of.dataset, "MVERSION#")}
        assert self.versions.items() <= rows.items()
        self.versions = rows
        for one in self.of.partitions():
            if one.current <= 0:
                continue
            [version] = [found for found in self.of.versions(TABLE, one.date) if found.generation == one.published]
            objects = [small for small in self.of.small_objects(TABLE, one.date) if small.id <= one.current]
            assert sum(file.rows for file in version.files) == sum(small.rows for small in objects)  # design 10.9
            assert one.last_live and one.current >= one.last_live

    def teardown(self) -> None:
        if hasattr(self, "profile"):
            self.it_comes_to_rest()

    def it_comes_to_rest(self) -> None:
        for which in range(len(self.workers)):
            self._die(which)
        self.clock.turn(timedelta(days=4))
        self.of.requeue(self.clock.now)
        for at in range(len(DAYS)):
            self.retry(self.of, at)
            self.close_and_switch(self.of, at)
        self.hasten_all(self.of)
        with slot(self.of) as held:
            merge_all(self.of, held, self.profile)
        for at in range(len(DAYS)):
            self.close_and_switch(self.of, at)
            self.looked = None
            self.publish(self.of, at)
            self.publish(self.of, at)
        self.check()
        assert list(self.of.open_partitions()) == []
        assert self.of.running() == []
        merged = {
            (at, one.id) for at, day in enumerate(DAYS) for one in self.of.small_objects(TABLE, day) if self._is_held(day, one)
        }
        assert self.registered.keys() <= merged

    def _is_held(self, day: Any, one: SmallObject) -> bool:
        return sum(held.lower < one.id <= held.upper for held in self.of.ranges(TABLE, day)) == 1


EXAMPLES = {"sqlite": (cases(10, 40), 40), "postgresql": (2, 25), "dynamodb": (2, 25)}


@pytest.mark.thorough
@pytest.mark.timeout(600)  # a failure is made small first
def test_no_order_of_events_breaks_the_inventory(store_url: str) -> None:
    driver = store_url.partition(":")[0]
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        store = open_store(f"sqlite:///{folder}/manifest.db" if driver == "sqlite" else store_url)
        walk(lambda: LedgerMachine(store), *EXAMPLES[driver])
        store.close()
