"""A careless or confused program misuses a manifest: each misuse is refused, and no sequence of calls corrupts the manifest."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier
from typing import Any

import pytest

from manifest_platform.manifest import (
    Abandoned,
    Application,
    Claim,
    ClaimLost,
    ConditionFailed,
    CouplingViolation,
    Failure,
    FailureKind,
    Lease,
    LeaseBusy,
    LeaseLost,
    Manifest,
    Refused,
    Store,
)
from manifest_platform.manifest.stores import open_store
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    HOUR,
    LOAD,
    SHRED,
    Clock,
    assert_kept,
    claim_next,
    history,
    key,
    kill,
    land,
    lease,
    manifest,
    ready,
    steps,
)
from manifest_platform_tests.manifest.loader import Loader, Sink
from manifest_platform_tests.manifest.vault import INCR, LOG, counters, refolded, vault
from manifest_platform_tests.manifest.vault import key as window
from manifest_platform_tests.manifest.vault import land as land_windows


@dataclasses.dataclass
class World:
    """Two programs of one dataset, each with its own clock."""

    of: Manifest
    rival: Manifest
    clock: Clock
    rival_clock: Clock

    def unchanged_by(self, refused: tuple[type[Exception], ...], misuse: Callable[[], object]) -> None:
        """Asserts that a misuse is refused and writes nothing."""
        before = self.of.store.query(self.of.dataset, "")
        with pytest.raises(refused):
            misuse()
        assert self.of.store.query(self.of.dataset, "") == before

    def kept(self) -> None:
        assert_kept(self.of, "quarantine")


@pytest.fixture
def world(store: Store) -> Iterator[World]:
    clock, rival_clock = Clock(), Clock()
    made = World(manifest(store, clock=clock), manifest(store, clock=rival_clock, author="rival"), clock, rival_clock)
    land(made.of, 1, 2, 3)
    yield made
    made.kept()


def copied(held: Lease, of: Manifest, **changes: Any) -> Lease:
    """A copy of a grant, as in a program that kept it in a file or was forked."""
    stored = of.lease(held.application, held.feed)
    assert stored
    copy = Lease(of.store, of.dataset, held.application, held.feed, dataclasses.replace(stored, **changes), HOUR, Clock())
    kill(copy)
    copy.settled = held.settled
    return copy


# Leases


def test_a_worker_that_runs_twice_under_one_name_gets_one_lease(world: World) -> None:
    with lease(world.of, holder="worker"):
        world.unchanged_by((LeaseBusy,), lambda: lease(world.of, holder="worker"))
        world.unchanged_by((LeaseBusy,), lambda: lease(world.rival, holder="worker"))


def test_every_operation_is_refused_under_an_old_grant(world: World) -> None:
    with lease(world.of) as first:
        past = copied(first, world.of)
        first.raise_token(4)
        verdict = ready(world.of)
        for use in (
            lambda: world.of.claim(past, [verdict.item], verdict.state),
            past.heartbeat,
            lambda: past.raise_token(9),
        ):
            world.unchanged_by((LeaseLost,), use)
        assert past.lost.is_set()
        world.of.complete(claim_next(world.of, first), DONE)


def test_only_one_of_two_programs_that_share_a_grant_continues(world: World) -> None:
    first = lease(world.of)
    twin = copied(first, world.rival)
    verdict = ready(world.of)
    [claimed] = world.rival.claim(twin, [verdict.item], verdict.state)
    world.unchanged_by((LeaseLost,), lambda: world.of.claim(first, [verdict.item], verdict.state))
    world.unchanged_by((LeaseLost,), first.heartbeat)
    first.release()
    world.rival.complete(claimed, DONE)
    twin.heartbeat()
    twin.release()


def _use_in_process(url: str, grant: Any, start: Any, results: Any) -> None:
    store = open_store(url)
    of = manifest(store, author="fork")
    held = Lease(store, of.dataset, LOAD, FEED, grant, HOUR, Clock())
    kill(held)
    verdict = ready(of)
    start.wait()
    try:
        [claimed] = of.claim(held, [verdict.item], verdict.state)
        of.complete(claimed, DONE)
        results.put("done")
    except (ClaimLost, ConditionFailed, Refused) as error:
        results.put(type(error).__name__)
    store.close()


@pytest.mark.every_store
def test_only_one_of_several_processes_that_share_a_grant_does_the_work(world: World, store_url: str) -> None:
    held = lease(world.of)
    kill(held)
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(2), context.Queue()
    arguments = (store_url, world.of.lease(LOAD, FEED), start, results)
    forks = [context.Process(target=_use_in_process, args=arguments) for _ in range(2)]
    for fork in forks:
        fork.start()
    outcomes = sorted(results.get(timeout=60) for _ in forks)
    for fork in forks:
        fork.join()
        assert fork.exitcode == 0
    assert outcomes.count("done") >= 1 and set(outcomes) <= {"done", "LeaseLost", "ConditionFailed", "Refused"}
    assert history(world.of, 1).count("load Processed") == 1
    assert world.of.state(LOAD).feed(FEED).applied == outcomes.count("done")


def test_a_worker_that_continues_after_losing_its_lease_writes_nothing(world: World) -> None:
    lost = lease(world.of)
    claimed = claim_next(world.of, lost)
    kill(lost)
    world.clock.turn(HOUR)
    world.rival_clock.turn(HOUR)
    with lease(world.rival) as held:
        left = world.rival.unsettled(held)
        assert left
        world.unchanged_by((LeaseLost,), lambda: world.of.abandon(lost, left))
        world.unchanged_by((LeaseLost,), lambda: world.of.adopt(lost, left, 1, DONE))
        world.rival.abandon(held, left)
        again = claim_next(world.rival, held)
        for use in (
            lambda: world.of.complete(claimed, DONE),
            lambda: world.of.fail(claimed, Failure(FailureKind.TRANSIENT, "?")),
            lambda: world.of.defer(claimed, "?"),
        ):
            world.unchanged_by((ClaimLost,), use)
        verdict = world.of.item(key(2))
        for use in (lost.heartbeat, lambda: lost.raise_token(9), lambda: world.of.claim(lost, [verdict], again.state)):
            world.unchanged_by((LeaseLost,), use)
        lost.release()
        world.rival.complete(again, DONE)
        held.heartbeat()


# Claims


@pytest.mark.every_store
def test_a_claim_that_several_threads_end_concurrently_is_ended_once(world: World) -> None:
    with lease(world.of) as held:
        claimed = claim_next(world.of, held)
        start = Barrier(6)

        def end(number: int) -> str:
            start.wait()
            try:
                if number % 2:
                    world.rival.complete(claimed, DONE)
                else:
                    world.of.fail(claimed, Failure(FailureKind.PERMANENT, "broken"))
            except ClaimLost:
                return "lost"
            return "ended"

        with ThreadPoolExecutor(6) as pool:
            assert sorted(pool.map(end, range(6))) == ["ended", *["lost"] * 5]


def test_an_item_of_one_feed_is_not_claimed_under_a_lease_of_another(store: Store) -> None:
    of = vault(store)
    land_windows(of, INCR, 1)
    land_windows(of, LOG, 1)
    with of.acquire(INCR, "load", "worker", HOUR) as held:
        before = store.query("vault", "")
        with pytest.raises(Refused, match="is not of feed incr"):
            of.claim(held, [of.item(window(LOG, 1))], of.state(LOAD))
        assert store.query("vault", "") == before


def test_a_lease_of_one_application_ends_no_claim_of_another(world: World) -> None:
    with lease(world.of) as held, lease(world.of, SHRED) as other:
        claimed = claim_next(world.of, held)
        left = Abandoned(claimed.item, claimed.processing)
        world.unchanged_by((Refused,), lambda: world.of.abandon(other, left))
        world.unchanged_by((Refused,), lambda: world.of.adopt(other, left, 1, DONE))
        world.of.complete(claimed, DONE)


def test_a_forged_claim_ends_nothing(world: World) -> None:
    with lease(world.of) as held:
        claimed = claim_next(world.of, held)
        foreign = dataclasses.replace(claimed.processing, record_id="made-up")
        for use in (
            lambda: world.of.complete(dataclasses.replace(claimed, processing=foreign), DONE),
            lambda: world.of.fail(dataclasses.replace(claimed, processing=foreign), Failure(FailureKind.PERMANENT, "?")),
        ):
            world.unchanged_by((CouplingViolation, Refused), use)
        world.of.complete(claimed, DONE)


def other_dataset(of: Manifest) -> Manifest:
    return Manifest(of.store, "elsewhere", {FEED: steps()}, "elsewhere", clock=Clock())


ENDS: dict[str, Callable[[Manifest, Claim], object]] = {
    "complete": lambda of, claimed: of.complete(claimed, DONE),
    "fail": lambda of, claimed: of.fail(claimed, Failure(FailureKind.PERMANENT, "?")),
    "fail for now": lambda of, claimed: of.fail(claimed, Failure(FailureKind.TRANSIENT, "?")),
    "defer": lambda of, claimed: of.defer(claimed, "?"),
}


@pytest.mark.parametrize("application", [LOAD, SHRED], ids=["load", "shred"])
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_claim_of_another_dataset_ends_nothing(
    world: World, application: Application, end: Callable[[Manifest, Claim], object]
) -> None:
    of, elsewhere = world.of, other_dataset(world.of)
    if application == SHRED:
        of.discover(FEED, [dataclasses.replace(landed, key=key(9)) for landed in [of.item(key(1)).landed] if landed])
    with lease(of, application) as held:
        items = [of.item(key(9))] if application == SHRED else []
        claimed = of.claim(held, items)[0] if items else claim_next(of, held)
        with pytest.raises(Refused):
            end(elsewhere, claimed)
        assert elsewhere.store.query("elsewhere", "") == [], "nothing of it is written there"
        of.complete(claimed, DONE)


@pytest.mark.parametrize("application", [LOAD, SHRED], ids=["load", "shred"])
def test_an_item_of_one_dataset_is_not_claimed_under_a_lease_of_another(world: World, application: Application) -> None:
    elsewhere = other_dataset(world.of)
    land(elsewhere, 5)
    elsewhere.discover(FEED, [dataclasses.replace(landed, key=key(6)) for landed in [elsewhere.item(key(5)).landed] if landed])
    item = elsewhere.item(key(5 if application == LOAD else 6))
    with lease(world.of, application) as held:
        state = elsewhere.state(LOAD) if application == LOAD else None
        world.unchanged_by((Refused, ConditionFailed), lambda: elsewhere.claim(held, [item], state))


# Clocks


@pytest.mark.parametrize("seed", range(4))
def test_workers_whose_clocks_differ_by_hours_take_leases_from_each_other_and_break_nothing(store: Store, seed: int) -> None:
    """Each may take the other's lease for expired or long-lived. The sink keeps the order, and all items get done."""
    random, sink, clocks = Random(seed), Sink(), [Clock(), Clock()]
    clocks[1].turn(random.choice([-1, 1]) * HOUR)
    workers = [vault(store, clock=clock, author=f"worker-{number}") for number, clock in enumerate(clocks)]
    for number in (1, 2, 3, 4):
        land_windows(workers[0], INCR, number)
        clocks[0].turn(HOUR / 10)
    loaders: list[Loader | None] = [None, None]
    for _ in range(60):
        by = random.randrange(2)
        loader = loaders[by] = loaders[by] or Loader(workers[by], INCR, sink)
        if not loader.go_on(random.choice(["commits", "commits", "answer lost"])):
            loaders[by] = None
            clocks[by].turn(HOUR / 4)
        elif random.random() < 0.1:
            loader.die()
            loaders[by] = None
    for loader in loaders:
        if loader:
            loader.die()
    for clock in clocks:
        clock.turn(3 * HOUR)
    last = Loader(workers[0], INCR, sink)
    while last.go_on("commits"):
        pass
    assert [commit.position for commit in sink.commits] == [window(INCR, number).position for number in (1, 2, 3, 4)]
    assert counters(workers[0], INCR) == refolded(workers[0], INCR)
    assert workers[0].state(LOAD).feed(INCR).applied == 4
