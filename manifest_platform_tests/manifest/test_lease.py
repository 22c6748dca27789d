from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest

from manifest_platform.manifest import (
    Abandoned,
    Application,
    ClaimLost,
    ConditionFailed,
    Failure,
    FailureKind,
    Lease,
    LeaseBusy,
    LeaseLost,
    Manifest,
    OutcomeUnknown,
    Ready,
    Refused,
    Standing,
    Store,
    StoreUnavailable,
)
from manifest_platform.manifest.reading import DISCOVERY
from manifest_platform.manifest.records import Stamp
from manifest_platform.manifest.store import Put, Write
from manifest_platform.manifest.transitions import sweep
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    HOUR,
    LOAD,
    SHRED,
    Clock,
    LossyStore,
    assert_kept,
    claim_next,
    discover,
    history,
    is_blocked,
    key,
    kill,
    land,
    lease,
    load_next,
    manifest,
    number_of,
    ready,
    steps,
)


class World:
    """Two workers of one dataset, each with its own manifest and clock."""

    def __init__(self, store: Store, **options):
        self.clock, self.rival_clock = Clock(), Clock()
        self.of: Manifest = manifest(store, clock=self.clock, author="first", **options)
        self.rival: Manifest = manifest(store, clock=self.rival_clock, author="second", **options)

    def turn(self, by: timedelta) -> None:
        self.clock.turn(by)
        self.rival_clock.turn(by)


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def test_the_second_worker_learns_who_holds_the_lease(world: World) -> None:
    with lease(world.of, holder="host-1"):
        with pytest.raises(LeaseBusy, match="load on feed enriched is held by host-1 until 2026-01-01 01:00:00 UTC") as error:
            lease(world.rival)
        assert error.value.lease.holder == "host-1"
        lease(world.rival, SHRED).release()  # the lease of another step is independent


def test_an_expired_lease_is_taken_over_under_a_greater_token(world: World) -> None:
    dead = lease(world.of)
    kill(dead)
    world.turn(HOUR - timedelta(seconds=1))
    with pytest.raises(LeaseBusy):
        lease(world.rival)
    world.turn(timedelta(seconds=1))
    with lease(world.rival) as held:
        assert held.token == dead.token + 1
        with pytest.raises(LeaseLost):
            dead.heartbeat()
        assert dead.lost.is_set()
        with pytest.raises(LeaseLost):
            dead.check()
        held.heartbeat()


def test_a_lease_that_is_given_back_is_free_immediately_and_useless_to_its_former_holder(world: World) -> None:
    land(world.of, 1)
    with lease(world.of) as given:
        verdict = ready(world.of)
    with pytest.raises(LeaseLost):
        world.of.claim(given, [verdict.item], verdict.state)
    with lease(world.rival) as held:
        assert held.token == given.token + 1
    given.release()  # a second release does no harm


@pytest.mark.parametrize("happened", [True, False])
def test_a_lease_is_given_back_although_a_signal_interrupts_that(store: Store, world: World, happened: bool) -> None:
    signaled: list[str] = []

    def transact(partition: str, writes: Sequence[Write], token: str) -> None:
        if happened or signaled:
            store.transact(partition, writes, token)
        if not signaled:
            signaled.append(token)
            raise KeyboardInterrupt

    given = lease(world.of)
    setattr(given, "_store", SimpleNamespace(transact=transact, get=store.get))  # noqa: B010 - the lease's alone
    with pytest.raises(KeyboardInterrupt):
        given.release()
    with lease(world.rival) as held:
        assert held.token == given.token + 1


def test_tokens_only_grow(world: World) -> None:
    tokens = []
    for _ in range(4):
        with lease(world.of) as held:
            tokens.append(held.token)
    assert tokens == [1, 2, 3, 4]


def test_a_heartbeat_extends_the_lease(world: World) -> None:
    with lease(world.of) as held:
        for _ in range(3):
            world.turn(HOUR - timedelta(seconds=1))
            held.heartbeat()
        with pytest.raises(LeaseBusy):
            lease(world.rival)


def test_a_lease_keeps_itself_alive(world: World) -> None:
    def extended_until(moment: datetime) -> bool:
        stored = world.rival.lease(held.application, FEED)
        return stored is not None and stored.expires_at == moment

    with world.of.acquire(FEED, "load", "worker", timedelta(seconds=0.3)) as held:
        for _ in range(3):  # more than the lease's duration, in steps that each need a heartbeat
            world.turn(timedelta(seconds=0.2))
            _until(lambda: extended_until(world.clock() + timedelta(seconds=0.3)))
            with pytest.raises(LeaseBusy):
                lease(world.rival)
        assert not held.lost.is_set()


def test_the_heartbeat_of_a_lost_lease_reports_the_loss_and_ends(world: World) -> None:
    held = world.of.acquire(FEED, "load", "worker", timedelta(seconds=0.3))
    taken = _take_over(world)
    assert held.lost.wait(20)
    with pytest.raises(LeaseLost):
        held.check()
    taken.release()
    held.release()


def _until(condition: Callable[[], bool]) -> None:
    """Waits for the heartbeat's thread, as long as a busy machine may keep it waiting."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "the heartbeat did not come"
        time.sleep(0.01)


def _take_over(world: World) -> Lease:
    """Takes the lease of a worker that lives, whose heartbeat may extend it just after the clock turned."""
    for _ in range(100):
        world.turn(HOUR)
        with suppress(LeaseBusy):
            return lease(world.rival)
    raise AssertionError("the lease was extended after each turn of the clock")


def test_a_worker_cut_off_from_the_store_loses_its_lease_when_it_expires(store: Store) -> None:
    class CutOff(LossyStore):
        refused = 0
        cut = False

        def transact(self, partition, writes, token):
            if self.cut:
                self.refused += 1
                raise StoreUnavailable("no connection")
            return super().transact(partition, writes, token)

    lossy, clock = CutOff(store, "none", at=0), Clock()
    of = manifest(lossy, clock=clock)
    held = of.acquire(FEED, "load", "worker", timedelta(seconds=0.3))
    lossy.cut = True
    _until(lambda: lossy.refused > 1)
    assert not held.lost.is_set()
    clock.turn(timedelta(seconds=0.3))
    assert held.lost.wait(20)
    held.release()


def test_claims_under_an_old_lease_lose_and_write_nothing(store: Store, world: World) -> None:
    land(world.of, 1)
    dead = lease(world.of)
    kill(dead)
    verdict = ready(world.of)
    world.turn(HOUR)
    with lease(world.rival):
        before = store.query("shop", "")
        with pytest.raises(LeaseLost):
            world.of.claim(dead, [verdict.item], verdict.state)
        assert store.query("shop", "") == before


def test_a_claim_is_refused_after_a_concurrent_skip(world: World) -> None:
    land(world.of, 1)
    with lease(world.of) as held:
        verdict = ready(world.of)
        world.rival.skip(key(1), "not wanted")
        with pytest.raises(ConditionFailed):
            world.of.claim(held, [verdict.item], verdict.state)
    assert history(world.of, 1)[-1] == "* Skipped"


def test_a_claim_is_conditional_on_the_state_that_chose_the_item(store: Store, world: World) -> None:
    land(world.of, 2, 3)
    with lease(world.of) as held:
        verdict = ready(world.of)
        world.rival.skip(key(3), "not wanted")  # changes a counter of the state, not the item
        before = store.query("shop", "")
        with pytest.raises(ConditionFailed):
            world.of.claim(held, [verdict.item], verdict.state)
        with pytest.raises(ConditionFailed):
            world.of.claim(held, [verdict.item])
        assert store.query("shop", "") == before
        claim_next(world.of, held)


def test_an_unordered_claim_is_all_or_none(store: Store, world: World) -> None:
    discover(world.of, 1, 2)
    items, _ = world.of.waiting(FEED, "shred", 2)
    with lease(world.of, SHRED) as held:
        world.rival.skip(key(2), "not wanted")
        with pytest.raises(ConditionFailed):
            world.of.claim(held, items)
        assert history(world.of, 1) == ["discover New"]


# Takeover


def die_with_a_claim(world: World, number: int = 1):
    """The first worker claims an item and dies; its lease has expired."""
    dead = lease(world.of)
    claim = claim_next(world.of, dead)
    assert number_of(claim.item.key) == number
    kill(dead)
    world.turn(HOUR)
    return claim


def test_a_new_holder_settles_the_former_holders_item_before_it_claims(world: World) -> None:
    land(world.of, 2)
    claim = die_with_a_claim(world, 2)
    land(world.rival, 1)
    with lease(world.rival) as held:
        abandoned = world.rival.unsettled(held)
        assert abandoned == Abandoned(claim.item, claim.processing)
        verdict = world.rival.next(FEED, "load", holding=True)
        assert isinstance(verdict, Ready) and number_of(verdict.item.key) == 1
        with pytest.raises(Refused, match="run=002 is unsettled"):
            world.rival.claim(held, [verdict.item], verdict.state)
        assert abandoned
        world.rival.adopt(held, abandoned, 1, DONE)
        assert world.rival.unsettled(held) is None
        assert world.rival.next(FEED, "load").__class__.__name__ == "Idle"  # the watermark passed item 1, which is set aside
    assert_kept(world.of, "quarantine")


def test_an_abandoned_item_is_retried(world: World) -> None:
    land(world.of, 1)
    claim = die_with_a_claim(world)
    is_blocked(world.rival, 1, Standing.PROCESSING)  # only the lease's holder may settle
    with lease(world.rival) as held:
        abandoned = world.rival.next(FEED, "load", holding=True)
        assert isinstance(abandoned, Abandoned)
        failed = world.rival.abandon(held, abandoned)
        assert failed.data["kind"] == "lease_expired"
        assert failed.data["message"] == "lease expired: first (run run-first, token 1) did not finish"
        assert failed.token == claim.processing.token
        again = claim_next(world.rival, held)
        with pytest.raises(ClaimLost, match="the claim was ended by second"):
            world.of.complete(claim, DONE)
        with pytest.raises(ClaimLost):
            world.of.fail(claim, Failure(FailureKind.PERMANENT, "too late"))
        world.rival.complete(again, DONE)
    assert history(world.of, 1)[3:] == [
        *("load Processing", "load Failed", "load Resolved", "load Processing", "load Processed"),
    ]


def test_an_adopted_item_is_done_in_the_ledgers_epoch_and_the_old_worker_loses_its_claim(world: World) -> None:
    land(world.of, 1)
    claim = die_with_a_claim(world)
    with lease(world.rival) as held:
        abandoned = world.rival.unsettled(held)
        assert abandoned
        done = world.rival.adopt(held, abandoned, 1, DONE)
        assert (done.epoch, done.token, done.author) == (1, claim.processing.token, "second")
    with pytest.raises(ClaimLost):
        world.of.complete(claim, DONE)
    assert world.of.state(LOAD).feed(FEED).watermark == key(1).position
    assert_kept(world.of, "quarantine")


def test_only_the_holder_may_settle(store: Store, world: World) -> None:
    land(world.of, 1)
    die_with_a_claim(world)
    second = lease(world.rival)
    abandoned = world.rival.unsettled(second)
    assert abandoned
    kill(second)
    world.turn(HOUR)
    with lease(world.of):
        before = store.query("shop", "")
        with pytest.raises(LeaseLost):
            world.rival.abandon(second, abandoned)
        with pytest.raises(LeaseLost):
            world.rival.adopt(second, abandoned, 1, DONE)
        assert store.query("shop", "") == before


def test_a_worker_whose_lease_expired_may_still_complete_an_unsettled_item(world: World) -> None:
    land(world.of, 1)
    claim = die_with_a_claim(world)
    with lease(world.rival) as held:
        abandoned = world.rival.unsettled(held)
        world.of.complete(claim, DONE)
        assert abandoned
        with pytest.raises(ClaimLost):
            world.rival.abandon(held, abandoned)
        assert world.rival.unsettled(held) is None
    assert history(world.of, 1)[-1] == "load Processed"


def test_retries_are_bounded_and_then_wait_for_the_operator(store: Store) -> None:
    world = World(store, max_attempts=3)
    land(world.of, 1)
    for _ in range(2):
        die_with_a_claim(world)
        with lease(world.rival) as held:
            abandoned = world.rival.unsettled(held)
            assert abandoned
            world.rival.abandon(held, abandoned)
    assert number_of(ready(world.of).item.key) == 1
    with lease(world.of) as held:
        world.of.fail(claim_next(world.of, held), Failure(FailureKind.TRANSIENT, "busy"))
    assert is_blocked(world.of, 1, Standing.FAILED).reason == "load failed: busy"
    automatic = [record.data for record in world.of.history(key(1)) if record.state == "Resolved"]
    assert [data["reason"] for data in automatic] == [f"attempt {at} of 3 ended by itself: retried" for at in (1, 2)]
    world.of.resolve(key(1), "go on")
    with lease(world.of) as held:
        world.of.fail(claim_next(world.of, held), Failure(FailureKind.TRANSIENT, "busy"))
    assert load_next(world.of) == 1


def test_a_permanent_failure_is_never_retried_automatically(world: World) -> None:
    land(world.of, 1)
    with lease(world.of) as held:
        world.of.fail(
            claim_next(world.of, held), Failure(FailureKind.PERMANENT, "x" * 5000, "ValueError", "first" + "y" * 9000)
        )
    failed = world.of.history(key(1))[-1]
    assert (len(failed.data["message"]), len(failed.data["traceback"])) == (2048, 8192)
    assert "first" not in failed.data["traceback"]
    is_blocked(world.of, 1, Standing.FAILED)


def test_a_claim_ends_once(world: World) -> None:
    land(world.of, 1)
    with lease(world.of) as held:
        claim = claim_next(world.of, held)
        world.of.complete(claim, DONE)
        for end in (lambda: world.of.complete(claim, DONE), lambda: world.of.fail(claim, Failure(FailureKind.TRANSIENT, "?"))):
            with pytest.raises(ClaimLost):
                end()
    assert world.of.state(LOAD).feed(FEED).applied == 1


def test_a_completion_succeeds_whatever_records_were_added_to_the_item_meanwhile(world: World) -> None:
    land(world.of, 5)
    load_next(world.of)
    discover(world.of, 7)
    with lease(world.of, SHRED) as held:
        [claim] = world.of.claim(held, [world.of.item(key(7))])
        state = world.of.state(LOAD)
        mark = sweep(world.of.item(key(7)), world.of.step(FEED, "load"), state, DISCOVERY, Stamp("test"))
        world.of.store.transact("shop", mark, "mark")
        world.of.complete(claim, DONE)
    assert history(world.of, 7) == ["discover New", "shred Processing", "discover New", "shred Processed"]


# Dead processes, and sinks with a newer token


def test_leases_of_a_dead_run_are_ended_and_no_others(world: World) -> None:
    dead = [lease(world.of), lease(world.of, SHRED), world.of.hold(Application("merge"), "0", "test", HOUR)]
    for one in dead:
        kill(one)
    assert world.rival.end_leases("run-second") == 0
    assert world.rival.end_leases("run-first") == 3
    assert world.rival.end_leases("run-first") == 0
    with lease(world.rival) as held:
        assert held.token == dead[0].token + 1
        assert world.rival.end_leases("run-first") == 0


def test_ending_a_lease_that_is_taken_meanwhile_does_nothing(store: Store, world: World) -> None:
    kill(lease(world.of))

    class Meanwhile(LossyStore):
        def transact(self, partition, writes, token):
            row = store.get("shop", f"LEASE#load#{FEED}")
            assert row
            store.transact("shop", [Put(row.sort, row.data, row.version)], "a heartbeat")
            return super().transact(partition, writes, token)

    assert manifest(Meanwhile(store, "none", 0), author="third").end_leases("run-first") == 0
    with pytest.raises(LeaseBusy):
        lease(world.rival)


def test_ended_leases_are_counted_although_the_answer_is_lost(store: Store, world: World) -> None:
    kill(lease(world.of))
    assert manifest(LossyStore(store, "repeat refused", at=1), author="third").end_leases("run-first") == 1


def test_a_token_can_be_raised_above_the_token_that_the_sink_has_seen(world: World) -> None:
    with lease(world.of) as held:
        held.raise_token(41)
        assert held.token == 42
        held.raise_token(7)
        assert held.token == 43
        held.heartbeat()
    stored = world.of.lease(LOAD, FEED)
    assert stored and stored.token == 43
    with lease(world.rival) as held:
        assert held.token == 44
        kill(held)
        world.turn(HOUR)
        with lease(world.of), pytest.raises(LeaseLost):
            held.raise_token(99)


def test_a_claim_names_the_token_it_was_made_under(world: World) -> None:
    land(world.of, 1)
    with lease(world.of) as held:
        held.raise_token(9)
        claim = claim_next(world.of, held)
        assert (claim.processing.token, claim.processing.epoch) == (10, 1)
        assert held.current == key(1).position


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
def test_a_clock_that_is_wrong_by_an_hour_breaks_nothing(world: World, ahead: timedelta) -> None:
    world.rival_clock.turn(ahead)
    land(world.of, 1, 2)
    first = lease(world.of)
    claim = claim_next(world.of, first)
    try:
        second = lease(world.rival)
    except LeaseBusy:
        assert ahead < timedelta(0)
        world.of.complete(claim, DONE)
        first.release()
        return
    with second:
        abandoned = world.rival.unsettled(second)
        assert abandoned
        world.rival.abandon(second, abandoned)
        with pytest.raises(ClaimLost):
            world.of.complete(claim, DONE)
        with pytest.raises(LeaseLost):
            first.heartbeat()
        verdict = ready(world.of)
        with pytest.raises(LeaseLost):
            world.of.claim(first, [verdict.item], verdict.state)
        world.rival.complete(claim_next(world.rival, second), DONE)
    kill(first)
    assert_kept(world.of, "quarantine")


def test_a_claim_without_an_answer_or_read_back_is_found_by_the_next_reading(store: Store) -> None:
    lossy = LossyStore(store, "deaf", at=0)
    of = manifest(lossy)
    land(of, 1)
    with lease(of) as held:
        verdict = ready(of)
        lossy.at = lossy.transactions + 1
        with pytest.raises(OutcomeUnknown):
            of.claim(held, [verdict.item], verdict.state)
    with lease(of) as held:
        abandoned = of.unsettled(held)
        assert abandoned
        of.abandon(held, abandoned)
    assert load_next(of) == 1


@pytest.mark.parametrize("happened", [True, False])
def test_a_heartbeat_without_a_clear_answer_does_not_cost_the_lease(store: Store, world: World, happened: bool) -> None:
    lossy = LossyStore(store, "deaf" if happened else "vanished", at=2)
    with lease(manifest(lossy, clock=world.clock)) as held:
        with pytest.raises(OutcomeUnknown):
            held.heartbeat()
        held.raise_token(4)
        assert held.token == 5 and not held.lost.is_set()
    lease(world.rival).release()


# Canceling the work of a holder that lost its lease


def lose(world: World, held: Lease) -> None:
    """The lease expires unnoticed and a rival takes it; the next heartbeat fails."""
    world.turn(2 * HOUR)
    kill(lease(world.rival))
    with pytest.raises(LeaseLost):
        held.heartbeat()


def test_work_under_a_lost_lease_is_canceled(world: World) -> None:
    cancelled = []
    held = lease(world.of)
    with (
        pytest.raises(LeaseLost, match="was lost, so the work was canceled") as error,
        held.canceling(lambda: cancelled.append(1)),
    ):
        lose(world, held)
        assert cancelled == [1]
        raise RuntimeError("interrupted")
    assert isinstance(error.value.__cause__, RuntimeError)
    held.release()


def test_an_error_of_the_work_is_raised_unchanged_while_the_lease_is_held(world: World) -> None:
    with lease(world.of) as held, pytest.raises(RuntimeError, match="no such column"), held.canceling(lambda: None):
        raise RuntimeError("no such column")


def test_work_that_has_ended_is_not_canceled(world: World) -> None:
    held = lease(world.of)
    with held.canceling(lambda: pytest.fail("cancelled after its end")):
        pass
    lose(world, held)
    held.release()


def test_no_work_begins_under_a_lost_lease(world: World) -> None:
    held = lease(world.of)
    lose(world, held)
    with pytest.raises(LeaseLost), held.canceling(lambda: None):
        pytest.fail("begun under a lost lease")
    held.release()


def test_a_cancel_function_that_fails_does_not_prevent_the_others(world: World) -> None:
    cancelled = []
    held = lease(world.of)
    with pytest.raises(LeaseLost), held.canceling(lambda: 1 / 0), held.canceling(lambda: cancelled.append(1)):
        lose(world, held)
        held.check()
    assert cancelled == [1]
    held.release()


def test_a_heartbeat_that_fails_until_the_lease_expires_cancels_the_work(store: Store) -> None:
    of = Manifest(store, "shop", {FEED: steps()}, "first")
    cancelled = threading.Event()
    held = of.acquire(FEED, "load", "worker", timedelta(seconds=0.3))
    setattr(held, "_store", Unreachable())  # noqa: B010
    with pytest.raises(LeaseLost), held.canceling(cancelled.set):
        assert cancelled.wait(5)
        held.check()
    held.release()


def test_work_that_hangs_loses_the_lease_at_its_limit(store: Store) -> None:
    """The heartbeat runs in its own thread, so a hanging job would extend the lease of its feed forever."""
    of = Manifest(store, "shop", {FEED: steps()}, "first")
    rival = Manifest(store, "shop", {FEED: steps()}, "second")
    cancelled = threading.Event()
    held = of.acquire(FEED, "load", "worker", timedelta(seconds=0.6))
    with held.within(timedelta(seconds=60), "a load"):
        pass  # it finished in time
    with (
        pytest.raises(LeaseLost, match=r"was given up: a load took longer than its limit of 0:00:00.5"),
        held.within(timedelta(seconds=0.5), "a load"),
        held.canceling(cancelled.set),
    ):
        assert cancelled.wait(5)
        deadline = time.monotonic() + 20
        while True:  # the work continues although it is canceled, and nothing extends the lease
            try:
                rival.acquire(FEED, "load", "rival", timedelta(seconds=60)).release()
                break
            except LeaseBusy:
                assert time.monotonic() < deadline, "the lease does not run out"
                time.sleep(0.02)
        raise RuntimeError("interrupted at last")
    with pytest.raises(LeaseLost, match="was given up"), held.within(timedelta(seconds=60), "another load"):
        pytest.fail("begun under a lost lease")
    held.release()


def test_work_that_began_just_after_it_was_canceled_is_canceled_again(store: Store) -> None:
    of = Manifest(store, "shop", {FEED: steps()}, "first")
    cancelled = threading.Semaphore(0)
    held = of.acquire(FEED, "load", "worker", timedelta(seconds=0.3))
    setattr(held, "_store", Unreachable())  # noqa: B010
    with held.canceling(cancelled.release):
        assert all(cancelled.acquire(timeout=5) for _ in range(3))
    held.release()


class Unreachable:
    requests = 0

    def get(self, *_: object, **__: object):
        raise StoreUnavailable("no connection")

    query = transact = get

    def close(self) -> None: ...


def test_a_lease_that_this_process_gave_back_is_taken_again_without_reading_it(store: Store) -> None:
    of = manifest(store)
    lease(of).release()
    before = store.requests
    lease(of).release()
    assert store.requests - before == 2


def test_a_lease_given_back_under_a_fast_clock_is_free_immediately(world: World) -> None:
    """Such a lease once ended at the local time, so others waited for as long as that clock was ahead."""
    world.clock.turn(timedelta(days=2))
    lease(world.of).release()
    assert lease(world.rival).token == 2


def test_a_dead_runs_lease_ended_under_a_fast_clock_is_free_immediately(world: World) -> None:
    kill(lease(world.of))
    world.rival_clock.turn(-timedelta(minutes=30))
    state = world.of.lease(LOAD, FEED)
    assert state and state.run_id
    assert world.of.end_leases(state.run_id) == 1
    assert lease(world.rival).token == 2


def test_a_lease_that_another_worker_had_meanwhile_is_read_again(store: Store) -> None:
    of, other = manifest(store), manifest(store, author="other")
    lease(of).release()
    held = lease(other)
    with pytest.raises(LeaseBusy):
        lease(of)
    held.release()
    with lease(of) as taken:
        assert taken.token == 3


def test_a_lease_that_was_not_given_back_is_read_again(store: Store) -> None:
    of = manifest(store)
    kill(lease(of))
    with pytest.raises(LeaseBusy):
        lease(of)


def test_a_worker_that_settled_an_item_and_lost_the_lease_gets_lease_lost(world: World) -> None:
    land(world.of, 1)
    dead = lease(world.of)
    claim_next(world.of, dead)
    kill(dead)
    world.turn(2 * HOUR)
    held = lease(world.of)
    left = world.of.unsettled(held)
    assert isinstance(left, Abandoned)
    world.of.abandon(held, left)
    kill(held)
    world.turn(2 * HOUR)
    rival = lease(world.rival)
    verdict = ready(world.of)
    claim_next(world.rival, rival)
    kill(rival)
    with pytest.raises(ClaimLost):
        world.of.claim(held, [verdict.item], verdict.state)


def test_any_error_of_heartbeats_cancels_the_work_once_the_lease_has_expired(store: Store) -> None:
    of = Manifest(store, "shop", {FEED: steps()}, "first")
    cancelled = threading.Event()
    held = of.acquire(FEED, "load", "worker", timedelta(seconds=0.3))
    setattr(held, "_store", None)  # noqa: B010
    with pytest.raises(LeaseLost), held.canceling(cancelled.set):
        assert cancelled.wait(5)
        held.check()
