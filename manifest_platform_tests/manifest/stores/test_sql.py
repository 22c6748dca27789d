"""SQLite and PostgreSQL beyond the contract of a store."""

from __future__ import annotations

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
from psycopg.sql import SQL, Identifier
from sqlalchemy import event

from manifest_platform.manifest import ConditionFailed, OutcomeUnknown, StoreUnavailable
from manifest_platform.manifest.store import Put, StoreRejected
from manifest_platform.manifest.stores.sql import SqlStore, check_database
from manifest_platform.testing.store import HERE, put, sorts

# SQLite


def test_many_threads_may_open_a_new_file_concurrently(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def open_one(name: str) -> None:
        start.wait()
        SqlStore(f"sqlite:///{tmp_path}/{name}.db").close()

    with ThreadPoolExecutor(8) as pool:
        for name in map(str, range(20)):
            for opened in [pool.submit(open_one, name) for _ in range(8)]:
                opened.result()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://host/db", "postgresql://host", "no url"])
def test_a_url_that_is_no_database_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="allowed: sqlite:///path"):
        SqlStore(url)


def test_a_database_that_stays_locked_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manifest_platform.manifest.stores.sql.BUSY_TIMEOUT_S", 0.1)
    store = SqlStore(f"sqlite:///{tmp_path}/manifest.db")
    with closing(sqlite3.connect(tmp_path / "manifest.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            put(store, "a")
        assert store.query(HERE, "") == []  # readers are not blocked
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
def test_a_store_that_cannot_be_opened_is_unavailable_with_place_and_remedy(
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


def test_a_file_that_is_damaged_while_it_is_used_is_a_permanent_error(tmp_path: Path) -> None:
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
    put(store, "c")  # old tokens are looked for only once in a while
    with closing(sqlite3.connect(tmp_path / "manifest.db")) as database:
        count = "SELECT count(*) FROM manifest_transactions"
        assert database.execute(count).fetchone() == (3,)
        put(forgetful, "d")
        assert database.execute(count).fetchone() == (1,)


# PostgreSQL


@pytest.fixture
def on_postgres(postgres: str) -> Iterator[SqlStore]:
    store = SqlStore(f"{postgres}&application_name={uuid4()}")  # identifies its connections
    yield store
    store.close()


def beside(url: str) -> psycopg.Connection:
    """A connection of another user to the store's schema."""
    return psycopg.connect(url)


def waits(other: psycopg.Connection) -> None:
    """Returns when a statement waits for a lock of the other connection."""
    blocked = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    with psycopg.connect(other.info.dsn, autocommit=True) as watcher:
        while not watcher.execute(blocked, [other.info.backend_pid]).fetchall():
            time.sleep(0.01)


def test_a_condition_is_checked_once_the_row_is_unlocked(on_postgres: SqlStore, postgres: str) -> None:
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
        assert sorts(store) == ["a"]  # readers are not blocked


def _cut_connections(store: SqlStore, url: str) -> None:
    name = store._database.engine.url.query["application_name"]
    with psycopg.connect(url, autocommit=True) as other:
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
        assert other.execute(cut, [name]).fetchall()


def test_a_connection_that_died_while_it_was_idle_goes_unnoticed(on_postgres: SqlStore, postgres: str) -> None:
    put(on_postgres, "a")
    _cut_connections(on_postgres, postgres)
    assert sorts(on_postgres) == ["a"]
    _cut_connections(on_postgres, postgres)
    put(on_postgres, "b")


def test_a_connection_that_dies_before_the_commit_has_written_nothing(on_postgres: SqlStore, postgres: str) -> None:
    put(on_postgres, "before")  # this also forgets old tokens, in a transaction of its own
    engine = on_postgres._database.engine
    event.listen(engine, "begin", lambda _: _cut_connections(on_postgres, postgres), once=True)
    with pytest.raises(StoreUnavailable, match="terminating connection"):
        put(on_postgres, "a")
    assert sorts(on_postgres) == ["before"]


def test_a_connection_that_dies_with_the_commit_leaves_the_outcome_unknown(on_postgres: SqlStore, postgres: str) -> None:
    put(on_postgres, "before")  # this also forgets old tokens, in a transaction of its own
    event.listen(on_postgres._database.engine, "commit", lambda _: _cut_connections(on_postgres, postgres), once=True)
    with pytest.raises(OutcomeUnknown, match="terminating connection"):
        put(on_postgres, "a")


def test_many_processes_may_open_a_new_schema_concurrently(postgres: str) -> None:
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
        plan = connection.exec_driver_sql(
            f"EXPLAIN UPDATE {on_postgres._database.schema}.manifest SET version = 2 WHERE partition = 'p' AND sort = 'a'"
        )
        assert "Seq Scan" not in str(plan.fetchall())
    _, differences = check_database(postgres)
    assert differences == []
    with psycopg.connect(postgres) as connection:
        connection.execute('ALTER TABLE manifest ALTER COLUMN sort TYPE text COLLATE "POSIX"')
        connection.execute("ALTER TABLE manifest_transactions DROP COLUMN writes")
    [missing] = check_database(postgres)[1]
    assert str(missing).startswith("columns of manifest_transactions: without writes, but should be token, writes, at")
    with psycopg.connect(postgres) as connection:
        connection.execute("ALTER TABLE manifest_transactions ADD COLUMN writes text")
    [collation] = check_database(postgres)[1]
    assert str(collation).startswith("collation of sort: POSIX, but should be C")


def test_commits_that_a_crash_would_undo_are_reported(on_postgres: SqlStore, postgres: str) -> None:
    careless = postgres.replace("options=", "options=-csynchronous_commit%3Doff%20")
    [difference] = check_database(careless)[1]
    assert str(difference).startswith("synchronous_commit: off, but should be on") and "ALTER SYSTEM" in str(difference.mend)


def test_a_user_without_the_right_to_create_tables_gets_the_remedy(postgres: str) -> None:
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
def test_an_invalid_url_is_refused_and_not_repeated_in_the_message(url: str) -> None:
    with pytest.raises(ValueError, match=r"allowed|Allowed|PGPASSWORD") as error:
        SqlStore(url)
    assert "ter2" not in str(error.value)
