"""Ranges: what a merge's commit makes of a partition, what it refuses, and what becomes of it all when a table is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

import pytest

from manifest_platform.manifest import Lease, LeaseLost, Refused, Store, StoreError
from manifest_platform.merging import inventory as ledger_module
from manifest_platform.merging import transitions, views
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.state import Partition, Range, RunningJob, Totals
from manifest_platform.merging.transitions import MAX_RANGES, ChainChanged, CountsDiffer, JobLost, Leftover
from manifest_platform_tests.manifest.given import LossyStore
from manifest_platform_tests.merging.given import (
    DATASET,
    DAY,
    LEASE,
    MORNING,
    NEXT_DAY,
    TABLE,
    arrive,
    assert_consistent,
    bounds,
    claim,
    claim_one,
    clock_at,
    deliver,
    dump,
    inventory,
    kill,
    make,
    merge,
    merge_all,
    partition,
    settings,
    slot,
    small,
    stale,
)

EVERY_STORE = pytest.mark.every_store
"""For operations as such, races and lost answers; the other cases are of rules, which do not differ by store."""
OTHER_DAY = date(2026, 3, 1)


def due(of: Inventory, *ids: int, size: int = 30) -> None:
    """Objects that come, and whose merge is due."""
    arrive(of, *ids, size=size)
    of.hasten(TABLE, DAY, MORNING)


def commit(of: Inventory, job: RunningJob, *ranges: Range, bytes_in: int = 30) -> None:
    of.commit(job, ranges, bytes_in=bytes_in)


@EVERY_STORE
def test_C01_a_first_merge_begins_the_chain(store: Store) -> None:
    of = inventory(store)
    due(of, 11, 12, 13)
    with slot(of) as held:
        told = merge(of, held)
    rows = list(views.prism_merge_ranges(of, TABLE, DAY))
    assert [(row["lower_bound"], row["upper_bound"]) for row in rows] == [(None, 0), (0, 13)]
    found = partition(of)
    assert (found.desired, found.job, found.running) == (13, None, None)
    assert (told.outcome, told.ranges, told.rows, told.bytes_in, told.bytes_out) == ("merged", ((0, 13),), 9, 90, 90)
    assert of.log(5) == [told]
    assert of.running() == []
    assert_consistent(of)


@EVERY_STORE
def test_C02_a_merge_that_fits_takes_the_place_of_the_last_range(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    with slot(of) as held:
        due(of, 11, 12, 13, size=20)
        merge(of, held)
        [old] = of.ranges(TABLE, DAY)
        clock.turn(timedelta(seconds=60))
        due(of, 20, 21, size=10)
        merge(of, held)
    [new] = of.ranges(TABLE, DAY)
    assert (new.lower, new.upper, new.bytes, new.objects, new.rows) == (0, 21, 80, 5, 12)
    assert (new.create_time, new.update_time) == (old.create_time, clock.now)
    assert old.create_time == old.update_time == MORNING
    assert new.uri != old.uri
    assert partition(of).generation == 2
    assert partition(of).merged == Totals(1, 12, 80)
    assert (partition(of).written, partition(of).amplification) == (60 + 80, 1.75)
    assert_consistent(of)


@EVERY_STORE
@pytest.mark.parametrize(("first", "merged"), [((), [(0, 13)]), ((1,), [(0, 12)])])
def test_C03_C04_what_does_not_fit_is_left_over(store: Store, first: tuple[int, ...], merged: list) -> None:
    of = inventory(store)
    with slot(of) as held:
        if first:
            due(of, *first, size=20)
            merge(of, held)
        due(of, 11, 12, 13, 14)
        before = claim_one(of, held)
        make(of, before).commit(of)
        assert bounds(of) == merged
        job = partition(of).job
        assert job and job.id != before.job.id
        assert_consistent(of)
        merge_all(of, held)
    assert bounds(of) == [*merged, (merged[0][1], 14)]
    assert_consistent(of)


@pytest.mark.parametrize("limit", [90, 50])
def test_C05_C06_a_full_range_stays(store: Store, limit: int) -> None:
    of = inventory(store)
    with slot(of) as held:
        due(of, 98, 99, 100)
        merge(of, held)
        [full] = of.ranges(TABLE, DAY)
        of.sync_table(settings(target_bytes=limit))
        due(of, 101, 102, size=20)
        merge(of, held)
    assert bounds(of) == [(0, 100), (100, 102)]
    assert of.ranges(TABLE, DAY)[0] == full
    assert_consistent(of)


@pytest.mark.parametrize(("count", "left"), [(2000, True), (1999, False)])
def test_C07_C08_a_full_batch_leaves_a_job(store: Store, count: int, left: bool) -> None:
    of = inventory(store)
    of.sync_table(settings(target_bytes=1 << 27))
    deliver(of, {(TABLE, DAY): tuple(small(id_) for id_ in range(1, count + 1))})
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        merge(of, held)
        assert bounds(of) == [(0, count)]
        assert bool(partition(of).job) == left
        before = partition(of)
        if left:
            assert merge(of, held).outcome == "nothing"
            after = partition(of)
            assert (after.generation, after.desired, after.job) == (before.generation, before.desired, None)
    assert_consistent(of)


def test_C09_a_job_without_objects_ends(store: Store) -> None:
    of = inventory(store)
    with slot(of) as held:
        due(of, 11)
        first = claim_one(of, held)
        due(of, 12)  # it is due with the next job, but the running job merges it
        make(of, replace(first, partition=partition(of))).commit(of)
        before = partition(of)
        told = merge(of, held)
    after = partition(of)
    assert (told.outcome, told.ranges) == ("nothing", ())
    assert (after.desired, after.upper, after.generation) == (before.desired, before.upper, before.generation) == (12, 12, 1)
    assert after.job is None and bounds(of) == [(0, 12)]
    assert_consistent(of)


def test_C10_a_leftover_is_due_when_its_job_was(store: Store) -> None:
    of = inventory(store)
    arrive(of, 11, 12, 13, 14)
    nine = MORNING.replace(hour=9)
    of.hasten(TABLE, DAY, nine)
    with slot(of) as held:
        done = claim_one(of, held)
        arrive(of, 15)  # there is a pending job, and it gets that time
        pending = partition(of).job
        make(of, done).commit(of)
    job = partition(of).job
    assert job and pending and job.id == pending.id != done.job.id
    assert job.schedule_time == nine


def test_C11_an_object_above_the_limit_is_a_range_of_its_own(store: Store) -> None:
    of = inventory(store)
    due(of, 11, size=500)
    due(of, 12, 13)
    with slot(of) as held:
        merge_all(of, held)
    assert bounds(of) == [(0, 11), (11, 13)]
    assert_consistent(of)


CHAINS = {
    "C12 a new range from a bound that was passed": ([(0, 150)], [(100, 180)]),
    "C13 an extension of what is not the last": ([(0, 150), (150, 180)], [(0, 170)]),
    "C13 an extension of what is not the last, beyond the last": ([(0, 150), (150, 180)], [(0, 190)]),
    "C14 an extension that ends before the last": ([(0, 150), (150, 180)], [(150, 175)]),
    "an extension that adds nothing": ([(0, 150), (150, 180)], [(150, 180)]),
    "two that take the place of the last": ([(0, 150), (150, 180)], [(150, 190), (150, 200)]),
    "a gap": ([(0, 150)], [(150, 180), (185, 190)]),
    "an overlap": ([(0, 150)], [(150, 180), (150, 190)]),
    "a range beyond what there is": ([(0, 150)], [(150, 201)]),
    "a first range that does not begin at 0": ([], [(100, 150)]),
}


@pytest.mark.parametrize("case", CHAINS)
def test_C12_C13_C14_a_plan_for_another_chain_is_refused(store: Store, case: str) -> None:
    chain, ranges = CHAINS[case]
    of = inventory(store)
    with slot(of) as held:
        arrive(of, 100, 150, 170, 180, 190, 200)
        job = _chain(of, held, chain)
        before = dump(of)
        with pytest.raises(ChainChanged, match="plan again"):
            commit(of, job, *(stale(job, *bound) for bound in ranges))
        assert dump(of) == before
        assert_consistent(of)


def _chain(of: Inventory, held: Lease, chain: Sequence[tuple[int, int]]) -> RunningJob:
    """Merges to these ranges, and claims the next job."""
    for lower, upper in chain:
        of.hasten(TABLE, DAY, MORNING)
        job = claim_one(of, held).job
        objects = [one for one in of.small_objects(TABLE, DAY, lower) if one.id <= upper]
        total = Totals.of(objects)
        one = stale(job, lower, upper, rows=total.rows, objects=total.objects)
        of.commit(job, [one], Leftover(MORNING), bytes_in=total.bytes)
    of.hasten(TABLE, DAY, MORNING)
    return claim_one(of, held).job


def test_C15_the_desired_version_is_never_lowered() -> None:
    chain = Partition(TABLE, DAY, MORNING, upper=150, tail=0, newest=180, live=Totals(3, 3, 90), covered=Totals(2, 2, 60))
    before = replace(chain, desired=200)
    job = RunningJob(TABLE, DAY, "1", MORNING, 0, "test", "0", 1, MORNING, 0)
    after = transitions.merged(before, None, [stale(job, 150, 180)], 30)
    assert (after.upper, after.desired) == (180, 200)


@EVERY_STORE
@pytest.mark.parametrize("fault", ["answer lost", "repeat refused", "deaf", "request lost", "vanished"])
def test_C18_a_commit_is_there_whole_or_not_at_all(store: Store, fault: str) -> None:
    due(inventory(store), 11, 12, 13, 14)
    lossy = LossyStore(store, fault, 0)
    of = inventory(lossy)
    with slot(of) as held:
        work = make(of, claim_one(of, held))
        lossy.at = lossy.transactions + 1
        try:
            told = work.commit(of)
        except StoreError:
            assert fault == "request lost"
            assert bounds(of) == []
            assert partition(of).desired == 0
            told = work.commit(of)
    assert bounds(of) == [(0, 13)]
    assert (partition(of).desired, told.outcome) == (13, "merged")
    assert of.log(9) == [told]
    assert_consistent(of)


@pytest.mark.parametrize("end", ["finish", "fail"])
@pytest.mark.parametrize("fault", ["answer lost", "repeat refused", "deaf", "vanished"])
def test_an_end_whose_answer_is_lost_is_recognised(store: Store, fault: str, end: str) -> None:
    due(inventory(store), 11)
    lossy = LossyStore(store, fault, 0)
    of = inventory(lossy)
    with slot(of) as held:
        job = claim_one(of, held).job
        lossy.at = lossy.transactions + 1
        told = of.finish(job) if end == "finish" else of.fail(job, "broken", permanent=False)
    assert of.log(9) == [told]
    job_left = partition(of).job
    assert job_left is None if end == "finish" else job_left and job_left.attempts == 1


def test_C20_live_and_delayed_objects_are_merged_to_one(store: Store) -> None:
    of = inventory(store)
    arrive(of, 11, 12)
    of.close(partition(of), NEXT_DAY)
    due(of, 13)
    with slot(of) as held:
        claimed = claim_one(of, held)
        assert [one.delayed for one in of.small_objects(TABLE, DAY)] == [False, False, True]
        make(of, claimed).commit(of)
    assert bounds(of) == [(0, 13)]
    assert partition(of).covered == Totals(3, 9, 90)
    assert_consistent(of)


@pytest.mark.parametrize("facts", [{"rows": 8}, {"rows": 10}, {"objects": 2}, {"objects": 4}])
def test_merged_objects_that_hold_something_else_are_refused(store: Store, facts: dict) -> None:
    of = inventory(store)
    due(of, 11, 12, 13)  # 9 rows
    with slot(of) as held:
        work = make(of, claim_one(of, held))
        before = dump(of)
        wrong = replace(work, ranges=(replace(work.ranges[0], **facts),))
        with pytest.raises(CountsDiffer, match="compare the rows"):
            wrong.commit(of)
        assert dump(of) == before


def test_a_part_that_would_hold_more_than_all_is_refused(store: Store) -> None:
    of = inventory(store)
    due(of, 11, 12, 13, 14)
    with slot(of) as held:
        job = claim_one(of, held).job
        for facts in ({"objects": 4}, {"objects": 3, "rows": 15}):
            with pytest.raises(CountsDiffer):
                commit(of, job, stale(job, 0, 13, **facts))
        with pytest.raises(CountsDiffer):
            commit(of, job, stale(job, 0, 13), bytes_in=121)


@EVERY_STORE
def test_a_commit_of_many_ranges_is_one_transaction(store: Store) -> None:
    of = inventory(store)
    ids = range(1, MAX_RANGES + 2)
    due(of, *ids)
    lossy = LossyStore(store, "", 0)
    of = inventory(lossy)
    with slot(of) as held:
        job = claim_one(of, held).job
        ranges = [stale(job, id_ - 1, id_, rows=1 + id_ % 10) for id_ in ids]
        with pytest.raises(ValueError, match=f"not {MAX_RANGES + 1}"):
            of.commit(job, ranges, bytes_in=1)
        with pytest.raises(ValueError, match="not 0"):
            of.commit(job, [], bytes_in=1)
        before = lossy.transactions
        of.commit(job, ranges[:-1], Leftover(MORNING), bytes_in=30 * MAX_RANGES)
        assert lossy.transactions == before + 2  # and what was learnt
    assert_consistent(of)


def test_a_table_learns_its_ratio(store: Store) -> None:
    of = inventory(store)
    before = of.table(TABLE)
    with slot(of) as held:
        due(of, 11, 12)
        make(of, claim_one(of, held), ratio=0.5).commit(of)
        first = of.table(TABLE)
        due(of, 13)  # an extension: what was merged before does not count again
        make(of, claim_one(of, held), ratio=0.5).commit(of)
    after = of.table(TABLE)
    assert before and first and after
    assert (before.ratio, first.ratio, after.ratio) == (0.77, 0.716, 0.6728)


# Rebuild


def anew(ranges: Sequence[Range], **facts: int) -> list[Range]:
    return [replace(one, uri=f"file:///anew/{one.upper}", bytes=one.bytes + 5, attempt="anew", **facts) for one in ranges]


def chain_of_two(of: Inventory, held: Lease) -> None:
    due(of, 11, 12, 13, 14)
    merge_all(of, held)
    assert bounds(of) == [(0, 13), (13, 14)]


@EVERY_STORE
def test_E14_a_rebuild_keeps_bounds_rows_and_version(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    with slot(of) as held:
        chain_of_two(of, held)
        before = partition(of)
        clock.turn(timedelta(seconds=60))
        new = anew(of.ranges(TABLE, DAY))
        after = of.rebuild(before, new)
    assert after == partition(of)
    assert (after.generation, after.desired, after.upper) == (before.generation + 1, before.desired, before.upper)
    assert after.merged == before.merged + Totals(0, 0, 10)
    assert {one.attempt for one in of.ranges(TABLE, DAY)} == {"anew"}
    assert [(one.create_time, one.update_time) for one in of.ranges(TABLE, DAY)] == [(MORNING, clock.now)] * 2
    assert_consistent(of)
    assert of.rebuild(before, new) == after  # once more: it is there


def test_a_rebuild_of_what_changed_or_differs_is_refused(store: Store) -> None:
    of = inventory(store)
    with slot(of) as held:
        chain_of_two(of, held)
        read, ranges = partition(of), of.ranges(TABLE, DAY)
        with pytest.raises(CountsDiffer):
            of.rebuild(read, anew(ranges, rows=1))
        with pytest.raises(CountsDiffer):
            of.rebuild(read, anew(ranges, objects=7))
        with pytest.raises(ChainChanged, match="has no range"):
            of.rebuild(read, [replace(one, upper=one.upper + 1) for one in anew(ranges)])
        with pytest.raises(ValueError, match="not 0"):
            of.rebuild(read, [])
        due(of, 15)
        merge(of, held)
        with pytest.raises(ChainChanged, match="changed since they were read"):
            of.rebuild(read, anew(ranges))
    assert_consistent(of)


def test_a_merge_of_what_is_rebuilt_meanwhile_is_refused(store: Store) -> None:
    """The merge may extend an object that the rebuild has replaced."""
    of = inventory(store)
    with slot(of) as held:
        chain_of_two(of, held)
        due(of, 15)
        work = make(of, claim_one(of, held))
        of.rebuild(partition(of), anew(of.ranges(TABLE, DAY)))
        with pytest.raises(ChainChanged, match="rewritten after the claim"):
            work.commit(of)
        assert_consistent(of)
        of.fail(work.job, "planned for another state", permanent=False)
        of.hasten(TABLE, DAY, MORNING)
        assert merge(of, held).ranges == ((13, 15),)
    assert_consistent(of)


@EVERY_STORE
@pytest.mark.parametrize("fault", ["answer lost", "repeat refused", "deaf"])
def test_a_rebuild_whose_answer_is_lost_is_recognised(store: Store, fault: str) -> None:
    of = inventory(store)
    with slot(of) as held:
        chain_of_two(of, held)
    lossy = LossyStore(store, fault, 1)
    after = inventory(lossy).rebuild(partition(of), anew(of.ranges(TABLE, DAY)))
    assert after.generation == 3 == partition(of).generation
    assert_consistent(of)


@EVERY_STORE
def test_a_rebuild_under_a_lease_is_refused_without_it(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    with slot(of) as held:
        chain_of_two(of, held)
    first = slot(of)
    assert of.rebuild(partition(of), anew(of.ranges(TABLE, DAY)), first).generation == 3
    lossy = inventory(LossyStore(store, "repeat refused", 1), clock)
    # A refused repeat of a write is recognized after a rebuild with a lease too.
    assert lossy.close(partition(of), NEXT_DAY).closed
    kill(first)
    clock.turn(LEASE)
    late = [replace(one, uri="file:///late") for one in of.ranges(TABLE, DAY)]
    with slot(of), pytest.raises(LeaseLost):
        of.rebuild(partition(of), late, first)
    assert partition(of).generation == 3
    assert_consistent(of)


# Drop


def dropped_rows(of: Inventory) -> set[str]:
    """The kinds of rows that are left."""
    return {row.sort.partition("#")[0] for row in of.store.query(DATASET, "M")}


@EVERY_STORE
def test_E17_a_job_of_a_dropped_table_ends_and_makes_nothing_anew(store: Store) -> None:
    of = inventory(store)
    of.sync_table(settings("kept"))
    arrive(of, 1, table="kept")
    with slot(of) as held:
        chain_of_two(of, held)
        due(of, 15)
        arrive(of, 21, day=OTHER_DAY)
        work = make(of, claim_one(of, held))
        of.drop(TABLE)
        kept = dump(of)
        with pytest.raises(JobLost, match="the table was dropped"):
            work.commit(of)
        with pytest.raises(JobLost):
            of.fail(work.job, "broken", permanent=False)
        assert dump(of) == kept
    assert [sort for sort in kept if f"#{TABLE}" in sort] == [f"MTABLE#{TABLE}"]
    assert {one.table for one in of.partitions()} == {"kept"}
    assert of.table(TABLE) is None
    assert [one.name for one in of.tables()] == ["kept"]
    assert len(of.log(9)) == 2  # what was done stays told
    assert_consistent(of)
    with pytest.raises(Refused, match="no table 'none'"):
        of.drop("none")


@pytest.fixture
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_WRITES", 12)


def large(of: Inventory) -> None:
    """A table whose rows take several small transactions."""
    deliver(of, {(TABLE, DAY - timedelta(days=back)): (small(1 + back),) for back in range(4)})
    for id_ in range(101, 113):
        due(of, id_)
    with slot(of) as held:
        while claimed := claim(of, held):
            job = claimed[0].job
            objects = of.small_objects(TABLE, job.date)[:MAX_RANGES]
            bounds_ = pairwise([0, *(one.id for one in objects)])
            ranges = [stale(job, *bound, rows=one.rows) for bound, one in zip(bounds_, objects, strict=True)]
            of.commit(job, ranges, bytes_in=sum(one.bytes for one in objects))


@pytest.mark.usefixtures("small_transactions")
@pytest.mark.parametrize("at", [1, 2, 4, 6, 7, 8])
def test_a_drop_that_is_cut_off_is_completed(store: Store, at: int) -> None:
    of = inventory(store)
    large(of)
    lossy = LossyStore(store, "request lost", at)
    with pytest.raises(StoreError):
        inventory(lossy).drop(TABLE)
    inventory(lossy).drop(TABLE) if at > 1 else of.drop(TABLE)
    assert dropped_rows(of) == {"MTABLE", "MCURSOR", "MLOG"}


@EVERY_STORE
@pytest.mark.usefixtures("small_transactions")
def test_a_dropped_table_begins_anew(store: Store) -> None:
    of = inventory(store)
    large(of)
    lossy = LossyStore(store, "request lost", 6)
    with pytest.raises(StoreError):
        inventory(lossy).drop(TABLE)
    table = of.sync_table(settings())  # ends what was begun first
    assert (table.columns, table.enabled, table.dropped) == ((), True, False)
    assert dropped_rows(of) == {"MTABLE", "MCURSOR", "MLOG"}
    with slot(of) as held:
        due(of, 1001)
        merge(of, held)
    assert bounds(of) == [(0, 1001)]
    assert_consistent(of)


@pytest.mark.parametrize("seen", [True, False])
def test_a_drop_that_goes_on_late_takes_nothing_of_the_table_that_began_anew(
    store: Store, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`seen`: the new partition is among those that it finds; else it is past them, and finds the rows."""
    of = inventory(store)
    due(of, 1)
    of.drop(TABLE)
    dropped = of._table(TABLE)
    assert dropped and dropped.dropped
    of.sync_table(settings())
    with slot(of) as held:
        due(of, 2)
        merge(of, held)
    before = dump(of)
    if not seen:
        monkeypatch.setattr(of, "partitions", lambda _: [])
    with pytest.raises(StoreError):
        of._remove_rows(dropped)
    assert dump(of) == before


@EVERY_STORE
@pytest.mark.parametrize("what", ["close", "rebuild"])
def test_what_was_read_before_a_drop_changes_nothing_of_a_table_that_began_anew(
    store: Store, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new partition's row has the very version that the old one had."""
    of = inventory(store)

    def begin() -> Partition:
        with slot(of) as held:
            due(of, of.cursor() + 1)
            merge(of, held)
        return partition(of)

    read, ranges, transact = begin(), of.ranges(TABLE, DAY), of.store.transact

    def late(*arguments: Any) -> None:
        monkeypatch.undo()
        of.drop(TABLE)
        of.sync_table(settings())
        assert begin().version == read.version
        transact(*arguments)

    monkeypatch.setattr(of.store, "transact", late)
    if what == "close":
        assert of.close(read, NEXT_DAY).last_live == 2
    else:
        with pytest.raises(ChainChanged):
            of.rebuild(read, anew(ranges))
    assert (partition(of).newest, bounds(of)) == (2, [(0, 2)])
    assert_consistent(of)
