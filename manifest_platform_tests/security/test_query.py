"""`sql` and `merge query`: a person's query reads the tables, and reaches nothing else, whatever it says."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from manifest_platform import questions, storage
from manifest_platform.listing import Column
from manifest_platform.manifest.stores import open_store
from manifest_platform.merging.readers import QueryFailed, Reader
from manifest_platform.warehouse.engines.duckdb.engine import DuckDB
from manifest_platform.warehouse.errors import LoadFailed
from manifest_platform_tests.merging import given
from manifest_platform_tests.merging.catalogs.test_embedded import Shop

CANARY = "canary-7Zq"
Ask = Callable[[str], list[tuple[Any, ...]]]

_COPY = "COPY (SELECT 'forged') TO '{target}' (FORMAT csv, USE_TMP_FILE false)"
_HIDDEN = f"WITH forged AS ({_COPY}) SELECT * FROM forged"
"""A SELECT by its type, which DuckDB runs as it stands: it writes."""

ATTACKS = {
    "settings": "SET enable_external_access = true",
    "settings, by PRAGMA": "PRAGMA enable_external_access = true",
    "settings, reset": "RESET disabled_filesystems",
    "settings, harmless": "SET search_path = 'main'",
    "file systems": "SET disabled_filesystems = ''",
    "lock": "SET lock_configuration = false",
    "two statements": "SELECT 1; DROP TABLE log",
    "two statements, the second behind a comment": "SELECT 1 /* ; */ ; -- ;\nSET threads = 1",
    "two queries": "SELECT 1; SELECT 2",
    "no statement": "-- nothing",
    "copy": "COPY (SELECT 'forged') TO '{new}'",
    "copy over an object": _COPY,
    "copy in a WITH": _HIDDEN,
    "copy in a WITH, explained": f"EXPLAIN ANALYZE {_HIDDEN}",
    "copy, explained": f"EXPLAIN ANALYZE {_COPY}",
    "copy, explained behind a comment": f"/* */ EXPLAIN ANALYZE {_COPY}",
    "copy made of a text": "FROM json_execute_serialized_sql(json_serialize_sql($${hidden}$$))",
    "copy made of a text, in a text": "FROM query($$FROM json_execute_serialized_sql(json_serialize_sql('{escaped}'))$$)",
    "copy from a file": "COPY log FROM '{secret}'",
    "export": "EXPORT DATABASE '{new}'",
    "import": "IMPORT DATABASE '{folder}'",
    "attach": "ATTACH '{new}' AS other",
    "attach the warehouse": "ATTACH '{warehouse}' AS other",
    "attach a memory": "ATTACH ':memory:' AS other",
    "csv": "FROM read_csv('{secret}', header = false)",
    "csv of the system": "FROM read_csv('/etc/passwd')",
    "text": "FROM read_text('{secret}')",
    "blob": "FROM read_blob('{secret}')",
    "blob of what is open": "FROM read_blob('{target}')",
    "a file as a table": "FROM '{secret}'",
    "json": "FROM read_json('{secret}')",
    "another DuckDB": "FROM read_duckdb('{warehouse}', table_name = 'shop.log')",
    "parquet": "FROM read_parquet('{target}')",
    "parquet's footer": "FROM parquet_metadata('{target}')",
    "sniff": "FROM sniff_csv('{secret}')",
    "glob": "SELECT file FROM glob('{folder}/*') WHERE error(file)",
    "environment": "SELECT getenv('CANARY')",
    "variables of Python": "FROM canary",
    "secrets": "CREATE SECRET one (TYPE http, BEARER_TOKEN 'x')",
    "secrets that last": "CREATE PERSISTENT SECRET one (TYPE http, BEARER_TOKEN 'x')",
    "extension": "INSTALL httpfs",
    "extension of the community": "INSTALL h3 FROM community",
    "extension, loaded": "LOAD httpfs",
    "extension of a file": "LOAD '{secret}'",
    "another host": "FROM read_parquet('{host}/x.parquet')",
    "another host as a table": "FROM '{host}/x.csv'",
    "another bucket": "FROM read_parquet('s3://other/x.parquet')",
    "log to a file": "FROM enable_logging(storage = 'file', storage_config = {{'path': '{new}'}})",
    "profile to a file": "FROM enable_profiling(save_location = '{new}')",
    "change": "DELETE FROM log",
    "change in a WITH": "WITH gone AS (DELETE FROM log RETURNING *) SELECT * FROM gone",
    "table": "CREATE TABLE other AS SELECT 1",
    "table that is gone afterwards": "CREATE TEMP TABLE other AS SELECT 1",
    "macro": "CREATE MACRO one() AS 1",
    "prepared": "PREPARE one AS SELECT 1",
    "call": "CALL force_checkpoint()",
}
"""Forbidden statements that a query may try. `target`: a file that the connection itself has open."""

READS = {
    "FROM log": [(1, CANARY)],
    "WITH those AS (SELECT id FROM log) SELECT count(*) FROM those": [(1,)],
    "VALUES (1), (2) -- ; DROP TABLE log": [(1,), (2,)],
    "SELECT 1;": [(1,)],
    "SELECT column_name FROM (DESCRIBE log) LIMIT 1": [("id",)],
}


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[DuckDB]:
    """A warehouse with one table, open as `sql` has it."""
    path = tmp_path / "warehouse.duckdb"
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute(f"CREATE TABLE shop.log AS SELECT 1 AS id, '{CANARY}' AS name")
    with closing(DuckDB(path, read_only=True)) as engine:
        yield engine


@pytest.fixture(params=["sql", "merge query"])
def asked(request: pytest.FixtureRequest, tmp_path: Path, warehouse: DuckDB) -> Iterator[tuple[Ask, Path]]:
    """Asks the one or the other; and a file that it reads."""
    if request.param == "sql":
        yield lambda sql: warehouse.query(sql, "shop")[1], warehouse.path
        return
    warehouse.close()
    with closing(open_store(f"sqlite:///{tmp_path}/manifest.db")) as store:
        shop = Shop(given.inventory(store), storage.as_uri(tmp_path / "output"))
        shop.land(1, [{"id": 1, "name": CANARY}])
        shop.publish()
        reader = Reader(shop.inventory)
        (found,) = (tmp_path / "output").rglob("*.parquet")
        yield lambda sql: [row[:2] for row in reader.query(sql)[1]], found


@pytest.fixture
def host() -> Iterator[socket.socket]:
    """A server of another party, which must receive no request."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        server.settimeout(0)
        yield server


def _contents(folder: Path) -> dict[Path, bytes]:
    """Every file but SQLite's, which the manifest writes while it is read."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "manifest.db" not in path.name}


def test_a_query_reaches_nothing_but_the_tables(
    asked: tuple[Ask, Path], tmp_path: Path, host: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, target = asked
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "secret.txt").write_text(f"{CANARY}\n")
    canary = duckdb.sql("SELECT 1")  # noqa: F841  DuckDB looks for tables in the variables of its callers
    hidden = _HIDDEN.format(target=target)
    places = {
        "new": tmp_path / "new",
        "secret": tmp_path / "secret.txt",
        "folder": tmp_path,
        "warehouse": tmp_path / "warehouse.duckdb",
        "target": target,
        "hidden": hidden,
        "escaped": hidden.replace("'", "''"),
        "host": f"http://127.0.0.2:{host.getsockname()[1]}",
    }
    before = _contents(tmp_path)
    succeeded = []
    for attack, sql in ATTACKS.items():
        try:
            ask(sql.format(**places))
        except (LoadFailed, QueryFailed) as error:
            assert CANARY not in str(error), attack
        else:
            succeeded.append(attack)
        assert _contents(tmp_path) == before, attack
        with pytest.raises(BlockingIOError):
            host.accept()
        assert ask("FROM log") == READS["FROM log"], attack
    assert succeeded == []


@pytest.mark.parametrize("sql", READS)
def test_a_query_reads_the_tables(sql: str, asked: tuple[Ask, Path]) -> None:
    assert asked[0](sql) == READS[sql]


def test_a_query_is_explained(asked: tuple[Ask, Path]) -> None:
    assert asked[0]("EXPLAIN SELECT * FROM log")
    assert asked[0]("explain analyze\nFROM log")


def test_a_query_sees_no_secret_of_the_machine(
    asked: tuple[Ask, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with closing(duckdb.connect()) as connection:
        connection.execute(f"SET secret_directory = '{tmp_path}/.duckdb/stored_secrets'")
        connection.execute(f"CREATE PERSISTENT SECRET mine (TYPE http, BEARER_TOKEN '{CANARY}')")
    assert asked[0]("FROM duckdb_secrets()") == []
    assert asked[0]("FROM which_secret('https://x', 'http')") == []


def test_what_is_no_single_query_is_told_what_may_be_asked(asked: tuple[Ask, Path]) -> None:
    with pytest.raises((LoadFailed, QueryFailed), match=r"not one query \(SELECT, DELETE\): use a single SELECT, FROM, SHOW"):
        asked[0]("SELECT 1; DELETE FROM log")


def test_readers_of_one_process_are_confined_alike(warehouse: DuckDB) -> None:
    with closing(DuckDB(warehouse.path, read_only=True)) as other:
        for reader in (warehouse, other, warehouse):
            assert reader.query("FROM log", "shop")[1] == READS["FROM log"]
            assert reader.query("SELECT current_setting('TimeZone')")[1] == [("UTC",)]
            with pytest.raises(LoadFailed):
                reader.query(f"FROM read_text('{os.devnull}')")


def test_names_of_columns_match_without_case(tmp_path: Path) -> None:
    """Arrow, through which the objects come, tells them apart."""
    with closing(open_store(f"sqlite:///{tmp_path}/manifest.db")) as store:
        shop = Shop(given.inventory(store), storage.as_uri(tmp_path / "output"))
        shop.land(1, [{"id": 1, "name": "a"}])
        shop.land(2, [{"ID": 2, "Name": "b"}], (Column("ID", "bigint"), Column("Name", "string(10)")))
        shop.publish()
        reader = Reader(shop.inventory)
        assert reader.query("SELECT id, name FROM log ORDER BY id")[1] == [(1, "a"), (2, "b")]


def test_the_confinement_does_not_rest_on_what_a_query_says() -> None:
    """A statement that came past the look at its kind finds no file, and gets none back."""
    with closing(questions.connect()) as connection:
        for told in ("SET enable_external_access = true", "SET disabled_filesystems = ''", "SET threads = 1"):
            with pytest.raises(duckdb.Error, match="locked"):
                connection.execute(told)
        with pytest.raises(duckdb.PermissionException):
            connection.execute("ATTACH '/tmp/other'")
        found = "SELECT current_setting('enable_external_access'), current_setting('temp_directory')"
        assert connection.execute(found).fetchall() == [(False, "")]
