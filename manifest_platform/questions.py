"""Runs a person's query in a DuckDB that can access only the data registered with its connection.

The type of a statement does not show what it does: a SELECT may contain a COPY in its WITH clause, or run a statement built
from a text. DuckDB lets it write to any file that it may read, including a database opened for reading. A list of allowed files
would therefore not help. Instead, DuckDB's access to files is disabled after the database is opened. Objects outside of the
database are read through Arrow.
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
"""Settings that remove access while the database is open. The last setting prevents changing them back."""

_EXPLAIN = re.compile(r"\s*EXPLAIN(?:\s+ANALYZE)?\s+(?P<explained>.*)", re.IGNORECASE | re.DOTALL)


def connect(path: Path | None = None) -> duckdb.DuckDBPyConnection:
    """Opens a DuckDB file for reading, or an empty DuckDB in memory, without access to anything outside of it.

    It has no files, hosts, extensions or Python variables, only what is registered with the connection. A query that needs more
    memory than DuckDB's limit fails, because it cannot spill to a file. Raises duckdb.Error.
    """
    import duckdb

    connection = duckdb.connect(path or ":memory:", read_only=path is not None, config=dict(_OUTSIDE))
    for setting in _CONFINEMENT:
        try:
            connection.execute(setting)
        except duckdb.InvalidInputException as error:
            if "has been locked" not in str(error):
                raise
            break  # another connection of this process to the same file has applied all settings
    return connection


def ask(connection: duckdb.DuckDBPyConnection, sql: str, most: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Runs a query and returns its column names and its rows, at most `most`.

    Raises duckdb.Error, also if the text is not a single query.
    """
    found = connection.execute(_query(connection, sql))
    columns = [column[0] for column in found.description or ()]
    return columns, found.fetchall() if most is None else found.fetchmany(most)


def _query(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The single statement of a text, which must be a query or an EXPLAIN of a query."""
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
        f"not one query ({kinds}): use a single SELECT, FROM, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN; it cannot change anything"
    )
