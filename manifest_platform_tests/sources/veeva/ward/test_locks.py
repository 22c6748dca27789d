"""Locks: the cases C1 to C7, through the pipeline, with every worker in a pipeline of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.retries.standard import ExponentialBackoff

from manifest_platform.manifest import (
    ClaimLost,
    ConditionFailed,
    Failure,
    FailureKind,
    Idle,
    Lease,
    Ready,
    Refused,
)
from manifest_platform.pipeline import LOAD, Budget, DrainReport, Pipeline, Stop
from manifest_platform.pipeline.loading import load, settle
from manifest_platform.warehouse.apply import Warehouse
from manifest_platform_tests.manifest.given import kill
from manifest_platform_tests.servers.proxy import Chooser, Fault, Proxy, nothing, proxied
from manifest_platform_tests.sources.veeva.ward.ward import (
    DAY,
    INCR,
    Ward,
    attempts,
    drained,
    full,
    history,
    incr,
    incrs,
    key_of,
    land,
    landed,
    left_by_a_dead_worker,
    replayed,
    standings,
    started,
    watermark,
)

pytestmark = pytest.mark.every_store

FIRST = [full("0000"), *incrs("0015", "0030")]


def next_of(pipeline: Pipeline) -> Ready:
    verdict = pipeline.manifest.next(INCR, LOAD)
    assert isinstance(verdict, Ready), verdict
    return verdict


@pytest.fixture
def ready(pipeline: Pipeline) -> Pipeline:
    """The first snapshot is loaded; 0015 and 0030 are ready."""
    started(pipeline, "0000", *incrs("0015", "0030"))
    return pipeline


class TestTogether:
    def test_C1_of_two_concurrent_workers_one_works_and_the_other_leaves(
        self, ward: Ward, ready: Pipeline, other: Pipeline
    ) -> None:
        reports: list[DrainReport] = []
        both = threading.Barrier(2)

        def work(pipeline: Pipeline) -> None:
            both.wait()
            reports.append(drained(pipeline)[1])

        threads = [threading.Thread(target=work, args=(one,)) for one in (ready, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(report.loaded for report in reports) == 2
        assert {(report.stop, report.failed) for report in reports} <= {(Stop.IDLE, 0), (Stop.BUSY, 0)}
        assert ward.seen.applied == ["full 0000", "incr 0015", "incr 0030"]
        assert ward.seen.tables == replayed(FIRST)
        assert [attempts(ready, stop) for stop in ("0015", "0030")] == [1, 1]

    @pytest.mark.stores("sqlite")
    def test_C1_a_worker_that_finds_the_lock_taken_leaves_without_an_error(
        self, ward: Ward, ready: Pipeline, other: Pipeline
    ) -> None:
        with other.lease(INCR, LOAD):
            events, report = drained(ready)
            assert (events, report.stop, report.failed) == ([], Stop.BUSY, 0)
        assert [attempts(ready, stop) for stop in ("0015", "0030")] == [0, 0]
        assert ward.seen.applied == ["full 0000"]


class TestThrottled:
    """C2: DynamoDB's client repeats a throttled write a limited number of times with growing pauses; then the drain ends with
    an error.
    """

    pytestmark = pytest.mark.stores("dynamodb")

    @pytest.fixture
    def pauses(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """Records the pauses between the tries, and skips them."""
        pauses: list[float] = []
        delay_amount = ExponentialBackoff.delay_amount

        def pause(self: ExponentialBackoff, context: Any) -> float:
            self._random = lambda: 1.0  # the longest pauses possible
            pauses.append(delay_amount(self, context))
            return 0.0

        monkeypatch.setattr(ExponentialBackoff, "delay_amount", pause)
        return pauses

    @pytest.fixture
    def proxy(self, store_url: str) -> Iterator[Proxy]:
        server = urlsplit(parse_qs(urlsplit(store_url).query)["endpoint"][0])
        with proxied(lambda: socket.create_connection((server.hostname, server.port)), is_http=True) as running:
            yield running

    @pytest.fixture
    def far(self, ward: Ward, ready: Pipeline, proxy: Proxy, store_url: str) -> Iterator[Pipeline]:
        """Returns a ward ready to load, with the proxy before its manifest."""
        del ready
        server = urlsplit(parse_qs(urlsplit(store_url).query)["endpoint"][0])
        with Ward(ward.home, store_url.replace(f":{server.port}", f":{proxy.port}")).open() as opened:
            yield opened
            proxy.choose(nothing)

    @staticmethod
    def throttling(times: int) -> Chooser:
        """Throttles the first writes of the lease."""
        met = count()
        return lambda _, request: (
            Fault.THROTTLED
            if b"TransactWriteItems" in request and b"LEASE#load#incr" in request and next(met) < times
            else None
        )

    def test_C2_a_lock_that_is_throttled_is_tried_again(
        self, ward: Ward, far: Pipeline, proxy: Proxy, pauses: list[float]
    ) -> None:
        proxy.choose(self.throttling(2))
        assert drained(far)[1].stop is Stop.IDLE
        assert (len(pauses), pauses[1] / pauses[0]) == (2, 2)
        assert ward.seen.tables == replayed(FIRST)

    def test_C2_a_lock_that_stays_throttled_is_given_up_and_nothing_is_applied(
        self, ward: Ward, far: Pipeline, proxy: Proxy, pauses: list[float]
    ) -> None:
        proxy.choose(self.throttling(1000))
        events, report = drained(far)
        assert (events, report.stop, report.loaded, report.failed) == ([], Stop.UNAVAILABLE, 0, 0)
        assert 3 <= len(pauses) <= 10, "the tries are bounded"
        proxy.choose(nothing)
        assert ward.seen.applied == ["full 0000"]
        assert attempts(far, "0015") == 0


def test_C3_an_item_that_fails_between_choice_and_claim_is_not_applied(ward: Ward, ready: Pipeline, other: Pipeline) -> None:
    chosen = next_of(ready)
    with other.lease(INCR, LOAD) as held:
        [claim] = other.manifest.claim(held, [chosen.item], chosen.state)
        other.manifest.fail(claim, Failure(FailureKind.PERMANENT, "set by hand"))
    with ready.lease(INCR, LOAD) as held, pytest.raises((ConditionFailed, Refused)):
        load(ready, held, chosen)
    assert ward.seen.applied == ["full 0000"]
    _, report = drained(ready)
    assert (report.stop, report.item, report.loaded) == (Stop.BLOCKED, incr("0015").name, 0)
    assert attempts(ready, "0015") == 1


class TestDeadWorker:
    def test_C4_the_window_of_a_dead_worker_fails_as_lease_lost_and_changes_nothing(
        self, tmp_path: Any, store_url: str
    ) -> None:
        ward = Ward(tmp_path, store_url, lease={"max_attempts": 1})
        with ward.open() as pipeline:
            started(pipeline, "0000", incr("0015"))
            left_by_a_dead_worker(ward)
            before = ward.seen.tables, ward.seen.ledger
            _, report = drained(pipeline)
            assert (report.stop, report.item) == (Stop.BLOCKED, incr("0015").name)
            assert history(pipeline, "0015")[-2:] == ["load Processing", "load Failed lease_expired"]
            assert (ward.seen.tables, ward.seen.ledger) == before
            assert watermark(pipeline) == "0000"

    @pytest.mark.stores("sqlite")
    def test_C4_the_window_of_a_dead_worker_is_retried_by_policy(self, ward: Ward, ready: Pipeline) -> None:
        left_by_a_dead_worker(ward)
        assert drained(ready)[1].stop is Stop.IDLE
        ends = ["load Failed lease_expired", "load Resolved automatic", "load Processing", "load Processed"]
        assert history(ready, "0015")[-4:] == ends
        assert ward.seen.tables == replayed(FIRST)

    @pytest.mark.stores("sqlite")
    def test_C4_the_window_of_a_dead_worker_is_not_settled_while_its_lease_lives(
        self, ward: Ward, ready: Pipeline, other: Pipeline
    ) -> None:
        held = other.manifest.acquire(INCR, LOAD, "silent", DAY)
        [claim] = other.manifest.claim(held, [next_of(other).item], next_of(other).state)
        kill(held)
        assert drained(ready)[1].stop is Stop.BUSY
        assert ready.manifest.item(claim.item.key).records[-1] == claim.processing
        other.manifest.end_leases("other")
        assert drained(ready)[1].stop is Stop.IDLE


@pytest.mark.parametrize("meanwhile", ["drained", "failed"])
def test_C5_a_worker_that_was_replaced_commits_nothing(
    ward: Ward, ready: Pipeline, other: Pipeline, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """The worker is paused past its lease, before its transaction, while another worker settles its claim."""
    drained(ready, budget=Budget(items=1))  # so that the next window brings nothing new but its rows
    apply = Warehouse.apply
    warehouse = other.warehouse

    def paused(self: Warehouse, load: Any) -> Any:
        if self is warehouse:
            other.manifest.end_leases("other")
            if meanwhile == "drained":
                assert drained(ready)[1].stop is Stop.IDLE
            else:
                with ready.lease(INCR, LOAD) as held:
                    abandoned = ready.manifest.unsettled(held)
                    assert abandoned is not None
                    assert settle(ready, held, abandoned) is None
            before.append(ward.seen)
        return apply(self, load)

    before: list[Any] = []
    monkeypatch.setattr(Warehouse, "apply", paused)
    held = other.manifest.acquire(INCR, LOAD, "paused", DAY)
    chosen = next_of(other)
    with pytest.raises(ClaimLost):
        load(other, held, chosen)
    assert [ward.seen] == before, "it changed something"
    monkeypatch.undo()
    assert drained(ready)[1].stop is Stop.IDLE
    assert ward.seen.applied == ["full 0000", "incr 0015", "incr 0030"]
    assert ward.seen.tables == replayed(FIRST)


def test_C5_a_worker_that_was_replaced_completes_nothing(
    ward: Ward, ready: Pipeline, other: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is paused after its COMMIT: the other worker completes the window from the ledger."""
    complete = other.manifest.complete

    def paused(*arguments: Any) -> Any:
        other.manifest.end_leases("other")
        assert drained(ready)[1].stop is Stop.IDLE
        return complete(*arguments)

    monkeypatch.setattr(other.manifest, "complete", paused)
    held = other.manifest.acquire(INCR, LOAD, "paused", DAY)
    with pytest.raises(ClaimLost):
        load(other, held, next_of(other))
    assert history(ready, "0015").count("load Processed") == 1
    assert attempts(ready, "0015") == 1
    assert ward.seen.applied == ["full 0000", "incr 0015", "incr 0030"]
    assert ward.seen.tables == replayed(FIRST)


def test_C6_a_window_that_lands_as_the_worker_leaves_is_loaded_at_the_next_look(
    ward: Ward, ready: Pipeline, other: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window lands after the worker saw nothing more to do, and before its lock is free: the next look takes it."""
    release = Lease.release

    def late(self: Lease) -> None:
        if self.application.key == LOAD and self.dataset == ready.name and not landed_late:
            landed_late.append(True)
            land(other, incr("0045"))
        release(self)

    landed_late: list[bool] = []
    monkeypatch.setattr(Lease, "release", late)
    assert drained(ready)[1].loaded == 2
    assert landed_late == [True]
    assert next_of(ready).item.key == key_of(ready, "0045")  # the sensor's question
    assert drained(ready)[1].loaded == 1
    assert ward.seen.tables == replayed([*FIRST, incr("0045")])


def test_C7_windows_discovered_twice_and_out_of_order_are_applied_once(ward: Ward, pipeline: Pipeline, other: Pipeline) -> None:
    started(pipeline, "0000", incr("0030"))
    drained(pipeline)
    land(pipeline, incr("0015"))
    drained(pipeline)
    for by in (other, pipeline):
        for stop in ("0030", "0015", "0030"):
            [found] = by.manifest.discover(INCR, [landed(by, incr(stop))])
            assert found.outcome == "known"
        events, report = drained(by)
        assert (events, report.stop) == ([], Stop.IDLE)
    assert [attempts(pipeline, stop) for stop in ("0015", "0030")] == [1, 1]
    assert ward.seen.applied == ["full 0000", "incr 0015", "incr 0030"]
    assert set(standings(pipeline).values()) == {"done"}
    assert pipeline.manifest.next(INCR, LOAD) == Idle()
