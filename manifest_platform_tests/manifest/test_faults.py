"""The network fails between a real client and a real server: at every request of every operation, in every way.

`test_answers` loses the answers of a store. This module adds botocore's own retries, PostgreSQL's half-done transactions and
reads without an answer. A fault changes nothing in the end, or the error says if a retry is safe.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, count, repeat
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit, urlunsplit

import pytest
from botocore.retries.standard import ExponentialBackoff

from manifest_platform.manifest import (
    Abandoned,
    ClaimLost,
    ConditionFailed,
    Failure,
    FailureKind,
    Idle,
    LeaseBusy,
    LeaseLost,
    Manifest,
    OutcomeUnknown,
    Ready,
    Refused,
    Standing,
    State,
    Store,
    StoreUnavailable,
)
from manifest_platform.manifest.store import ABSENT, Put
from manifest_platform.manifest.stores import open_store
from manifest_platform_tests.effort import cases
from manifest_platform_tests.manifest.given import DONE, LOAD, Clock, dump, kill
from manifest_platform_tests.manifest.loader import Apart, Commit, Loader, Sink, shred
from manifest_platform_tests.manifest.test_answers import Day
from manifest_platform_tests.manifest.vault import HOUR, INCR, claim, counters, key, land, refolded, vault
from manifest_platform_tests.servers.proxy import (
    Chooser,
    Fault,
    Proxy,
    at,
    first_attempts,
    from_on,
    nothing,
    once_each,
    proxied,
    then,
)

pytestmark = [pytest.mark.long, pytest.mark.every_store, pytest.mark.timeout(600)]

DRIVER = ["postgresql", "dynamodb"]


@pytest.fixture
def proxy(store_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of the server that a store's URL names."""
    if store_url.startswith("dynamodb:"):
        monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.0)  # botocore retries without pauses
        endpoint = urlsplit(parse_qs(urlsplit(store_url).query)["endpoint"][0])
        with proxied(lambda: socket.create_connection((endpoint.hostname, endpoint.port)), is_http=True) as running:
            yield running
        return
    path = str(request.getfixturevalue("postgres_server").socket_folder / ".s.PGSQL.5432")

    def connect() -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.connect(path)
        return server

    with proxied(connect, is_http=False) as running:
        yield running


@pytest.fixture
def far(store_url: str, store: Store, proxy: Proxy) -> Iterator[Store]:
    """The same store as `store`, behind the proxy."""
    parts = urlsplit(store_url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme == "dynamodb":
        query["endpoint"] = f"http://127.0.0.1:{proxy.port}"
    else:
        del query["host"]
        query |= {"sslmode": "disable", "gssencmode": "disable"}
        parts = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}")
    opened = open_store(urlunsplit(parts._replace(query=urlencode(query, quote_via=quote))))
    yield opened
    proxy.choose(nothing)
    opened.close()


def day(store: Store, partition: str, proxy: Proxy, fault: Chooser | None = None) -> Manifest:
    """A working day that uses every operation. Each step meets `fault`; a step that reports it is retried without the fault."""
    working = Day(Apart(store, partition))
    for step in working.steps():
        if fault:
            proxy.choose(fault)
        try:
            step()
        except (StoreUnavailable, OutcomeUnknown):
            proxy.choose(nothing)
            step()
    if fault:
        proxy.choose(nothing)
    return working.manifest


def told(of: Manifest) -> list[tuple]:
    """The whole manifest without the end of leases: a lease whose release was lost ends by expiry."""
    return [(sort, {**data, "expires_at": None} if sort.startswith("LEASE#") else data) for sort, data in dump(of)]


REPEATED = [Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.THROTTLED, Fault.FAILED_AFTERWARDS, Fault.CONFLICT]


@pytest.mark.thorough
@pytest.mark.stores("dynamodb")
def test_an_automatic_repeat_of_the_client_makes_no_difference(store: Store, far: Store, proxy: Proxy) -> None:
    """Each request meets a fault first, and botocore repeats it, so the repeat finds the result of the first request."""
    wanted = dump(day(store, "smooth", proxy))
    for fault in REPEATED[: cases(2, len(REPEATED))]:
        proxy.choose(once_each(fault) if fault is Fault.CONFLICT else first_attempts(fault))
        of = day(far, fault, proxy)
        assert proxy.met >= (45 if fault is Fault.CONFLICT else 100), fault
        assert dump(of) == wanted, fault
    proxy.choose(nothing)


@pytest.mark.thorough
@pytest.mark.stores(*DRIVER)
def test_an_operation_whose_request_is_lost_is_repeated_as_if_it_had_never_been_tried(
    store: Store, far: Store, proxy: Proxy
) -> None:
    wanted = told(day(store, "smooth", proxy))
    for number in count(1, cases(3, 1)):
        before = proxy.total
        of = day(far, f"request {number}", proxy, from_on(number, Fault.REQUEST_LOST))
        assert told(of) == wanted, f"from request {number} of each operation on"
        if proxy.total == before:
            break
    assert number > 4


@pytest.mark.stores("postgresql")
def test_a_commit_whose_answer_is_lost_makes_no_difference(store: Store, far: Store, proxy: Proxy) -> None:
    wanted = told(day(store, "smooth", proxy))
    proxy.choose(lambda _number, request: Fault.ANSWER_LOST if b"COMMIT\0" in request else None)
    of = day(far, "far", proxy)
    assert proxy.met > 40
    proxy.choose(nothing)
    assert told(of) == wanted


@pytest.mark.stores(*DRIVER)
def test_a_write_that_happened_is_never_reported_as_not_written(store: Store, far: Store, proxy: Proxy) -> None:
    writes = [Put("a", {}, ABSENT), Put("b", {}, ABSENT)]
    unknown = 0
    for number in count(1):
        proxy.choose(then(number, Fault.ANSWER_LOST, Fault.REQUEST_LOST))
        try:
            far.transact(f"partition {number}", writes, f"token {number}")
        except (StoreUnavailable, OutcomeUnknown) as error:
            happened = store.get(f"partition {number}", "a") is not None
            assert not happened or isinstance(error, OutcomeUnknown), f"request {number}"
            unknown += happened
        else:
            break
    assert unknown, "the write was carried out in none of the cases"


STRIDE = {"postgresql": cases(16, 1), "dynamodb": cases(5, 1)}
"""The step between the points at which the network breaks. For PostgreSQL each statement of a transaction is a point."""


@dataclass
class Shift:
    """Processes that land, shred and load two windows; each dies of the first error of the store."""

    of: Manifest
    clock: Clock
    sink: Sink

    def work(self, *, stumbles: bool = False) -> None:
        """Runs one process as far as it gets. With `stumbles`, its first load meets a transient fault of the sink."""
        land(self.of, INCR, 1, 2, shredded=False)
        shred(self.of, INCR, 2)
        loader = Loader(self.of, INCR, self.sink)
        chances = chain(["commits"] * 3 + ["stumbles"] if stumbles else [], repeat("commits"))
        try:
            while loader.go_on(next(chances)):
                pass
        finally:
            loader.die()

    def the_next_comes_to_rest(self) -> None:
        """Runs new processes after the old leases expired, and asserts that all items are loaded without help."""
        self.clock.turn(2 * HOUR)
        self.work()
        self.clock.turn(2 * HOUR)
        self.work()
        assert self.of.next(INCR, "load") == Idle() == self.of.next(INCR, "shred")
        assert self.sink.commits == [Commit(INCR, key(INCR, number).position, 1, late=False) for number in (1, 2)]
        assert counters(self.of, INCR) == refolded(self.of, INCR)
        assert self.of.state(LOAD).feed(INCR).watermark == key(INCR, 2).position
        assert not [problem for item in self.of.items(INCR) for problem in item.problems]


@pytest.mark.thorough
@pytest.mark.stores(*DRIVER)
@pytest.mark.parametrize("first", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
def test_a_network_that_breaks_at_any_request_leaves_nothing_half_done(
    store: Store, far: Store, proxy: Proxy, store_url: str, first: Fault
) -> None:
    """From its n-th request on a process gets no answers. The server may get the n-th request, and none after it."""
    for number in count(1, STRIDE[store_url.partition(":")[0]]):
        clock, sink = Clock(), Sink()
        proxy.choose(then(number, first, Fault.REQUEST_LOST))
        try:
            Shift(vault(Apart(far, f"{first} {number}"), clock=clock), clock, sink).work(stumbles=True)
        except (StoreUnavailable, OutcomeUnknown):
            pass
        else:
            break
        proxy.choose(nothing)
        Shift(vault(Apart(store, f"{first} {number}"), clock=clock), clock, sink).the_next_comes_to_rest()
    assert number > 30


# Late requests


@dataclass
class Late:
    """A worker whose requests may be late, and a rival whose clock is two hours ahead by then."""

    of: Manifest
    rival: Manifest
    rival_clock: Clock

    def begin(self, operation: str) -> Callable[[], object]:
        """Prepares an operation of the worker, and returns it as a function."""
        of = self.of
        land(self.rival, INCR, 1, 2)
        if operation == "discover":
            return lambda: land(of, INCR, 0, shredded=False)
        if operation == "skip":
            return lambda: of.skip(key(INCR, 2), "not wanted")
        if operation in ("abandon", "adopt"):
            dead = of.acquire(INCR, "load", "dead", timedelta(0))
            claim(of, dead)
            kill(dead)
        held = of.acquire(INCR, "load", "worker", HOUR)
        kill(held)  # no automatic heartbeat
        if operation in ("abandon", "adopt"):
            abandoned = of.unsettled(held)
            assert abandoned
            return (
                (lambda: of.abandon(held, abandoned)) if operation == "abandon" else lambda: of.adopt(held, abandoned, 1, DONE)
            )
        if operation == "claim":
            verdict = of.next(INCR, "load", holding=True)
            assert isinstance(verdict, Ready)
            return lambda: of.claim(held, [verdict.item], verdict.state)
        if operation in ("complete", "fail"):
            open_claim = claim(of, held)
            failure = Failure(FailureKind.PERMANENT, "broken")
            return (lambda: of.complete(open_claim, DONE)) if operation == "complete" else lambda: of.fail(open_claim, failure)
        return {"heartbeat": held.heartbeat, "raise_token": lambda: held.raise_token(7), "release": held.release}[operation]

    def take_over(self) -> None:
        """The rival takes the lease as soon as its clock allows it, and completes all items that it can."""
        self.rival_clock.turn(2 * HOUR)
        with self.rival.acquire(INCR, "load", "rival", HOUR) as held:
            while not isinstance(verdict := self.rival.unsettled(held) or self.rival.next(INCR, "load", holding=True), Idle):
                if isinstance(verdict, Abandoned):
                    self.rival.abandon(held, verdict)
                elif isinstance(verdict, Ready):
                    [claimed] = self.rival.claim(held, [verdict.item], verdict.state)
                    self.rival.complete(claimed, DONE)
                elif verdict.standing is Standing.FAILED:
                    self.rival.resolve(verdict.item.key, "go on")
                else:
                    return

    def check(self) -> None:
        """Asserts that nothing is loaded twice or passed over silently, and that the counters equal what the log says."""
        assert counters(self.rival, INCR) == refolded(self.rival, INCR)
        kept = self.rival.state(LOAD).feed(INCR)
        for item in self.rival.items(INCR):
            assert not item.problems
            assert sum(one.state is State.PROCESSED and one.application == LOAD for one in item.records) <= 1
            passed = item.processed_by(LOAD) or item.skipped_for(LOAD) or item.is_late_for(LOAD)
            assert passed or item.key.position > kept.swept, f"{item.key.name} was passed"


OPERATIONS = ["claim", "heartbeat", "raise_token", "complete", "fail", "abandon", "adopt", "release", "skip", "discover"]
LOSES = (ClaimLost, ConditionFailed, LeaseBusy, Refused, StoreUnavailable, OutcomeUnknown)


@pytest.mark.stores(*DRIVER)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_request_that_arrives_when_another_has_taken_over_changes_nothing(
    store: Store, far: Store, proxy: Proxy, operation: str
) -> None:
    for number in count(1):
        partition, rival_clock = f"{operation} {number}", Clock()
        late = Late(
            vault(Apart(far, partition)), vault(Apart(store, partition), clock=rival_clock, author="rival"), rival_clock
        )
        does = late.begin(operation)
        proxy.choose(at(number, Fault.DELAYED))
        with ThreadPoolExecutor(2) as pool:
            worker = pool.submit(does)
            while not proxy.arrived.wait(0.01) and not worker.done():
                pass
            rival = pool.submit(late.take_over)
            wait([rival], 0.2)  # it may have to wait for the worker's transaction
            proxy.go_on.set()
            for one in (worker, rival):
                with suppress(*LOSES):
                    one.result()
        late.check()
        late.take_over()
        late.check()
        if not proxy.met:
            break
    assert number > 1


# Heartbeats


@pytest.mark.stores(*DRIVER)
def test_a_worker_whose_heartbeats_fail_learns_it_before_its_next_write(store: Store, far: Store, proxy: Proxy) -> None:
    of = Manifest(Apart(far, "cut off"), "vault", vault(store).feeds, "worker")
    land(of, INCR, 1)
    held = of.acquire(INCR, "load", "worker", timedelta(seconds=1.5))
    verdict = of.next(INCR, "load", holding=True)
    assert isinstance(verdict, Ready)
    cancelled = threading.Event()
    with pytest.raises(LeaseLost), held.canceling(cancelled.set):
        proxy.choose(from_on(1, Fault.REQUEST_LOST))
        assert held.lost.wait(20) and cancelled.wait(1)
        held.check()
    proxy.choose(nothing)
    with pytest.raises(LeaseLost):
        of.claim(held, [verdict.item], verdict.state)
    assert proxy.requests == 0, "nothing is asked of the store"
    held.release()
