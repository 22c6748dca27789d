"""The stand-in for Redshift: each difference to PostgreSQL that the product must bear is true of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import redshift_connector
from redshift_connector.error import ProgrammingError

from manifest_platform import storage
from manifest_platform_tests.servers.redshift import ROLE, ROLE_WITHOUT_S3, Redshift

MANY = [f"c{n}" for n in range(1600)]


class Client:
    """A session of the stand-in, as a program has one: autocommit, until it begins a transaction."""

    def __init__(self, redshift: Redshift) -> None:
        self.connection = redshift_connector.connect(
            host=redshift.host, port=redshift.port, database=redshift.database, user="postgres", password="x", ssl=False
        )
        self.connection.autocommit = True

    def run(self, sql: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        cursor.paramstyle = "qmark"
        cursor.execute(sql, values)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def refuses(self, sql: str, message: str) -> None:
        with pytest.raises(ProgrammingError, match=message):
            self.run(sql)


@contextmanager
def session(redshift: Redshift) -> Generator[Client]:
    client = Client(redshift)
    with closing(client.connection):
        yield client


@pytest.fixture
def client(redshift: Redshift) -> Iterator[Client]:
    with session(redshift) as client:
        yield client


@pytest.fixture
def other(redshift: Redshift) -> Iterator[Client]:
    with session(redshift) as client:
        yield client


def put(bucket: str, name: str, rows: pa.Table) -> dict[str, Any]:
    """Writes an object, and returns its entry in a manifest."""
    uri = f"{bucket}/{name}"
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(rows, sink)
    data = sink.getvalue().to_pybytes()
    storage.write_bytes(uri, data)
    return {"url": uri, "mandatory": True, "meta": {"content_length": len(data)}}


def copy(bucket: str, entries: list[dict[str, Any]], table: str = "t", role: str = ROLE) -> str:
    """Writes a manifest, and returns the COPY of its objects."""
    storage.write_bytes(f"{bucket}/m.manifest", json.dumps({"entries": entries}).encode())
    return f"COPY {table} FROM '{bucket}/m.manifest' IAM_ROLE '{role}' FORMAT AS PARQUET MANIFEST"


def test_copy_loads_by_position_and_tells_the_rows(client: Client, s3_bucket: str) -> None:
    entries = [put(s3_bucket, f"{n}", pa.table({"x": pa.array([n, None], pa.int32()), "y": ["", 'a,"\n']})) for n in (1, 2)]
    client.run("CREATE TABLE t (a INTEGER, b VARCHAR(20))")
    client.run("BEGIN")
    client.run(copy(s3_bucket, entries))
    assert b"Load into table 't' completed, 4 record(s) loaded successfully." in client.connection.notices[-1].values()
    assert client.run("SELECT * FROM t ORDER BY 1, 2") == [(1, ""), (2, ""), (None, 'a,"\n'), (None, 'a,"\n')]
    client.run("ROLLBACK")
    assert client.run("SELECT count(*) FROM t") == [(0,)]


def test_copy_refuses_what_does_not_fit(client: Client, s3_bucket: str) -> None:
    good = put(s3_bucket, "a", pa.table({"x": pa.array([1], pa.int32()), "y": ["four"]}))
    client.run("CREATE TABLE t (a INTEGER, b VARCHAR(4))")
    client.run("CREATE TABLE narrow (a INTEGER)")
    client.run("CREATE TABLE other (a BIGINT, b VARCHAR(4))")
    client.run("CREATE TABLE short (a INTEGER, b VARCHAR(3))")
    client.refuses(copy(s3_bucket, [good], "narrow"), "Unmatched number of columns")
    client.refuses(copy(s3_bucket, [good], "other"), "incompatible Parquet schema for column a. Column type: BIGINT")
    client.refuses(copy(s3_bucket, [good], "short"), "is longer than the length defined")
    client.refuses(copy(s3_bucket, [{**good, "url": f"{s3_bucket}/gone"}]), "does not exist")
    client.refuses(copy(s3_bucket, [{"url": good["url"], "mandatory": True}]), "missing meta content_length")
    client.refuses(copy(s3_bucket, [good], role="arn:aws:iam::1:role/x"), "not authorized to assume IAM Role")
    client.refuses(copy(s3_bucket, [good], role=ROLE_WITHOUT_S3), "Access Denied")
    client.run(copy(s3_bucket, [good, {**good, "url": f"{s3_bucket}/gone", "mandatory": False}]))
    assert client.run("SELECT * FROM t") == [(1, "four")]


def test_truncate_commits_the_open_transaction(client: Client, other: Client) -> None:
    client.run("CREATE TABLE t (a INTEGER)")
    client.run("CREATE TABLE u (a INTEGER)")
    client.run("BEGIN")
    client.run("INSERT INTO t VALUES (1)")
    client.run("TRUNCATE u")
    assert other.run("SELECT * FROM t") == [(1,)]
    client.run("ROLLBACK")
    assert client.run("SELECT * FROM t") == [(1,)]


def test_only_the_size_of_a_varchar_changes_upward_and_outside_of_transactions(client: Client) -> None:
    client.run("CREATE TABLE t (a INTEGER, b VARCHAR(4))")
    client.run("ALTER TABLE t ALTER COLUMN b TYPE VARCHAR(8)")
    client.refuses("ALTER TABLE t ALTER COLUMN b TYPE VARCHAR(6)", "greater or equal")
    client.refuses("ALTER TABLE t ALTER COLUMN a TYPE BIGINT", "not supported")
    client.refuses("ALTER TABLE t ADD COLUMN c INTEGER, ADD COLUMN d INTEGER", "one ADD COLUMN")
    client.refuses("ALTER TABLE t ADD COLUMN IF NOT EXISTS c INTEGER", "syntax error")
    client.run("BEGIN")
    client.refuses("ALTER TABLE t ALTER COLUMN b TYPE VARCHAR(9)", "cannot run inside a transaction block")
    client.refuses("SELECT 1", "current transaction is aborted")
    client.run("ROLLBACK")
    client.run("BEGIN")
    client.run("ALTER TABLE t ADD COLUMN c INTEGER")
    client.run("ROLLBACK")
    client.refuses("SELECT c FROM t", "does not exist")


def test_what_postgresql_has_and_redshift_has_not(client: Client) -> None:
    client.run("CREATE TABLE t (a INTEGER, b VARCHAR(4), PRIMARY KEY (a))")
    for sql in (
        "INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING",
        "INSERT INTO t VALUES (1) RETURNING a",
        "CREATE INDEX i ON t (a)",
        "CREATE UNLOGGED TABLE u (a INTEGER)",
        'CREATE TABLE u (a VARCHAR(3) COLLATE "C")',
        "CREATE TABLE u (a VARCHAR(65536))",
    ):
        client.refuses(sql, ".")
    client.run("INSERT INTO t VALUES (1, 'x'), (1, 'x')")
    assert client.run("SELECT count(*) FROM t") == [(2,)], "keys are not enforced"


def test_a_varchar_counts_bytes_and_compares_bytewise(client: Client) -> None:
    client.run("CREATE TABLE t (a VARCHAR(4), b TEXT)")
    client.refuses("INSERT INTO t VALUES ('ääx', '')", "Value too long")
    client.run("INSERT INTO t VALUES ('ää', ?), ('Z', NULL), ('a', NULL)", ("x" * 256,))
    client.refuses(f"INSERT INTO t (b) VALUES ('{'x' * 257}')", "Value too long")
    assert client.run("SELECT a FROM t ORDER BY a") == [("Z",), ("a",), ("ää",)]


def test_the_snapshot_is_taken_first_and_the_second_writer_of_a_row_gets_1023(client: Client, other: Client) -> None:
    client.run("CREATE TABLE t (a INTEGER, b INTEGER)")
    client.run("INSERT INTO t VALUES (1, 0), (2, 0)")
    for one in (client, other):
        one.run("BEGIN")
    client.run("UPDATE t SET b = 1 WHERE a = 1")
    assert other.run("SELECT sum(b) FROM t") == [(0,)], "a reader does not wait for the lock of a writer"
    waited: list[str] = []

    def write() -> None:
        try:
            other.run("UPDATE t SET b = 2 WHERE a = 1")
        except ProgrammingError as error:
            waited.append(str(error))

    thread = threading.Thread(target=write)
    thread.start()
    client.run("COMMIT")
    thread.join()
    assert "1023" in waited[0]
    assert "Serializable isolation violation on table" in waited[0]
    other.run("ROLLBACK")
    assert client.run("SELECT b FROM t ORDER BY a") == [(1,), (0,)]


def test_a_write_locks_its_table_until_the_end_of_the_transaction(client: Client, other: Client) -> None:
    client.run("CREATE TABLE t (a INTEGER)")
    client.run("CREATE TABLE u (a INTEGER)")
    client.run("INSERT INTO t VALUES (1), (2)")
    client.run("BEGIN")
    client.run("DELETE FROM t WHERE a = 1")
    other.run("SET statement_timeout TO 200")
    other.refuses("DELETE FROM t WHERE a = 2", "statement timeout")
    other.run("INSERT INTO u VALUES (1)")
    client.run("COMMIT")
    other.run("DELETE FROM t WHERE a = 2")
    assert client.run("SELECT count(*) FROM t") == [(0,)]


def test_the_layout_of_a_table_is_in_the_catalog(client: Client) -> None:
    client.run("CREATE TABLE t (a VARCHAR(9) ENCODE zstd, b TIMESTAMP) DISTKEY (a) COMPOUND SORTKEY (b, a)")
    client.run("CREATE TABLE u (a INTEGER) DISTSTYLE ALL")
    info = "SELECT \"table\", diststyle, sortkey1 FROM svv_table_info WHERE schema = 'public' ORDER BY 1"
    assert client.run(info) == [("t", "KEY(a)", "b"), ("u", "ALL", "AUTO(SORTKEY)")]
    found = client.run('SELECT "column", type, distkey, sortkey FROM pg_table_def WHERE tablename = ? ORDER BY 1', ("t",))
    assert found == [("a", "character varying(9)", True, 2), ("b", "timestamp without time zone", False, 1)]
    client.refuses("CREATE TABLE v (a INTEGER) DISTSTYLE EVEN DISTKEY (a)", "Cannot specify DISTKEY")
    client.refuses("ALTER TABLE t DROP COLUMN b", "cannot drop")
    client.run("ALTER TABLE t ALTER SORTKEY NONE")
    client.run("ALTER TABLE t DROP COLUMN b")


def test_names_have_127_bytes_and_no_case_unless_the_session_says_so(client: Client) -> None:
    long, longer = "n" * 100, "n" * 200
    client.run(f'CREATE TABLE "{long}x" ("{long}a" INTEGER, "{long}B" INTEGER)')
    client.run(f'CREATE TABLE "{longer}" ("Name__c" INTEGER)')
    client.run("SET enable_case_sensitive_identifier TO true")
    client.run('CREATE TABLE u ("Name__c" INTEGER)')
    columns = client.run(
        "SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid "
        "JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'public' AND a.attnum > 0 ORDER BY 1, 2"
    )
    assert columns == [(longer[:127], "name__c"), (f"{long}x", f"{long}a"), (f"{long}x", f"{long}b"), ("u", "Name__c")]


def test_a_table_has_1600_columns(client: Client) -> None:
    client.run(f"CREATE TABLE t ({', '.join(f'{name} INTEGER' for name in MANY)})")
    client.refuses("ALTER TABLE t ADD COLUMN one_more INTEGER", "at most 1600 columns")


def test_super_and_settings(client: Client) -> None:
    client.run("CREATE TABLE t (a SUPER)")
    client.run('INSERT INTO t SELECT JSON_PARSE(\'{"x": 1, "y": 2}\')')
    client.refuses("SELECT JSON_PARSE('{')", "json")
    assert client.run("SELECT CAN_JSON_PARSE('{'), CAN_JSON_PARSE('1')") == [(False, True)]
    found = client.run('SELECT key, CAST(value AS INTEGER) FROM t AS source, UNPIVOT source.a AS value AT key ORDER BY "key"')
    assert found == [("x", 1), ("y", 2)]
    client.run("SET query_group TO 'loads'")
    assert client.run("SHOW query_group") == [("loads",)]
