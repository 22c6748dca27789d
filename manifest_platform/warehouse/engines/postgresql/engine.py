"""The PostgreSQL engine: a server that several processes load and read at the same time."""

from __future__ import annotations

import functools
import os
import re
import ssl
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

from manifest_platform.listing import Table
from manifest_platform.masking import SecretOutOfReach, UnusableSecret
from manifest_platform.warehouse.engines.engine import CONTROL_SCHEMA, NTH, Engine, JsonEntries, Need, Same, Staging, schemas_of
from manifest_platform.warehouse.engines.marks import translated as with_marks
from manifest_platform.warehouse.engines.postgresql import staging as copying
from manifest_platform.warehouse.engines.postgresql.catalog import ATTACHED, COLUMNS, INDEX, OWNERS, REQUIRED, VIEWS
from manifest_platform.warehouse.engines.postgresql.errors import translated
from manifest_platform.warehouse.engines.postgresql.rows import HEADER, TRAILER, encoded
from manifest_platform.warehouse.errors import (
    Conflict,
    ConstraintViolated,
    IncompatibleChange,
    LoadFailed,
    Unavailable,
    WarehouseError,
)
from manifest_platform.warehouse.names import with_ending
from manifest_platform.warehouse.upkeep_settings import UpkeepAction

if TYPE_CHECKING:
    import psycopg

_SQL_TYPES = {
    "boolean": "boolean",
    "integer": "integer",
    "bigint": "bigint",
    "double": "double precision",
    "timestamp": "timestamp without time zone",
    "date": "date",
    "json": "text",  # the type json would refuse what other parsers accept
    "string": "text",
}
_LOGICAL_TYPES = {sql: logical for logical, sql in _SQL_TYPES.items()} | {
    "character varying": "string",
    "text": "string",
    "smallint": "integer",  # of a table that another loader made: it holds the values that its schema allows
}
_ALTER_WAITS_MILLISECONDS = 200
_LOCKED = "55P03"
_LOOKED_UP = 10_000
"""Most keys of a DELETE that are looked up in the index one by one."""
_KEPT_TABLES = 200
"""Most staging tables that a session keeps for later loads."""
_VERIFIED = "verify-full"
_EXPLAINS = re.compile(r"\s*(EXPLAIN|SHOW)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    """The place of a database, and what a connection to it needs. `place`: the database, for people."""

    url: str
    place: str
    password: Callable[[], str | None]
    statement_timeout_seconds: float | None = None
    removes_nul: bool = False

    @property
    def database(self) -> str:
        """The name of the database."""
        return unquote(urlsplit(self.url).path.strip("/"))

    @property
    def user(self) -> str:
        """The role that connects; empty if the URL leaves it open."""
        return unquote(urlsplit(self.url).username or "")


class PostgreSQL(Engine):
    """A PostgreSQL database.

    Its transactions are READ COMMITTED: a load's first write is that of the fence's row. A second load waits there for the
    first, then finds that its condition no longer holds.
    """

    longest_name: ClassVar[int | None] = 63
    measures_texts: ClassVar[bool] = True
    most_columns: ClassVar[int | None] = 1_600
    swaps_names: ClassVar[bool] = False
    views_span_schemas: ClassVar[bool] = True

    def __init__(self, address: Address, patience: float = Engine.patience, read_only: bool = False) -> None:
        self.address, self.patience, self.read_only = address, patience, read_only
        self._connection: psycopg.Connection[Any] | None = None
        self._staging_tables: dict[str, str] = {}  # the columns of each staging table of the session
        self._spare: dict[str, list[str]] = {}  # empty staging tables, by their columns
        self._indexes: dict[tuple[str, str], bool] = {}  # by table and column

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""
        cursor = self._run(sql, parameters)
        return cursor.fetchall() if cursor.description else []

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Runs one INSERT, UPDATE, DELETE or COPY and returns the number of rows that it wrote."""
        return self._run(sql, parameters).rowcount

    def _run(self, sql: str, parameters: Sequence[Any]) -> psycopg.Cursor[Any]:
        cursor = self.connection().cursor()
        with self._errors(sql), self._briefly_locked(sql):
            cursor.execute(with_marks(sql, "dollar").encode(), list(parameters) or None)
        return cursor

    @contextmanager
    def _briefly_locked(self, sql: str) -> Generator[None]:
        """Lets a statement that alters a table wait for its readers only for a moment, because new readers wait behind it."""
        if not sql.startswith("ALTER TABLE") or self._in_transaction:
            yield
            return
        self.connection().execute(f"SET lock_timeout = {_ALTER_WAITS_MILLISECONDS}".encode())
        try:
            yield
        finally:
            if self._connection is not None and not self._connection.closed:
                self._connection.execute(self._lock_timeout)

    @property
    def _in_transaction(self) -> bool:
        import psycopg

        return self.connection().info.transaction_status is not psycopg.pq.TransactionStatus.IDLE

    @property
    def _lock_timeout(self) -> bytes:
        return f"SET lock_timeout = {max(1, round(self.patience * 1000))}".encode()

    @contextmanager
    def _errors(self, sql: str) -> Generator[None]:
        """Translates PostgreSQL's errors. Drops a connection that is broken."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            found = translated(error, self.address.place, sql, self.address.user)
            if self._connection is not None and self._connection.closed:
                self.close()
            if error.sqlstate == _LOCKED and sql.startswith("ALTER TABLE"):
                found = Unavailable(str(found), soon=True)
            raise found from error

    def query(self, sql: str, schema: str | None = None, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Runs a person's query in a transaction that only reads, and returns its column names and its rows.

        A cursor takes a single SELECT, VALUES, TABLE or WITH and nothing else; EXPLAIN and SHOW run as they are.
        """
        text = sql.strip().removesuffix(";")
        direct = _EXPLAINS.match(text)
        try:
            self.execute("BEGIN READ ONLY")
            self.execute(f"SET LOCAL search_path = {self.quote(schema or 'public')}")
            cursor = self.connection().cursor()
            with self._errors(sql):
                if direct:
                    cursor.execute(text.encode(), binary=True)  # binary, because only that protocol takes a single statement
                else:
                    cursor.execute(f"DECLARE asked NO SCROLL CURSOR FOR {text}".encode(), binary=True)
                    cursor.execute(b"FETCH ALL FROM asked" if most is None else f"FETCH {int(most)} FROM asked".encode())
                rows = cursor.fetchall()
            return [column.name for column in cursor.description or ()], rows[:most]
        finally:
            self.rollback()

    def begin(self) -> None:
        """Begins a transaction that sees what others commit, statement by statement."""
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED")

    def commit(self) -> None:
        """Commits durably. Raises Conflict or ConstraintViolated if the server certainly rolled back, otherwise Unclear."""
        import psycopg

        status = None if self._connection is None else self._connection.info.transaction_status
        if status is not psycopg.pq.TransactionStatus.INTRANS:
            self.rollback()
            raise Conflict(f"{self.address.place}: the transaction ended before its COMMIT, and was rolled back")
        try:
            super().commit()
        except Exception as error:
            if isinstance(error.__cause__, ConstraintViolated):  # a deferred constraint: the server has answered
                raise error.__cause__ from error
            raise

    def rollback(self) -> None:
        """Rolls back the open transaction, if there is one."""
        import psycopg

        if self._connection is None:
            return
        try:
            if self._connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
                self._connection.execute(b"ROLLBACK")
        except psycopg.Error:
            self.close()

    def interrupt(self) -> None:
        """Makes the running statement fail, if there is one."""
        import psycopg

        if (connection := self._connection) is not None:
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=5)

    def close(self) -> None:
        """Closes the connection; temporary tables go with it."""
        connection, self._connection = self._connection, None
        self._staging_tables.clear()
        self._spare.clear()
        self._indexes.clear()
        if connection is not None:
            connection.close()

    def qualified(self, schema: str, table: str | None = None) -> str:
        """Returns the quoted name of a schema, or of a table in it."""
        return ".".join(self.quote(part) for part in (schema, table) if part is not None)

    def sql_type(self, logical: str) -> str:
        """Returns PostgreSQL's name of the type. Texts have no length."""
        return _sql_type(logical)

    def position_type(self) -> str:
        """Returns text with the collation that compares bytewise, because the database's may compare as a dictionary does."""
        return 'text COLLATE "C"'

    def columns(self, schema: str) -> dict[str, dict[str, str]]:
        """Returns the columns of a schema's tables, with one query of the catalog."""
        found: dict[str, dict[str, str]] = {}
        for table, column, sql_type in self.execute(COLUMNS, (self.stored_name(schema),)):
            found.setdefault(table, {})[column] = logical_type(sql_type)
        return found

    def views(self, schema: str) -> list[str]:
        """Returns the names of the views of a schema."""
        return [name for (name,) in self.execute(VIEWS, (self.stored_name(schema),))]

    def table_creation(self, name: str, columns: Mapping[str, str], table: Table | None) -> str:
        """Returns the statement that creates a table, with an index of its key: each window deletes rows by their keys."""
        creation = super().table_creation(name, columns, table)
        if table is None or not table.key or table.mode == "append":
            return creation
        index = self.quote(with_ending(table.name, "__mp_key", self.longest_name))
        key = ", ".join(map(self.quote, table.key))
        return f"{creation}; CREATE INDEX IF NOT EXISTS {index} ON {name} ({key})"

    def index_creation(self, name: str, table: str, columns: Sequence[str]) -> str:
        """Returns the statement that creates an index if absent: the server would read the whole table otherwise."""
        return f"CREATE INDEX IF NOT EXISTS {self.quote(name)} ON {table} ({', '.join(map(self.quote, columns))})"

    def create_schema(self, schema: str) -> None:
        """Creates a schema if absent. The statement alone needs a privilege of the database even if the schema exists."""
        if not self.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?", (self.stored_name(schema),)):
            super().create_schema(schema)

    def widen(self, table: str, column: str, sql_type: str) -> None:
        """Gives a column a wider type. Raises IncompatibleChange if something that people added depends on the column."""
        import psycopg

        try:
            self.execute(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {sql_type}")
        except LoadFailed as error:
            cause = error.__cause__
            if not isinstance(cause, psycopg.errors.FeatureNotSupported):
                raise
            raise IncompatibleChange(
                f"table {table}, column {column} must become {sql_type}, but PostgreSQL refuses it: "
                f"{cause.diag.message_primary}: {cause.diag.message_detail}. Nothing was changed. Drop what depends on it, "
                "resolve the item, and create it again after the load"
            ) from error

    def required(self, schema: str) -> dict[str, list[str]]:
        """Returns the columns that are NOT NULL, without those of a primary key, which are never empty."""
        found: dict[str, list[str]] = {}
        for table, column in self.execute(REQUIRED, (self.stored_name(schema),)):
            found.setdefault(table, []).append(column)
        return found

    def deletion(self, table: str, staged: str, same: Same, rows: int | None = None) -> str:
        """Returns a DELETE that looks few keys up in the index, whatever the server guesses.

        Staged rows have no statistics, and a table whose rows were just loaded has none either: the server then reads it whole.
        """
        (key, stored), *more = same
        if more or rows is None or rows > _LOOKED_UP or not self._has_index(table, stored):
            return super().deletion(table, staged, same, rows)
        return f"DELETE FROM {table} WHERE {stored} = ANY (ARRAY(SELECT {key} FROM {staged}))"  # noqa: S608

    def _has_index(self, table: str, column: str) -> bool:
        """True if an index of a table begins with a column. People may drop ours; each session asks once."""
        if (table, column) not in self._indexes:
            self._indexes[table, column] = bool(self.execute(INDEX, (table, column)))
        return self._indexes[table, column]

    def tidy(self, table: str, action: UpkeepAction) -> None:
        """Runs ANALYZE or VACUUM. Neither blocks readers or loads."""
        self.execute(f"{'ANALYZE' if action == 'analyze' else 'VACUUM'} {table}")

    def attached(self, schema: str) -> dict[str, list[str]]:
        """Returns indexes, constraints, views, grants, comments, defaults, triggers and policies of a schema's tables."""
        found: dict[str, list[str]] = {}
        for table, what in self.execute(ATTACHED, (self.stored_name(schema),)):
            found.setdefault(table, []).append(what)
        return found

    def json_each(self, column: str) -> JsonEntries:
        """Returns the entries of the JSON object in a text column."""
        return JsonEntries(f"json_each_text(CAST({column} AS json)) AS entry", "entry.key", "entry.value")

    def grants(self, datasets: Sequence[str], role: str, objects: Sequence[str] = ()) -> list[str]:
        """Returns the statements for an administrator. The role then owns the tables that it creates in the schemas."""
        database, to = self.quote(self.address.database), self.quote(role)
        statements = [f"GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {to}"]
        for schema in schemas_of(datasets):
            statements += [self.schema_creation(schema), f"GRANT USAGE, CREATE ON SCHEMA {self.qualified(schema)} TO {to}"]
        return statements

    def grant_for(self, need: Need) -> list[str]:
        """Returns the statements that give the role of the URL what it lacks."""
        to, database, control = f"TO {self.quote(self._role)}", self.quote(self.address.database), self.quote(CONTROL_SCHEMA)
        if need is Need.CONTROL_TABLES:
            return [
                f"GRANT USAGE, CREATE ON SCHEMA {control} {to}",
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {control} {to}",
            ]
        names = {Need.CONNECT: "CONNECT", Need.CREATE_SCHEMA: "CREATE", Need.STAGE: "TEMPORARY"}
        return [f"GRANT {names[need]} ON DATABASE {database} {to}"]

    def owners_apart(self, schema: str) -> dict[str, str]:
        """Returns the tables of owners whose rights this role does not have: no GRANT gives the right to alter a table."""
        return dict(self.execute(OWNERS, (self.stored_name(schema),)))

    def facts(self) -> dict[str, str]:
        """Returns the server's version, the role, and the encryption of the connection."""
        [(version, role)] = self.execute("SELECT current_setting('server_version'), current_user")
        is_encrypted = self.connection().pgconn.ssl_in_use
        return {"version": version, "role": role, "encryption": "TLS" if is_encrypted else "none"}

    @property
    def _role(self) -> str:
        parts = urlsplit(self.address.url)
        return unquote(parts.username or "") or dict(parse_qsl(parts.query)).get("user", "role")

    def stage(self, table: Table, uris: list[str]) -> Staging:
        """Copies the rows of the objects to a temporary table of this session, batch by batch."""
        return self._copied(table, copying.Rows(table, uris, self.address.removes_nul))

    def stage_items(self, table: Table, uris: Mapping[int, list[str]]) -> Staging:
        """Copies the rows of all items to one temporary table. The place of each row's item is a further column."""
        places = {uri: nth for nth, some in uris.items() for uri in some}
        return self._copied(table, copying.Rows(table, list(places), self.address.removes_nul, places), (NTH,))

    def _copied(self, table: Table, rows: copying.Rows, numbers: Sequence[str] = ()) -> Staging:
        """Copies rows to an empty temporary table, which has the columns of a table, then columns of numbers."""
        columns = [f"{self.quote(column.name)} {self.sql_type(column.type)}" for column in table.columns]
        columns += [f"{self.quote(number)} integer" for number in numbers]
        name = self._staging_table(", ".join(columns))
        staging = Staging(name)
        try:
            self._copy(name, rows)
        except BaseException:
            self.unstage(staging)
            raise
        return staging

    def _staging_table(self, columns: str) -> str:
        """Returns the quoted name of an empty temporary table: that of an earlier load if it fits, or of a new table."""
        self.connection()  # a new session has no tables yet
        if spare := self._spare.get(columns):
            return spare.pop()
        name = f'"mp_{uuid.uuid4().hex}"'
        self.execute(f"CREATE TEMPORARY TABLE {name} ({columns})")
        self._staging_tables[f"pg_temp.{name}"] = columns
        return f"pg_temp.{name}"

    def _copy(self, table: str, rows: copying.Rows) -> None:
        """Sends rows to a table, a batch at a time, so that any number of rows needs the memory of one batch."""
        import psycopg

        statement = f"COPY {table} FROM STDIN (FORMAT binary)"
        with self._errors(statement):
            try:
                with self.connection().cursor().copy(statement.encode()) as into:
                    into.write(HEADER)
                    for batch in rows.batches():
                        into.write(encoded(batch))
                    into.write(TRAILER)
            except (psycopg.DataError, psycopg.OperationalError) as error:
                if refused := rows.refused(error):
                    raise refused from error
                raise

    def unstage(self, staging: Staging) -> None:
        """Drops the temporary table, if the session that has it still exists."""
        self._drop_staging([staging.sql])

    def unstage_all(self, stagings: Iterable[Staging]) -> None:
        """Empties the temporary tables with one statement, and keeps them for the next load of this session."""
        names = [staging.sql for staging in stagings if staging.sql in self._staging_tables]
        if not names or self._connection is None:
            return
        if len(self._staging_tables) > _KEPT_TABLES:
            self._drop_staging(names)
            return
        try:
            self.execute(f"TRUNCATE {', '.join(names)}")
        except WarehouseError:
            self._drop_staging(names)
            return
        for name in names:
            self._spare.setdefault(self._staging_tables[name], []).append(name)

    def _drop_staging(self, names: Sequence[str]) -> None:
        for name in names:
            self._staging_tables.pop(name, None)
        if self._connection is not None:
            with suppress(WarehouseError):
                self.execute(f"DROP TABLE IF EXISTS {', '.join(names)}")

    def connection(self) -> psycopg.Connection[Any]:
        """Returns psycopg's own connection. Raises Unavailable if the server cannot be reached."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> psycopg.Connection[Any]:
        import psycopg

        try:
            options = self._options()
        except (UnusableSecret, SecretOutOfReach) as error:
            raise Unavailable(f"{self.address.place}: {error}") from error
        with self._errors("connect"):
            connection = psycopg.connect(self.address.url, autocommit=True, **options)
        connection.prepare_threshold = None
        connection.cursor_factory = psycopg.RawCursor
        with self._errors("SET"):
            connection.execute(self._lock_timeout)
            connection.execute(b"SET TimeZone = 'UTC'")
            if self.read_only:
                connection.execute(b"SET default_transaction_read_only = on")
            if seconds := self.address.statement_timeout_seconds:
                connection.execute(f"SET statement_timeout = {max(1, round(seconds * 1000))}".encode())
        return connection

    def _options(self) -> dict[str, Any]:
        """The parameters of the connection that the URL leaves open."""
        parts = urlsplit(self.address.url)
        given = dict(parse_qsl(parts.query))
        host = given.get("host") or parts.netloc.rpartition("@")[2]
        options: dict[str, Any] = {
            "application_name": "manifest-platform",
            "connect_timeout": max(2, round(self.patience)),
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "client_encoding": "UTF8",
        }
        if host and not host.startswith(("/", "@", "%2F", "%2f")) and given.get("sslmode", _VERIFIED) == _VERIFIED:
            options |= {"sslmode": _VERIFIED, "sslrootcert": _authorities()}
        return {name: value for name, value in options.items() if name not in given} | {"password": self.address.password()}


def _authorities() -> str:
    """Returns the place of the certificates of the authorities to trust, unless the URL names one.

    A driver that brings its own libraries looks for the system's certificates where they were built.
    """
    own = os.environ.get("PGSSLROOTCERT") or Path("~/.postgresql/root.crt").expanduser()
    return str(own) if Path(own).exists() else ssl.get_default_verify_paths().cafile or "system"


@functools.cache
def _sql_type(logical: str) -> str:
    if decimal := re.fullmatch(r"decimal\((\d+),(\d+)\)", logical):
        return f"numeric({decimal[1]},{decimal[2]})"
    return _SQL_TYPES.get(re.sub(r"^string\(\d+\)$", "string", logical), logical)


def logical_type(sql_type: str) -> str:
    """Returns the logical type of one of PostgreSQL's; an unknown type unchanged."""
    if sized := re.fullmatch(r"(?:numeric|character(?: varying)?)(\(.+\))", sql_type):
        return ("decimal" if sql_type.startswith("numeric") else "string") + sized[1]
    return _LOGICAL_TYPES.get(sql_type, sql_type)
