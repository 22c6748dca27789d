"""The queue: a due job goes to one worker, comes back when the worker dies, and stops nobody when it cannot be done."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import count
from threading import Barrier

import pytest

from manifest_platform.manifest import Application, LeaseLost, LeaseState, Manifest, Refused, Store, StoreError
from manifest_platform.manifest.store import ABSENT, Put, Row
from manifest_platform.merging.inventory import Inventory
from manifest_platform.merging.plan import DEFAULT, STRICT, Profile
from manifest_platform.merging.registration import STRICT_RULES, Rules
from manifest_platform.merging.state import FinishedJob, Outcome, Partition, from_row, log_key, to_data
from manifest_platform.merging.transitions import JobLost
from manifest_platform_tests.manifest.given import LossyStore
from manifest_platform_tests.merging.given import (
    DATASET,
    DAY,
    LEASE,
    MORNING,
    TABLE,
    arrive,
    assert_consistent,
    bounds,
    claim,
    claim_one,
    clock_at,
    dump,
    inventory,
    kill,
    make,
    merge,
    merge_all,
    partition,
    settings,
    slot,
    try_commit,
)

EVERY_STORE = pytest.mark.every_store
"""For operations as such, races and lost answers; the other cases are of rules, which do not differ by store."""
OTHER_DAY = date(2026, 3, 1)
SECOND = timedelta(seconds=1)


def at(hour: int, minute: int = 0) -> datetime:
    return MORNING.replace(hour=hour, minute=minute)


def scheduled(of: Partition) -> datetime:
    assert of.job
    return of.job.schedule_time


def test_B01_what_is_not_due_is_not_claimed(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, 1)
    clock.now = scheduled(partition(of)) - SECOND
    with slot(of) as held:
        assert claim(of, held) == []
        clock.turn(SECOND)
        assert claim_one(of, held).job.schedule_time == clock.now


@EVERY_STORE
def test_B02_the_job_that_was_scheduled_earliest_comes_first(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, 1)
    of.hasten(TABLE, DAY, at(10))
    arrive(of, 2, day=OTHER_DAY)
    of.hasten(TABLE, OTHER_DAY, at(9))
    clock.now = at(11)
    with slot(of) as held:
        pending = partition(of, OTHER_DAY).job
        claimed = claim_one(of, held)
        job = claimed.job
        assert pending and (job.id, job.date, job.schedule_time) == (pending.id, OTHER_DAY, at(9))
        assert (job.started, job.slot, job.token, job.owner) == (at(11), "0", held.token, "test")
        assert (claimed.partition.running, claimed.partition.job) == (job.id, None)
        assert claimed.partition == partition(of, OTHER_DAY)
        assert of.running() == [job]
    assert_consistent(of)


@EVERY_STORE
def test_B03_of_two_that_claim_at_once_one_gets_the_job(store: Store, reopen: Callable[[], Store]) -> None:
    workers = [inventory(store), inventory(reopen())]
    of = workers[0]
    days = [DAY - timedelta(days=back) for back in range(6)]
    for id_, day in enumerate(days, start=1):
        arrive(of, id_, day=day)
        of.hasten(TABLE, day, MORNING)
    together = Barrier(2)

    def work(worker: int) -> list[str]:
        with slot(workers[worker], str(worker)) as held:
            together.wait()
            claimed = claim(workers[worker], held, limit=len(days))
            kill(held)
            return [one.job.id for one in claimed]

    with ThreadPoolExecutor(2) as pool:
        first, second = (done.result() for done in [pool.submit(work, worker) for worker in range(2)])
    assert len(first) + len(second) == len({*first, *second}) == len(days)
    assert {one.id for one in of.running()} == {*first, *second}
    assert_consistent(of)


@EVERY_STORE
def test_B04_a_job_is_dead_only_after_its_lease_has_run_out(store: Store) -> None:
    of = inventory(store)
    arrive(of, 1)
    of.hasten(TABLE, DAY, at(9))
    held = slot(of, duration=timedelta(seconds=600))
    job = claim_one(of, held).job
    kill(held)
    assert of.requeue(MORNING + timedelta(seconds=600)) == []
    [died] = of.requeue(MORNING + timedelta(seconds=601))
    assert (died.id, died.outcome, died.owner) == (job.id, "died", "test")
    pending = partition(of).job
    assert pending and (pending.schedule_time, pending.attempts) == (at(9), 1)
    assert pending.id != job.id
    assert of.running() == []
    assert of.log(1) == [died]
    assert_consistent(of)


def test_B05_a_dead_job_and_a_pending_one_are_one(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, 1)
    of.hasten(TABLE, DAY, at(9))
    held = slot(of)
    dead = claim_one(of, held).job
    kill(held)
    arrive(of, 2)
    pending = partition(of).job
    assert pending and pending.schedule_time == at(22)
    clock.now = at(12)
    of.requeue(clock.now)
    job = partition(of).job
    assert job and (job.id, job.schedule_time) == (pending.id, at(9))
    assert job.id != dead.id
    assert_consistent(of)


def test_B06_a_merge_by_a_second_worker_ends_like_an_undisturbed_one(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, *range(1, 8), day=OTHER_DAY)
    arrive(of, *range(11, 18))
    of.hasten(TABLE, OTHER_DAY, MORNING)
    with slot(of, "1") as held:
        merge_all(of, held)
    of.hasten(TABLE, DAY, MORNING)
    first = slot(of)
    make(of, claim_one(of, first))
    kill(first)
    clock.turn(LEASE + SECOND)
    of.requeue(clock.now)
    with slot(of, "1") as held:
        merge_all(of, held)
    undisturbed, disturbed = partition(of, OTHER_DAY), partition(of)
    assert bounds(of) == [(lower and lower + 10, upper + 10) for lower, upper in bounds(of, OTHER_DAY)]
    assert disturbed.desired == undisturbed.desired + 10
    assert disturbed.merged == undisturbed.merged
    assert_consistent(of)


def test_B07_a_job_whose_worker_lives_is_not_taken(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, 1)
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        work = make(of, claim_one(of, held))
        for _ in range(3):
            clock.turn(LEASE - SECOND)
            held.heartbeat()
            assert of.requeue(clock.now) == []
            with slot(of, "1") as other:
                assert claim(of, other) == []
        assert work.commit(of).outcome == "merged"


@EVERY_STORE
@pytest.mark.parametrize("again", [False, True])
def test_B08_who_lost_a_job_changes_nothing(store: Store, again: bool) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, 1, 2)
    of.hasten(TABLE, DAY, MORNING)
    first = slot(of)
    work = make(of, claim_one(of, first))
    kill(first)
    clock.turn(LEASE + SECOND)
    of.requeue(clock.now)
    with slot(of) as second:
        if again:
            assert merge(of, second).outcome == "merged"
        else:
            claim_one(of, second)  # the same partition, the same slot
        before = dump(of)
        for end in (
            lambda: work.commit(of),
            lambda: of.finish(work.job),
            lambda: of.fail(work.job, "broken", permanent=True),
        ):
            with pytest.raises(JobLost, match="test no longer owns job"):
                end()
        assert dump(of) == before


def test_a_job_of_a_lease_that_another_took_is_dead_whatever_the_clock_says(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, 1)
    of.hasten(TABLE, DAY, MORNING)
    first = slot(of)
    claim_one(of, first)
    kill(first)
    clock.turn(LEASE)
    with slot(of) as second:
        assert second.token == first.token + 1
        assert len(of.requeue(MORNING)) == 1


def test_a_job_of_a_lease_that_was_given_back_is_dead(store: Store) -> None:
    of = inventory(store)
    arrive(of, 1)
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        claim_one(of, held)
    assert len(of.requeue(MORNING + SECOND)) == 1


@EVERY_STORE
def test_a_heartbeat_that_comes_first_saves_the_job(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker was silent for too long, and is heard of again between the look at its lease and the taking back."""
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, 1)
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        claim_one(of, held)
        clock.turn(LEASE + SECOND)
        look = of.lease
        looks = count(1)

        def looked(name: str) -> LeaseState | None:
            found = look(name)
            if next(looks) == 2:
                held.heartbeat()
            return found

        monkeypatch.setattr(of, "lease", looked)
        assert of.requeue(clock.now) == []
        assert len(of.running()) == 1


def test_B09_what_fails_again_and_again_is_set_aside(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING), max_attempts=3)
    arrive(of, 1)
    arrive(of, 2, day=OTHER_DAY)
    of.hasten(TABLE, DAY, MORNING)
    pauses = []
    with slot(of) as held:
        for _ in range(3):
            claimed = claim_one(of, held)
            of.fail(claimed.job, "cannot be read", permanent=False)
            pauses.append(scheduled(partition(of)) - clock.now)
            clock.now = scheduled(partition(of))
            held.heartbeat()
        aside = partition(of).set_aside
        assert aside and (aside.error, aside.attempts) == ("cannot be read", 3)
        assert pauses == [timedelta(minutes=minutes) for minutes in (1, 2, 4)]
        assert [(one.outcome, one.attempts) for one in of.log(9)] == [("failed", 2), ("failed", 1), ("failed", 0)]
        of.hasten(TABLE, OTHER_DAY, clock.now)
        arrive(of, 3)
        assert merge(of, held).date == OTHER_DAY
        assert claim(of, held) == []  # nor when another object comes
        assert_consistent(of)
        of.retry(TABLE, DAY)
        assert merge(of, held).ranges == ((0, 3),)
    assert_consistent(of)
    with pytest.raises(Refused, match="nothing to retry"):
        of.retry(TABLE, DAY)


def test_B09_what_dies_again_and_again_is_set_aside(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING), max_attempts=2)
    arrive(of, 1)
    of.hasten(TABLE, DAY, MORNING)
    for _ in range(2):
        held = slot(of)
        claim_one(of, held)
        kill(held)
        clock.turn(LEASE + SECOND)
        of.requeue(clock.now)
    aside = partition(of).set_aside
    assert aside and aside.attempts == 2 and "did not finish" in aside.error
    assert list(of.due(clock.now)) == []


def test_B09_a_permanent_failure_is_set_aside_at_once(store: Store) -> None:
    of = inventory(store)
    arrive(of, 1)
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        of.fail(claim_one(of, held).job, "a type that does not fit", permanent=True)
    aside = partition(of).set_aside
    assert aside and (aside.error, aside.attempts, aside.at) == ("a type that does not fit", 1, MORNING)
    assert_consistent(of)


def test_B10_by_the_strict_profile_a_leftover_comes_before_what_was_scheduled_later(store: Store) -> None:
    assert _order(store, STRICT) == [DAY, DAY, DAY, OTHER_DAY]


def test_B10_by_the_default_profile_nobody_waits_for_a_leftover(store: Store) -> None:
    assert _order(store, DEFAULT) == [DAY, OTHER_DAY, DAY, DAY]


def _order(store: Store, profile: Profile) -> list[date]:
    """The order in which a partition with three jobs' worth of objects, scheduled first, and a small one are merged."""
    profile = replace(profile, max_objects=3)
    of = inventory(store, clock := clock_at(MORNING))
    of.sync_table(settings(target_bytes=90))
    arrive(of, *range(1, 9))
    arrive(of, 11, day=OTHER_DAY)
    of.hasten(TABLE, DAY, at(9))
    of.hasten(TABLE, OTHER_DAY, at(9, 30))
    for day in (DAY, OTHER_DAY):
        of.close(partition(of, day), MORNING + timedelta(days=2), hasten=False)
    order = []
    with slot(of) as held:
        while claimed := claim(of, held):
            order.append(claimed[0].job.date)
            make(of, claimed[0], profile).commit(of)
            clock.turn(SECOND)
    assert_consistent(of)
    return order


def test_only_the_partitions_that_are_asked_for_are_claimed(store: Store) -> None:
    of = inventory(store)
    of.sync_table(settings("other"))
    arrive(of, 1)
    arrive(of, 2, table="other")
    for table in (TABLE, "other"):
        of.hasten(table, DAY, MORNING)
    with slot(of) as held:
        assert [one.job.table for one in of.claim(held, MORNING, 9, places={("other", DAY)})] == ["other"]
        assert [one.job.table for one in of.claim(held, MORNING, 9)] == [TABLE]


def test_more_than_a_page_of_due_jobs_is_found_in_order(store: Store) -> None:
    of = inventory(store)
    days = [DAY - timedelta(days=back) for back in range(60)]
    for id_, day in enumerate(days, start=1):
        arrive(of, id_, day=day)
        of.hasten(TABLE, day, MORNING - timedelta(seconds=id_))
    assert [one.date for one in of.due(MORNING)] == days[::-1]


@EVERY_STORE
@pytest.mark.parametrize("fault", ["answer lost", "repeat refused", "deaf", "request lost", "vanished"])
def test_a_claim_whose_answer_is_lost_is_recognised(store: Store, fault: str) -> None:
    arrive(of := inventory(store), 1)
    of.hasten(TABLE, DAY, MORNING)
    lossy = LossyStore(store, fault, 0)
    of = inventory(lossy)
    with slot(of) as held:
        lossy.at = lossy.transactions + 1
        try:
            claimed = claim(of, held)
        except StoreError:
            assert fault == "request lost"
            claimed = claim(of, held)
        assert [one.job for one in claimed] == of.running()
        held.heartbeat()
    assert len(of.requeue(MORNING + SECOND)) == 1
    assert_consistent(of)


@EVERY_STORE
def test_a_lease_that_is_lost_claims_nothing(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING))
    arrive(of, 1)
    of.hasten(TABLE, DAY, MORNING)
    first = slot(of)
    kill(first)
    clock.turn(LEASE)
    with slot(of), pytest.raises(LeaseLost):
        claim(of, first)
    assert of.running() == []


def test_a_lease_of_anything_else_claims_nothing(store: Store) -> None:
    of = inventory(store)
    arrive(of, 1)
    of.hasten(TABLE, DAY, MORNING)
    for dataset, application in ((DATASET, "load"), ("elsewhere", "merge")):
        manifest = Manifest(store, dataset, {}, "test", clock=of.clock)
        with (
            manifest.hold(Application(application), "0", "test", LEASE) as held,
            pytest.raises(Refused, match="acquire a lease for merge"),
        ):
            claim(of, held)
    assert of.running() == []


def test_a_job_that_found_nothing_leaves_the_one_that_came_meanwhile(store: Store) -> None:
    of = inventory(store)
    arrive(of, 1)
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        job = claim_one(of, held).job
        arrive(of, 2)
        pending = partition(of).job
        of.finish(job)
    assert partition(of).job == pending
    assert_consistent(of)


def test_hastening_what_is_due_already_keeps_its_place(store: Store) -> None:
    of = inventory(store)
    arrive(of, 1)
    of.hasten(TABLE, DAY, at(9))
    assert scheduled(of.hasten(TABLE, DAY, at(10))) == at(9)


def test_hastening_what_is_merged_writes_nothing(store: Store) -> None:
    of = inventory(store)
    arrive(of, 1)
    of.hasten(TABLE, DAY, MORNING)
    with slot(of) as held:
        merge(of, held)
    before = partition(of)
    assert of.hasten(TABLE, DAY, MORNING) == before == partition(of)
    with pytest.raises(Refused, match="no such partition"):
        of.hasten(TABLE, OTHER_DAY, MORNING)


def test_rules_of_the_strict_profile_keep_the_interval(store: Store) -> None:
    of = inventory(store)
    arrive(of, 1, size=10_000, rules=STRICT_RULES)
    assert scheduled(partition(of)) == at(22)
    arrive(of, 2, size=10_000, rules=Rules(), day=OTHER_DAY)
    assert scheduled(partition(of, OTHER_DAY)) == MORNING
    assert not try_commit_twice(of)


def try_commit_twice(of: Inventory) -> bool:
    """True if a second commit of the same job is accepted."""
    with slot(of) as held:
        work = make(of, claim_one(of, held))
        assert try_commit(of, work)
        return try_commit(of, work)


def test_a_job_and_its_end_name_the_run_unless_a_release_before_wrote_them(store: Store) -> None:
    of = inventory(store, clock := clock_at(MORNING), run_id="nightly")
    arrive(of, 1)
    clock.now = scheduled(partition(of))
    with slot(of) as held:
        claimed = claim_one(of, held)
        assert of.give_back(claimed.job)
    [told] = of.log(9)
    assert (claimed.job.run_id, told.run_id) == ("nightly", "nightly")
    older = {name: value for name, value in to_data(told).items() if name != "run_id"}
    assert from_row(FinishedJob, Row(DATASET, "", 1, older)).run_id is None


@pytest.mark.parametrize("stored", ["merged", "nothing", "given back", "failed", "died"])
def test_every_outcome_that_a_log_holds_stays_readable(store: Store, stored: str) -> None:
    of = inventory(store)
    job = FinishedJob("1", TABLE, DAY, MORNING, MORNING, MORNING, "test", 0, Outcome.MERGED)
    of.store.transact(
        of.dataset, [Put(log_key(job), {**to_data(job), "outcome": stored}, ABSENT)], "written by an older release"
    )
    [told] = of.log(9)
    assert (told.outcome, told.outcome.is_failure) == (stored, stored in ("failed", "died"))
    assert to_data(told)["outcome"] == stored
