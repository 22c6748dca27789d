"""The manifest store in a SQL database, by SQLAlchemy Core: SQLite, the embedded default.

Belongs here: the store contract in SQL. SQLite runs with a write-ahead log and durable commits; a write transaction takes
the database's one write lock at its beginning, so that the versions it reads stay true until it commits.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from manifest_platform.manifest.store import (
    ABSENT,
    MAX_WRITES,
    Check,
    ConditionFailed,
    Delete,
    OutcomeUnknown,
    Row,
    StoreUnavailable,
    Write,
)

BUSY_TIMEOUT_S = 30
TOKEN_LIFETIME_S = 600
_BEYOND = "\x7f"  # sorts behind all that keys are made of
_ALL = -1  # SQLite's word for no limit

_metadata = sa.MetaData()
_rows = sa.Table(
    "manifest",
    _metadata,
    sa.Column("partition", sa.Text, primary_key=True),
    sa.Column("sort", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)
_tokens = sa.Table(
    "manifest_tokens",
    _metadata,
    sa.Column("token", sa.Text, primary_key=True),
    sa.Column("at", sa.Float, nullable=False, index=True),
    sqlite_with_rowid=False,
)

# Built once: to build a statement takes several times as long as to run it.
_here = (_rows.c.partition == sa.bindparam("in_partition"), _rows.c.sort == sa.bindparam("at_sort"))
_expected = (*_here, _rows.c.version == sa.bindparam("expected"))
_get = sa.select(_rows).where(*_here)
_get_version = sa.select(_rows.c.version).where(*_here)
_delete = sa.delete(_rows).where(*_expected)
_insert = sa.insert(_rows).prefix_with("OR IGNORE", dialect="sqlite")
_update = sa.update(_rows).where(*_expected).values(version=sa.bindparam("new_version"), data=sa.bindparam("new_data"))
_prefixed = sa.select(_rows).where(
    _rows.c.partition == sa.bindparam("in_partition"), _rows.c.sort >= sa.bindparam("low"), _rows.c.sort < sa.bindparam("high")
)
_ascending = _prefixed.where(_rows.c.sort > sa.bindparam("after")).order_by(_rows.c.sort).limit(sa.bindparam("count"))
_descending = _prefixed.where(_rows.c.sort < sa.bindparam("after")).order_by(_rows.c.sort.desc()).limit(sa.bindparam("count"))
_forget_tokens = sa.delete(_tokens).where(_tokens.c.at < sa.bindparam("before"))
_insert_token = sa.insert(_tokens).prefix_with("OR IGNORE", dialect="sqlite")


class SqlStore:
    """A store in a SQLite file; made on first use. Safe for threads and processes of one machine.

    Raises ValueError for a URL of anything else, StoreUnavailable where the file cannot be opened or made, is no database,
    or stays locked.
    """

    def __init__(self, url: str):
        parsed = sa.make_url(url)
        if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
            raise ValueError(f"manifest store {url!r}: a SQLite file is supported, as in sqlite:///path/to/manifest.db")
        self.requests = 0
        path = Path(parsed.database)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            advice = "name a path in a directory that this user may write in, or make the directory"
            raise StoreUnavailable(f"manifest store {path}: its directory cannot be made ({error}): {advice}") from error
        self._engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
        event.listen(self._engine, "connect", _configure)
        try:
            with self._engine.begin() as connection:
                _make_tables(connection)
        except DBAPIError as error:
            self._engine.dispose()
            raise StoreUnavailable(f"manifest store {path}: {error.orig}: {_advice(str(error.orig))}") from error

    def get(self, partition: str, sort: str) -> Row | None:
        """The row of a key, strongly consistent."""
        found = self._read(_get, {"in_partition": partition, "at_sort": sort})
        return found[0] if found else None

    def query(
        self,
        partition: str,
        prefix: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        """Rows whose sort key starts with `prefix` and lies beyond `after`, in order."""
        end = prefix + _BEYOND
        bounds = {"low": prefix, "high": end, "after": (end if reverse else "") if after is None else after}
        count = {"count": _ALL if limit is None else limit}
        return self._read(_descending if reverse else _ascending, {"in_partition": partition, **bounds, **count})

    def transact(self, partition: str, writes: Sequence[Write], token: str) -> None:
        """All writes or none."""
        if len(writes) > MAX_WRITES or len({write.sort for write in writes}) < len(writes):
            raise ValueError(f"{len(writes)} writes: at most {MAX_WRITES}, each to a row of its own")
        self.requests += 1
        committing = False
        try:
            with self._engine.begin() as connection:
                _take_write_lock(connection)
                if not _first_time(connection, token):
                    return
                failed = [write for write in writes if not _apply(connection, partition, write)]
                if failed:
                    raise ConditionFailed(failed)
                committing = True
        except DBAPIError as error:
            kind = OutcomeUnknown if committing else StoreUnavailable
            raise kind(f"manifest store {self._engine.url}: {error.orig}") from error

    def close(self) -> None:
        """Gives connections back."""
        self._engine.dispose()

    def _read(self, query: sa.Select, parameters: dict[str, Any]) -> list[Row]:
        self.requests += 1
        try:
            with self._engine.connect() as connection:
                found = connection.execute(query, parameters)
                return [Row(partition, sort, version, json.loads(data)) for partition, sort, version, data in found]
        except DBAPIError as error:
            raise StoreUnavailable(f"manifest store {self._engine.url}: {error.orig}") from error


def _configure(connection, _record) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself: BEGIN IMMEDIATE below is the only one
    connection.execute("PRAGMA synchronous = FULL")
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:  # SQLite itself does not wait for the lock that this takes on a fresh file
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def _make_tables(connection: sa.Connection) -> None:
    tables = "SELECT count(*) FROM sqlite_master WHERE name IN ('manifest', 'manifest_tokens')"
    if connection.exec_driver_sql(tables).scalar_one() < len(_metadata.tables):
        _take_write_lock(connection)
        _metadata.create_all(connection)


def _advice(problem: str) -> str:
    """What helps where a file cannot be opened, by SQLite's words."""
    if "locked" in problem:
        return f"another process has held its lock for {BUSY_TIMEOUT_S} s; try again when it has let go"
    if "not a database" in problem or "malformed" in problem:
        return "name another path, or move the file away and restore the manifest from a backup"
    return "make file and directory writable for this user, or name another path"


def _take_write_lock(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _first_time(connection: sa.Connection, token: str) -> bool:
    now = time.time()
    connection.execute(_forget_tokens, {"before": now - TOKEN_LIFETIME_S})
    return connection.execute(_insert_token, {"token": token, "at": now}).rowcount == 1


def _apply(connection: sa.Connection, partition: str, write: Write) -> bool:
    """Does one write; says whether its condition held."""
    here = {"in_partition": partition, "at_sort": write.sort}
    if isinstance(write, Check):
        version = connection.execute(_get_version, here).scalar()
        return (version or ABSENT) == write.expected
    if isinstance(write, Delete):
        return connection.execute(_delete, {**here, "expected": write.expected}).rowcount == 1
    text = json.dumps(write.data, separators=(",", ":"))
    if write.expected == ABSENT:
        values = {"partition": partition, "sort": write.sort, "version": 1, "data": text}
        return connection.execute(_insert, values).rowcount == 1
    changes = {"expected": write.expected, "new_version": write.expected + 1, "new_data": text}
    return connection.execute(_update, {**here, **changes}).rowcount == 1
