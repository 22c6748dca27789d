"""A person's question to a DuckDB: one query, which reads what the connection was given, and reaches nothing else.

The type of a statement does not tell what it does: a SELECT may hold a COPY in its WITH, or run a statement that it makes of
a text, and DuckDB lets it write to any file that it may read, the database that is open for reading included. So nothing is
allowed file by file: DuckDB loses its file system once the database is open. Objects reach it through Arrow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

_OUTSIDE = {"enable_external_access": "false", "temp_directory": ""}
_CONFINEMENT = (
    "SET GLOBAL TimeZone = 'UTC'",
    "SET disabled_filesystems = 'LocalFileSystem'",
    "SET lock_configuration = true",
)
"""Each takes something away for as long as the database is open; the last one, that anything is given back."""

_EXPLAIN = re.compile(r"\s*EXPLAIN(?:\s+ANALYZE)?\s+(?P<explained>.*)", re.IGNORECASE | re.DOTALL)


def connect(path: Path | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB file that is open for reading, or an empty DuckDB in memory, to which nothing outside of it exists.

    No files, hosts, extensions or variables of Python; what is registered with the connection is there. What needs more memory
    than DuckDB may have fails, as there is no file to spill to. Raises duckdb.Error.
    """
    import duckdb

    connection = duckdb.connect(path or ":memory:", read_only=path is not None, config=dict(_OUTSIDE))
    for setting in _CONFINEMENT:
        try:
            connection.execute(setting)
        except duckdb.InvalidInputException as error:
            if "has been locked" not in str(error):
                raise
            break  # by another connection of this process to the same file, which has done all this
    return connection


def ask(connection: duckdb.DuckDBPyConnection, sql: str, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of a query's columns, and its rows, the first `most` of them.

    Raises duckdb.Error, also for what is not a single query.
    """
    found = connection.execute(_query(connection, sql))
    columns = [column[0] for column in found.description or ()]
    return columns, found.fetchall() if most is None else found.fetchmany(most)


def _query(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The only statement of a text, which must be a query, or the explanation of one."""
    import duckdb

    statements = connection.extract_statements(sql)
    if len(statements) == 1 and statements[0].type == duckdb.StatementType.SELECT:
        return statements[0]
    if len(statements) == 1 and statements[0].type == duckdb.StatementType.EXPLAIN:
        explained = _EXPLAIN.fullmatch(sql)
        if explained and _query(connection, explained["explained"]):
            return statements[0]
    kinds = ", ".join(statement.type.name for statement in statements) or "none"
    raise duckdb.InvalidInputException(
        f"not one query ({kinds}): ask by a single SELECT, FROM, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN; nothing is changed here"
    )
