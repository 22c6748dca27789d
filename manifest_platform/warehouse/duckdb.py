"""DuckDB: the embedded warehouse, one file that one process has open at a time."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manifest_platform import storage
from manifest_platform.listing import Table
from manifest_platform.warehouse.dialect import Dialect, Source
from manifest_platform.warehouse.errors import Conflict, ConstraintViolated, LoadFailed, Unavailable, Unclear

if TYPE_CHECKING:
    import duckdb

_LOCK_POLL_SECONDS = 0.05

# DuckDB enforces no length, so string(n) is VARCHAR as well. So is json: its JSON type would refuse what other parsers
# accept (a lone surrogate, say), and its JSON functions and operators work on VARCHAR all the same.
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


class DuckDB(Dialect):
    """A DuckDB file, created where there is none; its connection, and so the file's lock, is kept until `close`."""

    def __init__(self, path: str | Path, patience: float = Dialect.patience) -> None:
        self.path = Path(path)
        self.patience = patience
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._catalog = ""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement and returns its rows."""
        import duckdb

        connection = self._open()
        try:
            return connection.execute(sql, parameters).fetchall()
        except duckdb.TransactionException as error:
            raise Conflict(f"{self.path}: {_first_line(error)}") from error
        except duckdb.FatalException as error:
            self.close()
            raise Unavailable(f"{self.path}: {error}; the file is opened anew at the next try") from error
        except duckdb.Error as error:
            kind = ConstraintViolated if isinstance(error, duckdb.ConstraintException) else LoadFailed
            raise kind(f"{self.path}: {error}\nin the statement: {_first_line(sql)}") from error

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Runs one INSERT, UPDATE or DELETE and returns how many rows it wrote."""
        return self.execute(sql, parameters)[0][0]

    def begin(self) -> None:
        """Begins a transaction; DuckDB's are snapshots, and the second writer of a row gets a conflict at once."""
        self.execute("BEGIN")

    def commit(self) -> None:
        """Commits durably. DuckDB rolls back whatever it reports as a transaction error; any other error is unclear."""
        try:
            self.execute("COMMIT")
        except (LoadFailed, Unavailable) as error:
            self.close()
            raise Unclear(f"{self.path}: COMMIT got no clear answer ({error}): raise the fence and ask the ledger") from error

    def rollback(self) -> None:
        """Ends the transaction, if there is one, without effect."""
        import duckdb

        if self._connection is None:
            return
        try:
            self._connection.execute("ROLLBACK")
        except duckdb.TransactionException:
            return  # a failed COMMIT has rolled back already
        except duckdb.Error:
            self.close()

    def close(self) -> None:
        """Closes the connection and gives the file free, unless the process has other connections to it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def qualified(self, schema: str, table: str | None = None) -> str:
        """The quoted name with the catalog: DuckDB calls that after the file, and a schema of that name is ambiguous."""
        self._open()
        return ".".join(self.quote(part) for part in (self._catalog, schema, table) if part is not None)

    def sql_type(self, logical: str) -> str:
        """The type's DuckDB name."""
        return _SQL_TYPES.get(re.sub(r"^string\(\d+\)$", "string", logical)) or logical.upper()

    def columns(self, schema: str) -> dict[str, dict[str, str]]:
        """The columns of a schema, by one query of the catalog."""
        found: dict[str, dict[str, str]] = {}
        query = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = ? AND schema_name = ?"
        self._open()
        for table, column, sql_type in self.execute(query, (self._catalog, schema)):
            found.setdefault(table, {})[column] = _LOGICAL_TYPES.get(sql_type, sql_type.lower())
        return found

    def widen(self, table: str, column: str, sql_type: str) -> str:
        """The statement that gives a column a wider type."""
        return f"ALTER TABLE {table} ALTER COLUMN {column} SET DATA TYPE {sql_type}"

    def stage(self, table: Table, uris: list[str]) -> Source:
        """Names the objects; DuckDB reads local files in place, and S3 through Arrow, as its S3 extension is a download.

        A copy to verify first would gain nothing: the INSERTs themselves report what they read, before the COMMIT.
        """
        if all(storage.is_local(uri) for uri in uris):
            # Paths have date=… in them, which must not become a column.
            return Source("read_parquet(?, hive_partitioning = false)", ([_literal_glob(uri) for uri in uris],))
        import pyarrow.dataset

        system, _ = storage.filesystem(uris[0])
        paths = [storage.filesystem(uri)[1] for uri in uris]
        view = f"staged_{uuid.uuid4().hex}"
        try:
            objects = pyarrow.dataset.dataset(paths, filesystem=system, format="parquet")
        except OSError as error:
            kind = LoadFailed if isinstance(error, FileNotFoundError) else Unavailable
            raise kind(f"objects of table {table.name}: {error}") from error
        self._open().register(view, objects)
        return Source(self.quote(view))

    def unstage(self, source: Source) -> None:
        """Forgets the view of S3 objects; naming local files made nothing."""
        import duckdb

        if self._connection is None or source.parameters:
            return
        try:
            self._connection.unregister(source.sql.strip('"'))
        except duckdb.Error:
            self.close()

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = self._connect()
            self._connection.execute("SET TimeZone = 'UTC'")  # or a zoned Parquet timestamp would be cast to local time
            self._catalog = self._connection.execute("SELECT current_database()").fetchall()[0][0]
        return self._connection

    def _connect(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        deadline = time.monotonic() + self.patience
        while True:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                return duckdb.connect(str(self.path))
            except (duckdb.Error, OSError) as error:
                if "Could not set lock" not in str(error):
                    raise Unavailable(f"cannot open the DuckDB file {self.path}: {error}") from error
                if time.monotonic() >= deadline:
                    raise Unavailable(
                        f"the DuckDB file {self.path} is locked by another process, waited {self.patience:g} s: "
                        f"{_first_line(error)}; end that process, or try again when it has closed the file"
                    ) from error
                time.sleep(_LOCK_POLL_SECONDS)


def _first_line(text: object) -> str:
    return str(text).strip().partition("\n")[0]


def _literal_glob(uri: str) -> str:
    """The local path as a glob pattern that matches nothing but itself; DuckDB has no literal paths."""
    return re.sub(r"[*?[]", r"[\g<0>]", str(storage.local_path(uri)))
