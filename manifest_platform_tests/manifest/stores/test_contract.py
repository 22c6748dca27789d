"""What every driver must do, and what the SQL ones do beyond it. Who adds a driver adds it to `servers.stores.DRIVERS`."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.sql import SQL, Identifier
from sqlalchemy import event

from manifest_platform.manifest import ConditionFailed, OutcomeUnknown, Store, StoreUnavailable
from manifest_platform.manifest.store import ABSENT, MAX_WRITES, Check, Delete, Put, StoreRejected, Write, transact_once
from manifest_platform.manifest.stores import open_store
from manifest_platform.manifest.stores.dynamodb import DynamoDbStore
from manifest_platform.manifest.stores.sql import SqlStore, check_database
from manifest_platform_tests.effort import cases
from manifest_platform_tests.manifest.given import LossyStore

pytestmark = pytest.mark.every_store

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


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, 10**40, 0.1, 1e308, 5e-324, -0.0, float("inf"), True, None])
def test_a_number_comes_back_as_it_was_put(store: Store, number: object) -> None:
    store.transact(HERE, [Put("a", {"number": number}, ABSENT)], "1")
    row = store.get(HERE, "a")
    assert row and (repr(row.data["number"]), store.query(HERE, "a")) == (repr(number), [row])


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


@settings(max_examples=cases(12, 40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def test_a_repeat_writes_nothing_though_the_row_was_removed_meanwhile(store: Store) -> None:
    store.transact(HERE, [Put("a", {}, ABSENT)], "token")
    store.transact(HERE, [Delete("a", 1)], "delete")
    store.transact(HERE, [Put("a", {}, ABSENT)], "token")
    assert store.get(HERE, "a") is None


def test_a_lasting_row_alone_is_written_on_its_version_and_its_repeat_is_known(store: Store) -> None:
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


def test_a_token_of_other_writes_is_refused(store: Store) -> None:
    put(store, "b")
    store.transact(HERE, [Put("a", {}, ABSENT), Check("b", 1)], "token")
    for other in ([Put("a", {}, 1), Check("b", 1)], [Put("a", {"more": 1}, ABSENT), Check("b", 1)], [Put("c", {}, ABSENT)]):
        with pytest.raises(StoreRejected, match="token"):
            store.transact(HERE, other, "token")
    assert sorts(store) == ["a", "b"]


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


def test_two_writes_to_one_row_are_refused_and_so_are_none(store: Store) -> None:
    with pytest.raises(ValueError, match="row of its own"):
        store.transact(HERE, [Check("a", ABSENT), Put("a", {}, ABSENT)], "token")
    with pytest.raises(ValueError, match="at least 1"):
        store.transact(HERE, [], "token")
    assert store.get(HERE, "a") is None


def test_a_check_alone_writes_nothing(store: Store) -> None:
    put(store, "a")
    store.transact(HERE, [Check("a", 1)], "there")
    with pytest.raises(ConditionFailed):
        store.transact(HERE, [Check("a", 2)], "other version")
    row = store.get(HERE, "a")
    assert row and row.version == 1


def test_what_others_have_written_is_read_at_once(store: Store, reopen: Callable[[], Store]) -> None:
    with closing(reopen()) as other:
        for version in range(20):
            other.transact(HERE, [Put("a", {"at": version}, version)], f"put {version}")
            assert [row.data for row in store.query(HERE, "a")] == [{"at": version}]
            row = store.get(HERE, "a")
            assert row and row.data == {"at": version}


def test_requests_are_counted(store: Store) -> None:
    before = store.requests
    put(store, "a")
    store.get(HERE, "a")
    store.query(HERE, "")
    assert store.requests - before == 3


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
    rounds, start = 50, threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        racers = [pool.submit(race, store, f"t{number}", rounds, start.wait) for number in range(8)]
        won = sum(racer.result() for racer in racers)
    prize = store.get(HERE, "prize")
    assert prize and won == prize.version == len(store.query(HERE, "won "))


def test_of_two_that_check_what_the_other_writes_at_most_one_wins(store: Store) -> None:
    """Each read of the other's row is true until its own write is there: no write skew."""
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
    store = open_store(url)  # opening a fresh database races too
    results.put(race(store, who, 25, start.wait))
    store.close()


def test_of_two_processes_exactly_one_wins_each_round(store_url: str) -> None:
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


# SQLite


def test_many_may_open_a_fresh_file_at_once(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def open_one(name: str) -> None:
        start.wait()
        SqlStore(f"sqlite:///{tmp_path}/{name}.db").close()

    with ThreadPoolExecutor(8) as pool:
        for name in map(str, range(20)):
            for opened in [pool.submit(open_one, name) for _ in range(8)]:
                opened.result()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://host/db", "postgresql://host", "no url"])
def test_a_store_that_is_no_file_and_no_database_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="allowed: sqlite:///path"):
        SqlStore(url)


def test_a_database_that_stays_locked_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform.manifest.stores.sql.BUSY_TIMEOUT_S", 0.1)
    store = SqlStore(f"sqlite:///{tmp_path}/manifest.db")
    with closing(sqlite3.connect(tmp_path / "manifest.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
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
    monkeypatch.setattr("manifest_platform.manifest.stores.sql.BUSY_TIMEOUT_S", 0.1)
    path = tmp_path / "manifest.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match=f"{path}: database is locked: another process"):
            SqlStore(f"sqlite:///{path}")
        other.execute("ROLLBACK")
    SqlStore(f"sqlite:///{path}").close()


def test_a_file_that_is_spoilt_while_it_is_used_is_for_a_person(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/manifest.db")
    store.close()
    _no_database(tmp_path / "manifest.db")
    with pytest.raises(StoreRejected, match="not a database"):
        put(store, "a")
    with pytest.raises(StoreRejected, match="not a database"):
        store.get(HERE, "a")


def test_tokens_are_forgotten_after_their_time_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, forgetful = (SqlStore(f"sqlite:///{tmp_path}/manifest.db") for _ in range(2))
    put(store, "a", "b")
    monkeypatch.setattr("manifest_platform.manifest.stores.sql.TOKEN_LIFETIME_S", -1)
    put(store, "c")  # it looks once in a while only
    with closing(sqlite3.connect(tmp_path / "manifest.db")) as database:
        count = "SELECT count(*) FROM manifest_transactions"
        assert database.execute(count).fetchone() == (3,)
        put(forgetful, "d")
        assert database.execute(count).fetchone() == (1,)


# PostgreSQL


@pytest.fixture
def on_postgres(postgres: str) -> Iterator[SqlStore]:
    store = SqlStore(postgres)
    yield store
    store.close()


def beside(url: str) -> psycopg.Connection:
    """A connection of somebody else to the store's schema."""
    return psycopg.connect(url)


def waits(other: psycopg.Connection) -> None:
    """Returns when a statement waits for what the other connection has locked."""
    blocked = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    with psycopg.connect(other.info.dsn, autocommit=True) as watcher:
        while not watcher.execute(blocked, [other.info.backend_pid]).fetchall():
            time.sleep(0.01)


def test_a_condition_is_decided_when_the_row_is_free(on_postgres: SqlStore, postgres: str) -> None:
    put(on_postgres, "a")
    with beside(postgres) as other, ThreadPoolExecutor(1) as pool:
        other.execute("UPDATE manifest SET version = 2 WHERE sort = 'a'")
        late = pool.submit(on_postgres.transact, HERE, [Put("a", {}, 1)], "late")
        waits(other)
        other.commit()
        with pytest.raises(ConditionFailed):
            late.result()


def test_a_row_that_stays_locked_is_unavailable(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform.manifest.stores.sql.STATEMENT_TIMEOUT_S", 1)
    with closing(SqlStore(postgres)) as store, beside(postgres) as other:
        put(store, "a")
        other.execute("UPDATE manifest SET version = 2 WHERE sort = 'a'")
        with pytest.raises(StoreUnavailable, match="statement timeout"):
            store.transact(HERE, [Put("a", {}, 1)], "late")
        assert sorts(store) == ["a"]  # readers go on


def _cut_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname <> ''")


def test_a_connection_that_died_while_it_was_idle_goes_unnoticed(on_postgres: SqlStore, postgres: str) -> None:
    put(on_postgres, "a")
    _cut_connections(postgres)
    assert sorts(on_postgres) == ["a"]
    _cut_connections(postgres)
    put(on_postgres, "b")


def test_a_connection_that_dies_before_the_commit_has_written_nothing(on_postgres: SqlStore, postgres: str) -> None:
    put(on_postgres, "before")  # which has forgotten old tokens, in a transaction of its own
    engine = on_postgres._database.engine
    event.listen(engine, "begin", lambda _: _cut_connections(postgres), once=True)
    with pytest.raises(StoreUnavailable, match="terminating connection"):
        put(on_postgres, "a")
    assert sorts(on_postgres) == ["before"]


def test_a_connection_that_dies_with_the_commit_leaves_the_outcome_unknown(on_postgres: SqlStore, postgres: str) -> None:
    put(on_postgres, "before")  # which has forgotten old tokens, in a transaction of its own
    event.listen(on_postgres._database.engine, "commit", lambda _: _cut_connections(postgres), once=True)
    with pytest.raises(OutcomeUnknown, match="terminating connection"):
        put(on_postgres, "a")


def test_many_may_open_a_fresh_schema_at_once(postgres: str) -> None:
    start = threading.Barrier(8)

    def open_one() -> None:
        start.wait()
        SqlStore(postgres).close()

    for _ in range(4):
        with ThreadPoolExecutor(8) as pool:
            for opened in [pool.submit(open_one) for _ in range(8)]:
                opened.result()
        with psycopg.connect(postgres) as connection:
            connection.execute("DROP TABLE manifest, manifest_transactions")


def test_keys_order_bytewise_and_are_found_by_their_index(on_postgres: SqlStore, postgres: str) -> None:
    put(on_postgres, "a", "B")
    with psycopg.connect(postgres) as connection:
        connection.execute("ANALYZE manifest")
    with on_postgres._database.engine.connect() as connection:
        plan = connection.exec_driver_sql("EXPLAIN UPDATE manifest SET version = 2 WHERE partition = 'p' AND sort = 'a'")
        assert "Seq Scan" not in str(plan.fetchall())
    _, differences = check_database(postgres)
    assert differences == []
    with psycopg.connect(postgres) as connection:
        connection.execute('ALTER TABLE manifest ALTER COLUMN sort TYPE text COLLATE "POSIX"')
        connection.execute("ALTER TABLE manifest_transactions DROP COLUMN writes")
    [missing] = check_database(postgres)[1]
    assert str(missing).startswith("columns of manifest_transactions: without writes, and should be token, writes, at")
    with psycopg.connect(postgres) as connection:
        connection.execute("ALTER TABLE manifest_transactions ADD COLUMN writes text")
    [collation] = check_database(postgres)[1]
    assert str(collation).startswith("collation of sort: POSIX, and should be C")


def test_commits_that_a_crash_would_undo_are_reported(on_postgres: SqlStore, postgres: str) -> None:
    careless = postgres.replace("options=", "options=-csynchronous_commit%3Doff%20")
    [difference] = check_database(careless)[1]
    assert str(difference).startswith("synchronous_commit: off, and should be on") and "ALTER SYSTEM" in difference.mend


def test_a_user_who_may_not_make_the_tables_is_told(postgres: str) -> None:
    role = f"role_{uuid4().hex[:8]}"
    with psycopg.connect(postgres) as connection:
        connection.execute(SQL("CREATE ROLE {} LOGIN").format(Identifier(role)))
        [(schema,)] = connection.execute("SELECT current_schema()").fetchall()
        connection.execute(SQL("GRANT USAGE ON SCHEMA {} TO {}").format(Identifier(schema), Identifier(role)))
    with pytest.raises(StoreUnavailable, match=r"permission denied.*grant this user CREATE"):
        SqlStore(postgres.replace("postgres@", f"{role}@"))


@pytest.mark.parametrize("password", ["hunter2", "hun%40ter2", "hun%2Fter2", "hun'ter2"])
def test_a_password_is_in_no_message(password: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"postgresql://me:\*\*\*@127.0.0.1:1/db.*PGPASSWORD") as error:
        SqlStore(f"postgresql://me:{password}@127.0.0.1:1/db?sslmode=disable")
    told = "".join(traceback.format_exception(error.value))
    assert "ter2" not in told


@pytest.mark.parametrize(
    "url", ["postgresql://me:hun@ter2@h/db", "postgresql://me:x@h:ter2/db", "postgresql://h/db?password=ter2"]
)
def test_a_url_that_cannot_be_meant_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"allowed|Allowed|PGPASSWORD") as error:
        SqlStore(url)
    assert "ter2" not in str(error.value)


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


def test_a_table_that_is_gone_is_for_a_person_to_mend(store: Store) -> None:
    if isinstance(store, SqlStore):
        with store._database.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE manifest")
    else:
        assert isinstance(store, DynamoDbStore)
        store._client.update_table(TableName=store._address.table, DeletionProtectionEnabled=False)
        store._client.delete_table(TableName=store._address.table)
    with pytest.raises(StoreRejected):
        store.get("p", "a")
    with pytest.raises(StoreRejected):
        store.transact("p", [Put("a", {}, 0)], "token")
