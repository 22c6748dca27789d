"""The contract of a manifest store, as tests: subclass `SharedStoreContract` and define the fixture `store_url`.

`store_url` is the URL of a store that is created and empty, a different one for each test. The suite opens it with
`open_store`, so that the driver's entry point is tested as well.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifest_platform.manifest.store import (
    ABSENT,
    MAX_WRITES,
    Check,
    ConditionFailed,
    Delete,
    Put,
    Store,
    StoreRejected,
    Write,
)
from manifest_platform.manifest.stores import check_store, create_store, open_store

HERE = "partition"


def put(store: Store, *sorts: str, partition: str = HERE) -> None:
    for sort in sorts:
        store.transact(partition, [Put(sort, {"of": sort}, ABSENT)], f"put {partition} {sort}")


def sorts(store: Store, prefix: str = "", **bounds) -> list[str]:
    return [row.sort for row in store.query(HERE, prefix, **bounds)]


KEYS = st.text(st.characters(min_codepoint=0x23, max_codepoint=0x7E), min_size=1, max_size=4)
EXAMPLES = 12
SHARED = (HealthCheck.function_scoped_fixture, HealthCheck.differing_executors)
"""The examples of a test share a store, each with its own partition; a subclass runs the tests of this class."""


def race(store: Store, who: str, rounds: int, start: Callable[[], object]) -> int:
    """Returns the number of rounds that this racer won. A round puts a row over one version, and a row of the winner."""
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


class StoreContract:
    """The contract of a store for a single process. Such a store is for tests only: the platform's workers are processes."""

    @pytest.fixture
    def reopen(self, store_url: str) -> Callable[[], Store]:
        """A function that opens the same store again."""
        return lambda: open_store(store_url)

    @pytest.fixture
    def store(self, reopen: Callable[[], Store]) -> Iterator[Store]:
        """The store, closed after the test."""
        opened = reopen()
        yield opened
        opened.close()

    def test_creating_the_store_again_changes_nothing(self, store: Store, store_url: str) -> None:
        put(store, "a")
        assert not create_store(store_url).made
        assert check_store(store_url).differences == []
        assert sorts(store) == ["a"]

    def test_a_row_is_read_back_unchanged(self, store: Store) -> None:
        data = {"text": "Grüße \U0001f600 \ud800 \x00", "list": [1, None, 2.5, {"deep": True}], "": ""}
        store.transact(HERE, [Put("a", data, ABSENT)], "1")
        row = store.get(HERE, "a")
        assert row and (row.partition, row.sort, row.version, row.data) == (HERE, "a", 1, data)

    @pytest.mark.parametrize("number", [0, -1, 2**53 + 1, 10**40, 0.1, 1e308, 5e-324, -0.0, float("inf"), True, None])
    def test_a_number_is_read_back_unchanged(self, store: Store, number: object) -> None:
        store.transact(HERE, [Put("a", {"number": number}, ABSENT)], "1")
        row = store.get(HERE, "a")
        assert row and (repr(row.data["number"]), store.query(HERE, "a")) == (repr(number), [row])

    def test_a_row_exists_only_after_its_put_and_in_its_partition(self, store: Store) -> None:
        put(store, "a")
        assert store.get(HERE, "b") is None
        assert store.get("elsewhere", "a") is None
        assert store.query("elsewhere", "") == []

    def test_get_many_returns_the_rows_that_exist(self, store: Store) -> None:
        put(store, "a", "b", "c")
        put(store, "d", partition="elsewhere")
        store.transact(HERE, [Put("b", {"of": "b again"}, 1)], "again")
        assert store.get_many(HERE, iter(["c", "b", "d", "b"])) == {sort: store.get(HERE, sort) for sort in ("b", "c")}
        assert store.get_many("elsewhere", ["a", "b"]) == {}

    def test_get_many_without_keys_makes_no_request(self, store: Store) -> None:
        before = store.requests
        assert store.get_many(HERE, []) == {}
        assert store.requests == before

    def test_get_many_reads_many_rows_with_few_requests(self, store: Store) -> None:
        wanted = [f"{number:04d}" for number in range(1_050)]
        for start in range(0, 950, 95):
            store.transact(HERE, [Put(sort, {"of": sort}, ABSENT) for sort in wanted[start : start + 95]], f"from {start}")
        before = store.requests
        found = store.get_many(HERE, reversed(wanted))
        assert 1 <= store.requests - before <= 11
        assert sorted(row.data["of"] for row in found.values()) == wanted[:950] == sorted(found)

    def test_a_version_grows_with_every_put_and_restarts_after_a_delete(self, store: Store) -> None:
        for version in range(3):
            store.transact(HERE, [Put("a", {"at": version}, version)], f"put {version}")
            row = store.get(HERE, "a")
            assert row and (row.version, row.data) == (version + 1, {"at": version})
        store.transact(HERE, [Delete("a", 3)], "delete")
        assert store.get(HERE, "a") is None
        store.transact(HERE, [Put("a", {}, ABSENT)], "again")
        row = store.get(HERE, "a")
        assert row and row.version == 1

    def test_a_query_returns_rows_with_the_prefix_in_bytewise_order(self, store: Store) -> None:
        wanted = ["P#$", "P#-", "P#0", "P#A", "P#Z", "P#_", "P#a", "P#a#1", "P#a$", "P#z", "P#~", "P#~~"]
        put(store, "O#zz", "P", "P$", "Q#a", "p#a", *reversed(wanted))
        assert sorts(store, "P#") == wanted
        assert sorts(store, "P#", reverse=True) == wanted[::-1]
        assert sorts(store, "P#a") == ["P#a", "P#a#1", "P#a$"]
        assert sorts(store, "P#~") == ["P#~", "P#~~"]

    def test_after_bounds_a_query_in_both_directions_and_need_not_exist(self, store: Store) -> None:
        put(store, "P#a", "P#b", "P#c", "R#a")
        assert sorts(store, "P#", after="P#a") == ["P#b", "P#c"]
        assert sorts(store, "P#", after="P#a#~") == ["P#b", "P#c"]
        assert sorts(store, "P#", after="P#c") == []
        assert sorts(store, "P#", after="A") == ["P#a", "P#b", "P#c"]
        assert sorts(store, "P#", after="P#c", reverse=True) == ["P#b", "P#a"]
        assert sorts(store, "P#", after="Z", reverse=True) == ["P#c", "P#b", "P#a"]
        assert sorts(store, "P#", after="A", reverse=True) == []

    def test_pages_together_equal_the_whole_query(self, store: Store) -> None:
        put(store, *(f"P#{number:03d}" for number in range(25)))
        for reverse in (False, True):
            whole, pages = sorts(store, "P#", reverse=reverse), []
            while page := sorts(store, "P#", after=pages[-1] if pages else None, limit=4, reverse=reverse):
                assert len(page) <= 4
                pages += page
            assert pages == whole and len(whole) == 25

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=SHARED)
    @given(st.sets(KEYS, max_size=12), KEYS, st.none() | KEYS, st.none() | st.integers(1, 5), st.booleans())
    def test_a_query_is_a_filter_of_the_sorted_keys(self, store: Store, rows, prefix, after, limit, reverse) -> None:
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
    def test_a_transaction_applies_all_writes_if_every_version_matches(self, store: Store, write: Write, holds: bool) -> None:
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

    def test_every_failed_condition_is_named(self, store: Store) -> None:
        put(store, "a", "b")
        wrong = [Put("a", {}, ABSENT), Check("b", 7), Delete("c", 1)]
        with pytest.raises(ConditionFailed, match=r"a .*b .*c ") as error:
            store.transact(HERE, [wrong[0], Check("a-b", ABSENT), wrong[1], wrong[2]], "token")
        assert error.value.failed == tuple(wrong)

    def test_repeating_a_token_succeeds_and_writes_once(self, store: Store) -> None:
        write = [Put("a", {"at": 1}, ABSENT)]
        store.transact(HERE, write, "token")
        store.transact(HERE, write, "token")
        row = store.get(HERE, "a")
        assert row and row.version == 1
        with pytest.raises(ConditionFailed):
            store.transact(HERE, write, "another token")

    def test_repeating_a_token_writes_nothing_after_the_row_was_deleted(self, store: Store) -> None:
        store.transact(HERE, [Put("a", {}, ABSENT)], "token")
        store.transact(HERE, [Delete("a", 1)], "delete")
        store.transact(HERE, [Put("a", {}, ABSENT)], "token")
        assert store.get(HERE, "a") is None

    def test_a_single_lasting_row_is_written_on_its_version_and_may_be_repeated(self, store: Store) -> None:
        first, second = (Put("a", {"at": version}, version, lasting=True) for version in (0, 1))
        store.transact(HERE, [first], "1")
        store.transact(HERE, [first], "1")
        with pytest.raises(ConditionFailed) as error:
            store.transact(HERE, [first], "another token")
        assert error.value.failed == (first,)
        store.transact(HERE, [second], "2")
        store.transact(HERE, [second], "2")
        row = store.get(HERE, "a")
        assert row and (row.version, row.data) == (2, {"at": 1})
        store.transact(HERE, [Put("a", {"at": 2}, 2)], "3")
        with pytest.raises(ConditionFailed):
            store.transact(HERE, [second], "late")

    def test_a_token_reused_for_other_writes_is_refused(self, store: Store) -> None:
        put(store, "b")
        store.transact(HERE, [Put("a", {}, ABSENT), Check("b", 1)], "token")
        for other in ([Put("a", {}, 1), Check("b", 1)], [Put("a", {"more": 1}, ABSENT), Check("b", 1)], [Put("c", {}, ABSENT)]):
            with pytest.raises(StoreRejected, match="token"):
                store.transact(HERE, other, "token")
        assert sorts(store) == ["a", "b"]

    def test_a_token_may_be_retried_after_a_failure(self, store: Store) -> None:
        put(store, "a")
        with pytest.raises(ConditionFailed):
            store.transact(HERE, [Put("a", {}, ABSENT)], "token")
        store.transact(HERE, [Delete("a", 1)], "delete")
        store.transact(HERE, [Put("a", {}, ABSENT)], "token")
        assert store.get(HERE, "a")

    def test_a_transaction_holds_a_hundred_writes_and_no_more(self, store: Store) -> None:
        writes = [Put(f"{number:03d}", {}, ABSENT) for number in range(MAX_WRITES + 1)]
        with pytest.raises(ValueError, match="101 writes"):
            store.transact(HERE, writes, "too many")
        assert store.query(HERE, "") == []
        store.transact(HERE, writes[:-1], "just so")
        assert len(store.query(HERE, "")) == MAX_WRITES

    def test_two_writes_to_a_row_are_refused_and_so_is_an_empty_transaction(self, store: Store) -> None:
        with pytest.raises(ValueError, match="each to a different row"):
            store.transact(HERE, [Check("a", ABSENT), Put("a", {}, ABSENT)], "token")
        with pytest.raises(ValueError, match="at least 1"):
            store.transact(HERE, [], "token")
        assert store.get(HERE, "a") is None

    def test_a_check_alone_writes_nothing(self, store: Store) -> None:
        put(store, "a")
        store.transact(HERE, [Check("a", 1)], "there")
        with pytest.raises(ConditionFailed):
            store.transact(HERE, [Check("a", 2)], "other version")
        row = store.get(HERE, "a")
        assert row and row.version == 1

    def test_writes_of_others_are_read_immediately(self, store: Store, reopen: Callable[[], Store]) -> None:
        with closing(reopen()) as other:
            for version in range(20):
                other.transact(HERE, [Put("a", {"at": version}, version)], f"put {version}")
                assert [row.data for row in store.query(HERE, "a")] == [{"at": version}]
                row = store.get(HERE, "a")
                assert row and row.data == {"at": version}
                assert store.get_many(HERE, ["a"]) == {"a": row}

    def test_requests_are_counted(self, store: Store) -> None:
        before = store.requests
        put(store, "a")
        store.get(HERE, "a")
        store.query(HERE, "")
        store.get_many(HERE, ["a", "b"])
        assert store.requests - before == 4

    def test_writes_survive_closing_the_store(self, store: Store, reopen: Callable[[], Store]) -> None:
        put(store, "a")
        store.close()
        again = reopen()
        row = again.get(HERE, "a")
        assert row and row.data == {"of": "a"}
        with pytest.raises(ConditionFailed):
            again.transact(HERE, [Put("a", {}, ABSENT)], "late")
        again.close()

    def test_exactly_one_of_eight_threads_wins_each_round(self, store: Store) -> None:
        rounds, start = 50, threading.Barrier(8)
        with ThreadPoolExecutor(8) as pool:
            racers = [pool.submit(race, store, f"t{number}", rounds, start.wait) for number in range(8)]
            won = sum(racer.result() for racer in racers)
        prize = store.get(HERE, "prize")
        assert prize and won == prize.version == len(store.query(HERE, "won "))

    def test_two_writers_that_check_each_others_row_cannot_both_win(self, store: Store) -> None:
        """Each check of the other's row holds until the other's write is committed: no write skew."""
        start, rounds = threading.Barrier(2), 40

        def write(own: str, others: str) -> list[bool]:
            won = []
            for number in range(rounds):
                start.wait()
                writes = [Put(f"{number} {own}", {}, ABSENT), Check(f"{number} {others}", ABSENT)]
                try:
                    store.transact(HERE, writes, f"{number} {own}")
                    won.append(True)
                except ConditionFailed:
                    won.append(False)
            return won

        with ThreadPoolExecutor(2) as pool:
            left, right = pool.submit(write, "left", "right"), pool.submit(write, "right", "left")
            assert all(wins.count(True) == 1 for wins in zip(left.result(), right.result(), strict=True))


def _race_in_process(url: str, who: str, start, results) -> None:
    store = open_store(url)  # opening a new database is a race too
    results.put(race(store, who, 25, start.wait))
    store.close()


class SharedStoreContract(StoreContract):
    """The contract of a store that several processes open at the same time."""

    def test_exactly_one_of_two_processes_wins_each_round(self, store_url: str) -> None:
        context = multiprocessing.get_context("spawn")
        start, results = context.Barrier(2), context.Queue()
        racers = [context.Process(target=_race_in_process, args=(store_url, f"p{n}", start, results)) for n in range(2)]
        for racer in racers:
            racer.start()
        won = sum(results.get(timeout=60) for _ in racers)
        for racer in racers:
            racer.join()
            assert racer.exitcode == 0
        with closing(open_store(store_url)) as store:
            prize = store.get(HERE, "prize")
            assert prize and won == prize.version == len(store.query(HERE, "won "))
