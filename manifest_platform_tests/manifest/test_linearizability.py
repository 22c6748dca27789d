"""Histories of eight threads are linearizable on every store, and the checker detects histories that are not."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import boto3
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from moto.server import ThreadedMotoServer
from sqlalchemy import Connection

from manifest_platform.manifest import ConditionFailed, OutcomeUnknown, Store, StoreUnavailable
from manifest_platform.manifest.store import ABSENT, Check, Put, Row, Write
from manifest_platform.manifest.stores.dynamodb.store import DynamoDbStore
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.manifest.stores.sql import SqlStore
from manifest_platform_tests.effort import cases
from manifest_platform_tests.manifest.given import LossyStore
from manifest_platform_tests.manifest.linearizability import (
    EMPTY,
    NEVER,
    ROWS,
    Call,
    Get,
    Group,
    Query,
    Recorder,
    Seen,
    Transact,
    Violation,
    Wrote,
    after,
    check,
)

MEMORY = Path("/dev/shm")  # if it exists: a history commits thousands of times


def reads(begin: int, end: int, row: int, answer: Seen | None) -> Call:
    return Call(0, begin, end, Get(row, answer))


def reads_all(begin: int, end: int, *answer: Seen | None) -> Call:
    return Call(0, begin, end, Query(answer))


def writes(begin: int, end: int, *did: Wrote, failed: tuple[Wrote, ...] | None = (), token: int | None = None) -> Call:
    return Call(1, begin, end, Transact(did, token, failed))


def put(row: int, expected: int, value: int) -> Wrote:
    return Wrote(row, expected, value)


ONE, TWO = Seen(1, 10), Seen(2, 20)
FIRST, SECOND = put(0, 0, 10), put(0, 1, 20)
BOTH = (put(0, 0, 10), put(1, 0, 10))

GOOD = {
    "nothing": [],
    "one after the other": [reads(0, 1, 0, None), writes(2, 3, FIRST), reads(4, 5, 0, ONE), writes(6, 7, SECOND)],
    "who reads meanwhile may see either": [writes(0, 9, FIRST), reads(1, 2, 0, None), reads(3, 4, 0, ONE)],
    "of two that want the same one wins": [writes(0, 9, FIRST), writes(0, 9, put(0, 0, 11), failed=(put(0, 0, 11),))],
    "who lost saw who won, and that before he returned": [
        *[writes(5, 9, FIRST), writes(0, 7, put(0, 0, 11), failed=(put(0, 0, 11),)), reads(0, 4, 0, None)],
    ],
    "a version starts anew after a delete": [writes(0, 1, FIRST), writes(2, 3, Wrote(0, 1)), writes(4, 5, put(0, 0, 30))],
    "a check holds and writes nothing": [writes(0, 1, FIRST), writes(2, 3, Wrote(0, 1, checks=True), put(1, 0, 5))],
    "rows of one transaction appear together": [writes(0, 9, *BOTH), reads_all(1, 2, None, None, None), reads(3, 4, 1, ONE)],
    "an unanswered write may have happened": [writes(0, NEVER, FIRST, failed=None), reads(5, 6, 0, ONE)],
    "or not": [writes(0, NEVER, FIRST, failed=None), reads(5, 6, 0, None), writes(7, 8, put(0, 0, 11))],
    "or late": [writes(0, NEVER, FIRST, failed=None), reads(5, 6, 0, None), reads(7, 8, 0, ONE)],
    "a repeat of a token writes nothing": [
        *[writes(0, 1, FIRST, token=7), writes(2, 3, SECOND), writes(4, 5, FIRST, token=7), reads(6, 7, 0, TWO)],
    ],
    "a token that failed may be tried again": [
        *[writes(0, 1, FIRST), writes(2, 3, put(0, 0, 11), failed=(put(0, 0, 11),), token=7), writes(4, 5, Wrote(0, 1))],
        *[writes(6, 7, put(0, 0, 11), token=7), reads(8, 9, 0, Seen(1, 11))],
    ],
    "a repeat of a single write to a lasting row may succeed or fail once it is overwritten": [
        *[writes(0, 1, put(2, 0, 10), token=7), writes(2, 3, put(2, 1, 20)), writes(4, 5, put(2, 0, 10), token=7)],
        writes(6, 7, put(2, 0, 10), failed=(put(2, 0, 10),), token=7),
    ],
    "many at once": [writes(0, 99, put(0, version, version)) for version in range(7)],
}

BAD = {
    "a stale read": [writes(0, 1, FIRST), reads(2, 3, 0, None)],
    "a read from the future": [reads(0, 1, 0, ONE), writes(2, 3, FIRST)],
    "a read of what was never written": [writes(0, 1, FIRST), reads(2, 3, 0, TWO)],
    "two readers that disagree on the order": [writes(0, 9, FIRST), reads(1, 2, 0, ONE), reads(3, 4, 0, None)],
    "two that succeed on one version": [writes(0, 9, FIRST), writes(0, 9, put(0, 0, 11))],
    "a lost update": [writes(0, 1, FIRST), writes(2, 3, SECOND), reads(4, 5, 0, ONE)],
    "a success that wrote nothing": [writes(0, 1, FIRST), reads(2, 3, 0, None), writes(4, 5, put(0, 0, 11))],
    "a refusal that wrote": [writes(0, 1, FIRST, failed=(FIRST,)), reads(2, 3, 0, ONE)],
    "a refusal without a reason": [writes(0, 1, FIRST, failed=(FIRST,)), reads(2, 3, 0, None)],
    "a refusal that names the wrong write": [writes(0, 1, FIRST), writes(2, 3, FIRST, put(1, 0, 5), failed=(put(1, 0, 5),))],
    "a refusal that names too few": [writes(0, 1, *BOTH), writes(2, 3, *BOTH, failed=BOTH[:1])],
    "a refusal for two moments at once": [
        *[writes(0, 1, FIRST), writes(2, 9, Wrote(0, 2), put(1, 0, 5), failed=(Wrote(0, 2), put(1, 0, 5)))],
        *[writes(3, 4, Wrote(0, 1), put(1, 0, 6)), writes(5, 6, Wrote(1, 1))],
    ][:2],
    "half a transaction": [writes(0, 9, *BOTH), reads(1, 2, 0, ONE), reads(3, 4, 1, None)],
    "half a transaction in one query": [writes(0, 9, *BOTH), reads_all(1, 2, ONE, None, None)],
    "half a transaction whose answer was lost": [writes(0, NEVER, *BOTH, failed=None), reads_all(1, 2, None, ONE, None)],
    "an unanswered write that happened twice": [
        *[writes(0, NEVER, FIRST, failed=None), reads(1, 2, 0, ONE), writes(3, 4, Wrote(0, 1)), reads(5, 6, 0, ONE)],
    ],
    "a repeat of a token that wrote": [
        *[writes(0, 1, FIRST, token=7), writes(2, 3, Wrote(0, 1)), writes(4, 5, FIRST, token=7), reads(6, 7, 0, ONE)],
    ],
    "a repeat of a token that was refused": [writes(0, 1, FIRST, token=7), writes(2, 3, FIRST, failed=(FIRST,), token=7)],
    "a repeat of a single write to a lasting row that was refused though nobody wrote it since": [
        *[writes(0, 1, put(2, 0, 10), token=7), writes(2, 3, put(2, 0, 10), failed=(put(2, 0, 10),), token=7)],
    ],
    "a check that did not hold": [writes(0, 1, Wrote(0, 1, checks=True))],
    "a delete that others do not see": [writes(0, 1, FIRST), writes(2, 3, Wrote(0, 1)), reads(4, 5, 0, ONE)],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD.keys())
def test_a_history_that_has_an_order_is_linearizable(history: list[Call]) -> None:
    assert check(history) is None


@pytest.mark.parametrize("history", BAD.values(), ids=BAD.keys())
def test_a_history_without_an_order_is_a_violation(history: list[Call]) -> None:
    assert check(history)


def test_a_violation_is_reported_with_as_few_calls_as_necessary() -> None:
    before = [writes(0, 1, FIRST), reads(2, 3, 0, ONE), writes(4, 5, SECOND)]
    beside = [reads(6, 20, 1, None), reads_all(7, 20, TWO, None, None)]
    stale = reads(8, 9, 0, ONE)
    found = check([*before, *beside, stale, reads(30, 31, 0, TWO)], group=3)
    assert found == Violation(3, Group((TWO, None, None)), (stale,))
    assert str(found).splitlines() == [
        "group 3: no order explains these calls on a = 20 (version 2), b = absent, c = absent",
        "           0 .. 1          thread 0: get a -> 10 (version 1)",
    ]


def test_an_open_write_stays_in_a_violation_after_all_other_calls_have_returned() -> None:
    slow, impossible = writes(0, 50, SECOND), reads(5, 6, 0, Seen(2, 99))
    found = check([slow, writes(1, 2, FIRST), reads(3, 4, 0, ONE), impossible])
    assert found == Violation(0, Group((ONE, None, None)), (slow, impossible))


def has_an_order(history: Sequence[Call], group: Group = EMPTY) -> bool:
    """The expected result of `check`, found by trying every order of the calls."""
    if all(call.end == NEVER for call in history):
        return True
    first = min(call.end for call in history)
    for call in history:
        changed = after(group, call.did) if call.begin <= first else None
        if changed is not None and has_an_order([other for other in history if other is not call], changed):
            return True
    return False


row = st.integers(0, 1)


@st.composite
def histories(draw: st.DrawFn) -> list[Call]:
    """Calls that were answered one after the other, with longer durations. Some get the answer of an earlier moment."""
    group, history = EMPTY, list[Call]()
    past = [group]
    for at in range(draw(st.integers(2, 6))):
        told = draw(st.sampled_from([*past, group, group]))
        did: Get | Query | Transact
        if draw(st.integers(0, 4)) < 3:
            versions = [one.version if one else ABSENT for one in told.rows]
            did = Transact(tuple(draw(writes_on(versions))), draw(st.sampled_from([None, None, 7])))
            wrong = tuple(one for one in did.writes if versions[one.row] != one.expected)
            did = dataclasses.replace(did, failed=() if did.token in told.tokens else wrong)
            group = after(group, did) or group
            past.append(group)
            if draw(st.integers(0, 7)) == 0 and not did.failed:
                history.append(Call(at, 10 * at, NEVER, dataclasses.replace(did, failed=None)))
                continue
        else:
            read = draw(row)
            did = draw(st.sampled_from([Get(read, told.rows[read]), Query(told.rows)]))
        history.append(Call(at, 10 * at - draw(st.integers(0, 25)), 10 * at + draw(st.integers(0, 25)), did))
    return history


@st.composite
def writes_on(draw: st.DrawFn, versions: Sequence[int]) -> list[Wrote]:
    expected = [draw(st.sampled_from([version, version, version, 1])) for version in versions]
    some = draw(st.sampled_from([[0], [0], [1], [0, 1]]))
    return [
        Wrote(at, expected[at], draw(st.integers(1, 9)) if expected[at] == 0 or draw(st.booleans()) else None) for at in some
    ]


@settings(max_examples=cases(60, 600), deadline=None, derandomize=True)
@given(histories())
def test_the_checker_agrees_with_trying_every_order(history: list[Call]) -> None:
    event(f"{len(history)} calls, {'in order' if has_an_order(history) else 'a violation'}")
    found = check(history)
    assert (found is None) == has_an_order(history)
    assert found is None or not has_an_order(found.calls, found.start)


# Recorded histories


def violations(store: Store, operations: int, *, groups: int, threads: int = 8, **options: bool) -> list[Violation]:
    """The violations in the history of several threads on a store, the smallest first."""
    recorder = Recorder(store, 1, **options)
    histories = recorder.record(operations, groups=groups, threads=threads)
    done = sum(len(history) for history in histories.values())
    assert done + recorder.unavailable >= operations * 0.95
    assert recorder.unavailable <= done / 50, "who is refused all the time shows nothing"
    found = [violation for group, history in histories.items() if (violation := check(history, group))]
    return sorted(found, key=lambda one: len(one.calls))


class Erring(LossyStore):
    """A store that makes errors of one kind at random moments."""

    def __init__(self, store: Store, way: str):
        super().__init__(store, "none", at=0)
        self.way, self.random = way, Random(way)
        self.rows: dict[str, Row] = {}

    def errs(self) -> bool:
        return self.random.random() < 0.05

    def get(self, partition: str, sort: str) -> Row | None:
        if self.way == "reads from a cache" and sort in self.rows and self.errs():
            return self.rows[sort]
        row = super().get(partition, sort)
        if row:
            self.rows[sort] = row
        return row

    def query(self, partition: str, prefix: str, **bounds: Any) -> list[Row]:
        if self.way != "queries row by row":
            return super().query(partition, prefix, **bounds)
        rows = [self.get(partition, f"{prefix}{row}") for row in reversed(ROWS)]
        return [row for row in reversed(rows) if row]

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        if self.way == "writes in two steps":
            super().transact(partition, writes[:1], f"{token} 1")
            return super().transact(partition, writes[1:], f"{token} 2") if writes[1:] else None
        if self.way == "forgets a write" and self.errs():
            return None
        if self.way == "forgets tokens":
            token = f"{token} {self.random.random()}"
        if self.way == "refuses after it wrote" and self.errs():
            super().transact(partition, writes, token)
            raise ConditionFailed(writes)
        if self.way == "is unavailable after it wrote" and self.errs():
            super().transact(partition, writes, token)
            raise StoreUnavailable("no connection")
        if self.way == "loses answers" and self.errs():
            if self.errs():
                raise OutcomeUnknown("connection reset")
            with suppress(ConditionFailed):
                super().transact(partition, writes, token)
            raise OutcomeUnknown("connection reset")
        return super().transact(partition, writes, token)


WAYS = [
    *("reads from a cache", "queries row by row", "writes in two steps", "forgets a write", "forgets tokens"),
    *("refuses after it wrote", "is unavailable after it wrote"),
]


@pytest.fixture
def sqlite() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        store = SqlStore(f"sqlite:///{folder}/manifest.db")
        yield store
        store.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_faulty_store_is_detected(sqlite: Store, way: str) -> None:
    found = violations(Erring(sqlite, way), 2_000, groups=10)
    assert found, f"a store that {way} passes"
    print(found[0])  # noqa: T201


def test_a_store_that_only_loses_answers_is_not_faulty(sqlite: Store) -> None:
    assert not violations(Erring(sqlite, "loses answers"), 2_000, groups=10)


def test_queries_that_are_only_consistent_by_row_may_read_row_by_row(sqlite: Store) -> None:
    assert not violations(Erring(sqlite, "queries row by row"), 2_000, groups=10, atomic_queries=False)


# Real stores

SHARE = cases(50, 1)
OPERATIONS = {"sqlite": 100_000, "postgresql": 100_000, "dynamodb": 20_000}
"""Operations of the whole test suite; a normal test run executes a part of them."""


@pytest.mark.thorough
@pytest.mark.every_store
@pytest.mark.timeout(1800)
def test_the_history_of_eight_threads_on_a_store_is_linearizable(request: pytest.FixtureRequest, store_url: str) -> None:
    driver = store_url.partition(":")[0]
    store = request.getfixturevalue("sqlite" if driver == "sqlite" else "store")
    operations = OPERATIONS[driver] // SHARE
    found = violations(store, operations, groups=operations // 400, atomic_queries=driver != "dynamodb")
    assert not found, str(found[0])


class Halting(SqlStore):
    """A store whose transactions pause between their first write and the others until `go_on` is set, for 5 seconds at most."""

    def __init__(self, url: str):
        self.halted, self.go_on = threading.Event(), threading.Event()
        super().__init__(url)

    def _apply(self, connection: Connection, partition: str, write: Write) -> bool:
        if isinstance(write, Put):
            self.halted.set()
            self.go_on.wait(5)
        return super()._apply(connection, partition, write)


@pytest.mark.stores("sqlite", "postgresql")
def test_a_checked_version_stays_valid_until_the_transaction_is_visible(store: Store, store_url: str) -> None:
    """Two transactions may be serializable in an order that a reader between them disproves."""
    halting = Halting(store_url)
    for batch in range(10):  # in a small table, PostgreSQL would take all rows of a page for related
        store.transact("p", [Put(f"{batch} {number}", {}, ABSENT) for number in range(100)], f"{batch}")
    store.transact("p", [Put("checked", {}, ABSENT)], "begin")
    with ThreadPoolExecutor(2) as pool:
        checks = pool.submit(halting.transact, "p", [Check("checked", 1), Put("0 written", {}, ABSENT)], "check and write")
        assert halting.halted.wait(5)
        changes = pool.submit(store.transact, "p", [Put("checked", {}, 1)], "a change")
        wait([changes], 0.5)
        seen = {row.sort: row.version for row in store.query("p", "checked")}
        halting.go_on.set()
        refused = isinstance(checks.exception(), ConditionFailed)
        changes.result()
    halting.close()
    assert seen == {"checked": 1} or refused, "it wrote after others had seen that its check held no more"


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The DynamoDB of moto, which ignores conditions and breaks transactions under concurrent requests."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    url = f"dynamodb://histories?region=eu-west-1&endpoint=http://{host}:{port}"
    create_table(url)
    store = DynamoDbStore(url)
    yield store
    store.close()
    server.stop()


def test_the_checker_detects_motos_faults_under_concurrent_requests(moto: Store) -> None:
    assert not violations(moto, 150, groups=1, threads=1, repeats=False), "one after the other, moto errs in nothing"
    found = violations(moto, 320, groups=2, repeats=False, atomic_queries=False)
    assert found
    print(found[0])  # noqa: T201
