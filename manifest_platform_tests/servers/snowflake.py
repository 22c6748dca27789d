"""A stand-in for Snowflake in tests: fakesnow, which translates Snowflake's statements for DuckDB, in this process.

Use the fixture `snowflake`: the settings of an empty database, with a stage over the local disk.

Real: statements and their parser, quoted names and their case, types and the information schema, COPY from a stage with FILES
and MATCH_BY_COLUMN_NAME, the load history that skips a file the second time, transactions and what others see of them.

Not real, and shimmed here, because fakesnow or DuckDB differ:

- The stage's URL is `file:///`; a real one is `s3://…`. Object names are unquoted, and patterns in them are taken literally.
- A transaction never waits for a lock: DuckDB refuses the second writer of a *row* at once. The shim tells that as Snowflake
  tells a lock with too many waiters. So nothing here shows a wait, or that a whole table is locked.
- DDL does not commit (fakesnow does that only with autocommit off). The guard of the protocol's transactions is tested apart.
- COPY refuses a text that is longer than its column, as Snowflake does.
- INCLUDE_METADATA: each object is copied by itself, and its name is written afterward.
- `SYSTEM$CANCEL_ALL_QUERIES` interrupts the session with that number.
- Facts about the session, such as its role, are made up.
- Keys are dropped, because Snowflake does not enforce them.
- `COLLATE`, `STORAGE_INTEGRATION` and session parameters are dropped: tests compare their texts.

Nothing here: logins, roles and privileges, virtual warehouses, timeouts, query tags, clustering, time travel.
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest import mock
from urllib.parse import unquote

import pytest

from manifest_platform.warehouse.engines.snowflake.settings import SnowflakeSettings

PASSWORD = "SNOWFLAKE_TEST_PASSWORD"
URL = "snowflake://loader@fake-account/analytics?warehouse=LOADING&role=LOADER"
_DROPPED = re.compile(r""" COLLATE 'utf8'| STORAGE_INTEGRATION = \w+|, PRIMARY KEY \([^)]*\)""")
_COPIED = re.compile(r"COPY INTO (\S+) FROM ")
_WITH_FILE = re.compile(
    r"(COPY INTO (\S+) FROM .* FILES = )\((.*?)\)( FILE_FORMAT .*) INCLUDE_METADATA = \((\S+) = METADATA\$FILENAME\)"
)
_FILE = re.compile(r"'(?:[^']|'')*'")
_ABOUT = "SELECT CURRENT_VERSION(), CURRENT_ROLE(), CURRENT_WAREHOUSE(), CURRENT_REGION()"
_CANCEL = re.compile(r"SELECT SYSTEM\$CANCEL_ALL_QUERIES\((\d+)\)")


class Sessions:
    """The open sessions of the stand-in, by number. `statements`, `tags`: all that were sent, in order."""

    def __init__(self, connect: Any) -> None:
        self._connect = connect
        self._numbers = itertools.count(1)
        self.open: dict[int, Any] = {}
        self.statements: list[str] = []
        self.tags: list[str] = []
        self.given: list[dict[str, Any]] = []

    def connect(self, **given: Any) -> Session:
        """Opens a session. Takes the driver's arguments."""
        self.given.append(given)
        connection = self._connect(database=given["database"], paramstyle=given["paramstyle"], autocommit=given["autocommit"])
        number = next(self._numbers)
        self.open[number] = connection
        return Session(self, number, connection)


class Session:
    """A session, as the driver's."""

    def __init__(self, sessions: Sessions, number: int, connection: Any) -> None:
        self._sessions, self.session_id, self._connection = sessions, number, connection

    def cursor(self) -> Cursor:
        """Opens a cursor."""
        return Cursor(self._sessions, self._connection.cursor(), self._connection)

    def close(self) -> None:
        """Ends the session."""
        self._sessions.open.pop(self.session_id, None)
        self._connection.close()


class Cursor:
    """A cursor, as the driver's, with DuckDB's errors told as Snowflake's."""

    def __init__(self, sessions: Sessions, cursor: Any, connection: Any) -> None:
        self._sessions, self._cursor, self._connection = sessions, cursor, connection

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, sql: str, parameters: Any = None, _statement_params: Any = None) -> Cursor:
        """Runs a statement."""
        self._sessions.statements.append(sql)
        self._sessions.tags.append((_statement_params or {}).get("QUERY_TAG", ""))
        if found := _CANCEL.fullmatch(sql):
            if busy := self._sessions.open.get(int(found[1])):
                busy._duck_conn.interrupt()
            sql = "SELECT 1"
        if sql == _ABOUT:
            sql = "SELECT '9.1', 'LOADER', 'LOADING', NULL"
        with _told_as_snowflake():
            if found := _WITH_FILE.fullmatch(sql):
                self._copy_each(*found.groups())
            else:
                self._cursor.execute(_DROPPED.sub("", sql), parameters)
            if found := _COPIED.match(sql):
                self._refuse_long(found[1])
        return self

    def _refuse_long(self, table: str) -> None:
        """Takes the copied rows back, and refuses them, if a text is longer than its column: DuckDB knows no lengths."""
        from snowflake.connector.errors import ProgrammingError

        schema, name = (part.strip('"') for part in table.split("."))
        asking = Cursor(self._sessions, self._connection.cursor(), self._connection)
        asking._cursor.execute(
            "SELECT COLUMN_NAME, CHARACTER_MAXIMUM_LENGTH FROM INFORMATION_SCHEMA.COLUMNS WHERE DATA_TYPE = 'TEXT' "
            f"AND TABLE_SCHEMA = '{schema}' AND TABLE_NAME = '{name}' AND CHARACTER_MAXIMUM_LENGTH < 16777216"
        )
        for column, most in asking.fetchall():
            asking._cursor.execute(f'SELECT count(*) FROM {table} WHERE LENGTH("{column}") > {most}')
            if asking.fetchall() != [(0,)]:
                asking._cursor.execute(f"DELETE FROM {table}")
                raise ProgrammingError(f"User character length limit ({most}) exceeded by string", errno=100074)

    def _copy_each(self, copy: str, table: str, files: str, options: str, column: str) -> None:
        """Copies file by file, and writes its name to a column."""
        for file in _FILE.findall(files):
            self._cursor.execute(f"{copy}({file}){options}")
            self._cursor.execute(f"UPDATE {table} SET {column} = {file} WHERE {column} IS NULL")

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows. fakesnow's own rows lack a column whose name occurs twice."""
        return list(zip(*(column.to_pylist() for column in self._cursor._arrow_table.columns), strict=True))

    def fetchmany(self, most: int) -> list[tuple[Any, ...]]:
        """Returns the first rows."""
        return self.fetchall()[:most]


@contextmanager
def _told_as_snowflake() -> Generator[None]:
    import duckdb
    from snowflake.connector.errors import OperationalError, ProgrammingError

    try:
        yield
    except ProgrammingError as error:
        if "already exists" in str(error.msg) and error.errno != 2002:
            raise ProgrammingError(str(error.msg), errno=2002, sqlstate="42710") from error
        raise
    except duckdb.TransactionException as error:
        raise ProgrammingError(f"{error}: the number of waiters for this lock exceeds the limit", errno=625) from error
    except duckdb.InterruptException as error:
        raise ProgrammingError("SQL execution canceled", errno=604, sqlstate="57014") from error
    except duckdb.ConstraintException as error:
        if "ext_table_name" in str(error):  # fakesnow's own catalog, where two sessions created one table
            raise ProgrammingError(f"Object already exists. {error}", errno=2002, sqlstate="42710") from error
        raise ProgrammingError(str(error), errno=100072, sqlstate="22000") from error
    except duckdb.IOException as error:
        raise ProgrammingError(f"Remote file was not found. {error}", errno=91016, sqlstate="22000") from error
    except (duckdb.ConnectionException, duckdb.FatalException) as error:
        raise OperationalError(str(error), errno=250002) from error
    except duckdb.Error as error:
        raise ProgrammingError(str(error), errno=100000, sqlstate="22000") from error


def _read_parquet(_handler: object, path: str) -> Any:
    """The reader of a Parquet file, whose path tells nothing: DuckDB would make a column of a folder `date=…`."""
    from sqlglot import exp

    literal_path = exp.Literal.string(path)
    return exp.func("read_parquet", literal_path, exp.EQ(this=exp.to_identifier("hive_partitioning"), expression=exp.false()))


def _source_urls(source: str, files: list[str]) -> list[str]:
    """The paths of staged files: the URL of a stage and a file's name, which are not patterns."""
    return [glob.escape(unquote(source.removeprefix("file://") + file)) for file in files]


@contextmanager
def fake_snowflake() -> Generator[Sessions]:
    """Replaces the driver by fakesnow, with an empty account that has one stage."""
    import fakesnow
    import fakesnow.copy_into
    import snowflake.connector

    with ExitStack() as stack:
        stack.enter_context(fakesnow.patch())
        sessions = Sessions(snowflake.connector.connect)
        stack.enter_context(mock.patch.object(snowflake.connector, "connect", sessions.connect))
        stack.enter_context(mock.patch.object(fakesnow.copy_into, "_source_urls", _source_urls))
        stack.enter_context(mock.patch.object(fakesnow.copy_into.ReadParquet, "read_expression", _read_parquet))
        first = sessions.connect(database="analytics", paramstyle="qmark", autocommit=True)
        for statement in ("CREATE SCHEMA IF NOT EXISTS PUBLIC", "CREATE STAGE PUBLIC.SHREDDED URL='file:///'"):
            first.cursor().execute(statement)
        sessions.statements.clear()
        sessions.tags.clear()
        sessions.given.clear()
        yield sessions
        for connection in list(sessions.open.values()):
            with suppress(Exception):
                connection.close()


@pytest.fixture
def snowflake_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    """The stand-in, with what was sent to it."""
    monkeypatch.setenv(PASSWORD, "a-password-for-tests")
    with fake_snowflake() as sessions:
        yield sessions


@pytest.fixture
def snowflake(snowflake_sessions: Sessions) -> SnowflakeSettings:
    """The settings of an empty database."""
    return settings_of()


def settings_of(**changes: Any) -> SnowflakeSettings:
    """Returns settings for the stand-in."""
    given = {"url": URL, "password_variable": PASSWORD, "stage": "PUBLIC.SHREDDED", **changes}
    return SnowflakeSettings.model_validate(given)
