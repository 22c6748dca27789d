"""The DuckDB engine: the embedded warehouse, a file that only one process at a time has open."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from manifest_platform import questions, storage
from manifest_platform.listing import Table
from manifest_platform.warehouse.engines.duckdb.turns import Turns
from manifest_platform.warehouse.engines.engine import Engine, Staging
from manifest_platform.warehouse.errors import Conflict, ConstraintViolated, Held, LoadFailed, Unavailable
from manifest_platform.warehouse.upkeep_settings import UpkeepAction

if TYPE_CHECKING:
    import duckdb

_INTERRUPTED = "Query interrupted"
_LOCK_POLL_SECONDS, _OFTEN_SECONDS = 0.02, 2.0  # each try to open a locked file costs about 4 ms
_READERS_COURTESY_SECONDS = 5.0
_FOOTERS_AT_ONCE = 16
_HOLDER = re.compile(r"\(PID (?P<pid>\d+)\)")
_HELD = ("Could not set lock", "with a different configuration")  # by another process; by this process, for another use

# An error with one of these texts says that an object does not exist. A committed object that is gone does not come back.
_GONE = ("No files found", "No such file", "does not exist", "NO_SUCH_KEY", "NO_SUCH_BUCKET", "HTTP status 404")

# DuckDB enforces no length, so string(n) is VARCHAR too. So is json: DuckDB's JSON type would refuse what other parsers
# accept (a lone surrogate, for example), and its JSON functions and operators work on VARCHAR as well.
_SQL_TYPES = {
    "boolean": "BOOLEAN",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "timestamp": "TIMESTAMP",
    "date": "DATE",
    "json": "VARCHAR",
    "string": "VARCHAR",
}
_LOGICAL_TYPES = {sql: logical for logical, sql in _SQL_TYPES.items()}


class DuckDB(Engine):
    """A DuckDB file, created if absent. The connection, and with it the lock on the file, is kept until `release` or `close`.

    Its transactions are snapshots: the second writer of a row gets a conflict immediately, and DuckDB has then rolled it back.

    With `read_only`, for queries: nothing is created or changed, and a query reaches nothing else (see `questions`). Several
    processes may read a file at the same time, but not while a process writes it.
    """

    views_span_schemas: ClassVar[bool] = True

    def __init__(self, path: str | Path, patience: float = Engine.patience, read_only: bool = False) -> None:
        self.path = Path(path)
        self.patience = patience
        self.read_only = read_only
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._catalog = ""
        self._turns = Turns(self.path)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""
        connection = self.connection()
        with self._errors(sql):
            return connection.execute(sql, parameters).fetchall()

    @contextmanager
    def _errors(self, sql: str) -> Generator[None]:
        """Translates DuckDB's errors. It replaces a signal's exception by an error of its own: KeyboardInterrupt again."""
        import duckdb

        try:
            yield
        except RuntimeError as error:
            if str(error) == _INTERRUPTED:
                raise KeyboardInterrupt from error
            raise
        except duckdb.TransactionException as error:
            raise Conflict(f"{self.path}: {_first_line(error)}") from error
        except duckdb.FatalException as error:
            self.close()
            raise Unavailable(f"{self.path}: {error}. The next try opens the file again") from error
        except duckdb.Error as error:
            if _passes(error):
                raise Unavailable(f"{self.path}: {error}. Nothing was changed. Fix the cause and try again") from error
            kind = ConstraintViolated if isinstance(error, duckdb.ConstraintException) else LoadFailed
            raise kind(f"{self.path}: {error}\nin the statement: {_first_line(sql)}") from error

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Runs one INSERT, UPDATE or DELETE and returns the number of rows."""
        return self.execute(sql, parameters)[0][0]

    def query(self, sql: str, schema: str | None = None, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Runs a person's query, as `questions.ask`, and returns its column names and rows."""
        import duckdb

        connection = self.connection()
        with suppress(duckdb.CatalogException):  # nothing was loaded yet
            connection.execute("SET search_path = " + _literal(self.quote(schema or "main")))
        with self._errors(sql):
            return questions.ask(connection, sql, most)

    def rollback(self) -> None:
        """Rolls back the open transaction, if there is one."""
        import duckdb

        if self._connection is None:
            return
        try:
            self._connection.execute("ROLLBACK")
        except duckdb.TransactionException:
            return  # a failed COMMIT has already rolled back
        except duckdb.Error:
            self.close()

    def interrupt(self) -> None:
        """Makes the running statement fail, if there is one."""
        if self._connection is not None:
            self._connection.interrupt()

    def close(self) -> None:
        """Closes the connection and unlocks the file, unless the process has other connections to it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            if not self.read_only:
                self._turns.end()

    def release(self, idle: bool) -> bool:
        """Closes the file if another process waits for it, or if nothing follows soon."""
        if self._connection is None or not (idle or self._turns.others_wait()):
            return False
        self.close()
        return True

    @property
    def is_at_hand(self) -> bool:
        """True if the file is open."""
        return self._connection is not None

    def qualified(self, schema: str, table: str | None = None) -> str:
        """Returns the quoted name with the catalog, which is named after the file: a schema may have the same name."""
        if not self._catalog:
            self.connection()
        return ".".join(self.quote(part) for part in (self._catalog, schema, table) if part is not None)

    def facts(self) -> dict[str, str]:
        """Returns DuckDB's version."""
        return {"version": self.execute("SELECT version()")[0][0]}

    def exists(self) -> bool:
        """True if the file exists; connecting would create it."""
        return self.path.exists()

    def sql_type(self, logical: str) -> str:
        """Returns the DuckDB name of the type."""
        return _SQL_TYPES.get(re.sub(r"^string\(\d+\)$", "string", logical)) or logical.upper()

    def columns(self, schema: str) -> dict[str, dict[str, str]]:
        """Returns the columns of a schema, with one query of the catalog."""
        found: dict[str, dict[str, str]] = {}
        query = (
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = ? AND schema_name = ? "
            "AND table_oid IN (SELECT table_oid FROM duckdb_tables() WHERE database_name = ? AND schema_name = ?)"
        )
        if self.read_only and not self.path.exists():
            return found
        self.connection()
        for table, column, sql_type in self.execute(query, (self._catalog, schema) * 2):
            found.setdefault(table, {})[column] = _LOGICAL_TYPES.get(sql_type, sql_type.lower())
        return found

    def views(self, schema: str) -> list[str]:
        """Returns the names of the views of a schema."""
        self.connection()
        query = "SELECT view_name FROM duckdb_views() WHERE database_name = ? AND schema_name = ?"
        return [name for (name,) in self.execute(query, (self._catalog, schema))]

    def compared(self, name: str) -> str:
        """Returns the name in lower case: DuckDB matches names without case, in quotes too."""
        return self.stored_name(name).lower()

    def widen(self, table: str, column: str, sql_type: str) -> None:
        """Gives a column a wider type. DuckDB refuses that for a table with indexes, so these are dropped and created again."""
        altering = f"ALTER TABLE {table} ALTER COLUMN {column} SET DATA TYPE {sql_type}"
        indexes = self.execute(
            "SELECT schema_name, table_name, index_name, sql FROM duckdb_indexes() WHERE database_name = ?", (self._catalog,)
        )
        mine = [
            (self.qualified(schema, index), creation)
            for schema, of, index, creation in indexes
            if self.qualified(schema, of) == table
        ]
        if not mine:
            self.execute(altering)
            return
        self.begin()
        try:
            for statement in (*(f"DROP INDEX {index}" for index, _ in mine), altering, *(creation for _, creation in mine)):
                self.execute(statement)
            self.commit()
        finally:
            self.rollback()

    def required(self, schema: str) -> dict[str, list[str]]:
        """Returns the columns that are NOT NULL, without those of a primary key, which are never empty."""
        query = """
            SELECT table_name, column_name FROM duckdb_columns()
                WHERE database_name = $1 AND schema_name = $2 AND NOT is_nullable
            EXCEPT SELECT table_name, unnest(constraint_column_names) FROM duckdb_constraints()
                WHERE database_name = $1 AND schema_name = $2 AND constraint_type = 'PRIMARY KEY'
            ORDER BY 1, 2
        """
        found: dict[str, list[str]] = {}
        if self.read_only and not self.path.exists():
            return found
        self.connection()
        for table, column in self.execute(query, (self._catalog, schema)):
            found.setdefault(table, []).append(column)
        return found

    def tidy(self, table: str, action: UpkeepAction) -> None:
        """Collects statistics of a table; or writes a checkpoint of the file, which reclaims the space of deleted rows."""
        self.execute(f"ANALYZE {table}" if action == "analyze" else "CHECKPOINT")

    def attached(self, schema: str) -> dict[str, list[str]]:
        """Returns indexes, constraints, defaults and comments. Views refer to tables by name, so none is lost."""
        query = """
            SELECT table_name, 'index ' || index_name FROM duckdb_indexes() WHERE database_name = $1 AND schema_name = $2
            UNION SELECT table_name, lower(constraint_type) FROM duckdb_constraints()
                WHERE database_name = $1 AND schema_name = $2
            UNION SELECT referenced_table, 'foreign key of ' || table_name FROM duckdb_constraints()
                WHERE database_name = $1 AND schema_name = $2 AND referenced_table IS NOT NULL
            UNION SELECT table_name, 'comment' FROM duckdb_tables()
                WHERE database_name = $1 AND schema_name = $2 AND comment IS NOT NULL
            UNION SELECT table_name, 'comment of ' || column_name FROM duckdb_columns()
                WHERE database_name = $1 AND schema_name = $2 AND comment IS NOT NULL
            UNION SELECT table_name, 'default of ' || column_name FROM duckdb_columns()
                WHERE database_name = $1 AND schema_name = $2 AND column_default IS NOT NULL
            ORDER BY 1, 2
        """
        self.connection()
        found: dict[str, list[str]] = {}
        for table, what in self.execute(query, (self._catalog, schema)):
            found.setdefault(table, []).append(what)
        return found

    def stage(self, table: Table, uris: list[str]) -> Staging:
        """Names the objects. DuckDB reads local files in place, and S3 through Arrow, because its S3 extension is a download.

        Copying the rows first to check them would gain nothing: the INSERTs report the number of rows before COMMIT.
        """
        if all(storage.is_local(uri) for uri in uris):
            # Paths contain date=…, which must not become a column.
            # A file lacks the columns of which it has no value: by name, DuckDB reads null there.
            sql = "read_parquet(?, union_by_name = true, hive_partitioning = false)"
            return Staging(sql, ([_literal_glob(uri) for uri in uris],))
        import pyarrow as pa
        import pyarrow.dataset

        system, _ = storage.filesystem(uris[0])
        paths = [storage.filesystem(uri)[1] for uri in uris]
        view = f"staged_{uuid.uuid4().hex}"
        try:
            objects = pyarrow.dataset.dataset(paths, filesystem=system, format="parquet")
            with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
                schemas = list(pool.map(lambda one: one.physical_schema, objects.get_fragments()))
            objects = objects.replace_schema(pa.unify_schemas(schemas, promote_options="permissive"))
        except (OSError, pa.ArrowInvalid) as error:
            kind = LoadFailed if isinstance(error, (FileNotFoundError, pa.ArrowInvalid)) else Unavailable
            raise kind(f"objects of table {table.name}: {error}") from error
        self.connection().register(view, objects)
        return Staging(self.quote(view))

    def unstage(self, staging: Staging) -> None:
        """Removes the view of S3 objects; local files need no cleanup."""
        import duckdb

        if self._connection is None or staging.parameters:
            return
        try:
            self._connection.unregister(staging.sql.strip('"'))
        except duckdb.Error:
            self.close()

    def connection(self) -> duckdb.DuckDBPyConnection:
        """Returns DuckDB's own connection, for uses beyond `execute`. Raises Unavailable if the file cannot be opened."""
        if self._connection is None:
            self._connection = self._connect()
            self._catalog = self._connection.execute("SELECT current_database()").fetchall()[0][0]
        return self._connection

    def _connect(self) -> duckdb.DuckDBPyConnection:
        begun = time.monotonic()
        try:
            while True:
                waited = time.monotonic() - begun
                held = None
                # A reader may share the file with readers, so it waits only part of its time for writers who came earlier.
                if self._turns.is_mine() or (self.read_only and waited >= min(self.patience / 2, _READERS_COURTESY_SECONDS)):
                    try:
                        return self._open()
                    except Held as error:
                        held = error
                if waited >= self.patience:
                    raise held or Held(f"the DuckDB file {self.path} is busy: other processes wait for it, and came earlier")
                self._turns.wait()
                time.sleep(_LOCK_POLL_SECONDS if waited < _OFTEN_SECONDS else 5 * _LOCK_POLL_SECONDS)
        finally:
            self._turns.leave()

    def _open(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        try:
            if self.read_only:
                return self._open_read_only()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = duckdb.connect(str(self.path))
            self._turns.begin()
            connection.execute("SET TimeZone = 'UTC'")  # otherwise a zoned Parquet timestamp would be cast to local time
            return connection
        except (duckdb.Error, OSError) as error:
            if not any(words in str(error) for words in _HELD):
                raise Unavailable(f"cannot open the DuckDB file {self.path}: {error}") from error
            found = _HOLDER.search(str(error))
            pid = int(found["pid"]) or None if found else None  # 0: a process of another container
            raise Held(
                f"the DuckDB file {self.path} is locked by another process or connection; waited {self.patience:g} s: "
                f"{_first_line(error)}. End that process, or try again when it has closed the file",
                pid,
                pid is not None and self._turns.is_worker(pid),
            ) from error

    def _open_read_only(self) -> duckdb.DuckDBPyConnection:
        if not self.path.exists():
            raise Unavailable(f"there is no warehouse at {self.path} yet. The first load creates it, so drain first")
        return questions.connect(self.path)


def _passes(error: duckdb.Error) -> bool:
    """True if the same statement may succeed later: memory, disk or storage failed, not the statement or its data."""
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException):
        return True
    # Errors while Arrow reads from S3 come through DuckDB as invalid input; AWS errors are errors of the storage.
    from_storage = isinstance(error, duckdb.IOException) or "AWS Error" in str(error)
    return from_storage and not any(words in str(error) for words in _GONE)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _first_line(text: object) -> str:
    return str(text).strip().partition("\n")[0]


def _literal_glob(uri: str) -> str:
    """Returns the local path as a glob pattern that matches only itself, because DuckDB has no literal paths."""
    return re.sub(r"[*?[]", r"[\g<0>]", str(storage.local_path(uri)))
