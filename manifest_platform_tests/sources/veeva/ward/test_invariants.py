"""Events in any order over the real manifest and the real warehouse, with the invariants I1 to I9 after every step.

Windows land in any order, some missing, some late; snapshots are begun, loaded and canceled; workers crash at any point, or
pause while others continue. The oracle is the source's own history, folded in memory.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from manifest_platform import failpoints
from manifest_platform.failpoints import FailpointReached
from manifest_platform.manifest import Application, Blocked, Idle, Item, ItemKey, Refused, Standing, State
from manifest_platform.manifest.dataset import BEYOND_IDS, Mode
from manifest_platform.pipeline import LOAD, Budget, Pipeline
from manifest_platform.pipeline.full import cancel
from manifest_platform.pipeline.shredding import listing_of
from manifest_platform.warehouse.apply import AlreadyApplied, Load
from manifest_platform_tests.effort import cases
from manifest_platform_tests.manifest.test_state_machine import MEMORY, walk
from manifest_platform_tests.sources.veeva.ward.ward import (
    DAY,
    FULL,
    INCR,
    LOG,
    PRODUCT,
    QUARTER,
    Rows,
    Seen,
    Tables,
    Ward,
    Window,
    at,
    begun,
    drained,
    full,
    incr,
    key_of,
    land,
    log,
    mend,
    replayed,
    short,
    spoil,
    state,
    watermark,
)

STUDY = "study__v"
BEGIN, LAST = at("0000"), 10
ONE = Budget(items=1)
APPLICATION = Application(LOAD)


# The source


def stop_of(number: int) -> str:
    return short(BEGIN + number * QUARTER)


def changes(first: int, last: int) -> Rows:
    """Returns the changes between two quarters of an hour: rows that are created, changed and deleted, differently in each."""
    tables: dict[str, dict[str, str | None]] = {PRODUCT: {}}
    for number in range(first, last + 1):
        tables[PRODUCT] |= {"last": stop_of(number), f"k{number % 3}": None if number % 5 == 0 else stop_of(number)}
        if number % 2:
            tables.setdefault(STUDY, {})["s"] = None if number % 4 == 3 else stop_of(number)
    return tables


def window(number: int, quarters: int) -> Window:
    """Returns a window of changes over one or several quarters of an hour."""
    return incr(stop_of(number), changes(number - quarters + 1, number), stop_of(number - quarters))


def truth(number: int) -> Tables:
    """Returns the rows of the source after a quarter of an hour."""
    return replayed([full("0000", {PRODUCT: {"first": "0000"}}), *(window(one, 1) for one in range(1, number + 1))])


def snapshot(number: int) -> Window:
    """Returns the rows of the source; objects without rows are present without rows, or absent."""
    return full(stop_of(number), {name: rows for name, rows in truth(number).items() if rows or number % 2})


def day(number: int) -> Window:
    return log(short(BEGIN + number * DAY))


# The machine


@dataclass(frozen=True)
class Event:
    """An event. `meanwhile`: another event, or a crash, at a point in the middle of it."""

    what: str
    number: int
    point: str
    meanwhile: Event | None = None


POINTS = ("load.claimed", "load.before_transaction", "load.committed", "full.shadows_built", "full.committed")
"""The points where a worker may pause. Between them its transaction is open, and others wait for it."""
CRASHES = (*POINTS, "load.in_transaction", "load.completed", "full.in_transaction")

numbers = st.integers(1, LAST)
happenings = st.sampled_from(
    ["work"] * 8 + ["land"] * 4 + ["land long", "log", "snapshot", "begin", "full load", "full load", "cancel"]
    + ["resolve", "resolve", "skip", "fails", "fails", "fails", "again", "again"]
)  # fmt: skip
working = st.sampled_from(["work"] * 5 + ["full load"])
meanwhiles = st.builds(
    Event, st.sampled_from(["work", "work", "full load", "begin", "cancel", "land", "resolve"]), numbers, st.just("")
)
events = st.one_of(
    st.builds(Event, happenings, numbers, st.just("")),
    st.builds(Event, working, numbers, st.sampled_from(CRASHES)),
    st.builds(Event, working, numbers, st.sampled_from(POINTS), meanwhiles),
)


class VaultMachine(RuleBasedStateMachine):
    """Two workers, a producer and an operator, each through the pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.ward = Ward(Path(self.folder.name), lease={"max_attempts": 2})
        self.first, self.second = self.ward.open("first"), self.ward.open("second")
        self.point, self.then = "", None
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(failpoints, "reach", self.reach)
        self.epoch, self.skipped = 1, set[str]()
        self.quarters: dict[str, int] = {}

    @initialize(landed=st.sets(numbers, min_size=6), begin=st.booleans())
    def start(self, landed: set[int], begin: bool) -> None:
        land(self.first, snapshot(0), *(self.windows(*sorted(landed))), day(0))
        if begin:
            begun(self.first, "latest")

    def windows(self, *numbers: int, quarters: int = 1) -> list[Window]:
        """Lands windows that have not landed yet: the first content of a window remains."""
        return [window(one, self.quarters.setdefault(stop_of(one), min(quarters, one))) for one in numbers]

    @rule(event=events)
    def happens(self, event: Event) -> None:
        self.point, self.then = event.point, event.meanwhile
        try:
            self.act(self.first, event)
        except FailpointReached:
            assert event.point
        finally:
            self.point, self.then = "", None

    def reach(self, point: str) -> None:
        """Pauses a worker at a point of its work: it crashes, or its lease expires while something else happens."""
        if point != self.point:
            return
        self.point, meanwhile = "", self.then
        if meanwhile is None:
            raise FailpointReached(point)
        self.second.manifest.end_leases("first")
        self.act(self.second, meanwhile)

    def act(self, by: Pipeline, event: Event) -> None:
        number = event.number
        match event.what:
            case "work":
                drained(by, budget=ONE)
            case "land":
                self.lands(by, *self.windows(number))
            case "land long":
                self.lands(by, *self.windows(number, quarters=2))
            case "log":
                self.lands(by, day(number % 3))
            case "snapshot":
                self.lands(by, snapshot(number))
            case "begin":
                self.begin(by, number)
            case "full load":
                self.begin(by, number)
                drained(by, feeds=[FULL])
            case "cancel":
                with suppress(Refused):
                    cancel(by, "by hand")
            case "resolve":
                self.resolve(by)
            case "skip":
                self.skip(by, number)
            case "fails":
                self.fails(by)
            case "again":
                self.again(by, number)

    def lands(self, by: Pipeline, *windows: Window) -> None:
        """I8: a window that lands is registered or known, whatever the state of the dataset."""
        with suppress(Refused):  # for the shredder only: a window is skipped, or another worker shreds the feed
            [outcome] = land(by, *windows)
            assert outcome in ("new", "known", "quarantined", "late")
        assert key_of(by, short(windows[0].stop), windows[0].feed)

    def begin(self, by: Pipeline, number: int) -> None:
        snapshots = [item.key for item in by.manifest.items(FULL)]
        with suppress(Refused):
            begun(by, snapshots[number % len(snapshots)].name)

    def resolve(self, by: Pipeline) -> None:
        for feed in (INCR, LOG, FULL):
            for item in by.manifest.items(feed):
                if any(record.state is State.FAILED for record in item.open_records()):
                    with suppress(Refused):
                        by.manifest.resolve(item.key, "by hand")

    def skip(self, by: Pipeline, number: int) -> None:
        with suppress(Refused):
            key = key_of(by, stop_of(number))
            by.manifest.skip(key, "by hand", LOAD)
            self.skipped.add(key.name)

    def fails(self, by: Pipeline) -> None:
        """Makes the next window unreadable, once."""
        feed = FULL if state(by).mode == Mode.FULL_LOAD else INCR
        verdict = by.manifest.next(feed, LOAD)
        if isinstance(verdict, Idle | Blocked):
            return
        taken = spoil(by, short_of(verdict.item.key), feed)
        drained(by, budget=ONE, feeds=[feed])
        mend(taken)

    def again(self, by: Pipeline, number: int) -> None:
        """I9: an item that is in the warehouse is applied again by a worker of the newest token, and nothing changes."""
        seen = state(by)
        ledger = {entry.item: entry for entry in by.warehouse.ledger(INCR, seen.feed(INCR).serving_epoch)}
        if not ledger or seen.mode == Mode.FULL_LOAD:
            return
        entry = list(ledger.values())[number % len(ledger)]
        before = self.ward.seen
        item = by.manifest.item(ItemKey.at(INCR, entry.position))
        with by.lease(INCR, LOAD) as held:
            load = Load(
                item=entry.item,
                feed=INCR,
                position=entry.position,
                epoch=seen.epoch,
                serving_epoch=seen.feed(INCR).serving_epoch,
                token=held.token,
                record_id="again",
                checksum=entry.checksum,
                listing=listing_of(item),
            )
            assert isinstance(by.warehouse.apply(load), AlreadyApplied)
        assert (self.ward.seen.tables, self.ward.seen.ledger) == (before.tables, before.ledger)

    # Invariants

    @invariant()
    def check(self) -> None:
        seen, items = self.ward.seen, {feed: list(self.first.manifest.items(feed)) for feed in (INCR, LOG, FULL)}
        self.the_tables_are_what_the_ledger_says(seen)
        self.an_epoch_is_a_chain(seen)
        for feed in (INCR, LOG):
            self.the_watermark_is_in_the_ledger(seen, feed)
        for feed, found in items.items():
            self.one_is_in_work(feed, found)
            for item in found:
                self.a_failure_is_ended_by_an_operator_or_a_full_load(item)
        self.epochs_only_grow(seen)

    def the_tables_are_what_the_ledger_says(self, seen: Seen) -> None:  # I4, I6, I9
        applied = [self.window_of(name) for name in seen.applied]
        expected = {name: rows for name, rows in replayed(applied).items() if rows}
        assert {name: rows for name, rows in seen.tables.items() if rows} == expected
        if not self.skipped and seen.fences.get(INCR, (0, 0, ""))[2]:
            number = (at(seen.fences[INCR][2]) - BEGIN) // QUARTER
            theirs = {name: rows for name, rows in seen.tables.items() if name in (PRODUCT, STUDY) and rows}
            assert theirs == {name: rows for name, rows in truth(number).items() if rows}

    def window_of(self, name: str) -> Window:
        feed, _, stop = name.partition(" ")
        if feed == LOG:
            return log(stop)
        number = (at(stop) - BEGIN) // QUARTER
        return snapshot(number) if feed == FULL else window(number, self.quarters[stop])

    def an_epoch_is_a_chain(self, seen: Seen) -> None:  # I2
        stop, epoch, boundary = None, 0, None
        for name, its_epoch in seen.ledger:
            found = self.window_of(name)
            assert found.feed == LOG or its_epoch >= epoch
            if found.feed == FULL:
                assert its_epoch > epoch, "two snapshots in one epoch"
                stop, boundary, epoch = found.stop, found.stop, its_epoch
            elif found.feed == INCR:
                assert stop is not None, "a window without a snapshot that it could follow"
                first = stop == boundary and found.start < stop
                assert found.stop > stop, f"{name} is out of order"
                assert found.start == stop or first or self.skipped, f"{name} does not follow {stop}"
                stop = found.stop

    def the_watermark_is_in_the_ledger(self, seen: Seen, feed: str) -> None:  # I1
        kept = state(self.first).feed(feed)
        if not kept.watermark:
            return
        by = FULL if kept.watermark.endswith(BEYOND_IDS) else feed
        epochs = [epoch for name, epoch in seen.ledger if name == f"{by} {watermark(self.first, feed)}"]
        assert max(epochs, default=0) >= kept.serving_epoch, f"{feed} is at {kept.watermark}"

    def one_is_in_work(self, feed: str, items: list[Item]) -> None:  # I3
        serving = state(self.first).seen_by(self.first.manifest.step(feed, LOAD), feed).serving_epoch
        blockers = [item.blocker({LOAD: serving}) for item in items]
        working = [one for one in blockers if one and one.state is State.PROCESSING and one.application == APPLICATION]
        assert len(working) <= 1

    def a_failure_is_ended_by_an_operator_or_a_full_load(self, item: Item) -> None:  # I5
        assert not item.problems
        failed: dict[str, int | None] = {}
        for record in item.records:
            if record.state is State.FAILED:
                failed[record.record_id] = record.epoch
            elif record.state is State.RESOLVED and record.previous:
                failed.pop(record.previous, None)
            elif record.state is State.PROCESSING:
                assert record.epoch not in failed.values(), f"{item.key.name} failed and was tried again"

    def epochs_only_grow(self, seen: Seen) -> None:  # I7
        epoch = state(self.first).epoch
        assert epoch >= self.epoch
        assert all(held <= epoch for _, held, _ in seen.fences.values())
        self.epoch = epoch

    def teardown(self) -> None:
        try:
            self.it_comes_to_rest()
        finally:
            self.patch.undo()
            self.first.close()
            self.second.close()
            self.folder.cleanup()

    def it_comes_to_rest(self) -> None:
        """Checks that without a crash everything that may be loaded is loaded, and after a full load everything."""
        for _ in range(2):
            self.resolve(self.first)
            drained(self.first)
            self.check()
        stuck = (Standing.GAP, Standing.OVERLAP, Standing.NEEDS_FULL)
        verdict = self.first.manifest.next(INCR, LOAD)
        assert verdict == Idle() or (isinstance(verdict, Blocked) and verdict.standing in stuck), verdict
        assert [self.first.manifest.next(feed, LOAD) for feed in (FULL, LOG)] == [Idle(), Idle()]
        assert state(self.first).mode == Mode.INCREMENTAL

        stops = [item.key.position for item in self.first.manifest.items(INCR)]
        newest = (at(short_of(ItemKey.at(INCR, max(stops)))) - BEGIN) // QUARTER
        land(self.first, snapshot(newest))
        begun(self.first, stop_of(newest))
        drained(self.first)
        assert watermark(self.first) == stop_of(newest)
        self.skipped = set()
        self.the_tables_are_what_the_ledger_says(self.ward.seen)  # I6


def short_of(key: ItemKey) -> str:
    """Returns the stop time of a window in the form of cases."""
    return short(BEGIN.fromisoformat(key.sort))


@pytest.mark.thorough
@pytest.mark.timeout(600)  # a failure is shrunk first
def test_I1_to_I9_hold_in_any_order_of_events() -> None:
    walk(VaultMachine, examples=cases(4, 25), steps=30)
