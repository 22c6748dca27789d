"""Every transaction of every operation, once with its answer lost and once with its request lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from manifest_platform.manifest import Abandoned, Application, Failure, FailureKind, Manifest, Store, StoreUnavailable
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform_tests.effort import cases
from manifest_platform_tests.manifest.given import (
    DONE,
    FEED,
    HOUR,
    LOAD,
    Clock,
    LossyStore,
    assert_kept,
    claim_next,
    dump,
    key,
    kill,
    landed,
    manifest,
)


class Day:
    """A working day that uses every operation. Each step writes once, so that a step with a lost request may be repeated."""

    def __init__(self, store: Store):
        self.clock = Clock()
        self.manifest: Manifest = manifest(store, clock=self.clock, late="append")
        self.held: dict[str, object] = {}

    def steps(self) -> list[Callable[[], object]]:
        of = self.manifest

        def hold(name: str, step: Callable[[], object]) -> Callable[[], object]:
            def run() -> None:
                self.held[name] = step()

            return run

        def held(name: str):
            return self.held[name]

        def discover(*numbers: int) -> Callable[[], object]:
            return lambda: of.discover(FEED, [landed(number) for number in numbers])

        def items(*numbers: int):
            return [of.item(key(number)) for number in numbers]

        def shredding(*numbers: int) -> list[Callable[[], object]]:
            return [
                hold("shred", lambda: of.acquire(FEED, "shred", "s", HOUR)),
                hold("claims", lambda: of.claim(held("shred"), items(*numbers))),
                *(lambda at=at: of.complete(held("claims")[at], DONE) for at in range(len(numbers))),
                lambda: kill(held("shred")),
                lambda: self.clock.turn(2 * HOUR),
            ]

        def take() -> object:
            return of.acquire(FEED, "load", "w", HOUR)

        def claim() -> object:
            return claim_next(of, held("load"))

        def abandoned() -> Abandoned:
            found = of.unsettled(held("load"))
            assert found
            return found

        return [
            discover(2, 3, 4, 5, 7),
            *shredding(2, 3, 4, 5, 7),
            hold("load", take),
            lambda: held("load").heartbeat(),
            lambda: held("load").raise_token(7),
            hold("claim", claim),
            lambda: of.complete(held("claim"), DONE),
            hold("claim", claim),
            lambda: of.fail(held("claim"), Failure(FailureKind.PERMANENT, "broken")),
            lambda: of.resolve(key(3), "mended"),
            hold("claim", claim),
            lambda: of.fail(held("claim"), Failure(FailureKind.TRANSIENT, "busy")),
            hold("claim", claim),
            lambda: kill(held("load")),
            lambda: of.end_leases("run-test"),
            hold("load", take),
            lambda: of.abandon(held("load"), abandoned()),
            hold("claim", claim),
            lambda: kill(held("load")),
            lambda: self.clock.turn(2 * HOUR),
            hold("load", take),
            lambda: of.adopt(held("load"), abandoned(), 1, DONE),
            lambda: of.skip(key(4), "not wanted"),
            discover(1),
            *shredding(1),
            hold("load", take),
            hold("claim", claim),  # the late item
            lambda: of.complete(held("claim"), DONE),
            hold("claim", claim),
            lambda: of.complete(held("claim"), DONE),
            lambda: of.unskip(key(4), "wanted after all"),
            lambda: of.commit_output(key(5), Application("report"), DONE),
            hold("claim", claim),
            lambda: of.complete(held("claim"), DONE),
            hold("claim", claim),
            discover(6),
            lambda: of.complete(held("claim"), DONE),
            discover(0),
            lambda: of.next(FEED, "load"),  # marks item 6 late, because the watermark passed it
            lambda: held("load").release(),
        ]


def run_day(store: Store, *, again: bool = False) -> Manifest:
    """Runs the day; with `again`, a step with a lost request is repeated, as an operator or a retrying worker would."""
    day = Day(store)
    for step in day.steps():
        try:
            step()
        except StoreUnavailable:
            if not again:
                raise
            step()
    return day.manifest


@pytest.fixture(scope="module")
def smooth(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple], int]:
    """The content of the manifest after a day without faults, and the number of its transactions."""
    store = LossyStore(SqlStore(f"sqlite:///{tmp_path_factory.mktemp('day')}/manifest.db"), "none", at=0)
    told = dump(run_day(store))
    return told, store.transactions


def test_the_day_uses_every_operation_and_its_log_adds_up(tmp_path: Path) -> None:
    of = run_day(SqlStore(f"sqlite:///{tmp_path}/manifest.db"))
    assert_kept(of, "append")
    assert of.item(key(6)).is_late_for(LOAD)
    assert of.state(LOAD).feed(FEED).applied == 6


STRIDE = cases(3, 1)
"""The step between the transactions that are lost. It is odd, so that both faults occur."""


@pytest.mark.thorough
def test_a_lost_answer_makes_no_difference(tmp_path: Path, smooth: tuple[list[tuple], int]) -> None:
    wanted, transactions = smooth
    assert transactions > 40
    for at in range(1, transactions + 1, STRIDE):
        fault = ("answer lost", "repeat refused")[at % 2]
        store = LossyStore(SqlStore(f"sqlite:///{tmp_path}/{at}.db"), fault, at)
        of = run_day(store)
        assert dump(of) == wanted, f"transaction {at}"
        store.close()


@pytest.mark.thorough
def test_a_lost_request_makes_no_difference_once_it_is_repeated(tmp_path: Path, smooth: tuple[list[tuple], int]) -> None:
    wanted, transactions = smooth
    for at in range(1, transactions + 1, STRIDE):
        store = LossyStore(SqlStore(f"sqlite:///{tmp_path}/{at}.db"), "request lost", at)
        of = run_day(store, again=True)
        assert _without_release(dump(of)) == _without_release(wanted), f"transaction {at}"
        assert_kept(of, "append")
        store.close()


def _without_release(told: list[tuple]) -> list[tuple]:
    """A lost release is not repeated: the lease expires without it."""
    return [(sort, {**data, "expires_at": None} if sort.startswith("LEASE#") else data) for sort, data in told]
