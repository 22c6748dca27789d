"""The manifest store in a SQL database, by SQLAlchemy Core: SQLite, the embedded default, and PostgreSQL.

Belongs here: the store contract in SQL, and the differences between the two.

- SQLite runs with a write-ahead log and durable commits. A write transaction takes the database's only write lock at its
  beginning, so the versions that it reads stay valid until it commits.
- PostgreSQL's write transactions lock the keys of their writes until they have committed, also keys without a row. Its
  serializable transactions are not sufficient: a reader between two of them may see an order that contradicts theirs, and the
  choice of a feed's next item depends on such readers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from manifest_platform.manifest.store import (
    ABSENT,
    Check,
    ConditionFailed,
    Delete,
    Difference,
    OutcomeUnknown,
    Row,
    StoreRejected,
    StoreUnavailable,
    Units,
    Write,
    check_writes,
)
from manifest_platform.manifest.stores import postgresql_trust
from manifest_platform.remedies import Action, Remedy

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql import Insert as PostgreSqlInsert

log = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 30
"""The time that SQLite waits for its write lock, in seconds."""
CONNECT_TIMEOUT_S = 5
STATEMENT_TIMEOUT_S = 15
"""The time limit of a PostgreSQL statement, waiting for locks included, in seconds."""
DEAD_AFTER_S = 20
"""The limit of PostgreSQL's silence, in seconds.

The client gives up a server that acknowledges nothing for this time, and the server ends a transaction that is idle for it.
"""
CONNECTIONS = 16
TOKEN_LIFETIME_S = 7_200
"""The time for which a token is kept, in seconds.

The contract promises ten minutes; more, because a client's clock may be wrong by an hour, and it must not forget others' tokens
too early.
"""
FORGET_EVERY_S = 60
KEYS_IN_A_STATEMENT = 500
"""The most keys in one statement: an older SQLite takes 999 values."""
_BEYOND = "\x7f"  # sorts behind all characters of keys
_LOWEST = " "  # the first character of keys: a key followed by it is the least text beyond the key
_ALL = 2**63 - 1

_key_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")  # bytewise order, whatever the database's collation is
_metadata = sa.MetaData()
_rows = sa.Table(
    "manifest",
    _metadata,
    sa.Column("partition", _key_text, primary_key=True),
    sa.Column("sort", _key_text, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)
_done = sa.Table(
    "manifest_transactions",
    _metadata,
    sa.Column("token", _key_text, primary_key=True),
    sa.Column("writes", sa.Text, nullable=False),  # their checksum
    sa.Column("at", sa.Double, nullable=False, index=True),
    sqlite_with_rowid=False,
)

# Built once: building a statement takes several times as long as running it.
_here = (_rows.c.partition == sa.bindparam("in_partition"), _rows.c.sort == sa.bindparam("at_sort"))
_expected = (*_here, _rows.c.version == sa.bindparam("expected"))
_get = sa.select(_rows).where(*_here)
_get_many = sa.select(_rows).where(
    _rows.c.partition == sa.bindparam("in_partition"), _rows.c.sort.in_(sa.bindparam("at_sorts", expanding=True))
)
_get_version = sa.select(_rows.c.version).where(*_here)
_delete = sa.delete(_rows).where(*_expected)
_update = sa.update(_rows).where(*_expected).values(version=sa.bindparam("new_version"), data=sa.bindparam("new_data"))
_prefixed = sa.select(_rows).where(
    _rows.c.partition == sa.bindparam("in_partition"), _rows.c.sort >= sa.bindparam("low"), _rows.c.sort < sa.bindparam("high")
)
_ascending = _prefixed.order_by(_rows.c.sort).limit(sa.bindparam("count"))
_descending = _prefixed.order_by(_rows.c.sort.desc()).limit(sa.bindparam("count"))
_forget = sa.delete(_done).where(_done.c.at < sa.bindparam("before"))
_writes_of = sa.select(_done.c.writes).where(_done.c.token == sa.bindparam("of_token"))

CHANNEL = "manifest_platform"
"""The channel of PostgreSQL on which every write is told, without content."""


def _unless_there(insert: sqlite.Insert | PostgreSqlInsert) -> sa.Insert:
    """An insert that skips an existing row, and returns the number of rows inserted."""
    return insert.on_conflict_do_nothing().execution_options(preserve_rowcount=True)


class SqlStore:
    """A store in a SQLite file or a PostgreSQL database; its tables are created on first use.

    Safe for threads and processes. Raises ValueError for any other URL; StoreUnavailable if the database cannot be reached,
    opened or created, is not a database, or stays locked.
    """

    def __init__(self, url: str):
        self.requests = 0
        self.units: Units | None = None
        self._database = _database(url)
        self._forget_at = time.monotonic()
        try:
            self._database.make_tables()
        except DBAPIError as error:
            self._database.engine.dispose()
            raise _cannot_be_opened(self._database, error) from error

    def get(self, partition: str, sort: str) -> Row | None:
        """The row with a key, strongly consistent."""
        found = self._read(_get, {"in_partition": partition, "at_sort": sort})
        return found[0] if found else None

    def get_many(self, partition: str, sorts: Iterable[str]) -> dict[str, Row]:
        """The rows with keys, by sort key. Keys without a row are left out."""
        wanted, rows = list(dict.fromkeys(sorts)), []
        for start in range(0, len(wanted), KEYS_IN_A_STATEMENT):
            some = wanted[start : start + KEYS_IN_A_STATEMENT]
            rows += self._read(_get_many, {"in_partition": partition, "at_sorts": some})
        return {row.sort: row for row in rows}

    def query(
        self,
        partition: str,
        prefix: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        """The rows whose sort key starts with `prefix` and is beyond `after`, in order."""
        low, high = prefix, prefix + _BEYOND
        if after is not None:  # one bound at each end: with two, SQLite seeks by the first and walks to the other
            low, high = (low, min(high, after)) if reverse else (max(low, after + _LOWEST), high)
        values = {"in_partition": partition, "low": low, "high": high, "count": _ALL if limit is None else limit}
        return self._read(_descending if reverse else _ascending, values)

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        """All writes or none."""
        check_writes(writes)
        checksum = hashlib.sha256(repr((partition, list(writes))).encode()).hexdigest()
        self._forget_old_tokens()
        self.requests += 1
        committing = False
        try:
            with self._database.engine.begin() as connection:
                self._database.begin(connection, [f"{partition}\n{write.sort}" for write in writes])
                if not self._is_first(connection, token, checksum):
                    return
                failed = [write for write in writes if not self._apply(connection, partition, write)]
                if failed:
                    raise ConditionFailed(failed)
                committing = True
        except (DBAPIError, PoolTimeout) as error:
            kind = OutcomeUnknown if committing else _kind(error)
            raise kind(f"manifest store {self._database.name}: {_said(error)}") from error

    def close(self) -> None:
        """Closes connections."""
        self._database.engine.dispose()

    def _is_first(self, connection: sa.Connection, token: str, checksum: str) -> bool:
        values = {"token": token, "writes": checksum, "at": time.time()}
        if connection.execute(self._database.insert_done, values).rowcount == 1:
            return True
        if connection.execute(_writes_of, {"of_token": token}).scalar_one() != checksum:
            raise StoreRejected(f"token {token!r} was used for other writes before: give each transaction its own")
        return False

    def _apply(self, connection: sa.Connection, partition: str, write: Write) -> bool:
        """Carries out one write; returns True if its condition held."""
        here = {"in_partition": partition, "at_sort": write.sort}
        if isinstance(write, Check):
            version = connection.execute(_get_version, here).scalar()
            return (version or ABSENT) == write.expected
        if isinstance(write, Delete):
            return connection.execute(_delete, {**here, "expected": write.expected}).rowcount == 1
        text = json.dumps(write.data, separators=(",", ":"))
        if write.expected == ABSENT:
            values = {"partition": partition, "sort": write.sort, "version": 1, "data": text}
            return connection.execute(self._database.insert, values).rowcount == 1
        changes = {"expected": write.expected, "new_version": write.expected + 1, "new_data": text}
        return connection.execute(_update, {**here, **changes}).rowcount == 1

    def _forget_old_tokens(self) -> None:
        """Removes old tokens now and then, in a transaction of its own, so that other writes need not wait for it."""
        if time.monotonic() < self._forget_at:
            return
        self._forget_at = time.monotonic() + FORGET_EVERY_S
        try:
            with self._database.reader.begin() as connection:
                connection.execute(_forget, {"before": time.time() - TOKEN_LIFETIME_S})
        except (DBAPIError, PoolTimeout) as error:
            log.warning("manifest store %s: old tokens could not be removed yet: %s", self._database.name, _said(error))

    def _read(self, query: sa.Select, parameters: dict[str, Any]) -> list[Row]:
        self.requests += 1
        try:
            with self._database.reader.connect() as connection:
                found = connection.execute(query, parameters)
                return [Row(partition, sort, version, json.loads(data)) for partition, sort, version, data in found]
        except (DBAPIError, PoolTimeout) as error:
            raise _kind(error)(f"manifest store {self._database.name}: {_said(error)}") from error


_FOR_A_PERSON = re.compile(r"no such table|readonly database|not a database|malformed", re.IGNORECASE)
"""SQLite's errors that a later try meets again.

For PostgreSQL the classes 28 (authorization), 3D (no such database) and 42 (no such table, or no right to it) are permanent.
"""


def _kind(error: Exception) -> type[StoreUnavailable] | type[StoreRejected]:
    """The kind of an error with nothing written: transient, or permanent until a person acts."""
    sqlstate = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
    permanent = sqlstate[:2] in ("28", "3D", "42") or _FOR_A_PERSON.search(_said(error))
    return StoreRejected if permanent else StoreUnavailable


_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:]+")


def check_url(url: str) -> sa.URL:
    """The URL of a database that can hold a store. Raises ValueError that says what is allowed, without the URL."""
    allowed = "sqlite:///path/to/manifest.db or postgresql://user@host:5432/database"
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError):  # ValueError: for a port that is not a number
        raise ValueError(f"allowed: {allowed}") from None
    is_file = parsed.drivername == "sqlite" and parsed.database not in (None, "", ":memory:")
    if not is_file and (parsed.drivername != "postgresql" or not parsed.database):
        raise ValueError(f"allowed: {allowed}")
    if parsed.drivername == "postgresql" and not (parsed.host is None or _HOST.fullmatch(parsed.host)):
        raise ValueError(
            f"the host is invalid; write '@', ':', '/' and '%' in a password as %40, %3A, %2F and %25. Allowed: {allowed}"
        )
    if any("password" in name.lower() for name in parsed.query):
        raise ValueError("the query holds a password; give it by PGPASSWORD, PGPASSFILE or as user:${NAME}@host")
    return parsed


def with_database(url: str, named: Callable[[str], str]) -> str:
    """The URL of another database on the same server. Its name is made from this database's name."""
    parsed = check_url(url)
    return parsed.set(database=named(parsed.database or "")).render_as_string(hide_password=False)


def _database(url: str) -> _Sqlite | _PostgreSql:
    parsed = check_url(url)
    return _Sqlite(parsed) if parsed.drivername == "sqlite" else _PostgreSql(parsed)


def _said(error: Exception) -> str:
    """The database's own message, without SQLAlchemy's statement and its data."""
    said = str(error.orig if isinstance(error, DBAPIError) else error)
    return said.strip().partition("\n")[0]


class _Sqlite:
    insert = _unless_there(sqlite.insert(_rows))
    insert_done = _unless_there(sqlite.insert(_done))

    def __init__(self, url: sa.URL):
        path = Path(url.database or "")
        self.name, self.schema = str(path), None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            advice = "name a path in a directory that this user may write in, or make the directory"
            raise StoreUnavailable(f"manifest store {path}: its directory cannot be made ({error}): {advice}") from error
        self.engine = self.reader = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
        event.listen(self.engine, "connect", self._configure)

    @staticmethod
    def _configure(connection, _record) -> None:
        connection.isolation_level = None  # the driver begins no transaction itself: BEGIN IMMEDIATE below is the only begin
        connection.execute("PRAGMA synchronous = FULL")
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:  # SQLite itself does not wait for the lock that this takes on a new file
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(0.01)

    def make_tables(self) -> bool:
        with self.engine.begin() as connection:
            if _are_there(connection):
                return False
            self.begin(connection)
            _metadata.create_all(connection)
            return True

    def look(self, connection: sa.Connection) -> sa.Connection:
        """The connection, unchanged: a file has no schemas."""
        return connection

    def differences(self, connection: sa.Connection) -> Iterator[Difference]:
        """No differences: every connection sets the settings that matter."""
        yield from ()

    def begin(self, connection: sa.Connection, _keys: Sequence[str] = ()) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def advice(self, error: DBAPIError) -> str:
        problem = str(error.orig)
        if "locked" in problem:
            return f"another process has held its lock for {BUSY_TIMEOUT_S} s; try again when it has released the lock"
        if "not a database" in problem or "malformed" in problem:
            return "name another path, or move the file away and restore the manifest from a backup"
        return "make file and directory writable for this user, or name another path"

    def lacks_rights(self, error: DBAPIError) -> bool:
        """Always False: any user who may write the file may create its tables."""
        del error
        return False


class _PostgreSql:
    _MAKING = 0x6D616E69  # an arbitrary number: the lock of the process that creates the tables
    # One statement for both: the notice is sent with the commit, to those who listen, and costs no request of its own.
    _lock = sa.text(
        "SELECT pg_advisory_xact_lock(number), pg_notify(:channel, '')"
        " FROM (SELECT DISTINCT hashtextextended(name, 0) AS number"
        " FROM unnest(CAST(:names AS text[])) AS name ORDER BY number) AS numbers"
    )

    def __init__(self, url: sa.URL):
        from sqlalchemy.dialects import postgresql  # loading it takes longer than a command on SQLite may take

        self.insert = _unless_there(postgresql.insert(_rows))
        self.insert_done = _unless_there(postgresql.insert(_done))
        self.name = url.set(query={}).render_as_string(hide_password=True)
        self.schema: str | None = None  # the schema of the tables, once `look` has found it
        self._url = url
        owner = url.query.get(postgresql_trust.OWNER)
        self._owner = owner if isinstance(owner, str) else None
        self._transport = postgresql_trust.connect_settings(url)
        # Without statistics, or with statistics of a smaller table, the planner would read the whole table for one row.
        settings = f"-c statement_timeout={STATEMENT_TIMEOUT_S}s -c idle_in_transaction_session_timeout={DEAD_AFTER_S}s"
        options = f"{url.query.get('options', '')} {settings} -c enable_seqscan=off"
        self.engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg")
            .difference_update_query([postgresql_trust.OWNER])
            .update_query_dict({"options": options}),
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            pool_size=CONNECTIONS,
            max_overflow=0,
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_S,
                "tcp_user_timeout": DEAD_AFTER_S * 1000,
                "keepalives_idle": DEAD_AFTER_S // 4,
                "keepalives_interval": DEAD_AFTER_S // 4,
                "keepalives_count": 3,
                **self._transport,
            },
        )
        self.reader = self.engine.execution_options(
            isolation_level="AUTOCOMMIT"
        )  # each statement sees everything that is committed
        event.listen(self.engine, "connect", self._close_path)

    def _close_path(self, connection, _record) -> None:
        """Empties the search path.

        Table names get their schema from `look`; no other name comes from a schema that users can write.
        """
        if self.schema is not None:
            connection.autocommit = True  # no COMMIT, whose answer might be lost: that costs the connection, and a request
            with connection.cursor() as cursor:
                cursor.execute(postgresql_trust.CLOSED_PATH)
            connection.autocommit = False

    def look(self, connection: sa.Connection) -> sa.Connection:
        """Finds the schema of the tables, on the first connection, and names it in all later statements."""
        if self.schema is None:
            self.schema = postgresql_trust.home(connection, list(_metadata.tables)) or ""
            named = {"schema_translate_map": {None: self.schema or None}}
            self.engine, self.reader = self.engine.execution_options(**named), self.reader.execution_options(**named)
        return connection.execution_options(schema_translate_map={None: self.schema or None})

    def strangers(self, connection: sa.Connection) -> Iterator[postgresql_trust.Stranger]:
        """The objects on the tables that are not the platform's."""
        return postgresql_trust.strangers(connection, self.schema or "", list(_metadata.tables), self._owner)

    def require_own(self, connection: sa.Connection) -> None:
        """Raises StoreRejected if another role has created the tables, or put something on them."""
        if found := list(self.strangers(connection)):
            raise StoreRejected(
                f"manifest store {self.name}: not the platform's own in schema {self.schema!r}: {'; '.join(map(str, found))}."
                f" Nothing was read or written. {found[0].mend[0].upper()}{found[0].mend[1:]}"
            )

    def make_tables(self) -> bool:
        with self.reader.connect() as connection:
            connection = self.look(connection)
            self.require_own(connection)
            if _are_there(connection, self.schema):
                return False
        with self.engine.execution_options(isolation_level="READ COMMITTED").begin() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(self._MAKING)))
            _metadata.create_all(connection)
            self.require_own(connection)  # another process may have created them meanwhile
            return True

    def differences(self, connection: sa.Connection) -> Iterator[Difference]:
        for stranger in self.strangers(connection):
            yield Difference(stranger.what, "the platform's own", f"of role {stranger.owner!r}", stranger.mend)
        if mode := postgresql_trust.plain_mode(self._url):
            expected = "verify-full: the server proves its identity before it gets any data"
            yield Difference("sslmode", expected, f"{mode}, as manifest.store says", "remove sslmode from manifest.store")
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            found = connection.execute(sa.select(sa.func.current_setting(setting))).scalar_one()
            if found == "off":
                mend = f"ALTER SYSTEM SET {setting} = on, or remove the setting of this database or user; then pg_reload_conf()"
                yield Difference(setting, "on: a commit must survive a crash", found, mend)
        for column in (_rows.c.partition, _rows.c.sort):
            where = (_columns.c.table_schema == self.schema, _columns.c.table_name == _rows.name)
            named = _columns.c.column_name == column.name
            found = connection.execute(sa.select(_columns.c.collation_name).where(*where, named)).scalar_one_or_none()
            if found != "C":
                mend = f'ALTER TABLE manifest ALTER COLUMN {column.name} TYPE text COLLATE "C"'
                yield Difference(f"collation of {column.name}", "C: keys order bytewise", str(found), mend)

    @contextmanager
    def listening(self) -> Generator[Any]:
        """Yields a connection of psycopg that listens to CHANNEL. Closes all connections afterward."""
        try:
            with closing(self.engine.raw_connection()) as pooled:
                connection: Any = pooled.driver_connection
                connection.autocommit = True
                connection.execute(f"LISTEN {CHANNEL}")
                try:
                    yield connection
                finally:
                    pooled.invalidate()  # it listens, so nobody else may get it from the pool
        finally:
            self.engine.dispose()

    def begin(self, connection: sa.Connection, keys: Sequence[str]) -> None:
        """Locks the keys, in one order for all transactions. Versions that a check has read stay valid until the commit."""
        connection.execute(self._lock, {"names": keys, "channel": CHANNEL})

    def advice(self, error: DBAPIError) -> str:
        if self.lacks_rights(error):
            return "grant this user CREATE on the schema, or create the tables as a user who has it"
        if told := postgresql_trust.advice(str(error.orig)):
            return told
        return "check host, port, database and user, and give the password by PGPASSWORD, PGPASSFILE or ${NAME}"

    def lacks_rights(self, error: DBAPIError) -> bool:
        """True if this user may not create the tables, which another user may."""
        return "permission denied" in str(error.orig)


_columns = sa.table(
    "columns", *map(sa.column, ("table_schema", "table_name", "column_name", "collation_name")), schema="information_schema"
)


def listener(url: str) -> _PostgreSql:
    """The database of a PostgreSQL URL, for listening. Connects to nothing yet."""
    return _PostgreSql(sa.make_url(url))


def create_database(url: str) -> bool:
    """Creates the manifest's tables that a URL's database lacks; returns True if any was missing. Raises as SqlStore does."""
    database = _database(url)
    try:
        return database.make_tables()
    except DBAPIError as error:
        raise _cannot_be_opened(database, error) from error
    finally:
        database.engine.dispose()


def check_database(url: str) -> tuple[str, list[Difference]]:
    """The name of a URL's database, and its differences from the required setup. Creates nothing. Raises as SqlStore does."""
    database = _database(url)
    try:
        with database.reader.connect() as connection:
            connection = database.look(connection)
            differences = list(_missing(connection, database.schema))
            return database.name, [*differences, *(database.differences(connection) if not differences else ())]
    except DBAPIError as error:
        raise _cannot_be_opened(database, error) from error
    finally:
        database.engine.dispose()


def _missing(connection: sa.Connection, schema: str | None) -> Iterator[Difference]:
    inspector = sa.inspect(connection)
    for table in _metadata.sorted_tables:
        if not inspector.has_table(table.name, schema):
            yield Difference(f"table {table.name}", "there", "missing", Remedy(Action.CREATE_STORE))
            continue
        lacking = {column.name for column in table.columns} - {
            column["name"] for column in inspector.get_columns(table.name, schema)
        }
        if lacking:
            expected = ", ".join(column.name for column in table.columns)
            mend = "it is not the manifest's own: name another database in manifest.store, or restore a backup"
            yield Difference(f"columns of {table.name}", expected, f"without {', '.join(sorted(lacking))}", mend)


def _cannot_be_opened(database: _Sqlite | _PostgreSql, error: DBAPIError) -> StoreUnavailable:
    remedy = Remedy(Action.CREATE_STORE) if database.lacks_rights(error) else None
    return StoreUnavailable(f"manifest store {database.name}: {_said(error)}: {database.advice(error)}", remedy)


def _are_there(connection: sa.Connection, schema: str | None = None) -> bool:
    inspector = sa.inspect(connection)
    return all(inspector.has_table(name, schema) for name in _metadata.tables)
