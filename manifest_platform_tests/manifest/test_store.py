"""What every driver must do. Whoever adds a driver adds it to `conftest.DRIVERS`, and nothing here."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifest_platform.manifest import ConditionFailed, OutcomeUnknown, Store, StoreUnavailable
from manifest_platform.manifest.sql import SqlStore
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, Check, Delete, Put, Write, transact_once
from manifest_platform_tests.manifest.given import LossyStore

HERE = "partition"


def put(store: Store, *sorts: str, partition: str = HERE) -> None:
    for sort in sorts:
        store.transact(partition, [Put(sort, {"of": sort}, ABSENT)], f"put {partition} {sort}")


def sorts(store: Store, prefix: str = "", **bounds) -> list[str]:
    return [row.sort for row in store.query(HERE, prefix, **bounds)]


def test_a_row_comes_back_as_it_was_put(store: Store) -> None:
    data = {"text": "Grüße \U0001f600 \ud800 \x00", "list": [1, None, 2.5, {"deep": True}], "": ""}
    store.transact(HERE, [Put("a", data, ABSENT)], "1")
    row = store.get(HERE, "a")
    assert row and (row.partition, row.sort, row.version, row.data) == (HERE, "a", 1, data)


def test_there_is_no_row_before_it_is_put_nor_in_another_partition(store: Store) -> None:
    put(store, "a")
    assert store.get(HERE, "b") is None
    assert store.get("elsewhere", "a") is None
    assert store.query("elsewhere", "") == []


def test_a_version_grows_by_one_with_every_put_and_starts_anew_after_a_delete(store: Store) -> None:
    for version in range(3):
        store.transact(HERE, [Put("a", {"at": version}, version)], f"put {version}")
        row = store.get(HERE, "a")
        assert row and (row.version, row.data) == (version + 1, {"at": version})
    store.transact(HERE, [Delete("a", 3)], "delete")
    assert store.get(HERE, "a") is None
    store.transact(HERE, [Put("a", {}, ABSENT)], "again")
    row = store.get(HERE, "a")
    assert row and row.version == 1


def test_rows_come_in_bytewise_order_and_only_with_the_prefix(store: Store) -> None:
    wanted = ["P#$", "P#-", "P#0", "P#A", "P#Z", "P#_", "P#a", "P#a#1", "P#a$", "P#z", "P#~", "P#~~"]
    put(store, "O#zz", "P", "P$", "Q#a", "p#a", *reversed(wanted))
    assert sorts(store, "P#") == wanted
    assert sorts(store, "P#", reverse=True) == wanted[::-1]
    assert sorts(store, "P#a") == ["P#a", "P#a#1", "P#a$"]
    assert sorts(store, "P#~") == ["P#~", "P#~~"]


def test_after_bounds_from_below_or_in_reverse_from_above_and_need_not_exist(store: Store) -> None:
    put(store, "P#a", "P#b", "P#c", "R#a")
    assert sorts(store, "P#", after="P#a") == ["P#b", "P#c"]
    assert sorts(store, "P#", after="P#a#~") == ["P#b", "P#c"]
    assert sorts(store, "P#", after="P#c") == []
    assert sorts(store, "P#", after="A") == ["P#a", "P#b", "P#c"]
    assert sorts(store, "P#", after="P#c", reverse=True) == ["P#b", "P#a"]
    assert sorts(store, "P#", after="Z", reverse=True) == ["P#c", "P#b", "P#a"]
    assert sorts(store, "P#", after="A", reverse=True) == []


def test_pages_put_together_are_the_whole(store: Store) -> None:
    put(store, *(f"P#{number:03d}" for number in range(25)))
    for reverse in (False, True):
        whole, pages = sorts(store, "P#", reverse=reverse), []
        while page := sorts(store, "P#", after=pages[-1] if pages else None, limit=4, reverse=reverse):
            assert len(page) <= 4
            pages += page
        assert pages == whole and len(whole) == 25


keys = st.text(st.characters(min_codepoint=0x23, max_codepoint=0x7E), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(keys, max_size=12), keys, st.none() | keys, st.none() | st.integers(1, 5), st.booleans())
def test_a_query_is_a_filter_of_the_sorted_keys(store: Store, rows, prefix, after, limit, reverse) -> None:
    partition = str(uuid4())
    put(store, *rows, partition=partition)
    wanted = [sort for sort in sorted(rows, reverse=reverse) if sort.startswith(prefix)]
    wanted = [sort for sort in wanted if after is None or (sort < after if reverse else sort > after)]
    found = store.query(partition, prefix, after=after, limit=limit, reverse=reverse)
    assert [row.sort for row in found] == wanted[:limit]


@pytest.mark.parametrize(
    ("write", "holds"),
    [
        (Put("there", {}, ABSENT), False),
        (Put("there", {}, 1), True),
        (Put("there", {}, 2), False),
        (Put("gone", {}, ABSENT), True),
        (Put("gone", {}, 1), False),
        (Delete("there", 1), True),
        (Delete("there", 2), False),
        (Delete("gone", 1), False),
        (Check("there", 1), True),
        (Check("there", ABSENT), False),
        (Check("there", 2), False),
        (Check("gone", ABSENT), True),
        (Check("gone", 1), False),
    ],
)
def test_a_write_rests_on_its_rows_version_and_all_are_done_or_none(store: Store, write: Write, holds: bool) -> None:
    put(store, "there", "bystander")
    before = store.query(HERE, "")
    writes = [Put("first", {}, ABSENT), Delete("bystander", 1), write, Put("last", {}, ABSENT)]
    if holds:
        store.transact(HERE, writes, "token")
        assert store.get(HERE, "first") and store.get(HERE, "last") and not store.get(HERE, "bystander")
        return
    with pytest.raises(ConditionFailed) as error:
        store.transact(HERE, writes, "token")
    assert error.value.failed == (write,)
    assert store.query(HERE, "") == before


def test_every_write_that_did_not_hold_is_named(store: Store) -> None:
    put(store, "a", "b")
    wrong = [Put("a", {}, ABSENT), Check("b", 7), Delete("c", 1)]
    with pytest.raises(ConditionFailed, match=r"a .*b .*c ") as error:
        store.transact(HERE, [wrong[0], Check("a-b", ABSENT), wrong[1], wrong[2]], "token")
    assert error.value.failed == tuple(wrong)


def test_a_repeat_with_the_same_token_succeeds_and_writes_once(store: Store) -> None:
    write = [Put("a", {"at": 1}, ABSENT)]
    store.transact(HERE, write, "token")
    store.transact(HERE, write, "token")
    row = store.get(HERE, "a")
    assert row and row.version == 1
    with pytest.raises(ConditionFailed):
        store.transact(HERE, write, "another token")


def test_a_token_that_failed_may_be_tried_again(store: Store) -> None:
    put(store, "a")
    with pytest.raises(ConditionFailed):
        store.transact(HERE, [Put("a", {}, ABSENT)], "token")
    store.transact(HERE, [Delete("a", 1)], "delete")
    store.transact(HERE, [Put("a", {}, ABSENT)], "token")
    assert store.get(HERE, "a")


def test_a_transaction_holds_a_hundred_writes_and_no_more(store: Store) -> None:
    writes = [Put(f"{number:03d}", {}, ABSENT) for number in range(MAX_WRITES + 1)]
    with pytest.raises(ValueError, match="101 writes"):
        store.transact(HERE, writes, "too many")
    assert store.query(HERE, "") == []
    store.transact(HERE, writes[:-1], "just so")
    assert len(store.query(HERE, "")) == MAX_WRITES


def test_two_writes_to_one_row_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="row of its own"):
        store.transact(HERE, [Check("a", ABSENT), Put("a", {}, ABSENT)], "token")
    assert store.get(HERE, "a") is None


def test_what_is_written_is_there_for_the_next_who_opens(store: Store, reopen: Callable[[], Store]) -> None:
    put(store, "a")
    store.close()
    again = reopen()
    row = again.get(HERE, "a")
    assert row and row.data == {"of": "a"}
    with pytest.raises(ConditionFailed):
        again.transact(HERE, [Put("a", {}, ABSENT)], "late")
    again.close()


def race(store: Store, who: str, rounds: int, start: Callable[[], object]) -> int:
    """How many of the rounds this racer won: each is a put over one version, together with a row of the winner's name."""
    start()
    won = 0
    for version in range(rounds):
        try:
            store.transact(
                HERE, [Put("prize", {"who": who}, version), Put(f"won {version:03d}", {"who": who}, ABSENT)], f"{who} {version}"
            )
            won += 1
        except ConditionFailed:
            pass
    return won


def test_of_eight_threads_exactly_one_wins_each_round(store: Store) -> None:
    rounds, start = 12, threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        racers = [pool.submit(race, store, f"t{number}", rounds, start.wait) for number in range(8)]
        won = sum(racer.result() for racer in racers)
    prize = store.get(HERE, "prize")
    assert prize and won == prize.version == len(store.query(HERE, "won "))


def _race_in_process(folder: str, who: str, start, results) -> None:
    store = SqlStore(f"sqlite:///{folder}/manifest.db")  # opening a fresh file races too
    results.put(race(store, who, 12, start.wait))
    store.close()


def test_of_two_processes_exactly_one_wins_each_round(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(2), context.Queue()
    racers = [context.Process(target=_race_in_process, args=(str(tmp_path), f"p{n}", start, results)) for n in range(2)]
    for racer in racers:
        racer.start()
    won = sum(results.get(timeout=60) for _ in racers)
    for racer in racers:
        racer.join()
        assert racer.exitcode == 0
    store = SqlStore(f"sqlite:///{tmp_path}/manifest.db")
    prize = store.get(HERE, "prize")
    assert prize and won == prize.version == len(store.query(HERE, "won "))


def test_many_may_open_a_fresh_file_at_once(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def open_one(name: str) -> None:
        start.wait()
        SqlStore(f"sqlite:///{tmp_path}/{name}.db").close()

    with ThreadPoolExecutor(8) as pool:
        for name in map(str, range(20)):
            for opened in [pool.submit(open_one, name) for _ in range(8)]:
                opened.result()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "postgresql://host/db"])
def test_a_store_that_is_no_file_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="SQLite file"):
        SqlStore(url)


def test_a_database_that_stays_locked_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform.manifest.sql.BUSY_TIMEOUT_S", 0.1)
    store, other = (SqlStore(f"sqlite:///{tmp_path}/manifest.db") for _ in range(2))
    with other._engine.begin() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            put(store, "a")
        assert store.query(HERE, "") == []  # readers go on
    put(store, "a")
    assert sorts(store) == ["a"]


def _no_database(path: Path) -> Path:
    path.write_bytes(b"an order of events, but no database " * 100)
    return path


@pytest.mark.parametrize(
    ("of", "says"),
    [
        (_no_database, "not a database: name another path"),
        (lambda path: _no_database(path) / "manifest.db", "its directory cannot be made .*name a path"),
        (lambda path: _no_database(path) / "below" / "manifest.db", "its directory cannot be made .*name a path"),
        (lambda path: path.parent, "unable to open database file: make file and directory writable"),
    ],
)
def test_a_store_that_cannot_be_opened_is_unavailable_and_says_where_and_what_to_do(
    tmp_path: Path, of: Callable[[Path], Path], says: str
) -> None:
    path = of(tmp_path / "manifest.db")
    with pytest.raises(StoreUnavailable, match=f"^manifest store {path}: .*{says}"):
        SqlStore(f"sqlite:///{path}")


def test_a_file_that_is_locked_while_it_is_opened_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform.manifest.sql.BUSY_TIMEOUT_S", 0.1)
    path = tmp_path / "manifest.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match=f"{path}: database is locked: another process"):
            SqlStore(f"sqlite:///{path}")
        other.execute("ROLLBACK")
    SqlStore(f"sqlite:///{path}").close()


def test_a_file_that_is_spoilt_while_it_is_used_is_unavailable(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/manifest.db")
    store.close()
    _no_database(tmp_path / "manifest.db")
    with pytest.raises(StoreUnavailable, match="not a database"):
        put(store, "a")
    with pytest.raises(StoreUnavailable, match="not a database"):
        store.get(HERE, "a")


# A write whose answer is lost


def own(mark: str = "mine", expected: int = ABSENT) -> list[Write]:
    return [Put("a", {"mark": mark}, expected), Put("b", {}, ABSENT)]


@pytest.mark.parametrize("fault", ["answer lost", "repeat refused"])
def test_an_own_write_is_recognised_where_the_answer_is_lost(store: Store, fault: str) -> None:
    transact_once(LossyStore(store, fault, at=1), HERE, own(), "mark")
    assert sorts(store) == ["a", "b"]


def test_a_request_that_was_lost_is_no_success(store: Store) -> None:
    with pytest.raises(StoreUnavailable):
        transact_once(LossyStore(store, "request lost", at=1), HERE, own(), "mark")
    assert sorts(store) == []


def test_somebody_elses_write_is_not_taken_for_an_own_one(store: Store) -> None:
    transact_once(store, HERE, own("theirs"), "mark")
    with pytest.raises(ConditionFailed):
        transact_once(store, HERE, own("mine"), "mark")


def test_an_answer_that_is_lost_and_cannot_be_read_back_stays_unknown(store: Store) -> None:
    with pytest.raises(OutcomeUnknown, match="neither answered nor read back"):
        transact_once(LossyStore(store, "deaf", at=1), HERE, own(), "mark")
    assert sorts(store) == ["a", "b"]
